"""The registry of checks: a name, what it says, and the function that yields its rows."""

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from inspect import getdoc

from iosim.schedule.registry import Family, families
from iosim.verify.result import Check


def _silent(message: str) -> None:
    """Say nothing."""


@dataclass(frozen=True)
class Scope:
    """What is verified: these schedules by name, over the default grid or a larger one.

    `progress` is told what is being checked, in a few words.
    """

    thorough: bool = False
    schedules: Mapping[str, Family] = field(default_factory=families)
    progress: Callable[[str], None] = _silent


Rows = Callable[[Scope], Iterator[Check]]


@dataclass(frozen=True)
class Verification:
    """A check by name: what it is about, for people, and `rows(scope)`: what it finds."""

    name: str
    about: str
    rows: Rows


CHECKS: dict[str, Verification] = {}

# Each module registers the check of its name when it is imported; reports are in this order.
BUILT_IN = (
    "exactness",
    "gradients",
    "counting",
    "capacity",
    "sandwich",
    "exponents",
    "block_sparse",
    "lower_bounds",
    "ratios",
    "regimes",
    "small_memory",
    "slow_memory",
)

# These go over whatever schedules there are; the others are about fixed ones.
OVER_SCHEDULES = ("exactness", "gradients", "counting", "lower_bounds")


def verification(rows: Rows) -> Rows:
    """Register a generator of rows under its name; its docstring heads its rows in a report."""
    name = rows.__name__
    CHECKS[name] = Verification(name, " ".join((getdoc(rows) or "").split()), rows)
    return rows


def checks() -> dict[str, Verification]:
    """Return the checks by name, in the order of a report."""
    for name in BUILT_IN:
        importlib.import_module(f"iosim.verify.{name}")
    return {name: CHECKS[name] for name in BUILT_IN}
