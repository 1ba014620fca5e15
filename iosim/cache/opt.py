"""OPT (Belady 1966) at one or several sizes: the victim is the line needed again last.

A first pass keeps, for every access, the time of the next access to its line (4 bytes an access,
8 from 2^32 accesses on, and 1 for a write).  Next uses are distinct, so the cache is a set of
times: the access at time t hits when t is in the set, and the victim is the largest time in it.
The set is a bitmap over time with three levels of summary, 64 times to a word.

Of the lines never used again, clean ones leave first.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from iosim.cache import counters as at
from iosim.cache.counters import to_result
from iosim.cache.index import grown
from iosim.cache.jit import AHEAD, CACHED, compiled, prefetch, top_bit
from iosim.cache.registry import Batch, fully_associative
from iosim.cache.result import CacheConfig, CacheResult

#: From here on times need 8 bytes.
SHORT_TIMES = 1 << 32
#: Accesses there is room for at first; room that is not used takes no memory.
FIRST_ROOM = 1 << 24


@compiled
def _link(ids: Any, last: Any, next_use: Any, time: int) -> int:
    """Write each access's time as the next use of the one before; return how many had none."""
    compulsory = 0
    wide = last.size > CACHED
    for k in range(ids.size):
        if wide:
            prefetch(last, ids[min(k + AHEAD, ids.size - 1)])
        line = np.uint64(ids[k])
        before = np.int64(last[line])  # one more than the time, so that 0 means never
        if before == 0:
            compulsory += 1
        else:
            next_use[np.uint64(before - 1)] = time
        time += 1
        last[line] = time
    return compulsory


@compiled
def _opt(
    next_use: Any,
    writes: Any,
    low: Any,
    middle: Any,
    high: Any,
    top: Any,
    dirty_bits: Any,
    counters: Any,
    capacity: int,
    allocate: bool,
    back: bool,
    bypass: bool,
) -> int:
    """Run the whole trace; return how many lines are dirty at the end."""
    one = np.int64(1)
    count = 0
    dead_clean = 0  # resident lines that are never used again
    dead_dirty = 0
    dirty_count = 0  # dirty lines that are used again
    hits = 0
    evictions = 0
    writebacks = 0
    written = 0
    through = 0
    unfetched = 0
    # One place each for "largest", "remove" and "insert", written out: a call with arrays would
    # count references to them at every access.
    for time in range(next_use.size):
        later = np.int64(next_use[time])  # 0: never
        write = 0
        dirty = 0
        if writes is not None:
            write = int(writes[time])
            written += write
            if back:
                dirty = write
            else:
                through += write
        gone = -1  # the time that leaves the set
        hit = (low[time >> 6] >> (time & 63)) & 1 == 1
        if hit:
            hits += 1
            gone = time
        else:
            if writes is not None and write and not allocate:
                if back:
                    through += 1
                unfetched += 1
                continue
            full = count == capacity
            if full and dead_clean + dead_dirty == 0:
                word = top.size - 1
                while top[word] == 0:
                    word -= 1
                word = (word << 6) | top_bit(top[word])
                word = (word << 6) | top_bit(high[word])
                word = (word << 6) | top_bit(middle[word])
                gone = (word << 6) | top_bit(low[word])
            # A line that is never used again gains nothing by a swap with another such line.
            if bypass and full and (later == 0 or (gone >= 0 and later > gone)):
                through += write if back else 0
                unfetched += write
                continue
            if not full:
                count += 1
            else:
                evictions += 1
                if dead_clean > 0:
                    dead_clean -= 1
                elif dead_dirty > 0:
                    dead_dirty -= 1
                    writebacks += 1
        if gone >= 0:
            word = gone >> 6
            bits = low[word] & ~(one << (gone & 63))
            low[word] = bits
            if bits == 0:
                bits = middle[word >> 6] & ~(one << (word & 63))
                middle[word >> 6] = bits
                if bits == 0:
                    bits = high[word >> 12] & ~(one << ((word >> 6) & 63))
                    high[word >> 12] = bits
                    if bits == 0:
                        top[word >> 18] &= ~(one << ((word >> 12) & 63))
            if writes is not None and (dirty_bits[word] >> (gone & 63)) & 1:
                dirty_bits[word] &= ~(one << (gone & 63))
                dirty_count -= 1
                if hit:
                    dirty = 1
                else:
                    writebacks += 1
        if later == 0:
            dead_clean += 1 - dirty
            dead_dirty += dirty
        else:
            word = later >> 6
            bits = low[word]
            low[word] = bits | (one << (later & 63))
            if bits == 0:
                middle[word >> 6] |= one << (word & 63)
                high[word >> 12] |= one << ((word >> 6) & 63)
                top[word >> 18] |= one << ((word >> 12) & 63)
            if writes is not None and dirty:
                dirty_bits[word] |= one << (later & 63)
                dirty_count += 1
    counters[at.ACCESSES] = next_use.size
    counters[at.WRITES] = written
    counters[at.HITS] = hits
    counters[at.EVICTIONS] = evictions
    counters[at.WRITEBACKS] = writebacks
    counters[at.WRITETHROUGHS] = through
    counters[at.UNFETCHED] = unfetched
    return dirty_count + dead_dirty


class Opt:
    """Fully associative OPT of several sizes over one record of next uses."""

    def __init__(self, configs: Sequence[CacheConfig]) -> None:
        """Start empty; every size is simulated when results are asked for."""
        self._configs = tuple(configs)
        self._last = np.zeros(0, dtype=np.uint32)
        self._next_use = np.zeros(0, dtype=np.uint32)
        self._writes = np.zeros(0, dtype=np.uint8)
        self._accesses = 0
        self._distinct = 0

    @property
    def distinct(self) -> int:
        """Distinct lines seen so far."""
        return self._distinct

    def feed(self, batch: Batch) -> None:
        """Record the next uses in one batch."""
        size = self._accesses + batch.ids.size
        if size >= SHORT_TIMES and self._next_use.itemsize == 4:
            self._next_use = self._next_use.astype(np.int64)
            self._last = self._last.astype(np.int64)
        self._last = grown(self._last, batch.size)
        self._next_use = _lengthened(self._next_use, size)
        if batch.writes is not None:
            self._writes = _lengthened(self._writes, size)
            self._writes[self._accesses : size] = batch.writes
        self._distinct += _link(batch.ids, self._last, self._next_use, self._accesses)
        self._accesses = size

    def results(self, partial: bool = False) -> Sequence[CacheResult]:
        """Counts of the accesses so far, at every size."""
        return [self._result(config, partial) for config in self._configs]

    def _result(self, config: CacheConfig, partial: bool) -> CacheResult:
        words = (self._accesses >> 6) + 1
        low, middle, high, top = (
            np.zeros((words >> shift) + 1, dtype=np.int64) for shift in (0, 6, 12, 18)
        )
        any_write = self._writes.size > 0
        if any_write:
            self._writes = _lengthened(self._writes, self._accesses)
        counters = np.zeros(at.SIZE, dtype=np.int64)
        dirty_left = _opt(
            self._next_use[: self._accesses],
            self._writes[: self._accesses] if any_write else None,
            low,
            middle,
            high,
            top,
            np.zeros(words if any_write else 0, dtype=np.int64),
            counters,
            config.capacity_lines,
            config.write_allocate,
            config.write_back,
            config.bypass,
        )
        counters[at.COMPULSORY] = self._distinct
        return to_result("opt", config, counters, dirty_left, partial)


def _lengthened(array: Any, size: int) -> Any:
    """Return `array` with room for `size` entries, new ones 0.

    Entries of up to 4 bytes move to a new array of at most twice the size (12 bytes an access
    meanwhile; a fresh array gets large pages); longer ones grow in place, to stay below 16.
    """
    if array.size >= size:
        return array
    if array.itemsize > 4:
        array.resize(size + size // 8, refcheck=False)
        return array
    longer = np.zeros(max(size, 2 * array.size, FIRST_ROOM), dtype=array.dtype)
    longer[: array.size] = array
    return longer


@fully_associative("opt")
def _make(configs: Sequence[CacheConfig]) -> Sequence[Opt]:
    return [Opt(configs)]
