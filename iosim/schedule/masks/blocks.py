"""Block masks: a matrix of mask blocks says which queries see which keys.

Tiles need not be cut as the mask is. Those that lie over the same rows of the matrix are alike:
they form classes, no more than twice as many as the matrix has rows, however small the tiles are.
Everything is counted by classes, in time linear in the blocks that are not zero.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from operator import mul
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from iosim.schedule.relation import PairSums, Rows, joined, kinds
from iosim.schedule.tree import Dim

Indices = NDArray[np.int64]


class Cells(Protocol):
    """A boolean matrix, stored or by a rule; hashable, and equal to one of the same entries."""

    def __hash__(self) -> int:
        """Return the same for equal ones."""

    def at(self, rows: Indices, columns: Indices) -> NDArray[np.bool_]:
        """Return the entries at some rows and columns, broadcast against each other."""

    def entries(self) -> tuple[Indices, Indices]:
        """Return the rows and the columns of the entries that are true, each entry once."""


@dataclass(frozen=True)
class Blocks:
    """Query row r sees key c where the matrix is true at (r // rows, c // columns).

    `rows` and `columns` are the queries and keys of a mask block. A part of a mask counts its rows
    from `first_query` and `first_key` of the whole.
    """

    cells: Cells
    rows: int
    columns: int
    query: str = "query"
    key: str = "key"
    first_query: int = 0
    first_key: int = 0

    def key_range(self, query: Dim, key: Dim, i: int) -> Sequence[int]:
        """Return the key blocks that query block i meets."""
        found = met(self, query, key)
        return joined(map(found.keys.range, found.of_query(i)))

    def query_range(self, query: Dim, key: Dim, j: int) -> Sequence[int]:
        """Return the query blocks that key block j meets."""
        found = met(self, query, key)
        return joined(map(found.queries.range, found.of_key(j)))

    def samples(self, query: Dim, key: Dim) -> tuple[list[int], list[int]]:
        """Return query blocks and key blocks among which each kind of block is found."""
        found = met(self, query, key)
        return (
            samples_of(found.queries, found.by_query, found.keys),
            samples_of(found.keys, found.by_key, found.queries),
        )

    def sums(self, query: Dim, key: Dim) -> PairSums:
        """Return the sums over all visited block pairs."""
        found = met(self, query, key)
        return sums_of(found.queries, found.keys, found.by_query)

    def visible(self, queries: slice, keys: slice) -> np.ndarray | None:
        """Return which queries see which keys as booleans; None when all see all."""
        rows = (self.first_query + np.arange(queries.start, queries.stop)[:, None]) // self.rows
        columns = (self.first_key + np.arange(keys.start, keys.stop)[None, :]) // self.columns
        found = self.cells.at(rows, columns)
        return None if found.all() else found

    def within(self, queries: Rows, keys: Rows) -> "Blocks":
        """Return the relation of these query rows to these key rows."""
        first_query, first_key = self.first_query + queries[0], self.first_key + keys[0]
        return replace(self, first_query=first_query, first_key=first_key)

    def entries(self, n_q: int, n_k: int) -> tuple[Indices, Indices]:
        """Return the rows and columns of the true entries that n_q queries and n_k keys touch.

        They count from the entry that the first query and the first key are in.
        """
        rows, columns = entries_of(self.cells)
        low, left = self.first_query // self.rows, self.first_key // self.columns
        high = (self.first_query + n_q - 1) // self.rows
        right = (self.first_key + n_k - 1) // self.columns
        touched = (low <= rows) & (rows <= high) & (left <= columns) & (columns <= right)
        return rows[touched] - low, columns[touched] - left


@dataclass(frozen=True, eq=False)
class Classes:
    """The blocks of an axis in classes that lie over the same blocks of the mask.

    `first` is the first block of each class, `blocks` how many it has, `sizes` their rows together;
    each of them lies over the mask blocks lowest .. highest, and is alone where these are several.
    Mask block a belongs to the classes low[a] .. high[a].
    """

    dim: Dim
    first: Indices
    blocks: Indices
    sizes: Indices
    lowest: Indices
    highest: Indices
    low: Indices
    high: Indices

    @classmethod
    def of(cls, dim: Dim, mask_block: int, before: int) -> "Classes":
        """Cut blocks into classes; the first mask block begins `before` rows ahead of the first."""
        edges = np.maximum(np.arange(-before, dim.n, mask_block), 0)
        # A block over an edge is a class of its own, and so is the last one.
        starts = (edges // dim.block, -(-edges // dim.block), np.array([dim.blocks - 1]))
        first = _rising(np.concatenate(starts))
        first = first[first < dim.blocks]
        after = np.append(first[1:], dim.blocks)
        stop = np.minimum(after * dim.block, dim.n)
        lowest = (first * dim.block + before) // mask_block
        highest = (np.minimum((first + 1) * dim.block, dim.n) - 1 + before) // mask_block
        each = np.arange(len(edges))
        return cls(
            dim=dim,
            first=first,
            blocks=after - first,
            sizes=stop - first * dim.block,
            lowest=lowest,
            highest=highest,
            low=np.searchsorted(highest, each, side="left"),
            high=np.searchsorted(lowest, each, side="right") - 1,
        )

    def range(self, which: int) -> range:
        """Return the blocks of a class."""
        start = int(self.first[which])
        return range(start, start + int(self.blocks[which]))

    def find(self, block: int) -> int:
        """Return the class that a block is in."""
        return int(np.searchsorted(self.first, block, side="right")) - 1


@dataclass(frozen=True, eq=False)
class Met:
    """Which classes of queries meet which classes of keys, given the entries of the matrix."""

    queries: Classes
    keys: Classes
    rows: Indices
    columns: Indices

    @cached_property
    def by_query(self) -> Indices:
        """The pairs of classes that meet, as rising codes query x keys + key."""
        return _codes(self.queries, self.keys, self.rows, self.columns)

    @cached_property
    def by_key(self) -> Indices:
        """The same as codes key x queries + query."""
        return _codes(self.keys, self.queries, self.columns, self.rows)

    def of_query(self, i: int) -> list[int]:
        """Return the classes of keys that query block i meets."""
        return _met_by(self.queries.find(i), self.by_query, len(self.keys.first))

    def of_key(self, j: int) -> list[int]:
        """Return the classes of queries that key block j meets."""
        return _met_by(self.keys.find(j), self.by_key, len(self.queries.first))


def sums_of(queries: Classes, keys: Classes, codes: Indices) -> PairSums:
    """Return the sums over all pairs of blocks of the classes that meet."""
    of_query, of_key = np.divmod(codes, len(keys.first))
    starts = np.flatnonzero(np.diff(of_query, prepend=-1))
    own = of_query[starts]
    blocks, rows = queries.blocks[own], queries.sizes[own]
    key_blocks, key_rows = (
        np.add.reduceat(each[of_key], starts) if len(starts) else np.zeros(0, np.int64)
        for each in (keys.blocks, keys.sizes)
    )
    return PairSums(
        pairs=_dot(blocks, key_blocks),
        query_rows=_dot(rows, key_blocks),
        key_rows=_dot(blocks, key_rows),
        products=_dot(rows, key_rows),
    )


def _met_by(which: int, codes: Indices, width: int) -> list[int]:
    low, high = np.searchsorted(codes, [which * width, (which + 1) * width])
    found: list[int] = (codes[low:high] - which * width).tolist()
    return found


def samples_of(own: Classes, codes: Indices, others: Classes) -> list[int]:
    """Return one block of each kind; the classes differ in what they meet, their blocks do not."""
    which, other = np.divmod(codes, len(others.first))
    number = np.zeros(len(own.first), np.int64)
    np.add.at(number, which, others.blocks[other])
    last = np.zeros(len(own.first), np.bool_)
    last[which[other == len(others.first) - 1]] = True
    return kinds(own.dim, others.dim, own.first, number, last)


def _dot(a: Indices, b: Indices) -> int:
    """Return the sum of products as a Python int, which does not overflow."""
    return sum(map(mul, a.tolist(), b.tolist()))


@lru_cache(maxsize=16)
def met(blocks: Blocks, query: Dim, key: Dim) -> Met:
    """Return the classes of both axes and which of them meet."""
    queries = Classes.of(query, blocks.rows, blocks.first_query % blocks.rows)
    keys = Classes.of(key, blocks.columns, blocks.first_key % blocks.columns)
    return Met(queries, keys, *blocks.entries(query.n, key.n))


@lru_cache(maxsize=4)
def entries_of(cells: Cells) -> tuple[Indices, Indices]:
    """Return the rows and the columns of the true entries of a matrix."""
    return cells.entries()


def _codes(own: Classes, other: Classes, rows: Indices, columns: Indices) -> Indices:
    """Return a x classes + b for all classes a and b that an entry belongs to, in rising order."""
    width = len(other.first)
    found: list[Any] = []
    for more in range(int((own.high - own.low).max()) + 1):
        for beside in range(int((other.high - other.low).max()) + 1):
            a, b = own.low[rows] + more, other.low[columns] + beside
            inside = (a <= own.high[rows]) & (b <= other.high[columns])
            found.append((a * width + b)[inside])
    return _rising(np.concatenate(found))


def _rising(values: Indices) -> Indices:
    """Return the values in rising order, each once (`np.unique` takes ten times as long)."""
    values = np.sort(values)
    return values[np.diff(values, prepend=-1) > 0]
