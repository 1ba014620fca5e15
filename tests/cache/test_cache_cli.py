"""`iosim cache`: records, choices, errors in one sentence, and Ctrl-C."""

import gzip
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from iosim import cli
from iosim.cache import CacheConfig, driver, read_trace, simulate
from iosim.reading.trace import trace
from iosim.schedule import family
from iosim.shape import AttentionShape


def group():
    return cli.LazyGroup(
        "iosim",
        lazy={"cache": cli.LazyCommand("iosim.cli.cache:cache", "Count caches.")},
        callback=cli.main.callback,
    )


def run(*arguments, text=None):
    result = CliRunner().invoke(group(), ["cache", *map(str, arguments)], input=text)
    assert not result.exception or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def records(*arguments, text=None):
    code, out, err = run(*arguments, "--format", "json", text=text)
    assert code == 0, err
    return json.loads(out)["records"]


@pytest.fixture
def ids(tmp_path):
    path = tmp_path / "ids.txt"
    path.write_text("".join(f"{k * k % 97}\n" for k in range(500)))
    return path


FLASH = ["--schedule", "flash2", "--seq-len", "32", "--head-dim", "8", "--br", "8", "--bc", "8"]


def test_records_of_a_trace(ids):
    found = records(ids, "--policy", "lru,opt,fifo", "--capacity", "4..16:x2")
    expected = [
        result.to_dict() for result in simulate(read_trace(ids), ["lru", "opt", "fifo"], [4, 8, 16])
    ]
    # Those that other programs may count on; there are more.
    keys = [
        *("policy", "capacity_lines", "line_bytes", "ways", "accesses", "reads", "writes"),
        *("hits", "misses", "compulsory", "evictions", "writebacks"),
    ]
    assert [{key: one[key] for key in keys} for one in found] == [
        {key: one[key] for key in keys} for one in expected
    ]
    assert found[0]["trace"] == str(ids)


def test_size_line_and_ways(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("address,op\n" + "".join(f"{40 * k},{'rw'[k % 2]}\n" for k in range(300)))
    (one,) = records(path, "--size", "4KiB", "--line", 64, "--ways", 4)
    (expected,) = simulate(
        read_trace(path, line_bytes=64), ["lru"], [64], CacheConfig(1, line_bytes=64, ways=4)
    )
    assert {key: one[key] for key in expected.to_dict()} == expected.to_dict()
    (other,) = records(
        path, "--capacity", 64, "--line", 64, "--write-through", "--no-write-allocate"
    )
    assert (other["writebacks"], other["writethroughs"]) == (0, other["writes"])


def test_curve_shows_every_change(ids):
    found = records(ids, "--curve", "--policy", "lru,opt")
    single = records(ids, "--policy", "lru,opt", "--capacity", "1..97:+1")
    curve = {(one["policy"], one["capacity_lines"]): one["misses"] for one in found}
    misses = {}
    for one in single:
        key = (one["policy"], one["capacity_lines"])
        misses[one["policy"]] = curve.get(key, misses.get(one["policy"]))
        assert misses[one["policy"]] == one["misses"]
    assert len(found) < len(single)
    (chosen,) = records(ids, "--curve", "--capacity", 7)
    assert chosen["misses"] == next(
        one["misses"] for one in single if (one["policy"], one["capacity_lines"]) == ("lru", 7)
    )


def test_standard_input_and_compression(ids, tmp_path):
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(ids.read_bytes()))
    expected = records(ids, "--capacity", 8)[0]["misses"]
    assert records(packed, "--capacity", 8)[0]["misses"] == expected
    assert records("-", "--capacity", 8, text=ids.read_text())[0]["misses"] == expected


def test_schedules_beside_the_explicit_scratchpad():
    (words,) = records(*FLASH, "--line", "word", "--size", "100w", "--policy", "opt")
    schedule = family("flash2").build(AttentionShape(32, 32, 8), br=8, bc=8)
    (expected,) = simulate(trace(schedule), ["opt"], [100], CacheConfig(1, line_bytes=None))
    assert words["misses"] == expected.misses
    assert words["moved_words"] == expected.moved_lines
    assert words["explicit_words"] == 32 * 8 + 4 * 2 * 32 * 8 + 32 * 9
    lines = records(*FLASH, "--line", 32, "--capacity", "1k", "--policy", "lru,fifo")
    assert [one["policy"] for one in lines] == ["lru", "fifo"]
    assert lines[0]["moved_bytes"] == 32 * (lines[0]["fetched"] + lines[0]["writebacks"])
    many = records(
        "--schedule",
        "flash1,flash2",
        "--seq-len",
        "16,32",
        "--head-dim",
        8,
        "--sram",
        "600w",
        "--capacity",
        8,
    )
    assert [(one["schedule"], one["n_q"]) for one in many] == [
        ("flash1", 16),
        ("flash2", 16),
        ("flash1", 32),
        ("flash2", 32),
    ]


@pytest.mark.parametrize("name", ["t.din", "t.lackey.gz", "t.csv.zst", "t.csv"])
def test_export_and_read_again(tmp_path, name):
    path = tmp_path / name
    code, out, err = run(*FLASH, "--line", 64, "--export", path)
    assert (code, out) == (0, "")
    assert str(path) in err
    (direct,) = records(*FLASH, "--line", 64, "--capacity", 16)
    (again,) = records(path, "--line", 64, "--capacity", 16)
    for key in ("accesses", "writes", "misses", "writebacks"):
        assert again[key] == direct[key]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "TRACE is missing"),
        (["absent.txt", "--capacity", "4"], "trace 'absent.txt' cannot be read"),
        (["{ids}"], "--capacity is missing"),
        (["{ids}", "--capacity", "0"], "'0' is too small"),
        (["{ids}", "--capacity", "8", "--ways", "3"], "3 ways do not divide a capacity of 8 lines"),
        (["{ids}", "--capacity", "8", "--size", "8B"], "--capacity and --size"),
        (["{ids}", "--size", "8w"], "--size 8w is not in bytes"),
        (["{ids}", "--size", "100B", "--line", "64"], "no whole number of lines of 64 bytes"),
        (["{ids}", "--capacity", "8", "--line", "word"], "--line word is for schedules"),
        (["{ids}", "--capacity", "8", "--policy", "mru"], "policy 'mru'"),
        (["{ids}", "--curve", "--policy", "fifo"], "policy 'fifo' has no miss curve"),
        (["{ids}", "--curve", "--ways", "2"], "a miss curve is for fully associative caches"),
        (["{ids}", "--capacity", "8", "--policy", "plru"], "policy 'plru'"),
        (["{ids}", "--capacity", "8", "--bypass"], "bypass is not for policy 'lru'"),
        (["{ids}", "--schedule", "flash2", "--capacity", "8"], "give one"),
        (["{ids}", "--export", "x.bin"], "names no format"),
        (["{ids}", "--export", ""], "--export '' names no format"),
        (["{ids}", "--export", "nodir/x.din"], "--export 'nodir/x.din' cannot be written"),
        (["{bad}", "--capacity", "8"], "line 2: 'x' is malformed"),
        (["{empty}", "--capacity", "8"], "is empty"),
        (["{cut}", "--capacity", "8"], "ends before its compressed data does"),
        ([*FLASH, "--capacity", "8", "--line", "0"], "'0' is too small"),
    ],
)
def test_wrong_use_is_one_sentence(ids, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad").write_text("1\nx\n")
    (tmp_path / "empty").write_text("")
    (tmp_path / "cut").write_bytes(gzip.compress(b"1\n" * 1000)[:-10])
    places = {"ids": ids, "bad": "bad", "empty": "empty", "cut": "cut"}
    code, out, err = run(*[str(each).format(**places) for each in arguments])
    assert (code, out) == (2, "")
    assert words in err
    message = err[err.index("Error: ") :]
    assert len(message.strip().splitlines()) == 1
    assert not (tmp_path / "x.bin").exists()


SCRIPT = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_cache_cli import group
group()()
"""


@pytest.mark.parametrize("policy", ["lru", "opt"])
def test_an_interrupt_prints_what_was_counted(policy):
    """An endless trace on standard input; Ctrl-C comes while the command waits for more."""
    command = [
        sys.executable,
        "-c",
        SCRIPT,
        "cache",
        "-",
        "--capacity",
        "8",
        "--policy",
        policy,
        "--format",
        "json",
    ]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdin.write(b"".join(b"%d\n" % (k % 10) for k in range(3_000_000)))
        process.stdin.flush()
        # It has read a megabyte at least: what does not fit in the pipe waits until then.
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    (one,) = json.loads(out)["records"]
    assert one["partial"] is True
    assert 0 < one["accesses"] <= 3_000_000
    assert one["hits"] + one["misses"] == one["accesses"]
    assert b"partial" in err
    assert b"Traceback" not in err


def test_part_of_a_schedule_is_not_compared_with_all_of_it(monkeypatch):
    whole = driver.drive
    monkeypatch.setattr(driver, "drive", lambda *given: whole(*given) and False)
    code, out, _ = run(*FLASH, "--capacity", 8, "--format", "json")
    (one,) = json.loads(out)["records"]
    assert (code, one["partial"], one["moved_over_explicit"]) == (130, True, None)


def test_help_needs_no_heavy_package():
    code = "import sys\nfrom iosim.cli.cache import cache\nprint('numba' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
