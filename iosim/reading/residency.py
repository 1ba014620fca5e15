"""Which tiles are in fast memory: the rules that hold for every reading that runs the tree."""

from dataclasses import dataclass, field

from iosim.errors import CapacityError, ScheduleError
from iosim.reading.walk import Position, Ranges, tile_name, tile_ranges, tile_words
from iosim.schedule.ranks import EXCHANGES
from iosim.schedule.tree import Compute, Move, Schedule, Tensor
from iosim.units import ITEM_BYTES

Key = tuple[str, Ranges]


@dataclass
class FastMemory:
    """The resident tiles, their words and bytes, and the most there were of each.

    `capacity` is M in words; without one anything fits.
    """

    capacity: int | None = None
    tiles: dict[Key, Tensor] = field(default_factory=dict)
    words: int = 0
    bytes: int = 0
    peak_words: int = 0
    peak_bytes: int = 0
    stored: set[str] = field(default_factory=set)

    def move(self, move: Move, position: Position) -> Key:
        """Account for a move and return the tile it is about.

        Raises ScheduleError for a tile made twice, a store or free of one that is not resident, a
        load or add of a tensor that nothing has stored; CapacityError for more than `capacity`
        words.
        """
        tensor = move.tensor
        ranges = tile_ranges(tensor, position)
        key = (tensor.name, ranges)
        if move.kind in EXCHANGES:  # between slow memories
            given = move.source or tensor
            if given.place != "input":
                self._stored(move, given, ranges)
            self.stored.add(tensor.name)
        elif move.kind in ("load", "new"):
            if key in self.tiles:
                raise ScheduleError(
                    f"{where(move)}: {move.kind} of {tile_name(tensor, ranges)}, "
                    "which is resident already; free it first"
                )
            if move.kind == "load" and tensor.place != "input":
                self._stored(move, tensor, ranges)
            if move.kind == "load" and tensor.table is not None:
                self.require(tensor.table, tile_ranges(tensor.table, position), move)
            self._grow(move, key, tile_words(ranges))
        else:
            self.require(tensor, ranges, move)
            if move.kind == "free":
                words = tile_words(ranges)
                del self.tiles[key]
                self.words -= words
                self.bytes -= words * ITEM_BYTES[tensor.held]
            elif tensor.place == "input":
                raise ScheduleError(f"{where(move)}: {move.kind} to {tensor.name}, an input")
            elif tensor.place == "fast":
                raise ScheduleError(
                    f"{where(move)}: {move.kind} of {tensor.name}, a tensor of fast memory only"
                )
            else:
                if move.kind == "add":
                    self._stored(move, tensor, ranges)
                self.stored.add(tensor.name)
        return key

    def _stored(self, move: Move, tensor: Tensor, ranges: Ranges) -> None:
        if tensor.name not in self.stored:
            raise ScheduleError(
                f"{where(move)}: {move.kind} of {tile_name(tensor, ranges)}, "
                f"but nothing has stored {tensor.name} before"
            )

    def _grow(self, move: Move, key: Key, words: int) -> None:
        if self.capacity is not None and self.words + words > self.capacity:
            held = ", ".join(tile_name(self.tiles[k], k[1]) for k in self.tiles) or "nothing"
            raise CapacityError(
                f"{where(move)}: {move.kind} of {tile_name(move.tensor, key[1])} needs "
                f"{self.words + words} words of fast memory with {held} resident, "
                f"but M is {self.capacity} words"
            )
        self.tiles[key] = move.tensor
        self.words += words
        self.bytes += words * ITEM_BYTES[move.tensor.held]
        self.peak_words = max(self.peak_words, self.words)
        self.peak_bytes = max(self.peak_bytes, self.bytes)

    def require(self, tensor: Tensor, ranges: Ranges, node: Move | Compute) -> Key:
        """Return the key of a tile, or raise ScheduleError if it is not resident."""
        key = (tensor.name, ranges)
        if key not in self.tiles:
            what = node.kind if isinstance(node, Move) else node.operation
            raise ScheduleError(
                f"{where(node)}: {what} uses {tile_name(tensor, ranges)}, which is not resident"
            )
        return key

    def finish(self, schedule: Schedule, outputs: set[str]) -> None:
        """Raise ScheduleError if a tile is left resident or an output was never stored."""
        if self.tiles:
            left = ", ".join(tile_name(tensor, key[1]) for key, tensor in self.tiles.items())
            raise ScheduleError(f"{schedule.name} ends with {left} still resident; free them")
        missing = sorted(outputs - self.stored)
        if missing:
            raise ScheduleError(f"{schedule.name} ends without having stored {', '.join(missing)}")


def where(node: Move | Compute) -> str:
    """Return the line of a node as an error message begins."""
    return f"line {node.line!r}" if node.line else "a step without a line"
