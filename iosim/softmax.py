"""Online softmax: the state (m, l, o) of a row, its merge, and the steps a tile loop is made of.

For a set of keys with scores s_j and values v_j, a row's state is the maximum m = max s_j, the
sum l = sum exp(s_j - m) and the unnormalised output o = sum exp(s_j - m) v_j. States of disjoint
sets of keys merge (Milakov and Gimelshein 2018, arXiv 1805.02867, section 3.1; Dao et al. 2022,
arXiv 2205.14135, Algorithm 1), so the keys may come in any tiles and in any order.

A masked score is -inf and nothing else. A row that sees no key has m = -inf, l = 0, o = 0 and
ends as O = 0, LSE = -inf. A NaN or +inf score makes its own row NaN, and no other. Values must be
finite: 0 times infinity is NaN even under a mask, as in any attention that computes P V.
Infinity minus infinity is how a +inf score becomes NaN, and small exponentials underflow: both are
meant, so no floating-point warning leaves this module.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from iosim.errors import IosimError
from iosim.precision import Array, Precision


@dataclass(frozen=True, eq=False)
class SoftmaxState:
    """Rows of softmax over some of their keys: m, l of shape (..., rows), o of (..., rows, d_v).

    ``o`` is not normalised. Statistics are float32, or float64 for float64 scores.
    """

    m: Array
    l: Array
    o: Array


def identity(
    rows: int | tuple[int, ...], value_dim: int, dtype: np.typing.DTypeLike = np.float32
) -> SoftmaxState:
    """The state of rows that have seen no key: (-inf, 0, 0), the neutral element of `merge`.

    ``rows`` is the number of rows, or the shape (..., rows).

    >>> finish(identity(2, 1))[1]
    array([-inf, -inf], dtype=float32)
    """
    shape = (rows,) if isinstance(rows, int) else rows
    return SoftmaxState(
        np.full(shape, -np.inf, dtype), np.zeros(shape, dtype), np.zeros((*shape, value_dim), dtype)
    )


def of_block(scores: Array, values: Array, precision: Precision | None = None) -> SoftmaxState:
    """The state of one block of keys: scores (..., rows, keys), values (..., keys, d_v).

    ``precision`` rounds P before P V; l always sums P as it was before rounding.

    >>> state = of_block(np.array([[0.0, -np.inf]]), np.array([[3.0], [5.0]]))
    >>> finish(state)
    (array([[3.]]), array([0.]))
    """
    scores = np.asarray(scores)
    scores = scores.astype(np.result_type(scores.dtype, np.float32), copy=False)
    m = new_maximum(scores)
    p = stable_exp(scores, m)
    with np.errstate(all="ignore"):
        l = p.sum(axis=-1)
        o = (p if precision is None else precision.round(p)) @ np.asarray(values, p.dtype)
    return SoftmaxState(m, l, o)


def merge(a: SoftmaxState, b: SoftmaxState) -> SoftmaxState:
    """The state of the keys of ``a`` and ``b`` together, which must be disjoint; same shapes.

    Commutative to the last bit; associative up to rounding; `identity` is neutral.

    >>> a = of_block(np.array([[1.0]]), np.array([[2.0]]))
    >>> b = of_block(np.array([[1.0]]), np.array([[4.0]]))
    >>> float(finish(merge(a, b))[0][0, 0])
    3.0
    """
    m = np.maximum(a.m, b.m)
    factor_a, factor_b = rescale(a.m, m), rescale(b.m, m)
    with np.errstate(all="ignore"):
        return SoftmaxState(
            m,
            factor_a * a.l + factor_b * b.l,
            factor_a[..., None] * a.o + factor_b[..., None] * b.o,
        )


def finish(state: SoftmaxState) -> tuple[Array, Array]:
    """The output O (..., rows, d_v) and LSE (..., rows), the natural logarithm of sum exp(s_j).

    Rows that saw no key give O = 0 and LSE = -inf.

    >>> O, LSE = finish(of_block(np.zeros((1, 4)), np.ones((4, 2))))
    >>> O, bool(np.isclose(LSE[0], np.log(4)))
    (array([[1., 1.]]), True)
    """
    return normalise(state.o, state.l), log_sum_exp(state.m, state.l)


def of_finished(O: Array, lse: Array) -> SoftmaxState:
    """The state that finishes as O (..., rows, d_v) and LSE (..., rows): (LSE, 1, O).

    It lets results that were normalised and stored apart be merged, as split-KV and ring attention
    do (Liu et al. 2023, arXiv 2310.01889).

    >>> part = of_block(np.array([[1.0, 2.0]]), np.array([[3.0], [5.0]]))
    >>> again = of_finished(*finish(part))
    >>> np.allclose(finish(again)[0], finish(part)[0])
    True
    """
    return SoftmaxState(lse, rescale(lse, lse), O)


def stable_exp(x: Array, m: Array, out: Array | None = None) -> Array:
    """exp(x - m), where m is per row (x's shape without its last axis) or of x's shape.

    Where m = -inf the row has seen nothing, and exp(-inf - (-inf)) is 0, not NaN. A NaN in x or m
    stays NaN; so does +inf - (+inf). ``out`` may be ``x`` itself. Raises `IosimError` where m has
    neither shape.

    >>> stable_exp(np.array([[0.0, -np.inf], [-np.inf, -np.inf]]), np.array([0.0, -np.inf]))
    array([[1., 0.],
           [0., 0.]])
    """
    if m.ndim == x.ndim - 1:
        m = m[..., None]
    elif m.ndim != x.ndim:
        raise IosimError(
            f"m has shape {m.shape}: it must be that of x, {x.shape}, or lack its last axis"
        )
    with np.errstate(all="ignore"):
        shifted = np.asarray(np.subtract(x, np.where(m == -np.inf, m.dtype.type(0), m), out=out))
        np.exp(shifted, out=shifted)
    return shifted


def new_maximum(scores: Array, m: Array | None = None) -> Array:
    """The row maxima (..., rows) of scores (..., rows, keys) and of ``m``, if given.

    A NaN is a maximum here: it must reach the state, where exp and the sums carry it on.

    >>> new_maximum(np.array([[1.0, 2.0], [np.nan, 0.0]]), np.array([5.0, 5.0]))
    array([ 5., nan])
    """
    with np.errstate(all="ignore"):
        # Without ``initial`` a block of no keys would have no maximum.
        row = (
            scores.max(axis=-1)
            if scores.shape[-1]
            else np.full(scores.shape[:-1], -np.inf, scores.dtype)
        )
        return row if m is None else np.maximum(m, row)


def rescale(m_old: Array, m_new: Array) -> Array:
    """The factor exp(m_old - m_new) by which l and o of a row are multiplied when m rises.

    0 where the row had seen nothing (m_old = -inf), whether or not it has now.

    >>> rescale(np.array([-np.inf, -np.inf, 3.0]), np.array([-np.inf, 1.0, 3.0]))
    array([0., 0., 1.])
    """
    return stable_exp(m_old, m_new)


def normalise(o: Array, l: Array) -> Array:
    """o / l for o (..., rows, d_v) and l (..., rows); a row with l = 0 has o = 0 and gives 0.

    >>> normalise(np.array([[0.0], [3.0], [np.nan]]), np.array([0.0, 2.0, np.nan]))
    array([[0. ],
           [1.5],
           [nan]])
    """
    with np.errstate(all="ignore"):
        return np.divide(o, np.where(l == 0, l.dtype.type(1), l)[..., None])


def log_sum_exp(m: Array, l: Array) -> Array:
    """m + log(l) per row: LSE, which is -inf for a row that saw no key.

    >>> log_sum_exp(np.array([-np.inf, 2.0]), np.array([0.0, 1.0]))
    array([-inf,   2.])
    """
    with np.errstate(all="ignore"):
        return m + np.log(l)
