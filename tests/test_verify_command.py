"""`iosim verify` from the command line: exit codes, forms, colour, progress, figures."""

import csv
import io
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import trees
from click.testing import CliRunner, Result

from iosim.cli import main
from iosim.cli import verify as command
from iosim.errors import IosimError
from iosim.schedule import families
from iosim.verify import Check, VerificationReport
from iosim.verify.registry import checks

EXAMPLE = trees.EXAMPLES / "split_loads.py"
GOOD = Check("counting", "flash2", "pass", "7 cases, 1 234 words", {"cases": 7})
ODD = Check("capacity", "flash1, d = 64", "finding", "overflows " * 20, {"tiles": {"br": 1}})
BAD = Check("counting", "flash1", "fail", "1 wrong, such as 64 x 100", {"cases": 7})


def run(
    *arguments: str, color: bool = False, env: Mapping[str, str | None] | None = None
) -> Result:
    return CliRunner().invoke(main, ["verify", *arguments], color=color, env=env)


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[Check]:
    """Rows that the next verification reports, whatever is asked."""
    checks: list[Check] = [GOOD, ODD]
    monkeypatch.setattr(
        command, "run", lambda *_, **__: VerificationReport(tuple(checks), False, 1.25)
    )
    return checks


def test_a_real_check_from_the_command_line() -> None:
    result = run("--only", "counting")
    assert result.exit_code == 0, result.output
    assert re.search(r"pass +flash2 +\d+ cases, [\d ]+ words, each accounted for", result.stdout)
    assert result.stdout.splitlines()[-1].startswith(
        f"{len(families())} passed, 0 findings, 0 failed in "
    )
    assert result.stderr == ""


def test_a_failure_is_exit_code_one(reported: list[Check]) -> None:
    assert run().exit_code == 0
    reported.append(BAD)
    result = run()
    assert result.exit_code == 1
    assert "  FAIL     flash1  1 wrong, such as 64 x 100" in result.stdout
    assert "1 passed, 1 findings, 1 failed in 1.2 s" in result.stdout


@pytest.mark.parametrize("form", ["table", "json", "csv"])
def test_a_failure_shows_in_every_form(form: str, reported: list[Check], tmp_path: Path) -> None:
    reported.append(BAD)
    file = tmp_path / "report"
    result = run("--format", form, "-o", str(file))
    assert (result.exit_code, result.stdout) == (1, "")
    assert "fail" in file.read_text().lower()


@pytest.mark.usefixtures("reported")
def test_the_table_fits_a_hundred_columns() -> None:
    lines = run().stdout.splitlines()
    assert max(map(len, lines)) <= 100
    # The explanation is folded beside what it explains.
    folded = [line for line in lines if line.strip().startswith("overflows")]
    assert folded
    assert {len(line) - len(line.lstrip()) for line in folded} == {27}


def test_numbers_are_not_torn_apart() -> None:
    text = "at N 1 000 000 a tile of 64 x 100 rows, d 64, M 133 248 " * 5
    for width in range(30, 60):
        for line in command._wrap(text, width):
            assert not re.match(r"\d{3}\b|x |\d+ rows", line), line


@pytest.mark.usefixtures("reported")
def test_json_holds_the_whole_report() -> None:
    document = json.loads(run("--format", "json").stdout)
    assert document["schema"] == 1
    assert document["passed"] is True
    assert document["verdicts"] == {"pass": 1, "finding": 1, "fail": 0}
    assert document["records"] == [GOOD.to_dict(), ODD.to_dict()]


@pytest.mark.usefixtures("reported")
def test_csv_has_a_row_for_each_check() -> None:
    rows = list(csv.DictReader(io.StringIO(run("--format", "csv").stdout)))
    assert [row["what"] for row in rows] == ["flash2", "flash1, d = 64"]
    assert rows[0]["numbers.cases"] == "7"
    assert rows[1]["numbers.tiles.br"] == "1"


@pytest.mark.usefixtures("reported")
def test_colour_only_on_a_terminal_and_without_no_color() -> None:
    plain = run().stdout
    assert "\x1b" not in plain
    coloured = run(color=True, env={"NO_COLOR": None}).stdout
    assert "\x1b[32mpass\x1b[0m" in coloured
    assert "\x1b[33mfinding\x1b[0m" in coloured
    assert run(color=True, env={"NO_COLOR": "1"}).stdout == plain
    # The words are there all the same.
    assert re.sub(r"\x1b\[\d+m", "", coloured) == plain


@pytest.mark.usefixtures("reported")
def test_a_file_has_no_colour(tmp_path: Path) -> None:
    run("-o", str(tmp_path / "report.txt"), color=True)
    assert (tmp_path / "report.txt").read_text() == run().stdout


def test_only_what_is_named_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def note(only: tuple[str, ...], *, thorough: bool, **more: Any) -> VerificationReport:
        asked.update(only=only, thorough=thorough, schedules=more["schedules"])
        return VerificationReport((GOOD,), thorough, 0.0)

    monkeypatch.setattr(command, "run", note)
    run("--only", "counting", "--only", "ratios", "--thorough")
    assert asked == {"only": ("counting", "ratios"), "thorough": True, "schedules": None}


def test_a_schedule_of_ones_own_is_verified() -> None:
    result = run("--schedule", f"flash2,{EXAMPLE}:split_loads")
    assert result.exit_code == 0, result.output
    for row in ("split_loads, float16 ", r"split_loads  \d+ cases", "flash2, float64 "):
        assert re.search(f"pass +{row}", result.stdout), row
    assert not re.search(r"^ +\w+ +(standard|flash1)\b", result.stdout, re.MULTILINE)
    (left,) = re.findall("^Left out, being about other schedules: (.*)\\.$", result.stdout, re.M)
    assert set(left.split(", ")) == set(checks()) - {"counting", "exactness", "lower_bounds"}


def test_a_schedule_of_ones_own_that_is_no_attention_fails(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    right = EXAMPLE.read_text()
    path.write_text(right.replace('Compute("normalise", (O,), (O, l), "O_i = O_i / l_i"),', ""))
    assert path.read_text() != right
    result = run("--schedule", f"{path}:split_loads", "--only", "exactness")
    assert result.exit_code == 1, result.output
    assert "FAIL     split_loads, float64" in result.stdout


def test_schedules_of_one_name_are_told_apart() -> None:
    own, other = f"{EXAMPLE}:split_loads", f"{EXAMPLE.parent}/./split_loads.py:split_loads"
    result = run("--schedule", f"{own},flash2,{other},flash2", "--only", "counting")
    lines = [line.split()[1] for line in result.stdout.splitlines() if line.startswith("  pass")]
    assert lines == ["split_loads", "flash2", other]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("--schedule flash3", "unknown schedule 'flash3'; did you mean 'flash2'?"),
        ("--schedule flash2 --only ratios", "--only ratios is about fixed schedules, so that"),
        ("--schedule flash2 --only ratio", "did you mean 'ratios'?"),
    ],
)
def test_schedules_that_cannot_be_verified(arguments: str, complaint: str) -> None:
    result = run(*arguments.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert complaint in result.stderr


def test_a_check_that_is_not_known() -> None:
    result = run("--only", "exactnes")
    assert result.exit_code == 2
    assert "did you mean 'exactness'?" in result.stderr
    assert result.stdout == ""


def test_an_output_that_cannot_be_written_is_refused_before_the_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(command, "run", lambda *_, **__: pytest.fail("it ran"))
    result = run("-o", "/no/such/folder/report.json")
    assert result.exit_code == 2
    assert "/no/such/folder" in result.stderr


def test_an_interrupt_is_exit_code_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "run", interrupt)
    assert run().exit_code == 130


def test_progress_is_shown_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with command._Progress() as progress:
        progress("counting: flash2")
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with command._Progress() as progress:
        progress("counting: flash2")
    out, err = capsys.readouterr()
    assert out == ""
    assert "counting: flash2 ..." in err


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A stand-in for the figures, which take seconds to draw."""
    module = ModuleType("iosim.plot.figures")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


@pytest.mark.usefixtures("reported")
def test_plots_are_written_and_named_on_standard_error(figures: Any, tmp_path: Path) -> None:
    figures.write_figures = lambda directory: [directory / "length.svg"]
    result = run("--plots", str(tmp_path))
    assert result.exit_code == 0
    assert result.stderr == f"wrote {tmp_path / 'length.svg'}\n"
    assert "wrote" not in result.stdout


def test_plots_that_cannot_be_written_are_refused_before_the_work(
    figures: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(directory: Path) -> None:
        raise IosimError(f"--plots '{directory}' cannot be made")

    figures.write_figures = refuse
    monkeypatch.setattr(command, "run", lambda *_, **__: pytest.fail("it ran"))
    result = run("--plots", "/no/such")
    assert (result.exit_code, result.stdout) == (2, "")


def test_plots_without_a_name_are_refused(figures: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    figures.write_figures = lambda _: pytest.fail("it drew")
    monkeypatch.setattr(command, "run", lambda *_, **__: pytest.fail("it ran"))
    result = run("--plots", "")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "'--plots': '' is no name of a folder; write --plots figures\n" in result.stderr


def test_every_check_is_in_the_help() -> None:
    help_text = run("--help").stdout
    for name in command.about_checks():
        assert name in help_text
