"""`iosim fuzz`: it finds what is broken, makes it small, and ends as asked."""

import contextlib
import re
import signal
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from iosim import laws, softmax
from iosim.cli import main
from iosim.law_cases import CASES, KNOWN
from iosim.laws import LAWS, Failure, Law, run_law


def fuzz(*args: str) -> Result:
    return CliRunner().invoke(main, ["fuzz", *args])


def rows(result: Result) -> dict[str, tuple[int, str]]:
    """{law: (examples, verdict)} of the printed table."""
    table = result.stdout.split("\n\n")[0].splitlines()[1:]
    return {
        match[1]: (int(match[2].replace(" ", "")), match[3])
        for line in table
        if (match := re.fullmatch(r"(\S+) +([\d ]+?)  +(holds|FAILS|not run) .*", line))
    }


@pytest.fixture
def broken_merge(monkeypatch):
    """A merge that forgets to rescale the sum of one side."""

    def merge(a, b):
        m = np.maximum(a.m, b.m)
        f, g = softmax.rescale(a.m, m), softmax.rescale(b.m, m)
        return softmax.SoftmaxState(m, f * a.l + b.l, f[..., None] * a.o + g[..., None] * b.o)

    monkeypatch.setattr(softmax, "merge", merge)


def register(monkeypatch: pytest.MonkeyPatch, name: str, check: Any) -> None:
    monkeypatch.setitem(LAWS, name, Law(name, f"The law called {name}.", CASES, check))


def test_every_law_holds_and_is_counted():
    result = fuzz("--examples", "5", "--seed", "1")
    assert result.exit_code == 0
    table = rows(result)
    assert list(table) == list(LAWS)
    assert {verdict for _, verdict in table.values()} == {"holds"}
    for name, (examples, _) in table.items():
        assert examples == 5 + (len(KNOWN) if LAWS[name].cases is CASES else 0)
    assert "seed 1" in result.stderr
    assert "seed" not in result.stdout


@pytest.mark.usefixtures("broken_merge")
def test_a_broken_merge_is_found_made_small_and_printed_as_python():
    result = fuzz("--law", "merge-commutes", "--law", "exact-monoid", "--seed", "0")
    assert result.exit_code == 1
    assert rows(result)["merge-commutes"][1] == "FAILS"
    assert rows(result)["exact-monoid"][1] == "holds"
    assert "merge-commutes fails: AssertionError" in result.stdout
    python = result.stdout[result.stdout.index("from math import") :]
    # One row, two keys: as small as it can be.
    case = run_law(LAWS["merge-commutes"], examples=200, seed=0).case
    assert repr(case) in python
    assert (len(case.scores), len(case.values), len(case.values[0])) == (1, 2, 1)
    with pytest.raises(AssertionError):
        exec(python, {})


def test_python_of_a_failure_runs_once_the_fault_is_gone(monkeypatch):
    name = "poison-stays-in-its-row"
    with monkeypatch.context() as patch:
        stable_exp = softmax.stable_exp
        patch.setattr(softmax, "stable_exp", lambda *a: np.nan_to_num(stable_exp(*a)))
        failure = run_law(LAWS[name], examples=100, seed=0)
    assert "PoisonedCase(case=Case(" in failure.python
    exec(failure.python, {})


def test_a_law_of_ones_own_is_shrunk(monkeypatch):
    def no_large_score(case):
        assert np.max(case.scores) < 100, "a score of 100 or more"

    register(monkeypatch, "no-large-score", no_large_score)
    result = fuzz("--law", "no-large-score", "--seed", "0")
    assert result.exit_code == 1
    assert "no-large-score fails: AssertionError: a score of 100 or more" in result.stdout
    assert "scores=((100.0,),)" in result.stdout


def test_an_error_that_is_no_assertion_is_a_failure_too(monkeypatch):
    register(monkeypatch, "raises", lambda case: 1 // 0)
    result = fuzz("--law", "raises", "--examples", "3")
    assert result.exit_code == 1
    assert "raises fails: ZeroDivisionError: integer division or modulo by zero" in result.stdout


def test_known_cases_are_checked_after_the_random_ones(monkeypatch):
    seen = []
    register(monkeypatch, "watch", seen.append)
    fuzz("--law", "watch", "--examples", "2")
    assert tuple(seen[-len(KNOWN) :]) == KNOWN


def test_the_same_seed_gives_the_same_cases(monkeypatch):
    seen: list[list[object]] = []
    register(monkeypatch, "watch", lambda case: seen[-1].append(case))
    for seed in ("3", "3", "4"):
        seen.append([])
        fuzz("--law", "watch", "--examples", "20", "--seed", seed)
    assert repr(seen[0]) == repr(seen[1]) != repr(seen[2])


def test_rounds_go_on_until_the_time_is_over(monkeypatch):
    clock = [0.0]

    def tick(case):
        clock[0] += 1.0

    monkeypatch.setattr("iosim.cli.fuzz.time.monotonic", lambda: clock[0])
    register(monkeypatch, "tick", tick)
    register(monkeypatch, "tock", tick)
    result = fuzz("--law", "tick", "--law", "tock", "--minutes", "2", "--examples", "10")
    assert result.exit_code == 0
    # 120 seconds, a second an example, equal shares; known cases come with each round.
    assert sum(examples for examples, _ in rows(result).values()) == 120


def test_each_law_is_tried_however_short_the_time(monkeypatch):
    result = fuzz("--minutes", "1e-9", "--law", "exact-monoid", "--law", "any-tree")
    assert [examples for examples, _ in rows(result).values()] == [1, 1]


def test_a_failed_law_is_not_run_again(monkeypatch):
    def fails(case):
        raise AssertionError

    register(monkeypatch, "fails", fails)
    result = fuzz("--law", "fails", "--minutes", "inf")
    assert result.exit_code == 1


def test_interrupted_after_one_law(monkeypatch):
    calls = []

    def interrupt(case):
        calls.append(case)
        if len(calls) == 3:
            raise KeyboardInterrupt

    register(monkeypatch, "interrupt", interrupt)
    register(monkeypatch, "later", lambda case: None)
    result = fuzz(
        "--law", "exact-monoid", "--law", "interrupt", "--law", "later", "--examples", "5"
    )
    assert result.exit_code == 130
    assert rows(result) == {
        "exact-monoid": (5, "holds"),
        "interrupt": (3, "holds"),
        "later": (0, "not run"),
    }
    assert "interrupted" in result.stderr


def test_an_interrupt_that_is_swallowed_ends_the_run_all_the_same(monkeypatch):
    # Hypothesis has a hook in the garbage collector, where Python drops what is raised.
    def swallow(case):
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

    register(monkeypatch, "swallow", swallow)
    result = fuzz("--law", "swallow", "--minutes", "inf")
    assert result.exit_code == 130
    assert rows(result) == {"swallow": (1, "holds")}
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--law", "x"], "'x' is not a law: known are merge-commutes, "),
        (["--minutes", "0"], "0.0 is not in the range x>0"),
        (["--minutes", "nan"], "nan is not a number of minutes"),
        (["--examples", "0"], "0 is not in the range x>=1"),
    ],
)
def test_wrong_use(args, message):
    result = fuzz(*args)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""


def test_a_defect_of_the_harness_is_not_hidden(monkeypatch):
    monkeypatch.setattr(laws.hypothesis, "seed", None)
    with pytest.raises(TypeError):
        run_law(LAWS["exact-monoid"], examples=1, seed=0)


def test_failure_of_a_case_with_nan_can_be_pasted():
    failure = Failure("l", KNOWN[0], "error")
    assert failure.python.splitlines()[0] == "from math import inf, nan"
    assert sys.version_info >= (3, 11)


def test_nothing_is_left_in_the_current_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    run = [sys.executable, "-m", "iosim", "fuzz", "--examples", "1"]
    assert subprocess.run(run, check=False, capture_output=True).returncode == 0
    assert list(tmp_path.iterdir()) == []
