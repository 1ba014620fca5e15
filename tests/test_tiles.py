"""Tile rules: the paper's as printed, and the others against trying every size."""

import naive
import pytest
import strategies
from hypothesis import given, settings
from hypothesis import strategies as st

from iosim.errors import CapacityError, IosimError
from iosim.reading.check import check
from iosim.reading.count import total_words
from iosim.schedule import Family, Schedule, families, family
from iosim.shape import Alignment, AttentionShape
from iosim.tiles import RULES, choose_tiles, full_tile_peak

TILED = ("flash1", "flash2", "standard_tiled", "square_tiling")
tiled = st.sampled_from(TILED)


def smallest_peak(name: str, shape: AttentionShape) -> int:
    return naive.Run(family(name).build(shape, br=1, bc=1)).peak_words


def built(name: str, shape: AttentionShape, sizes: object) -> Schedule:
    return family(name).build(shape, **sizes)  # type: ignore[arg-type]


@settings(max_examples=60)
@given(tiled, strategies.shapes(rows=6, heads=False, causal=False), st.integers(0, 80))
def test_best_is_the_least_of_all_that_fit(name: str, shape: AttentionShape, more: int) -> None:
    words = smallest_peak(name, shape) + more
    chosen = choose_tiles(family(name), shape, words)
    schedule = built(name, shape, chosen.sizes)
    assert check(schedule, capacity=words).peak_words <= words
    assert total_words(schedule) == naive.best_words(family(name), shape, words)
    assert chosen.rule == "best"


def standard_tiled_peak(shape: AttentionShape, br: int, bc: int) -> int:
    """A tile of S or O with a column and a row beside it, or two pieces of a row and its m, l."""
    br, keys, columns = min(br, shape.n_q), min(bc, shape.n_k), min(bc, shape.value_dim)
    return max(br * keys + br + keys, 2 * keys + 2, br * columns + br + columns)


def standard_tiled_words(shape: AttentionShape, br: int, bc: int) -> int:
    n_q, n_k, d, d_v = shape.n_q, shape.n_k, shape.head_dim, shape.value_dim
    t_r, t_c, t_v = -(-n_q // br), -(-n_k // bc), -(-d_v // min(bc, d_v))
    return t_c * n_q * d + t_r * n_k * (d + d_v) + (4 + t_v) * n_q * n_k + n_q * d_v


@settings(max_examples=50)
@given(strategies.shapes(rows=40, width=40, heads=False, causal=False), st.integers(0, 1500))
def test_best_of_tiled_standard_attention_is_the_least_of_all(
    shape: AttentionShape, more: int
) -> None:
    """Here traffic falls with either size, so that the search has to weigh them."""
    words = 4 + more
    chosen = choose_tiles(family("standard_tiled"), shape, words).sizes
    assert total_words(built("standard_tiled", shape, chosen)) == min(
        standard_tiled_words(shape, br, bc)
        for br in range(1, shape.n_q + 1)
        for bc in range(1, max(shape.n_k, shape.value_dim) + 1)
        if standard_tiled_peak(shape, br, bc) <= words
    )


@settings(max_examples=60)
@given(tiled, strategies.shapes(rows=6, heads=False), st.integers(0, 80))
def test_largest_is_the_largest_square_that_fits(
    name: str, shape: AttentionShape, more: int
) -> None:
    smallest = built(name, shape, {"br": 1, "bc": 1})
    words = full_tile_peak(smallest) + more
    chosen = choose_tiles(family(name), shape, words, "largest")
    assert len(set(chosen.sizes.values())) == 1
    assert check(built(name, shape, chosen.sizes), capacity=words)
    # Under a mask some sizes of which no full tile is visited would fit as well.
    if not shape.causal and shape.mask is None:
        expected = naive.largest_square(family(name), shape, words)
        assert chosen.sizes == {"br": expected, "bc": expected}


@settings(max_examples=50)
@given(
    tiled,
    strategies.shapes(rows=3000, width=128),
    st.integers(0, 10**6),
    st.sampled_from(["largest", "best"]),
)
def test_chosen_tiles_are_legal(name: str, shape: AttentionShape, more: int, rule: str) -> None:
    words = full_tile_peak(built(name, shape, {"br": 1, "bc": 1})) + more
    chosen = choose_tiles(family(name), shape, words, rule)
    check(built(name, shape, chosen.sizes), capacity=words)
    square = choose_tiles(family(name), shape, words, "largest")
    if not shape.causal and shape.mask is None and rule == "best":
        assert total_words(built(name, shape, chosen.sizes)) <= total_words(
            built(name, shape, square.sizes)
        )


@given(
    st.integers(1, 60),
    st.integers(1, 60),
    st.integers(1, 4),
    st.integers(0, 500),
    st.sampled_from(["bottom-right", "top-left"]),
)
def test_under_a_mask_the_largest_tile_and_its_even_cut_are_both_tried(
    n_q: int, n_k: int, d: int, more: int, align: Alignment
) -> None:
    shape = AttentionShape(n_q, n_k, d, causal=True, align=align)
    words = 4 * d + 3 + more
    # (B_r + 1) 2d + B_r + 2 B_r words with B_c = 1.
    rows = min((words - 2 * d) // (2 * d + 3), n_q)
    even = -(-n_q // -(-n_q // rows))
    best = total_words(built("flash2", shape, choose_tiles(family("flash2"), shape, words).sizes))
    for br in (rows, even):
        assert best <= total_words(built("flash2", shape, {"br": br, "bc": 1}))


@settings(max_examples=30)
@given(tiled, strategies.shapes(rows=200, width=32, causal=False), st.data())
def test_no_random_tile_that_fits_beats_best(
    name: str, shape: AttentionShape, data: st.DataObject
) -> None:
    words = full_tile_peak(built(name, shape, {"br": 1, "bc": 1})) + data.draw(
        st.integers(0, 20_000)
    )
    best = total_words(built(name, shape, choose_tiles(family(name), shape, words).sizes))
    for _ in range(10):
        sizes = {
            "br": data.draw(st.integers(1, shape.n_q)),
            "bc": data.draw(st.integers(1, shape.n_k + shape.value_dim)),
        }
        other = built(name, shape, sizes)
        assert full_tile_peak(other) > words or total_words(other) >= best


@given(tiled, strategies.shapes(rows=50, width=8))
def test_where_nothing_fits_the_words_needed_are_named(name: str, shape: AttentionShape) -> None:
    needed = full_tile_peak(built(name, shape, {"br": 1, "bc": 1}))
    assert choose_tiles(family(name), shape, needed).sizes["br"] >= 1
    for rule in ("best", "largest"):
        with pytest.raises(IosimError) as caught:
            choose_tiles(family(name), shape, needed - 1, rule)
        assert str(caught.value) == (
            f"no tile of {name} fits: the smallest needs {needed} words, but M has "
            f"{needed - 1} words; give --sram {needed}w or more"
        )


@given(tiled, strategies.shapes(rows=50, width=8), st.data())
def test_where_nothing_fits_the_sizes_given_are_named(
    name: str, shape: AttentionShape, data: st.DataObject
) -> None:
    size = data.draw(st.integers(1, shape.n_q + 5), label="br")
    needed = full_tile_peak(built(name, shape, {"br": size, "bc": 1}))
    assert choose_tiles(family(name), shape, needed, given={"br": size}).sizes["br"] == size
    for words, stated in ((1, "1 word"), (needed - 1, f"{needed - 1} words")):
        with pytest.raises(IosimError) as caught:
            choose_tiles(family(name), shape, words, given={"br": size})
        assert str(caught.value) == (
            f"no tile of {name} fits with --br {size} given: the smallest needs {needed} words, "
            f"but M has {stated}; give --sram {needed}w or more"
        )


@given(strategies.shapes(rows=5000, width=128), st.integers(1, 10**6))
def test_the_papers_rule_is_as_printed(shape: AttentionShape, words: int) -> None:
    """FA1, Algorithm 1, line 1: B_c = ceil(M / 4d), B_r = min(B_c, d); mirrored for flash2."""
    width = 2 * (shape.head_dim + shape.value_dim)  # 4d where d_v = d
    long = -(-words // width)
    short = min(long, shape.head_dim)
    flash1 = choose_tiles(family("flash1"), shape, words, "paper")
    assert flash1.sizes == {"br": min(short, shape.n_q), "bc": min(long, shape.n_k)}
    flash2 = choose_tiles(family("flash2"), shape, words, "paper")
    assert flash2.sizes == {"br": min(long, shape.n_q), "bc": min(short, shape.n_k)}
    assert flash1.rule == flash2.rule == "paper"


def test_the_papers_rule_may_not_fit_and_is_given_all_the_same() -> None:
    shape = AttentionShape(4096, 4096, 128)
    sizes = choose_tiles(family("flash1"), shape, 51_200, "paper").sizes
    with pytest.raises(CapacityError):
        check(built("flash1", shape, sizes), capacity=51_200)


@settings(max_examples=40)
@given(
    tiled,
    strategies.shapes(rows=6, heads=False, causal=False),
    st.sampled_from(["br", "bc"]),
    st.integers(1, 6),
    st.integers(0, 60),
)
def test_a_given_size_stays_and_the_other_is_best(
    name: str, shape: AttentionShape, fixed: str, size: int, more: int
) -> None:
    other = "bc" if fixed == "br" else "br"
    rows = naive.rows_cut(family(name), shape)
    words = full_tile_peak(built(name, shape, {fixed: size, other: 1})) + more
    chosen = choose_tiles(family(name), shape, words, given={fixed: size})
    assert chosen.sizes[fixed] == size
    fitting = [
        naive.run_words(schedule)
        for each in range(1, rows[other] + 1)
        for schedule in [built(name, shape, {fixed: size, other: each})]
        if naive.Run(schedule).peak_words <= words
    ]
    assert total_words(built(name, shape, chosen.sizes)) == min(fitting)


def test_given_sizes_need_no_memory() -> None:
    shape = AttentionShape(64, 64, 8)
    chosen = choose_tiles(family("flash2"), shape, None, given={"br": 3, "bc": 5})
    assert (chosen.sizes, chosen.rule) == ({"br": 3, "bc": 5}, "given")
    none = choose_tiles(family("standard"), shape, None)
    assert (none.sizes, none.rule) == ({}, "none")
    with pytest.raises(IosimError, match="flash2 has no value for --bc; give it, or give --sram"):
        choose_tiles(family("flash2"), shape, None, given={"br": 3})
    with pytest.raises(IosimError, match="no value for --br and --bc"):
        choose_tiles(family("flash2"), shape, None)


@pytest.mark.parametrize(("rule", "near"), [("bset", "'best'"), ("papers", "'paper'"), ("", "")])
def test_an_unknown_rule_is_refused_with_the_closest(rule: str, near: str) -> None:
    with pytest.raises(IosimError) as caught:
        choose_tiles(family("flash1"), AttentionShape(8, 8, 8), 1000, rule)
    assert f"unknown --tiles '{rule}';" in str(caught.value)
    assert near in str(caught.value)
    assert all(known in str(caught.value) for known in RULES)


def test_a_schedule_without_a_papers_rule_says_so() -> None:
    with pytest.raises(IosimError, match="--tiles paper is not a rule that standard_tiled has"):
        choose_tiles(family("standard_tiled"), AttentionShape(8, 8, 8), 1000, "paper")


def test_best_over_three_sizes_asks_for_one_of_them() -> None:
    three = Family(
        "three", lambda shape, a, b, c: family("standard").build(shape), tuple("abc"), ""
    )
    shape = AttentionShape(4, 4, 4)
    with pytest.raises(IosimError, match="searches at most two sizes, but three lacks a, b, c"):
        choose_tiles(three, shape, 1000)
    assert set(choose_tiles(three, shape, 1000, given={"a": 2}).sizes) == set("abc")


def test_sizes_of_other_names_are_searched_too() -> None:
    base = families()["flash2"].build
    renamed = Family("own", lambda shape, x, y: base(shape, br=x, bc=y), ("x", "y"), "")
    shape = AttentionShape(100, 100, 4)
    mine = choose_tiles(renamed, shape, 500).sizes
    usual = choose_tiles(family("flash2"), shape, 500).sizes
    assert total_words(base(shape, br=mine["x"], bc=mine["y"])) == total_words(base(shape, **usual))
