"""A recording of a real device, verified: what counters saw against what is counted."""

import time

from iosim.measured import Recording, statements
from iosim.verify.result import Check, VerificationReport, verdict


def verify_recording(recording: Recording) -> VerificationReport:
    """Check a recording of `iosim gpu measure`: bytes against `count`, spills, fitted exponents.

    Needs no GPU. A recording about which nothing can be said fails.
    """
    start = time.perf_counter()
    rows = [
        Check("measured", each.subject, verdict(each.holds), f"{each.text}: {each.detail}")
        for each in statements(recording)
    ]
    if not rows:
        rows = [Check("measured", "recording", "fail", "there is nothing in it to check")]
    return VerificationReport(tuple(rows), False, time.perf_counter() - start)


def about(recording: Recording) -> str:
    """Return the heading of the rows: which device was measured, and when."""
    return (
        f"{len(recording.rows)} rows measured on one {recording.device} on {recording.date}, "
        f"driver {recording.driver}."
    )
