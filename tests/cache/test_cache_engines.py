"""Every engine against its naive twin, on random traces, block by block."""

import naive_cache as naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iosim.cache import Block, CacheConfig, simulate, simulate_curves

#: Line numbers near and far, to use the window, the hash table and both.
lines = st.one_of(
    st.integers(0, 12), st.integers(2**22, 2**22 + 6), st.integers(-(2**63), 2**63 - 1)
)
traces = st.lists(st.tuples(st.sampled_from(range(12)), st.booleans()), min_size=1, max_size=80)


@st.composite
def spread_traces(draw):
    """A trace whose line numbers lie anywhere in 64 bits."""
    names = draw(st.lists(lines, min_size=12, max_size=12, unique=True))
    return [(names[k], write) for k, write in draw(traces)]


def stream(trace, cut=7):
    """Blocks of a few accesses; a block without writes has none to give."""
    for start in range(0, len(trace), cut):
        part = trace[start : start + cut]
        writes = np.array([write for _, write in part], dtype=np.uint8)
        yield Block(
            np.array([line for line, _ in part], dtype=np.int64), writes if writes.any() else None
        )


def counts(result, names):
    values = result.to_dict()
    return {name: values[name] for name in names}


rules = st.fixed_dictionaries(
    {"write_allocate": st.booleans(), "write_back": st.booleans(), "flush": st.booleans()}
)


@pytest.mark.parametrize(("policy", "twin"), [("lru", naive.Lru), ("fifo", naive.Fifo)])
@given(trace=spread_traces(), capacity=st.integers(1, 14), rule=rules)
def test_fully_associative(policy, twin, trace, capacity, rule):
    (found,) = simulate(stream(trace), [policy], [capacity], CacheConfig(1, **rule))
    expected = naive.simulate(trace, capacity, make=twin, **rule)
    assert counts(found, expected) == expected
    assert found.accesses == len(trace)
    assert found.writes == sum(write for _, write in trace)
    assert found.reads + found.writes == found.hits + found.misses == len(trace)


@given(trace=spread_traces(), capacity=st.integers(1, 14), rule=rules, bypass=st.booleans())
def test_opt(trace, capacity, rule, bypass):
    config = CacheConfig(1, bypass=bypass, **rule)
    (found,) = simulate(stream(trace), ["opt"], [capacity], config)
    expected = naive.simulate_opt(trace, capacity, bypass=bypass, **rule)
    assert counts(found, expected) == expected


@pytest.mark.parametrize(
    ("policy", "twin"), [("lru", naive.Lru), ("fifo", naive.Fifo), ("plru", naive.Plru)]
)
@given(trace=spread_traces(), sets=st.integers(1, 5), ways=st.sampled_from([1, 2, 4]), rule=rules)
def test_set_associative(policy, twin, trace, sets, ways, rule):
    config = CacheConfig(1, ways=ways, **rule)
    (found,) = simulate(stream(trace), [policy], [sets * ways], config)
    expected = naive.simulate(trace, sets * ways, make=twin, ways=ways, **rule)
    assert counts(found, expected) == expected


@given(trace=spread_traces(), flush=st.booleans())
def test_lru_curve_equals_the_engine_at_every_size(trace, flush):
    config = CacheConfig(1, flush=flush)
    (curve,) = simulate_curves(stream(trace), ["lru"], config)
    distances = naive.lru_distances([line for line, _ in trace])
    for capacity in range(1, 15):
        (single,) = simulate(stream(trace), ["lru"], [capacity], config)
        assert curve.at(capacity) == single
        assert single.misses == sum(d is None or d > capacity for d in distances)
    assert curve.misses[0] == len(trace)
    assert curve.misses.size == curve.compulsory + 1


@given(trace=spread_traces())
def test_opt_curve_equals_the_engine_at_every_size(trace):
    (curve,) = simulate_curves(stream(trace), ["opt"])
    distances = naive.opt_distances([line for line, _ in trace])
    for capacity in range(1, 15):
        (single,) = simulate(stream(trace), ["opt"], [capacity])
        assert curve.at(capacity).misses == single.misses
        assert single.misses == sum(d is None or d > capacity for d in distances)


@given(trace=spread_traces())
def test_theorems(trace):
    """OPT misses least, curves never rise, LRU with twice the lines misses at most twice OPT."""
    lru, opt = simulate_curves(stream(trace), ["lru", "opt"])
    for curve in (lru, opt):
        assert (np.diff(curve.misses) <= 0).all()
        assert curve.misses[-1] == curve.compulsory
    assert (opt.misses <= lru.misses).all()
    for capacity in (1, 2, 4, 8):
        best = opt.at(capacity).misses
        assert lru.at(2 * capacity).misses <= 2 * best  # Sleator and Tarjan 1985
        for ways in (None, 1, capacity):
            for policy in ("lru", "fifo", "plru"):
                if policy == "plru" and ways is None:
                    continue
                (other,) = simulate(stream(trace), [policy], [capacity], CacheConfig(1, ways=ways))
                assert best <= other.misses
    (kept_out,) = simulate(stream(trace), ["opt"], [4], CacheConfig(1, bypass=True))
    assert kept_out.misses <= opt.at(4).misses
