"""A training step: a forward schedule executed, then the backward schedule that belongs to it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike

from iosim.errors import IosimError
from iosim.random_bits import RandomState
from iosim.reading.execute import Execution, execute, inputs_of
from iosim.schedule.tree import Schedule


@dataclass(frozen=True, eq=False)
class TrainingStep:
    """What the two passes of a training step gave: O (and LSE), then dQ, dK and dV."""

    forward: Execution
    backward: Execution


def training_step(
    backward: Schedule,
    forward: Schedule,
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    dO: ArrayLike,
    *,
    scale: float | None = None,
    capacity: int | None = None,
    random: RandomState | None = None,
) -> TrainingStep:
    """Execute both passes: the backward one reads what the forward one left in slow memory.

    Arrays, `scale`, `capacity` and `random` as in `execute`; dO is (batch, heads, n_q, d_v). Raises
    IosimError where the forward schedule does not leave what the backward one reads.

    >>> import numpy as np
    >>> from iosim.schedule import family
    >>> from iosim.shape import AttentionShape
    >>> shape = AttentionShape(n_q=2, n_k=3, head_dim=2, dtype="float64")
    >>> built = (family(name).build(shape, br=1, bc=2) for name in ("flash2_backward", "flash2"))
    >>> q, k, v, dO = np.zeros((2, 2)), np.zeros((3, 2)), np.eye(3)[:, :2], np.ones((2, 2))
    >>> training_step(*built, q, k, v, dO).backward.outputs["dV"][0]
    array([0.66666667, 0.66666667])
    """
    done = execute(forward, q, k, v, scale=scale, capacity=capacity, random=random)
    left: Mapping[str, Any] = done.outputs | done.kept
    others = {}
    for name in inputs_of(backward).keys() - {"Q", "K", "V", "dO"}:
        if name not in left:
            raise IosimError(
                f"{backward.name} reads {name}, which the forward schedule {forward.name} "
                f"does not leave; it leaves {', '.join(left)}"
            )
        others[name] = left[name]
    given: dict[str, Any] = {"dO": dO, **others}
    gradients = execute(backward, q, k, v, scale=scale, capacity=capacity, **given)
    return TrainingStep(done, gradients)
