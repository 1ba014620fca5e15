"""Walks: blocks that read one stream chunk by chunk, in step, and what L2 lets through to HBM.

What an L2 keeps shows in how often a stream is read again from HBM when it is walked in a known
order. benchmarks/gpu_l2.py measures such walks on a GPU; here they are replayed in the simulated
L2. The compiled loop calls that of another file, so it is not stored on disk (`compiled_afresh`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from iosim.cache.jit import compiled_afresh
from iosim.device.hbm import SAMPLE, SEED, cache_of, sides
from iosim.device.l2 import COUNTS, EMPTY, LOAD, READ, Cache, access
from iosim.device.profile import Profile
from iosim.errors import IosimError


@dataclass(frozen=True)
class Walk:
    """A stream of `chunks` of `chunk_bytes`, read `passes` times by blocks that go in step.

    A block with a lag of l chunks reads in step s the chunk s - l, counted through all passes.
    With `up_and_down` every second pass goes backwards. `lags` has a lag for each block, in the
    order that blocks are handed out. Raises IosimError for a walk that reads nothing.
    """

    chunks: int
    chunk_bytes: int
    passes: int
    lags: tuple[int, ...]
    up_and_down: bool = False

    def __post_init__(self) -> None:
        for name in ("chunks", "chunk_bytes", "passes"):
            if getattr(self, name) < 1:
                raise IosimError(f"{name} is {getattr(self, name)}, but a walk needs at least 1")
        if not self.lags or min(self.lags) < 0:
            raise IosimError(f"lags is {self.lags}, but a walk needs blocks with lags from 0 on")

    @property
    def stream_bytes(self) -> int:
        """Bytes of the stream."""
        return self.chunks * self.chunk_bytes

    @property
    def most_reads(self) -> int:
        """How often the stream is read from HBM if nothing stays: blocks at one place read once."""
        return self.passes * len(set(self.lags))

    def share_again(self, read_bytes: int) -> float:
        """Return which share of what could be read again from HBM was, 0 to 1.

        Raises IosimError for a walk that cannot read anything twice.

        >>> Walk(8, chunk_bytes=1 << 18, passes=3, lags=(0, 0)).share_again(4 << 20)
        0.5
        """
        if self.most_reads < 2:
            raise IosimError("a walk of one pass and one lag reads nothing again")
        return (read_bytes / self.stream_bytes - 1) / (self.most_reads - 1)


def walk_of(record: Mapping[str, Any], chunk_bytes: int) -> Walk:
    """Return the walk that a record of benchmarks/gpu_l2.py describes.

    >>> walk_of({"chunks": 8, "passes": 2, "lags": [0, 0, 4], "up_and_down": False}, 1 << 18)
    Walk(chunks=8, chunk_bytes=262144, passes=2, lags=(0, 0, 4), up_and_down=False)
    """
    return Walk(
        chunks=record["chunks"],
        chunk_bytes=chunk_bytes,
        passes=record["passes"],
        lags=tuple(record["lags"]),
        up_and_down=record["up_and_down"],
    )


def replay(
    walk: Walk,
    profile: Profile,
    *,
    block_sides: Sequence[int] | None = None,
    sample: int = SAMPLE,
    seed: int = SEED,
) -> int:
    """Return the bytes that a walk reads from HBM on the device of `profile`, L2 cold at its start.

    `block_sides` is the partition that each block reads through; by default as blocks are handed
    out (`iosim.device.hbm.sides`), for a `seed`.

    >>> from iosim.device.profile import profile
    >>> for mib in (16, 64):  # twice, by all SMs
    ...     walk = Walk(4 * mib, chunk_bytes=1 << 18, passes=2, lags=(0,) * 132)
    ...     print(f"{replay(walk, profile('H200')) / walk.stream_bytes:.2f}")
    1.00
    2.00
    """
    if block_sides is None:
        block_sides = sides(profile, seed)[: len(walk.lags)].tolist()
    if len(block_sides) != len(walk.lags):
        raise IosimError(
            f"block_sides has {len(block_sides)} blocks, but the walk has {len(walk.lags)}"
        )
    cache = cache_of(profile, sample)
    tags = np.full((cache.parts, cache.sets, cache.ways), EMPTY, dtype=np.int64)
    seen = np.zeros(walk.stream_bytes // cache.unit_bytes + 1, dtype=np.uint8)
    counts = np.zeros(COUNTS, dtype=np.int64)
    _run(tags, seen, cache, *_walkers(walk, block_sides), walk.chunks, walk.chunk_bytes,
         walk.passes, walk.up_and_down, counts)  # fmt: skip
    return int(counts[READ]) * cache.unit_bytes


def _walkers(walk: Walk, block_sides: Sequence[int]) -> tuple[Any, Any]:
    """Return lags and sides of blocks that differ in either, in order.

    The second of two blocks alike finds every line where the first has just left it, as the latest.
    """
    alike = sorted(set(zip(walk.lags, block_sides, strict=True)))
    lags, parts = np.array(alike, dtype=np.int64).T
    return np.ascontiguousarray(lags), np.ascontiguousarray(parts)


@compiled_afresh
def _run(
    tags: Any, seen: Any, cache: Cache, lags: Any, parts: Any, chunks: int, chunk_bytes: int,
    passes: int, up_and_down: bool, counts: Any,
) -> None:  # fmt: skip
    """Walk to the end, the walkers line by line through their chunks; add to `counts`."""
    total = chunks * passes
    for step in range(total + lags.max()):
        for line in range(0, chunk_bytes, cache.unit_bytes):
            for walker in range(lags.size):
                gone = step - lags[walker]
                if 0 <= gone < total:
                    chunk = gone % chunks
                    if up_and_down and gone // chunks % 2 == 1:
                        chunk = chunks - 1 - chunk
                    size = min(cache.unit_bytes, chunk_bytes - line)
                    start = chunk * chunk_bytes + line
                    access(tags, seen, cache, counts, start, size, parts[walker], LOAD)
