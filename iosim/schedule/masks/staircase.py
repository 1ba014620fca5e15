"""Masks under which each query sees one run of keys, and the run only moves to the right.

Causal masks, windows and documents are of that kind. The two ends of the run are step functions of
the row, and so is what the mask looks like from the keys; every sum is a sum of floors.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iosim.schedule.masks.stair_sums import sums_in
from iosim.schedule.relation import Causal, PairSums, Part, Rows, floor_sum, kinds, row_numbers
from iosim.schedule.tree import Dim

Piece = tuple[int, int, int]


@dataclass(frozen=True)
class Steps:
    """A nondecreasing function on rows, in pieces of slope 0 or 1; it ends before row `stop`.

    A piece (first, value, slope) has `value` at row `first`.

    >>> ramp = Steps.of([(0, -2, 1)], 8).clip(0, 3)
    >>> ramp.pieces, [ramp(row) for row in range(8)]
    (((0, 0, 0), (2, 0, 1), (5, 3, 0)), [0, 0, 0, 1, 2, 3, 3, 3])
    """

    pieces: tuple[Piece, ...]
    stop: int

    @classmethod
    def of(cls, pieces: Iterable[Piece], stop: int) -> "Steps":
        """Return the function with pieces that go on as one written as one, empty ones left out."""
        kept: list[Piece] = []
        for first, value, slope in pieces:
            while kept and kept[-1][0] >= first:
                kept.pop()
            if first < stop and not (
                kept and _at(kept[-1], first) == value and kept[-1][2] == slope
            ):
                kept.append((first, value, slope))
        return cls(tuple(kept), stop)

    def __hash__(self) -> int:
        """Return the same for equal ones; worked out once, since there may be many pieces."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.pieces, self.stop))

    @property
    def first(self) -> int:
        """The first row."""
        return self.pieces[0][0] if self.pieces else self.stop

    def spans(self) -> Iterable[tuple[Piece, int]]:
        """Yield each piece with the row after its last."""
        ends = [*(piece[0] for piece in self.pieces[1:]), self.stop]
        return zip(self.pieces, ends, strict=False)  # without a piece there is nothing to end

    def piece(self, row: int) -> Piece:
        """Return the piece that a row is in."""
        return self.pieces[bisect_right(self.pieces, row, key=_first) - 1]

    def __call__(self, row: int) -> int:
        """Return the value at a row."""
        return _at(self.piece(row), row)

    def at(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return the values at an array of rows."""
        first, value, slope = np.array(self.pieces, dtype=rows.dtype).reshape(-1, 3).T
        piece = np.searchsorted(first, rows, side="right") - 1
        return np.asarray(value[piece] + slope[piece] * (rows - first[piece]))

    def clip(self, low: int, high: int) -> "Steps":
        """Return the function with values below `low` raised to it, above `high` lowered."""
        pieces: list[Piece] = []
        for (first, value, slope), end in self.spans():
            if not slope:
                pieces.append((first, min(max(value, low), high), 0))
                continue
            rising = min(max(first + low - value, first), end)
            flat = min(max(first + high - value, rising), end)
            if rising > first:
                pieces.append((first, low, 0))
            if flat > rising:
                pieces.append((rising, value + rising - first, 1))
            if end > flat:
                pieces.append((flat, high, 0))
        return Steps.of(pieces, self.stop)

    def since(self, row: int) -> "Steps":
        """Return the function from a row on."""
        if row <= self.first or row >= self.stop:
            return self if row <= self.first else Steps((), self.stop)
        at = bisect_right(self.pieces, row, key=_first)
        begin = (row, _at(self.pieces[at - 1], row), self.pieces[at - 1][2])
        return Steps((begin, *self.pieces[at:]), self.stop)

    def until(self, row: int) -> "Steps":
        """Return the function before a row."""
        return Steps(self.pieces[: bisect_left(self.pieces, row, key=_first)], min(row, self.stop))

    def moved(self, rows: int, values: int) -> "Steps":
        """Return the function with its rows so many less, and its values so many less.

        It begins at row 0 or after it.
        """
        pieces = ((first - rows, value - values, slope) for first, value, slope in self.pieces)
        return Steps(tuple(pieces), self.stop - rows)

    def first_above(self, value: int) -> int:
        """Return the first row with a larger value, or `stop` where there is none."""
        for (first, start, slope), end in self.spans():
            if start > value:
                return first
            if slope and start + end - 1 - first > value:
                return first + value - start + 1
        return self.stop

    def inverse(self, n: int) -> "Steps":
        """Return `first_above` as a function of the values 0 .. n - 1."""
        pieces: list[Piece] = []
        at = 0  # values below are done
        for (first, value, slope), end in self.spans():
            if value > at:
                pieces.append((at, first, 0))
                at = value
            if slope and value + end - 1 - first > at:
                pieces.append((at, first + at - value + 1, 1))
                at = value + end - 1 - first
        pieces.append((at, self.stop, 0))
        return Steps.of(pieces, n)


def _first(piece: Piece) -> int:
    return piece[0]


def _at(piece: Piece, row: int) -> int:
    return piece[1] + piece[2] * (row - piece[0])


def ramp(n: int, shift: int, top: int) -> Steps:
    """Return row + shift on rows 0 .. n - 1, kept within 0 .. top."""
    return Steps.of([(0, shift, 1)], n).clip(0, top)


@dataclass(frozen=True)
class Staircase:
    """Query row r sees the keys c with lo(r) <= c < hi(r), both nondecreasing.

    They may be equal, so that r sees nothing, only at 0 and at n_k (or where tiles begin). Rows
    outside their range see nothing.

    >>> window = Staircase(lo=ramp(6, -1, 6), hi=ramp(6, 2, 6))  # one key on each side
    >>> query, key = Dim("query", 6, 2), Dim("key", 6, 3)
    >>> [list(window.key_range(query, key, i)) for i in range(3)]
    [[0], [0, 1], [1]]
    >>> window.sums(Dim("query", 6, 1), Dim("key", 6, 1)).pairs
    16
    """

    lo: Steps
    hi: Steps
    query: str = "query"
    key: str = "key"

    def key_range(self, query: Dim, key: Dim, i: int) -> range:
        """Return the key blocks that query block i meets."""
        first = max(i * query.block, self.lo.first)
        stop = min((i + 1) * query.block, self.lo.stop)
        if first >= stop:
            return range(0)
        return range(_start(self.lo(first), key), -(-self.hi(stop - 1) // key.block))

    def query_range(self, query: Dim, key: Dim, j: int) -> range:
        """Return the query blocks that key block j meets."""
        return self.transposed(key.n).key_range(key, query, j)

    def within(self, queries: Rows, keys: Rows) -> "Staircase":
        """Return the relation of these query rows to these key rows, each counted from its first.

        A run that begins or ends outside the keys is cut to them.
        """
        (first, stop), (low, high) = queries, keys
        lo, hi = (
            ends.until(stop).since(first).moved(first, low).clip(0, high - low)
            for ends in (self.lo, self.hi)
        )
        return replace(self, lo=lo, hi=hi)

    def transposed(self, n_k: int) -> "Staircase":
        """Return the mask with queries and keys exchanged."""
        return _transposed(self, n_k)

    def sums(self, query: Dim, key: Dim) -> PairSums:
        """Return the sums over all visited block pairs: floor sums, piece by piece."""
        br, bc = query.block, key.block
        first, last = -(-self.lo.first // br), -(-self.lo.stop // br) - 1
        if last < first:
            return PairSums(0, 0, 0, 0)
        # Full query blocks, from the first to the one before the last.
        blocks = _floors(self.hi, br - 1, first, last, br, key, bc - 1)
        blocks -= _floors(self.lo, 0, first, last, br, key, 0)
        reach = max(last - max(self.hi.first_above((key.blocks - 1) * bc) // br, first), 0)
        beyond = max(last - max(-(-self.lo.first_above(key.n - 1) // br), first), 0)
        key_rows = blocks * bc - (reach - beyond) * (key.blocks * bc - key.n)
        met = self.key_range(query, key, last)
        met_rows = max(min(met.stop * bc, key.n) - met.start * bc, 0) if met else 0
        rows = query.rows(last)
        return PairSums(
            pairs=blocks + len(met),
            query_rows=blocks * br + len(met) * rows,
            key_rows=key_rows + met_rows,
            products=key_rows * br + met_rows * rows,
        )

    def sums_in(self, query: Dim, key: Dim, parts: Sequence[Part]) -> list[PairSums]:
        """Return the sums over the visited pairs of blocks in each part."""
        return sums_in(self, query, key, parts)

    def samples(self, query: Dim, key: Dim) -> tuple[list[int], list[int]]:
        """Return query blocks and key blocks among which each kind of block is found."""
        other = self.transposed(key.n)
        return samples((self,), query, key), samples((other,), key, query)

    def met(
        self, query: Dim, key: Dim, blocks: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Return how many key blocks each of some query blocks meets, and whether the last one."""
        first = np.maximum(blocks * query.block, self.lo.first)
        stop = np.minimum((blocks + 1) * query.block, self.lo.stop)
        there = first < stop
        number, last = blocks * 0, np.zeros(len(blocks), np.bool_)
        low, high = self.lo.at(first[there]), self.hi.at(stop[there] - 1)
        start = np.where(low >= key.n, key.blocks, low // key.block)
        end = -(-high // key.block)
        number[there] = np.maximum(end - start, 0)
        last[there] = (end == key.blocks) & (start < end)
        return number, last

    def corners(self, query: Dim, key: Dim) -> set[int]:
        """Return blocks at which what is met may begin to look different.

        That is where pieces end, where the last key block comes in or stands alone, and where the
        last query block begins. In between the number of blocks met only grows or only falls, but
        where both ends of the run rise. There it is largest where a key block comes in, and repeats
        itself after B_c / gcd(B_r, B_c) blocks of queries, or B_r / gcd(B_r, B_c) of keys.
        """
        last = (key.blocks - 1) * key.block
        marks = {0, (query.blocks - 1) * query.block, query.n}
        marks |= {self.hi.first_above(last), self.lo.first_above(last - 1)}
        ends = sorted(marks | {piece[0] for piece in (*self.lo.pieces, *self.hi.pieces)})
        found = {end // query.block + step for end in ends for step in (-1, 0, 1)}
        shared = gcd(query.block, key.block)
        for first, stop in self._rising():
            if key.block <= query.block:
                start, period = first // query.block, key.block // shared
                found.update(range(start, min(start + period + 2, stop // query.block + 1)))
            else:
                value, period = self.hi(first), query.block // shared
                start = first + -(-value // key.block) * key.block - value + 1  # one comes in
                rows = range(start, min(start + (period + 1) * key.block, stop), key.block)
                found.update(row // query.block for row in rows)
        return {block for block in found if 0 <= block < query.blocks}

    def _rising(self) -> Iterator[tuple[int, int]]:
        """Yield the stretches of rows, (first, past the last), where both ends of the run rise."""
        for (first, _, slope), stop in self.lo.spans():
            if slope:
                for (start, _, rises), end in self.hi.spans():
                    if rises and max(first, start) < min(stop, end):
                        yield max(first, start), min(stop, end)

    def visible(self, queries: slice, keys: slice) -> np.ndarray | None:
        """Return which queries see which keys as booleans; None when all see all."""
        if self.lo(queries.stop - 1) <= keys.start and keys.stop <= self.hi(queries.start):
            return None
        columns = np.arange(keys.start, keys.stop)[None, :]
        rows = np.arange(queries.start, queries.stop)
        lo, hi = self.lo.at(rows)[:, None], self.hi.at(rows)[:, None]
        return np.asarray((lo <= columns) & (columns < hi))


def staircase(mask: Causal, n_q: int, n_k: int) -> Staircase:
    """Return a causal mask of so many queries and keys as a staircase.

    >>> [staircase(Causal(-1), 3, 2).hi(row) for row in range(3)]
    [0, 1, 2]
    """
    nothing = Steps.of([(0, 0, 0)], n_q)
    return Staircase(nothing, ramp(n_q, mask.offset + 1, n_k), mask.query, mask.key)


@lru_cache(maxsize=16)
def _transposed(mask: Staircase, n_k: int) -> Staircase:
    return Staircase(mask.hi.inverse(n_k), mask.lo.inverse(n_k), mask.key, mask.query)


def samples(parts: Sequence[Staircase], own: Dim, other: Dim) -> list[int]:
    """Return a block of each kind where several staircases say together what a block meets."""
    top = max(own.n, own.block, other.n, other.block)
    blocks = row_numbers(sorted(set().union(*(part.corners(own, other) for part in parts))), top)
    met = [part.met(own, other, blocks) for part in parts]
    number, last = np.array([n for n, _ in met]), np.array([l for _, l in met])
    return kinds(own, other, blocks, number.sum(axis=0), np.logical_or.reduce(last))


def _start(value: int, key: Dim) -> int:
    """Return the first block of a run that begins at a key; past the end the number of blocks."""
    return key.blocks if value >= key.n else value // key.block


def _floors(steps: Steps, row: int, first: int, last: int, br: int, key: Dim, up: int) -> int:
    """Return the sum of floor((value + up) / B_c) at row `row` of the blocks first .. last - 1."""
    total = 0
    for (start, value, slope), end in steps.spans():
        low = max(first, -(-(start - row) // br))
        high = min(last, -(-(end - row) // br))
        if high <= low:
            continue
        if slope:
            total += floor_sum(high - low, key.block, br, value + low * br + row - start + up)
        elif up:
            total += (high - low) * ((value + up) // key.block)
        else:
            total += (high - low) * _start(value, key)
    return total
