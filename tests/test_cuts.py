"""Cuts within cuts as arithmetic, and sums over a mask in many parts at once, against lists."""

from dataclasses import dataclass

import naive
import numpy as np
import strategies
from hypothesis import given, settings
from hypothesis import strategies as st
from test_nested import blocks_of, cuts

from iosim.schedule import Causal, Dim
from iosim.schedule.cuts import Cut, floor_sums, number_type, spread
from iosim.schedule.masks.staircase import staircase
from iosim.schedule.nested import pair_sums, sums_in
from iosim.schedule.ranks import Butterfly, Others, Own, visited_parts
from iosim.schedule.relation import PairSums, Part, Relation, floor_sum, relation_of
from iosim.shape import AttentionShape

numbers = st.integers(0, 50)
kinds = st.sampled_from([np.int64, object])


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=5), st.integers(1, 20), numbers)
def test_floor_sums_are_those_of_each(of: list[tuple[int, int]], m: int, a: int) -> None:
    n, b = np.array(of).T
    assert floor_sums(n, m, a, b).tolist() == [
        naive.floor_sum(*n_b[:1], m, a, n_b[1]) for n_b in of
    ]


@given(st.lists(st.integers(0, 10**30), min_size=1, max_size=4), st.data())
def test_floor_sums_of_huge_numbers_are_those_of_each(n: list[int], data: st.DataObject) -> None:
    huge = st.integers(1, 10**30)
    m, a, b = (data.draw(huge) for _ in range(3))
    found = floor_sums(np.array(n, dtype=object), m, a, np.array([b] * len(n), dtype=object))
    assert found.tolist() == [floor_sum(each, m, a, b) for each in n]


@given(st.lists(st.tuples(numbers, numbers), max_size=6))
def test_numbers_are_spread_one_range_after_the_other(ranges: list[tuple[int, int]]) -> None:
    low, high = np.array(ranges, dtype=int).reshape(-1, 2).T
    which, each = spread(low, high)
    expected = [(i, n) for i, (a, b) in enumerate(ranges) for n in range(a, b)]
    assert list(zip(which.tolist(), each.tolist(), strict=True)) == expected


some_cut = st.integers(1, 60).flatmap(lambda n: cuts("key", n))


@st.composite
def many_sections(draw):
    """Small sections, a few blocks in each, so that there are fewer blocks to a section."""
    n, section = draw(st.integers(20, 60)), draw(st.integers(2, 9))
    return Dim("key", n, draw(st.integers(1, section))).within(Dim("key", n, section))


@given(some_cut, kinds)
def test_a_cut_knows_where_its_blocks_lie(dim: Dim, kind: type) -> None:
    cut, blocks = Cut.of(dim), blocks_of(dim)
    rows = np.arange(dim.n + 1).astype(kind)
    assert cut.blocks == len(blocks)
    assert cut.begun(rows).tolist() == [sum(a < row for a, _ in blocks) for row in rows]
    assert cut.done(rows).tolist() == [sum(b <= row for _, b in blocks) for row in rows]
    edges = [*(a for a, _ in blocks), dim.n]
    assert cut.edge(np.arange(len(edges)).astype(kind)).tolist() == edges


@settings(max_examples=400)
@given(st.one_of(some_cut, many_sections()), st.integers(1, 9), st.booleans(), kinds, st.data())
def test_sums_along_a_ramp_are_the_loop(
    dim: Dim, step: int, up: bool, kind: type, data: st.DataObject
) -> None:
    """By section and by place: each where it has fewer terms."""
    cut, blocks = Cut.of(dim), blocks_of(dim)
    top = dim.n if up else dim.n - 1
    ramps = []
    for _ in range(data.draw(st.integers(1, 3))):
        first = data.draw(st.integers(0, top))
        most = (top - first) // step + 1
        ramps.append((first, data.draw(st.one_of(st.integers(0, most), st.just(most)))))
    expected = []
    for first, count in ramps:
        rows = range(first, first + count * step, step)
        met = [[b - a for a, b in blocks if (a < row if up else b <= row)] for row in rows]
        expected.append((sum(map(len, met)), sum(map(sum, met))))
    first, count = np.array(ramps, dtype=kind).T
    found = cut.ramp(first, step, count, up=up)
    assert list(zip(*(each.tolist() for each in found), strict=True)) == expected


@dataclass(frozen=True)
class Slow:
    """A relation of one's own, which cannot work out many parts at once."""

    of: Relation

    @property
    def query(self) -> str:
        return self.of.query

    @property
    def key(self) -> str:
        return self.of.key

    def within(self, queries, keys):
        return Slow(self.of.within(queries, keys))

    def sums(self, query, key):
        return self.of.sums(query, key)


def slow_sums(shape: AttentionShape, query: Dim, key: Dim, part: Part) -> PairSums:
    """Every pair of blocks in a part, looked up in the matrix."""
    seen = np.array(naive.visible_of(shape))
    total = PairSums()
    for r0, r1 in blocks_of(query):
        for c0, c1 in blocks_of(key):
            inside = part[0][0] <= r0 < part[0][1] and part[1][0] <= c0 < part[1][1]
            if inside and seen[r0:r1, c0:c1].any():
                rows, columns = r1 - r0, c1 - c0
                total += PairSums(1, rows, columns, rows * columns)
    return total


@st.composite
def ranked(draw, query: Dim, key: Dim):
    """Parts as ranks visit them: shards of one axis with some of the other, or with all."""
    relation = draw(st.sampled_from([None, Own("r", "s"), Others("r", "s"), Butterfly("r", "s")]))
    mine, theirs = (query, key) if draw(st.booleans()) else (key, query)
    mine, theirs = mine.cuts[0], theirs.cuts[0]
    ranks = min(mine.blocks, theirs.blocks)
    if isinstance(relation, Butterfly):
        ranks = 1 << (ranks.bit_length() - 1)
    if relation is not None:  # as many of each, which need not be all
        mine, theirs = (_first(dim, ranks) for dim in (mine, theirs))
    _, parts = visited_parts(mine, theirs, relation)
    return parts if mine.name == "query" else tuple((rows, own) for own, rows in parts)


def _first(dim: Dim, blocks: int) -> Dim:
    return Dim(dim.name, min(blocks * dim.block, dim.n), dim.block)


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(strategies.shapes(rows=26, heads=False), strategies.blocks_beside_causal()), st.data()
)
def test_sums_in_parts_are_those_of_the_matrix(shape: AttentionShape, data: st.DataObject) -> None:
    relation = relation_of(shape) or Causal(shape.n_k)  # which hides nothing
    query, key = data.draw(cuts("query", shape.n_q)), data.draw(cuts("key", shape.n_k))
    parts = data.draw(ranked(query, key))
    expected = tuple(slow_sums(shape, query, key, part) for part in parts)
    assert sums_in(relation, query, key, parts) == expected
    assert sums_in(Slow(relation), query, key, parts) == expected


@given(st.integers(1, 10**24), st.integers(1, 10**24), st.integers(1, 40), st.floats(-1, 1))
def test_sums_of_huge_axes_are_those_of_plain_cuts(
    n_q: int, n_k: int, tiles: int, at: float
) -> None:
    """A causal mask has sums of its own for plain cuts, in Python's numbers."""
    query, key = Dim("query", n_q, -(-n_q // tiles)), Dim("key", n_k, -(-n_k // (tiles + 1)))
    mask = Causal(int(at * n_k))
    whole: Part = ((0, n_q), (0, n_k))
    assert sums_in(mask, query, key, (whole,)) == (mask.sums(query, key),)


@given(st.integers(1, 10**9), st.integers(1, 10**9), st.integers(1, 10**5), st.integers(1, 10**5))
def test_numbers_are_as_wide_as_products_need(n_q: int, n_k: int, br: int, bc: int) -> None:
    query, key = Dim("query", n_q, br), Dim("key", n_k, bc)
    if number_type(query, key) is np.int64:
        assert max(n_q, br) * max(n_k, bc) < 2**62


@given(strategies.shapes(rows=30, heads=False, causal=True), st.integers(1, 9), st.integers(1, 9))
def test_a_causal_mask_is_a_staircase(shape: AttentionShape, br: int, bc: int) -> None:
    mask = relation_of(shape)
    assert isinstance(mask, Causal)
    stairs = staircase(mask, shape.n_q, shape.n_k)
    query, key = Dim("query", shape.n_q, br), Dim("key", shape.n_k, bc)
    assert stairs.sums(query, key) == mask.sums(query, key)
    for i in range(query.blocks):
        assert stairs.key_range(query, key, i) == mask.key_range(query, key, i)


def test_sections_of_many_tiles_are_as_exact_as_few() -> None:
    """10^7 keys in pages of 250 and tiles of 100: the same sums as of their tiles one by one."""
    n, page, tile = 10**7, 250, 100
    nest = Dim("key", n, tile).within(Dim("key", n, page))
    whole = pair_sums(Causal(0), Dim("query", n, 1), nest)
    # Row r meets the tiles that begin at r or before: of sizes 100, 100 and 50 in each page.
    pages = n // page
    begins = [page * j + first for j in range(pages) for first in (0, 100, 200)]
    sizes = [100, 100, 50] * pages
    assert whole.pairs == sum(n - begin for begin in begins)
    assert whole.key_rows == sum(
        (n - begin) * size for begin, size in zip(begins, sizes, strict=True)
    )
