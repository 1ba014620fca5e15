"""Optimal traffic of small instances beside every bound and the schedules, as rows of tables."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from iosim.bounds import Bound, lower_bounds
from iosim.errors import IosimError
from iosim.proofs.pebble import solve
from iosim.proofs.pebble_moves import Game, Instance
from iosim.proofs.pebble_schedules import CountedSchedule, best_schedule
from iosim.reading.check import check
from iosim.schedule.registry import family
from iosim.shape import AttentionShape

# Schedules whose moves are those of the fused game.
SCHEDULES = ("flash1", "flash2")


@dataclass(frozen=True)
class Comparison:
    """The optimum of a fused game beside bounds and schedules, all in words of Q, K, V and O.

    `reducing` is the optimum where a store may add to what was saved. `bounds` has each bound that
    may be claimed for a fused schedule, by name; `schedules` has each schedule at its best tiles,
    None where no tile fits.
    """

    instance: Instance
    optimum: int
    reducing: int
    bounds: dict[str, int]
    schedules: dict[str, CountedSchedule | None]

    @property
    def largest_bound(self) -> int:
        """The largest lower bound, in words."""
        return max(self.bounds.values())

    @property
    def slack(self) -> int:
        """By how many words the largest bound is not tight."""
        return self.optimum - self.largest_bound


@dataclass(frozen=True)
class UnfusedComparison:
    """Optima with scores that can be kept, beside those of the fused game, all in words.

    `fused` lets a score be free; `fused_counted` has one word for it, which is the fused game with
    M - 1 words; both are None where M is too small. `unfused` and `either` are least over
    executions that move whole rows.
    """

    instance: Instance
    fused: int | None
    fused_counted: int | None
    unfused: int
    either: int
    fused_bound: int

    @property
    def saved(self) -> int | None:
        """Words by which the unfused game, its scores counted, beats the fused one, its free."""
        return None if self.fused is None else self.fused - self.unfused


def fused_bounds(instance: Instance) -> list[Bound]:
    """Return the bounds that hold for a fused schedule of this shape and M, in words."""
    shape = instance.shape
    fused = check(family("flash2").build(shape, br=1, bc=1))
    return [b for b in lower_bounds(shape, instance.words, fused) if b.holds]


def compare(shape: AttentionShape, words: int) -> Comparison:
    """Return the fused optimum for M words beside its bounds and schedules.

    >>> row = compare(AttentionShape(2, 2, 1), 4)
    >>> row.optimum, row.bounds["compulsory"], row.bounds["fused"], row.slack
    (10, 8, 6, 2)
    """
    instance = Instance(shape, words)
    return Comparison(
        instance=instance,
        optimum=solve(instance).words,
        reducing=solve(Instance(shape, words, "reducing")).words,
        bounds={b.name: b.words for b in fused_bounds(instance)},
        schedules={name: best_schedule(name, instance) for name in SCHEDULES},
    )


def compare_unfused(shape: AttentionShape, words: int) -> UnfusedComparison:
    """Return the optima of the games in which scores can be kept beside the fused ones.

    >>> row = compare_unfused(AttentionShape(2, 2, 2), 9)
    >>> row.fused, row.unfused, row.saved
    (19, 16, 3)
    """
    least = 2 * (shape.head_dim + shape.value_dim)

    def optimum(game: Game, m: int) -> int:
        return solve(Instance(shape, m, game)).words

    return UnfusedComparison(
        instance=Instance(shape, words, "unfused"),
        fused=optimum("fused", words) if words >= least else None,
        fused_counted=optimum("fused", words - 1) if words > least else None,
        unfused=optimum("unfused", words),
        either=optimum("either", words),
        fused_bound=next(
            b.words for b in fused_bounds(Instance(shape, words)) if b.name == "fused"
        ),
    )


Case = tuple[AttentionShape, int]


def _cases(sizes: Sequence[tuple[int, int, int]], words: range, causal: bool = False) -> list[Case]:
    return [(AttentionShape(n_q, n_k, d, causal=causal), m) for n_q, n_k, d in sizes for m in words]


# The tables of docs/small-instances.md. A quick case takes well under a second here.
QUICK_CASES: list[Case] = [
    *_cases([(2, 2, 1), (2, 3, 1), (3, 2, 1)], range(4, 7)),
    *_cases([(3, 3, 1)], range(4, 9)),
    *_cases([(3, 4, 1), (4, 3, 1)], range(4, 9)),
    *_cases([(3, 3, 1)], range(4, 8), causal=True),
    *_cases([(2, 2, 2)], range(8, 13)),
    *_cases([(3, 3, 2)], range(8, 17)),
]
SLOW_CASES: list[Case] = [
    *_cases([(4, 4, 1)], range(4, 11)),
    *_cases([(4, 4, 1)], range(4, 9), causal=True),
    *_cases([(4, 5, 1), (5, 4, 1)], range(4, 9)),
]
QUICK_UNFUSED: list[Case] = [
    *_cases([(2, 2, 1), (2, 3, 1), (3, 2, 1)], range(3, 8)),
    *_cases([(2, 2, 2)], range(6, 13)),
    *_cases([(2, 3, 2), (3, 2, 2)], range(8, 13)),
    *_cases([(2, 2, 3), (2, 3, 3), (3, 2, 3)], range(12, 19, 3)),
]
SLOW_UNFUSED: list[Case] = [
    *_cases([(3, 3, 1)], range(3, 10)),
    *_cases([(3, 3, 2)], range(8, 17)),
    *_cases([(2, 4, 3), (4, 2, 3), (2, 5, 3), (5, 2, 3)], range(12, 19, 3)),
]

Row = TypeVar("Row")


def fused_columns() -> dict[str, Callable[[Comparison], object]]:
    """Return the columns of the table of fused games: heading, and the cell of a row."""
    return {
        **_instance_columns(),
        "optimum": lambda row: row.optimum,
        "with reductions": lambda row: row.reducing,
        "compulsory": lambda row: row.bounds["compulsory"],
        "general": lambda row: row.bounds["general"],
        "fused": lambda row: row.bounds["fused"],
        "slack": lambda row: row.slack,
        "optimum / bound": lambda row: f"{row.optimum / row.largest_bound:.2f}",
        **{name: _schedule_cell(name) for name in SCHEDULES},
    }


def _schedule_cell(name: str) -> Callable[[Comparison], object]:
    def cell(row: Comparison) -> object:
        found = row.schedules[name]
        return None if found is None else f"{found.words} ({found.tiles[0]} x {found.tiles[1]})"

    return cell


def unfused_columns() -> dict[str, Callable[[UnfusedComparison], object]]:
    """Return the columns of the table of games with scores that can be kept."""
    return {
        **_instance_columns(),
        "fused": lambda row: row.fused,
        "fused, score counted": lambda row: row.fused_counted,
        "unfused": lambda row: row.unfused,
        "either": lambda row: row.either,
        "fused bound": lambda row: row.fused_bound,
        "fused - unfused": lambda row: row.saved,
    }


def _instance_columns() -> dict[str, Callable[[Comparison | UnfusedComparison], object]]:
    return {
        "n_q x n_k": lambda row: _size(row.instance.shape),
        "d": lambda row: row.instance.shape.head_dim,
        "M": lambda row: row.instance.words,
    }


def with_table(page: str, name: str, lines: Sequence[str]) -> str:
    """Return the text of a page with the lines of a table put between its markers.

    The markers are comments: table NAME, end of table NAME. Raises IosimError without them.
    """
    begin, end = f"<!-- table {name} -->", f"<!-- end of table {name} -->"
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise IosimError(f"the page has no place for table {name!r}; put {begin} and {end} on it")
    return "\n".join([before + begin, "", *lines, "", end + after])


def _size(shape: AttentionShape) -> str:
    return f"{shape.n_q} x {shape.n_k}{' causal' if shape.causal else ''}"


def markdown(rows: Sequence[Row], columns: Mapping[str, Callable[[Row], object]]) -> list[str]:
    """Return a Markdown table, line by line; what is absent is a dash."""
    lines = [list(columns), ["---:"] * len(columns)]
    for row in rows:
        values = (cell(row) for cell in columns.values())
        lines.append(["-" if value is None else str(value) for value in values])
    return [f"| {' | '.join(line)} |" for line in lines]
