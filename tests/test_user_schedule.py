"""A schedule of one's own in a file outside the package, and what may be wrong with such a file."""

import ast
import re
from pathlib import Path

import naive
import numpy as np
import pytest
import strategies
import trees
from hypothesis import given
from hypothesis import strategies as st

from iosim import bounds, reference
from iosim.errors import IosimError
from iosim.reading.check import check
from iosim.reading.count import count
from iosim.reading.execute import execute
from iosim.reading.formula import formula
from iosim.schedule import families, family
from iosim.schedule.operations import ANY, operations
from iosim.shape import AttentionShape
from iosim.tiles import choose_tiles

EXAMPLE = trees.EXAMPLES / "split_loads.py"
OWN = family(f"{EXAMPLE}:split_loads")


def test_the_example_is_short() -> None:
    (function,) = (n for n in ast.parse(EXAMPLE.read_text()).body if isinstance(n, ast.FunctionDef))
    assert function.end_lineno is not None
    assert function.end_lineno - function.lineno < 25


def test_the_file_tells_its_tiles_and_its_summary() -> None:
    assert (OWN.name, OWN.tiles) == ("split_loads", ("br", "bc"))
    assert OWN.summary.startswith("Load K_j, release it, then load V_j")
    assert "load V_j" in str(OWN.build(AttentionShape(8, 8, 4), br=2, bc=2))


@given(strategies.shapes(), st.integers(1, 9), st.integers(1, 9))
def test_all_readings_agree_on_it(shape: AttentionShape, br: int, bc: int) -> None:
    schedule = OWN.build(shape, br=br, bc=bc)
    run, counted = naive.Run(schedule), count(schedule)
    assert counted.total_words == formula(schedule).value() == sum(run.tensors.values())
    assert (counted.peak_words, counted.flops) == (run.peak_words, run.flops)
    assert check(schedule).peak_words == run.peak_words


def test_it_computes_attention_in_less_memory_and_is_not_fused() -> None:
    shape = AttentionShape(50, 70, 8, dtype="float64", causal=True)
    schedule = OWN.build(shape, br=16, bc=16)
    rng = np.random.default_rng(2)
    q, k, v = (rng.normal(size=(n, 8)) for n in (50, 70, 70))
    done = execute(schedule, q, k, v)
    visible = np.array(naive.visible_matrix(50, 70, 20))
    # Errors of float64: some hundred roundings of numbers of size 1 are far below 1e-12.
    np.testing.assert_allclose(done.O, reference.attention(q, k, v, visible)[0], atol=1e-12)
    assert done.traffic == count(schedule)

    flash2 = family("flash2").build(shape, br=16, bc=16)
    mine, theirs = check(schedule), check(flash2)
    assert theirs.peak_words - mine.peak_words == 16 * 8
    assert (mine.fused, theirs.fused) == (False, True)
    held = {b.name for b in bounds.lower_bounds(shape, mine.peak_words, mine) if b.holds}
    assert held == {
        *("compulsory", "general", "general_large_memory"),
        *("whole_rows", "whole_rows_large_memory"),
    }


def test_tiles_are_chosen_for_it_and_the_papers_rule_is_not_its_own() -> None:
    shape = AttentionShape(4096, 4096, 64)
    chosen = choose_tiles(OWN, shape, 16384)
    check(OWN.build(shape, **chosen.sizes), capacity=16384)
    with pytest.raises(IosimError, match="--tiles paper is not a rule that split_loads has"):
        choose_tiles(OWN, shape, 16384, "paper")


def write(folder: Path, text: str) -> Path:
    path = folder / "mine.py"
    path.write_text(text, encoding="utf-8")
    return path


REGISTERED = """\
from iosim.schedule import family, schedule

@schedule("my flash", source="me", paper=lambda shape, words: {"br": 1, "bc": words})
def mine(shape, br, bc):
    "A summary of mine."
    return family("flash2").build(shape, br=br, bc=bc)
"""


def test_a_registered_schedule_keeps_its_source_and_rule(tmp_path: Path) -> None:
    found = family(f"{write(tmp_path, REGISTERED)}:mine")
    assert (found.name, found.source, found.summary) == ("my flash", "me", "A summary of mine.")
    shape = AttentionShape(8, 8, 8)
    assert choose_tiles(found, shape, 7, "paper").sizes == {"br": 1, "bc": 7}
    assert count(found.build(shape, br=2, bc=2)) == count(family("flash2").build(shape, br=2, bc=2))
    assert "my flash" not in families(), "it is not built in"


def test_a_file_is_run_anew_each_time(tmp_path: Path) -> None:
    path = write(tmp_path, "def mine(shape, br): 'One'")
    assert family(f"{path}:mine").tiles == ("br",)
    path.write_text("def mine(shape, width, height): 'Two, of another length'", encoding="utf-8")
    assert family(f"{path}:mine").tiles == ("width", "height")


def test_a_file_may_define_dataclasses(tmp_path: Path) -> None:
    text = "from __future__ import annotations\nfrom dataclasses import dataclass\n"
    text += "@dataclass\nclass A:\n    b: int = 0\ndef mine(shape): ..."
    assert family(f"{write(tmp_path, text)}:mine").tiles == ()


FILES = {
    "a syntax error": ("def mine(shape)\n", "cannot be run: SyntaxError: expected ':'"),
    "an error": ("raise RuntimeError('one\\ntwo')", "cannot be run: RuntimeError: one"),
    "an error without words": ("assert False", "cannot be run: AssertionError"),
    "an exit": ("import sys; sys.exit(3)", "cannot be run: SystemExit: 3"),
    "a missing module": ("import no_such_module", "cannot be run: ModuleNotFoundError: No module"),
    "no function": ("x = 1", "has no function 'mine', nor any"),
    "a function of another name": (
        "from iosim.schedule import load\ndef mime(shape): ...",
        "unknown function 'mine'; did you mean 'mime'? known: mime in",
    ),
    "a value": ("mine = 3\ndef other(shape): ...", "unknown function 'mine'; known: other in"),
    "a class": ("class mine: ...\n", "has no function 'mine'"),
    "no shape": ("def mine(): ...", "must take a shape and then tile sizes by name"),
    "any arguments": ("def mine(*args): ...", "must take a shape and then tile sizes by name"),
    "any tiles": ("def mine(shape, **tiles): ...", "must take a shape and then tile sizes by name"),
    "a built-in's name": (
        "from iosim.schedule import schedule\n@schedule('flash2', source='')\ndef mine(shape): ...",
        "schedule 'flash2' is built in; give yours another name",
    ),
}


def one_sentence(caught: pytest.ExceptionInfo[IosimError]) -> str:
    text = str(caught.value)
    assert "\n" not in text
    assert ". " not in text
    return text


@pytest.mark.parametrize("what", FILES)
def test_a_file_that_cannot_be_used_is_told_in_a_sentence(what: str, tmp_path: Path) -> None:
    text, complaint = FILES[what]
    path = write(tmp_path, text)
    with pytest.raises(IosimError) as caught:
        family(f"{path}:mine")
    sentence = one_sentence(caught)
    assert complaint in sentence
    assert what == "a built-in's name" or str(path) in sentence
    assert family("flash2").build.__module__ == "iosim.schedule.flash2"


def test_a_file_that_is_not_text_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    with pytest.raises(IosimError, match="does not exist or is not a file"):
        family(f"{path}:mine")
    path.mkdir()
    with pytest.raises(IosimError, match="does not exist or is not a file"):
        family(f"{path}:mine")
    path.rmdir()
    path.write_bytes(b"\x00\xff\xfe\x7fELF")
    with pytest.raises(IosimError, match="cannot be run: SyntaxError") as caught:
        family(f"{path}:mine")
    one_sentence(caught)


@pytest.mark.parametrize("name", ["mine.py", "mine.txt:flash2", "flash2:mine", ":flash2", ""])
def test_a_name_that_is_neither_built_in_nor_a_file(name: str) -> None:
    with pytest.raises(IosimError) as caught:
        family(name)
    sentence = one_sentence(caught)
    assert sentence.startswith(f"unknown schedule '{name}'")
    assert sentence.endswith("or path/to/file.py:name for one of your own")


BUILDERS = {
    "nothing": ("def mine(shape, br): ...", "returns a NoneType, but it must return a Schedule"),
    "an error": (
        "def mine(shape, br): return 1 / (br - br)",
        "cannot build a schedule: ZeroDivisionError: division by zero",
    ),
    "a tile that is not its own": (
        "def mine(shape, br): return family('flash2').build(shape, br, 1, 2)\n"
        "from iosim.schedule import family",
        "cannot build a schedule: TypeError: flash2() takes 3",
    ),
    "an exit": (
        "def mine(shape, br): raise SystemExit(3)",
        "cannot build a schedule: SystemExit: 3",
    ),
    "an error of ours": (
        "def mine(shape, br): return family('flash2').build(shape, br, 0)\n"
        "from iosim.schedule import family",
        "tile size bc is 0",
    ),
}


@pytest.mark.parametrize("what", BUILDERS)
def test_a_function_that_builds_no_schedule_is_told_in_a_sentence(
    what: str, tmp_path: Path
) -> None:
    text, complaint = BUILDERS[what]
    path = write(tmp_path, text)
    found = family(f"{path}:mine")
    with pytest.raises(IosimError) as caught:
        found.build(AttentionShape(8, 8, 8), br=3)
    sentence = one_sentence(caught)
    assert complaint in sentence
    assert what == "an error of ours" or str(path) in sentence


def test_an_interrupt_while_a_file_runs_stays_one(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        family(f"{write(tmp_path, 'raise KeyboardInterrupt')}:mine")


def test_an_interrupt_while_a_schedule_is_built_stays_one(tmp_path: Path) -> None:
    text = "def mine(shape): raise KeyboardInterrupt"
    with pytest.raises(KeyboardInterrupt):
        family(f"{write(tmp_path, text)}:mine").build(AttentionShape(8, 8, 8))


def test_what_a_file_prints_is_no_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "print('file')\n" + EXAMPLE.read_text().replace("    p =", "    print('build')\n    p =")
    path = write(tmp_path, text)
    family(f"{path}:{EXAMPLE.stem}").build(AttentionShape(8, 8, 8), br=2, bc=2)
    out, err = capsys.readouterr()
    assert (out, err) == ("", "file\nbuild\n")


def test_a_name_too_long_for_a_file_is_not_there() -> None:
    with pytest.raises(IosimError, match="does not exist or is not a file"):
        family(f"{'a' * 300}.py:mine")


def test_the_page_lists_every_operation_with_its_operands() -> None:
    page = (trees.EXAMPLES.parent / "own-schedule.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `(\w+)` \| `?([^|`]+?)`? \|", page, re.MULTILINE))
    assert listed == {
        name: "anything" if known.takes == ANY else known.takes
        for name, known in operations().items()
    }
