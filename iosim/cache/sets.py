"""Set-associative caches: LRU, FIFO and tree PLRU, with conflict misses told from capacity misses.

A line lies in set `line mod sets`, the line number taken as unsigned.  Empty ways fill first,
from way 0 on.  A fully associative LRU cache of the same size runs along: a miss that it does not
have is a conflict miss.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from iosim.cache import counters as at
from iosim.cache.counters import to_result
from iosim.cache.jit import compiled
from iosim.cache.lru import Lru
from iosim.cache.registry import Batch, in_sets
from iosim.cache.result import CacheConfig, CacheResult

LRU: Final = 0
FIFO: Final = 1
PLRU: Final = 2
EMPTY: Final = -1


@compiled
def _towards(tree: Any, way: int, ways: int) -> Any:
    """Flip the tree bits on the path to `way` so that they point away from it.

    Node n has the children 2n and 2n + 1, the root is node 1; bit n of `tree` is 1 when the
    victim is to be sought on the right.
    """
    node = 1
    half = ways >> 1
    while half > 0:
        right = (way & half) != 0
        if right:
            tree &= ~(np.int64(1) << node)
        else:
            tree |= np.int64(1) << node
        node = 2 * node + (1 if right else 0)
        half >>= 1
    return tree


@compiled
def _pointed_at(tree: int, ways: int) -> int:
    """Return the way that the tree bits point at."""
    node = 1
    while node < ways:
        node = 2 * node + ((tree >> node) & 1)
    return node - ways


@compiled
def _in_sets(
    lines: Any,
    ids: Any,
    writes: Any,
    shadow_hits: Any,
    tags: Any,
    dirty: Any,
    state: Any,
    counters: Any,
    sets: int,
    ways: int,
    rule: int,
    allocate: bool,
    back: bool,
) -> None:
    """Simulate one batch; `lines` are uint64.

    `tags` and `dirty` have `sets * ways` entries, ids and 0 or 1; `state` one entry a
    set: the number of insertions (FIFO) or the tree bits (PLRU).  Under LRU the ways of a set
    are kept in order, the most recent first.
    """
    hits = 0
    evictions = 0
    writebacks = 0
    written = 0
    through = 0
    unfetched = 0
    conflicts = 0
    unsigned_sets = np.uint64(sets)
    for k in range(ids.size):
        line = ids[k]
        write = 0
        mark = 0
        if writes is not None:
            write = int(writes[k])
            written += write
            if back:
                mark = write
            else:
                through += write
        here = int(lines[k] % unsigned_sets)
        first = here * ways
        way = 0
        while way < ways and tags[first + way] != line and tags[first + way] != EMPTY:
            way += 1
        if way < ways and tags[first + way] == line:
            hits += 1
            mark |= dirty[first + way]
        else:
            if shadow_hits[k]:
                conflicts += 1
            if writes is not None and write and not allocate:
                if back:
                    through += 1
                unfetched += 1
                continue
            if way == ways:
                evictions += 1
                if rule == LRU:
                    way = ways - 1
                elif rule == FIFO:
                    way = state[here] % ways
                else:
                    way = _pointed_at(state[here], ways)
                writebacks += int(dirty[first + way])
            if rule == FIFO:
                state[here] += 1
        if rule == LRU:
            for place in range(first + way, first, -1):
                tags[place] = tags[place - 1]
                dirty[place] = dirty[place - 1]
            way = 0
        elif rule == PLRU:
            state[here] = _towards(state[here], way, ways)
        tags[first + way] = line
        dirty[first + way] = mark
    counters[at.ACCESSES] += ids.size
    counters[at.WRITES] += written
    counters[at.HITS] += hits
    counters[at.EVICTIONS] += evictions
    counters[at.WRITEBACKS] += writebacks
    counters[at.WRITETHROUGHS] += through
    counters[at.UNFETCHED] += unfetched
    counters[at.CONFLICT] += conflicts


class SetAssociative:
    """A set-associative cache of one size: feed it batches, ask for its result."""

    def __init__(self, policy: str, rule: int, config: CacheConfig) -> None:
        """Start empty; `rule` is LRU, FIFO or PLRU."""
        assert config.ways is not None
        self._policy = policy
        self._rule = rule
        self._config = config
        self._ways = config.ways
        self._sets = config.capacity_lines // config.ways
        self._shadow = Lru(config)
        self._tags = np.full(config.capacity_lines, EMPTY, dtype=np.int32)
        self._dirty = np.zeros(config.capacity_lines, dtype=np.uint8)
        self._state = np.zeros(self._sets, dtype=np.int64)
        self._counters = np.zeros(at.SIZE, dtype=np.int64)

    @property
    def distinct(self) -> int:
        """Distinct lines seen so far."""
        return self._shadow.distinct

    def feed(self, batch: Batch) -> None:
        """Simulate one batch."""
        shadow_hits = np.empty(batch.ids.size, dtype=np.uint8)
        self._shadow.feed(batch, shadow_hits)
        _in_sets(
            batch.lines.view(np.uint64),
            batch.ids,
            batch.writes,
            shadow_hits,
            self._tags,
            self._dirty,
            self._state,
            self._counters,
            self._sets,
            self._ways,
            self._rule,
            self._config.write_allocate,
            self._config.write_back,
        )

    def results(self, partial: bool = False) -> Sequence[CacheResult]:
        """Counts so far."""
        self._counters[at.COMPULSORY] = self._shadow.distinct
        dirty = int(np.count_nonzero(self._dirty))
        return [to_result(self._policy, self._config, self._counters, dirty, partial)]


@in_sets("lru")
def _make_lru(configs: Sequence[CacheConfig]) -> Sequence[SetAssociative]:
    return [SetAssociative("lru", LRU, config) for config in configs]


@in_sets("fifo")
def _make_fifo(configs: Sequence[CacheConfig]) -> Sequence[SetAssociative]:
    return [SetAssociative("fifo", FIFO, config) for config in configs]


@in_sets("plru")
def _make_plru(configs: Sequence[CacheConfig]) -> Sequence[SetAssociative]:
    return [SetAssociative("plru", PLRU, config) for config in configs]
