"""Traffic: the words that a schedule reads from and writes to slow memory, exactly."""

from dataclasses import dataclass
from typing import Any

from iosim.schedule.ranks import EXCHANGES
from iosim.schedule.tree import Move, Schedule, nodes
from iosim.units import ITEM_BYTES


@dataclass(frozen=True)
class Words:
    """Words read, written and added (reduced into slow memory, counted once).

    `interconnect` counts the words that one rank sent and another received, once. They are words of
    another level, and in no sum with the others.
    """

    read: int = 0
    write: int = 0
    add: int = 0
    interconnect: int = 0

    @property
    def total(self) -> int:
        """Words read, written and added."""
        return self.read + self.write + self.add

    def to_dict(self) -> dict[str, int]:
        """Return the words by direction; added and sent words only where there are any."""
        found = {"read_words": self.read, "write_words": self.write}
        found |= {"add_words": self.add} if self.add else {}
        return found | ({"interconnect_words": self.interconnect} if self.interconnect else {})


@dataclass(frozen=True)
class Share:
    """What one of several ranks moves between its memories, sends, receives and computes."""

    read_words: int = 0
    write_words: int = 0
    add_words: int = 0
    send_words: int = 0
    receive_words: int = 0
    flops: int = 0

    @property
    def total_words(self) -> int:
        """Words read, written and added by this rank."""
        return self.read_words + self.write_words + self.add_words


DIRECTIONS = {"load": "read", "store": "write", "add": "add"}
INTERCONNECT = "interconnect"
COUNTED = DIRECTIONS | dict.fromkeys(EXCHANGES, INTERCONNECT)
"""Under which heading the words of each kind of move are counted."""


class Tally:
    """Words gathered by tensor and by line of the listing, in the order met."""

    def __init__(self) -> None:
        """Start from nothing."""
        self._tensors: dict[str, dict[str, int]] = {}
        self._lines: dict[str, dict[str, int]] = {}

    def note(self, move: Move, words: int) -> None:
        """Add the words of a load, store, add or exchange; other kinds move nothing."""
        direction = COUNTED.get(move.kind)
        if direction is not None:
            for table, key in ((self._tensors, move.tensor.name), (self._lines, move.line)):
                entry = table.setdefault(key, {})
                entry[direction] = entry.get(direction, 0) + words

    @property
    def tensors(self) -> dict[str, Words]:
        """Words by the name of the tensor."""
        return {name: Words(**entry) for name, entry in self._tensors.items()}

    @property
    def lines(self) -> dict[str, Words]:
        """Words by the text of the line."""
        return {text: Words(**entry) for text, entry in self._lines.items()}


@dataclass(frozen=True)
class Traffic:
    """What a schedule moves, holds and computes: words as exact ints, over batch and heads.

    `tensors` and `lines` map a tensor's name and a line's text to the words moved; `items` maps a
    tensor's name to the bytes of one of its words in slow memory. `peak_words` is the most that
    fast memory holds at once, `peak_bytes` the same with wide accumulators and statistics counted
    as such. `flops` count a multiply and an add as two. On several devices counts are over all of
    them, peaks are of one, and `ranks` has the share of each.
    """

    tensors: dict[str, Words]
    lines: dict[str, Words]
    items: dict[str, int]
    peak_words: int
    peak_bytes: int
    flops: int
    ranks: tuple[Share, ...] = ()

    @property
    def read_words(self) -> int:
        """Words read from slow memory."""
        return sum(words.read for words in self.tensors.values())

    @property
    def write_words(self) -> int:
        """Words written to slow memory."""
        return sum(words.write for words in self.tensors.values())

    @property
    def add_words(self) -> int:
        """Words reduced into slow memory."""
        return sum(words.add for words in self.tensors.values())

    @property
    def total_words(self) -> int:
        """Words read, written and added."""
        return self.read_words + self.write_words + self.add_words

    @property
    def read_bytes(self) -> int:
        """Bytes read from slow memory, each tensor by its own item size."""
        return sum(words.read * self.items[name] for name, words in self.tensors.items())

    @property
    def write_bytes(self) -> int:
        """Bytes written to slow memory, each tensor by its own item size."""
        return sum(words.write * self.items[name] for name, words in self.tensors.items())

    @property
    def add_bytes(self) -> int:
        """Bytes reduced into slow memory, each tensor by its own item size."""
        return sum(words.add * self.items[name] for name, words in self.tensors.items())

    @property
    def total_bytes(self) -> int:
        """Bytes read, written and added."""
        return self.read_bytes + self.write_bytes + self.add_bytes

    @property
    def interconnect_words(self) -> int:
        """Words that one rank sent and another received, counted once, over all ranks."""
        return sum(words.interconnect for words in self.tensors.values())

    @property
    def interconnect_bytes(self) -> int:
        """Bytes of the same, each tensor by its own item size."""
        return sum(words.interconnect * self.items[name] for name, words in self.tensors.items())

    def to_dict(self) -> dict[str, Any]:
        """Return the counts with units in their names."""
        return {
            "read_words": self.read_words,
            "write_words": self.write_words,
            "add_words": self.add_words,
            "total_words": self.total_words,
            "read_bytes": self.read_bytes,
            "write_bytes": self.write_bytes,
            "add_bytes": self.add_bytes,
            "total_bytes": self.total_bytes,
            "peak_words": self.peak_words,
            "peak_bytes": self.peak_bytes,
            "flops": self.flops,
            "tensors": {name: words.to_dict() for name, words in self.tensors.items()},
        }


def item_sizes(schedule: Schedule) -> dict[str, int]:
    """Return the bytes of one word in slow memory, by the name of each tensor that moves."""
    moves = (node for node, _ in nodes(schedule.body) if isinstance(node, Move))
    return {move.tensor.name: ITEM_BYTES[move.tensor.dtype] for move in moves}
