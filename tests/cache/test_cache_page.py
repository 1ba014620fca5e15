"""The page about caches shows what a command prints that takes its trace from a pipe.

The other commands of the page are run by `test_pages.py`.
"""

import doctest
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from iosim.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "cache.md"
PIPED = re.findall(
    r"^```console\n\$ printf '%s\\n' (.*?) \| (iosim .*?)\n(.*?)^```",
    PAGE.read_text("utf-8"),
    re.M | re.S,
)


def test_the_page_shows_a_pipe():
    assert len(PIPED) == 1


@pytest.mark.parametrize(("typed", "line", "output"), PIPED)
def test_the_page_shows_what_the_command_prints(typed, line, output):
    trace = "".join(f"{word}\n" for word in typed.split())
    result = CliRunner().invoke(main, shlex.split(line)[1:], input=trace)
    assert result.exit_code == 0, result.output
    assert doctest.OutputChecker().check_output(output, result.output, 0)
