"""A block mask beside a causal one: what both let a query see.

Away from the diagonal it is the block mask, or nothing. Only pairs of classes that the diagonal
may cross are looked at one by one, a few for each row of the matrix.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from iosim.schedule.masks.blocks import Blocks, Classes, Indices, Met, met, sums_of
from iosim.schedule.relation import Causal, PairSums, Rows, joined, kinds, ranges_of
from iosim.schedule.tree import Dim


@dataclass(frozen=True)
class CausalBlocks:
    """The pairs of `blocks` in which key row c is no later than query row r: c <= r + offset."""

    blocks: Blocks
    offset: int

    @property
    def query(self) -> str:
        """The name of the query axis."""
        return self.blocks.query

    @property
    def key(self) -> str:
        """The name of the key axis."""
        return self.blocks.key

    def key_range(self, query: Dim, key: Dim, i: int) -> Sequence[int]:
        """Return the key blocks that query block i meets."""
        found, codes, whole, _, _ = _split(self, query, key)
        met_by = _met_by(found.queries.find(i), codes, whole, len(found.keys.first))
        return joined(
            found.keys.range(which) if below else self._keys(found, i, which)
            for which, below in met_by
        )

    def query_range(self, query: Dim, key: Dim, j: int) -> Sequence[int]:
        """Return the query blocks that key block j meets."""
        found, _, _, codes, whole = _split(self, query, key)
        met_by = _met_by(found.keys.find(j), codes, whole, len(found.queries.first))
        return joined(
            found.queries.range(which) if below else self._queries(found, j, which)
            for which, below in met_by
        )

    def _keys(self, found: Met, i: int, which: int) -> range:
        """Return the key blocks of a class that query block i meets: the first ones."""
        ours = found.keys.range(which)
        reach, start = self._entries(found, i, ours[0])
        if not (reach >= start).any():
            return range(0)
        if len(ours) == 1:
            return ours
        return range(ours[0], min(ours.stop, int(reach.max()) // found.keys.dim.block + 1))

    def _queries(self, found: Met, j: int, which: int) -> range:
        """Return the query blocks of a class that key block j meets: the last ones."""
        ours, dim = found.queries.range(which), found.queries.dim
        reach, start = self._entries(found, ours[-1], j)
        if not (reach >= start).any():
            return range(0)
        if len(ours) == 1:
            return ours
        return range(max(ours[0], (int(start.min()) - self.offset) // dim.block), ours.stop)

    def _entries(self, found: Met, i: int, j: int) -> tuple[Indices, Indices]:
        """Return, for each true entry under a pair of blocks, how far it reaches and its start.

        That is the last key that a query of block i in that row of the matrix may see, and the
        first key of block j in that column.
        """
        blocks = self.blocks
        (first, stop), (start, end) = found.queries.dim.range(i), found.keys.dim.range(j)
        rows = _touched(first + blocks.first_query, stop + blocks.first_query, blocks.rows)
        columns = _touched(start + blocks.first_key, end + blocks.first_key, blocks.columns)
        at, beside = np.nonzero(blocks.cells.at(rows[:, None], columns[None, :]))
        ends = (rows[at] + 1) * blocks.rows - blocks.first_query
        starts = columns[beside] * blocks.columns - blocks.first_key
        return np.minimum(ends, stop) - 1 + self.offset, np.maximum(starts, start)

    def codes(self, found: Met) -> tuple[Indices, NDArray[np.bool_]]:
        """Return the codes of classes that may meet, and which of them lie below the diagonal."""
        queries, keys = found.queries, found.keys
        of_query, of_key = np.divmod(found.by_query, len(keys.first))
        last = np.minimum((queries.first + queries.blocks) * queries.dim.block, queries.dim.n) - 1
        below = last[of_query] + self.offset >= keys.first[of_key] * keys.dim.block
        blocks = self.blocks
        ends = (queries.lowest + 1) * blocks.rows - blocks.first_query % blocks.rows
        soonest = np.minimum((queries.first + 1) * queries.dim.block, ends)
        least = np.minimum(soonest, queries.dim.n) - 1 + self.offset
        starts = keys.highest * blocks.columns - blocks.first_key % blocks.columns
        latest = np.maximum((keys.first + keys.blocks - 1) * keys.dim.block, starts)
        return found.by_query[below], (least[of_query] >= latest[of_key])[below]

    def sums(self, query: Dim, key: Dim) -> PairSums:
        """Return the sums over all visited block pairs."""
        found, codes, whole, _, _ = _split(self, query, key)
        total = sums_of(found.queries, found.keys, codes[whole])
        for code in codes[~whole].tolist():
            total += self._crossed(found, *divmod(code, len(found.keys.first)))
        return total

    def _crossed(self, found: Met, of_query: int, of_key: int) -> PairSums:
        """Return the sums over the pairs of two classes that the diagonal may cross."""
        rows, columns = found.queries.range(of_query), found.keys.range(of_key)
        query, key = found.queries.dim, found.keys.dim
        if len(rows) > 1 and len(columns) > 1:
            shift = rows[0] * query.block - columns[0] * key.block
            return Causal(self.offset + shift).sums(
                Dim(query.name, int(found.queries.sizes[of_query]), query.block),
                Dim(key.name, int(found.keys.sizes[of_key]), key.block),
            )
        if len(rows) == 1:
            columns = self._keys(found, rows[0], of_key)
        else:
            rows = self._queries(found, columns[0], of_query)
        n_rows, n_columns = _rows(query, rows), _rows(key, columns)
        return PairSums(
            pairs=len(rows) * len(columns),
            query_rows=n_rows * len(columns),
            key_rows=len(rows) * n_columns,
            products=n_rows * n_columns,
        )

    def samples(self, query: Dim, key: Dim) -> tuple[list[int], list[int]]:
        """Return query blocks and key blocks among which each kind of block is found.

        Within a class what is met only grows along the queries, and only falls along the keys; it
        changes in kind where the ends of some class come in, or are left behind.
        """
        found = met(self.blocks, query, key)
        rows, columns = _ends(found.queries), _ends(found.keys)
        more_columns = {j for i in rows for j in _edges(self.key_range(query, key, i))}
        more_rows = {i for j in columns for i in _edges(self.query_range(query, key, j))}
        return (
            _kinds(query, key, rows | more_rows, lambda i: self.key_range(query, key, i)),
            _kinds(key, query, columns | more_columns, lambda j: self.query_range(query, key, j)),
        )

    def visible(self, queries: slice, keys: slice) -> np.ndarray | None:
        """Return which queries see which keys as booleans; None when all see all."""
        block, causal = (each.visible(queries, keys) for each in (self.blocks, Causal(self.offset)))
        if block is None or causal is None:
            return causal if block is None else block
        return np.asarray(block & causal)

    def within(self, queries: Rows, keys: Rows) -> "CausalBlocks":
        """Return the relation of these query rows to these key rows."""
        offset = self.offset + queries[0] - keys[0]
        return CausalBlocks(self.blocks.within(queries, keys), offset)


@lru_cache(maxsize=16)
def _split(
    mask: CausalBlocks, query: Dim, key: Dim
) -> tuple[Met, Indices, NDArray[np.bool_], Indices, NDArray[np.bool_]]:
    """Return the classes, the codes of those that meet and which lie below, by query and by key."""
    found = met(mask.blocks, query, key)
    codes, whole = mask.codes(found)
    of_query, of_key = np.divmod(codes, len(found.keys.first))
    turned = of_key * len(found.queries.first) + of_query
    order = np.argsort(turned)
    return found, codes, whole, turned[order], whole[order]


def _met_by(
    which: int, codes: Indices, whole: NDArray[np.bool_], width: int
) -> Iterator[tuple[int, bool]]:
    """Yield the classes of the other axis that a class may meet, and whether all of them below."""
    low, high = np.searchsorted(codes, [which * width, (which + 1) * width])
    others = codes[low:high] - which * width
    return zip(others.tolist(), whole[low:high].tolist(), strict=True)


def _touched(first: int, stop: int, block: int) -> Indices:
    """Return the blocks of the mask that rows first .. stop - 1 lie in."""
    return np.arange(first // block, (stop - 1) // block + 1)


def _rows(dim: Dim, blocks: range) -> int:
    """Return the rows of blocks that follow each other."""
    return min(blocks.stop * dim.block, dim.n) - blocks.start * dim.block if blocks else 0


def _ends(classes: Classes) -> set[int]:
    """Return the first and the last block of each class."""
    return {*classes.first.tolist(), *(classes.first + classes.blocks - 1).tolist()}


def _edges(blocks: Sequence[int]) -> set[int]:
    """Return the first and the last block of each range, and those beside them."""
    edges = {edge for each in ranges_of(blocks) for edge in (each.start, each.stop)}
    return edges | {edge - 1 for edge in edges}


def _kinds(
    own: Dim, other: Dim, candidates: set[int], meets: Callable[[int], Sequence[int]]
) -> list[int]:
    blocks = sorted(block for block in candidates if 0 <= block < own.blocks)
    found = [meets(block) for block in blocks]
    number = np.array([len(each) for each in found])
    last = np.array([len(each) > 0 and each[-1] == other.blocks - 1 for each in found])
    return kinds(own, other, np.array(blocks), number, last)
