"""The worst case: what the error of attention in a dtype never exceeds."""

from __future__ import annotations

import math

import numpy as np

from iosim.precision import Array, precision
from iosim.tolerance.execution import (
    LOG_ROUNDOFFS,
    Execution,
    Numbers,
    Rows,
    exp_error,
    gamma,
    of_reference,
    stored_roundoff,
    sums,
)


def forward_error(execution: Execution, *, score_magnitude: float, value_magnitude: float) -> float:
    """The most that an element of O may differ from `reference.attention`'s; docs/tolerance.md.

    ``score_magnitude`` A is the largest |scale| sum_t |q_it| |k_jt| over the visible pairs (see
    `score_magnitude`), ``value_magnitude`` V the largest |v|. Infinite where an intermediate result
    may overflow: then nothing is promised. The reference's own error is included. Under dropout a
    value counts as `largest_factor` times as large.

    >>> shape = {"head_dim": 64, "n_keys": 1024, "tiles": 8}
    >>> for dtype in ("bfloat16", "float32"):
    ...     execution = Execution(dtype, **shape)
    ...     print(f"{forward_error(execution, score_magnitude=8, value_magnitude=4):.0e}")
    3e-02
    2e-04
    """
    A, V = score_magnitude, execution.largest_factor * value_magnitude
    error = 0.0
    with np.errstate(all="ignore"):
        for one in (execution, of_reference(execution)):
            largest, h = weight_error(one, A, A, A)
            error += float(_output_error(one, _farthest(h, V), V, V, V, largest))
    return error


def lse_error(execution: Execution, *, score_magnitude: float) -> float:
    """The most that LSE (natural logarithm) may differ from `reference.attention`'s, as above."""
    A = score_magnitude
    error = 0.0
    with np.errstate(all="ignore"):
        for one in (execution, of_reference(execution)):
            largest, h = weight_error(one, A, A, A)
            error += float(log_sum_error(one, h, largest))
    return error


def score_magnitude(q: Array, k: Array, scale: float | None = None) -> float:
    """An upper bound of |scale| sum_t |q_it| |k_jt| over all pairs, by Cauchy and Schwarz.

    >>> score_magnitude(np.array([[3.0, 4.0]]), np.array([[0.0, -2.0]]), scale=1.0)
    10.0
    """
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else abs(scale)
    with np.errstate(all="ignore"):
        longest = [
            np.linalg.norm(np.asarray(x, np.float64), axis=-1).max(initial=0) for x in (q, k)
        ]
        return float(factor * longest[0] * longest[1])


def worst_error(execution: Execution, rows: Rows) -> tuple[Array, Array]:
    """Bounds for each element of O and each row of LSE, without the reference's own error."""
    magnitude, output = abs(rows.v), abs(rows.output)
    V = execution.largest_factor * float(magnitude.max(initial=0.0))
    average = (rows.p * rows.factors) @ magnitude
    largest, h = weight_error(execution, rows.A, abs(rows.s), rows.worst_A)
    e = np.expm1(h)
    kappa = (rows.p * e).sum(axis=-1, keepdims=True)
    spread = (rows.p * rows.factors * e) @ magnitude
    farthest = _farthest(h.max(axis=-1, keepdims=True, initial=0.0), V)
    room = np.where(kappa < 1, 1 - kappa, np.nan)
    moved = np.fmin((spread + kappa * output) / room, farthest)
    average = np.fmin(average + np.fmin((spread + kappa * average) / room, farthest), V)
    error = _output_error(execution, moved, average, output + moved, V, largest)
    lse = log_sum_error(execution, h.max(axis=-1, initial=0.0), largest[..., 0])
    return np.where(rows.seen[..., None], error, 0.0), np.where(rows.seen, lse, 0.0)


def score_error(execution: Execution, A: Numbers, s: Numbers) -> Numbers:
    """Step 1: the error of a score, of which ``s`` is the absolute value."""
    form, d = precision(execution.dtype), execution.head_dim
    u = form.accumulator_roundoff
    error = u * ((d - 1) * (A + s) / 2 + 3 * A) + (d + 2) * u * gamma(d + 2, u) * A + d * form.tiny
    if execution.stored_scores:
        error = error + form.roundoff * (s + error) + form.underflow
    return error


def weight_error(
    execution: Execution, A: Numbers, s: Numbers, worst: Numbers
) -> tuple[Numbers, Numbers]:
    """Steps 1 and 2: the largest |computed score|, and h, the error of a weight's logarithm.

    ``s`` is |score|, ``worst`` the largest A of the row.
    """
    form = precision(execution.dtype)
    u = form.accumulator_roundoff
    largest = worst + score_error(execution, worst, worst)
    h = score_error(execution, A, s) + 2 * u * largest + execution.exponentials * exp_error(u)
    if execution.splits > 1:
        h = h + 4 * u * largest + 12 * math.log(execution.n_keys) * u * (1 + 8 * u)
    # Nothing is promised where a score, or a difference of two, may overflow.
    fits = 4 * worst < form.accumulator_largest
    if execution.stored_scores:
        fits = fits & (largest < form.largest)
    return largest, np.where(fits, h, np.inf)


def underflows(execution: Execution, V: float) -> float:
    """Step 6: what underflow may lose in the accumulator."""
    n, t = execution.n_keys, precision(execution.dtype).tiny
    return 4 * n * execution.exponentials * t * V + 4 * (n + 6 * execution.tiles) * t


def sums_are_held(execution: Execution, V: float) -> bool:
    """Whether sums of values |v| <= V, and what dropout multiplies with, are below the largest."""
    form = precision(execution.dtype)
    fits = 4 * execution.n_keys * V < form.accumulator_largest
    return fits and 2 * execution.largest_factor < form.largest


def log_sum_error(execution: Execution, h: Numbers, largest: Numbers) -> Numbers:
    """Step 8: the error of m + log(l)."""
    form, n = precision(execution.dtype), execution.n_keys
    u, g = form.accumulator_roundoff, sums(execution)[1]
    if g >= 0.5:
        return np.inf * (h + 1)
    log_l = math.log(n) + 2 * g
    lost = 4 * n * execution.exponentials * form.tiny
    before = h + 2 * g + lost + LOG_ROUNDOFFS * u * log_l
    return before + 2 * u * (largest + log_l)


def _farthest(h: Numbers, V: float) -> Numbers:
    """Step 3: how far an average of values |v| <= V moves when log-weights move by at most h."""
    return np.where(np.isfinite(h), 2 * V * np.tanh(h / 2), np.inf)


def _output_error(
    execution: Execution,
    moved: Numbers,
    average: Numbers,
    centre: Numbers,
    V: float,
    largest: Numbers,
) -> Numbers:
    """Steps 4 to 7: the error of O, given what the weights' errors do to it (step 3).

    ``average`` bounds the weighted average of |v| under the computed weights, ``centre`` the
    absolute value of that of v, a value being multiplied with dropout's factor before.
    """
    form, n, tiles = precision(execution.dtype), execution.n_keys, execution.tiles
    u = form.accumulator_roundoff
    centre = np.fmin(centre, average)
    g_o, g_l = sums(execution)
    if execution.separate_statistics:
        g_l = (1 + g_l) * np.exp(4 * u * largest + (tiles + 1) * exp_error(u)) - 1
    w, underflow = stored_roundoff(form)
    roundings = execution.stored_probabilities
    grown = (1 + w) ** roundings * (1 + g_o) - 1
    summed = grown * average
    if tiles == execution.splits == 1:
        # One sum: what it adds up lies between the sum of the negative terms and of the positive.
        later = execution.late_roundings + 3
        between = (execution.summed - 1) * (average + centre) / 2 + later * average
        first = roundings * w * average + u * between
        summed = np.fmin(summed, first + grown**2 * average)
    error = moved + underflows(execution, V)
    error = error + (summed + g_l * centre + 2 * roundings * n * underflow * V) / (1 - g_l)
    if execution.stored_output_per_tile:
        factor = (1 + w) ** tiles
        stored = (1 + g_o) * ((factor - 1) * (average + error) + tiles * factor * underflow)
    else:
        stored = w * (centre + error) + underflow
    sums_fit = (g_o < 0.5) & (g_l < 0.5) & sums_are_held(execution, V)
    return np.where(sums_fit & (V + error + stored < form.largest), error + stored, np.inf)
