"""What cannot be simulated is said in one sentence that names it."""

import numpy as np
import pytest

from iosim.cache import CacheConfig, from_arrays, policies, simulate, simulate_curves
from iosim.errors import IosimError


@pytest.mark.parametrize(
    ("policy", "capacity", "rules", "words"),
    [
        ("lru", 0, {}, "capacity 0 lines"),
        ("opt", -3, {}, "capacity -3 lines"),
        ("lru", 8, {"ways": 3}, "3 ways do not divide a capacity of 8 lines"),
        ("lru", 8, {"ways": 0}, "0 ways do not divide"),
        ("lru", 2**40, {"ways": 2}, "too large for sets"),
        ("plru", 12, {"ways": 6}, "6 ways do not make a tree"),
        ("plru", 8, {}, "policy 'plru' has no fully associative engine"),
        ("opt", 8, {"ways": 2}, "policy 'opt' has no set-associative engine"),
        ("mru", 8, {}, "policy 'mru' has no fully associative engine; those that have: fifo, lru"),
        ("lru", 8, {"line_bytes": 0}, "line size 0 bytes"),
        ("fifo", 8, {"bypass": True}, "bypass is not for policy 'fifo'"),
    ],
)
def test_a_cache_that_cannot_be(policy, capacity, rules, words):
    with pytest.raises(IosimError) as caught:
        simulate(from_arrays([1]), [policy], [capacity], CacheConfig(1, **rules))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("policy", "rules", "words"),
    [
        ("fifo", {}, "policy 'fifo' has no miss curve; those that have: lru, opt"),
        ("lru", {"ways": 2}, "fully associative caches, not for 2 ways"),
        ("lru", {"write_back": False}, "write-allocate and write-back"),
        ("opt", {"bypass": True}, "without bypass"),
    ],
)
def test_a_curve_that_cannot_be(policy, rules, words):
    with pytest.raises(IosimError, match=words):
        simulate_curves(from_arrays([1]), [policy], CacheConfig(1, **rules))


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        (([],), "the trace is empty"),
        (([1.5],), "addresses has entries of type float64"),
        (([2**64],), "give integers of 64 bits"),
        (([1, 2], [True]), "writes has 1 entries and addresses 2"),
        (([1], None, [1, 2]), "sizes has 2 entries and addresses 1"),
        (([1], None, [2**40]), "touches more than 1048576 lines"),
    ],
)
def test_arrays_that_are_no_trace(arrays, words):
    with pytest.raises(IosimError, match=words):
        simulate(from_arrays(*arrays), ["lru"], [4])


def test_nothing_to_count():
    with pytest.raises(IosimError, match="no policy or no capacity"):
        simulate(from_arrays([1]), ["lru"], [])


@pytest.mark.parametrize("kind", [np.int8, np.uint16, np.int32, np.uint64])
def test_arrays_of_any_integers(kind):
    (found,) = simulate(from_arrays(np.array([[1, 2], [1, 3]], dtype=kind)), ["lru"], [2])
    assert (found.accesses, found.misses) == (4, 3)


def test_a_cache_larger_than_any_trace():
    (found,) = simulate(from_arrays([1, 2, 1]), ["lru"], [10**15])
    assert (found.misses, found.evictions) == (2, 0)


def test_names():
    assert policies() == ("fifo", "lru", "opt", "plru")
