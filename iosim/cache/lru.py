"""Fully associative LRU at one size, without lists and without deleting from a table.

Accesses are logged in a ring; `last[id]` is the place of a line's latest one.  The resident
lines are those whose latest access lies at or after `tail`.  Evicting the least recent line
moves `tail` past the oldest live entry; a hit kills its old entry.  When the ring is full, its
live entries move together.  Each access costs O(1) amortised and the state stays in registers.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from iosim.cache import counters as at
from iosim.cache.counters import OWN, to_result
from iosim.cache.index import grown
from iosim.cache.jit import AHEAD, CACHED, compiled, prefetch
from iosim.cache.registry import Batch, fully_associative
from iosim.cache.result import CacheConfig, CacheResult

TIME: Final = OWN
TAIL: Final = OWN + 1
COUNT: Final = OWN + 2
#: `last` holds 0 for a line never seen, 1 for one seen but not resident, else a time.
FIRST_TIME: Final = 2
CHUNK: Final = 4096  # accesses between two looks at the ring
#: Times are int32; before they run out the table is numbered anew.
TIME_LIMIT = (1 << 31) - (1 << 20)


@compiled
def _compact(last: Any, ring: Any, tail: int, time: int) -> int:
    """Move the live entries of [tail, time) to times from `time` on; return the new time."""
    mask = ring.size - 1
    new = time
    for old in range(tail, time):
        entry = ring[old & mask]
        if entry >= 0:
            ring[new & mask] = entry
            last[entry >> 1] = new
            new += 1
    return new


@compiled
def lru_loop(
    ids: Any,
    writes: Any,
    last: Any,
    ring: Any,
    counters: Any,
    capacity: int,
    allocate: bool,
    back: bool,
    hit_flags: Any,
) -> None:
    """Simulate one batch; entries of the ring are `id << 1 | dirty`.

    `writes` and `hit_flags` (to be filled with 1 for a hit, 0 for a miss) may be None: the
    loop is then compiled without them.
    """
    mask = ring.size - 1
    time, tail, count = counters[TIME], counters[TAIL], counters[COUNT]
    hits = 0
    compulsory = 0
    evictions = 0
    writebacks = 0
    written = 0
    through = 0
    unfetched = 0
    wide = last.size > CACHED
    start = 0
    while start < ids.size:
        stop = min(ids.size, start + CHUNK)
        if time - tail + (stop - start) > mask:
            tail, time = time, _compact(last, ring, tail, time)
        for k in range(start, stop):
            if wide:
                prefetch(last, ids[min(k + AHEAD, ids.size - 1)])
            line = np.uint64(ids[k])
            write = 0
            dirty = 0
            if writes is not None:
                write = int(writes[k])
                written += write
                if back:
                    dirty = write
                else:
                    through += write
            seen = last[line]
            if hit_flags is not None:
                hit_flags[k] = seen >= tail
            if seen >= tail:
                hits += 1
                if writes is not None:
                    dirty |= ring[np.uint64(seen & mask)] & 1
                ring[np.uint64(seen & mask)] = -1
            else:
                if seen == 0:
                    compulsory += 1
                if writes is not None and write and not allocate:
                    if back:
                        through += 1
                    unfetched += 1
                    last[line] = 1
                    continue
                if count == capacity:
                    while ring[np.uint64(tail & mask)] < 0:
                        tail += 1
                    if writes is not None:
                        writebacks += ring[np.uint64(tail & mask)] & 1
                    tail += 1
                    evictions += 1
                else:
                    count += 1
            ring[np.uint64(time & mask)] = (ids[k] << 1) | dirty
            last[line] = time
            time += 1
        start = stop
    counters[TIME], counters[TAIL], counters[COUNT] = time, tail, count
    counters[at.ACCESSES] += ids.size
    counters[at.WRITES] += written
    counters[at.HITS] += hits
    counters[at.COMPULSORY] += compulsory
    counters[at.EVICTIONS] += evictions
    counters[at.WRITEBACKS] += writebacks
    counters[at.WRITETHROUGHS] += through
    counters[at.UNFETCHED] += unfetched


class Lru:
    """Fully associative LRU of one size: feed it batches, ask for its result."""

    def __init__(self, config: CacheConfig) -> None:
        """Start empty."""
        self._config = config
        self._ring = np.full(2 * CHUNK, -1, dtype=np.int32)
        self._last = np.zeros(0, dtype=np.int32)
        self._counters = np.zeros(at.SIZE, dtype=np.int64)
        self._counters[TIME] = self._counters[TAIL] = FIRST_TIME

    @property
    def distinct(self) -> int:
        """Distinct lines seen so far."""
        return int(self._counters[at.COMPULSORY])

    def feed(self, batch: Batch, hit_flags: Any = None) -> None:
        """Simulate one batch; fill `hit_flags` (uint8), if given, with 1 for a hit, else 0."""
        lru_loop(
            batch.ids,
            batch.writes,
            *self.tables(batch.size, batch.ids.size),
            self._config.capacity_lines,
            self._config.write_allocate,
            self._config.write_back,
            hit_flags,
        )

    def tables(self, size: int, new: int) -> tuple[Any, Any, Any]:
        """Return (last, ring, counters) for `lru_loop`, with room for ids below `size`.

        They serve the next `new` accesses.
        """
        self._last = grown(self._last, size)
        self._make_room(new)
        if self._counters[TIME] + 2 * new + self._ring.size > TIME_LIMIT:
            self._number_anew()
        return self._last, self._ring, self._counters

    def results(self, partial: bool = False) -> Sequence[CacheResult]:
        """Counts so far."""
        live = self._live_entries()
        dirty = int(np.count_nonzero(live & 1))
        return [to_result("lru", self._config, self._counters, dirty, partial)]

    def _live_entries(self) -> Any:
        """Entries of the resident lines, least recent first."""
        times = np.arange(self._counters[TAIL], self._counters[TIME])
        entries = self._ring[times & (self._ring.size - 1)]
        return entries[entries >= 0]

    def _make_room(self, new: int) -> None:
        """Let the ring hold twice the lines that may be resident after `new` more accesses."""
        resident = min(self._config.capacity_lines, self.distinct + new)
        if self._ring.size >= 2 * (resident + CHUNK):
            return
        larger = np.full(1 << (2 * (resident + CHUNK) - 1).bit_length(), -1, dtype=np.int32)
        times = np.arange(self._counters[TAIL], self._counters[TIME])
        larger[times & (larger.size - 1)] = self._ring[times & (self._ring.size - 1)]
        self._ring = larger

    def _number_anew(self) -> None:
        """Start the times again, keeping the order of the resident lines."""
        live = self._live_entries()
        self._last[self._last > 0] = 1
        self._last[live >> 1] = np.arange(FIRST_TIME, FIRST_TIME + live.size)
        self._ring[:] = -1
        self._ring[(FIRST_TIME + np.arange(live.size)) & (self._ring.size - 1)] = live
        self._counters[TAIL] = FIRST_TIME
        self._counters[TIME] = FIRST_TIME + live.size


@fully_associative("lru")
def _make(configs: Sequence[CacheConfig]) -> Sequence[Lru]:
    return [Lru(config) for config in configs]
