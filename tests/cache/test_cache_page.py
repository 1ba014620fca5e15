"""The page about caches shows what the command prints."""

import doctest
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from test_cache_cli import group

PAGE = Path(__file__).parents[2] / "docs" / "cache.md"
SHOWN = re.findall(r"^```text\n\$ (.*?)\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)


def test_the_page_shows_commands():
    assert len(SHOWN) >= 3


@pytest.mark.parametrize(("line", "output"), SHOWN)
def test_the_page_shows_what_the_command_prints(line, output):
    typed = ""
    if line.startswith("printf"):
        printed, line = line.split(" | ")
        typed = "".join(f"{word}\n" for word in shlex.split(printed)[2:])
    assert line.startswith("iosim cache ")
    result = CliRunner().invoke(group(), shlex.split(line)[1:], input=typed)
    assert result.exit_code == 0, result.output
    assert doctest.OutputChecker().check_output(output, result.output, doctest.ELLIPSIS)
