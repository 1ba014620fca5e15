"""The pages show what a reader gets: every `$ iosim ...` in a console block is run and compared.

`...` in the shown output stands for anything, as in doctest. `$ make ...` is not run here.
"""

import doctest
import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from iosim.cli import main

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Shown(NamedTuple):
    """A command line and the output that a page shows for it."""

    line: str
    output: str


def shown(page: Path) -> list[Shown]:
    found = []
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, _, output = part.partition("\n")
            found.append(Shown(line, output))
    return found


COMMANDS = [
    pytest.param(each, id=f"{page.name}: {each.line}")
    for page in PAGES
    for each in shown(page)
    if each.line.startswith("iosim ")
]


@pytest.mark.parametrize("example", COMMANDS)
def test_a_page_shows_what_the_command_prints(
    example: Shown, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    arguments = shlex.split(example.line)[1:]
    options = ("-o", "--output", "--plots")
    writes = arguments[0] == "plot" or any(option in arguments for option in options)
    if writes:  # what a command writes belongs in a scratch folder
        monkeypatch.chdir(tmp_path)
        (tmp_path / "docs").symlink_to(ROOT / "docs")
    else:
        monkeypatch.chdir(ROOT)
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code in (0, 1), result.output
    checker = doctest.OutputChecker()
    same = checker.check_output(
        example.output, result.output, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    )
    assert same, f"{example.line} prints\n{result.output}"


def test_the_map_of_the_tests_names_every_file() -> None:
    tests = ROOT / "tests"
    text = (tests / "README.md").read_text(encoding="utf-8")
    for path in tests.rglob("test_*.py"):
        folder = path.parent.relative_to(tests)
        assert f"`{path.name}`" in text or (folder.name and f"`{folder}/`" in text), path


def test_there_are_commands_to_compare() -> None:
    assert len(COMMANDS) >= 1
    assert shown(ROOT / "docs" / "own-schedule.md")[0].output.startswith("n_q = 8 192, ")
