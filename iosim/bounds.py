"""Lower bounds on the words between slow and fast memory, each with its range of validity.

A bound is claimed only for schedules that meet its hypotheses; `Checked` (from `check`) says what a
schedule is. All counts are words, over batch and heads, as exact ints, rounded so that they stay
lower bounds. On several devices M is the fast memory of each, and words are over all of them.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from math import isqrt

from iosim.errors import IosimError
from iosim.reading.check import Checked
from iosim.schedule.nested import pair_sums, seen
from iosim.schedule.relation import relation_of
from iosim.schedule.tree import Dim
from iosim.shape import AttentionShape


@dataclass(frozen=True)
class Bound:
    """A lower bound in words: its value, whether it holds here, and why or why not.

    `leading` is its leading term as a formula, `source` where it comes from. One that holds for
    `any_memory` holds for schedules that do not fit, too.
    """

    name: str
    words: int
    holds: bool
    reason: str
    leading: str
    source: str
    any_memory: bool = False


LowerBound = Callable[[AttentionShape, int, Checked | None], Bound]
BOUNDS: dict[str, LowerBound] = {}
BACKWARD_BOUNDS: dict[str, LowerBound] = {}  # registered by iosim.bounds_backward


def bound(function: LowerBound) -> LowerBound:
    """Register a bound on the forward pass, `f(shape, M in words, what check found or None)`."""
    return _register(function, BOUNDS, backward=False)


def backward_bound(function: LowerBound) -> LowerBound:
    """Register a bound on the backward pass."""
    return _register(function, BACKWARD_BOUNDS, backward=True)


def _register(function: LowerBound, table: dict[str, LowerBound], backward: bool) -> LowerBound:
    """Enter a bound under its name, never to be claimed for a schedule of the other pass."""

    @wraps(function)
    def guarded(shape: AttentionShape, words: int, checked: Checked | None = None) -> Bound:
        found = function(shape, words, checked)
        if checked is None or checked.backward == backward:
            return found
        own = "backward" if backward else "forward"
        return replace(found, holds=False, reason=f"claimed for {own} schedules only")

    table[function.__name__] = guarded
    return guarded


def bounds_of(direction: str) -> dict[str, LowerBound]:
    """Return the bounds by name: of the "forward" or of the "backward" pass.

    >>> list(bounds_of("backward"))[:2]
    ['backward_compulsory', 'backward_general']
    """
    importlib.import_module("iosim.bounds_backward")  # which registers its own
    return BACKWARD_BOUNDS if direction == "backward" else BOUNDS


def visible_pairs(shape: AttentionShape) -> int:
    """Return how many pairs (query, key) of one head the mask lets meet, exactly.

    >>> visible_pairs(AttentionShape(4, 4, 64, causal=True))
    10
    """
    mask = relation_of(shape)
    if mask is None:
        return shape.n_q * shape.n_k
    query, key = Dim(mask.query, shape.n_q, 1), Dim(mask.key, shape.n_k, 1)
    return pair_sums(mask, query, key).pairs


def all_pairs(shape: AttentionShape) -> int:
    """Return the visible pairs of all heads of the batch."""
    return shape.batch * shape.heads * visible_pairs(shape)


def seen_rows(shape: AttentionShape) -> tuple[int, int]:
    """Return how many queries of a head see a key, and how many keys are seen."""
    mask = relation_of(shape)
    if mask is None:
        return shape.n_q, shape.n_k
    return seen(mask, Dim(mask.query, shape.n_q, 1), Dim(mask.key, shape.n_k, 1))


def compulsory_words(shape: AttentionShape) -> tuple[int, int]:
    """Return the words that must be read and written whatever the schedule and the memory.

    Read once: the rows of Q that see a key and the rows of K and V that are seen; written once:
    all of O.

    >>> compulsory_words(AttentionShape(1024, 1024, 64))
    (196608, 65536)
    """
    queries, keys = seen_rows(shape)
    width = shape.head_dim + shape.value_dim
    read = shape.heads * queries * shape.head_dim + shape.kv_heads * keys * width
    return shape.batch * read, shape.batch * shape.heads * shape.n_q * shape.value_dim


def regime(shape: AttentionShape, words: int) -> str:
    """Return where M lies: 'M < d^2', 'd^2 <= M <= N d' or 'M > N d', with N = min(n_q, n_k).

    >>> regime(AttentionShape(1024, 1024, 64), 25_600)
    'd^2 <= M <= N d'
    """
    d = max(shape.head_dim, shape.value_dim)
    if words < d * d:
        return "M < d^2"
    return "d^2 <= M <= N d" if words <= min(shape.n_q, shape.n_k) * d else "M > N d"


@bound
def compulsory(shape: AttentionShape, words: int, checked: Checked | None = None) -> Bound:
    """Every input word that matters is read once and every output word written once.

    Hypotheses: Q, K and V start in slow memory and O must end there. Holds for every M.
    """
    return Bound(
        name="compulsory",
        words=sum(compulsory_words(shape)),
        holds=True,
        reason="any schedule, any M",
        leading="n_q d + n_k (d + d_v) + n_q d_v",
        source="the statement of the problem: inputs start and outputs end in slow memory",
        any_memory=True,
    )


@bound
def general(shape: AttentionShape, words: int, checked: Checked | None = None) -> Bound:
    """Every score is a sum of d products: pairs d^2 <= (loads + M) max(M, 2 d^2).

    Hypotheses: each visible score is formed by summing its d products, in any order, with or
    without recomputation. A phase of M loads sees at most 2M words of Q, K and partial sums, so it
    forms at most (M/d)^2 scores from whole rows, or one for each partial sum it holds. The heads
    share the phases, so that M is subtracted once (on p devices, p times). Constant 1 for
    M >= 2 d^2; it is vacuous while the pairs are fewer than about M^2 / d^2.
    """
    d = shape.head_dim
    pairs = all_pairs(shape)
    value = max(ceil(pairs * d * d, max(words, 2 * d * d)) - _ranks(checked) * words, 0)
    return Bound(
        name="general",
        words=value,
        holds=True,
        reason="any schedule that sums d products a score" if value else "vacuous: M^2 > pairs d^2",
        leading="pairs d^2 / max(M, 2 d^2) - M",
        source="phases of Hong and Kung 1981; Saha and Ye 2024, arXiv 2402.07443, Lemma 3.3; "
        "proofs/coq/GeneralBound.v, general_bound_masked",
    )


@bound
def small_memory(shape: AttentionShape, words: int, checked: Checked | None = None) -> Bound:
    """Any order in a small memory, M <= d^2: (n_q n_k d)^2 <= 5 M (traffic + M)^2.

    Hypotheses: those of `general`, every score formed and none hidden by a mask. The products of a
    phase of M words project onto at most 2M words of Q and K and 5M / 2 partial sums, so that by
    Loomis and Whitney they are few. The query heads of one key-value head are g n_q rows; the
    others are bounded each by itself (on p devices M is subtracted p times). Constant 1 / sqrt(5)
    in N^2 d / sqrt(M): at M << d^2 this exceeds `general`, whose score costs half a word whatever
    M is.
    """
    d = shape.head_dim
    products = (shape.group * shape.n_q * shape.n_k * d) ** 2
    one = max(isqrt(ceil(products, 5 * words) - 1) + 1 - _ranks(checked) * words, 0)
    small = words <= d * d
    holds = small and relation_of(shape) is None
    reason = "any schedule that sums d products a score" if one else "vacuous: M too large"
    if not holds:
        reason = "claimed without a mask only" if small else "claimed for M <= d^2 only"
    return Bound(
        name="small_memory",
        words=shape.batch * shape.kv_heads * one,
        holds=holds,
        reason=reason,
        leading="n_q n_k d / sqrt(5 M) - M",
        source="Hong and Kung 1981; Saha and Ye 2024, arXiv 2402.07443, Theorem 3.1; the constant "
        "derived here, proofs/coq/SmallMemory.v, small_memory_bound",
    )


@bound
def fused(shape: AttentionShape, words: int, checked: Checked | None = None) -> Bound:
    """In a fused schedule each pair of words meets: pairs (d + d_v)^2 <= (M - 1) traffic.

    Hypotheses: every visible pair (i, j) is processed while the rows q_i, k_j, v_j and the
    accumulator of row i are all in fast memory; recomputation allowed. Processing (i, j) brings
    (d + d_v)^2 pairs of a query-side and a key-side word together, each pair first meets when the
    later of the two becomes resident, and a word that becomes resident meets at most M - 1 others.
    Constant 4 for d_v = d, attained to the leading term by `flash2`.
    """
    pairs = all_pairs(shape)
    width = shape.head_dim + shape.value_dim
    holds = checked is not None and checked.fused
    return Bound(
        name="fused",
        words=ceil(pairs * width * width, max(words - 1, 1)),
        holds=holds,
        reason="the schedule is fused" if holds else "claimed for fused schedules only",
        leading="pairs (d + d_v)^2 / (M - 1)",
        source="derived in this project; proofs/coq/FusedBound.v, fused_bound_masked",
    )


@bound
def whole_rows(shape: AttentionShape, words: int, checked: Checked | None = None) -> Bound:
    """With whole rows, fused or not: pairs (d^2 + d_v^2) <= (M - 1) traffic.

    Hypotheses: q_i meets k_j at one moment, and the accumulator of row i meets v_j at another (or
    the same), whole rows of both in fast memory each time; scores may be kept, spilled or formed
    again. Each meeting brings d^2 or d_v^2 pairs of words together. Constant 2 for d_v = d.
    """
    pairs = all_pairs(shape)
    width = shape.head_dim**2 + shape.value_dim**2
    holds = checked is not None and checked.whole_rows
    return Bound(
        name="whole_rows",
        words=ceil(pairs * width, max(words - 1, 1)),
        holds=holds,
        reason="rows meet whole" if holds else "claimed where rows of Q and K, O and V meet whole",
        leading="pairs (d^2 + d_v^2) / (M - 1)",
        source="derived in this project; proofs/coq/UnfusedBound.v, unfused_bound_masked",
    )


@bound
def whole_rows_large_memory(
    shape: AttentionShape, words: int, checked: Checked | None = None
) -> Bound:
    """With whole rows, M large: pairs (d + d_v)^2 <= (M + c - 1) traffic + c M, c = 2 d d_v.

    Hypotheses: those of `whole_rows`, each score one word while it waits. Constant
    4 / (1 + 2 d^2 / M) for d_v = d, but for the last term: it passes the 2 of `whole_rows` at
    M = 2 d^2 and tends to 4, so that keeping scores does not pay in a memory much larger than d^2.
    """
    pairs = all_pairs(shape)
    width = (shape.head_dim + shape.value_dim) ** 2
    holds = checked is not None and checked.whole_rows
    return Bound(
        name="whole_rows_large_memory",
        words=_window_bound(
            pairs * width, 2 * shape.head_dim * shape.value_dim, words, _ranks(checked)
        ),
        holds=holds,
        reason="rows meet whole" if holds else "claimed where rows of Q and K, O and V meet whole",
        leading="(pairs (d + d_v)^2 - c M) / (M + c - 1), c = 2 d d_v",
        source="derived here; proofs/coq/UnfusedLargeMemory.v, unfused_window_bound",
    )


@bound
def general_large_memory(
    shape: AttentionShape, words: int, checked: Checked | None = None
) -> Bound:
    """Any order in a large memory, P V counted: pairs (c + d + d_v) <= (M + c - 1) traffic + c M.

    Here c = d^2 + 2 d d_v - d. Hypotheses: each visible score is summed in one word from its d
    products, in any order, and multiplies the d_v words of a value into those of the output;
    recomputation allowed, nothing assumed of residency. Constant (3 + 1/d) / (1 + 3 d^2 / M) for
    d_v = d, but for the last term: it passes the 1 of `general` at about M = 2 d^2.
    """
    d, d_v = shape.head_dim, shape.value_dim
    pairs = all_pairs(shape)
    cost = d * d + 2 * d * d_v - d
    value = _window_bound(pairs * (cost + d + d_v), cost, words, _ranks(checked))
    return Bound(
        name="general_large_memory",
        words=value,
        holds=True,
        reason="any schedule that sums d products a score" if value else "vacuous: M too large",
        leading="(pairs (c + d + d_v) - c M) / (M + c - 1), c = d^2 + 2 d d_v - d",
        source="derived here; proofs/coq/GeneralLargeMemory.v, general_window_bound",
    )


@bound
def two_matmuls(shape: AttentionShape, words: int, checked: Checked | None = None) -> Bound:
    """Two matmuls that stand alone: at least 2 m n k / sqrt(M) - 2M words each.

    Hypotheses: all of S goes to slow memory and all of P comes from there, so that S = Q K^T and
    O = P V are each a matrix product of its own; no mask. The query heads of one key-value head
    are one matmul of g n_q rows. Where M << d^2 this exceeds n_q n_k, so that standard attention
    does not stay at Theta(N d + N^2).
    """
    rows, columns = shape.group * shape.n_q, shape.n_k
    one = sum(
        max(isqrt(4 * (rows * columns * inner) ** 2 // words) - 2 * words, 0)
        for inner in (shape.head_dim, shape.value_dim)
    )
    holds = (
        checked is not None
        and checked.materialises
        and checked.ranks == 1
        and relation_of(shape) is None
    )
    return Bound(
        name="two_matmuls",
        words=shape.batch * shape.kv_heads * one,
        holds=holds,
        reason="S and P pass through slow memory"
        if holds
        else "claimed for schedules that materialise S and P, without a mask",
        leading="2 (2 n_q n_k d / sqrt(M) - 2 M)",
        source="Smith et al. 2019, arXiv 1702.02017, for each of the two products; "
        "cited, not proved here",
    )


def lower_bounds(
    shape: AttentionShape, words: int, checked: Checked | None = None, *, direction: str = ""
) -> list[Bound]:
    """Return every bound for a shape and M words; `checked` decides which may be claimed.

    They are those of the pass that `checked` is of, or else of `direction`, "forward" by default.
    Raises IosimError for M below 1 word.

    >>> shape = AttentionShape(65536, 65536, 64)
    >>> [(b.name, b.words) for b in lower_bounds(shape, 65536) if b.holds]
    [('compulsory', 16777216), ('general', 268369920), ('general_large_memory', 682244306)]
    """
    if words < 1:
        raise IosimError(f"M is {words} words, but it must be at least 1")
    own = "backward" if checked is not None and checked.backward else "forward"
    known = bounds_of(direction or own)
    return [function(shape, words, checked) for function in known.values()]


def lower_bound(shape: AttentionShape, words: int, checked: Checked | None = None) -> Bound:
    """Return the largest bound that holds."""
    held = (b for b in lower_bounds(shape, words, checked) if b.holds)
    return max(held, key=lambda b: b.words)


def _ranks(checked: Checked | None) -> int:
    """Return the number of devices, each with M words: a bound of one is added up over them."""
    return 1 if checked is None else checked.ranks


def _window_bound(meetings: int, cost: int, words: int, ranks: int) -> int:
    """Return the least traffic with meetings <= (M + cost - 1) traffic + cost M on each rank."""
    if words + cost <= 1:
        return 0
    return max(ceil(meetings - ranks * cost * words, words + cost - 1), 0)


def ceil(a: int, b: int) -> int:
    """Return a / b rounded up, exactly."""
    return -(-a // b)
