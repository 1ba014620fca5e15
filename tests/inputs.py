"""What schedules are executed on: operands in float64 that are numbers of the shape's dtype."""

import numpy as np

from iosim import reference
from iosim.precision import precision
from iosim.random_bits import RandomState, dropout_factors
from iosim.reading.execute import Execution, execute, inputs_of
from iosim.schedule import Schedule
from iosim.shape import AttentionShape


def operands(shape: AttentionShape, seed: int, spread: float = 1.0) -> list[np.ndarray]:
    """Q, K and V."""
    rng = np.random.default_rng(seed)
    rows = (shape.heads, shape.n_q, shape.head_dim), (shape.kv_heads, shape.n_k, shape.head_dim)
    sizes = (*rows, (shape.kv_heads, shape.n_k, shape.value_dim))
    form = precision(shape.dtype)
    return [
        form.round(rng.normal(size=(shape.batch, *size)) * spread).astype(np.float64)
        for size in sizes
    ]


def output_gradient(shape: AttentionShape, seed: int, spread: float = 1.0) -> np.ndarray:
    """The gradient of O, dO."""
    rng = np.random.default_rng((seed, 1))
    size = (shape.batch, shape.heads, shape.n_q, shape.value_dim)
    return precision(shape.dtype).round(rng.normal(size=size) * spread).astype(np.float64)


def others(schedule: Schedule, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> dict[str, object]:
    """What the schedule reads beside Q, K and V, from the float64 reference."""
    shape = schedule.shape
    visible = None
    if schedule.mask is not None:
        visible = schedule.mask.visible(slice(0, shape.n_q), slice(0, shape.n_k))
    factors = None
    if shape.dropout:
        sizes = (shape.batch, shape.heads, shape.n_q, shape.n_k)
        factors = dropout_factors(RandomState(), shape.dropout, sizes).reshape(*q.shape[:-1], -1)
    O, LSE = reference.attention(q, k, v, visible, factors=factors)
    with np.errstate(all="ignore"):
        s = q @ reference.repeat_heads(q, k).swapaxes(-1, -2) / np.sqrt(shape.head_dim)
        s = s if visible is None else np.where(visible, s, -np.inf)
        P = np.exp(s - np.where(np.isneginf(LSE), 0.0, LSE)[..., None])
        m = s.max(axis=-1)
        l = np.exp(LSE - np.where(np.isneginf(m), 0.0, m))
    dO = output_gradient(shape, 0).reshape(O.shape)
    known = {"dO": dO, "O": O, "LSE": LSE, "m": m, "l": l, "P": P}
    if factors is not None:
        state = {"seed": np.zeros((), np.uint64), "offset": np.zeros((), np.uint64)}
        known |= {"P_d": P * factors, "Z": factors > 0, **state}
    own = ("Q", "K", "V", "mask", "page_table")
    return {name: known[name] for name in inputs_of(schedule) if name not in own}


def run(schedule: Schedule, q: np.ndarray, k: np.ndarray, v: np.ndarray, **more) -> Execution:
    """Execute a schedule of either pass."""
    return execute(schedule, q, k, v, **more, **others(schedule, q, k, v))
