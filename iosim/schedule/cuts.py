"""The blocks of an axis that is cut within the blocks of other cuts, as arithmetic on arrays.

Blocks are numbered along the whole axis. Where a block lies follows from its number, however often
the axis is cut, and so do sums over rows at equal distances: floor sums, section by section.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iosim.schedule.tree import Dim, count_blocks

Numbers = NDArray[Any]
"""Whole numbers: int64, or Python's own where sums of int64 might overflow (see `number_type`)."""


def flattened(dim: Dim) -> Dim:
    """Return the cut with as few parents as make the same blocks.

    A parent whose blocks are whole multiples of this cut's, or no larger, makes no difference to
    it or replaces it.
    """
    if dim.parent is None:
        return dim
    outer = flattened(dim.parent)
    if dim.block >= outer.block:
        return outer
    if outer.block % dim.block == 0:
        return flattened(replace(dim, parent=outer.parent))
    return replace(dim, parent=outer)


def number_type(*dims: Dim) -> type:
    """Return the type of numbers in which products of rows of these axes do not overflow.

    >>> number_type(Dim("query", 10**9), Dim("key", 10**9)), number_type(Dim("key", 10**19))
    (<class 'numpy.int64'>, <class 'object'>)
    """
    bits = sum((2 * max(dim.n, dim.block)).bit_length() for dim in dims)
    return np.int64 if bits < 63 else object


@dataclass(frozen=True)
class Cut:
    """The blocks of an axis of `n` rows; `sizes` are those of its cuts, outermost first.

    The blocks of the cut around are its sections; without one that is all rows.

    >>> tiles = Cut.of(Dim("key", 10, 2).within(Dim("key", 10, 5)))  # 0:2 2:4 4:5 5:7 7:9 9:10
    >>> rows = np.arange(11)
    >>> tiles.begun(rows).tolist(), tiles.done(rows).tolist()
    ([0, 1, 1, 2, 2, 3, 4, 4, 5, 5, 6], [0, 0, 1, 1, 2, 3, 3, 4, 4, 5, 6])
    >>> tiles.edge(np.arange(7)).tolist()
    [0, 2, 4, 5, 7, 9, 10]
    """

    n: int
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, dim: Dim) -> "Cut":
        """Return the blocks of an axis."""
        return cls(dim.n, tuple(each.block for each in flattened(dim).cuts))

    @property
    def block(self) -> int:
        """The rows of a block that is not ragged."""
        return self.sizes[-1]

    @cached_property
    def blocks(self) -> int:
        """The number of blocks."""
        return count_blocks(self.n, self.sizes)

    @cached_property
    def sections(self) -> "Cut":
        """The blocks of the cut around, or all rows as one."""
        return Cut(self.n, self.sizes[:-1] or (self.n,))

    @cached_property
    def _levels(self) -> tuple[tuple[int, int], ...]:
        """The rows in a block of each cut, and how many of the innermost blocks are in it."""
        inner = (count_blocks(s, self.sizes[i + 1 :]) for i, s in enumerate(self.sizes[:-1]))
        return tuple(zip(self.sizes, (*inner, 1), strict=True))

    def begun(self, rows: Numbers) -> Numbers:
        """Return how many blocks begin before each of some rows."""
        found = rows * 0
        for size, held in self._levels[:-1]:
            found, rows = found + rows // size * held, rows % size
        return np.asarray(found + -(-rows // self.block))

    def done(self, rows: Numbers) -> Numbers:
        """Return how many blocks end at each of some rows or before: the block that it is in."""
        found, left = rows * 0, rows
        for size, held in self._levels:
            found, left = found + left // size * held, left % size
        return np.where(rows == self.n, self.blocks, found)

    def edge(self, blocks: Numbers) -> Numbers:
        """Return the first row of each of some blocks; past the last that is the end."""
        found = blocks * 0
        for size, held in self._levels:
            found, blocks = found + blocks // held * size, blocks % held
        return np.asarray(np.minimum(found, self.n))

    def ramp(self, first: Numbers, step: int, count: Numbers, *, up: bool) -> tuple[Numbers, ...]:
        """Return sums over the rows first, first + step, ...: `count` of them for each `first`.

        The sums are of the blocks that begin before a row, and of the rows up to the end of these
        (`up`), or of the blocks that end by then and the rows up to there; then rows are below n.
        They are added up section by section, or by the place of a block within its section,
        whichever has fewer terms: never more than sqrt(n / block) for each section outside of that.
        """
        ramps = first, step, count, up
        narrow = _reach(self.sections, *ramps)
        if len(self.sizes) > 1:
            outer = self.sections.sections
            wide = _reach(outer, *ramps)
            per_section = -(-self.sections.block // self.block)
            if _terms(wide) * per_section < _terms(narrow):
                return self._by_place(_split(outer, wide, *ramps), step, up)
        return self._by_section(_split(self.sections, narrow, *ramps), step, up)

    def _by_section(self, terms: "_Terms", step: int, up: bool) -> tuple[Numbers, ...]:
        floors = floor_sums(terms.count, self.block, step, terms.first + up * (self.block - 1))
        blocks = terms.count * self.begun(terms.start) + floors
        rows = terms.count * terms.start + floors * self.block
        if up:
            rows -= self._beyond(terms, step, self.block)
        return terms.sum(blocks, rows)

    def _by_place(self, terms: "_Terms", step: int, up: bool) -> tuple[Numbers, ...]:
        """Return the sums over the first blocks of all sections, and over the second ones ..."""
        outer = self.sections.block
        blocks = terms.count * self.begun(terms.start)
        rows = terms.count * terms.start
        for begin in range(0, outer, self.block):
            size = min(self.block, outer - begin)
            mark = begin + 1 if up else begin + size  # from this row on it counts
            skipped = np.clip(-((terms.first - mark) // step), 0, terms.count)
            reach = terms.first + skipped * step - mark + outer
            found = floor_sums(terms.count - skipped, outer, step, reach)
            blocks, rows = blocks + found, rows + found * size
        if up:
            rows -= self._beyond(terms, step, outer)
        return terms.sum(blocks, rows)

    def _beyond(self, terms: "_Terms", step: int, section: int) -> Numbers:
        """Return by how many rows sums are too large which take the last block for a whole one."""
        last = self.edge(self.begun(terms.stop) - 1) - terms.start
        place = last % section
        whole = np.minimum(self.block, section - place)
        before = np.clip(-((terms.first - last - 1) // step), 0, terms.count)
        more = last + whole - (terms.stop - terms.start)
        return np.asarray(more * (terms.count - before))


def levels(dim: Dim) -> tuple[Cut, ...]:
    """Return the blocks of each of the cuts around a cut, outermost first, and its own."""
    sizes = tuple(each.block for each in dim.cuts)
    return tuple(Cut(dim.n, sizes[: i + 1]) for i in range(len(sizes)))


@dataclass(frozen=True, eq=False)
class _Terms:
    """Rows at equal distances, section by section: `count` of them from `first` on, which counts
    from the first row of the section start .. stop - 1. `begin` are the first terms of each sum.
    """

    begin: Numbers
    first: Numbers
    count: Numbers
    start: Numbers
    stop: Numbers

    def sum(self, *each: Numbers) -> tuple[Numbers, ...]:
        return tuple(np.add.reduceat(values, self.begin) for values in each)


def _reach(
    sections: Cut, first: Numbers, step: int, count: Numbers, up: bool
) -> tuple[Numbers, ...]:
    """Return the first and the last section that the rows first, first + step, ... are in."""
    last = first + np.maximum(count - 1, 0) * step
    low, high = (sections.done(np.clip(row - up, 0, sections.n - 1)) for row in (first, last))
    return low, high


def _terms(reach: tuple[Numbers, ...]) -> int:
    low, high = reach
    return int((high - low + 1).sum())


def _split(
    sections: Cut,
    reach: tuple[Numbers, ...],
    first: Numbers,
    step: int,
    count: Numbers,
    up: bool,
) -> _Terms:
    """Return the terms of sums over first, first + step, ... in each section."""
    low, high = reach
    which, section = spread(low, high + 1)
    start, stop = sections.edge(section), sections.edge(section + 1)
    first, count = first[which], count[which]
    before, beyond = (np.clip(-((first - up - row) // step), 0, count) for row in (start, stop))
    begin = np.cumsum(high - low + 1) - (high - low + 1)
    first = first + before * step - start
    return _Terms(begin.astype(np.int64), first, beyond - before, start, stop)


def spread(low: Numbers, high: Numbers) -> tuple[Numbers, Numbers]:
    """Return the numbers low .. high - 1 of each, one after the other, and of which they are.

    >>> spread(np.array([3, 5, 0]), np.array([5, 5, 1]))
    (array([0, 0, 2]), array([3, 4, 0]))
    """
    lengths = np.maximum(high - low, 0).astype(np.int64)
    which = np.repeat(np.arange(len(lengths)), lengths)
    begin = np.cumsum(lengths) - lengths
    return which, low[which] + (np.arange(len(which)) - begin[which])


def floor_sums(n: Numbers, m: int, a: int, b: Numbers) -> Numbers:
    """Return the sums of floor((a i + b) / m) for i = 0 .. n - 1, exactly (see `floor_sum`).

    >>> floor_sums(np.array([4, 0]), 10, 6, np.array([3, 3])).tolist()
    [3, 0]
    """
    total = n * 0
    while True:
        total = total + a // m * (n * (n - 1) // 2) + b // m * n
        a, b = a % m, b % m
        last = a * n + b
        if not (last >= m).any():
            return np.asarray(total)
        n, m, a, b = last // m, a, m, last % m
