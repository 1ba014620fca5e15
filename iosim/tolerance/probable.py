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
    gamma,
    of_reference,
    stored_roundoff,
    sums,
)
from iosim.tolerance.worst import score_error, sums_are_held, underflows, weight_error

BLOCK = 128
"""The most terms that go into sums beside each other before these are added up."""


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
class Runs:
    """Sums over neighbouring terms, for sums that are made in the order of their terms.

    A value v_j is that of a row, times what dropout multiplies its probability with.
    ``largest`` (..., rows, d_v) is the largest |sum of p_j v_j| over neighbouring keys j, and
    ``moved`` that of p_j (v_j - O). ``squares_o`` adds up over all keys t the square of the largest
    such |sum of p_j v_j| that ends at t, ``squares_s`` (..., rows, keys) the like of the d terms of
    a score, ``squares_l`` (..., rows, 1) the squares of the sums of p over the first t keys. Where
    the keys are split, ``splits_o`` adds up over the splits the square of |sum of p_j (v_j - O)|,
    ``splits_p`` (..., rows, 1) that of the sum of p_j; without splits there is one of all keys.
    """

    largest: Array
    moved: Array
    squares_o: Array
    squares_s: Array
    squares_l: Array
    splits_o: Array
    splits_p: Array


class _Running:
    """A sum over the first terms, and the least and greatest that it has been, 0 among them."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.total, self.least, self.greatest = (np.zeros(shape) for _ in range(3))

    def add(self, term: Array) -> Array:
        """Add a term; return the largest |sum over neighbours| that ends with it."""
        return self.become(self.total + term)

    def become(self, total: Array) -> Array:
        """Go on to the next sum; a sum over neighbours is the difference of two of them."""
        self.total = total
        np.minimum(self.least, total, out=self.least)
        np.maximum(self.greatest, total, out=self.greatest)
        return np.asarray(np.maximum(self.greatest - total, total - self.least))

    @property
    def largest(self) -> Array:
        """The largest |sum over neighbours|."""
        return self.greatest - self.least


def runs(rows: Rows, split_keys: int | None = None) -> Runs:
    """Walk along the keys of a row, split into runs of so many, and the terms of its scores."""
    shape, n = rows.output.shape, rows.p.shape[-1]
    # What the doubt about p may change.
    dropped = rows.p * rows.factors
    doubt = rows.doubt * (dropped @ abs(rows.v) + abs(rows.output))
    o, moved, l = _Running(shape), _Running(shape), np.zeros((*shape[:-1], 1))
    squares_o, squares_l, squares_s = np.zeros(shape), np.zeros(l.shape), np.zeros(rows.s.shape)
    splits_o, splits_p, start_o, start_p = np.zeros(shape), np.zeros(l.shape), 0 * doubt, 0 * l
    for j in range(n):
        squares_o += o.add(dropped[..., j, None] * rows.v[..., None, j, :]) ** 2
        l += rows.p[..., j, None]
        squares_l += l**2
        moved.become(o.total - rows.output * l)
        if j + 1 == n or (split_keys and (j + 1) % split_keys == 0):
            splits_o += (abs(moved.total - start_o) + doubt) ** 2
            splits_p += (l - start_p) ** 2
            start_o, start_p = moved.total, l.copy()
    s = _Running(rows.s.shape)
    for t in range(rows.q.shape[-1]):
        squares_s += s.add(rows.q[..., :, None, t] * rows.k[..., None, :, t]) ** 2
    return Runs(
        o.largest + doubt,
        moved.largest + doubt,
        squares_o,
        squares_s,
        squares_l,
        splits_o,
        splits_p,
    )


@dataclass(frozen=True, eq=False)
class Parts:
    """The parts of a probable error of O and LSE: the sum of squares, and what is added to it."""

    output_squares: Array
    output_rest: Array
    lse_squares: Array
    lse_rest: Array


def parts(execution: Execution, rows: Rows, of: Runs) -> Parts:
    """What one execution contributes, apart from the rounding of O at the end."""
    form = precision(execution.dtype)
    u, eps = form.accumulator_roundoff, exp_error(form.accumulator_roundoff)
    w, eta = stored_roundoff(form)
    tiles, splits, n = execution.tiles, execution.splits, execution.n_keys
    p, v, O, s = rows.p, abs(rows.v), abs(rows.output), abs(rows.s)
    z, drops = rows.factors, execution.dropout > 0  # a row's values are z v
    squares, seen = p**2, p > 0

    # Step 10: the roundings of the weight of one key alone.
    sigma = score_error(execution, rows.A, s)
    most = sigma.max(axis=-1, keepdims=True, initial=0.0)
    m = np.where(seen, rows.s, -np.inf).max(axis=-1, keepdims=True, initial=-np.inf)
    below = np.where(seen, m - rows.s, 0.0) + 2 * most
    exponent = (u * below) ** 2 + eps**2
    weight = u**2 * (of.squares_s + rows.A**2 + s**2) + exponent
    if execution.stored_scores:
        weight = weight + (w * s) ** 2
    weight = squares * weight
    of_keys = (weight * z**2) @ v**2 + O * (2 * ((weight * z) @ v) + O * _total(weight))

    # Step 11: the roundings that a run of keys shares, or all keys.
    lowest = (u * below.max(axis=-1, keepdims=True, initial=0.0)) ** 2
    rescales = splits * tiles - 1 + execution.stored_output_per_tile * tiles
    shared = rescales * eps**2 + (rescales > 0) * lowest
    scaled = p * rows.s
    drift = (scaled * z) @ rows.v - rows.output * _total(scaled)
    of_runs = of.moved**2 * shared + (u * drift) ** 2
    if splits > 1:
        log_l = math.log(min(n, tiles * execution.summed))
        top = s.max(axis=-1, keepdims=True, initial=0.0) + most + log_l
        of_split = u**2 * ((LOG_ROUNDOFFS * log_l) ** 2 + top**2)
        known = execution.split_keys is not None
        of_runs = of_runs + of_split * (of.splits_o if known else splits * of.moved**2)
        shared = shared + of_split * (of.splits_p if known else splits)

    # Step 12: the roundings of the sums, and of what is added to o.
    later = splits * execution.late_roundings + n / BLOCK + 2
    of_l = u**2 * (of.squares_l + later + min(n, BLOCK))
    of_sums = u**2 * (of.squares_o + later * of.largest**2) + O**2 * of_l
    if execution.stored_output_per_tile:
        of_sums = of_sums + (tiles - 1) * (w * of.largest + eta) ** 2
    if execution.separate_statistics:
        of_sums = of_sums + O**2 * (_total(squares * exponent) + tiles * eps**2 + lowest)
    roundings = execution.stored_probabilities  # the last of p z, one before it of p
    stored = np.where(seen & (z > 0), 1 + (roundings - 1) * z**2, 0.0)
    of_terms = (roundings * w**2 + (3 + drops) * u**2) * ((squares * z**2) @ v**2)
    of_terms = of_terms + eta**2 * (stored @ v**2)

    # Step 13: the rest in the worst case: second order, and underflow, which is not random.
    second, _ = _second_order(execution, rows, w)
    second_l, kappa = _second_order(execution, rows, 0.0)
    room = np.where(kappa < 1, 1 - kappa, np.nan)
    vanished = _vanished(p * z, eta) + (roundings - 1) * z * _vanished(p, eta)
    V = execution.largest_factor * float(v.max(initial=0.0))
    lost = vanished @ v + underflows(execution, V)

    # Step 14: LSE, where the logarithm and the last sum are one rounding each.
    of_lse = _total(weight) + shared + of_l + (u * _total(scaled)) ** 2
    log_l = np.maximum(rows.lse[..., None] - m, 0.0) + most
    last = LOG_ROUNDOFFS * u * log_l + u * abs(rows.lse)[..., None]
    lse_rest = (_total(second_l) + underflows(execution, 1.0)) / room + last
    return Parts(
        output_squares=(of_keys + of_runs + of_sums + of_terms) / room**2,
        output_rest=((second * z) @ v + O * _total(second) + lost) / room,
        lse_squares=(of_lse / room**2)[..., 0] * (1 + 2 * u) ** 2,
        lse_rest=lse_rest[..., 0] * (1 + 2 * u),
    )


def _second_order(execution: Execution, rows: Rows, w: float) -> tuple[Array, Array]:
    """p times what is beyond first order in a term of o; the sum of p times all that is in it.

    ``w`` is the roundoff of what is stored on the way of the term; for l nothing is, and w = 0.
    """
    form, d = precision(execution.dtype), execution.head_dim
    u, eps = form.accumulator_roundoff, exp_error(form.accumulator_roundoff)
    s = abs(rows.s)
    largest, h = weight_error(execution, rows.A, s, rows.worst_A)
    stored = execution.stored_probabilities + execution.tiles * execution.stored_output_per_tile
    g = (1 + w) ** stored * (1 + max(sums(execution))) - 1
    if execution.separate_statistics:
        g = (1 + g) * np.exp(4 * u * largest + (execution.tiles + 1) * eps) - 1
    beyond = (d + 2) * u * gamma(d + 2, u) * rows.A + d * form.tiny
    beyond = beyond + execution.exponentials * eps**2
    if execution.stored_scores:
        beyond = beyond + form.roundoff * score_error(execution, rows.A, s) + form.underflow
    beyond = beyond + g**2 + h**2 * np.exp(h) / 2 + g * np.expm1(h)
    return rows.p * (beyond + rows.doubt * (g + h)), _total(rows.p * ((1 + g) * np.exp(h) - 1))


def probable_error(execution: Execution, rows: Rows, factor: float) -> tuple[Array, Array]:
    """How far O and LSE lie from the reference's, up to ``factor``; NaN where nothing is said.

    Step 15: a rounding of the reference is independent of the execution's, or the same.
    """
    of = runs(rows, execution.split_keys)
    one, other = (parts(each, rows, of) for each in (execution, of_reference(execution)))
    error = factor * np.sqrt(one.output_squares + other.output_squares)
    error = error + one.output_rest + other.output_rest
    lse = factor * np.sqrt(one.lse_squares + other.lse_squares) + one.lse_rest + other.lse_rest
    form = precision(execution.dtype)
    w, eta = stored_roundoff(form)
    error = error + w * (abs(rows.output) + error) + eta
    V = execution.largest_factor * float(abs(rows.v).max(initial=0.0))
    fits = sums_are_held(execution, V) & (V + error < form.largest)
    return np.where(fits, error, np.nan), lse


def _vanished(p: Array, eta: float) -> Array:
    """What rounding may take from weights that are next to the least numbers, and biased so."""
    return np.where(p < 2 * eta, np.minimum(p, eta), 0.0)


def _total(x: Array) -> Array:
    """The sums over the keys, (..., rows, 1)."""
    return np.asarray(x.sum(axis=-1, keepdims=True))
