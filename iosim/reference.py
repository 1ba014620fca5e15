"""What attention is, written twice without tiles: the float64 reference, and the field's yardstick.

`attention` and `attention_gradients` are the truth that everything else is compared with. They
share no code with `iosim.softmax` on purpose. `standard_attention` and `standard_gradients` are
standard attention (Dao et al. 2022, arXiv 2205.14135, Algorithms 0 and 3) executed in a dtype:
their error is what the field measures a fused kernel's error against.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from iosim.errors import IosimError
from iosim.precision import Array, Precision, precision


def attention(
    q: Array,
    k: Array,
    v: Array,
    visible: Array | None = None,
    scale: float | None = None,
    factors: Array | None = None,
) -> tuple[Array, Array]:
    """Attention in float64, two-pass: O (..., heads, n_q, d_v) and LSE (..., heads, n_q).

    q is (..., heads, n_q, d), k (..., kv_heads, n_k, d), v (..., kv_heads, n_k, d_v), or without
    the leading axes; each k and v head serves heads / kv_heads query heads in turn. ``visible`` is
    boolean, (n_q, n_k) or with leading axes; None means that every query sees every key. ``scale``
    is 1/sqrt(d) unless given. ``factors`` (..., heads, n_q, n_k) is what each probability is
    multiplied with after the softmax: 0 or 1 / (1 - p) for dropout. A query that sees no key gives
    O = 0 and LSE = -inf; a NaN or +inf score gives NaN in its row. Raises `IosimError` where the
    shapes do not fit.

    >>> O, LSE = attention(np.ones((2, 4)), np.ones((3, 4)), np.array([[1.0], [2.0], [6.0]]))
    >>> O.tolist(), bool(np.allclose(LSE, 2 + np.log(3)))
    ([[3.0], [3.0]], True)
    """
    return _two_pass(q, k, v, visible, scale, factors, precision("float64"))


def standard_attention(
    q: Array,
    k: Array,
    v: Array,
    dtype: str,
    visible: Array | None = None,
    scale: float | None = None,
    factors: Array | None = None,
) -> tuple[Array, Array]:
    """Standard attention executed in ``dtype``; arguments and shapes as in `attention`.

    q, k and v are rounded to ``dtype``; S = scale q k' is accumulated in the accumulator (float32
    for float16, bfloat16 and float32), then stored in ``dtype``; the softmax runs in the
    accumulator; P is stored in ``dtype``, and so is P times ``factors``; P V accumulates in the
    accumulator and O is stored in ``dtype``. O and LSE are returned in the accumulator's dtype.

    >>> O, _ = standard_attention(np.ones((1, 1)), np.ones((1, 1)), np.array([[1.001]]), "bfloat16")
    >>> O
    array([[1.]], dtype=float32)
    """
    return _two_pass(q, k, v, visible, scale, factors, precision(dtype))


def attention_gradients(
    q: Array,
    k: Array,
    v: Array,
    dO: Array,
    visible: Array | None = None,
    scale: float | None = None,
    factors: Array | None = None,
) -> tuple[Array, Array, Array]:
    """The gradients dQ, dK, dV of sum(dO * O) in float64, in the shapes of q, k and v.

    Arguments as in `attention`; dO has the shape of O. With P = softmax(S): dV = P' dO,
    dS = P * (dP - rowsum(P * dP)) with dP = dO V', dQ = scale dS K and dK = scale dS' Q; dK and dV
    are summed over the query heads of a key head. A query that sees no key adds nothing. With
    dropout's ``factors`` Z, dV = (P * Z)' dO and dP = (dO V') * Z.

    >>> q, k, v = np.zeros((1, 1)), np.ones((2, 1)), np.array([[1.0], [3.0]])
    >>> dQ, dK, dV = attention_gradients(q, k + v, v, np.ones((1, 1)))
    >>> dQ.tolist(), dV.tolist()
    ([[1.0]], [[0.5], [0.5]])
    """
    return _gradients(q, k, v, dO, visible, scale, factors, precision("float64"))


def standard_gradients(
    q: Array,
    k: Array,
    v: Array,
    dO: Array,
    dtype: str,
    visible: Array | None = None,
    scale: float | None = None,
    factors: Array | None = None,
) -> tuple[Array, Array, Array]:
    """The backward pass of standard attention executed in ``dtype`` (Dao et al. 2022, Algorithm 3).

    Arguments as in `attention_gradients`. q, k, v and dO are rounded to ``dtype``, and P, dP and dS
    are stored in it; sums are formed in the accumulator. The gradients are those numbers of
    ``dtype``, in the accumulator's dtype.

    >>> standard_gradients(*[np.ones((1, 1))] * 3, np.array([[1.001]]), "bfloat16")[2]
    array([[1.]], dtype=float32)
    """
    return _gradients(q, k, v, dO, visible, scale, factors, precision(dtype))


def _gradients(
    q: Array,
    k: Array,
    v: Array,
    dO: Array,
    visible: Array | None,
    scale: float | None,
    factors: Array | None,
    form: Precision,
) -> tuple[Array, Array, Array]:
    q, k, v, dO = (
        form.round(np.asarray(x)).astype(form.accumulator, copy=False) for x in (q, k, v, dO)
    )
    p = _probabilities(q, repeat_heads(q, k), visible, scale, form)[0]
    factor = _factor(q, scale, form)
    with np.errstate(all="ignore"):
        dp = form.round(dO @ repeat_heads(q, v).swapaxes(-1, -2))
        dp, pd = _dropped(dp, factors, form), _dropped(p, factors, form)
        ds = form.round(p * (dp - (p * dp).sum(axis=-1, keepdims=True)))
        dq = factor * (ds @ repeat_heads(q, k))
        dk = factor * sum_heads(k, ds.swapaxes(-1, -2) @ q)
        return form.round(dq), form.round(dk), form.round(sum_heads(v, pd.swapaxes(-1, -2) @ dO))


def _two_pass(
    q: Array,
    k: Array,
    v: Array,
    visible: Array | None,
    scale: float | None,
    factors: Array | None,
    form: Precision,
) -> tuple[Array, Array]:
    q, k, v = (form.round(np.asarray(x)).astype(form.accumulator, copy=False) for x in (q, k, v))
    k, v = repeat_heads(q, k), repeat_heads(q, v)
    if q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise IosimError(
            f"q, k, v have shapes {q.shape}, {k.shape}, {v.shape}: q and k must agree in their "
            "last axis, k and v in their number of rows"
        )
    with np.errstate(all="ignore"):
        p, lse = _probabilities(q, k, visible, scale, form)
        return form.round(_dropped(p, factors, form) @ v), lse


def _dropped(x: Array, factors: Array | None, form: Precision) -> Array:
    """A matrix times what dropout multiplies it with, as stored in a format."""
    return x if factors is None else form.round(x * factors.astype(form.accumulator))


def _factor(q: Array, scale: float | None, form: Precision) -> Any:
    return form.accumulator.type(1 / math.sqrt(q.shape[-1]) if scale is None else scale)


def _probabilities(
    q: Array, k: Array, visible: Array | None, scale: float | None, form: Precision
) -> tuple[Array, Array]:
    """P as stored in a format and LSE (..., heads, n_q), from operands that are numbers of it."""
    # A NaN or infinite operand is the caller's and is carried on, so nothing here may warn.
    with np.errstate(all="ignore"):
        s = form.round(_factor(q, scale, form) * (q @ k.swapaxes(-1, -2)))
        if visible is not None:
            s = np.where(visible, s, form.accumulator.type(-np.inf))
        m = s.max(axis=-1, initial=-np.inf, keepdims=True)
        p = np.exp(s - np.where(np.isneginf(m), 0, m))
        l = p.sum(axis=-1, keepdims=True)
        p = form.round(p / np.where(l == 0, 1, l))
        return p, (m + np.log(l))[..., 0]


def sum_heads(x: Array, repeated: Array) -> Array:
    """Sums over the query heads that share a head of ``x``: `repeat_heads` the other way."""
    if repeated.shape[:-2] == x.shape[:-2]:
        return repeated
    *batch, kv_heads, _, _ = x.shape
    shape = (*batch, kv_heads, repeated.shape[-3] // kv_heads, *repeated.shape[-2:])
    return np.asarray(repeated.reshape(shape).sum(axis=-3))


def repeat_heads(q: Array, x: Array) -> Array:
    """``x`` (..., kv_heads, n_k, d) with each head repeated to match the heads of ``q``.

    >>> repeat_heads(np.zeros((4, 1, 1)), np.array([[[1.0]], [[2.0]]])).ravel().tolist()
    [1.0, 1.0, 2.0, 2.0]
    """
    if q.ndim < 3 or x.ndim < 3 or q.shape[-3] == x.shape[-3]:
        return x
    heads, kv_heads = q.shape[-3], x.shape[-3]
    if not kv_heads or heads % kv_heads:
        raise IosimError(f"{heads} query heads must be a multiple of the {kv_heads} key heads")
    return x.repeat(heads // kv_heads, axis=-3)
