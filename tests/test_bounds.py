"""Lower bounds: their values in exact arithmetic, when they may be claimed, and that they hold."""

import math
from dataclasses import replace

import naive
import pytest
import strategies
import trees
from hypothesis import given
from hypothesis import strategies as st

from iosim import bounds
from iosim.bounds import Bound, bounds_of, lower_bound, lower_bounds
from iosim.bounds_backward import backward_compulsory_words
from iosim.errors import IosimError
from iosim.reading.check import Checked, check
from iosim.reading.count import count, total_words
from iosim.schedule import Compute, Move, Schedule, families, family
from iosim.shape import AttentionShape
from iosim.tiles import choose_tiles

memories = st.integers(2, 200)


def named(shape: AttentionShape, words: int, checked: Checked | None = None) -> dict[str, Bound]:
    return {b.name: b for b in lower_bounds(shape, words, checked)}


@given(strategies.shapes(rows=12, width=5), memories)
def test_values_are_those_of_exact_arithmetic(shape: AttentionShape, words: int) -> None:
    found = named(shape, words)
    assert bounds.visible_pairs(shape) == naive.visible_pairs(shape)
    assert bounds.compulsory_words(shape) == naive.compulsory(shape)
    assert found["compulsory"].words == sum(naive.compulsory(shape))
    assert found["general"].words == math.ceil(naive.general(shape, words))
    assert found["fused"].words == math.ceil(naive.fused(shape, words))
    assert found["whole_rows"].words == math.ceil(naive.whole_rows(shape, words))
    for name in ("whole_rows_large_memory", "general_large_memory"):
        assert found[name].words == max(math.ceil(getattr(naive, name)(shape, words)), 0)
    assert naive.two_matmuls_at_least(shape, words, found["two_matmuls"].words)
    assert naive.small_memory_at_least(shape, words, found["small_memory"].words)


@given(strategies.shapes(rows=12, width=5), memories)
def test_backward_values_are_those_of_exact_arithmetic(shape: AttentionShape, words: int) -> None:
    found = {b.name: b for b in lower_bounds(shape, words, direction="backward")}
    read, written = naive.backward_compulsory(shape)
    assert backward_compulsory_words(shape) == (read, written)
    for name, value in {
        "backward_compulsory": read + written,
        "backward_general": naive.backward_general(shape, words),
        "backward_fused": naive.backward_fused(shape, words, lambda s, t: 1),
        "backward_fused_again": naive.backward_fused(shape, words, lambda s, t: 1 - s * t),
        "backward_fused_made": naive.backward_fused(shape, words, lambda s, t: 1 + s * t, written),
    }.items():
        assert found[name].words == max(math.ceil(value), 0), name


@given(strategies.shapes(rows=10**6, width=256), st.integers(1, 10**7), st.integers(0, 10**6))
def test_more_memory_never_raises_a_bound(shape: AttentionShape, words: int, more: int) -> None:
    for direction in ("forward", "backward"):
        less, larger = (
            {b.name: b.words for b in lower_bounds(shape, m, direction=direction)}
            for m in (words, words + more)
        )
        for name, bound in larger.items():
            assert 0 <= bound <= less[name]


def assert_above_bounds(schedule: Schedule, more: int = 0) -> None:
    checked, total = check(schedule), count(schedule).total_words
    words = checked.peak_words + more
    own = {b.name: b for b in lower_bounds(schedule.shape, words, checked)}
    for function in (bounds_of("forward") | bounds_of("backward")).values():
        bound = function(schedule.shape, words, checked)
        assert not bound.holds or total >= bound.words, (bound, total)
        assert bound == own[bound.name] if bound.name in own else not bound.holds


@given(strategies.cases(rows=12, width=6), st.integers(0, 50))
def test_no_small_schedule_goes_below_a_bound_that_holds(case: strategies.Case, more: int) -> None:
    assert_above_bounds(case.schedule, more)


@given(strategies.cases(rows=10**5, width=160))
def test_no_large_schedule_goes_below_a_bound_that_holds(case: strategies.Case) -> None:
    assert_above_bounds(case.schedule)


@given(
    st.sampled_from(strategies.NAMES),
    strategies.shapes(rows=5000, width=64),
    st.integers(1, 64),
    st.integers(1, 64),
)
def test_so_it_is_with_tiles_of_usual_sizes(
    name: str, shape: AttentionShape, br: int, bc: int
) -> None:
    sizes = dict(zip(family(name).tiles, (br, bc), strict=False))
    assert_above_bounds(family(name).build(shape, **sizes))


@given(
    st.sampled_from(sorted(trees.OWN)),
    strategies.shapes(rows=40, width=64),
    st.integers(1, 40),
    st.integers(1, 40),
)
def test_so_it_is_for_schedules_of_ones_own(
    name: str, shape: AttentionShape, br: int, bc: int
) -> None:
    assert_above_bounds(trees.OWN[name](shape, br, bc))


def of(words: int, *, fused: bool, whole_rows: bool, materialises: bool) -> Checked:
    return Checked(words, words, fused, whole_rows, materialises, rematerialises=False)


@given(strategies.shapes(), memories, st.booleans(), st.booleans(), st.booleans())
def test_a_bound_is_claimed_only_where_its_hypotheses_hold(
    shape: AttentionShape, words: int, fused: bool, whole_rows: bool, materialises: bool
) -> None:
    checked = of(words, fused=fused, whole_rows=whole_rows, materialises=materialises)
    found = named(shape, words, checked)
    assert found["compulsory"].holds
    assert found["general"].holds
    assert found["fused"].holds == fused
    assert found["whole_rows"].holds == whole_rows
    assert found["whole_rows_large_memory"].holds == whole_rows
    assert found["general_large_memory"].holds
    assert found["two_matmuls"].holds == (materialises and not shape.causal and shape.mask is None)
    small = words <= shape.head_dim**2 and not shape.causal and shape.mask is None
    assert found["small_memory"].holds == small
    unknown = named(shape, words)
    assert [b.name for b in unknown.values() if b.holds] == [
        *("compulsory", "general"),
        *(["small_memory"] if small else []),
        "general_large_memory",
    ]
    best = lower_bound(shape, words, checked)
    assert best.holds
    assert best.words == max(b.words for b in found.values() if b.holds)
    assert {b.name: b.words for b in unknown.values()} == {b.name: b.words for b in found.values()}
    assert all(b.reason and b.leading and b.source for b in found.values())


# Optimal traffic by exact search, one word a row: the least any order moves.
OPTIMA = [
    *((2, 2, m, best) for m, best in zip((4, 5, 6), (10, 9, 8), strict=True)),
    *((2, 3, m, best) for m, best in zip((4, 5, 6), (14, 12, 10), strict=True)),
    *((3, 3, m, best) for m, best in zip((4, 5, 6, 7, 8), (20, 18, 16, 14, 12), strict=True)),
    *((3, 4, m, best) for m, best in ((4, 26), (6, 20))),
    (4, 3, 5, 22),
    *((4, 4, m, best) for m, best in zip((4, 5, 6, 7, 8), (34, 28, 22, 21, 20), strict=True)),
]


@pytest.mark.parametrize(("n_q", "n_k", "words", "optimum"), OPTIMA)
def test_no_bound_exceeds_the_optimum_of_an_exact_search(
    n_q: int, n_k: int, words: int, optimum: int
) -> None:
    checked = of(words, fused=True, whole_rows=True, materialises=False)
    assert lower_bound(AttentionShape(n_q, n_k, 1), words, checked).words <= optimum


def test_the_compulsory_traffic_is_reached() -> None:
    """2 x 2 with M = 6 (all that there is but two words) moves 8 words, and no less."""
    assert bounds.compulsory(AttentionShape(2, 2, 1), 6).words == 8
    shape = AttentionShape(64, 32, 8, value_dim=4)
    assert count(family("flash2").build(shape, br=64, bc=1)).total_words == 64 + (
        bounds.compulsory(shape, 10**6).words
    )


GRADIENTS = ("dQ", "dK", "dV")


@given(strategies.shapes(), memories, st.booleans(), st.booleans(), st.integers(0, 500))
def test_a_backward_bound_is_claimed_only_where_its_hypotheses_hold(
    shape: AttentionShape, words: int, fused: bool, once: bool, made: int
) -> None:
    checked = replace(
        of(words, fused=fused, whole_rows=True, materialises=True),
        gradients=GRADIENTS, once=once, gradient_words_made=made,
    )  # fmt: skip
    found = named(shape, words, checked)
    assert list(found) == list(bounds_of("backward"))
    assert {b.name for b in found.values() if b.holds} == {
        "backward_compulsory",
        "backward_general",
        *(["backward_fused_again"] if fused else []),
        *(["backward_fused", "backward_fused_made"] if fused and once else []),
    }
    least = naive.backward_compulsory(shape)[1]
    unknown = {b.name: b.words for b in lower_bounds(shape, words, direction="backward")}
    assert found["backward_fused_made"].words == max(
        math.ceil(naive.backward_fused(shape, words, lambda s, t: 1 + s * t, made)), 0
    )
    if made >= least:
        assert found["backward_fused_made"].words <= unknown["backward_fused_made"]
    for name, function in bounds_of("forward").items():
        assert not function(shape, words, checked).holds, name
    for name, function in bounds_of("backward").items():
        forward = of(words, fused=True, whole_rows=True, materialises=True)
        assert not function(shape, words, forward).holds, name


@given(strategies.shapes(rows=30, width=12), st.sampled_from(GRADIENTS))
def test_half_a_backward_pass_is_held_to_its_own_gradients(
    shape: AttentionShape, left_out: str
) -> None:
    """Without one of its gradients a schedule is neither fused nor owes all compulsory words."""
    whole = family("flash2_backward").build(replace(shape, dtype="float64"), br=4, bc=4)

    def without(node: object) -> tuple[object, ...]:
        if isinstance(node, Move) and node.tensor.name == left_out:
            return ()
        if isinstance(node, Compute):
            left = tuple(t for t in node.outputs if t.name != left_out)
            return (replace(node, outputs=left),) if left else ()
        return (node,)

    half = trees.edited(whole, without)
    checked = check(half)
    assert set(checked.gradients) == set(GRADIENTS) - {left_out}
    assert not checked.fused
    assert_above_bounds(half)


def test_flash2_backward_reaches_the_fused_bound_to_the_leading_term() -> None:
    """With 4 B_c d + 3 d <= M it moves the same leading term 12 N^2 d^2 / M."""
    n, d = 2**22, 128
    schedule = family("flash2_backward").build(AttentionShape(n, n, d), br=1, bc=512)
    checked = check(schedule)
    bound = bounds_of("backward")["backward_fused"](schedule.shape, checked.peak_words, checked)
    # S_ij and dP_ij (2 words beside 4d of a key), LSE and D (2 beside 3d of a query), and O(N d).
    gap = count(schedule).total_words / bound.words
    assert 1 <= gap <= (1 + 2 / (4 * d) + 1 / 512) * (1 + 2 / (3 * d)) + 0.001


def test_flash2_reaches_the_fused_bound_to_the_leading_term() -> None:
    """With (B_r + 1) D <= M it moves the same leading term 4 N^2 d^2 / M."""
    for n, d in ((2**20, 64), (2**22, 128)):
        shape = AttentionShape(n, n, d)
        words = 2**18
        schedule = family("flash2").build(shape, br=words // (2 * d) - 1 - 5, bc=1)
        checked = check(schedule)
        assert checked.peak_words <= words * (1 + 1.5 / d + 0.01)
        bound = bounds.fused(shape, checked.peak_words, checked)
        # The rest: l, m and S beside each 2d words of a row (3 / 2d), one K/V row, Q and O once.
        assert 1 <= count(schedule).total_words / bound.words <= 1 + 3 / (2 * d) + 0.01


def test_square_tiling_is_of_the_order_of_the_bound_of_small_memories() -> None:
    """4 N^2 d / sqrt(M) against N^2 d / sqrt(5 M): their ratio tends to 4 sqrt(5) = 8.9."""
    shape = AttentionShape(65536, 65536, 1024)
    for words in (1024, 16384):
        best = choose_tiles(family("square_tiling"), shape, words).sizes
        moved = total_words(family("square_tiling").build(shape, **best))
        bound = bounds.small_memory(shape, words)
        assert bound.holds
        assert 8.9 < moved / bound.words < 11
        assert bound.words > bounds.general(shape, words).words


def test_smiths_bound_stays_below_the_schedule_that_refutes_its_other_form() -> None:
    """m = n = 64, k = 1, S = 18: a schedule of 4416 transfers exists."""
    one_matmul = bounds.two_matmuls(AttentionShape(64, 64, 1), 18).words / 2
    assert one_matmul <= 4416
    assert one_matmul == math.isqrt(4 * 64**4 // 18) - 36


def test_a_billion_rows_have_exact_bounds() -> None:
    n = 10**9
    shape = AttentionShape(n, n, 64, causal=True)
    pairs = n * (n + 1) // 2
    assert bounds.visible_pairs(shape) == pairs
    assert named(shape, 65537)["fused"].words == -(-pairs * 128**2 // 65536)
    assert named(shape, 65536)["general"].words == -(-pairs * 64**2 // 65536) - 65536


@pytest.mark.parametrize("words", [0, -1, -(10**9)])
def test_a_memory_without_words_is_refused(words: int) -> None:
    with pytest.raises(IosimError, match=f"^M is {words} words, but it must be at least 1$"):
        lower_bounds(AttentionShape(4, 4, 4), words)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (1, "M < d^2"),
        (4095, "M < d^2"),
        (4096, "d^2 <= M <= N d"),
        (65536, "d^2 <= M <= N d"),
        (65537, "M > N d"),
    ],
)
def test_regimes(words: int, expected: str) -> None:
    assert bounds.regime(AttentionShape(1024, 2048, 64), words) == expected


def test_every_schedule_has_the_bounds_that_hold_for_it() -> None:
    shape = AttentionShape(64, 64, 8)
    held = {
        name: {b.name for b in lower_bounds(shape, 10_000, check(built)) if b.holds}
        for name in families()
        for built in [family(name).build(shape, **dict.fromkeys(family(name).tiles, 8))]
    }
    both = {"compulsory", "general", "general_large_memory"}
    rows = {"whole_rows", "whole_rows_large_memory"}
    backward = {"backward_compulsory", "backward_general"}
    fused_backward = {"backward_fused", "backward_fused_again", "backward_fused_made"}
    assert held == {
        "standard": both | rows | {"two_matmuls"},
        "standard_passes": both | rows | {"two_matmuls"},
        "standard_tiled": both | {"two_matmuls"},
        "square_tiling": both | {"two_matmuls"},
        "flash1": both | rows | {"fused"},
        "flash2": both | rows | {"fused"},
        "flash2_packed": both | rows | {"fused"},
        "split_kv": both | rows | {"fused"},
        "standard_backward": backward,
        "flash1_backward": backward | fused_backward,
        "flash2_backward": backward | fused_backward,
        "flash2_backward_q": backward,
        "ring": both | rows | {"fused"},
        "ulysses": both | rows | {"fused"},
        "tree_decoding": both | rows | {"fused"},
    }
