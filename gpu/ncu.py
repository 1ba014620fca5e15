"""Nsight Compute as a subprocess: how it is called, and what its failures mean. Needs no numba."""

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from iosim.errors import IosimError


@dataclass(frozen=True)
class Profiled:
    """What came of a run under ncu: its exit code, its CSV page, and all else that was printed."""

    returncode: int
    page: str
    printed: str


def find() -> str:
    """Return the path of ncu.

    Raises IosimError where it is not installed.
    """
    ncu = shutil.which("ncu")
    if ncu is None:
        raise IosimError(
            "ncu is not on the PATH; install Nsight Compute, or work without counters: "
            "iosim gpu bench times kernels, iosim audit --csv reads a page made elsewhere"
        )
    return ncu


def run(
    ncu: str,
    program: Sequence[str],
    metrics: Sequence[str],
    *,
    from_start: bool,
    timeout_seconds: int,
) -> Profiled:
    """Run a program under ncu, caches flushed before each kernel, clocks as they are.

    Without `from_start` only what the program brackets is profiled. Raises IosimError where it is
    still running after `timeout_seconds`.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        command = [
            ncu,
            *("--profile-from-start", "on" if from_start else "off"),
            *("--clock-control", "none", "--cache-control", "all"),
            *("--csv", "--page", "raw", "--print-units", "base"),
            *("--metrics", ",".join(metrics), "--log-file", str(log)),
            *program,
        ]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=timeout_seconds, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise IosimError(f"ncu was still running after {timeout_seconds} s") from error
        except OSError as error:
            raise IosimError(f"ncu cannot be run ({error.strerror})") from error
        page = log.read_text(encoding="utf-8") if log.is_file() else ""
        return Profiled(done.returncode, page, done.stdout + done.stderr)


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


def version(ncu: str) -> str:
    """Return ncu's version, or 'unknown'."""
    done = subprocess.run([ncu, "--version"], capture_output=True, text=True, check=False)
    words = done.stdout.replace(",", " ").split()
    return next((word for word in words if word[:1].isdigit() and word.count(".") >= 2), "unknown")
