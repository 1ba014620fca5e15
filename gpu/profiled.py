"""The program that runs under Nsight Compute: launches cases one by one, each bracketed.

`python -m iosim.gpu.profiled CASES ANSWERS` reads a JSON list of cases and writes what it launched.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from iosim.gpu.launch import Prepared, capability, limits, machine_code
from iosim.gpu.plan import GRID_ORDERS, Limits, launches
from iosim.precision import precision
from iosim.schedule.registry import family
from iosim.schedule.tree import Schedule
from iosim.shape import AttentionShape

REGISTER_BYTES = 4
COMPILE_SECONDS = 600


def schedule_of(case: dict[str, Any]) -> Schedule:
    """Return the schedule of a case: {"schedule": name, "shape": {...}, "tiles": {...}}.

    A case may say under "tuned" what else its launch is told.
    """
    return family(case["schedule"]).build(AttentionShape(**case["shape"]), **case["tiles"])


def random_arrays(shape: AttentionShape, seed: int = 0) -> list[np.ndarray[Any, Any]]:
    """Return random Q, K and V: a million words, repeated, as counters do not look at values."""
    rng = np.random.default_rng(seed)
    storage = precision(shape.dtype).storage
    made = []
    for heads, n in ((shape.heads, shape.n_q), *[(shape.kv_heads, shape.n_k)] * 2):
        size = shape.batch * heads * n * shape.head_dim
        words = rng.standard_normal(min(size, 1 << 20), np.float32).astype(storage)
        made.append(np.resize(words, (shape.batch, heads, n, shape.head_dim)))
    return made


def launch_all(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Launch each case between profiler marks; return its kernels' resources in order."""
    from numba import cuda

    answers = []
    for case in cases:
        schedule = schedule_of(case)
        tuned = case.get("tuned")
        prepared = Prepared(schedule, *random_arrays(schedule.shape), tuned=tuned)
        cuda.synchronize()
        cuda.profile_start()
        prepared.launch()
        cuda.synchronize()
        cuda.profile_stop()
        kernels = [
            {
                "kernel": kernel.variant.kernel,
                "threads": kernel.variant.threads,
                "registers": kernel.registers,
                "shared_bytes": kernel.variant.shared_bytes,
                "local_bytes": kernel.local_bytes,
                "m_tiles": kernel.variant.m_tiles,
                "step": kernel.variant.step,
                "stages": kernel.variant.stages,
                **{name: True for name in GRID_ORDERS if getattr(kernel.variant, name)},
            }
            for kernel in prepared.kernels
        ]
        answers.append({"kernels": kernels})
        prepared.release()
    return answers


def allocated_bytes(kernels: list[dict[str, Any]]) -> int:
    """Return the shared memory and registers that a block has, in bytes, of the largest kernel."""
    largest: int = max(
        kernel["shared_bytes"] + REGISTER_BYTES * kernel["registers"] * kernel["threads"]
        for kernel in kernels
    )
    return largest


def compile_all(cases: list[dict[str, Any]], processes: int) -> None:
    """Compile what the cases need into the cache, in so many processes; needs a device."""
    target = json.dumps(capability())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "cases")
        path.write_text(json.dumps(cases), encoding="utf-8")
        program = [sys.executable, "-m", "iosim.gpu.profiled", "--compile", str(path), target]
        workers = [
            subprocess.Popen([*program, json.dumps([limits().__dict__, i, processes])])
            for i in range(processes)
        ]
        for worker in workers:
            try:
                worker.wait(COMPILE_SECONDS)  # what fails here, the launch says again, in order
            except subprocess.TimeoutExpired:
                worker.kill()


def _compile(cases: list[dict[str, Any]], target: Any, share: Any) -> None:
    """Compile every so many-th variant of the cases."""
    given, first, step = share
    variants = {
        launch.variant: launch
        for case in cases
        for launch in launches(schedule_of(case), limits=Limits(**given), tuned=case.get("tuned"))
    }
    for variant, launch in list(variants.items())[first::step]:
        machine_code(variant, launch, target)


if __name__ == "__main__":
    if sys.argv[1] == "--compile":
        _compile(
            json.loads(Path(sys.argv[2]).read_text(encoding="utf-8")),
            tuple(json.loads(sys.argv[3])),
            json.loads(sys.argv[4]),
        )
    else:
        given = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
        Path(sys.argv[2]).write_text(json.dumps(launch_all(given)), encoding="utf-8")
