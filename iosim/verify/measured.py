"""A recording of a real device, verified: what counters saw against what is counted."""

import time
from pathlib import Path

from iosim import measured
from iosim.verify.result import Check, VerificationReport, verdict


def verify_measured(path: Path) -> VerificationReport:
    """Check a recording of `iosim gpu measure`: bytes against `count`, spills, fitted exponents.

    Needs no GPU. Raises IosimError for a file that is no recording.
    """
    start = time.perf_counter()
    recording = measured.load(path)
    rows = []
    for each in measured.check(recording):
        about_what, colon, statement = each.name.partition(": ")
        what, said = (about_what, statement) if colon else ("all schedules", about_what)
        rows.append(Check("measured", what, verdict(each.passed), f"{said}: {each.detail}"))
    if not rows:
        rows = [Check("measured", str(path), "fail", "the recording has nothing to check")]
    return VerificationReport(tuple(rows), False, time.perf_counter() - start)


def about(path: Path) -> str:
    """Return the heading of the rows: which device was measured, and when."""
    recording = measured.load(path)
    return (
        f"{len(recording.rows)} rows measured on one {recording.device} on {recording.date}, "
        f"driver {recording.driver}."
    )
