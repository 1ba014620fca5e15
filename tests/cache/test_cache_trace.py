"""The trace of a schedule against a walk of its tree, and what a cache makes of it."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import strategies
from hypothesis import given, settings
from hypothesis import strategies as st

from iosim.cache import CacheConfig, simulate, simulate_curves
from iosim.errors import IosimError
from iosim.reading import trace as trace_module
from iosim.reading.check import check
from iosim.reading.count import count
from iosim.reading.trace import lru_of_schedule, trace
from iosim.reading.trace_program import compile_trace
from iosim.reading.walk import kept_axes, tile_ranges, tile_words, walk
from iosim.schedule.tree import Compute, Dim, For, Move, Schedule, Tensor, free, load, new, store
from iosim.shape import AttentionShape
from iosim.units import ITEM_BYTES


@st.composite
def schedules(draw):
    """Built-in schedules and cuts within cuts, some with dropout or loops in other orders."""
    dropped = strategies.cases(strategies.ONE_DEVICE, rows=7, dropout=(0.0, 0.1))
    built = draw(dropped | strategies.nested(rows=6, width=2)).schedule
    order = draw(st.sampled_from(["forward", "reverse", "snake"]))

    def reordered(body):
        return tuple(
            replace(node, body=reordered(node.body), order=order)
            if isinstance(node, For) and not any(isinstance(inner, For) for inner in node.body)
            else replace(node, body=reordered(node.body))
            if isinstance(node, For)
            else node
            for node in body
        )

    return replace(built, body=reordered(built.body))


def accesses(stream):
    found = []
    for block in stream:
        found += zip(block.lines.tolist(), block.writes.tolist(), strict=True)
    return found


def walked(schedule, line_bytes):
    """(line, write) of every access, from the walk of the tree and the definition of the layout."""
    moves = [node for node, _ in walk(schedule) if isinstance(node, Move)]
    slow = {move.tensor.name for move in moves if move.kind in ("load", "store", "add")}
    kept = kept_axes(schedule)
    steps = [
        (tensor, tile_ranges(tensor, position), write)
        for node, position in walk(schedule)
        if isinstance(node, Compute)
        for tensors, write in ((node.inputs, 0), (node.outputs, 1))
        for tensor in tensors
    ]
    placed = compile_trace(schedule, line_bytes).tensors
    room = {}
    for tensor, ranges, _ in steps:
        rows = [
            dim.n if tensor.name in slow or dim.name in kept else stop - first
            for dim, (first, stop) in zip(tensor.axes, ranges, strict=True)
        ]
        room[tensor.name] = np.maximum(room.get(tensor.name, rows), rows).tolist()
    found = []
    for tensor, ranges, write in steps:
        absolute = [tensor.name in slow or dim.name in kept for dim in tensor.axes]
        item = ITEM_BYTES[tensor.dtype if tensor.name in slow else tensor.held]
        item = 1 if line_bytes is None else item
        spans = [
            range(first, stop) if own else range(stop - first)
            for own, (first, stop) in zip(absolute, ranges, strict=True)
        ]
        grid = np.meshgrid(*spans, indexing="ij")
        words = np.ravel_multi_index(grid, room[tensor.name]).ravel() if spans else np.zeros(1, int)
        start = 0
        while start < words.size:  # a contiguous run touches each of its lines once
            stop = start + 1
            # What goes on behind the tile's own last column is the next row of a full-width tile.
            while stop < words.size and words[stop] == words[stop - 1] + 1:
                stop += 1
            low = placed[tensor.name][0] + int(words[start]) * item
            high = placed[tensor.name][0] + (int(words[stop - 1]) + 1) * item - 1
            unit = line_bytes or 1
            found += [(line, write) for line in range(low // unit, high // unit + 1)]
            start = stop
    return found


@settings(max_examples=60)
@given(
    schedule=schedules(), line_bytes=st.sampled_from([None, 1, 2, 6, 32]), block=st.integers(1, 50)
)
def test_the_trace_is_what_the_walk_touches(schedule, line_bytes, block):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace_module, "BLOCK", block)
        assert accesses(trace(schedule, line_bytes)) == walked(schedule, line_bytes)


@given(schedule=schedules(), line_bytes=st.sampled_from([None, 4, 64]))
def test_tensors_lie_apart(schedule, line_bytes):
    program = compile_trace(schedule, line_bytes)
    places = sorted(program.tensors.values())
    unit = program.line_units
    for (start, size), (following, _) in pairwise(places):
        assert start % unit == 0
        assert -(-(start + size) // unit) <= following // unit
    lines = [line for line, _ in accesses(trace(schedule, line_bytes))]
    assert min(lines) >= 0
    assert max(lines) < program.lines


def words_made(schedule):
    return sum(
        tile_words(tile_ranges(node.tensor, position))
        for node, position in walk(schedule)
        if isinstance(node, Move) and node.kind == "new"
    )


@settings(max_examples=60)
@given(schedule=schedules())
def test_opt_needs_no_more_than_the_schedule_loads_and_makes(schedule):
    """The schedule is one way to manage a cache of its own peak; OPT is the best one."""
    peak = check(schedule).peak_words
    (best,) = simulate(trace(schedule), ["opt"], [peak])
    assert best.misses <= count(schedule).read_words + words_made(schedule)
    (curve,) = simulate_curves(trace(schedule), ["opt"])
    assert curve.at(peak).misses == best.misses


@settings(max_examples=30)
@given(
    schedule=schedules(),
    capacity=st.integers(1, 60),
    line_bytes=st.sampled_from([None, 8]),
    slice_length=st.integers(1, 5000),
    rules=st.fixed_dictionaries({"write_allocate": st.booleans(), "write_back": st.booleans()}),
)
def test_the_fused_loop_counts_what_the_engine_counts(
    schedule, capacity, line_bytes, slice_length, rules
):
    config = CacheConfig(capacity, **rules)
    (expected,) = simulate(trace(schedule, line_bytes), ["lru"], [capacity], config)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace_module, "SLICE", slice_length)
        assert lru_of_schedule(schedule, config, line_bytes) == expected
        lean = lru_of_schedule(schedule, CacheConfig(capacity), line_bytes, reads_only=True)
    if rules["write_allocate"]:
        assert lean.misses == expected.misses


def test_tiles_kept_over_a_loop_have_addresses_of_their_own():
    """Two passes: the first makes a tile for each block, the second uses them all."""
    rows = Dim("query", 6, 2)
    made = Tensor("A", (rows,), "float32")
    total = Tensor("B", (), "float32", "output")
    schedule = Schedule(
        "passes",
        AttentionShape(6, 1, 1),
        (
            For(rows, (*new(made), Compute("clear", (made,), ()))),
            *new(total),
            Compute("clear", (total,), ()),
            For(rows, (Compute("clear", (made,), (made,)), *free(made))),
            *store("write B", total),
            *free(total),
        ),
    )
    lines = [line for line, _ in accesses(trace(schedule))]
    assert len(set(lines)) == 6 + 1


def test_scratch_is_used_again():
    """S of a fused schedule never leaves fast memory: its tile has one place, not N^2 of them."""
    rows, keys = Dim("query", 8, 2), Dim("key", 8, 4)
    Q, S = Tensor("Q", (rows,), "float16", "input"), Tensor("S", (rows, keys), "float16")
    body = For(
        rows,
        (
            *load("load Q_i", Q),
            For(keys, (*new(S), Compute("clear", (S,), ()), *free(S))),
            *free(Q),
        ),
    )
    schedule = Schedule("scratch", AttentionShape(8, 8, 1), (body,))
    found = accesses(trace(schedule))
    assert len(found) == 8 * 8
    assert len({line for line, _ in found}) == 2 * 4
    assert compile_trace(schedule, 32).tensors == {"Q": (0, 16), "S": (32, 16)}


def test_a_line_size_below_one():
    schedule = Schedule("empty", AttentionShape(1, 1, 1), ())
    with pytest.raises(IosimError, match="line size 0 bytes is not positive"):
        list(trace(schedule, 0))
