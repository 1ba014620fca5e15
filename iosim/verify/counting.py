"""Counting: the closed forms say exactly what the execution moves, tensor by tensor."""

from collections.abc import Iterator

from iosim.errors import IosimError
from iosim.reading.check import check
from iosim.reading.count import count
from iosim.reading.execute import execute
from iosim.reading.formula import formula
from iosim.reading.traffic import Traffic
from iosim.schedule.registry import Family, forward_of
from iosim.schedule.tree import Schedule
from iosim.training import training_step
from iosim.units import format_count
from iosim.verify.grid import RANDOM, Case, cases, chosen
from iosim.verify.registry import Scope, verification
from iosim.verify.result import Check, verdict


@verification
def counting(scope: Scope) -> Iterator[Check]:
    """For each tensor, words counted in closed form = words an execution copies = the formula.

    Likewise the peak residency and the FLOPs.
    """
    grid = [case for case in cases(scope.thorough) if case.data == "normal"]
    for name, family in scope.schedules.items():
        scope.progress(f"counting: {name}")
        yield _row(name, family, chosen(grid, family, "float32", scope.thorough))


def _row(name: str, family: Family, grid: list[Case]) -> Check:
    words = 0
    wrong: list[str] = []
    for case in grid:
        try:
            schedule = case.build(family, "float32")
            if family.direction == "backward":
                forward = case.build(forward_of(family), "float32")
                given = (*case.inputs(), case.output_gradient())
                step = training_step(schedule, forward, *given, random=RANDOM)
                done = step.backward.traffic
            else:
                done = execute(schedule, *case.inputs(), random=RANDOM).traffic
            words += done.total_words
            wrong += [f"{case}: {each}" for each in differences(schedule, done)]
        except IosimError as error:
            wrong.append(f"{case}: {error}")
    if wrong:
        detail = f"{len(wrong)} wrong, such as {wrong[0]}"
    else:
        detail = f"{len(grid)} cases, {format_count(words)} words, each accounted for"
    numbers = {"schedule": name, "cases": len(grid), "total_words": words, "wrong": len(wrong)}
    return Check("counting", name, verdict(not wrong), detail, numbers)


def differences(schedule: Schedule, done: Traffic) -> list[str]:
    """Return a sentence for each number in which the readings of a schedule differ.

    `done` is the traffic that an execution really made.
    """
    counted, closed = count(schedule), formula(schedule)
    found = []

    def compare(what: str, count_says: int, other: str, other_says: int) -> None:
        if count_says != other_says:
            found.append(f"{what}: count says {count_says}, {other} {other_says}")

    for name in counted.tensors | done.tensors:
        for direction in ("read", "write", "add", "interconnect"):
            expected = _words(counted, name, direction)
            compare(f"{direction} of {name}", expected, "execute", _words(done, name, direction))
            value = closed.words(direction, tensor=name).value(closed.values)
            compare(f"{direction} of {name}", expected, "formula", value)
    if counted.lines != done.lines:
        found.append("count and execute differ line by line")
    if counted.ranks != done.ranks:
        found.append("count and execute differ rank by rank")
    compare("peak words", counted.peak_words, "execute", done.peak_words)
    compare("peak words", counted.peak_words, "check", check(schedule).peak_words)
    compare("FLOPs", counted.flops, "execute", done.flops)
    return found


def _words(traffic: Traffic, name: str, direction: str) -> int:
    return int(getattr(traffic.tensors[name], direction)) if name in traffic.tensors else 0
