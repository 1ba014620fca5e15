"""The option --pass of simulate, bound, tiles and explain: which schedules run, and their sums."""

import json
import re
from typing import Any

import naive
import pytest
from click.testing import CliRunner, Result

from iosim.bounds import bounds_of
from iosim.cli import main
from iosim.schedule import family
from iosim.shape import AttentionShape

SHAPE = ("--seq-len", "1k", "--head-dim", "64")
MEMORY = ("--sram", "100KiB")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def records(*arguments: str) -> list[dict[str, Any]]:
    result = run(*arguments, "--format", "json")
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)["records"]
    return found


def names(*arguments: str) -> list[str]:
    return [record["schedule"] for record in records(*arguments)]


def test_a_pass_is_that_of_the_schedules_named() -> None:
    of = ("simulate", *SHAPE, *MEMORY)
    assert names(*of, "--pass", "backward") == [
        *("standard_backward", "flash1_backward", "flash2_backward")
    ]
    assert names(*of, "--pass", "forward", "--schedule", "flash2,flash2_backward_q") == ["flash2"]
    both = names(*of, "--pass", "both", "--schedule", "flash2_backward_q")
    assert both == ["flash2", "flash2_backward_q", "flash2 + flash2_backward_q"]
    assert names(*of, "--schedule", "flash2_backward") == ["flash2_backward"]
    assert names("tiles", *SHAPE, *MEMORY, "--pass", "backward", "--tiles", "best") == [
        *("flash1_backward", "flash2_backward")
    ]


def test_a_step_has_the_sums_of_its_passes_and_what_recomputing_saves() -> None:
    """N = 1024, d = 64: standard stores and reads P, dP and dS, flash2 forms S and P again."""
    forward, backward, both = records(
        *("simulate", *SHAPE, *MEMORY, "--pass", "both", "--schedule", "flash2"),
        *("--br", "64", "--bc", "64"),
    )
    assert [record["pass"] for record in (forward, backward, both)] == [
        *("forward", "backward", "both")
    ]
    for key in ("total_words", "total_bytes", "read_bytes", "flops", "compulsory_words"):
        assert both[key] == forward[key] + backward[key]
    assert both["add_words"] == backward["add_words"] == 16 * 1024 * 64
    assert both["gap"] == both["total_words"] / both["lower_bound_words"]
    assert both["bound"] == "fused + backward_fused"
    assert both["recomputed_flops"] == 1024**2 * (2 * 64 + 3)
    shape = AttentionShape(1024, 1024, 64)
    standard = 11 * 1024**2 + 12 * 1024 * 64
    assert both["saved_words"] == standard - both["total_words"]
    assert forward["recomputed_flops"] is None
    built = family("flash2_backward").build(shape, br=64, bc=64)
    assert backward["total_words"] == naive.run_words(built)


def test_a_sweep_of_steps_pairs_the_same_tiles() -> None:
    found = records(
        *("simulate", *SHAPE, "--pass", "both", "--schedule", "flash2,standard"),
        *("--br", "16,32", "--bc", "8"),
    )
    pairs = [(r["pass"], r["br"]) for r in found]
    step = ["forward", "backward", "both"]
    assert pairs == [
        *zip(step, (16, 16, None), strict=True),
        *zip(step, (32, 32, None), strict=True),
        *((one, None) for one in step),
    ]
    assert all(r["fits"] is None and r["lower_bound_words"] is None for r in found)


def test_a_table_names_the_pass_where_it_is_not_forward() -> None:
    def table(*more: str) -> list[list[str]]:
        lines = run("simulate", *SHAPE, *MEMORY, *more).stdout.splitlines()
        first = next(i for i, line in enumerate(lines) if line.startswith("schedule"))
        return [re.split("  +", line) for line in lines[first:]]

    assert "pass" not in table()[0]
    head, *rows = table("--pass", "both")
    assert head[-2:] == ["recomputed (flops)", "saved (words)"]
    assert [row[head.index("pass")] for row in rows] == ["forward", "backward", "both"] * 3


def test_bounds_are_those_of_the_pass() -> None:
    found = records("bound", *SHAPE, *MEMORY, "--pass", "backward")
    assert [record["bound"] for record in found] == list(bounds_of("backward"))
    assert [r["bound"] for r in found if r["holds"]] == ["backward_compulsory", "backward_general"]
    named = records("bound", *SHAPE, *MEMORY, "--schedule", "flash1_backward")
    assert {r["bound"] for r in named if r["holds"]} == set(bounds_of("backward"))
    too_large = records(
        "bound", *SHAPE, *MEMORY, "--schedule", "flash1_backward", "--tiles", "paper"
    )
    assert {r["bound"] for r in too_large if r["holds"]} == {"backward_compulsory"}


def test_explain_tells_what_is_added() -> None:
    page = run("explain", *SHAPE, *MEMORY, "--pass", "backward", "--schedule", "flash2").stdout
    assert "adds to dQ_sum: T_c n_q d = " in page
    assert "adds T_c n_q d = " in page
    lines = records("explain", *SHAPE, *MEMORY, "--schedule", "flash2_backward")
    (adding,) = [line for line in lines if line.get("add_words")]
    assert (adding["add_formula"], adding["read_words"]) == ("T_c n_q d", 0)


@pytest.mark.parametrize("command", ["simulate", "explain", "bound", "tiles"])
def test_a_schedule_without_a_backward_pass_is_named(command: str) -> None:
    result = run(command, *SHAPE, *MEMORY, "--schedule", "standard_tiled", "--pass", "backward")
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: schedule 'standard_tiled' has no backward pass; ")
    assert "flash2" in result.stderr
    assert run(command, *SHAPE, "--pass", "sideways").exit_code == 2
