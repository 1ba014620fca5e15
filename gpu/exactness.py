"""Whether a schedule's kernels compute attention: O and LSE against float64, tolerance derived."""

from typing import Any

import numpy as np

from iosim import reference
from iosim.gpu.launch import run
from iosim.gpu.profiled import random_arrays
from iosim.schedule.tree import Schedule
from iosim.tolerance import Execution, agrees, elementwise_error, two_times_rule

# Tensor cores cut sums off where they should round, so that an addition errs by two roundoffs; the
# products of float32 are sums of three parts, which leave out and round 12 roundoffs of a product.
TRUNCATION = 2
SPLIT = 12


def execution_of(schedule: Schedule) -> Execution:
    """Return how the kernels of a schedule round, for `iosim.tolerance`."""
    shape, bc = schedule.shape, schedule.tiles["bc"]
    split = SPLIT if shape.dtype == "float32" else 0
    return Execution(
        shape.dtype,
        head_dim=TRUNCATION * shape.head_dim + split,
        n_keys=shape.n_k,
        tiles=-(-shape.n_k // bc),
        largest_tile=TRUNCATION * min(bc, shape.n_k) + split,
        stored_scores=schedule.name == "standard_tiled",
        stored_output_per_tile=schedule.name == "flash1",
    )


def compare(schedule: Schedule, seed: int = 0) -> dict[str, Any]:
    """Run a schedule on random arrays and return its errors beside what they may be.

    `standard_error` is that of standard attention in the same dtype, the field's yardstick.
    """
    shape = schedule.shape
    q, k, v = random_arrays(shape, seed)
    result = run(schedule, q, k, v)
    visible = None
    if schedule.mask is not None:
        visible = schedule.mask.visible(slice(0, shape.n_q), slice(0, shape.n_k))
    expected, lse = reference.attention(q, k, v, visible)
    standard, _ = reference.standard_attention(q, k, v, shape.dtype, visible)
    bound, lse_bound = elementwise_error(execution_of(schedule), q, k, v, visible)
    O = result.O.astype(np.float64)
    fine = bool(agrees(O, expected, bound))
    if result.LSE is not None:
        fine = fine and bool(agrees(result.LSE, lse, lse_bound))
    error = float(np.abs(O - expected).max())
    standard_error = float(np.abs(standard - expected).max())
    return {
        "schedule": schedule.name,
        **shape.to_dict(("n_q", "n_k", "head_dim", "heads", "dtype", "causal")),
        **schedule.tiles,
        "largest_error": error,
        "tolerance": float(bound.max()),
        "standard_error": standard_error,
        "two_times_rule": two_times_rule(error, standard_error),
        "agrees": fine,
    }
