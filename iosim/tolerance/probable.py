"""The probable form: what the error stays within if roundings err independently, without bias.

A model of rounding and not a theorem about it (Higham and Mary 2019, SIAM J. Sci. Comput. 41(5),
"A new approach to probabilistic rounding error analysis"); docs/tolerance.md derives it. To first
order the error is a sum of roundings times coefficients. Squares of bounds on the terms are added
up here; by Hoeffding's inequality the sum exceeds lambda times the root of that with probability at
most 2 exp(-lambda^2 / 2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from iosim.errors import IosimError
from iosim.precision import Array, precision
from iosim.tolerance.execution import (
    LOG_ROUNDOFFS,
    Execution,
    Rows,
    exp_error,
    of_reference,
    stored_roundoff,
    sums,
)
from iosim.tolerance.worst import score_error, underflows, weight_error


def failure_probability(factor: float, count: int = 1) -> float:
    """The most that ``count`` errors may have of probability that any is beyond ``factor`` sigma.

    sigma is the root of the sum of the squares of the roundings' bounds (Hoeffding 1963, Theorem
    2), and the count enters as a sum of probabilities.

    >>> f"{failure_probability(6.0, 1000):.1e}"
    '3.0e-05'
    """
    return min(1.0, 2 * count * math.exp(-(factor**2) / 2))


def confidence_factor(confidence: float, count: int = 1) -> float:
    """The factor lambda of which `failure_probability` is 1 - ``confidence``.

    Raises `IosimError` for a confidence that is not between 0 and 1.

    >>> f"{confidence_factor(0.999, 65536):.2f}"
    '6.11'
    """
    if not 0 < confidence < 1:
        raise IosimError(f"confidence must be between 0 and 1, not {confidence}")
    return math.sqrt(2 * math.log(2 * max(count, 1) / (1 - confidence)))


@dataclass(frozen=True, eq=False)
class Prefixes:
    """What the sums over the first keys of a row, p_1 v_1 + ... + p_t v_t and p_1 + ... + p_t, say.

    ``run`` (..., rows, d_v) is the largest |sum of p_j v_j| over neighbouring keys, ``moved`` that
    of p_j (v_j - O). ``squares_o`` adds up over t the square of the largest such sum of v that ends
    at key t, ``squares_l`` (..., rows, 1) the squares of the sums of p over the first t.
    """

    run: Array
    moved: Array
    squares_o: Array
    squares_l: Array


def prefixes(rows: Rows) -> Prefixes:
    """Walk along the keys; a sum over neighbours is the difference of two sums over first keys."""
    shape = rows.output.shape
    o, l, squares_l = np.zeros(shape), np.zeros((*shape[:-1], 1)), np.zeros((*shape[:-1], 1))
    low, high, low_moved, high_moved, squares_o = (np.zeros(shape) for _ in range(5))
    for j in range(rows.p.shape[-1]):
        weight = rows.p[..., j, None]
        o += weight * rows.v[..., None, j, :]
        l += weight
        np.minimum(low, o, out=low)
        np.maximum(high, o, out=high)
        squares_o += np.maximum(high - o, o - low) ** 2
        squares_l += l**2
        moved = o - rows.output * l
        np.minimum(low_moved, moved, out=low_moved)
        np.maximum(high_moved, moved, out=high_moved)
    # What the weights' own doubt may change.
    doubt = rows.doubt * (rows.p @ abs(rows.v) + abs(rows.output))
    return Prefixes(high - low + doubt, high_moved - low_moved + doubt, squares_o, squares_l)


@dataclass(frozen=True, eq=False)
class Spread:
    """The squares of an execution's random errors, of O and LSE, and what else they may come to."""

    squares_O: Array
    rest_O: Array
    squares_lse: Array
    rest_lse: Array


def spread(execution: Execution, rows: Rows, sums_of: Prefixes) -> Spread:
    """The terms of the probable error; without the rounding of O at the end (step 14)."""
    form = precision(execution.dtype)
    u, eps = form.accumulator_roundoff, exp_error(form.accumulator_roundoff)
    w, eta = stored_roundoff(form)
    tiles, splits, n = execution.tiles, execution.splits, execution.n_keys
    p, v, O, s = rows.p, abs(rows.v), abs(rows.output), abs(rows.s)
    squares, seen = p**2, p > 0

    # Step 10: the roundings of the weight of one key alone.
    sigma = score_error(execution, rows.A, s)
    sigma_most = sigma.max(axis=-1, keepdims=True, initial=0.0)
    m = np.where(seen, rows.s, -np.inf).max(axis=-1, keepdims=True, initial=-np.inf)
    below = np.where(seen, m - rows.s, 0.0) + 2 * sigma_most
    exponent = (u * below) ** 2 + eps**2
    node = (rows.A + s) / 2 + sigma
    own = u**2 * ((execution.head_dim - 1) * node**2 + rows.A**2 + (s + sigma) ** 2) + exponent
    if execution.stored_scores:
        own = own + (w * (s + sigma)) ** 2
    weighted = squares * own
    of_keys = weighted @ v**2 + O * (2 * (weighted @ v) + O * _total(weighted))

    # Step 11: the roundings that a run of keys shares, or all keys.
    lowest = (u * below.max(axis=-1, keepdims=True, initial=0.0)) ** 2
    rescales = splits * tiles - 1 + execution.stored_output_per_tile * tiles
    shared = rescales * eps**2 + (rescales > 0) * lowest
    if splits > 1:
        top = rows.worst_A + sigma_most + math.log(n)
        shared = shared + splits * u**2 * ((LOG_ROUNDOFFS * math.log(n)) ** 2 + top**2)
    scaled = p * rows.s
    drift = scaled @ rows.v - rows.output * _total(scaled)
    of_runs = sums_of.moved**2 * shared + (u * drift) ** 2

    # Step 12: the roundings of the sums o and l, and of what is added to o.
    later = splits * execution.late_roundings + n / 8 + 2
    in_l = u**2 * (sums_of.squares_l + later)
    of_sums = u**2 * (sums_of.squares_o + later * sums_of.run**2) + O**2 * in_l
    if execution.stored_output_per_tile:
        of_sums = of_sums + (tiles - 1) * (w * sums_of.run + eta) ** 2
    if execution.separate_statistics:
        of_sums = of_sums + O**2 * (_total(squares * exponent) + tiles * eps**2 + lowest)
    of_terms = (w**2 + 3 * u**2) * (squares @ v**2) + eta**2 * (seen.astype(p.dtype) @ v**2)

    # Step 13: second order, and what has a sign of its own, in the worst case.
    g = max((1 + w) * (1 + one) - 1 for one in sums(execution))
    if execution.separate_statistics:
        g = (1 + g) * np.exp(4 * u * (rows.worst_A + sigma_most) + (tiles + 1) * eps) - 1
    h = weight_error(execution, rows.A, s, rows.worst_A)[1]
    second = g**2 + h**2 * np.exp(h) / 2 + g * np.expm1(h) + execution.exponentials * eps**2
    second = second + execution.head_dim * form.tiny
    if execution.stored_scores:
        second = second + form.underflow
    second = p * (second + rows.doubt * (h + g))
    lost = np.where(p < 2 * eta, np.minimum(p, eta), 0.0) @ v
    lost = lost + underflows(execution, float(v.max(initial=0.0)))
    kappa = _total(p * ((1 + g) * np.exp(h) - 1))
    room = np.where(kappa < 1, 1 - kappa, np.nan)

    # Step 14: LSE, whose logarithm and last sum are one rounding each.
    log_l = np.maximum(rows.lse - m[..., 0], 0.0) + sigma_most[..., 0]
    single = LOG_ROUNDOFFS * u * log_l + u * abs(rows.lse)
    in_lse = _total(weighted) + shared + in_l + (u * _total(scaled)) ** 2
    rest_lse = _total(second) + underflows(execution, 1.0)
    return Spread(
        squares_O=(of_keys + of_runs + of_sums + of_terms) / room**2,
        rest_O=(second @ v + O * _total(second) + lost) / room,
        squares_lse=(in_lse / room**2)[..., 0] * (1 + 2 * u),
        rest_lse=((rest_lse / room)[..., 0] + single) * (1 + 2 * u),
    )


def probable_error(execution: Execution, rows: Rows, factor: float) -> tuple[Array, Array]:
    """How far O and LSE lie from the reference's, up to ``factor`` lambda; NaN: nothing is said.

    The reference's roundings are independent of the execution's, or the same (step 15).
    """
    sums_of = prefixes(rows)
    both = [spread(one, rows, sums_of) for one in (execution, of_reference(execution))]
    error = factor * np.sqrt(sum(one.squares_O for one in both)) + sum(one.rest_O for one in both)
    lse = factor * np.sqrt(sum(one.squares_lse for one in both)) + sum(one.rest_lse for one in both)
    w, eta = stored_roundoff(precision(execution.dtype))
    return error + w * (abs(rows.output) + error) + eta, lse


def _total(x: Array) -> Array:
    """The sums over the keys, (..., rows, 1)."""
    return np.asarray(x.sum(axis=-1, keepdims=True))
