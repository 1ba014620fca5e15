"""What an engine returns: counts in accesses and lines, never in bytes or words."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class CacheConfig:
    """One cache: its size and rules.

    `capacity_lines` is in lines, `line_bytes` in bytes, None where a line is one word of whatever
    size; `ways=None` is fully associative.
    `write_allocate`: a write miss brings the line in.  `write_back`: a write marks the line
    dirty and it is written when it leaves (else every write goes through).  `bypass`: OPT may
    leave a line out that is needed later than all it holds.  `flush`: dirty lines that remain
    at the end are written back and counted.
    """

    capacity_lines: int
    line_bytes: int | None = 1
    ways: int | None = None
    write_allocate: bool = True
    write_back: bool = True
    bypass: bool = False
    flush: bool = True


@dataclass(frozen=True)
class CacheResult:
    """Counts of one policy at one size over one trace; all in accesses or lines.

    `misses = compulsory + capacity + conflict`: the first access to a line, a miss that a fully
    associative LRU cache of the same size has too, and the rest (Hill's three Cs, decided access
    by access).  Fully associative caches have no conflict misses.  `fetched` lines came from
    slow memory; `writebacks` dirty lines went there, `flushed` of them at the end (both None on
    OPT's curve);
    `writethroughs` are writes passed on one by one.  `partial` marks an interrupted run.

    >>> r = CacheResult(policy="lru", capacity_lines=2, line_bytes=1, ways=None, accesses=3,
    ...     reads=3, writes=0, hits=1, misses=2, compulsory=2, capacity=0, conflict=0,
    ...     evictions=0, writebacks=0, flushed=0, writethroughs=0, fetched=2)
    >>> r.miss_ratio, r.moved_lines
    (0.6666666666666666, 2)
    """

    policy: str
    capacity_lines: int
    line_bytes: int | None
    ways: int | None
    accesses: int
    reads: int
    writes: int
    hits: int
    misses: int
    compulsory: int
    capacity: int
    conflict: int
    evictions: int
    writebacks: int | None
    flushed: int | None
    writethroughs: int
    fetched: int
    partial: bool = False

    @property
    def miss_ratio(self) -> float:
        """Misses per access."""
        return self.misses / self.accesses if self.accesses else 0.0

    @property
    def moved_lines(self) -> int | None:
        """Lines moved to or from slow memory, writes passed through counted as one line each.

        None where write-backs were not counted.
        """
        if self.writebacks is None:
            return None
        return self.fetched + self.writebacks + self.writethroughs

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class CurveResult:
    """Misses at every capacity: `misses[C]` for C = 0, 1, ..., number of distinct lines.

    Beyond the last entry the counts no longer change.  `writebacks[C]` counts dirty lines
    written back under write-allocate and write-back, those still there at the end included
    (`flushed[C]` of them); both are None for OPT.  Arrays are int64, in accesses and lines.
    """

    policy: str
    line_bytes: int | None
    accesses: int
    reads: int
    writes: int
    compulsory: int
    misses: NDArray[np.int64]
    writebacks: NDArray[np.int64] | None = None
    flushed: NDArray[np.int64] | None = None
    partial: bool = False

    def at(self, capacity_lines: int) -> CacheResult:
        """Counts at one capacity in lines; a capacity of 0 holds nothing: every access misses."""
        last = self.misses.size - 1
        index = min(capacity_lines, last)
        misses = int(self.misses[index])
        return CacheResult(
            policy=self.policy,
            capacity_lines=capacity_lines,
            line_bytes=self.line_bytes,
            ways=None,
            accesses=self.accesses,
            reads=self.reads,
            writes=self.writes,
            hits=self.accesses - misses,
            misses=misses,
            compulsory=self.compulsory,
            capacity=misses - self.compulsory,
            conflict=0,
            evictions=max(0, misses - capacity_lines),
            writebacks=None if self.writebacks is None else int(self.writebacks[index]),
            flushed=None if self.flushed is None else int(self.flushed[index]),
            writethroughs=0,
            fetched=misses,
            partial=self.partial,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        values = asdict(self)
        for name in ("misses", "writebacks", "flushed"):
            if values[name] is not None:
                values[name] = values[name].tolist()
        return values


def miss_curve(
    policy: str,
    line_bytes: int | None,
    reads: int,
    writes: int,
    compulsory: int,
    distances: NDArray[np.int64],
    partial: bool = False,
) -> CurveResult:
    """Turn a histogram of stack distances into misses at every capacity.

    `distances[k]` accesses hit in every cache of at least k lines (k = 1, 2, ...); the
    `compulsory` ones hit in none (Mattson, Gecsei, Slutz and Traiger 1970).
    """
    accesses = reads + writes
    hits = np.zeros(compulsory + 1, dtype=np.int64)
    hits[1:] = np.cumsum(distances[1 : compulsory + 1])
    return CurveResult(
        policy, line_bytes, accesses, reads, writes, compulsory, accesses - hits, partial=partial
    )
