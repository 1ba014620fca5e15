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
from iosim.schedule.ranks import EXCHANGES, Ranks
from iosim.schedule.tree import Compute, For, Move, Schedule, Tensor

Step = tuple[Move, Position]


class Store(Protocol):
    """The slow memory of a rank, as an exchange uses it."""

    def holds(self, tensor: Tensor, ranges: Ranges) -> bool:
        """Return whether all words of a tile are here."""

    def words_of(self, name: str, ranges: Ranges) -> Any:
        """Return a copy of a tile."""

    def receive(self, move: Move, ranges: Ranges, tile: Any) -> None:
        """Put a tile here that another rank sent."""


class Device(Protocol):
    """A rank as an exchange uses it; `words` counts what it sends and receives."""

    words: dict[str, int]

    @property
    def slow(self) -> Store:
        """The slow memory of the rank."""

    def run(self, node: Move | Compute, position: Position) -> None:
        """Run a node that concerns no other rank."""


def only_rank(ranks: Ranks, rank: int) -> Blocks:
    """Return the choice of blocks that runs one rank: its own iteration of the loop over them."""

    def choose(loop: For, blocks: Sequence[int]) -> Sequence[int]:
        return (rank,) if loop.dim.name == ranks.dim.name else blocks

    return choose


def peers(move: Move, position: Position, ranks: Ranks, rank: int, other: int) -> tuple[int, int]:
    """Return the ranks that send and receive in an exchange of `rank`.

    `other` is the block of the loop that is related to the ranks.
    """
    if move.kind == "shift":
        return (rank - 1) % ranks.count, rank
    return (other, rank) if move.kind == "receive" else (rank, other)


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
    arriving = []
    for rank, at in enumerate(waiting):
        if at is None:
            continue
        move, position = at
        ranges = tile_ranges(move.tensor, position)
        source, target = peers(move, position, ranks, rank, related_block(schedule, position))
        if move.kind == "shift" and any(other is None or other[0] is not move for other in waiting):
            raise ScheduleError(f"{where(move)}: a shift, which not all ranks take part in at once")
        if not devices[source].slow.holds(move.tensor, ranges):
            raise ScheduleError(
                f"{where(move)}: rank {source} should send {tile_name(move.tensor, ranges)} to "
                f"rank {target}, but does not hold all of it then"
            )
        arriving.append((move, ranges, devices[source].slow.words_of(move.tensor.name, ranges)))
        words = tile_words(ranges)
        devices[source].words["send"] += words
        devices[target].words["receive"] += words
        tally.note(move, words)
        arriving[-1] += (target,)
    for move, ranges, tile, target in arriving:
        devices[target].slow.receive(move, ranges, tile)
