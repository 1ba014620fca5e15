"""Fully associative FIFO at one size.

The lines inserted last are the resident ones, so a line is resident when its insertion is among
the latest `count`: no queue is needed.  A ring over insertions holds the dirty bits.
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

TIME: Final = OWN  # of the next insertion
COUNT: Final = OWN + 1
#: `inserted` holds 0 for a line never seen, 1 for one never inserted, else a time.
FIRST_TIME: Final = 2
#: Times are int32; before they run out the table is numbered anew.
TIME_LIMIT = (1 << 31) - (1 << 20)


@compiled
def _fifo(
    ids: Any,
    writes: Any,
    inserted: Any,
    dirty: Any,
    counters: Any,
    capacity: int,
    allocate: bool,
    back: bool,
) -> None:
    mask = dirty.size - 1
    time, count = counters[TIME], counters[COUNT]
    hits = 0
    compulsory = 0
    evictions = 0
    writebacks = 0
    written = 0
    through = 0
    unfetched = 0
    wide = inserted.size > CACHED
    for k in range(ids.size):
        if wide:
            prefetch(inserted, ids[min(k + AHEAD, ids.size - 1)])
        line = np.uint64(ids[k])
        write = 0
        mark = 0
        if writes is not None:
            write = int(writes[k])
            written += write
            if back:
                mark = write
            else:
                through += write
        since = inserted[line]
        if since >= time - count:
            hits += 1
            dirty[since & mask] |= mark
            continue
        if since == 0:
            compulsory += 1
        if writes is not None and write and not allocate:
            if back:
                through += 1
            unfetched += 1
            inserted[line] = 1
            continue
        if count == capacity:
            evictions += 1
            writebacks += int(dirty[(time - count) & mask])
        else:
            count += 1
        dirty[time & mask] = mark
        inserted[line] = time
        time += 1
    counters[TIME], counters[COUNT] = time, count
    counters[at.ACCESSES] += ids.size
    counters[at.WRITES] += written
    counters[at.HITS] += hits
    counters[at.COMPULSORY] += compulsory
    counters[at.EVICTIONS] += evictions
    counters[at.WRITEBACKS] += writebacks
    counters[at.WRITETHROUGHS] += through
    counters[at.UNFETCHED] += unfetched


class Fifo:
    """Fully associative FIFO of one size: feed it batches, ask for its result."""

    def __init__(self, config: CacheConfig) -> None:
        """Start empty."""
        self._config = config
        self._inserted = np.zeros(0, dtype=np.int32)
        self._dirty = np.zeros(2, dtype=np.uint8)
        self._counters = np.zeros(at.SIZE, dtype=np.int64)
        self._counters[TIME] = FIRST_TIME

    @property
    def distinct(self) -> int:
        """Distinct lines seen so far."""
        return int(self._counters[at.COMPULSORY])

    def feed(self, batch: Batch) -> None:
        """Simulate one batch."""
        self._inserted = grown(self._inserted, batch.size)
        self._make_room(batch.ids.size)
        if self._counters[TIME] + batch.ids.size > TIME_LIMIT:
            self._number_anew()
        _fifo(
            batch.ids,
            batch.writes,
            self._inserted,
            self._dirty,
            self._counters,
            self._config.capacity_lines,
            self._config.write_allocate,
            self._config.write_back,
        )

    def results(self, partial: bool = False) -> Sequence[CacheResult]:
        """Counts so far."""
        dirty = int(np.count_nonzero(self._dirty[self._resident() & (self._dirty.size - 1)]))
        return [to_result("fifo", self._config, self._counters, dirty, partial)]

    def _resident(self) -> Any:
        """Times at which the resident lines came in."""
        time, count = self._counters[TIME], self._counters[COUNT]
        return np.arange(time - count, time)

    def _make_room(self, new: int) -> None:
        """Let the ring of dirty bits hold what may be resident after `new` more accesses."""
        resident = min(self._config.capacity_lines, self.distinct + new)
        if self._dirty.size > resident:
            return
        larger = np.zeros(1 << resident.bit_length(), dtype=np.uint8)
        times = self._resident()
        larger[times & (larger.size - 1)] = self._dirty[times & (self._dirty.size - 1)]
        self._dirty = larger

    def _number_anew(self) -> None:
        """Start the times again, keeping the order of the resident lines."""
        times = self._resident()
        shift = int(times[0]) - FIRST_TIME if times.size else 0
        dirty = self._dirty[times & (self._dirty.size - 1)]
        self._dirty[(times - shift) & (self._dirty.size - 1)] = dirty
        resident = self._inserted >= (times[0] if times.size else FIRST_TIME)
        self._inserted[~resident & (self._inserted > 0)] = 1
        self._inserted[resident] -= shift
        self._counters[TIME] -= shift


@fully_associative("fifo")
def _make(configs: Sequence[CacheConfig]) -> Sequence[Fifo]:
    return [Fifo(config) for config in configs]
