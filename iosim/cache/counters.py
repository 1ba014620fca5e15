"""The counters that every compiled engine keeps, as places in one int64 array."""

from typing import Any, Final

from iosim.cache.result import CacheConfig, CacheResult

ACCESSES: Final = 0
WRITES: Final = 1
HITS: Final = 2
COMPULSORY: Final = 3
EVICTIONS: Final = 4
WRITEBACKS: Final = 5
WRITETHROUGHS: Final = 6
UNFETCHED: Final = 7  # misses that brought nothing in: writes that do not allocate
CONFLICT: Final = 8
OWN: Final = 9  # from here on an engine keeps its own scalars
SIZE: Final = 16


def to_result(
    policy: str, config: CacheConfig, counters: Any, dirty_left: int, partial: bool
) -> CacheResult:
    """Turn counters into a result; `dirty_left` lines are dirty when the trace ends."""
    flushed = dirty_left if config.flush else 0
    c = [int(value) for value in counters]
    misses = c[ACCESSES] - c[HITS]
    return CacheResult(
        policy=policy,
        capacity_lines=config.capacity_lines,
        line_bytes=config.line_bytes,
        ways=config.ways,
        accesses=c[ACCESSES],
        reads=c[ACCESSES] - c[WRITES],
        writes=c[WRITES],
        hits=c[HITS],
        misses=misses,
        compulsory=c[COMPULSORY],
        capacity=misses - c[COMPULSORY] - c[CONFLICT],
        conflict=c[CONFLICT],
        evictions=c[EVICTIONS],
        writebacks=c[WRITEBACKS] + flushed,
        flushed=flushed,
        writethroughs=c[WRITETHROUGHS],
        fetched=misses - c[UNFETCHED],
        partial=partial,
    )
