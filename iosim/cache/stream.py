"""Accesses on their way: blocks of line numbers, cut from byte addresses.

An access that straddles lines counts once for each line it touches.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from iosim.errors import IosimError

#: Accesses in one block.
BLOCK = 1 << 16
#: Lines that one access may touch.
SPAN_LIMIT = 1 << 20


@dataclass(frozen=True, eq=False)
class Block:
    """Accesses in order: int64 line numbers; uint8 `writes` with 1 for a write, None for none.

    Line numbers of 2^63 and above (one-byte lines only) are stored wrapped, as negative ones.
    """

    lines: NDArray[np.int64]
    writes: NDArray[np.uint8] | None = None


Stream = Iterable[Block]


def to_lines(
    addresses: NDArray[np.uint64],
    sizes: NDArray[np.int64] | None,
    writes: NDArray[np.uint8] | None,
    line_bytes: int,
) -> Block:
    """Cut byte addresses (and sizes in bytes; a size of 0 counts as 1) into lines.

    Raises IosimError for a line size that is not positive and for an access of more than 2^20
    lines.

    >>> to_lines(np.array([60], dtype=np.uint64), np.array([8]), None, 64).lines
    array([0, 1])
    """
    if line_bytes < 1:
        raise IosimError(f"line size {line_bytes} bytes is not positive; give at least 1")
    divisor = np.uint64(line_bytes)
    first = (addresses // divisor).view(np.int64) if line_bytes > 1 else addresses.view(np.int64)
    if sizes is None:
        return Block(first, writes)
    beyond = np.maximum(sizes, 1) - 1
    if beyond.size and int(beyond.max()) // line_bytes >= SPAN_LIMIT:
        raise IosimError(
            f"an access of {int(sizes.max())} bytes touches more than {SPAN_LIMIT} lines of "
            f"{line_bytes} bytes; use longer lines"
        )
    last = ((addresses + beyond.astype(np.uint64)) // divisor).view(np.int64)
    counts = last - first + 1
    if counts.size == 0 or int(counts.max()) == 1:
        return Block(first, writes)
    starts = np.cumsum(counts) - counts
    within = np.arange(int(counts.sum())) - np.repeat(starts, counts)
    return Block(
        np.repeat(first, counts) + within, None if writes is None else np.repeat(writes, counts)
    )


def from_arrays(
    addresses: ArrayLike,
    writes: ArrayLike | None = None,
    sizes: ArrayLike | None = None,
    line_bytes: int = 1,
) -> Iterator[Block]:
    """Stream NumPy arrays: integer `addresses` (bytes, or lines when `line_bytes` is 1).

    `writes` is true for a write, `sizes` are in bytes.  Raises IosimError for arrays of
    different lengths or addresses that are not integers.

    >>> [block.lines.tolist() for block in from_arrays([0, 64, 128], line_bytes=64)]
    [[0, 1, 2]]
    """
    where = _integers(addresses, "addresses")
    flags = None if writes is None else np.asarray(writes).ravel()
    lengths = None if sizes is None else _integers(sizes, "sizes").view(np.int64)
    for name, other in (("writes", flags), ("sizes", lengths)):
        if other is not None and other.size != where.size:
            raise IosimError(
                f"{name} has {other.size} entries and addresses {where.size}; give as many"
            )
    for start in range(0, where.size, BLOCK):
        part = slice(start, start + BLOCK)
        yield to_lines(
            where[part],
            None if lengths is None else lengths[part],
            None if flags is None else (flags[part] != 0).view(np.uint8),
            line_bytes,
        )


def _integers(values: ArrayLike, name: str) -> Any:
    array = np.asarray(values).ravel()
    if array.size and array.dtype.kind not in "iu":
        entries = np.asarray(values, dtype=object).ravel().tolist()
        if not all(isinstance(entry, int) and -(2**63) <= entry < 2**64 for entry in entries):
            raise IosimError(f"{name} has entries of type {array.dtype}; give integers of 64 bits")
        # A list that reaches 2^63 is no array of integers by itself.
        array = np.array([entry % 2**64 for entry in entries], dtype=np.uint64)
    wide = np.int64 if array.dtype.kind == "i" else np.uint64
    return np.ascontiguousarray(array, dtype=wide if array.size else np.uint64).view(np.uint64)
