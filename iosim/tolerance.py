"""How far attention executed in a dtype may lie from the reference: derived bounds and checks.

The bounds are worst-case forward errors; docs/tolerance.md derives them, and the comments here name
its steps. They hold for any tiling, any order of the keys and any order of summation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from iosim import reference
from iosim.errors import IosimError
from iosim.precision import Array, precision

Numbers = Any  # a float, or an array of them

EXP_ROUNDOFFS = 6
"""NumPy's exp errs by less than 3 ulps, which is 6 unit roundoffs (measured: 3.5 in float32)."""
LOG_ROUNDOFFS = 8
"""NumPy's log errs by less than 4 ulps, which is 8 unit roundoffs."""


@dataclass(frozen=True)
class Execution:
    """What an execution of attention does, as far as its rounding error depends on it.

    ``tiles`` is the number of key tiles that a query row meets, ``largest_tile`` the keys in the
    largest of them (``ceil(n_keys / tiles)`` unless given). ``splits`` > 1: that many partial
    results (O and LSE, float32) are merged at the end; the other counts are then those of a split,
    except ``n_keys``. ``stored_scores``: S and P are stored in the dtype, as standard attention
    does; with ``tiles`` > 1, m and l were found in so many pieces of a row and P comes from them in
    a later pass. ``stored_output_per_tile``: O is normalised and stored in the dtype after every
    tile, as in FlashAttention-1.

    float16 and bfloat16 mean operands given in that dtype, float32 accumulation, l summed from P
    before P is rounded for P V, and O rounded at the end. Raises `IosimError` for an unknown dtype
    or a count below 1.
    """

    dtype: str
    head_dim: int
    n_keys: int
    tiles: int = 1
    largest_tile: int | None = None
    splits: int = 1
    stored_scores: bool = False
    stored_output_per_tile: bool = False

    def __post_init__(self) -> None:
        precision(self.dtype)
        for name in ("head_dim", "n_keys", "tiles", "largest_tile", "splits"):
            count = getattr(self, name)
            if count is not None and count < 1:
                raise IosimError(f"{name} must be at least 1, not {count}")


def forward_error(execution: Execution, *, score_magnitude: float, value_magnitude: float) -> float:
    """The most that an element of O may differ from `reference.attention`'s; docs/tolerance.md.

    ``score_magnitude`` A is the largest |scale| sum_t |q_it| |k_jt| over the visible pairs (see
    `score_magnitude`), ``value_magnitude`` V the largest |v|. Infinite where an intermediate result
    may overflow: then nothing is promised. The reference's own error is included.

    >>> shape = {"head_dim": 64, "n_keys": 1024, "tiles": 8}
    >>> for dtype in ("bfloat16", "float32"):
    ...     execution = Execution(dtype, **shape)
    ...     print(f"{forward_error(execution, score_magnitude=8, value_magnitude=4):.0e}")
    3e-02
    2e-04
    """
    A, V = score_magnitude, value_magnitude
    error = 0.0
    with np.errstate(all="ignore"):
        for one in (execution, _reference(execution)):
            largest, h = _scores_and_weights(one, A, A)
            error += float(_output_error(one, _farthest(h, V), V, V, largest))
    return error


def lse_error(execution: Execution, *, score_magnitude: float) -> float:
    """The most that LSE (natural logarithm) may differ from `reference.attention`'s, as above."""
    A = score_magnitude
    error = 0.0
    with np.errstate(all="ignore"):
        for one in (execution, _reference(execution)):
            largest, h = _scores_and_weights(one, A, A)
            error += float(_lse_error(one, h, largest))
    return error


def elementwise_error(
    execution: Execution,
    q: Array,
    k: Array,
    v: Array,
    visible: Array | None = None,
    scale: float | None = None,
) -> tuple[Array, Array]:
    """Bounds as in `forward_error` and `lse_error` for each element of O and each row of LSE.

    Arguments as in `reference.attention`, O(n_q n_k) float64 words a head. About 5 to 10 times
    tighter than the scalar bounds: the largest score and value give way to averages over a row.
    A row that sees no key has error 0.
    """
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    output, lse = reference.attention(q, k, v, visible, scale)
    k, v = reference.repeat_heads(q, k), reference.repeat_heads(q, v)
    with np.errstate(all="ignore"):
        seen = np.ones((), bool) if visible is None else visible
        s = np.where(seen, factor * (q @ k.swapaxes(-1, -2)), -np.inf)
        A = np.where(seen, abs(factor) * (abs(q) @ abs(k).swapaxes(-1, -2)), 0.0)
        p = np.exp(s - np.where(np.isneginf(lse), 0.0, lse)[..., None])
        # p carries the reference's own error (step 9); so enlarged it bounds the true one.
        exact = _reference(execution)
        worst = A.max(axis=-1, keepdims=True, initial=0.0)
        largest, h = _scores_and_weights(exact, worst, worst)
        p = p * np.exp(h + _lse_error(exact, h, largest))
        of_dtype = _elementwise(execution, output, p, A, abs(v))
        of_reference = _elementwise(exact, output, p, A, abs(v))
    return of_dtype[0] + of_reference[0], of_dtype[1] + of_reference[1]


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


def two_times_rule(error: float, standard_error: float) -> bool:
    """The field's own check: error <= 2 x the error of standard attention in the dtype + 1e-5.

    False where either is NaN (Dao-AILab/flash-attention, tests/test_flash_attn.py).

    >>> two_times_rule(2e-3, 1e-3), two_times_rule(float("nan"), float("nan"))
    (True, False)
    """
    return bool(error <= 2 * standard_error + 1e-5)


@dataclass(frozen=True)
class Comparison:
    """The outcome of `agrees`: true where it is fine; ``reason`` says what is wrong, if anything.

    ``max_error`` is the largest |actual - expected|, ``max_ratio`` the largest such error over its
    tolerance; NaN where a NaN stood. ``index`` is where the worst element is.
    """

    fine: bool
    max_error: float
    max_ratio: float
    index: tuple[int, ...]
    reason: str = ""

    def __bool__(self) -> bool:
        return self.fine


def agrees(
    actual: Array, expected: Array, tolerance: Array | float, nan_where: Array | None = None
) -> Comparison:
    """Whether |actual - expected| <= tolerance everywhere; equal infinities agree, NaN never does.

    ``nan_where`` (broadcast to the shape) marks the elements where NaN is asked for: there both
    sides must be NaN, everywhere else neither. An infinite tolerance promises nothing and fails.
    Raises `IosimError` where the shapes differ.

    >>> bool(agrees(np.array([1.0, -np.inf]), np.array([1.25, -np.inf]), 0.25))
    True
    >>> agrees(np.array([1.0, np.nan]), np.array([1.0, np.nan]), 0.25).reason
    'NaN where none was asked for, at (1,): actual nan, expected nan'
    """
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    if actual.shape != expected.shape:
        raise IosimError(
            f"actual has shape {actual.shape} and expected {expected.shape}: they must be the same"
        )
    if not actual.size:
        return Comparison(True, 0.0, 0.0, ())
    allowed = np.broadcast_to(np.asarray(tolerance, np.float64), actual.shape)
    asked = np.broadcast_to(False if nan_where is None else nan_where, actual.shape)
    with np.errstate(all="ignore"):
        error = np.where(actual == expected, 0.0, abs(actual - expected))
        # Where NaN is asked for, the tolerance (NaN itself, perhaps) has no say.
        error, allowed = np.where(asked, 0.0, error), np.where(asked, 0.0, allowed)
        ratio = np.where(error == 0, 0.0, error / allowed)

    def outcome(reason: str, wrong: Array) -> Comparison:
        flat = int(np.argmax(wrong))
        index = tuple(int(i) for i in np.unravel_index(flat, actual.shape))
        if reason:
            reason += f", at {index}: actual {actual[index]}, expected {expected[index]}"
        return Comparison(not reason, float(error.max()), float(ratio.max()), index, reason)

    missing = asked & ~(np.isnan(actual) & np.isnan(expected))
    if missing.any():
        return outcome("no NaN where one was asked for", missing)
    unasked = ~asked & (np.isnan(actual) | np.isnan(expected))
    if unasked.any():
        return outcome("NaN where none was asked for", unasked)
    if not np.isfinite(allowed).all():
        return outcome("the tolerance is not finite", ~np.isfinite(allowed))
    # Not error > allowed: a comparison with NaN must fail, never pass.
    beyond = ~(error <= allowed)
    return outcome("error beyond the tolerance" if beyond.any() else "", ratio)


def _reference(execution: Execution) -> Execution:
    """What `reference.attention` does: float64, all keys in one tile."""
    return Execution("float64", execution.head_dim, execution.n_keys)


def _gamma(n: int, u: float) -> float:
    """gamma_n = n u / (1 - n u): n roundings in a row (Higham 2002, Lemma 3.1)."""
    return n * u / (1 - n * u) if n * u < 1 else math.inf


def _scores_and_weights(
    execution: Execution, A: Numbers, worst: Numbers
) -> tuple[Numbers, Numbers]:
    """Steps 1 and 2: the largest |computed score|, and h, the error of a weight's logarithm.

    ``worst`` is the largest A of the row.
    """
    form = precision(execution.dtype)
    u = form.accumulator_roundoff

    def of_score(A: Numbers) -> Numbers:
        error = _gamma(execution.head_dim + 2, u) * A + execution.head_dim * form.tiny
        if execution.stored_scores:
            error = error + form.roundoff * (A + error) + form.underflow
        return error

    largest = worst + of_score(worst)
    e = EXP_ROUNDOFFS * u * (1 + 8 * u)
    h = of_score(A) + 2 * u * largest + _exponentials(execution) * e
    if execution.splits > 1:
        h = h + 4 * u * largest + 12 * math.log(execution.n_keys) * u * (1 + 8 * u)
    # Nothing is promised where a score, or a difference of two, may overflow.
    fits = 4 * worst < form.accumulator_largest
    if execution.stored_scores:
        fits = fits & (largest < form.largest)
    return largest, np.where(fits, h, np.inf)


def _farthest(h: Numbers, V: float) -> Numbers:
    """Step 3: how far an average of values |v| <= V moves when log-weights move by at most h."""
    return np.where(np.isfinite(h), 2 * V * np.tanh(h / 2), np.inf)


def _exponentials(execution: Execution) -> int:
    """The exponentials whose product is the weight of one key."""
    return execution.tiles + execution.stored_output_per_tile + (execution.splits > 1)


def _sums(execution: Execution) -> tuple[float, float]:
    """Step 4: relative errors of the sums o, with its normalisation, and l."""
    u = precision(execution.dtype).accumulator_roundoff
    largest = execution.largest_tile or -(-execution.n_keys // execution.tiles)
    merges = execution.splits + 2 if execution.splits > 1 else 0
    steps = 6 if execution.stored_output_per_tile else 2
    return (
        _gamma(largest + steps * execution.tiles + 2 + merges, u),
        _gamma(largest + 2 * execution.tiles + 1 + merges, u),
    )


def _output_error(
    execution: Execution, moved: Numbers, average: Numbers, V: float, largest: Numbers
) -> Numbers:
    """Steps 4 to 7: the error of O, given what the weights' errors do to it (step 3).

    ``average`` bounds the weighted average of |v| under the computed weights.
    """
    form, n, tiles = precision(execution.dtype), execution.n_keys, execution.tiles
    g_o, g_l = _sums(execution)
    if execution.stored_scores and tiles > 1:
        u = form.accumulator_roundoff
        apart = 4 * u * largest + (tiles + 1) * EXP_ROUNDOFFS * u * (1 + 8 * u)
        g_l = (1 + g_l) * np.exp(apart) - 1
    reduced = form.storage != form.accumulator
    w, underflow = (form.roundoff, form.underflow) if reduced else (0.0, 0.0)
    lost = 4 * n * _exponentials(execution) * form.tiny * V + 4 * (n + 6 * tiles) * form.tiny
    p_and_sum = (1 + w) * (1 + g_o) - 1
    error = moved + lost + ((p_and_sum + g_l) * average + 2 * n * underflow * V) / (1 - g_l)
    roundings = tiles if execution.stored_output_per_tile else 1
    grown = (1 + w) ** roundings
    stored = (1 + g_o) * ((grown - 1) * (average + error) + roundings * grown * underflow)
    sums_fit = (g_o < 0.5) & (g_l < 0.5) & (4 * n * V < form.accumulator_largest)
    return np.where(sums_fit & (V + error + stored < form.largest), error + stored, np.inf)


def _lse_error(execution: Execution, h: Numbers, largest: Numbers) -> Numbers:
    """Step 8: the error of m + log(l)."""
    form, n = precision(execution.dtype), execution.n_keys
    u, g = form.accumulator_roundoff, _sums(execution)[1]
    if g >= 0.5:
        return np.inf * (h + 1)
    log_l = math.log(n) + 2 * g
    lost = 4 * n * _exponentials(execution) * form.tiny
    before = h + 2 * g + lost + LOG_ROUNDOFFS * u * log_l
    return before + 2 * u * (largest + log_l)


def _elementwise(
    execution: Execution, output: Array, p: Array, A: Array, magnitude: Array
) -> tuple[Array, Array]:
    """Step 3 for each element, then the rest; ``magnitude`` is |v|."""
    V = float(magnitude.max(initial=0.0))
    average = p @ magnitude
    worst = A.max(axis=-1, keepdims=True, initial=0.0)
    seen = p.max(axis=-1, initial=0.0) != 0
    largest, h = _scores_and_weights(execution, A, worst)
    e = np.expm1(h)
    kappa = (p * e).sum(axis=-1, keepdims=True)
    spread = (p * e) @ magnitude
    farthest = _farthest(h.max(axis=-1, keepdims=True, initial=0.0), V)
    room = np.where(kappa < 1, 1 - kappa, np.nan)
    moved = np.fmin((spread + kappa * abs(output)) / room, farthest)
    average = np.fmin(average + np.fmin((spread + kappa * average) / room, farthest), V)
    error = _output_error(execution, moved, average, V, largest)
    lse = _lse_error(execution, h.max(axis=-1, initial=0.0), largest[..., 0])
    return np.where(seen[..., None], error, 0.0), np.where(seen, lse, 0.0)
