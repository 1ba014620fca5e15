"""Traces long enough for tables to grow, rings to wrap and slots to run out."""

from collections import OrderedDict

import naive_cache as naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iosim.cache import Block, CacheConfig, fifo, from_arrays, lru, simulate, simulate_curves
from iosim.cache import index as index_module
from iosim.cache import lru_curve as lru_curve_module
from iosim.cache import opt as opt_module
from iosim.cache import opt_curve as opt_curve_module
from iosim.cache.index import LineIndex


def trace(shape, seed, length, distinct):
    """Line numbers of a kind that schedules or programs make."""
    random = np.random.default_rng(seed)
    steps = np.arange(length)
    if shape == "cycle":
        return steps % distinct
    if shape == "snake":
        return np.abs((steps % (2 * distinct)) - distinct)
    if shape == "skewed":
        return (random.pareto(0.7, length) * 3).astype(np.int64) % distinct
    if shape == "phases":  # long on few lines, so that nothing leaves, and then on others
        lines = steps // 14_000 * (distinct // 2 + 1) + random.integers(0, distinct, length)
        lines[::14_000] = -1 - steps[::14_000]  # touched once: the oldest one of its phase
        return lines
    if shape == "drift":
        return steps // 7 + random.integers(0, distinct, length)
    return random.integers(0, distinct, length)


shapes = st.sampled_from(["cycle", "snake", "skewed", "drift", "phases", "uniform"])


def lru_misses(lines, capacity):
    held, misses = OrderedDict(), 0
    for line in lines.tolist():
        if line in held:
            held.move_to_end(line)
        else:
            misses += 1
            if len(held) == capacity:
                held.popitem(last=False)
            held[line] = None
    return misses


def blocks(lines, cut):
    return (Block(lines[start : start + cut]) for start in range(0, lines.size, cut))


@settings(max_examples=25)
@given(
    shape=shapes,
    seed=st.integers(0, 999),
    distinct=st.integers(1, 300),
    capacity=st.integers(1, 320),
    cut=st.integers(50, 9000),
)
def test_the_ring_moves_its_entries_together(shape, seed, distinct, capacity, cut):
    lines = trace(shape, seed, 30_000, distinct)  # a ring begins with 2^13 entries
    (found,) = simulate(blocks(lines, cut), ["lru"], [capacity])
    assert found.misses == lru_misses(lines, capacity)


@settings(max_examples=15)
@given(seed=st.integers(0, 999), distinct=st.integers(2, 300), spare=st.integers(1, 60))
def test_lines_leave_in_order_after_the_ring_moved(seed, distinct, spare):
    lines = trace("phases", seed, 30_000, distinct)  # all of the first phase stays
    writes = lines % 3 == 0
    capacity = distinct + spare
    (found,) = simulate(from_arrays(lines, writes), ["lru"], [capacity])
    expected = naive.simulate(list(zip(lines.tolist(), writes.tolist(), strict=True)), capacity)
    assert {name: found.to_dict()[name] for name in expected} == expected


@settings(max_examples=25)
@given(shape=shapes, seed=st.integers(0, 999), capacity=st.integers(1, 60), cut=st.integers(1, 90))
def test_times_start_again_before_they_run_out(shape, seed, capacity, cut):
    lines = trace(shape, seed, 2000, 50)
    writes = (lines + np.arange(lines.size)) % 3 == 0
    expected = [
        naive.simulate(list(zip(lines.tolist(), writes.tolist(), strict=True)), capacity, make=twin)
        for twin in (naive.Lru, naive.Fifo)
    ]
    with pytest.MonkeyPatch.context() as patch:
        # The least limits at which a fresh engine can still run a block.
        patch.setattr(lru, "TIME_LIMIT", 2 * lru.CHUNK + 600)
        patch.setattr(fifo, "TIME_LIMIT", 300)
        stream = (
            Block(lines[k : k + cut], writes[k : k + cut].astype(np.uint8))
            for k in range(0, lines.size, cut)
        )
        for found, wanted in zip(
            simulate(stream, ["lru", "fifo"], [capacity]), expected, strict=True
        ):
            assert {name: found.to_dict()[name] for name in wanted} == wanted


@settings(max_examples=40)
@given(
    shape=shapes, seed=st.integers(0, 999), distinct=st.integers(1, 400), cut=st.integers(20, 900)
)
def test_curves_when_slots_run_out(shape, seed, distinct, cut):
    lines = trace(shape, seed, 4000, distinct)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lru_curve_module, "FIRST_SLOTS", 512)
        patch.setattr(opt_curve_module, "FIRST_SLOTS", 64)
        lru, opt = simulate_curves(blocks(lines, cut), ["lru", "opt"])
    sizes = list(range(1, lru.compulsory + 2, 1 + lru.compulsory // 40))
    for curve in (lru, opt):
        single = simulate(from_arrays(lines), [curve.policy], sizes)
        assert [curve.at(size).misses for size in sizes] == [one.misses for one in single]


@given(seed=st.integers(0, 999), scale=st.sampled_from([1, 3, 1 << 16, 1 << 40]))
def test_ids_are_one_to_one_and_stay(seed, scale):
    random = np.random.default_rng(seed)
    lines = random.integers(-300, 3000, 2000) * scale + random.integers(0, 2) * (1 << 62)
    index, known = LineIndex(), {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_module, "SMALL_WINDOW", int(random.integers(1, 2000)))
        for start in range(0, lines.size, 100):
            part = lines[start : start + 100]
            for line, small in zip(
                part.tolist(), index.ids(part, len(known)).tolist(), strict=True
            ):
                assert known.setdefault(line, small) == small
                assert 0 <= small < index.size
    assert len(set(known.values())) == len(known)


@settings(max_examples=20)
@given(seed=st.integers(0, 999), switch=st.integers(1, 150))
def test_long_times_of_opt(seed, switch):
    """8-byte next uses, taken up in the middle of a trace, change nothing."""
    lines = trace("skewed", seed, 300, 60)
    expected = [result.misses for result in simulate(from_arrays(lines), ["opt"], [3, 20])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opt_module, "SHORT_TIMES", switch)
        patch.setattr(opt_module, "FIRST_ROOM", 7)
        found = simulate(blocks(lines, 40), ["opt"], [3, 20], CacheConfig(1))
    assert [result.misses for result in found] == expected


def test_memory_follows_distinct_lines_and_not_the_trace():
    """A trace ten times as long needs no more memory, but for OPT's next uses."""
    from iosim.cache.registry import Batch, make_curve, make_engines

    def bytes_after(rounds, make):
        engine, index = make(), LineIndex()
        for part in [np.arange(20_000)] * rounds:
            engine.feed(Batch(part, None, index.ids(part, engine.distinct), index.size))
        arrays = [value for value in vars(engine).values() if isinstance(value, np.ndarray)]
        return sum(array.nbytes for array in arrays)

    for make in (
        lambda: make_engines("lru", [CacheConfig(1000)])[0],
        lambda: make_engines("fifo", [CacheConfig(1000)])[0],
        lambda: make_curve("lru", CacheConfig(1)),
        lambda: make_curve("opt", CacheConfig(1)),
    ):
        assert bytes_after(200, make) == bytes_after(20, make)
