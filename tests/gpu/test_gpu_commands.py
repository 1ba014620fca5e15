"""`iosim gpu` on a machine without a GPU; and what ncu prints, parsed."""

import json

import pytest
from click.testing import CliRunner

from iosim.cli import main
from iosim.gpu.measure import parse
from iosim.gpu.ncu import explain
from iosim.measured import load

SMALL = ["--seq-len", "40", "--head-dim", "16", "--br", "32", "--bc", "16"]


def iosim(*words):
    return CliRunner().invoke(main, ["gpu", *words])


@pytest.fixture
def without_gpu():
    from iosim.gpu.launch import context

    try:
        context()
    except Exception:
        return
    pytest.skip("this machine has a GPU")


def test_the_emulator_counts_what_count_counts(tmp_path):
    path = tmp_path / "emulated.json"
    done = iosim("measure", "--emulate", *SMALL, "--format", "json", "-o", str(path))
    assert done.exit_code == 0, done.output
    (row,) = load(path).rows
    assert row.sm_read_bytes == row.counted().read_bytes
    assert row.sm_write_bytes == row.counted().write_bytes
    record = json.loads(path.read_text())["records"][0]
    assert record["memory_words"] == 2 * 32 * 16


@pytest.mark.usefixtures("without_gpu")
@pytest.mark.parametrize("command", ["run", "measure", "bench"])
def test_without_a_gpu_a_command_is_one_sentence(command):
    done = iosim(command, *SMALL)
    assert done.exit_code == 2
    assert done.output.startswith("Error: ")
    assert done.output.count("\n") == 1


@pytest.mark.usefixtures("without_gpu")
def test_the_doctor_says_what_is_missing():
    done = iosim("doctor", "--format", "json")
    assert done.exit_code == 1
    records = {record["check"]: record for record in json.loads(done.output)["records"]}
    assert records["device"]["do"] or records["numba-cuda"]["do"]
    assert all(record["do"] for record in records.values() if not record["fine"])


def test_a_schedule_without_tiles_has_no_kernel():
    done = iosim("run", "--schedule", "standard", *SMALL)
    assert done.exit_code == 2
    assert "standard_tiled" in done.output


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", "administrators"),
        ("==ERROR== Failed to initialize the profiler: LibraryNotLoaded", "no hardware counters"),
        ("RuntimeError: something else", "RuntimeError: something else"),
    ],
)
def test_three_failures_of_counters_are_three_sentences(text, says):
    assert says in explain(text)
    assert "\n" not in explain(text)


def test_the_raw_page_has_a_row_of_units_and_absent_counters():
    page = (
        "==PROF== Connected\n"
        '"ID","Kernel Name","dram__bytes_read.sum","gpu__time_duration.sum"\n'
        '"","","byte","ns"\n'
        '"0","k","3,181,568","24,384"\n'
        '"1","k","n/a","10"\n'
    )
    assert parse(page) == [{"hbm_read_bytes": 3181568, "nanoseconds": 24384}, {"nanoseconds": 10}]
    assert parse("==ERROR== nothing\n") == []
