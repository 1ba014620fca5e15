"""`iosim audit`: one table, every source, wrong use, and a stand-in for ncu."""

import csv
import io
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from ncu_pages import DATA, FILE, FLASH, OTHER, RECORDED, raw_page

from iosim.audit.counters import ALL_METRICS, METRICS
from iosim.cli import main
from iosim.device import predict
from iosim.device.hbm import HbmTraffic
from iosim.errors import IosimError
from iosim.gpu import ncu


@pytest.fixture(autouse=True)
def _no_l2(monkeypatch):
    monkeypatch.setattr(predict, "simulate", lambda launch, device: HbmTraffic(1, 0, 10**12, 0))


def iosim(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["audit", *arguments])


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "page.csv"
    path.write_text(raw_page(FLASH, OTHER))
    return path


def test_one_table(page):
    done = iosim("--csv", str(page))
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0].split()[:3] == ["place", "kernel", "level"]
    assert [line.split("  ")[0] for line in lines[1:]] == ["0"] * 5 + ["1"] + ["all"] * 5
    assert "553 656 832" in done.stdout
    assert "nobody described" in lines[6]
    assert f"{553_656_832 + 67_108_864:,}".replace(",", " ") in lines[7]
    assert lines[7].endswith(
        "FlashAttention-2 forward 89.2%, vectorized_add(float *, float *, int) 10.8%"
    )
    assert "H200 is assumed" in done.stderr
    assert "n_q is taken as 8192" in done.stderr


def test_json_and_csv(page):
    records = json.loads(iosim("--csv", str(page), "--format", "json").stdout)["records"]
    assert [record["known_as"] for record in records] == ["FlashAttention-2 forward", None]
    assert records[0]["measured"]["dram_read"] == RECORDED[1]["kernels"][0]["dram_read"]
    assert records[0]["differences"][0]["level"] == "L2 to SM"
    done = iosim("--csv", str(page), "--format", "csv", "--device", "H200")
    assert "assumed" not in done.stderr.replace("is taken as", "")
    assert len(list(csv.reader(io.StringIO(done.stdout)))) == 12


def test_recordings_of_both_kinds(tmp_path):
    done = iosim("--recording", str(FILE))
    assert done.exit_code == 0
    assert "CUTLASS memory-efficient forward" in done.stdout
    some = iosim("--recording", str(FILE), "--case", "26,24")
    places = [line.split(" ")[0] for line in some.stdout.splitlines()[1::5]]
    assert places == ["26.0", "26.1", "26.2", "24"]
    document = json.loads((DATA / "h200_sweep.json").read_text())
    document["records"] = document["records"][:2]
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(document))
    done = iosim("--recording", str(path))
    assert done.exit_code == 0
    assert done.stdout.count("as its tiles say") == 4


def test_files_that_are_no_pages(tmp_path):
    path = tmp_path / "report.ncu-rep"
    path.write_bytes(b"NVR\x00\xff\xfe\x81")
    done = iosim("--csv", str(path))
    assert done.exit_code == 2
    assert "ncu --import FILE --csv" in done.stderr
    path.write_text(raw_page(FLASH).partition("program\n")[2], encoding="utf-8-sig")
    assert iosim("--csv", str(path)).exit_code == 0


def test_missing_counters_are_one_sentence(tmp_path):
    path = tmp_path / "page.csv"
    path.write_text(raw_page(FLASH, without=("lts__t_sectors_srcunit_tex_op_read.sum",)))
    done = iosim("--csv", str(path))
    assert done.exit_code == 0
    assert "lacks lts__t_sectors_srcunit_tex_op_read.sum; ncu --metrics" in done.stderr
    assert "L2 lookups" not in done.stdout
    path.write_text(raw_page(FLASH, without=tuple(metric for metric, _ in METRICS.values())))
    done = iosim("--csv", str(path))
    assert done.exit_code == 2
    assert "has none of the counters" in done.stderr


WRONG: dict[str, tuple[tuple[str, ...], str]] = {
    "nothing": ((), "give one of PROGRAM"),
    "two sources": (("--csv", "a", "--recording", "b"), "give one of PROGRAM"),
    "no file": (("--csv", "absent.csv"), "'absent.csv' cannot be read"),
    "a foreign file": (("--csv", str(Path(__file__))), "is no CSV of Nsight Compute"),
    "no recording": (("--recording", "absent.json"), "cannot be read"),
    "a shape beside a recording": (("--recording", str(FILE), "--seq-len", "8k"), "stand in the"),
    "a case that is not there": (("--recording", str(FILE), "--case", "71"), "the last one is 70"),
    "a case of no recording": (("--csv", str(FILE), "--case", "1"), "--case chooses from"),
    "another device": (("--recording", str(FILE), "--device", "A100"), "L2 of A100"),
    "an option of a program": (("python", "--version"), "--version"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_use_is_one_sentence(what):
    arguments, says = WRONG[what]
    done = iosim(*arguments)
    assert done.exit_code == 2
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('"ID","Kernel Name","dram__bytes_read.sum"\n"","","byte"\n', "has no kernel in it"),
        ("a,b\n1,2\n", "is no CSV of Nsight Compute"),
        ("", "is no CSV of Nsight Compute"),
        ("\x00\x01", "is no CSV of Nsight Compute"),
        (raw_page(FLASH, capability="8.0"), "compute capability 8.0"),
    ],
)
def test_wrong_pages_are_one_sentence(tmp_path, content, says):
    path = tmp_path / "page.csv"
    path.write_text(content)
    done = iosim("--csv", str(path))
    assert done.exit_code == 2
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("document", "says"),
    [({}, "neither cases nor records"), ({"cases": 3}, "no list of cases"),
     ({"records": []}, "no recording of schema")],
)  # fmt: skip
def test_wrong_recordings_are_one_sentence(tmp_path, document, says):
    path = tmp_path / "x.json"
    path.write_text(json.dumps(document))
    done = iosim("--recording", str(path))
    assert done.exit_code == 2
    assert says in done.stderr


# --- a program under a stand-in for ncu -----------------------------------------------------------

STAND_IN = """\
#!/bin/sh
while [ $# -gt 0 ]; do
  case "$1" in
    --log-file) log="$2"; shift 2;;
    --metrics) metrics="$2"; shift 2;;
    --profile-from-start) from="$2"; shift 2;;
    --csv|--page|--print-units|--clock-control|--cache-control) shift;;
    raw|base|none|all) shift;;
    *) break;;
  esac
done
echo "$from $metrics $*" > "{folder}/called"
{body}
"""


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Put a program called ncu on the PATH that takes ncu's options and then does `body`."""

    def install(body: str) -> Path:
        path = tmp_path / "ncu"
        path.write_text(STAND_IN.replace("{folder}", str(tmp_path)).replace("{body}", body))
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        return tmp_path / "called"

    return install


def test_a_program_is_profiled_from_its_start(stand_in, page):
    called = stand_in(f'cp "{page}" "$log"; "$@"')
    done = iosim("--", "python", "train.py", "--steps", "1")
    assert done.exit_code == 0
    assert "553 656 832" in done.stdout
    start, metrics, *program = called.read_text().split()
    assert start == "on"
    assert metrics.split(",") == list(ALL_METRICS)
    assert program == ["python", "train.py", "--steps", "1"]
    assert "the program ended with exit code" in done.stderr  # there is no train.py


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ('echo "==ERROR== ERR_NVGPUCTRPERM - no permission" > "$log"; exit 1', "administrators"),
        ('echo "==WARNING== No kernels were profiled." > "$log"', "launched no kernel"),
        ('echo "==ERROR== LibraryNotLoaded"; exit 1', "no hardware counters"),
        ("echo something else >&2; exit 3", "something else"),
    ],
)
def test_a_run_that_failed_is_one_sentence(stand_in, body, says):
    stand_in(body)
    done = iosim("--", "true")
    assert done.exit_code == 2
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_program_that_takes_too_long(stand_in):
    stand_in("exec sleep 30")
    done = iosim("--timeout", "1", "--", "true")
    assert done.exit_code == 2
    assert "still running after 1 s" in done.stderr


def test_without_ncu(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    done = iosim("--", "true")
    assert done.exit_code == 2
    assert "ncu is not on the PATH" in done.stderr
    with pytest.raises(IosimError, match="cannot be run"):
        ncu.run(str(tmp_path / "ncu"), ["true"], ["m"], from_start=True, timeout_seconds=1)


BOTH = "==ERROR== ERR_NVGPUCTRPERM - no permission\\n==WARNING== No kernels were profiled."


@pytest.mark.parametrize(
    ("body", "program", "says"),
    [
        (f'printf "{BOTH}" > "$log"', ("true",), "lets only administrators"),
        ('echo "==WARNING== No kernels were profiled." > "$log"; "$@"', ("cat", "absent"),
         "'cat absent' ended with exit code 1 (cat: absent: No such file or directory) before it"),
        ("true", ("true",), "ncu wrote no page and no reason; run it by hand"),
    ],
)  # fmt: skip
def test_what_failed_is_told_apart(stand_in, body, program, says):
    stand_in(body)
    done = iosim("--", *program)
    assert done.exit_code == 2
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_program_that_fails_late_is_audited_and_quoted(stand_in, page):
    stand_in(f'cp "{page}" "$log"; "$@"')
    done = iosim("--", "sh", "-c", "echo fine; echo out of luck >&2; exit 3")
    assert done.exit_code == 0
    assert "ended with exit code 3 (out of luck); the kernels until then are" in done.stderr
    assert "553 656 832" in done.stdout


def test_whatever_a_program_prints_is_no_fault(stand_in, page):
    stand_in(f'cp "{page}" "$log"; printf "caf\\351\\n" >> "$log"; "$@"')
    done = iosim("--", "printf", r"\377\376\200")
    assert done.exit_code == 0, done.exception
    assert "553 656 832" in done.stdout


def test_a_program_that_takes_too_long_is_ended_with_all_it_started(stand_in, tmp_path):
    stand_in(f"sh -c 'echo $$ > \"{tmp_path}/child\"; exec sleep 60'; true")
    done = iosim("--timeout", "1", "--", "true")
    assert done.exit_code == 2
    assert "still running after 1 s; give it longer" in done.stderr
    child = int((tmp_path / "child").read_text())
    for _ in range(100):  # whoever takes over orphans may need a moment to bury it
        status = Path(f"/proc/{child}/stat")
        if not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.05)
    raise AssertionError("the program of a profile that was ended is still running")
