"""The best schedule for a shape and a memory: the fewest words of those that fit, and why."""

import csv
import io
import json
from dataclasses import replace

import pytest
import strategies
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from iosim.best import best, note
from iosim.cli import main
from iosim.errors import IosimError
from iosim.report import Simulation, simulate
from iosim.schedule import families
from iosim.schedule.tree import Schedule, nodes
from iosim.shape import AttentionShape

SHAPE = ("--seq-len", "1k", "--head-dim", "64")


def on_one_device() -> list[str]:
    """The forward schedules that take part: on several devices there is more to weigh than M."""
    return [name for name, known in families("forward").items() if "ranks" not in known.settings]


def fitting(shape: AttentionShape, words: int) -> dict[str, Simulation]:
    """Every built-in forward schedule at its best legal tile, by itself."""
    found = {}
    for name, known in families("forward").items():
        try:
            run = simulate(known, shape, sram_words=words)
        except IosimError:
            continue
        if run.fits:
            found[name] = run
    return found


@settings(max_examples=30)
@given(strategies.shapes(rows=60, width=20), st.integers(1, 3000))
def test_it_is_the_least_of_all_that_fit(shape: AttentionShape, words: int) -> None:
    runs = fitting(shape, words)
    if not runs:
        with pytest.raises(IosimError, match=f"no schedule that fits in M = {words} word"):
            best(shape, words)
        return
    chosen = best(shape, words)
    least = min(run.traffic.total_words for run in runs.values())
    assert chosen.traffic.total_words == least
    assert chosen.fits
    assert chosen.traffic == runs[chosen.schedule.name].traffic
    assert chosen.tiles == runs[chosen.schedule.name].tiles
    said = {each.schedule: each.total_words for each in chosen.among}
    moved = {name: run.traffic.total_words for name, run in runs.items()}
    assert said == {name: moved.get(name) for name in on_one_device()}
    assert all(bool(each.reason) == (each.total_words is None) for each in chosen.among)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (5, "standard_tiled"),
        (1024, "square_tiling"),
        (3009, "square_tiling"),
        (3010, "flash2"),
        (10**5, "flash2"),
    ],
)
def test_the_best_by_memory(words: int, name: str) -> None:
    assert best(AttentionShape(1024, 1024, 64), words).schedule.name == name


def test_the_listing_is_chosen_where_it_moves_as_little() -> None:
    """One query and one key: standard moves 4 words of Q, K, V, O and 4 of S and P; M = 3 fits."""
    assert best(AttentionShape(1, 1, 1), 3).schedule.name == "standard"


def test_a_tie_goes_to_the_first() -> None:
    flash2 = families()["flash2"]
    two = {"a": replace(flash2, name="a"), "b": replace(flash2, name="b")}
    chosen = best(AttentionShape(64, 64, 8), 999, schedules=two)
    assert [each.schedule for each in chosen.among] == ["a", "b"]
    assert chosen.among[0].total_words == chosen.among[1].total_words


def test_each_pass_has_its_best() -> None:
    chosen = best(AttentionShape(64, 64, 8), 999, direction="backward")
    assert chosen.schedule.name in families("backward")
    assert {each.schedule for each in chosen.among} == set(families("backward"))


def test_a_schedule_that_cannot_be_built_says_why() -> None:
    def build(shape: AttentionShape) -> Schedule:
        raise IosimError("this one takes no mask; give --no-causal")

    odd = replace(families()["standard"], name="odd", build=build)
    chosen = best(AttentionShape(64, 64, 8), 999, schedules={**families(), "odd": odd})
    (said,) = [each for each in chosen.among if each.schedule == "odd"]
    assert (said.total_words, said.reason) == (None, "this one takes no mask")


def test_the_note_says_which_and_why() -> None:
    said = {
        100: [
            "best: flash2, 72 words (n_q = 8, n_k = 8, d = 2, M = 100 words)",
            "  also fit: flash2_packed 72, flash1 144, split_kv 184, square_tiling 224, "
            "standard 320, standard_tiled 384, standard_passes 456",
        ],
        6: [
            "best: square_tiling, 624 words (n_q = 8, n_k = 8, d = 2, M = 6 words)",
            "  also fit: standard_tiled 656",
            "  do not fit: standard (needs 26 words), standard_passes (needs 26 words), "
            "flash1 (the smallest needs 11 words), flash2 (the smallest needs 11 words), "
            "flash2_packed (the smallest needs 11 words), split_kv (the smallest needs 11 words)",
        ],
    }
    for words, lines in said.items():
        assert note(best(AttentionShape(8, 8, 2), words)).splitlines() == lines


def test_given_tiles_stay() -> None:
    chosen = best(AttentionShape(1024, 1024, 64), 8192, given={"br": 8, "bc": 8})
    assert chosen.tiles.sizes == {"br": 8, "bc": 8}
    assert chosen.schedule.tiles == {"br": 8, "bc": 8}


def test_ten_million_rows() -> None:
    chosen = best(AttentionShape(10**7, 10**7, 64, causal=True), 20_000)
    assert chosen.schedule.name == "flash2"
    assert [n for n, _ in nodes(chosen.schedule.body)]


# On the command line


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def test_a_sweep_chooses_for_each_case() -> None:
    result = run(
        *("simulate", "--schedule", "best", *SHAPE, "--sram", "2KiB,100KiB", "--format", "json")
    )
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document["schema"] == 1
    small, large = document["records"]
    assert (small["schedule"], large["schedule"]) == ("square_tiling", "flash2")
    for record in (small, large):
        assert record["chosen"] is True
        among = record["chosen_among"]
        assert set(among) == set(on_one_device())
        assert among[record["schedule"]]["total_words"] == record["total_words"]
        fitting = [each["total_words"] for each in among.values() if each["fits"]]
        assert record["total_words"] == min(fitting)
    first, second = [line for line in result.stderr.splitlines() if line.startswith("best: ")]
    assert first.startswith("best: square_tiling, 10 162 176 words (n_q = 1 024")
    assert second.startswith("best: flash2, ")


def test_named_schedules_stand_beside_the_best_one() -> None:
    given = ("simulate", "--schedule", "best,flash1", *SHAPE, "--sram", "100KiB")
    records = json.loads(run(*given, "--format", "json").stdout)["records"]
    assert [("chosen" in r, r["schedule"]) for r in records] == [
        (True, "flash2"),
        (False, "flash1"),
    ]
    (first, _) = csv.DictReader(io.StringIO(run(*given, "--format", "csv").stdout))
    assert first["chosen"] == "true"
    assert first["chosen_among.standard.fits"] == "false"


def test_explain_and_bound_take_it_too() -> None:
    given = ("--schedule", "best", *SHAPE, "--sram", "1024w")
    assert run("explain", *given).stdout.startswith("square_tiling: n_q = 1024")
    bounds = json.loads(run("bound", *given, "--format", "json").stdout)["records"]
    assert {each["schedule"] for each in bounds} == {"square_tiling"}


def test_both_passes_are_each_the_best() -> None:
    given = ("--schedule", "best", *SHAPE, "--sram", "100KiB", "--pass", "both")
    records = json.loads(run("simulate", *given, "--format", "json").stdout)["records"]
    assert [each["schedule"] for each in records] == [
        "flash2",
        "flash2_backward",
        "flash2 + flash2_backward",
    ]
    assert set(records[1]["chosen_among"]) == set(families("backward"))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("simulate", *SHAPE), ["--schedule best", "--sram", "--device"]),
        (("simulate", *SHAPE, "--sram", "3w"), ["--schedule best", "M = 3 words", "needs 4 words"]),
        (("simulate", *SHAPE, "--sram", "1KiB", "--tiles", "paper"), ["--tiles paper"]),
        (("tiles", *SHAPE, "--sram", "1KiB"), ["--schedule best has no tile sizes"]),
    ],
)
def test_wrong_use_is_one_sentence(arguments: tuple[str, ...], named: list[str]) -> None:
    result = run(*arguments, "--schedule", "best")
    assert (result.exit_code, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1
    for text in named:
        assert text in result.stderr
