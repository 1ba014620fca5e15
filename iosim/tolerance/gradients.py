"""How far gradients executed in a dtype may lie from the reference's: the worst case, elementwise.

The steps are those of "Gradients" in docs/tolerance.md. Every quantity is an upper bound of an
absolute value; `d...` in a comment is the error of what stands behind it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from iosim import reference
from iosim.precision import Array, precision
from iosim.tolerance.elementwise import elementwise_error, reference_rows
from iosim.tolerance.execution import (
    Execution,
    Rows,
    exp_error,
    gamma,
    of_reference,
    stored_roundoff,
)
from iosim.tolerance.worst import score_error


@dataclass(frozen=True)
class BackwardExecution:
    """What a backward pass does, as far as its rounding error depends on it.

    ``forward`` is the execution that left O and the statistics, or P. ``rows`` are the query rows
    that one element of dK sums (those of all heads that share the key), in ``query_tiles`` pieces;
    an element of dQ is summed in ``key_tiles`` pieces. ``stored_scores``: P, dP and dS are stored
    in the dtype, and D is rowsum(P * dP), as in standard attention; otherwise D is rowsum(dO * O).
    ``stored_dq_per_tile``: dQ is stored in the dtype after every tile, as in FlashAttention-1.
    """

    forward: Execution
    value_dim: int
    rows: int
    query_tiles: int = 1
    key_tiles: int = 1
    stored_scores: bool = False
    stored_dq_per_tile: bool = False


def gradient_error(
    execution: BackwardExecution,
    q: Array,
    k: Array,
    v: Array,
    dO: Array,
    visible: Array | None = None,
    scale: float | None = None,
    factors: Array | None = None,
) -> tuple[Array, Array, Array]:
    """How far each element of dQ, dK, dV may lie from `reference.attention_gradients`'s.

    Arguments as there, numbers of the dtype already. The worst case, for any order of summation;
    the reference's own error is included. Infinite where an intermediate result may overflow.

    >>> q, k, v, dO = np.random.default_rng(0).standard_normal((4, 256, 16)).astype(np.float32)
    >>> forward = Execution("float32", head_dim=16, n_keys=256)
    >>> errors = gradient_error(BackwardExecution(forward, 16, rows=256), q, k, v, dO)
    >>> " ".join(f"{error.max():.0e}" for error in errors)
    '2e-04 2e-04 1e-04'
    """
    q, k, v, dO = (np.asarray(x, np.float64) for x in (q, k, v, dO))
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    exact = BackwardExecution(
        of_reference(execution.forward), execution.value_dim, execution.rows, stored_scores=True
    )
    with np.errstate(all="ignore"):
        rows = reference_rows(execution.forward, q, k, v, visible, scale, factors)
        # The reference's own error comes first: enlarged by it, its numbers bound the true ones.
        truth = _Truth.of(rows, dO)
        given = (q, k, v, dO, visible, scale, factors)
        own = _errors(exact, rows, truth, *given, factor)
        truth = _Truth(truth.dp + own.dp, truth.x + own.x, truth.B)
        found = _errors(execution, rows, truth, *given, factor)
    dq, dk, dv = (a + b for a, b in zip(found.gradients, own.gradients, strict=True))
    return dq, dk, dv


@dataclass(frozen=True, eq=False)
class _Truth:
    """|dP|, |dP - D| and B = |dO| |V|' Z, each (..., rows, keys); Z is 1 without dropout."""

    dp: Array
    x: Array
    B: Array

    @classmethod
    def of(cls, rows: Rows, dO: Array) -> _Truth:
        transposed = rows.v.swapaxes(-1, -2)
        dp = dO @ transposed * rows.factors
        dots = (dO * rows.output).sum(axis=-1, keepdims=True)
        return cls(abs(dp), abs(dp - dots), abs(dO) @ abs(transposed) * rows.factors)


@dataclass(frozen=True, eq=False)
class _Errors:
    """The errors of dP and of dP - D, (..., rows, keys), and those of dQ, dK and dV."""

    dp: Array
    x: Array
    gradients: tuple[Array, Array, Array]


def _errors(
    execution: BackwardExecution,
    rows: Rows,
    truth: _Truth,
    q: Array,
    k: Array,
    v: Array,
    dO: Array,
    visible: Array | None,
    scale: float | None,
    factors: Array | None,
    factor: float,
) -> _Errors:
    form = precision(execution.forward.dtype)
    u, t, n = form.accumulator_roundoff, form.tiny, execution.forward.n_keys
    w, eta = stored_roundoff(form)
    d_v, largest, drops = execution.value_dim, form.largest, execution.forward.dropout > 0
    p, seen = rows.p, rows.p > 0
    sizes = abs(dO)

    # Step 16: the weights, formed from a score and the statistics.
    of_output, of_lse = elementwise_error(execution.forward, q, k, v, visible, scale, factors)
    d_p = p * np.expm1(_weight_error(execution, rows, of_lse)) + t
    d_rounded = d_p + w * (p + d_p) + eta
    d_used = d_rounded if execution.stored_scores else d_p
    z, p_d, d_dropped = rows.factors, p * rows.factors, d_rounded
    if drops:
        d_dropped = z * d_used + 2 * u * (p_d + z * d_used) * (1 + u) + t
        d_dropped = d_dropped + w * (p_d + d_dropped) + eta

    # Step 17: dP = dO V', and D.
    g = gamma(d_v + 1, u)
    d_dp = g * truth.B + z * d_v * t
    if execution.stored_scores:
        d_dp = d_dp + w * (truth.dp + d_dp) + z * eta
    if drops:
        d_dp = d_dp + 2 * u * (truth.dp + d_dp) * (1 + u) + t
        if execution.stored_scores:
            d_dp = d_dp + w * (truth.dp + d_dp) + eta
    if execution.stored_scores:
        d_dots = _total(d_rounded * (truth.dp + d_dp) + p * d_dp)
        d_dots = d_dots + gamma(n + 1, u) * _total((p + d_rounded) * (truth.dp + d_dp)) + n * t
        fits = truth.dp + d_dp < largest
    else:
        d_dots = (sizes * of_output).sum(axis=-1, keepdims=True) + d_v * t
        output = abs(rows.output) + of_output
        d_dots = d_dots + g * (sizes * output).sum(axis=-1, keepdims=True)
        fits = form.accumulator_largest / 4 > truth.B

    # Step 18: dS = P (dP - D), rounded before it enters a product.
    d_x = (d_dp + d_dots) * (1 + u) + u * truth.x
    x = truth.x + d_x
    d_ds = p * d_x + d_used * x + u * (p + d_used) * x + t
    ds = p * truth.x
    d_ds = d_ds + w * (ds + d_ds) + eta
    fits = fits & (ds + d_ds < largest) & (2 * execution.forward.largest_factor < largest)
    d_dropped, d_ds, ds = (
        np.where(seen, np.where(fits, each, np.inf), 0.0) for each in (d_dropped, d_ds, ds)
    )

    # Step 19: the sums.
    of_key = execution.rows + 2 * execution.query_tiles + 3
    of_query = n + 2 * execution.key_tiles + 3
    dv = _product(d_dropped, p_d, sizes, of_key, u, t, transposed=True)
    dk = _product(d_ds, ds, abs(factor * q), of_key, u, t, transposed=True)
    dq = _product(d_ds, ds, abs(factor * rows.k), of_query, u, t, transposed=False)
    gradients = reference.attention_gradients(q, k, v, dO, visible, scale, factors)
    repeats = 1
    if execution.stored_dq_per_tile:
        repeats = execution.key_tiles
        dq = (dq + repeats * (w * (ds @ abs(factor * rows.k) + dq) + eta)) * (1 + w) ** repeats
    sums = (dq, reference.sum_heads(k, dk), reference.sum_heads(v, dv))
    dq, dk, dv = (
        _stored(error, abs(gradient), w, eta, largest)
        for error, gradient in zip(sums, gradients, strict=True)
    )
    return _Errors(np.where(seen, d_dp, 0.0), np.where(seen, d_x, 0.0), (dq, dk, dv))


def _weight_error(execution: BackwardExecution, rows: Rows, of_lse: Array) -> Array:
    """Step 16: the error of the logarithm of P = e^(S - LSE), or e^(S - m) / l."""
    forward = execution.forward
    u = precision(forward.dtype).accumulator_roundoff
    sigma = score_error(forward, rows.A, abs(rows.s))
    finite = np.where(np.isneginf(rows.lse), 0.0, rows.lse)[..., None]
    shifted = abs(rows.s - finite) + sigma + of_lse[..., None] + math.log(forward.n_keys)
    return np.asarray(sigma + of_lse[..., None] + 2 * u * shifted + exp_error(u) + 2 * u)


def _product(
    error: Array, size: Array, other: Array, roundings: int, u: float, t: float, *, transposed: bool
) -> Array:
    """The error of a product of a matrix with an error and one without, summed in any order."""
    if transposed:
        error, size = error.swapaxes(-1, -2), size.swapaxes(-1, -2)
    summed = gamma(roundings, u) * ((size + error) @ other)
    return np.asarray(error @ other + summed + roundings * t)


def _stored(error: Array, size: Array, w: float, eta: float, largest: float) -> Array:
    """Step 20: the error of a gradient after it is stored; infinite where it may overflow.

    ``size`` is the reference's, whose own error is no larger than ``error``.
    """
    error = np.where(np.isnan(error), np.inf, error)
    return np.where(largest > size + 2 * error, error + w * (size + 2 * error) + eta, np.inf)


def _total(x: Array) -> Array:
    return np.asarray(x.sum(axis=-1, keepdims=True))
