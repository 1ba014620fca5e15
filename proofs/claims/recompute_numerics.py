"""Claims about rounding errors."""

import numpy as np

from iosim.proofs.claims.common import square
from iosim.proofs.claims.quantity import Number
from iosim.proofs.claims.registry import Reading, Recomputed, recomputation
from iosim.reading.execute import execute
from iosim.reference import attention
from iosim.schedule import family
from iosim.tolerance import Execution, forward_error, score_magnitude


@recomputation
def online_softmax_error(n: int, d: int, dtype: str, br: int, bc: int, seed: int) -> Recomputed:
    """Executes flash2 on standard normal Q, K and V and compares O with the float64 reference."""
    random = np.random.default_rng(seed)
    q, k, v = (random.standard_normal((n, d), dtype=np.float32) for _ in "QKV")
    done = execute(family("flash2").build(square(n, d, dtype), br=br, bc=bc), q, k, v)
    expected, _ = attention(q, k, v)
    error = float(np.abs(done.O - expected).max())
    bound = forward_error(
        Execution(dtype, d, n, tiles=-(-n // bc), largest_tile=bc),
        score_magnitude=score_magnitude(q, k),
        value_magnitude=float(np.abs(v).max()),
    )
    return Recomputed(
        readings=(
            Reading(
                "largest error on standard normal inputs",
                {"error": Number(error, "abs. error")},
                assumed=True,
            ),
        ),
        facts={"bound": bound, "below": error <= bound},
    )
