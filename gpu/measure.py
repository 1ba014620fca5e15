"""Hardware counters beside the count: run schedules under Nsight Compute in a subprocess."""

import datetime
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from iosim.audit.counters import METRICS, TIME
from iosim.audit.ncu_csv import read_page
from iosim.device.moves import SECTOR
from iosim.errors import IosimError
from iosim.gpu import ncu as nsight
from iosim.gpu.launch import context
from iosim.gpu.profiled import allocated_bytes, compile_all
from iosim.measured import ROW_SHAPE, Recording, Row
from iosim.schedule.tree import Schedule

# What a row of a recording calls the counters, and what ncu calls them.
COUNTERS = {
    "sm_read_bytes": METRICS["sm_fill"][0],
    "sm_write_bytes": METRICS["sm_drain"][0],
    "copy_bytes": "sm__sass_l1tex_m_xbar2l1tex_read_bytes_mem_global_op_ldgsts_cache_bypass.sum",
    "l2_read_sectors": METRICS["l2_tex_read"][0],
    "l2_write_sectors": METRICS["l2_tex_write"][0],
    "hbm_read_bytes": METRICS["dram_read"][0],
    "hbm_write_bytes": METRICS["dram_write"][0],
    "spill_store_sectors": METRICS["local_store"][0],
    "spill_load_sectors": METRICS["local_load"][0],
    "nanoseconds": TIME,
}
PACKAGES = ("iosim", "numba-cuda", "numba", "numpy", "cuda-bindings")


def measure(
    schedules: Sequence[Schedule],
    *,
    timeout_seconds: int = 3600,
    tuned: Mapping[str, Any] | None = None,
) -> Recording:
    """Run each schedule once under Nsight Compute, caches flushed before, and return the bytes.

    `tuned` is what their launches are told (see `iosim.gpu.plan.choose`).
    Raises IosimError where ncu is missing, where counters are forbidden or absent, and where the
    kernels cannot run.
    """
    ncu = nsight.find()
    device = context().device
    cases = [_case(schedule) | {"tuned": dict(tuned or {})} for schedule in schedules]
    compile_all(cases, os.cpu_count() or 1)
    with tempfile.TemporaryDirectory() as folder:
        given, answers = Path(folder, "cases"), Path(folder, "answers")
        given.write_text(json.dumps(cases), encoding="utf-8")
        done = nsight.run(
            ncu,
            (sys.executable, "-m", "iosim.gpu.profiled", str(given), str(answers)),
            tuple(COUNTERS.values()),
            from_start=False,
            timeout_seconds=timeout_seconds,
        )
        counters = parse(done.page)
        if done.returncode or not answers.is_file() or not any(counters):
            raise IosimError(nsight.explain(done.page + done.printed))
        kernels = [answer["kernels"] for answer in json.loads(answers.read_text("utf-8"))]
    rows = _rows(schedules, kernels, counters)
    return Recording(
        device=_text(device.name),
        driver=driver_version(),
        date=datetime.date.today().isoformat(),
        versions=versions() | {"ncu": nsight.version(ncu)},
        counters=COUNTERS,
        rows=tuple(rows),
    )


def _case(schedule: Schedule) -> dict[str, Any]:
    return {
        "schedule": schedule.name,
        "shape": schedule.shape.to_dict(ROW_SHAPE),
        "tiles": schedule.tiles,
    }


def parse(text: str) -> list[dict[str, float]]:
    """Return the counters of each profiled kernel, in order, from ncu's raw CSV page.

    Bytes, sectors and nanoseconds, whatever the units of the page. A counter that was not read is
    absent; nothing is returned for text that is no page.

    >>> parse('"ID","Kernel Name","dram__bytes_read.sum"\\n"","","Kbyte"\\n"0","k","1,024"\\n')
    [{'hbm_read_bytes': 1024000.0}]
    """
    try:
        kernels = read_page(text, "the log of ncu")
    except IosimError:
        return []
    found = []
    for kernel in kernels:
        values = {}
        for name, counter in COUNTERS.items():
            quantity = kernel.quantity(counter)
            if quantity is not None:
                nano = 1e9 if quantity.unit == "second" else 1.0
                values[name] = round(quantity.number * nano, 3)
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


def driver_version() -> str:
    """Return the version of the driver, or of its API where nvidia-smi is missing."""
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
