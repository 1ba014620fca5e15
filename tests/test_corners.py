"""The blocks that are looked at for residency, under masks over cuts within cuts, by ranks too."""

from collections.abc import Iterator

import naive
import numpy as np
import pytest
import strategies
from hypothesis import given, settings
from hypothesis import strategies as st
from test_nested import blocks_of

from iosim.errors import ScheduleError
from iosim.reading.check import check
from iosim.reading.corners import corner_blocks
from iosim.reading.count import count
from iosim.reading.walk import Blocks, all_blocks, walk
from iosim.schedule import Compute, Dim, For, Schedule, families, family, free, new, problem, store
from iosim.schedule.masks import BlockMask, Butterfly, Documents, LocalGlobal, Random, Window
from iosim.schedule.ranks import Ranks, shards
from iosim.schedule.tree import Node, Tensor, nodes
from iosim.shape import AttentionShape


@st.composite
def sparse(draw, rows=60, hidden=False):
    """A shape whose mask shows one to three blocks of a matrix, or hides them, often at an end."""
    n_q, n_k = draw(st.integers(1, rows)), draw(st.integers(1, rows))
    block = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    matrix = np.zeros((-(-n_q // block[0]), -(-n_k // block[1])), bool)
    for _ in range(draw(st.integers(1, 3))):
        at = tuple(draw(st.one_of(st.integers(0, n - 1), st.just(n - 1))) for n in matrix.shape)
        matrix[at] = True
    mask = BlockMask.of(~matrix if hidden else matrix, *block, "drawn")
    return AttentionShape(n_q, n_k, 1, causal=not hidden and draw(st.booleans()), mask=mask)


@st.composite
def on_ranks(draw):
    """A schedule of up to 16 devices under a sparse mask, in small tiles."""
    shape = draw(sparse())
    name = draw(st.sampled_from(["ring", "tree_decoding"]))
    counts = strategies.rank_counts(families()[name], shape, most=16)
    sizes = {"br": draw(st.integers(1, 6)), "bc": draw(st.integers(1, 6))}
    return strategies.Case(name, shape, {**sizes, "ranks": draw(st.sampled_from(counts))})


@st.composite
def in_sections(draw):
    """Tiles in pages in splits, and in shards: up to some twenty of each."""
    shape = draw(sparse())
    names = {"br": 4, "bc": 4, "shard": 9, "split": 12, "page": 7}
    sizes = {name: draw(st.integers(1, most)) for name, most in names.items()}
    return strategies.Nested(shape, sizes)


@settings(max_examples=150, deadline=None)
@given(st.one_of(in_sections(), on_ranks()))
def test_the_corners_show_the_peak_of_a_whole_run(case) -> None:
    run = naive.Run(case.schedule)
    counted = count(case.schedule)
    assert (counted.peak_words, counted.peak_bytes) == (run.peak_words, run.peak_bytes)


Kind = tuple[int, ...]


def kinds_at(schedule: Schedule, choose: Blocks) -> dict[int, set[Kind]]:
    """For each step, the rows of the query blocks and key blocks it runs in, of all cuts around."""
    sizes: dict[Dim, list[int]] = {}  # of each row the sizes of the blocks that it is in
    for node, _ in nodes(schedule.body):
        if isinstance(node, For) and node.dim.name in ("query", "key"):
            for cut in node.dim.cuts:
                sizes[cut] = [b - a for a, b in blocks_of(cut) for _ in range(a, b)]
    found: dict[int, set[Kind]] = {}
    for step, position in walk(schedule, choose):
        at = (position[name] for name in ("query", "key") if name in position)
        kind = tuple(sizes[cut][rows[0]] for dim, _, rows in at for cut in dim.cuts)
        found.setdefault(id(step), set()).add(kind)
    return found


@settings(max_examples=150, deadline=None)
@given(st.one_of(in_sections(), on_ranks()))
def test_no_pair_of_blocks_is_larger_than_all_that_are_shown(case) -> None:
    """Larger: as many rows in each cut, of queries and of keys, and more in one."""
    assert_shown(case.schedule)


def assert_shown(schedule: Schedule) -> None:
    shown = kinds_at(schedule, corner_blocks(schedule))
    for step, kinds in kinds_at(schedule, all_blocks).items():
        for kind in kinds:
            assert any(
                all(a >= b for a, b in zip(other, kind, strict=True)) for other in shown[step]
            ), kind


@settings(max_examples=100, deadline=None)
@given(strategies.cases(names=("ring",), rows=60, width=1, heads=False, causal=True))
def test_so_it_is_in_every_layout_of_a_ring(case: strategies.Case) -> None:
    assert_shown(case.schedule)


def seen_pairs(n: int, *pairs: tuple[int, int]) -> AttentionShape:
    """A shape in which nothing is seen but a few keys, by a query each."""
    matrix = np.zeros((n, n), bool)
    for query, key in pairs:
        matrix[query, key] = True
    return AttentionShape(n, n, 4, mask=BlockMask.of(matrix, 1))


@pytest.mark.parametrize(
    ("query", "key", "rows", "columns"),
    [(40, 40, 3, 3), (47, 40, 2, 3), (40, 47, 3, 2), (47, 47, 2, 2)],
)
def test_the_largest_pair_may_be_in_the_middle_or_ragged(
    query: int, key: int, rows: int, columns: int
) -> None:
    """Tiles of 3 x 3 in shards of 8: whole ones of 3 rows, ragged ones of 2."""
    schedule = family("ring").build(seen_pairs(96, (query, key)), br=3, bc=3, ranks=12)
    inside = rows * (2 * 4 + 2) + columns * 2 * 4 + rows * columns  # Q, A, l, m; K, V; S
    before = 3 * (2 * 4 + 2)  # Q and what is new of A, l, m
    finish = 3 * (2 * 4 + 2)  # A, O, l, m
    assert count(schedule).peak_words == max(inside, before, finish)
    assert naive.Run(schedule).peak_words == count(schedule).peak_words


def test_a_rank_with_its_own_keys_is_looked_at_by_itself() -> None:
    """Shard 5 is seen by rank 5, and before that shard 7 by rank 3: loops of their own."""
    assert_shown(family("ring").build(seen_pairs(96, (24, 56), (40, 40)), br=3, bc=3, ranks=12))
    assert_shown(family("ring").build(seen_pairs(96, (24, 24), (40, 56)), br=3, bc=3, ranks=12))


def tiles_met(shape: AttentionShape, br: int, bc: int, ranks: int) -> Iterator[int]:
    """For each tile of queries and each shard of keys, how many tiles of it are met."""
    seen = np.array(naive.visible_of(shape))
    for r0, r1 in naive.cut(shape.n_q, br):
        for c0, c1 in naive.cut(shape.n_k, -(-shape.n_k // ranks)):
            yield sum(seen[r0:r1, c0 + a : c0 + b].any() for a, b in naive.cut(c1 - c0, bc))


def broken(shape: AttentionShape, br: int, bc: int, ranks: int, how: str) -> Schedule:
    """A tree that goes wrong where a tile of queries meets no tile of a rank's keys, or several."""
    p = problem(shape, br, bc)
    rank = shards(p.key, ranks, "keys", "rank")

    def keys(*body: Node) -> For:
        return For(p.key.within(rank), body, relation=p.mask)

    X = Tensor("X", p.O.axes, "float32", "fast")
    clear = Compute("clear", (p.O,), ())
    steps: dict[str, tuple[Node, ...]] = {
        "none": (*new(p.O), keys(clear), *store("write what is not computed", p.O), *free(p.O)),
        "several": (keys(*new(X)), keys(*free(X))),
    }
    body = For(rank, (For(p.query, steps[how]),))
    return Schedule("broken", shape, (body,), p.mask, ranks=Ranks(rank, {}))


@pytest.mark.parametrize("how", ["none", "several"])
@settings(max_examples=200, deadline=None)
@given(st.one_of(sparse(), sparse(hidden=True)), st.data())
def test_a_tile_that_meets_none_or_several_is_looked_at(
    how: str, shape: AttentionShape, data: st.DataObject
) -> None:
    counts = strategies.rank_counts(families()["tree_decoding"], shape, most=16)
    sizes = (
        data.draw(st.integers(1, 6)),
        data.draw(st.integers(1, 6)),
        data.draw(st.sampled_from(counts)),
    )
    numbers = set(tiles_met(shape, *sizes))
    schedule = broken(shape, *sizes, how)
    if 0 in numbers if how == "none" else max(numbers) > 1:
        with pytest.raises(ScheduleError):
            check(schedule)
    else:
        check(schedule)


def test_the_only_tile_that_meets_several_may_be_in_the_middle() -> None:
    """The first one of all shows a pair of whole tiles, and all others meet one or none."""
    schedule = broken(seen_pairs(96, (0, 0), (40, 41), (40, 46)), 3, 3, 12, "several")
    with pytest.raises(ScheduleError, match="resident already"):
        check(schedule)
    check(broken(seen_pairs(96, (0, 0), (40, 41), (40, 42)), 3, 3, 12, "several"))


N = 10**7
MASKS = (
    {"causal": True},
    {"causal": True, "mask": Window(4096, 0)},
    {"mask": LocalGlobal(4096, 4096, 64)},
    {"mask": Documents((N // 3, 1000, N - N // 3 - 1000))},
    {"mask": Butterfly(65536)},
    {"causal": True, "mask": Butterfly(65536)},
    {"mask": Random(0.01, 65536)},
)
CASES = (
    ("ring", {"ranks": 33}),
    ("tree_decoding", {"ranks": 64}),
    ("flash2_packed", {"page_size": 250}),
    ("split_kv", {"splits": 101, "page_size": 250}),
)


@pytest.mark.parametrize(("name", "settings"), CASES)
@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_ten_million_rows_need_no_more_blocks_than_a_few(name: str, settings, mask) -> None:
    """In tiles that do not divide their sections, of which there are up to 40 000."""
    shape = AttentionShape(N, N, 8, **mask)
    schedule = family(name).build(shape, br=128, bc=100, **settings)
    assert sum(1 for _ in walk(schedule, corner_blocks(schedule))) < 20_000
    top = family(name).build(AttentionShape(N, N, 8), br=128, bc=100, **settings)
    assert count(schedule).peak_words == count(top).peak_words
