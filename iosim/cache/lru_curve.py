"""LRU misses and write-backs at every size in one pass, from exact stack distances.

The distance of an access is the number of distinct lines touched since the last access to its
line, that line included (Mattson, Gecsei, Slutz and Traiger 1970).  A bitmap over time marks the
latest access of every line; the distance counts the marks after the previous one.  A Fenwick tree
(1994) over blocks of the bitmap keeps that count logarithmic, after Bennett and Kruskal (1975)
and Olken (1981).  When the slots of the bitmap run out, the marks move together.

Dirty lines: a write needs no write-back of its own when the line was written before and stayed
in the cache since, that is, when no distance since then exceeds the size (the dirty levels of
Thompson and Smith 1989).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from iosim.cache.index import grown
from iosim.cache.jit import AHEAD, CACHED, compiled, inlined, popcount, prefetch
from iosim.cache.registry import Batch, curve
from iosim.cache.result import CacheConfig, CurveResult, miss_curve

WORDS: Final = 8  # words of 64 slots in a block
SHIFT: Final = 9  # log2 of the slots in a block
#: Slots to begin with: a multiple of a block.
FIRST_SLOTS = 1 << 18

SLOT: Final = 0  # the next slot
LINES: Final = 1  # distinct lines
WRITTEN: Final = 2


@inlined
def _count_to(bits: Any, tree: Any, slot: int) -> int:
    """Count the marks in all slots up to and including `slot`."""
    block = slot >> SHIFT
    total = 0
    node = block
    while node > 0:
        total += tree[node]
        node &= node - 1
    word = slot >> 6
    for before in range(block * WORDS, word):
        total += popcount(bits[before])
    return total + popcount(bits[word] & ~(np.int64(-2) << (slot & 63)))


@inlined
def _close_block(bits: Any, tree: Any, block: int) -> None:
    """Enter a block whose last slot has been given out into the tree."""
    marks = 0
    for word in range(block * WORDS, (block + 1) * WORDS):
        marks += popcount(bits[word])
    node = block + 1
    while node < tree.size:
        tree[node] += marks
        node += node & -node


@compiled
def _stack_distances(
    ids: Any,
    writes: Any,
    last: Any,
    bits: Any,
    tree: Any,
    distances: Any,
    level: Any,
    merged: Any,
    state: Any,
) -> None:
    """Add the distances of one batch to the histogram `distances`.

    `last[id]` is one more than the slot of the latest access, 0 for none.  `level[id]` is
    the largest distance since the last write, 0 when there was none; `merged[m]` counts the
    writes that need no write-back in a cache of at least m lines.
    """
    one = np.int64(1)
    slot, lines, written = state[SLOT], state[LINES], state[WRITTEN]
    wide = last.size > CACHED
    for k in range(ids.size):
        if wide:
            prefetch(last, ids[min(k + AHEAD, ids.size - 1)])
        line = np.uint64(ids[k])
        before = int(last[line]) - 1
        distance = 1
        if before != slot - 1 or slot == 0:
            if before < 0:
                lines += 1
                distance = 0
            else:
                distance = lines - _count_to(bits, tree, before) + 1
                bits[before >> 6] &= ~(one << (before & 63))
                block = before >> SHIFT
                if block < slot >> SHIFT:
                    node = block + 1
                    while node < tree.size:
                        tree[node] -= 1
                        node += node & -node
            bits[slot >> 6] |= one << (slot & 63)
            slot += 1
            last[line] = slot
            if slot & ((1 << SHIFT) - 1) == 0:
                _close_block(bits, tree, (slot >> SHIFT) - 1)
        distances[distance] += 1
        if writes is not None:
            largest = int(level[line])
            if largest > 0:
                largest = max(largest, distance)
            if writes[k]:
                written += 1
                if largest > 0:
                    merged[largest] += 1
                largest = 1
            level[line] = largest
    state[SLOT], state[LINES], state[WRITTEN] = slot, lines, written


@compiled
def _compact(last: Any, bits: Any, ranks: Any, new_bits: Any) -> int:
    """Renumber the marked slots 0, 1, 2, ... in order; return how many there are.

    `ranks` is scratch of one entry a word.
    """
    total = 0
    for word in range(bits.size):
        ranks[word] = total
        total += popcount(bits[word])
    for line in range(last.size):
        if last[line] > 0:
            slot = int(last[line]) - 1
            below = ~(np.int64(-1) << (slot & 63))
            last[line] = ranks[slot >> 6] + popcount(bits[slot >> 6] & below) + 1
    one = np.int64(1)
    for slot in range(total):
        new_bits[slot >> 6] |= one << (slot & 63)
    return total


@compiled
def _last_distances(last: Any, level: Any, bits: Any, tree: Any, lines: int, out: Any) -> None:
    """Count dirty lines by the smallest cache in which they are dirty at the end."""
    for line in range(level.size):
        if level[line] > 0:
            depth = lines - _count_to(bits, tree, int(last[line]) - 1) + 1
            out[max(depth, int(level[line]))] += 1


@curve("lru")
class LruCurve:
    """LRU at all sizes: feed it batches, ask for the curve."""

    def __init__(self, config: CacheConfig) -> None:
        """Start empty; of `config`, `line_bytes` and `flush` matter."""
        self._config = config
        self._last = np.zeros(0, dtype=np.int32)
        self._level = np.zeros(0, dtype=np.int32)
        self._distances = np.zeros(2, dtype=np.int64)
        self._merged = np.zeros(2, dtype=np.int64)
        self._state = np.zeros(4, dtype=np.int64)
        self._any_write = False
        self._open(FIRST_SLOTS)

    @property
    def distinct(self) -> int:
        """Distinct lines seen so far."""
        return int(self._state[LINES])

    def feed(self, batch: Batch) -> None:
        """Simulate one batch."""
        count = batch.ids.size
        self._last = grown(self._last, batch.size)
        self._distances = grown(self._distances, self.distinct + count + 2)
        if batch.writes is not None:
            self._any_write = True
            self._level = grown(self._level, batch.size)
            self._merged = grown(self._merged, self.distinct + count + 2)
        if self._state[SLOT] + count >= 64 * self._bits.size:
            self._make_room(count)
        _stack_distances(
            batch.ids,
            batch.writes,
            self._last,
            self._bits,
            self._tree,
            self._distances,
            self._level,
            self._merged,
            self._state,
        )

    def results(self, partial: bool = False) -> Sequence[CurveResult]:
        """The curve of the accesses so far."""
        lines = self.distinct
        written = int(self._state[WRITTEN])
        accesses = int(self._distances.sum())
        found = miss_curve(
            "lru",
            self._config.line_bytes,
            accesses - written,
            written,
            lines,
            self._distances,
            partial,
        )
        writebacks = np.full(lines + 1, written, dtype=np.int64)
        flushed = np.zeros(lines + 1, dtype=np.int64)
        if self._any_write:
            writebacks -= np.cumsum(self._merged[: lines + 1])
            _last_distances(self._last, self._level, self._bits, self._tree, lines, flushed)
            flushed = np.cumsum(flushed)
        if not self._config.flush:
            writebacks -= flushed
            flushed[:] = 0
        return [replace(found, writebacks=writebacks, flushed=flushed)]

    def _open(self, slots: int) -> None:
        self._bits = np.zeros(slots >> 6, dtype=np.int64)
        self._tree = np.zeros((slots >> SHIFT) + 1, dtype=np.int32)

    def _make_room(self, new: int) -> None:
        """Move the marks together; have at least half the slots free afterwards."""
        old_bits = self._bits
        slots = 64 * old_bits.size
        while slots < 2 * (self.distinct + new):
            slots *= 2
        self._open(slots)
        ranks = np.zeros(old_bits.size, dtype=np.int32)
        self._state[SLOT] = _compact(self._last, old_bits, ranks, self._bits)
        for block in range(int(self._state[SLOT]) >> SHIFT):
            _close_block(self._bits, self._tree, block)
