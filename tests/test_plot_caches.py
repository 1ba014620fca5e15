"""The figure of caches: what it draws is what the engines and the count say."""

import pytest
from matplotlib.figure import Figure

from iosim.cache import simulate_curves
from iosim.plot.caches import cache_curves, draw_cache_curves
from iosim.reading.count import count
from iosim.reading.trace import trace
from iosim.reading.working_set import working_sets
from iosim.schedule import family
from iosim.shape import AttentionShape

SHAPE = AttentionShape(48, 40, 8)


@pytest.mark.parametrize("name", ["flash1", "flash2"])
def test_the_curves_are_those_of_the_engines(name: str) -> None:
    schedule = family(name).build(SHAPE, br=16, bc=10)
    ax = Figure().subplots()
    draw_cache_curves(cache_curves(schedule), ax)
    drawn = {str(line.get_label()).partition(",")[0]: line for line in ax.get_lines()}
    for label, curve in zip(
        ("LRU cache", "OPT cache"), simulate_curves(trace(schedule), ["lru", "opt"]), strict=True
    ):
        sizes, misses = drawn[label].get_data()
        assert list(sizes[:-1]) == list(range(1, len(curve.misses)))
        assert list(misses[:-1]) == curve.misses[1:].tolist()
    explicit = drawn["explicit scratchpad"].get_data()
    assert explicit[0][0] == count(schedule).peak_words
    # OPT with as much memory does no worse than the schedule does.
    opt = simulate_curves(trace(schedule), ["opt"])[0]
    peak = min(count(schedule).peak_words, len(opt.misses) - 1)
    assert opt.misses[peak] <= explicit[1][0]
    assert "(words" in ax.get_xlabel()
    assert "(words)" in ax.get_ylabel()


def test_working_sets_by_hand() -> None:
    flash2 = family("flash2").build(SHAPE, br=16, bc=10)
    inner = 2 * 16 * 8 + 2 * 10 * 8 + 16 * 10 + 2 * 16
    outer = 2 * 16 * 8 + 2 * 40 * 8 + 16 * 10 + 2 * 16 + 16  # all of K and V, and LSE_i
    assert list(working_sets(flash2).values()) == [outer, inner]
    assert count(flash2).peak_words == inner


def test_a_cliff_lies_at_the_working_set_of_the_inner_loop() -> None:
    flash2 = family("flash2").build(SHAPE, br=16, bc=10)
    lru = simulate_curves(trace(flash2), ["lru"])[0]
    inner = min(working_sets(flash2).values())
    assert lru.misses[inner] < lru.misses[inner // 2]
    assert lru.misses[inner] <= lru.misses[inner - 1]
