"""Where the order of two schedules changes as M grows: exactly, and as the page's table says."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iosim.crossover import best_words, order_changes
from iosim.schedule import family
from iosim.shape import AttentionShape
from iosim.verify.small_memory import bracket

PAGE = Path(__file__).parents[1] / "docs" / "small-memories.md"
ROW = re.compile(r"^\| (\d+) \| ([\d ,]+) \| ([\d. to]+) \|", re.MULTILINE)

falling = st.lists(st.integers(0, 40), min_size=1, max_size=30).map(
    lambda steps: [sum(steps) - sum(steps[: i + 1]) for i in range(len(steps))]
)


def slow_changes(first: list[int], second: list[int]) -> tuple[int, ...]:
    """Every position at which the order differs from that at the position before."""
    order = [a < b for a, b in zip(first, second, strict=False)]
    return tuple(i for i in range(1, len(order)) if order[i] != order[i - 1])


@given(falling, falling)
def test_every_change_is_found(first: list[int], second: list[int]) -> None:
    last = min(len(first), len(second)) - 1
    found = order_changes(first.__getitem__, second.__getitem__, 0, last)
    assert found == slow_changes(first, second)


def test_few_positions_are_asked_where_the_curves_are_apart() -> None:
    asked = []

    def first(m: int) -> int:
        asked.append(m)
        return 10**9 - m

    assert order_changes(first, lambda m: 0 if m > 777 else 10**9 + 1, 0, 10**8) == (778,)
    assert len(asked) < 200


@pytest.mark.parametrize("name", ["square_tiling", "flash2", "standard_tiled"])
def test_best_words_never_rise(name: str) -> None:
    """What order_changes relies on."""
    for n, memories in ((5, range(23, 80)), (40, range(23, 500, 13))):
        words = best_words(family(name), AttentionShape(n, n, 5))
        moved = [words(m) for m in memories]
        assert moved == sorted(moved, reverse=True)


def test_the_changes_at_one_dimension_by_trying_every_memory() -> None:
    shape = AttentionShape(256, 256, 8)
    square, flash = (best_words(family(name), shape) for name in ("square_tiling", "flash2"))
    memories = range(35, 129)
    order = {m: square(m) < flash(m) for m in memories}
    changes = tuple(m for m in memories[1:] if order[m] != order[m - 1])
    assert len(changes) % 2 == 1
    assert order_changes(square, flash, 35, 128) == changes


def table() -> list[tuple[int, tuple[int, ...]]]:
    rows = ROW.findall(PAGE.read_text(encoding="utf-8"))
    return [
        (int(d), tuple(int(m.replace(" ", "")) for m in changes.split(",")))
        for d, changes, _ in rows
    ]


def test_the_page_has_a_table() -> None:
    assert [d for d, _ in table()] == [16, 32, 64, 128]


@pytest.mark.parametrize(("d", "changes"), table())
def test_the_table_of_the_page(d: int, changes: tuple[int, ...]) -> None:
    """At N = 65536, by counts; the constants are the first and the last change over d^2."""
    shape = AttentionShape(65536, 65536, d)
    square, flash = (best_words(family(name), shape) for name in ("square_tiling", "flash2"))
    low, high = bracket(d, 65536)
    # By hand there is no change outside of the bracket; `iosim verify` looks there too.
    assert order_changes(square, flash, low, high) == changes
    assert square(4 * d + 3) < flash(4 * d + 3)
    assert flash(2 * d * d) < square(2 * d * d)
    stated = {int(row[0]): row[2] for row in ROW.findall(PAGE.read_text(encoding="utf-8"))}
    ends = dict.fromkeys(f"{m / d**2:.3f}" for m in (changes[0], changes[-1]))
    assert stated[d] == " to ".join(ends)


@given(st.integers(8, 200), st.integers(10, 24))
def test_the_bracket_closes_on_two_thirds(d: int, power: int) -> None:
    low, high = bracket(d, 2**power)
    assert 4 * d + 3 - 1 <= low < high
    if power >= 20:
        assert abs(low / d**2 - 2 / 3) < 6 / d
        assert abs(high / d**2 - 2 / 3) < 8 / d
