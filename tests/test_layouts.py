"""Layouts of a ring: which rows a rank holds, what that does to the work, to words and to steps."""

import json
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace
from itertools import chain

import naive
import naive_ranks
import numpy as np
import pytest
import strategies
from click.testing import CliRunner
from hypothesis import assume, given
from hypothesis import strategies as st
from inputs import operands
from test_count import assert_same
from test_nested import assert_walked
from test_ranks import assert_as_one_device

from iosim.cli import main
from iosim.errors import IosimError
from iosim.interconnect import queries_stay
from iosim.reading.count import count
from iosim.reading.execute import execute
from iosim.reading.formula import formula
from iosim.reading.steps import critical_path, step_flops
from iosim.schedule import Causal, Dim, Schedule, family
from iosim.schedule.layouts import CausalPlaces, Layout, laid_out, layout_of
from iosim.schedule.masks import Window
from iosim.schedule.ranks import shards
from iosim.schedule.relation import PairSums
from iosim.shape import AttentionShape

EVEN = ("zigzag", "striped")


def ring(shape: AttentionShape, p: int, layout: str, br: int = 1, bc: int = 1) -> Schedule:
    return family("ring").build(shape, br=br, bc=bc, ranks=p, layout=layout)


@st.composite
def laid(draw, rows=24):
    """A layout and an axis, cut into a shard for each rank."""
    kind = draw(st.sampled_from(strategies.LAYOUTS))
    n, p = draw(st.integers(1, rows)), draw(st.integers(1, 6))
    try:
        cut = shards(Dim("key", n), p, "keys", "shard")
        return layout_of(kind, Dim("key", n), p, "keys"), cut
    except IosimError:
        assume(False)


@st.composite
def rings(draw, **of_shape):
    """A causal ring in an even layout; of stripes one whose ranks divide the rows."""
    shape = draw(strategies.shapes(causal=True, **of_shape))
    p, layout = draw(st.integers(1, 6)), draw(st.sampled_from(EVEN))
    if layout == "striped":
        n_q, n_k = (max(n // p, 1) * p for n in (shape.n_q, shape.n_k))
        shape = replace(shape, n_q=n_q, n_k=n_k)
    tiles = {name: draw(st.integers(1, shape.n_q + 1)) for name in ("br", "bc")}
    case = strategies.Case("ring", shape, {**tiles, "ranks": p, "layout": layout})
    try:
        assert case.schedule
    except IosimError:
        assume(False)
    return case


# Who holds which rows


@given(laid())
def test_a_rank_holds_what_it_is_dealt(case: tuple[Layout, Dim]) -> None:
    layout, cut = case
    dealt = naive_ranks.dealt(layout.n, layout.ranks, layout.kind)
    assert [[row for rows in shard for row in rows] for shard in layout.shards] == dealt
    assert [len(shard) for shard in dealt] == [cut.rows(i) for i in range(cut.blocks)]
    assert layout.rows(0, layout.n).tolist() == [*chain(*dealt)]
    assert sorted([*chain(*dealt)]) == list(range(layout.n))


@given(laid(), st.data())
def test_the_rows_at_some_places(case: tuple[Layout, Dim], data: st.DataObject) -> None:
    layout, _ = case
    first = data.draw(st.integers(0, layout.n - 1))
    stop = data.draw(st.integers(first + 1, layout.n))
    assert layout.rows(first, stop).tolist() == layout.rows(0, layout.n).tolist()[first:stop]


@given(st.integers(1, 8), st.integers(1, 5))
def test_of_even_chunks_rank_r_has_the_r_th_from_either_end(p: int, rows: int) -> None:
    """Chunks r and 2p - 1 - r: Llama 3, arXiv 2407.21783, section 3.3.2."""
    chunks = [range(c * rows, (c + 1) * rows) for c in range(2 * p)]
    shards = Layout("zigzag", 2 * p * rows, p).shards
    assert [sorted(r for rows in shard for r in rows) for shard in shards] == [
        [*chunks[r], *chunks[2 * p - 1 - r]] for r in range(p)
    ]


# A causal mask between places


@given(laid(), laid(), st.integers(-30, 30), st.data())
def test_a_causal_mask_between_two_ranks_is_the_dense_one(
    queries: tuple[Layout, Dim], keys: tuple[Layout, Dim], offset: int, data: st.DataObject
) -> None:
    """Of any places of one rank and any of one rank, in any tiles, in every method that counts."""
    (rows, mine), (columns, theirs) = queries, keys
    assume("striped" not in (rows.kind, columns.kind) or rows.kind == columns.kind)
    assume(rows.kind != "striped" or rows.ranks == columns.ranks)
    mask = CausalPlaces(offset, rows, columns)
    seen = columns.rows(0, columns.n)[None, :] <= rows.rows(0, rows.n)[:, None] + offset
    r0, r1 = some_rows(data, mine)
    c0, c1 = some_rows(data, theirs)
    part, dense = mask.within((r0, r1), (c0, c1)), seen[r0:r1, c0:c1]
    br, bc = data.draw(st.integers(1, r1 - r0 + 1)), data.draw(st.integers(1, c1 - c0 + 1))
    query, key = Dim("query", r1 - r0, br), Dim("key", c1 - c0, bc)
    met = np.array(naive.met_blocks(dense, br, bc))
    for i in range(query.blocks):
        assert list(part.key_range(query, key, i)) == np.flatnonzero(met[i]).tolist()
    for j in range(key.blocks):
        assert list(part.query_range(query, key, j)) == np.flatnonzero(met[:, j]).tolist()
    sums = part.sums(query, key)
    assert [sums.pairs, sums.query_rows, sums.key_rows, sums.products] == list(
        naive.sums_of(dense, br, bc)
    )
    visible = mask.visible(slice(r0, r1), slice(c0, c1))
    assert (dense == (True if visible is None else visible)).all()


def some_rows(data: st.DataObject, cut: Dim) -> tuple[int, int]:
    """Some rows of one block."""
    first, stop = cut.range(data.draw(st.integers(0, cut.blocks - 1)))
    start = data.draw(st.integers(first, stop - 1))
    return start, data.draw(st.integers(start + 1, stop))


@given(laid(), st.integers(1, 40), st.integers(-30, 30), st.integers(1, 9), st.integers(1, 9))
def test_a_causal_mask_over_all_places_is_the_dense_one(
    case: tuple[Layout, Dim], n_k: int, offset: int, br: int, bc: int
) -> None:
    """In tiles that need not stop where shards do."""
    rows, _ = case
    n_k *= rows.ranks if rows.kind == "striped" else 1
    columns = layout_of(rows.kind, Dim("key", n_k), rows.ranks, "keys")
    assume(-(-n_k // columns.block) == rows.ranks)
    mask = CausalPlaces(offset, rows, columns)
    seen = columns.rows(0, n_k)[None, :] <= rows.rows(0, rows.n)[:, None] + offset
    query, key = Dim("query", rows.n, br), Dim("key", n_k, bc)
    met = np.array(naive.met_blocks(seen, br, bc))
    for i in range(query.blocks):
        assert list(mask.key_range(query, key, i)) == np.flatnonzero(met[i]).tolist()
    for j in range(key.blocks):
        assert list(mask.query_range(query, key, j)) == np.flatnonzero(met[:, j]).tolist()
    sums = mask.sums(query, key)
    assert [sums.pairs, sums.query_rows, sums.key_rows, sums.products] == list(
        naive.sums_of(seen, br, bc)
    )
    blocks = mask.samples(query, key)
    assert [list(each) for each in blocks] == [
        list(range(query.blocks)),
        list(range(key.blocks)),
    ]


@given(laid(), st.integers(1, 24), st.integers(-30, 30), st.data())
def test_sums_in_parts_are_those_of_the_dense_mask(
    case: tuple[Layout, Dim], n_k: int, offset: int, data: st.DataObject
) -> None:
    """Of the places of a rank and of several shards in a row, in tiles that end where shards do."""
    rows, mine = case
    n_k *= rows.ranks if rows.kind == "striped" else 1
    columns = layout_of(rows.kind, Dim("key", n_k), rows.ranks, "keys")
    assume(-(-n_k // columns.block) == rows.ranks)
    theirs = shards(Dim("key", n_k), rows.ranks, "keys", "shard")
    mask = CausalPlaces(offset, rows, columns)
    seen = columns.rows(0, n_k)[None, :] <= rows.rows(0, rows.n)[:, None] + offset
    br, bc = data.draw(st.integers(1, mine.block + 1)), data.draw(st.integers(1, theirs.block + 1))
    query = Dim("query", rows.n, br).within(replace(mine, name="query"))
    key = Dim("key", n_k, bc).within(theirs)
    parts, expected = [], []
    for rank in range(rows.ranks):
        low = data.draw(st.integers(0, rows.ranks - 1))
        high = data.draw(st.integers(low, rows.ranks - 1))
        parts.append((mine.range(rank), (theirs.range(low)[0], theirs.range(high)[1])))
        r0, r1 = mine.range(rank)
        each = [
            naive.sums_of(seen[r0:r1, c0:c1], br, bc)
            for c0, c1 in (theirs.range(shard) for shard in range(low, high + 1))
        ]
        expected.append(PairSums(*(sum(four) for four in zip(*each, strict=True))))
    assert mask.sums_in(query, key, parts) == expected


# All readings


@given(rings(rows=14), st.integers(0, 2**32 - 1))
def test_count_formula_and_execute_are_a_whole_run(case: strategies.Case, seed: int) -> None:
    schedule = case.schedule
    counted, run = count(schedule), naive.Run(schedule)
    assert_same(counted, run)
    assert execute(schedule, *operands(case.shape, seed)).traffic == counted
    found = formula(schedule)
    assert found.value("read") == counted.read_words
    assert found.value("write") == counted.write_words
    assert found.value("interconnect") == counted.interconnect_words


@given(rings(rows=30, width=1, heads=False))
def test_count_is_a_whole_run_of_more_blocks(case: strategies.Case) -> None:
    assert_same(count(case.schedule), naive.Run(case.schedule))


@given(rings(rows=14, dtypes=("float64",), dropout=(0.0, 0.5)), st.integers(0, 2**32 - 1))
def test_devices_together_compute_what_one_does(case: strategies.Case, seed: int) -> None:
    assert_as_one_device(case, seed)


@given(rings(rows=20, width=2, heads=False))
def test_sampled_blocks_show_the_peak_and_the_properties(case: strategies.Case) -> None:
    assert_walked(case.schedule)


@given(strategies.cases(names=("ring", "ulysses", "tree_decoding"), rows=12))
def test_steps_are_those_of_a_whole_run(case: strategies.Case) -> None:
    schedule = case.schedule
    run, steps = naive.Run(schedule), step_flops(schedule)
    assert {
        (rank, step): flops
        for step, all_ranks in enumerate(steps)
        for rank, flops in enumerate(all_ranks)
        if flops
    } == {at: flops for at, flops in run.steps.items() if flops}
    assert critical_path(schedule) == sum(map(max, steps))
    worst = max(share.flops for share in count(schedule).ranks)
    assert critical_path(schedule) >= worst


def test_one_device_has_no_steps() -> None:
    assert step_flops(family("flash2").build(AttentionShape(8, 8, 4), br=2, bc=2)) == ()


# Closed forms by hand


@given(strategies.shapes(rows=20, masked=False), st.integers(1, 6), st.sampled_from(EVEN))
def test_without_a_mask_a_layout_changes_no_count(
    shape: AttentionShape, p: int, layout: str
) -> None:
    shape = replace(shape, n_q=shape.n_q * p, n_k=shape.n_k * p, causal=False)
    plain, other = (ring(shape, p, each, 3, 4) for each in ("contiguous", layout))
    assert count(plain) == count(other)
    assert queries_stay(plain) == queries_stay(other)
    assert str(formula(plain).words()) == str(formula(other).words())


def products(shape: AttentionShape, p: int, layout: str, tile: int) -> list[list[int]]:
    """Products of a row of Q and a row of K, by step and rank: what a wider head adds, over two."""
    one, two = (step_flops(ring(replace(shape, head_dim=d), p, layout, tile, tile)) for d in (1, 2))
    return [
        [(b - a) // 2 for a, b in zip(*step, strict=True)] for step in zip(one, two, strict=True)
    ]


@given(st.integers(1, 12), st.integers(1, 4))
def test_the_critical_path_falls_from_4p_minus_1_to_2p_plus_1(p: int, half: int) -> None:
    """In tiles of half a shard by half a shard.

    Contiguous: rank r has 3 with its own shard and 4 with each of r others, and in each of p - 1
    further steps some rank has 4. Zigzag: 3, and then 2 in each step, on every rank.
    """
    shape = AttentionShape(2 * p * half, 2 * p * half, 1, value_dim=1, causal=True)
    tile = half * half
    contiguous = products(shape, p, "contiguous", half)
    assert [sum(rank) for rank in zip(*contiguous, strict=True)] == [
        (3 + 4 * r) * tile for r in range(p)
    ]
    assert sum(map(max, contiguous)) == (4 * p - 1) * tile
    zigzag = products(shape, p, "zigzag", half)
    assert zigzag == [[3 * tile] * p, *[[2 * tile] * p] * (p - 1)]
    assert sum(map(max, zigzag)) == (2 * p + 1) * tile


@given(st.integers(1, 12), st.integers(1, 4), st.integers(1, 4))
def test_tiles_of_a_shard_even_out_by_working_in_vain(p: int, half: int, tiles: int) -> None:
    """Each of p^2 pairs of shards has a pair of rows in it: a tile as large is wanted by all."""
    rows = half * tiles
    shape = AttentionShape(2 * p * rows, 2 * p * rows, 1, value_dim=1, causal=True)
    for layout in EVEN:
        assert products(shape, p, layout, 2 * rows) == [[4 * rows * rows] * p] * p


@given(st.integers(1, 8), st.integers(1, 8))
def test_what_each_rank_reads_row_by_row(p: int, half: int) -> None:
    """K and V: the rows up to each of its own. Q and the state: again with each shard that is seen.

    Zigzag: early rows see r other shards, late ones all p - 1. Striped: row r sees r of them, any
    later row all.
    """
    n = 2 * p * half
    shape = AttentionShape(n, n, 1, value_dim=1, causal=True)
    zigzag, striped = (count(ring(shape, p, layout)) for layout in EVEN)
    own = (1 + 3) * 2 * half  # Q at first, and A, l, m in the end
    assert [share.read_words for share in zigzag.ranks] == [
        2 * (n * (n + 1) // (2 * p)) + 4 * half * (p - 1 + r) + own for r in range(p)
    ]
    assert [share.read_words for share in striped.ranks] == [
        2 * sum(row + 1 for row in range(r, n, p)) + 4 * ((2 * half - 1) * (p - 1) + r) + own
        for r in range(p)
    ]
    assert [share.flops for share in zigzag.ranks] == [zigzag.flops // p] * p


@pytest.mark.parametrize("layout", EVEN)
def test_ten_million_rows_are_exact_to_the_last_word(layout: str) -> None:
    """On 64 ranks in single rows, ragged in a zigzag; row r sees r + 1 keys."""
    p, d = 64, 16
    n = 10**7 + 3 if layout == "zigzag" else 64 * 156_251
    traffic = count(ring(AttentionShape(n, n, d, causal=True), p, layout))
    assert traffic.tensors["K"].read == n * (n + 1) // 2 * d
    assert traffic.interconnect_words == (p - 1) * n * 2 * d
    shards = Layout(layout, n, p).shards
    wide = count(ring(AttentionShape(n, n, d + 1, value_dim=d, causal=True), p, layout))
    # What one more word in a row of Q and K adds: K for each pair, Q for each shard that is seen.
    for rank in (0, 1, 31, 62, 63):
        pairs = sum((rows[0] + rows[-1] + 2) * len(rows) // 2 for rows in shards[rank])
        seen = sum(
            len(rows) - bisect_left(rows, shard[0][0]) for shard in shards for rows in shards[rank]
        )
        assert wide.ranks[rank].read_words - traffic.ranks[rank].read_words == pairs + seen


# What has to be sent


@given(rings(rows=12))
def test_what_has_to_be_sent_is_what_is_seen_and_lacking(case: strategies.Case) -> None:
    shape, p, layout = case.shape, case.tiles["ranks"], case.tiles["layout"]
    bound = queries_stay(case.schedule)
    assert bound is not None
    seen = np.array(naive.visible_of(shape))
    rows = 0
    for mine, own in zip(
        naive_ranks.dealt(shape.n_q, p, layout),
        naive_ranks.dealt(shape.n_k, p, layout),
        strict=True,
    ):
        rows += len({j for i in mine for j in np.flatnonzero(seen[i])} - set(own))
    width = shape.batch * shape.kv_heads * (shape.head_dim + shape.value_dim)
    assert bound.words == rows * width
    assert count(case.schedule).interconnect_words >= bound.words


@given(st.integers(2, 8), st.integers(1, 50))
def test_even_work_needs_what_a_ring_sends(p: int, half: int) -> None:
    """Of the words sent, a half is needed with contiguous shards, three quarters with a zigzag.

    In stripes all are, but for p - 1 - r keys after the last row of rank r.
    """
    n = 2 * p * half
    shape = AttentionShape(n, n, 1, value_dim=1, causal=True)
    sent = (p - 1) * n * 2
    bounds = [queries_stay(ring(shape, p, layout)) for layout in strategies.LAYOUTS]
    assert [bound and bound.words for bound in bounds] == [
        sent // 2,
        sent * 3 // 4,
        sent - p * (p - 1),
    ]


# Wrong input

SHAPE = AttentionShape(24, 24, 4, causal=True)
WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "an unknown layout": (
        lambda: ring(SHAPE, 4, "zigzg"),
        "unknown layout 'zigzg'; did you mean 'zigzag'\\? known: contiguous, zigzag, striped",
    ),
    "stripes of unequal length": (
        lambda: ring(SHAPE, 5, "striped"),
        "ranks is 5, which does not divide the 24 queries; in a striped layout it must",
    ),
    "stripes of keys of unequal length": (
        lambda: ring(replace(SHAPE, n_k=25), 4, "striped"),
        "ranks is 4, which does not divide the 25 keys; in a striped layout it must",
    ),
    "another mask than a causal one": (
        lambda: ring(replace(SHAPE, mask=Window(3, 0)), 4, "zigzag"),
        "a zigzag layout evens out the work under a causal mask; beside --mask the layout must be",
    ),
    "a zigzag on more ranks than shards": (
        lambda: ring(SHAPE, 7, "zigzag"),
        "ranks is 7, but in shards of 4 the 24 queries are enough for 6 only; give 6 ranks",
    ),
}


@pytest.mark.parametrize("why", WRONG)
def test_a_layout_that_cannot_be_is_refused(why: str) -> None:
    action, complaint = WRONG[why]
    with pytest.raises(IosimError, match=complaint):
        action()


def test_a_contiguous_layout_leaves_every_mask_alone() -> None:
    queries, keys = Layout("contiguous", 24, 4), Layout("contiguous", 24, 4)
    for mask in (None, Causal(3), Window(3, 0).relation(SHAPE)):
        assert laid_out(mask, queries, keys) is mask
    assert ring(replace(SHAPE, mask=Window(3, 0)), 4, "contiguous").mask is not None


# From the command line


def called(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, words)
    return result.exit_code, result.output


def test_simulate_has_a_row_for_each_layout() -> None:
    words = "simulate --schedule ring --seq-len 1k --head-dim 64 --br 64 --bc 64 --ranks 4 --causal"
    code, output = called(*words.split(), "--layout", "contiguous,zigzag,striped")
    assert code == 0
    heading, *rows = output.splitlines()[2:]
    assert "layout" in heading
    assert [row.split()[4] for row in rows] == list(strategies.LAYOUTS)
    code, output = called(*words.split(), "--layout", "contiguous,zigzag", "--format", "json")
    contiguous, zigzag = json.loads(output)["records"]
    assert (contiguous["layout"], zigzag["layout"]) == ("contiguous", "zigzag")
    assert zigzag["rank_balance"] == 1 > contiguous["rank_balance"]
    assert zigzag["critical_path_flops"] == zigzag["rank_flops"] == zigzag["flops"] // 4
    assert contiguous["critical_path_flops"] == contiguous["rank_flops"]
    assert zigzag["interconnect_words"] == contiguous["interconnect_words"]


def test_a_table_says_nothing_of_the_layout_where_nobody_asked() -> None:
    words = "simulate --schedule ring --seq-len 1k --head-dim 64 --br 64 --bc 64 --ranks 4"
    assert "layout" not in called(*words.split())[1]


def test_explain_names_the_rows_and_the_critical_path() -> None:
    words = "explain --schedule ring --seq-len 1k --head-dim 64 --br 64 --bc 64 --ranks 4 --causal"
    code, output = called(*words.split(), "--layout", "zigzag")
    assert code == 0
    assert "layout = zigzag" in output
    assert "rank r holds shard r of Q, K, V and O: rows from the front and as many" in output
    path = critical_path(ring(AttentionShape(1024, 1024, 64, causal=True), 4, "zigzag", 64, 64))
    assert f"the busiest device of each step computes {path:,} FLOPs".replace(",", " ") in output


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--schedule ring --ranks 4 --layout zigzg", "unknown layout 'zigzg'; did you mean"),
        (
            "--schedule flash2 --layout zigzag",
            "--layout zigzag is no setting of flash2; write --schedule ring with it",
        ),
        (
            "--schedule ulysses --ranks 1 --layout striped",
            "--layout striped is no setting of ulysses; write --schedule ring with it",
        ),
        (
            "--schedule ring --ranks 4 --layout zigzag --mask window:8",
            "beside --mask the layout must be contiguous",
        ),
        ("--schedule ring --ranks 3 --layout striped", "3, which does not divide the 1024 queries"),
        ("--schedule ring --ranks 4 --layout zigzag,", "has an empty name in it"),
    ],
)
def test_a_wrong_layout_is_one_sentence(words: str, complaint: str) -> None:
    shape = "simulate --seq-len 1k --head-dim 64 --br 8 --bc 8"
    code, output = called(*f"{shape} {words}".split())
    assert code == 2
    assert complaint in output
