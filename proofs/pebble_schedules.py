"""Schedules in the units of the pebble game: rows of Q, K, V and O alone, and as its moves.

The tree of a schedule is stripped of its statistics (m, l, LSE) and of the tile of scores, which
the fused game does not count either; what is left is counted by `count` and can be played.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from iosim.proofs.pebble_moves import Instance, Move, Word
from iosim.reading.count import count
from iosim.reading.walk import Position, walk
from iosim.schedule.operations import find_operation
from iosim.schedule.registry import family
from iosim.schedule.tree import For, Node, Schedule
from iosim.schedule.tree import Move as TreeMove

# What the game calls the rows of these tensors.
ROWS = {"Q": "q", "K": "k", "V": "v", "O": "a"}
KINDS = {"load": "load", "new": "new", "store": "store", "free": "drop"}


@dataclass(frozen=True)
class CountedSchedule:
    """A schedule with its best tiles for an instance: the words it moves without statistics."""

    schedule: Schedule
    words: int
    peak_words: int

    @property
    def tiles(self) -> tuple[int, int]:
        """B_r and B_c, in rows."""
        return self.schedule.tiles["br"], self.schedule.tiles["bc"]


def without_statistics(schedule: Schedule) -> Schedule:
    """Return the schedule with the moves of Q, K, V and O alone."""

    def kept(body: tuple[Node, ...]) -> tuple[Node, ...]:
        return tuple(
            replace(node, body=kept(node.body)) if isinstance(node, For) else node
            for node in body
            if not isinstance(node, TreeMove) or node.tensor.name in ROWS
        )

    return replace(schedule, body=kept(schedule.body))


def best_schedule(name: str, instance: Instance) -> CountedSchedule | None:
    """Return the schedule of that name with the tiles of least traffic that fit, or None.

    Every B_r and B_c is tried. What must fit in M are the rows of Q, K, V and O.

    >>> from iosim.shape import AttentionShape
    >>> best = best_schedule("flash2", Instance(AttentionShape(4, 4, 1), words=6))
    >>> best.words, best.tiles
    (24, (2, 1))
    """
    shape, build = instance.shape, family(name).build
    best: CountedSchedule | None = None
    for br in range(1, shape.n_q + 1):
        for bc in range(1, shape.n_k + 1):
            schedule = without_statistics(build(shape, br=br, bc=bc))
            traffic = count(schedule)
            if traffic.peak_words > instance.words:
                break
            if best is None or traffic.total_words < best.words:
                best = CountedSchedule(schedule, traffic.total_words, traffic.peak_words)
    return best


def schedule_moves(schedule: Schedule, instance: Instance) -> Iterator[Move]:
    """Yield a schedule without statistics as moves of the fused game, word by word.

    Where the tree accumulates P V, the visible pairs of the tile are processed.
    """
    visible = frozenset(instance.pairs)
    for node, position in walk(schedule):
        if isinstance(node, TreeMove):
            row = ROWS[node.tensor.name]
            for index in _rows(position, "query" if row in "qa" else "key"):
                word: Word
                for word in instance.row(row, index):
                    yield Move(KINDS[node.kind], word)
        elif find_operation(node).role == "accumulate":
            for i in _rows(position, "query"):
                for j in _rows(position, "key"):
                    if (i, j) in visible:
                        yield Move("proc", (i, j))


def _rows(position: Position, axis: str) -> range:
    return range(*position[axis][2])
