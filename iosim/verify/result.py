"""What a verification found: rows with a verdict each, and the report that gathers them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from iosim.output import SCHEMA

Verdict = Literal["pass", "fail", "finding"]
VERDICTS: tuple[Verdict, ...] = ("pass", "finding", "fail")


@dataclass(frozen=True)
class Check:
    """One row: the check's name, what was checked, the verdict, and a sentence that explains it.

    A 'finding' is what the mathematics says and the check found by itself, and what a reader of the
    papers may not expect; it is no failure. `numbers` holds the figures behind `detail`, with units
    in their names.

    >>> Check("capacity", "flash1, d = 64", "finding", "overflows below 33 856 words")
    Check('capacity', 'flash1, d = 64', 'finding', 'overflows below 33 856 words')
    """

    name: str
    what: str
    verdict: Verdict
    detail: str
    numbers: Mapping[str, object] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return the row without its numbers."""
        return f"Check({self.name!r}, {self.what!r}, {self.verdict!r}, {self.detail!r})"

    def to_dict(self) -> dict[str, Any]:
        """Return the row for JSON; a number that is not finite becomes None."""
        return {
            "name": self.name,
            "what": self.what,
            "verdict": self.verdict,
            "detail": self.detail,
            "numbers": _finite(self.numbers),
        }


def verdict(fine: bool) -> Verdict:
    """Return 'pass' or 'fail'."""
    return "pass" if fine else "fail"


def found(fine: bool) -> Verdict:
    """Return 'finding', or 'fail' where what was found is not what the mathematics says."""
    return "finding" if fine else "fail"


@dataclass(frozen=True, repr=False)
class VerificationReport:
    """The rows of a verification, in the order in which they were made.

    `thorough` says which grid was used, `seconds` how long it took, `left_out` which checks
    were not made since they are about other schedules. It is fine when nothing failed and something
    was checked.
    """

    checks: tuple[Check, ...]
    thorough: bool
    seconds: float
    left_out: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether nothing failed."""
        return bool(self.checks) and not self.failures

    @property
    def failures(self) -> tuple[Check, ...]:
        """The rows that failed."""
        return tuple(row for row in self.checks if row.verdict == "fail")

    def count(self, verdict: Verdict) -> int:
        """Return how many rows have that verdict."""
        return sum(row.verdict == verdict for row in self.checks)

    def __repr__(self) -> str:
        """Return the number of rows by verdict, and the rows that failed."""
        numbers = ", ".join(f"{self.count(each)} {each}" for each in VERDICTS)
        lines = [f"VerificationReport({numbers}, {self.seconds:.1f} s)"]
        return "\n".join([*lines, *(f"  {row!r}" for row in self.failures)])

    def to_dict(self) -> dict[str, Any]:
        """Return the report for JSON, with the number of its schema."""
        return {
            "schema": SCHEMA,
            "passed": self.passed,
            "thorough": self.thorough,
            "seconds": self.seconds,
            "left_out": list(self.left_out),
            "verdicts": {each: self.count(each) for each in VERDICTS},
            "records": [row.to_dict() for row in self.checks],
        }


def _finite(value: Any) -> Any:
    """Return a value that JSON can hold."""
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
