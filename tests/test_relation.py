"""Masks as integer arithmetic: block ranges and sums against the dense matrix of visible pairs."""

from itertools import pairwise

import naive
import numpy as np
import pytest
import strategies
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from iosim.schedule import Causal, Dim
from iosim.schedule.masks import BlockMask
from iosim.schedule.nested import seen as rows_seen
from iosim.schedule.relation import PairSums, floor_sum, joined, ranges_of, relation_of
from iosim.shape import AttentionShape

small = st.integers(1, 12)
huge = st.integers(1, 10**30)
offsets = st.integers(-15, 15)


@given(st.integers(0, 40), st.integers(1, 20), st.integers(-50, 50), st.integers(-50, 50))
def test_floor_sum_is_the_loop(n: int, m: int, a: int, b: int) -> None:
    assert floor_sum(n, m, a, b) == naive.floor_sum(n, m, a, b)


@given(huge, huge, huge, huge, huge)
def test_floor_sum_of_huge_numbers_splits(n: int, more: int, m: int, a: int, b: int) -> None:
    whole = floor_sum(n + more, m, a, b)
    assert whole == floor_sum(n, m, a, b) + floor_sum(more, m, a, a * n + b)


@given(huge, huge, huge, st.integers(0, 10**30))
def test_floor_sum_where_m_divides_a(n: int, m: int, times: int, b: int) -> None:
    assert floor_sum(n, m, m * times, b) == times * n * (n - 1) // 2 + n * (b // m)


@given(small, small, small, small, offsets)
def test_block_ranges_are_those_of_the_matrix(
    n_q: int, n_k: int, br: int, bc: int, offset: int
) -> None:
    query, key, mask = Dim("query", n_q, br), Dim("key", n_k, bc), Causal(offset)
    met = naive.block_mask(n_q, n_k, br, bc, offset)
    for i, row in enumerate(met):
        assert list(mask.key_range(query, key, i)) == [j for j, yes in enumerate(row) if yes]
    for j, column in enumerate(zip(*met, strict=True)):
        assert list(mask.query_range(query, key, j)) == [i for i, yes in enumerate(column) if yes]


@given(small, small, small, small, offsets)
def test_sums_are_the_double_loop(n_q: int, n_k: int, br: int, bc: int, offset: int) -> None:
    sums = Causal(offset).sums(Dim("query", n_q, br), Dim("key", n_k, bc))
    assert sums == PairSums(*naive.pair_sums(n_q, n_k, br, bc, offset))
    assert sums.select(False, False) == sums.pairs
    assert sums.select(True, False) == sums.query_rows
    assert sums.select(False, True) == sums.key_rows
    assert sums.select(True, True) == sums.products


@given(
    st.integers(1, 10**12),
    st.integers(1, 10**12),
    st.integers(1, 300),
    st.integers(1, 300),
    st.floats(-2, 2),
)
def test_sums_of_long_axes_are_those_over_key_ranges(
    n_q: int, n_k: int, query_blocks: int, key_blocks: int, shift: float
) -> None:
    query = Dim("query", n_q, -(-n_q // query_blocks))
    key = Dim("key", n_k, -(-n_k // key_blocks))
    mask = Causal(int(shift * max(n_q, n_k)))
    pairs = query_rows = key_rows = products = 0
    for i in range(query.blocks):
        met = len(mask.key_range(query, key, i))
        columns = min(met * key.block, n_k)
        pairs += met
        query_rows += met * query.rows(i)
        key_rows += columns
        products += columns * query.rows(i)
    assert mask.sums(query, key) == PairSums(pairs, query_rows, key_rows, products)
    assert pairs == sum(len(mask.query_range(query, key, j)) for j in range(key.blocks))


@given(huge, huge, st.integers(-(10**30), 10**30))
def test_pairs_of_single_rows_have_a_closed_form(n_q: int, n_k: int, offset: int) -> None:
    """Row r sees min(max(r + offset + 1, 0), n_k) keys: a triangle with its corners cut off."""

    def triangle(n: int) -> int:
        return n * (n + 1) // 2 if n > 0 else 0

    last = n_q + offset  # keys that the last row would see, were there enough
    expected = triangle(last) - triangle(offset) - triangle(last - n_k) + triangle(offset - n_k)
    assert Causal(offset).sums(Dim("query", n_q, 1), Dim("key", n_k, 1)).pairs == expected


@given(small, small, offsets, st.data())
def test_visible_is_the_matrix(n_q: int, n_k: int, offset: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, n_q - 1))
    start = data.draw(st.integers(0, n_k - 1))
    queries = slice(first, data.draw(st.integers(first + 1, n_q)))
    keys = slice(start, data.draw(st.integers(start + 1, n_k)))
    expected = np.array(naive.visible_matrix(n_q, n_k, offset))[queries, keys]
    visible = Causal(offset).visible(queries, keys)
    if visible is None:
        assert expected.all()
    else:
        assert (visible == expected).all()
        assert not expected.all(), "None would have saved the mask"


@given(small, small, offsets)
def test_seen_counts_rows_and_columns(n_q: int, n_k: int, offset: int) -> None:
    matrix = np.array(naive.visible_matrix(n_q, n_k, offset))
    seen = rows_seen(Causal(offset), Dim("query", n_q, 1), Dim("key", n_k, 1))
    assert seen == (matrix.any(1).sum(), matrix.any(0).sum())


@pytest.mark.parametrize(("n_q", "n_k"), [(1, 1), (1, 9), (9, 1), (7, 5)])
def test_a_block_beyond_the_rows_is_one_ragged_block(n_q: int, n_k: int) -> None:
    offset = n_k - n_q
    sums = Causal(offset).sums(Dim("query", n_q, 100), Dim("key", n_k, 1000))
    assert sums == PairSums(1, n_q, n_k, n_q * n_k)


def tiles(dim: Dim) -> list[range]:
    return [range(*dim.range(i)) for i in range(dim.blocks)]


ONES = BlockMask.of(np.ones((5, 4)), 4, 5)
LAST_KEYS = BlockMask.of([[0, 0, 1]], 20, 3)
FIRST_ROW = BlockMask.of([[1], [0]], 5, 9)


@settings(max_examples=300)
@given(
    st.one_of(
        strategies.shapes(rows=20, masked=True, heads=False), strategies.blocks_beside_causal()
    ),
    small,
    small,
)
# A key tile that the diagonal just leaves out of a class; tiles after one over an edge of the mask.
@example(AttentionShape(20, 20, 1, causal=True, mask=ONES), 4, 1)
@example(AttentionShape(9, 9, 1, mask=FIRST_ROW), 2, 3)
def test_every_mask_is_its_matrix(shape: AttentionShape, br: int, bc: int) -> None:
    query, key, mask = Dim("query", shape.n_q, br), Dim("key", shape.n_k, bc), relation_of(shape)
    seen = naive.visible_of(shape)
    met = naive.met_blocks(seen, br, bc)
    for i, row in enumerate(met):
        assert list(mask.key_range(query, key, i)) == [j for j, yes in enumerate(row) if yes]
    for j, column in enumerate(zip(*met, strict=True)):
        assert list(mask.query_range(query, key, j)) == [i for i, yes in enumerate(column) if yes]
    assert mask.sums(query, key) == PairSums(*naive.sums_of(seen, br, bc))
    assert rows_seen(mask, query, key) == (
        sum(
            rows.stop - rows.start for rows, row in zip(tiles(query), met, strict=True) if any(row)
        ),
        sum(
            rows.stop - rows.start
            for rows, column in zip(tiles(key), zip(*met, strict=True), strict=True)
            if any(column)
        ),
    )


@given(strategies.shapes(rows=20, masked=True, heads=False), st.data())
def test_what_a_tile_sees_is_its_part_of_the_matrix(
    shape: AttentionShape, data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, shape.n_q - 1))
    start = data.draw(st.integers(0, shape.n_k - 1))
    queries = slice(first, data.draw(st.integers(first + 1, shape.n_q)))
    keys = slice(start, data.draw(st.integers(start + 1, shape.n_k)))
    expected = np.array(naive.visible_of(shape))[queries, keys]
    visible = relation_of(shape).visible(queries, keys)
    assert (visible is None) == expected.all()
    if visible is not None:
        assert (visible == expected).all()


@settings(max_examples=300)
@given(
    st.one_of(strategies.shapes(rows=20, heads=False), strategies.blocks_beside_causal()),
    small,
    small,
)
# One block of the mask: the first queries see nothing, the next a few keys, the last ones all.
@example(AttentionShape(20, 9, 1, causal=True, align="top-left", mask=LAST_KEYS), 1, 1)
def test_the_samples_show_every_kind_of_block(shape: AttentionShape, br: int, bc: int) -> None:
    """Kinds: the last block or not; it meets the last of the others or not, and another or not."""
    mask = relation_of(shape)
    assume(mask is not None)
    query, key = Dim("query", shape.n_q, br), Dim("key", shape.n_k, bc)
    met = naive.met_blocks(naive.visible_of(shape), br, bc)
    sides = ((query, key, met), (key, query, list(zip(*met, strict=True))))
    for samples, (own, other, meets) in zip(mask.samples(query, key), sides, strict=True):

        def kind(i: int) -> tuple[bool, ...]:
            return i == own.blocks - 1, meets[i][-1], any(meets[i][:-1])  # noqa: B023

        def rows(i: int) -> int:
            return sum(other.rows(j) for j, yes in enumerate(meets[i]) if yes)  # noqa: B023

        every = range(own.blocks)
        assert {kind(i) for i in samples} == {kind(i) for i in every}
        for last in (False, True):
            alike = [
                [i for i in some if (i == own.blocks - 1) == last] for some in (samples, every)
            ]
            most, expected = (max(map(rows, some), default=0) for some in alike)
            assert most == expected


@given(st.lists(st.integers(0, 40), max_size=20, unique=True), st.data())
def test_blocks_of_several_ranges_are_a_sequence(blocks: list[int], data: st.DataObject) -> None:
    blocks = sorted(blocks)
    runs = joined(range(block, block + 1) for block in blocks)
    assert list(runs) == blocks
    assert len(runs) == len(blocks)
    assert list(runs[:2]) == blocks[:2]
    assert list(runs[-2:]) == blocks[-2:]
    assert list(runs[::-1]) == blocks[::-1]
    at = data.draw(st.integers(-25, 25))
    if -len(blocks) <= at < len(blocks):
        assert runs[at] == blocks[at]
    else:
        with pytest.raises(IndexError):
            runs[at]
    ranges = ranges_of(runs)
    assert [block for each in ranges for block in each] == blocks
    assert all(a.stop < b.start for a, b in pairwise(ranges))
