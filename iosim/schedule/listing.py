"""The listing of a schedule: its lines, numbered as an algorithm in a paper is."""

from dataclasses import dataclass

from iosim.schedule.tree import For, Node, Schedule


@dataclass(frozen=True)
class Line:
    """One line of a listing: its number from 1, how deep it is nested, its text."""

    number: int
    depth: int
    text: str


def listing(schedule: Schedule) -> tuple[Line, ...]:
    """Return the lines of a schedule in order; neighbouring nodes of one text share a line.

    A loop without a text of its own (over batch and heads) adds neither a line nor depth.
    """
    found: list[tuple[int, str]] = []

    def visit(body: tuple[Node, ...], depth: int) -> None:
        for node in body:
            text = node.line
            if text and (not found or found[-1][1] != text):
                found.append((depth, text))
            if isinstance(node, For):
                visit(node.body, depth + bool(text))

    visit(schedule.body, 0)
    return tuple(Line(number, depth, text) for number, (depth, text) in enumerate(found, start=1))


def line_numbers(schedule: Schedule) -> dict[str, int]:
    """Return the number of each line by its text; a text that recurs keeps its first number."""
    numbers: dict[str, int] = {}
    for line in listing(schedule):
        numbers.setdefault(line.text, line.number)
    return numbers
