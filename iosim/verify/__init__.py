"""The checks behind `iosim verify`: the theorem and the exactness of attention over a grid."""

import time
from collections.abc import Callable, Iterable, Mapping

from iosim.errors import IosimError
from iosim.schedule.registry import Family
from iosim.units import unknown
from iosim.verify.registry import OVER_SCHEDULES, Scope, checks
from iosim.verify.result import Check, VerificationReport

__all__ = ["Check", "VerificationReport", "about_checks", "verify"]

TILES = ("br", "bc")  # the grids state these


def about_checks() -> dict[str, str]:
    """Return what each check is about, by its name, in the order of a report.

    >>> list(about_checks())[:4]
    ['exactness', 'gradients', 'counting', 'capacity']
    """
    return {name: each.about for name, each in checks().items()}


def verify(
    only: Iterable[str] = (),
    *,
    thorough: bool = False,
    schedules: Mapping[str, Family] | None = None,
    progress: Callable[[str], None] | None = None,
) -> VerificationReport:
    """Run the checks, all of them or `only` those named, and report what they found.

    `thorough` takes a larger grid (about ten minutes); `schedules` replaces the built-in ones,
    by name, and leaves out the checks about fixed schedules that `only` does not name. `progress`
    is called with a few words before each step. A check that cannot go on ends in a row that
    failed. Raises IosimError for a name that is no check, and for a schedule with other tile sizes
    than br and bc.

    >>> verify(["regimes"]).passed
    True
    """
    known = checks()
    names = tuple(only) or (tuple(known) if schedules is None else _applicable(schedules))
    for name in names:
        if name not in known:
            raise IosimError(unknown("check", name, known))
    scope = Scope(thorough=thorough)
    if schedules is not None:
        _check_tiles(schedules)
        scope = Scope(thorough, schedules, scope.progress)
    if progress is not None:
        scope = Scope(thorough, scope.schedules, progress)
    start = time.perf_counter()
    rows: list[Check] = []
    for name, each in known.items():
        if name not in names:
            continue
        scope.progress(name)
        try:
            rows.extend(each.rows(scope))
        except IosimError as error:
            rows.append(Check(name, "the check itself", "fail", f"it cannot go on: {error}"))
    left_out = () if only else tuple(name for name in known if name not in names)
    return VerificationReport(tuple(rows), thorough, time.perf_counter() - start, left_out)


def _applicable(schedules: Mapping[str, Family]) -> tuple[str, ...]:
    """Return the checks that go over these schedules: gradients are of backward ones only."""
    passes = {family.direction for family in schedules.values()}
    needs = {"exactness": "forward", "gradients": "backward"}
    return tuple(name for name in OVER_SCHEDULES if needs.get(name) in (None, *passes))


def _check_tiles(schedules: Mapping[str, Family]) -> None:
    for name, family in schedules.items():
        for tile in family.tiles:
            if tile not in TILES:
                raise IosimError(
                    f"schedule {name!r} has a tile size {tile!r}, but verify knows br (queries) "
                    "and bc (keys) only; name it one of these"
                )
