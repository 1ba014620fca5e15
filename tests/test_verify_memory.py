"""The checks small_memory and slow_memory of `iosim verify`: as things are, and when they break."""

from dataclasses import replace
from typing import Any

import pytest

from iosim.bounds import Bound, lower_bound
from iosim.reading.check import Checked, check
from iosim.schedule.registry import Family, families
from iosim.schedule.square_tiling import listed
from iosim.schedule.tree import Schedule
from iosim.shape import AttentionShape
from iosim.verify import Check, slow_memory, small_memory, verify
from iosim.verify.registry import Scope


def run(name: str, **changed: Family) -> dict[str, Check]:
    return {row.what: row for row in verify([name], schedules=families() | changed).checks}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the searches for a crossover, which take most of the time."""
    monkeypatch.setattr(
        small_memory, "_crossover_row", lambda *_: Check("small_memory", "", "pass", "")
    )


@pytest.mark.usefixtures("quick")
def test_every_row_about_square_tiling_is_a_finding() -> None:
    found = run("small_memory")
    verdicts = {what: row.verdict for what, row in found.items() if what}
    assert set(verdicts.values()) == {"finding"}
    assert found["square_tiling, printed tile"].numbers["unfit_words"] == [4]
    gap = found["square_tiling, d = 64, M = d^2 / 16"].numbers
    assert gap["bound"] == "two_matmuls"
    assert gap["bound_words"] <= gap["traffic_words"] < gap["fused_bound_words"]  # type: ignore[operator]


@pytest.mark.usefixtures("quick")
def test_a_peak_that_is_off_by_one_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def off(schedule: Schedule, capacity: int | None = None) -> Checked:
        found = check(schedule)
        return replace(found, peak_words=found.peak_words + 1)

    monkeypatch.setattr(small_memory, "check", off)
    assert run("small_memory")["square_tiling, printed tile"].verdict == "fail"


@pytest.mark.usefixtures("quick")
def test_a_listing_that_does_not_overflow_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def always(shape: AttentionShape, b: int, *, maximum: bool = True) -> Schedule:
        return listed(shape, b)

    monkeypatch.setattr(small_memory, "listed", always)
    found = run("small_memory")
    assert found["square_tiling, as printed"].verdict == "fail"
    assert found["square_tiling, printed tile"].verdict == "fail"


@pytest.mark.usefixtures("quick")
def test_traffic_below_its_bound_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def raised(shape: AttentionShape, words: int, checked: Checked) -> Bound:
        found = lower_bound(shape, words, checked)
        return replace(found, words=2 * found.words)

    monkeypatch.setattr(small_memory, "lower_bound", raised)
    found = run("small_memory")
    assert found["square_tiling, d = 64, M = d^2 / 16"].verdict == "fail"


def crossover(square: str, flash: str, d: int, n: int = small_memory.N) -> Check:
    return small_memory._crossover_row(families()[square], families()[flash], d, n)


def test_the_crossover_is_where_counts_and_mathematics_say() -> None:
    row = crossover("square_tiling", "flash2", 16)
    assert row.verdict == "pass"
    assert row.numbers["changes_words"] == [242]
    low, high = small_memory.bracket(16, small_memory.N)
    assert row.numbers["bracket_words"] == [low, high]
    assert low < 242 <= high


@pytest.mark.parametrize(
    ("square", "flash"), [("square_tiling", "flash1"), ("standard_tiled", "flash2")]
)
def test_the_crossover_of_others_fails(square: str, flash: str) -> None:
    """flash1 moves half as much again as flash2, standard_tiled 3 N^2 more than square tiling."""
    row = crossover(square, flash, 16)
    assert row.verdict == "fail"


def test_two_schedules_that_never_cross_fail() -> None:
    row = crossover("flash2", "flash2", 8, 256)
    assert row.verdict == "fail"
    assert row.numbers["changes_words"] == []
    assert "no M" in row.detail


@pytest.mark.parametrize("missing", ["square_tiling", "flash2"])
def test_without_both_there_is_nothing_to_compare(missing: str) -> None:
    schedules = {name: each for name, each in families().items() if name != missing}
    assert list(small_memory.small_memory(Scope(schedules=schedules))) == []


def test_slow_memory_grows_as_the_listings_say() -> None:
    found = run("slow_memory")
    assert set(found) == set(slow_memory.EXPECTED) <= set(families("forward"))
    assert {row.verdict for row in found.values()} == {"pass"}
    exponents = {name: row.numbers["expected_exponent"] for name, row in found.items()}
    assert exponents == {
        **dict.fromkeys(("standard", "standard_tiled", "square_tiling"), 2),
        **dict.fromkeys(("flash1", "flash2"), 1),
    }
    assert found["standard"].numbers["longest_seq_len"] == 187_685


@pytest.mark.parametrize("instead", ["flash1", "standard", "square_tiling"])
def test_more_in_slow_memory_than_the_listing_says_fails(instead: str) -> None:
    other: Any = families()[instead]
    row = run("slow_memory", flash2=replace(other, name="flash2"))["flash2"]
    assert row.verdict == "fail"
    assert "expected" in row.detail
