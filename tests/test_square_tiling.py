"""Square tiling: the listing of Saha and Ye (arXiv 2402.07443), its closed form, what it keeps."""

from dataclasses import replace
from math import isqrt

import naive
import numpy as np
import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st

from iosim import reference, tolerance
from iosim.bounds import fused, lower_bounds
from iosim.errors import CapacityError, IosimError
from iosim.precision import NAMES, precision
from iosim.reading.check import check
from iosim.reading.count import count, total_words
from iosim.reading.execute import execute
from iosim.reading.formula import formula
from iosim.schedule import For, Schedule, family
from iosim.schedule.square_tiling import listed, printed_tiles
from iosim.schedule.tree import Compute
from iosim.shape import AttentionShape
from iosim.tiles import choose_tiles
from iosim.verify.counting import differences
from iosim.verify.exactness import rounding_of

plain = strategies.shapes(rows=40, width=12, heads=False, causal=False, masked=False)
square = st.tuples(st.integers(1, 40), st.integers(1, 12)).map(
    lambda sizes: AttentionShape(sizes[0], sizes[0], sizes[1])
)


def tree(shape: AttentionShape, br: int, bc: int) -> Schedule:
    return family("square_tiling").build(shape, br=br, bc=bc)


@given(plain, st.integers(1, 12), st.integers(1, 14))
def test_the_words_of_each_tensor(shape: AttentionShape, br: int, bc: int) -> None:
    n_q, n_k, d, d_v = shape.n_q, shape.n_k, shape.head_dim, shape.value_dim
    t_r, t_c, t_v = -(-n_q // br), -(-n_k // bc), -(-d_v // min(bc, d_v))
    tensors = count(tree(shape, br, bc)).tensors
    assert {name: (words.read, words.write) for name, words in tensors.items()} == {
        "Q": (t_c * n_q * d, 0),
        "K": (t_r * n_k * d, 0),
        "V": (t_r * n_k * d_v, 0),
        "S": (t_v * n_q * n_k, n_q * n_k),
        "m": (n_q, n_q),
        "l": (n_q, n_q),
        "O": (0, n_q * d_v),
    }


@given(square, st.integers(1, 14))
def test_the_printed_closed_form(shape: AttentionShape, b: int) -> None:
    """Read 2nNd + N + kN^2 + nNd and write N^2 + N + Nd; with the maximum N more each way."""
    N, d = shape.n_q, shape.head_dim
    n, k = -(-N // b), -(-d // b)
    read, write = 2 * n * N * d + N + k * N**2 + n * N * d, N**2 + N + N * d
    printed, kept, ours = listed(shape, b, maximum=False), listed(shape, b), tree(shape, b, b)
    assert (count(printed).read_words, count(printed).write_words) == (read, write)
    for schedule in (kept, ours):
        traffic = count(schedule)
        assert (traffic.read_words, traffic.write_words) == (read + N, write + N)
    assert formula(printed).value() == read + write


@given(plain, st.integers(1, 12), st.integers(1, 14))
def test_what_it_holds(shape: AttentionShape, br: int, bc: int) -> None:
    """A tile of S or of O with m and l, beside a column of it and a row of the other operand."""
    rows, keys, columns = min(br, shape.n_q), min(bc, shape.n_k), min(bc, shape.value_dim)
    expected = max(rows * wide + wide + rows for wide in (keys, columns)) + 2 * rows
    assert check(tree(shape, br, bc)).peak_words == expected


@given(plain, st.integers(1, 14), st.booleans())
def test_what_the_listing_holds(shape: AttentionShape, b: int, maximum: bool) -> None:
    """Three squares, with l of a row block or m and l of it."""
    n_q, n_k, d, d_v = (min(b, n) for n in naive_sizes(shape))
    expected = max(n_q * n_k + (n_q + n_k) * d, n_q * d_v + (n_q + d_v) * n_k)
    expected += (1 + maximum) * n_q
    assert check(listed(shape, b, maximum=maximum)).peak_words == expected


def naive_sizes(shape: AttentionShape) -> tuple[int, int, int, int]:
    return shape.n_q, shape.n_k, shape.head_dim, shape.value_dim


@given(
    strategies.shapes(rows=12, width=7),
    st.integers(1, 8),
    st.sampled_from([True, False]),
)
def test_the_readings_of_the_listing_agree(shape: AttentionShape, b: int, maximum: bool) -> None:
    """The head dimension in blocks, ragged ones included: count == execute == formula == a walk."""
    schedule = listed(shape, b, maximum=maximum)
    rng = np.random.default_rng(0)
    sizes = (shape.heads, shape.n_q, shape.head_dim), (shape.kv_heads, shape.n_k, shape.head_dim)
    q, k = (rng.standard_normal((shape.batch, *size)) for size in sizes)
    v = rng.standard_normal((shape.batch, shape.kv_heads, shape.n_k, shape.value_dim))
    assert differences(schedule, execute(schedule, q, k, v).traffic) == []
    run = naive.Run(schedule)
    assert sum(run.tensors.values()) == total_words(schedule)
    assert run.peak_words == check(schedule).peak_words
    assert (run.flops, run.left) == (count(schedule).flops, [])


@pytest.mark.parametrize("dtype", NAMES)
@given(strategies.shapes(rows=20, width=9, dtypes=("float32",)), st.integers(1, 9))
def test_the_listing_with_its_maximum_is_attention(
    dtype: str, shape: AttentionShape, b: int
) -> None:
    """Within the tolerance read off the tree: a sum over slices is a sum in another order."""
    schedule = listed(replace(shape, dtype=dtype), b)
    rng, form = np.random.default_rng(b), precision(dtype)
    sizes = (
        (shape.heads, shape.n_q, shape.head_dim),
        (shape.kv_heads, shape.n_k, shape.head_dim),
        (shape.kv_heads, shape.n_k, shape.value_dim),
    )
    q, k, v = (
        form.round((4 * rng.standard_normal((shape.batch, *size))).astype(form.accumulator))
        for size in sizes
    )
    visible = np.array(naive.visible_of(shape))
    expected, _ = reference.attention(*(x.astype(np.float64) for x in (q, k, v)), visible)
    allowed, _ = tolerance.elementwise_error(rounding_of(schedule), q, k, v, visible)
    assert tolerance.agrees(execute(schedule, q, k, v).O, expected, allowed)


def test_as_printed_it_overflows_and_with_the_maximum_it_does_not() -> None:
    """A score of 100 is beyond e^88.7 in float32, and 12 beyond e^11.1 as stored in float16."""
    for dtype, score in (("float32", 100.0), ("float16", 12.0)):
        shape = AttentionShape(4, 4, 1, dtype=dtype)
        q, k, v = np.full((4, 1), score), np.ones((4, 1)), np.arange(4.0)[:, None]
        printed = execute(listed(shape, 2, maximum=False), q, k, v)
        assert not np.isfinite(printed.O).any()
        for schedule in (listed(shape, 2), tree(shape, 2, 2)):
            assert np.array_equal(execute(schedule, q, k, v).O, np.full((4, 1), 1.5))
    small = AttentionShape(4, 4, 1, dtype="float64")
    done = execute(listed(small, 2, maximum=False), q / 9, k, v)
    assert np.allclose(done.O, 1.5)


def test_statistics_are_those_of_the_scores_that_come_back() -> None:
    """Of one value, the average is that value: weights sum to 1 as S was rounded before l."""
    shape = AttentionShape(2, 3, 1, dtype="float16")
    q, k, v = np.full((2, 1), 33.0), np.array([[1.0], [1.5], [9.8671875]]), np.ones((3, 1))
    schedule = tree(shape, 1, 2)
    # The score 325.617 is 325.5 in float16, and e^-0.117 is 0.89.
    right = execute(schedule, q, k, v).O
    wrong = execute(without_rounding(schedule), q, k, v).O
    assert np.array_equal(right, np.ones((2, 1)))
    assert (abs(wrong - 0.89) < 0.01).all()


def without_rounding(schedule: Schedule) -> Schedule:
    def strip(body):  # type: ignore[no-untyped-def]
        return tuple(
            replace(node, body=strip(node.body)) if isinstance(node, For) else node
            for node in body
            if not (isinstance(node, Compute) and node.operation == "round_scores")
        )

    return replace(schedule, body=strip(schedule.body))


@given(strategies.cases(names=("square_tiling",), rows=12, width=6))
def test_it_is_never_fused(case: strategies.Case) -> None:
    found = check(case.schedule)
    assert not found.fused
    assert found.materialises


def test_it_goes_below_the_fused_bound() -> None:
    """At d 64, N 1024, M 256: 3.47e7 words against 6.7e7, in the listing's tile; 2.06e7 at best."""
    shape, words = AttentionShape(1024, 1024, 64), 256
    tiles = printed_tiles(shape, words)
    assert tiles == {"br": 8, "bc": 8}
    schedule = tree(shape, **tiles)
    checked = check(schedule, capacity=words)
    bound = fused(shape, words, checked)
    assert not bound.holds
    assert bound.words == -(-(1024**2) * 128**2 // 255)
    assert total_words(schedule) == 34_672_640 < bound.words
    best = tree(shape, **choose_tiles(family("square_tiling"), shape, words).sizes)
    assert total_words(best) == 20_582_400
    for held in lower_bounds(shape, words, check(best, capacity=words)):
        assert not held.holds or held.words <= total_words(best)


def test_the_printed_tile_fits_every_memory_but_the_smallest() -> None:
    """B = floor(sqrt(M / 4)): at M = 4 one word of S, its two operands, m and l are five."""
    shape = AttentionShape(4096, 4096, 4096)
    for words in range(4, 3000):
        side = isqrt(words // 4)
        assert printed_tiles(shape, words) == {"br": side, "bc": side}
        peaks = (side**2 + 4 * side, 3 * side**2 + 2 * side)
        assert all((peak <= words) == (words > 4) for peak in peaks)
        if words < 40:
            assert check(tree(shape, side, side)).peak_words == peaks[0]
            assert check(listed(shape, side)).peak_words == peaks[1]
    with pytest.raises(CapacityError, match="needs 5 words of fast memory"):
        check(tree(shape, 1, 1), capacity=4)
    assert printed_tiles(shape, 0) == printed_tiles(shape, 3) == {"br": 1, "bc": 1}
    assert printed_tiles(AttentionShape(3, 2, 5), 10**6) == {"br": 3, "bc": 5}


def test_the_better_square() -> None:
    """B = 31 would move 10.9e6 words, but holds 1085: in 1024 words, 30 fits; 28 x 32 is best."""
    shape = AttentionShape(1024, 1024, 64)
    moved = {b: total_words(tree(shape, b, b)) for b in (16, 30, 31)}
    assert moved == {16: 17_895_424, 30: 11_145_216, 31: 10_948_608}
    assert [check(tree(shape, b, b)).peak_words for b in (30, 31)] == [1020, 1085]
    chosen = choose_tiles(family("square_tiling"), shape, 1024)
    assert chosen.sizes == {"br": 28, "bc": 32}
    assert total_words(tree(shape, **chosen.sizes)) == 10_162_176


def test_ten_million_rows_are_counted_exactly() -> None:
    n, d = 10**7, 64
    schedule = tree(AttentionShape(n, n, d), 28, 32)
    t_r, t_c = -(-n // 28), -(-n // 32)
    expected = t_c * n * d + 2 * t_r * n * d + 3 * n * n + 4 * n + n * d
    assert count(schedule).total_words == expected


@pytest.mark.parametrize("b", [0, -3])
def test_a_tile_without_words_is_refused(b: int) -> None:
    with pytest.raises(IosimError, match=f"tile size b is {b}, but it must be at least 1"):
        listed(AttentionShape(4, 4, 4), b)
    with pytest.raises(IosimError, match=f"tile size bc is {b}, but it must be a whole number"):
        tree(AttentionShape(4, 4, 4), 1, b)
