"""OPT misses at every size in one pass: the critical stack of Bilardi, Ekanadham and Pattnaik.

"Optimal On-Line Computation of Stack Distances for MIN and OPT" (Computing Frontiers 2017) shows
that OPT's stack distances need no knowledge of the future.  Besides the latest access of every
line, one *marker* for every capacity C is kept: the time of the last access that was at distance
C.  For an access to a line last used at time p, let tau be the earliest latest-use time after p
such that as many markers as lines lie after tau; the distance is the smallest C > 1 whose marker
is not after tau.  That marker then moves to now.

Two trees make this logarithmic.  One over time, in words of 64 slots, holds (markers - lines) and
its smallest suffix sum at a latest-use time; one over capacities holds the earliest marker.  When
the slots run out, those in use move together.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from iosim.cache.index import grown
from iosim.cache.jit import AHEAD, CACHED, compiled, inlined, popcount, prefetch, top_bit
from iosim.cache.registry import Batch, curve
from iosim.cache.result import CacheConfig, CurveResult, miss_curve

NEVER: Final = 1 << 30  # above every sum, below overflow when one is added
FAR: Final = (1 << 31) - 1  # a marker time after every other
LEAF: Final = 64  # capacities in a leaf of the second tree
#: Slots to begin with: 64 times a power of 2.
FIRST_SLOTS = 1 << 18

SLOT: Final = 0  # the next slot
LINES: Final = 1  # distinct lines


@inlined
def _word_sum(lines: Any, marks: Any) -> int:
    return popcount(marks) - popcount(lines)


@inlined
def _word_min(lines: Any, marks: Any) -> int:
    """Smallest (markers - lines) after a line of this word, within the word."""
    smallest = NEVER
    passed = 0
    while lines != 0:
        bit = top_bit(lines)
        after = marks & (np.int64(-2) << bit)
        smallest = min(smallest, popcount(after) - passed)
        lines ^= np.int64(1) << bit
        passed += 1
    return smallest


@inlined
def _lowest_zero(lines: Any, marks: Any, beyond: int, above: int) -> int:
    """Lowest line bit above bit `above` after which the sum is 0, or -1.

    `beyond` is the sum of everything after this word.
    """
    found = -1
    lines &= np.int64(-2) << above if above >= 0 else np.int64(-1)
    passed = 0
    while lines != 0:
        bit = top_bit(lines)
        after = marks & (np.int64(-2) << bit)
        if beyond + popcount(after) - passed == 0:
            found = bit
        lines ^= np.int64(1) << bit
        passed += 1
    return found


@inlined
def _refresh(lines: Any, marks: Any, sums: Any, mins: Any, word: int) -> None:
    """Bring the tree over time up to date after a change in `word`."""
    node = (sums.size >> 1) + word
    sums[node] = _word_sum(lines[word], marks[word])
    mins[node] = _word_min(lines[word], marks[word])
    node >>= 1
    while node > 0:
        right = 2 * node + 1
        sums[node] = sums[right - 1] + sums[right]
        mins[node] = min(mins[right], sums[right] + mins[right - 1])
        node >>= 1


@inlined
def _balanced_after(lines: Any, marks: Any, sums: Any, mins: Any, before: int, current: int) -> int:
    """Earliest latest-use slot after slot `before` after which markers and lines balance.

    Words from `current` on are not in the tree yet.
    """
    word = before >> 6
    if word == current:
        return (word << 6) + _lowest_zero(lines[word], marks[word], 0, before & 63)
    open_sum = _word_sum(lines[current], marks[current])
    beyond = open_sum
    node = (sums.size >> 1) + word
    while node > 1:
        if node & 1 == 0:
            beyond += sums[node + 1]
        node >>= 1
    found = _lowest_zero(lines[word], marks[word], beyond, before & 63)
    if found >= 0:
        return (word << 6) + found
    node = (sums.size >> 1) + word
    while node > 1:
        if node & 1 == 0:
            beyond -= sums[node + 1]
            if beyond + mins[node + 1] == 0:
                node += 1
                break
        node >>= 1
    if node == 1:
        return (current << 6) + _lowest_zero(lines[current], marks[current], 0, -1)
    while node < sums.size >> 1:
        right = 2 * node + 1
        if beyond + sums[right] + mins[right - 1] == 0:
            beyond += sums[right]
            node = right - 1
        else:
            node = right
    word = node - (sums.size >> 1)
    return int((word << 6) + _lowest_zero(lines[word], marks[word], beyond, -1))


@inlined
def _set_marker(marker: Any, earliest: Any, capacity: int, slot: int) -> None:
    """Move the marker of a capacity to `slot`."""
    marker[capacity] = slot
    leaf = capacity // LEAF
    smallest = FAR
    for place in range(leaf * LEAF, (leaf + 1) * LEAF):
        smallest = min(smallest, int(marker[place]))
    node = (earliest.size >> 1) + leaf
    while node > 0 and earliest[node] != smallest:
        earliest[node] = smallest
        smallest = min(smallest, int(earliest[node ^ 1]))
        node >>= 1


@inlined
def _smallest_capacity(marker: Any, earliest: Any, slot: int) -> int:
    """Smallest capacity whose marker is at or before `slot`."""
    node = 1
    while node < earliest.size >> 1:
        node *= 2
        if earliest[node] > slot:
            node += 1
    capacity = (node - (earliest.size >> 1)) * LEAF
    while marker[capacity] > slot:
        capacity += 1
    return int(capacity)


@compiled
def _opt_distances(
    ids: Any,
    last: Any,
    lines: Any,
    marks: Any,
    sums: Any,
    mins: Any,
    marker: Any,
    earliest: Any,
    distances: Any,
    state: Any,
) -> None:
    """Add the distances of one batch to the histogram `distances`.

    `last[id]` is one more than the slot of the latest access, 0 for none.
    """
    one = np.int64(1)
    slot, distinct = state[SLOT], state[LINES]
    wide = last.size > CACHED
    for k in range(ids.size):
        if wide:
            prefetch(last, ids[min(k + AHEAD, ids.size - 1)])
        line = np.uint64(ids[k])
        before = int(last[line]) - 1
        if before == slot - 1 and slot > 0:
            distances[1] += 1
            continue
        current = slot >> 6
        if before < 0:
            distinct += 1
            distance = distinct
            distances[0] += 1
        else:
            balanced = _balanced_after(lines, marks, sums, mins, before, current)
            distance = _smallest_capacity(marker, earliest, balanced)
            distances[distance] += 1
            lines[before >> 6] &= ~(one << (before & 63))
            old = int(marker[distance])
            marks[old >> 6] &= ~(one << (old & 63))
            if before >> 6 < current:
                _refresh(lines, marks, sums, mins, before >> 6)
            if old >> 6 < current and old >> 6 != before >> 6:
                _refresh(lines, marks, sums, mins, old >> 6)
        lines[current] |= one << (slot & 63)
        if distance > 1:
            marks[current] |= one << (slot & 63)
            _set_marker(marker, earliest, distance, slot)
        slot += 1
        last[line] = slot
        if slot & 63 == 0:
            _refresh(lines, marks, sums, mins, current)
    state[SLOT], state[LINES] = slot, distinct


@compiled
def _compact(last: Any, marker: Any, lines: Any, marks: Any, new_lines: Any, new_marks: Any) -> int:
    """Renumber the slots in use 0, 1, 2, ... in order; return how many there are."""
    one = np.int64(1)
    ranks = np.zeros(lines.size, dtype=np.int32)
    total = 0
    for word in range(lines.size):
        ranks[word] = total
        total += popcount(lines[word] | marks[word])
    for line in range(last.size):
        if last[line] > 0:
            slot = int(last[line]) - 1
            word = slot >> 6
            below = ~(np.int64(-1) << (slot & 63))
            slot = ranks[word] + popcount((lines[word] | marks[word]) & below)
            new_lines[slot >> 6] |= one << (slot & 63)
            last[line] = slot + 1
    for capacity in range(marker.size):
        if marker[capacity] < FAR:
            slot = int(marker[capacity])
            word = slot >> 6
            below = ~(np.int64(-1) << (slot & 63))
            slot = ranks[word] + popcount((lines[word] | marks[word]) & below)
            new_marks[slot >> 6] |= one << (slot & 63)
            marker[capacity] = slot
    return total


@compiled
def _build_time_tree(lines: Any, marks: Any, sums: Any, mins: Any, words: int) -> None:
    """Fill the tree over time from its first `words` words."""
    leaves = sums.size >> 1
    for word in range(words):
        sums[leaves + word] = _word_sum(lines[word], marks[word])
        mins[leaves + word] = _word_min(lines[word], marks[word])
    for node in range(leaves - 1, 0, -1):
        right = 2 * node + 1
        sums[node] = sums[right - 1] + sums[right]
        mins[node] = min(mins[right], sums[right] + mins[right - 1])


@compiled
def _build_marker_tree(marker: Any, earliest: Any) -> None:
    leaves = earliest.size >> 1
    for leaf in range(leaves):
        smallest = FAR
        for place in range(leaf * LEAF, (leaf + 1) * LEAF):
            smallest = min(smallest, int(marker[place]))
        earliest[leaves + leaf] = smallest
    for node in range(leaves - 1, 0, -1):
        earliest[node] = min(earliest[2 * node], earliest[2 * node + 1])


@curve("opt")
class OptCurve:
    """OPT at all sizes (must allocate): feed it batches, ask for the curve."""

    def __init__(self, config: CacheConfig) -> None:
        """Start empty; of `config`, `line_bytes` matters."""
        self._config = config
        self._last = np.zeros(0, dtype=np.int32)
        self._distances = np.zeros(2, dtype=np.int64)
        self._state = np.zeros(2, dtype=np.int64)
        self._written = 0
        self._marker = np.full(2 * LEAF, FAR, dtype=np.int32)
        self._earliest = np.full(4, FAR, dtype=np.int32)
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
        self._make_room_for_markers(self.distinct + count + 1)
        if self._state[SLOT] + count >= 64 * self._lines.size:
            self._make_room(count)
        _opt_distances(
            batch.ids,
            self._last,
            self._lines,
            self._marks,
            self._sums,
            self._mins,
            self._marker,
            self._earliest,
            self._distances,
            self._state,
        )
        if batch.writes is not None:
            self._written += int(np.count_nonzero(batch.writes))

    def results(self, partial: bool = False) -> Sequence[CurveResult]:
        """The curve of the accesses so far."""
        accesses = int(self._distances.sum())
        return [
            miss_curve(
                "opt",
                self._config.line_bytes,
                accesses - self._written,
                self._written,
                self.distinct,
                self._distances,
                partial,
            )
        ]

    def _open(self, slots: int) -> None:
        words = slots >> 6
        self._lines = np.zeros(words, dtype=np.int64)
        self._marks = np.zeros(words, dtype=np.int64)
        self._sums = np.zeros(2 * words, dtype=np.int32)
        self._mins = np.full(2 * words, NEVER, dtype=np.int32)

    def _make_room_for_markers(self, capacities: int) -> None:
        if self._marker.size >= capacities + 1:
            return
        size = 1 << int(capacities).bit_length()
        marker = np.full(size, FAR, dtype=np.int32)
        marker[: self._marker.size] = self._marker
        earliest = np.full(2 * (size // LEAF), FAR, dtype=np.int32)
        _build_marker_tree(marker, earliest)
        self._marker, self._earliest = marker, earliest

    def _make_room(self, new: int) -> None:
        """Move the slots in use together; have at least half of them free afterwards."""
        lines, marks = self._lines, self._marks
        slots = 64 * lines.size
        while slots < 2 * (2 * self.distinct + new):
            slots *= 2
        self._open(slots)
        used = _compact(self._last, self._marker, lines, marks, self._lines, self._marks)
        self._state[SLOT] = used
        _build_time_tree(self._lines, self._marks, self._sums, self._mins, used >> 6)
        _build_marker_tree(self._marker, self._earliest)
