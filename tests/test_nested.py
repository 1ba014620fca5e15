"""Cuts within cuts of one axis: every reading against whole runs, masks at each level."""

from collections.abc import Callable
from dataclasses import replace

import naive
import numpy as np
import pytest
import strategies
from hypothesis import given, settings
from hypothesis import strategies as st
from test_count import assert_same
from test_execute import operands, visible

from iosim import reference
from iosim.errors import IosimError
from iosim.reading.check import check
from iosim.reading.count import count
from iosim.reading.execute import execute
from iosim.reading.formula import formula
from iosim.reading.residency import FastMemory
from iosim.reading.walk import walk
from iosim.schedule import Causal, Dim, For, Move, Schedule, free, load, problem
from iosim.schedule.nested import blocks_met, flattened, pair_sums
from iosim.schedule.relation import relation_of
from iosim.shape import AttentionShape

sizes = st.integers(1, 12)


@st.composite
def cuts(draw, name, n):
    """An axis cut one to three times over, each within the one before."""
    dim = Dim(name, n, draw(sizes))
    for _ in range(draw(st.integers(0, 2))):
        dim = Dim(name, n, draw(sizes)).within(dim)
    return dim


def blocks_of(dim: Dim) -> list[tuple[int, int]]:
    """Every block as (first row, row after its last), by cutting list by list."""
    blocks = [(0, dim.n)]
    for each in dim.cuts:
        blocks = [
            (first + a, first + b)
            for first, stop in blocks
            for a, b in naive.cut(stop - first, each.block)
        ]
    return blocks


@given(st.integers(1, 40).flatmap(lambda n: cuts("key", n)))
def test_a_cut_within_cuts_has_as_many_blocks_as_one_counts(dim: Dim) -> None:
    assert dim.blocks == len(blocks_of(dim))
    assert blocks_of(flattened(dim)) == blocks_of(dim)


@given(strategies.shapes(rows=25, heads=False), st.data())
def test_sums_over_nested_cuts_are_those_of_the_dense_matrix(
    shape: AttentionShape, data: st.DataObject
) -> None:
    relation = relation_of(shape) or Causal(shape.n_k)  # which hides nothing
    seen = np.array(naive.visible_of(shape))
    query, key = data.draw(cuts("query", shape.n_q)), data.draw(cuts("key", shape.n_k))
    met = [
        (r1 - r0, c1 - c0)
        for r0, r1 in blocks_of(query)
        for c0, c1 in blocks_of(key)
        if seen[r0:r1, c0:c1].any()
    ]
    found = pair_sums(relation, query, key)
    assert found.pairs == len(met)
    assert found.query_rows == sum(rows for rows, _ in met)
    assert found.key_rows == sum(columns for _, columns in met)
    assert found.products == sum(rows * columns for rows, columns in met)


@given(strategies.shapes(rows=20, heads=False), st.data(), sizes)
def test_blocks_met_within_a_section(
    shape: AttentionShape, data: st.DataObject, block: int
) -> None:
    """On either axis, whatever rows the section and the other loop stand at."""
    relation = relation_of(shape) or Causal(shape.n_k)
    seen = np.array(naive.visible_of(shape))
    n_q, n_k = shape.n_q, shape.n_k
    r0, c0 = data.draw(st.integers(0, n_q - 1)), data.draw(st.integers(0, n_k - 1))
    r1, c1 = data.draw(st.integers(r0 + 1, n_q)), data.draw(st.integers(c0 + 1, n_k))
    part = relation.within((r0, r1), (c0, c1))
    inside = part.visible(slice(0, r1 - r0), slice(0, c1 - c0))
    assert (seen[r0:r1, c0:c1] == (True if inside is None else inside)).all()
    keys = Dim("key", n_k, block).within(Dim("key", n_k, n_k))
    assert list(blocks_met(relation, keys, (c0, c1), (r0, r1))) == [
        j
        for j, (a, b) in enumerate(naive.cut(c1 - c0, block))
        if seen[r0:r1, c0 + a : c0 + b].any()
    ]
    queries = Dim("query", n_q, block).within(Dim("query", n_q, n_q))
    assert list(blocks_met(relation, queries, (r0, r1), (c0, c1))) == [
        i
        for i, (a, b) in enumerate(naive.cut(r1 - r0, block))
        if seen[r0 + a : r0 + b, c0:c1].any()
    ]


@given(strategies.nested(rows=14))
def test_count_formula_and_execute_are_a_whole_run(case: strategies.Nested) -> None:
    schedule = case.schedule
    counted = count(schedule)
    assert_same(counted, naive.Run(schedule))
    assert execute(schedule, *operands(case.shape, 0)).traffic == counted
    found = formula(schedule)
    assert found.value("read") == counted.read_words
    assert found.value("write") == counted.write_words
    for text, words in counted.lines.items():
        assert found.words(line=text).value(found.values) == words.total


@given(strategies.nested(rows=40, width=1, heads=False))
def test_count_is_a_whole_run_of_more_blocks(case: strategies.Nested) -> None:
    assert_same(count(case.schedule), naive.Run(case.schedule))


@given(strategies.nested(rows=14, dtypes=("float64",)), st.integers(0, 2**32 - 1))
def test_what_executes_is_attention(case: strategies.Nested, seed: int) -> None:
    """In float64 beside a reference in float64: a few hundred roundings of 1.1e-16 a word."""
    inputs = operands(case.shape, seed)
    expected, _ = reference.attention(*inputs, visible(case.shape))
    done = execute(case.schedule, *inputs)
    assert np.allclose(done.O, expected, rtol=0, atol=1e-12 * max(1, abs(inputs[2]).max()))


def assert_walked(schedule: Schedule) -> None:
    """What is checked of a few blocks is what a whole run shows of a fused schedule."""
    memory = FastMemory()
    for node, position in walk(schedule):
        if isinstance(node, Move):
            memory.move(node, position)
    found = check(schedule)
    assert (found.peak_words, found.peak_bytes) == (memory.peak_words, memory.peak_bytes)
    assert not found.rematerialises
    if naive.visible_pairs(schedule.shape):
        assert found.fused


@given(strategies.nested(rows=16, width=2, heads=False))
def test_sampled_blocks_show_the_peak_and_the_properties(case: strategies.Nested) -> None:
    assert_walked(case.schedule)


SHAPE = AttentionShape(8, 12, 4, causal=True)
P = problem(SHAPE, 2, 3)
SPLITS = replace(P.key.cut(6), index="split")
COPY = (*load("load K", P.K), *free(P.K))
REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "a cut outside its parent": (
        lambda: Schedule("x", SHAPE, (For(P.key.within(SPLITS), COPY),)),
        "the loop over 'key' cuts blocks of 6 rows further, but the next loop around it",
    ),
    "a cut within another cut than its parent": (
        lambda: Schedule("x", SHAPE, (For(P.key.cut(4), (For(P.key.within(SPLITS), COPY),)),)),
        "cuts blocks of 6 rows further, but the next loop around it",
    ),
    "a cut without the relation of its parent": (
        lambda: Schedule(
            "x",
            SHAPE,
            (
                For(
                    P.query,
                    (For(SPLITS, (For(P.key.within(SPLITS), COPY),), relation=Causal(4)),),
                ),
            ),
        ),
        "cuts blocks that a relation has chosen, but has no relation itself",
    ),
    "another relation than its parent": (
        lambda: Schedule(
            "x",
            SHAPE,
            (
                For(
                    P.query,
                    (
                        For(
                            SPLITS,
                            (For(P.key.within(SPLITS), COPY, relation=Causal(3)),),
                            relation=Causal(4),
                        ),
                    ),
                ),
            ),
        ),
        "one of which is in a relation already",
    ),
    "numbers that are looped over": (
        lambda: Schedule("x", SHAPE, (For(SPLITS.numbers(), (For(SPLITS, COPY),)),)),
        "numbers its blocks along 'split', which is looped over outside",
    ),
    "a loop over numbers inside": (
        lambda: Schedule("x", SHAPE, (For(SPLITS, (For(SPLITS.numbers(), COPY),)),)),
        "a loop over 'split' lies inside another loop over 'split'",
    ),
    "numbers of another length": (
        lambda: Schedule("x", SHAPE, (For(Dim("split", 3), ()), For(SPLITS, COPY))),
        "axis 'split' has 3 rows in one place and 2 in another",
    ),
    "a parent of another axis": (
        lambda: P.key.within(P.query),
        "axis 'key' of 12 rows has the parent 'query' of 8 rows",
    ),
    "numbers of blocks that a parent cuts": (
        lambda: replace(P.key.cut(5), index="page", parent=SPLITS),
        "numbers blocks of 5 rows along 'page', but a block of its parent does not hold whole ones",
    ),
    "numbers that nobody asked for": (
        lambda: P.key.numbers(),
        "the blocks of axis 'key' have no numbers",
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_nest_that_makes_no_sense_is_refused(why: str) -> None:
    build, complaint = REFUSED[why]
    with pytest.raises(IosimError, match=complaint):
        build()


@settings(deadline=None)
@given(st.integers(1, 10**7), st.integers(1, 10**4), st.integers(1, 300), st.booleans())
def test_counting_does_not_walk_the_blocks(n: int, split: int, bc: int, causal: bool) -> None:
    """A nest over 1e7 keys is 1e7 keys read once for each query tile; no run would end."""
    shape = AttentionShape(1, n, 1, causal=causal)
    sizes = {"br": 1, "bc": bc, "shard": 1, "split": split, "page": split}
    tree = strategies.Nested(shape, sizes).schedule
    counted = count(tree)
    assert counted.tensors["K"].read == n
    assert counted.tensors["L"].write == -(-n // split)
