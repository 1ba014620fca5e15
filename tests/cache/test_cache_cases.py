"""Known answers that nobody here made up: published sequences and traces."""

import os
from pathlib import Path

import naive_cache as naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iosim.cache import CacheConfig, from_arrays, read_trace, simulate, simulate_curves

TRACES = os.environ.get("IOSIM_TRACES")
needs_traces = pytest.mark.skipif(
    not TRACES,
    reason="published traces are not in the repository; IOSIM_TRACES names their folder",
)


def misses(lines, policy, capacity, **rules):
    return simulate(from_arrays(lines), [policy], [capacity], CacheConfig(1, **rules))[0].misses


def test_belady_anomaly():
    """More frames, more faults: Belady, Nelson and Shedler 1969."""
    pages = [1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5]
    assert [misses(pages, "fifo", frames) for frames in (3, 4)] == [9, 10]


def test_textbook_opt():
    assert misses([7, 0, 1, 2, 0, 3, 0, 4, 2, 3, 0, 3, 2], "opt", 4) == 6


def test_opt_stack_distances_of_the_paper():
    """Bilardi, Ekanadham and Pattnaik 2017: distances of the re-accesses b, c, a, b, d."""
    trace = [ord(letter) for letter in "abcdebcfabgd"]
    distances = naive.opt_distances(trace)
    assert [distance for distance in distances if distance] == [2, 3, 4, 2, 5]
    (curve,) = simulate_curves(from_arrays(trace), ["opt"])
    assert (-np.diff(curve.misses)).tolist() == [0, 2, 1, 1, 1, 0, 0]


def test_lru_evicts_the_line_used_longest_ago():
    """One set of 4 ways: a b a c d e evicts b, so that a and not b hits afterwards."""
    for ways in (None, 4):
        assert misses(list(map(ord, "abacdea")), "lru", 4, ways=ways) == 5
        assert misses(list(map(ord, "abacdeb")), "lru", 4, ways=ways) == 6


@pytest.mark.parametrize("policy", ["lru", "fifo", "plru"])
def test_two_ways_hold_two_lines(policy):
    assert misses([0, 1, 0], policy, 2, ways=2) == 2


def test_addresses_of_one_set():
    """64 bytes of 8-byte lines in 2 ways: loads of 0x38 and 0x18 meet in one set and both miss."""
    stream = from_arrays([0x38, 0x18], line_bytes=8)
    (found,) = simulate(stream, ["lru"], [8], CacheConfig(1, line_bytes=8, ways=2))
    assert (found.misses, found.evictions) == (2, 0)


@pytest.mark.parametrize("policy", ["lru", "fifo", "opt"])
@pytest.mark.parametrize("line_bytes", [1, 64])
def test_addresses_keep_their_high_bits(policy, line_bytes):
    stream = from_arrays([0, 2**32, 0], line_bytes=line_bytes)
    (found,) = simulate(stream, [policy], [2])
    assert (found.misses, found.hits) == (2, 1)
    if policy != "opt":
        stream = from_arrays([0, 2**32, 2**63, 0], line_bytes=line_bytes)
        (found,) = simulate(stream, [policy], [8], CacheConfig(1, ways=8))
        assert (found.misses, found.hits) == (3, 1)


@pytest.mark.parametrize("policy", ["lru", "opt"])
def test_curves_keep_the_high_bits(policy):
    (curve,) = simulate_curves(from_arrays([0, 2**32, 0, 2**32]), [policy])
    assert curve.misses.tolist() == [4, 4, 2]


def test_trees_of_bits_keep_the_high_bits():
    stream = from_arrays([0, 2**32, 0, 2**32])
    (found,) = simulate(stream, ["plru"], [4], CacheConfig(1, ways=4))
    assert (found.misses, found.hits) == (2, 2)


@given(n=st.integers(1, 40), rounds=st.integers(2, 5))
def test_cyclic_scan(n, rounds):
    """n + 1 lines in turn through n lines of cache: LRU always misses, OPT does not."""
    scan = list(range(n + 1)) * rounds
    assert misses(scan, "lru", n) == len(scan)
    if n > 1:
        assert misses(scan, "opt", n) < len(scan)


@given(
    address=st.integers(0, 2**40), size=st.integers(1, 300), line_bytes=st.sampled_from([1, 8, 64])
)
def test_a_straddling_access_counts_once_per_line(address, size, line_bytes):
    stream = from_arrays([address], writes=[True], sizes=[size], line_bytes=line_bytes)
    (found,) = simulate(stream, ["lru"], [4])
    touched = (address + size - 1) // line_bytes - address // line_bytes + 1
    assert (found.accesses, found.writes, found.misses) == (touched, touched, touched)


@needs_traces
def test_block_trace_of_libcachesim():
    file = Path(TRACES) / "cloudPhysicsIO.txt"
    sizes = [128 * k for k in range(1, 9)]
    expected = [99411, 96397, 95652, 95370, 95182, 94997, 94891, 94816]
    found = simulate(read_trace(file), ["lru"], sizes)
    assert [result.misses for result in found] == expected
    assert (found[0].accesses, found[0].compulsory) == (113_872, 48_974)
    lru, opt = simulate_curves(read_trace(file), ["lru", "opt"])
    assert [lru.at(size).misses for size in sizes] == expected
    # The published ratios have six decimals.
    ratios = [1, 0.976421, 0.970607, 0.965681, 0.959024, 0.956934]
    assert (lru.misses[:6] / lru.accesses).tolist() == pytest.approx(ratios, abs=5e-7)
    best = [93495, 92213, 91103, 90079]
    assert [result.misses for result in simulate(read_trace(file), ["opt"], sizes[:4])] == best
    assert [opt.at(size).misses for size in sizes[:4]] == best


@needs_traces
@pytest.mark.parametrize(
    ("name", "set_bits", "ways", "line_bits", "hits", "misses", "evictions"),
    [
        ("yi2", 1, 1, 1, 9, 8, 6),
        ("yi", 4, 2, 4, 4, 5, 2),
        ("dave", 2, 1, 4, 2, 3, 1),
        ("trans", 2, 1, 3, 167, 71, 67),
        ("trans", 2, 2, 3, 201, 37, 29),
        ("trans", 2, 4, 3, 212, 26, 10),
        ("trans", 5, 1, 5, 231, 7, 0),
    ],
)
def test_traces_of_the_cache_lab(name, set_bits, ways, line_bits, hits, misses, evictions):
    """CS:APP's cache lab ignores the sizes of accesses."""
    stream = read_trace(Path(TRACES) / f"{name}.trace", line_bytes=2**line_bits, ignore_sizes=True)
    config = CacheConfig(1, line_bytes=2**line_bits, ways=ways)
    (found,) = simulate(stream, ["lru"], [ways * 2**set_bits], config)
    assert (found.hits, found.misses, found.evictions) == (hits, misses, evictions)
