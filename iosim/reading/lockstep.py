"""Several ranks in one process: each runs up to its next exchange, then all exchange at once.

A rank touches nothing but its own memories. What it does not hold, another rank has to send, and
can only send if it holds it then.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from iosim.errors import ScheduleError
from iosim.reading.residency import where
from iosim.reading.traffic import Tally
from iosim.reading.walk import Blocks, Position, Ranges, tile_name, tile_ranges, tile_words, walk
from iosim.schedule.ranks import EXCHANGES, RankRelation, Ranks
from iosim.schedule.tree import Compute, For, Move, Schedule, Tensor, nodes

Step = tuple[Move, Position]


class Store(Protocol):
    """The slow memory of a rank, as an exchange uses it."""

    def holds(self, tensor: Tensor, ranges: Ranges) -> bool:
        """Return whether all words of a tile are here."""

    def words_of(self, name: str, ranges: Ranges) -> Any:
        """Return a copy of a tile."""


class Device(Protocol):
    """A rank as an exchange uses it; `words` counts what it sends and receives."""

    words: dict[str, int]

    @property
    def slow(self) -> Store:
        """The slow memory of the rank."""

    def run(self, node: Move | Compute, position: Position) -> None:
        """Run a node that concerns no other rank."""

    def receive(self, move: Move, ranges: Ranges, tile: Any) -> None:
        """Put a tile into the slow memory of the rank."""


def only_rank(ranks: Ranks, rank: int) -> Blocks:
    """Return the choice of blocks that runs one rank: its own iteration of the loop over them."""

    def choose(loop: For, blocks: Sequence[int]) -> Sequence[int]:
        return (rank,) if loop.dim == ranks.dim else blocks

    return choose


def _related_axes(schedule: Schedule) -> set[str]:
    """Return the axes of which loops related to the ranks visit some blocks."""
    relations = (node.relation for node, _ in nodes(schedule.body) if isinstance(node, For))
    return {relation.key for relation in relations if isinstance(relation, RankRelation)}


def _ends(move: Move, rank: int, other: int, count: int) -> tuple[int, int]:
    """Return the ranks that send and receive in an exchange of `rank`, which visits `other`."""
    if move.kind == "shift":
        return (rank - 1) % count, rank
    return (rank, other) if move.kind == "send" else (other, rank)


def run_ranks(schedule: Schedule, devices: Sequence[Device], tally: Tally) -> None:
    """Run a schedule on its ranks, in lock-step.

    Raises ScheduleError where a rank would send what it does not hold, and where a shift does not
    take place on all ranks at once.
    """
    ranks = schedule.ranks
    assert ranks is not None
    walks = [walk(schedule, only_rank(ranks, rank)) for rank in range(ranks.count)]
    waiting = [_advance(device, steps) for device, steps in zip(devices, walks, strict=True)]
    while any(waiting):
        _exchange(schedule, ranks, devices, waiting, tally)
        waiting = [
            None if at is None else _advance(device, steps)
            for device, steps, at in zip(devices, walks, waiting, strict=True)
        ]


def _advance(device: Device, steps: Iterator[tuple[Move | Compute, Position]]) -> Step | None:
    """Run a rank up to its next exchange and return that; None at its end."""
    for node, position in steps:
        if isinstance(node, Move) and node.kind in EXCHANGES:
            return node, position
        device.run(node, position)
    return None


def _exchange(
    schedule: Schedule,
    ranks: Ranks,
    devices: Sequence[Device],
    waiting: Sequence[Step | None],
    tally: Tally,
) -> None:
    """Do what all ranks wait for: first everything is sent, then everything arrives."""
    arriving: list[tuple[int, Move, Ranges, Any]] = []
    axes = _related_axes(schedule)
    for rank, at in enumerate(waiting):
        if at is None:
            continue
        move, position = at
        ranges = tile_ranges(move.tensor, position)
        other = next(position[name][1] for name in axes if name in position)
        source, target = _ends(move, rank, other, ranks.count)
        if move.kind == "shift" and any(other is None or other[0] is not move for other in waiting):
            raise ScheduleError(f"{where(move)}: a shift, which not all ranks take part in at once")
        given = move.source or move.tensor
        if not devices[source].slow.holds(given, ranges):
            raise ScheduleError(
                f"{where(move)}: rank {source} should send {tile_name(given, ranges)} to "
                f"rank {target}, but does not hold all of it then"
            )
        tile = devices[source].slow.words_of(given.name, ranges)
        arriving.append((target, move, ranges, tile))
        words = tile_words(ranges)
        devices[source].words["send"] += words
        devices[target].words["receive"] += words
        tally.note(move, words)
    for target, move, ranges, tile in arriving:
        devices[target].receive(move, ranges, tile)
