"""Hardware counters beside the count: run schedules under Nsight Compute in a subprocess."""

import csv
import datetime
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from iosim.errors import IosimError
from iosim.gpu.launch import context
from iosim.gpu.profiled import allocated_bytes, compile_all
from iosim.measured import Recording, Row
from iosim.schedule.tree import Schedule

SECTOR = 32  # bytes
COUNTERS = {
    "sm_read_bytes": "l1tex__m_xbar2l1tex_read_bytes.sum",
    "sm_write_bytes": "l1tex__m_l1tex2xbar_write_bytes.sum",
    "copy_bytes": "sm__sass_l1tex_m_xbar2l1tex_read_bytes_mem_global_op_ldgsts_cache_bypass.sum",
    "l2_read_sectors": "lts__t_sectors_srcunit_tex_op_read.sum",
    "l2_write_sectors": "lts__t_sectors_srcunit_tex_op_write.sum",
    "hbm_read_bytes": "dram__bytes_read.sum",
    "hbm_write_bytes": "dram__bytes_write.sum",
    "spill_store_sectors": "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum",
    "spill_load_sectors": "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum",
    "nanoseconds": "gpu__time_duration.sum",
}
PACKAGES = ("iosim", "numba-cuda", "numba", "numpy", "cuda-bindings")


def measure(schedules: Sequence[Schedule], *, timeout_seconds: int = 3600) -> Recording:
    """Run each schedule once under Nsight Compute, caches flushed before, and return the bytes.

    Raises IosimError where ncu is missing, where counters are forbidden or absent, and where the
    kernels cannot run.
    """
    ncu = shutil.which("ncu")
    if ncu is None:
        raise IosimError(
            "ncu is not on the PATH; install Nsight Compute, or run iosim gpu bench, which needs "
            "no counters"
        )
    device = context().device
    cases = [_case(schedule) for schedule in schedules]
    compile_all(cases, os.cpu_count() or 1)
    with tempfile.TemporaryDirectory() as folder:
        given, answers, log = (Path(folder, name) for name in ("cases", "answers", "log"))
        given.write_text(json.dumps(cases), encoding="utf-8")
        command = [
            ncu,
            *("--profile-from-start", "off", "--clock-control", "none", "--cache-control", "all"),
            *("--csv", "--page", "raw", "--print-units", "base"),
            *("--metrics", ",".join(COUNTERS.values()), "--log-file", str(log)),
            *(sys.executable, "-m", "iosim.gpu.profiled", str(given), str(answers)),
        ]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=timeout_seconds, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise IosimError(f"ncu was still running after {timeout_seconds} s") from error
        text = log.read_text(encoding="utf-8") if log.is_file() else ""
        if done.returncode or not answers.is_file() or not any(parse(text)):
            raise IosimError(explain(text + done.stdout + done.stderr))
        kernels = [answer["kernels"] for answer in json.loads(answers.read_text("utf-8"))]
    rows = _rows(schedules, kernels, parse(text))
    return Recording(
        device=_text(device.name),
        driver=_driver_version(),
        date=datetime.date.today().isoformat(),
        versions=versions() | {"ncu": ncu_version(ncu)},
        counters=COUNTERS,
        rows=tuple(rows),
    )


def _case(schedule: Schedule) -> dict[str, Any]:
    shape = schedule.shape
    names = ("n_q", "n_k", "head_dim", "batch", "heads", "kv_heads", "dtype", "causal", "align")
    return {
        "schedule": schedule.name,
        "shape": {name: getattr(shape, name) for name in names},
        "tiles": schedule.tiles,
    }


def explain(text: str) -> str:
    """Return one sentence for what ncu or the program under it printed when it failed.

    >>> explain("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission ...")[:42]
    'the driver lets only administrators read c'
    """
    if "ERR_NVGPUCTRPERM" in text:
        return (
            "the driver lets only administrators read counters (ERR_NVGPUCTRPERM); run as root or "
            "load the driver with NVreg_RestrictProfilingToAdminUsers=0"
        )
    if "LibraryNotLoaded" in text or "No kernels were profiled" in text:
        return (
            "this machine has no hardware counters that ncu can read (as in some virtual "
            "machines); iosim gpu bench needs none"
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line or "ERROR" in line]
    return f"the run under ncu failed: {(errors or lines or ['no reason given'])[-1]}"


def parse(text: str) -> list[dict[str, float]]:
    """Return the counters of each profiled kernel, in order, from ncu's raw CSV page.

    Under the header stands a row of units. A counter that was not read is absent.

    >>> parse('"ID","dram__bytes_read.sum"\\n"","byte"\\n"0","1,024"\\n')
    [{'hbm_read_bytes': 1024.0}]
    """
    lines = list(csv.reader(line for line in text.splitlines() if line.startswith('"')))
    if len(lines) < 2:
        return []
    header = lines[0]
    found = []
    for line in lines[2:]:
        cells = dict(zip(header, line, strict=False))
        values = {}
        for name, counter in COUNTERS.items():
            number = cells.get(counter, "").replace(",", "")
            if number and number[0].isdigit():
                values[name] = float(number)
        found.append(values)
    return found


def _rows(
    schedules: Sequence[Schedule],
    kernels: list[list[dict[str, Any]]],
    counters: list[dict[str, float]],
) -> list[Row]:
    """Add up the counters of each schedule's kernels."""
    if len(counters) != sum(map(len, kernels)):
        raise IosimError(
            f"ncu profiled {len(counters)} kernels, but {sum(map(len, kernels))} were launched"
        )
    rows, at = [], 0
    for schedule, used in zip(schedules, kernels, strict=True):
        mine = counters[at : at + len(used)]
        at += len(used)

        def total(*names: str, scale: int = 1, mine: Any = mine) -> int | None:
            if not all(name in values for values in mine for name in names):
                return None
            return int(scale * sum(values[name] for values in mine for name in names))

        nanoseconds = total("nanoseconds")
        rows.append(
            Row(
                schedule=schedule.name,
                shape=schedule.shape,
                tiles=dict(schedule.tiles),
                sm_read_bytes=total("sm_read_bytes"),
                sm_write_bytes=total("sm_write_bytes"),
                copy_bytes=total("copy_bytes"),
                l2_read_bytes=total("l2_read_sectors", scale=SECTOR),
                l2_write_bytes=total("l2_write_sectors", scale=SECTOR),
                hbm_read_bytes=total("hbm_read_bytes"),
                hbm_write_bytes=total("hbm_write_bytes"),
                spill_bytes=total("spill_store_sectors", "spill_load_sectors", scale=SECTOR),
                seconds=None if nanoseconds is None else nanoseconds * 1e-9,
                allocated_bytes=allocated_bytes(used),
                kernels=tuple(used),
            )
        )
    return rows


def versions() -> dict[str, str]:
    """Return the versions of what took part."""
    found = {"python": sys.version.split()[0]}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def ncu_version(ncu: str) -> str:
    """Return ncu's version, or 'unknown'."""
    done = subprocess.run([ncu, "--version"], capture_output=True, text=True, check=False)
    words = done.stdout.replace(",", " ").split()
    return next((word for word in words if word[:1].isdigit() and word.count(".") >= 2), "unknown")


def _driver_version() -> str:
    nvidia_smi = shutil.which("nvidia-smi")
    if nvidia_smi:
        query = [nvidia_smi, "--query-gpu=driver_version", "--format=csv,noheader"]
        done = subprocess.run(query, capture_output=True, text=True, check=False)
        if done.returncode == 0 and done.stdout.strip():
            return done.stdout.split()[0]
    from cuda.bindings import driver

    return str(driver.cuDriverGetVersion()[1])


def _text(name: Any) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)
