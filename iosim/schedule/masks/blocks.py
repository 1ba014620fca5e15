"""Block masks: a matrix of mask blocks says which queries see which keys.

Tiles need not be cut as the mask is. Those that lie over the same rows of the matrix are alike:
they form classes, no more than twice as many as the matrix has rows, however small the tiles are.
Everything is counted by classes, in time linear in the blocks that are not zero.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import mul
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from iosim.schedule.relation import PairSums, joined, kinds
from iosim.schedule.tree import Dim

Indices = NDArray[np.int64]


class Cells(Protocol):
    """A boolean matrix, stored or by a rule; hashable, and equal to one of the same entries."""

    def at(self, rows: Indices, columns: Indices) -> NDArray[np.bool_]:
        """Return the entries at some rows and columns, broadcast against each other."""

    def entries(self) -> tuple[Indices, Indices]:
        """Return the rows and the columns of the entries that are true, each entry once."""


@dataclass(frozen=True)
class Blocks:
    """Query row r sees key c where the matrix is true at (r // rows, c // columns).

    `rows` and `columns` are the queries and keys of a mask block.
    """

    cells: Cells
    rows: int
    columns: int
    query: str = "query"
    key: str = "key"

    def key_range(self, query: Dim, key: Dim, i: int) -> Sequence[int]:
        """Return the key blocks that query block i meets."""
        return _met(self, query, key).of_query(i)

    def query_range(self, query: Dim, key: Dim, j: int) -> Sequence[int]:
        """Return the query blocks that key block j meets."""
        return _met(self, query, key).of_key(j)

    def samples(self, query: Dim, key: Dim) -> tuple[list[int], list[int]]:
        """Return query blocks and key blocks among which each kind of block is found."""
        met = _met(self, query, key)
        return (
            _samples(met.queries, met.by_query, met.keys),
            _samples(met.keys, met.by_key, met.queries),
        )

    def sums(self, query: Dim, key: Dim) -> PairSums:
        """Return the sums over all visited block pairs."""
        return _met(self, query, key).sums()

    def visible(self, queries: slice, keys: slice) -> np.ndarray | None:
        """Return which queries see which keys as booleans; None when all see all."""
        rows = np.arange(queries.start, queries.stop)[:, None] // self.rows
        columns = np.arange(keys.start, keys.stop)[None, :] // self.columns
        found = self.cells.at(rows, columns)
        return None if found.all() else found

    def seen(self, n_q: int, n_k: int) -> tuple[int, int]:
        """Return how many queries see a key, and how many keys are seen."""
        rows, columns = self.cells.entries()
        return _rows_of(rows, n_q, self.rows), _rows_of(columns, n_k, self.columns)


def _rows_of(blocks: Indices, n: int, block: int) -> int:
    """Return the rows of the blocks that are named, each block once."""
    named = np.unique(blocks)
    return int((np.minimum((named + 1) * block, n) - named * block).sum())


@dataclass(frozen=True, eq=False)
class _Classes:
    """The blocks of an axis in classes that lie over the same blocks of the mask.

    `first` is the first block of each class, `blocks` how many it has, `sizes` their rows together;
    mask block a belongs to the classes low[a] .. high[a].
    """

    dim: Dim
    first: Indices
    blocks: Indices
    sizes: Indices
    low: Indices
    high: Indices

    @classmethod
    def of(cls, dim: Dim, mask_block: int) -> "_Classes":
        edges = np.arange(0, dim.n, mask_block)
        # A block over an edge is a class of its own, and so is the last one.
        starts = (edges // dim.block, -(-edges // dim.block), np.array([dim.blocks - 1]))
        first = np.unique(np.concatenate(starts))
        first = first[first < dim.blocks]
        after = np.append(first[1:], dim.blocks)
        stop = np.minimum(after * dim.block, dim.n)
        lowest = first * dim.block // mask_block
        highest = (np.minimum((first + 1) * dim.block, dim.n) - 1) // mask_block
        each = np.arange(len(edges))
        return cls(
            dim=dim,
            first=first,
            blocks=after - first,
            sizes=stop - first * dim.block,
            low=np.searchsorted(highest, each, side="left"),
            high=np.searchsorted(lowest, each, side="right") - 1,
        )

    def range(self, which: int) -> range:
        start = int(self.first[which])
        return range(start, start + int(self.blocks[which]))

    def find(self, block: int) -> int:
        return int(np.searchsorted(self.first, block, side="right")) - 1


@dataclass(frozen=True, eq=False)
class _Met:
    """Which classes of queries meet which classes of keys, as rising codes query x keys + key."""

    queries: _Classes
    keys: _Classes
    by_query: Indices
    by_key: Indices

    def of_query(self, i: int) -> Sequence[int]:
        return _visited(self.queries.find(i), self.by_query, self.keys)

    def of_key(self, j: int) -> Sequence[int]:
        return _visited(self.keys.find(j), self.by_key, self.queries)

    def sums(self) -> PairSums:
        queries, keys = np.divmod(self.by_query, len(self.keys.first))
        starts = np.flatnonzero(np.diff(queries, prepend=-1))
        met = queries[starts]
        blocks, rows = self.queries.blocks[met], self.queries.sizes[met]
        key_blocks, key_rows = (
            np.add.reduceat(each[keys], starts) if len(starts) else np.zeros(0, np.int64)
            for each in (self.keys.blocks, self.keys.sizes)
        )
        return PairSums(
            pairs=_dot(blocks, key_blocks),
            query_rows=_dot(rows, key_blocks),
            key_rows=_dot(blocks, key_rows),
            products=_dot(rows, key_rows),
        )


def _visited(which: int, codes: Indices, others: _Classes) -> Sequence[int]:
    """Return the blocks of the other axis that the blocks of a class meet."""
    width = len(others.first)
    low, high = np.searchsorted(codes, [which * width, (which + 1) * width])
    return joined(others.range(int(code) - which * width) for code in codes[low:high])


def _samples(own: _Classes, codes: Indices, others: _Classes) -> list[int]:
    """Return one block of each kind; the classes differ in what they meet, their blocks do not."""
    which, other = np.divmod(codes, len(others.first))
    number = np.zeros(len(own.first), np.int64)
    np.add.at(number, which, others.blocks[other])
    last = np.zeros(len(own.first), np.bool_)
    last[which[other == len(others.first) - 1]] = True
    met = zip(number.tolist(), last.tolist(), strict=True)
    return kinds(own.dim, others.dim, own.first.tolist(), met)


def _dot(a: Indices, b: Indices) -> int:
    """Return the sum of products as a Python int, which does not overflow."""
    return sum(map(mul, a.tolist(), b.tolist()))


@lru_cache(maxsize=16)
def _met(blocks: Blocks, query: Dim, key: Dim) -> _Met:
    queries = _Classes.of(query, blocks.rows)
    keys = _Classes.of(key, blocks.columns)
    rows, columns = blocks.cells.entries()
    return _Met(
        queries=queries,
        keys=keys,
        by_query=_codes(queries, keys, rows, columns),
        by_key=_codes(keys, queries, columns, rows),
    )


def _codes(own: _Classes, other: _Classes, rows: Indices, columns: Indices) -> Indices:
    """Return a x classes + b for all classes a and b that an entry belongs to, in rising order."""
    width = len(other.first)
    found: list[Any] = []
    for more in range(int((own.high - own.low).max()) + 1):
        for beside in range(int((other.high - other.low).max()) + 1):
            a, b = own.low[rows] + more, other.low[columns] + beside
            inside = (a <= own.high[rows]) & (b <= other.high[columns])
            found.append((a * width + b)[inside])
    return np.unique(np.concatenate(found))
