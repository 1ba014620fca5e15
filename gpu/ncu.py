"""Nsight Compute as a subprocess: how it is called, and what its failures mean. Needs no numba."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from iosim.errors import IosimError

PERMISSION = "ERR_NVGPUCTRPERM"
NO_KERNELS = "No kernels were profiled"


@dataclass(frozen=True)
class Profiled:
    """What came of a run under ncu: its exit code, its CSV page, and all else that was printed."""

    returncode: int
    page: str
    printed: str

    @property
    def last_words(self) -> str:
        """The last line that the program printed, "" where it was silent; ncu's own not counted."""
        lines = [line.strip() for line in self.printed.splitlines()]
        return next((line for line in reversed(lines) if line and not line.startswith("==")), "")


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
    still running after `timeout_seconds`; the program and what it started are ended then.
    """
    with tempfile.TemporaryDirectory() as folder:
        log, printed = Path(folder, "log"), Path(folder, "printed")
        command = [
            ncu,
            *("--profile-from-start", "on" if from_start else "off"),
            *("--clock-control", "none", "--cache-control", "all"),
            *("--csv", "--page", "raw", "--print-units", "base"),
            *("--metrics", ",".join(metrics), "--log-file", str(log)),
            *program,
        ]
        try:
            with printed.open("wb") as out:
                returncode = _wait(command, out, timeout_seconds)
        except OSError as error:
            raise IosimError(f"ncu cannot be run ({error.strerror})") from error
        return Profiled(returncode, _text(log), _text(printed))


def _wait(command: Sequence[str], out: BinaryIO, timeout_seconds: int) -> int:
    """Return the exit code of a command that prints to `out`; ended early, it leaves no process."""
    process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
    try:
        return process.wait(timeout_seconds)
    except subprocess.TimeoutExpired as error:
        raise IosimError(
            f"ncu was still running after {timeout_seconds} s; give it longer, or less to profile"
        ) from error
    finally:
        if process.returncode is None:  # also when interrupted
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _text(path: Path) -> str:
    """Return what stands in a file, whatever its bytes; "" where there is none."""
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def explain(text: str) -> str:
    """Return one sentence for what ncu or the program under it printed when it failed.

    >>> explain("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission ...")[:42]
    'the driver lets only administrators read c'
    """
    if PERMISSION in text:
        return (
            f"the driver lets only administrators read counters ({PERMISSION}); run as root or "
            "load the driver with NVreg_RestrictProfilingToAdminUsers=0"
        )
    if "LibraryNotLoaded" in text or NO_KERNELS in text:
        return (
            "this machine has no hardware counters that ncu can read (as in some virtual "
            "machines); iosim gpu bench needs none"
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line or "ERROR" in line]
    if not lines:
        return "ncu wrote no page and no reason; run it by hand: ncu PROGRAM"
    return f"the run under ncu failed: {(errors or lines)[-1]}"


def version(ncu: str) -> str:
    """Return ncu's version, or 'unknown'."""
    done = subprocess.run([ncu, "--version"], capture_output=True, text=True, check=False)
    words = done.stdout.replace(",", " ").split()
    return next((word for word in words if word[:1].isdigit() and word.count(".") >= 2), "unknown")
