"""Block masks: a matrix of mask blocks says which queries see which keys.

Tiles need not be cut as the mask is. Those that lie over the same rows of the matrix are alike:
they form classes, no more than twice as many as the matrix has rows and the axis sections, however
small the tiles are. Along the other axis a block meets a run of blocks for each entry of its rows.
Everything is counted in time linear in the entries that are not zero.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from iosim.schedule.cuts import Cut, Numbers, spread
from iosim.schedule.relation import Causal, PairSums, Part, Rows, joined, kinds
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
    from `first_query` and `first_key` of the whole. With an `offset`, beside a causal mask, r sees
    only those keys c <= r + offset.
    """

    cells: Cells
    rows: int
    columns: int
    query: str = "query"
    key: str = "key"
    first_query: int = 0
    first_key: int = 0
    offset: int | None = None

    def key_range(self, query: Dim, key: Dim, i: int) -> Sequence[int]:
        """Return the key blocks that query block i meets."""
        return self._range(self.query, query, key, i)

    def query_range(self, query: Dim, key: Dim, j: int) -> Sequence[int]:
        """Return the query blocks that key block j meets."""
        return self._range(self.key, key, query, j)

    def _range(self, axis: str, own: Dim, other: Dim, i: int) -> Sequence[int]:
        _, start, stop = self._runs(axis, own, other, np.array([i]))
        return joined(map(range, start.tolist(), stop.tolist()))

    def _runs(self, axis: str, own: Dim, other: Dim, blocks: Numbers) -> tuple[Numbers, ...]:
        """Return the runs of blocks of `other` that some blocks of `own` meet, in rising order.

        That is of which block each run is, its first block and the one after its last.
        """
        mine = Cut(own.n, (own.block,))
        first, stop = mine.edge(blocks), mine.edge(blocks + 1)
        if axis == self.query:
            which, low, high = self._keys_seen(first, stop, other.n)
        else:
            which, low, high = self._queries_that_see(first, stop, other.n)
        return runs(Cut(other.n, (other.block,)), which, low, high)

    def _keys_seen(self, first: Numbers, stop: Numbers, n_k: int) -> tuple[Numbers, ...]:
        """Return the keys that queries first .. stop - 1 of each see, column by column."""
        which, column, row = self.touched(first, stop, self.query)
        start, end = self.span(column, self.key, n_k)
        if self.offset is not None:  # of the rows with an entry in a column the last sees the most
            past = (row + 1) * self.rows - self.first_query
            end = np.minimum(end, np.minimum(past, stop[which]) + self.offset)
        seen = start < end
        return which[seen], start[seen], end[seen]

    def _queries_that_see(self, first: Numbers, stop: Numbers, n_q: int) -> tuple[Numbers, ...]:
        """Return the queries that see a key of first .. stop - 1 of each, row by row."""
        which, row, column = self.touched(first, stop, self.key)
        start, end = self.span(row, self.query, n_q)
        if self.offset is not None:  # the first key is seen by most
            least = np.maximum(column * self.columns - self.first_key, first[which])
            start = np.maximum(start, least - self.offset)
        seen = start < end
        return which[seen], start[seen], end[seen]

    def touched(self, first: Numbers, stop: Numbers, axis: str) -> tuple[Numbers, ...]:
        """Return what the lines of the matrix hold that rows first .. stop - 1 of each lie in.

        That is of which each entry is, its place across, which rises, and its line. Of several in
        one place there is the one that lets see the most beside a causal mask: of rows the last, of
        columns the first.
        """
        block, before = self._grain(axis)
        lines = lines_of(self.cells, axis == self.key)
        ends = ((first + before) // block, (stop - 1 + before) // block + 1)
        which, entry = spread(*(lines.begin.take(end.astype(int), mode="clip") for end in ends))
        return _distinct(which, lines.across[entry], lines.line[entry], last=axis == self.query)

    def _grain(self, axis: str) -> tuple[int, int]:
        """Return the rows of a mask block along an axis, and those that lie before this part."""
        if axis == self.query:
            return self.rows, self.first_query
        return self.columns, self.first_key

    def span(self, lines: Numbers, axis: str, n: int) -> tuple[Numbers, Numbers]:
        """Return the rows of an axis, of n rows, that lie in lines of the matrix."""
        block, before = self._grain(axis)
        start = lines * block - before
        return np.maximum(start, 0), np.minimum(start + block, n)

    def sums(self, query: Dim, key: Dim) -> PairSums:
        """Return the sums over all visited block pairs."""
        return self.sums_in(query, key, [((0, query.n), (0, key.n))])[0]

    def sums_in(self, query: Dim, key: Dim, parts: Sequence[Part]) -> list[PairSums]:
        """Return the sums over the visited pairs of blocks in each part."""
        from iosim.schedule.masks.block_sums import sums_in

        return sums_in(self, query, key, parts)

    def samples(self, query: Dim, key: Dim) -> tuple[list[int], list[int]]:
        """Return query blocks and key blocks among which each kind of block is found.

        Blocks of a class are alike, but beside a causal mask: there what is met only grows along
        the queries of a class, and only falls along its keys. Then its first and its last block
        show all there is, and those at which the last block of the other axis comes in.
        """
        return self._samples(self.query, query, key), self._samples(self.key, key, query)

    def _samples(self, axis: str, own: Dim, other: Dim) -> list[int]:
        mine, theirs = Cut(own.n, (own.block,)), Cut(other.n, (other.block,))
        first, blocks = self.classes(mine, axis)
        found = [first]
        if self.offset is not None:
            past, shift = other.n, self.offset if axis == self.key else -self.offset
            block, before = self._grain(self.key if axis == self.query else self.query)
            last = theirs.edge(np.array([theirs.blocks - 1]))
            marks = np.arange((last[0] + before) // block, (past - 1 + before) // block + 2) * block
            marks = np.concatenate([last, np.clip(marks - before, last, past)]) + shift
            at = mine.done(np.clip(marks, 0, own.n - 1))
            found += [first + blocks - 1, at - 1, at, at + 1]
        each = rising(np.concatenate(found), own.blocks)
        which, start, stop = self._runs(axis, own, other, each)
        number, ends = np.zeros(len(each), np.int64), np.zeros(len(each), np.bool_)
        np.add.at(number, which, stop - start)
        ends[which[stop == other.blocks]] = True
        return kinds(own, other, each, number, ends)

    def classes(self, cut: Cut, axis: str, rows: Iterable[int] = ()) -> tuple[Numbers, Numbers]:
        """Return the first block of each class of blocks, and how many it has.

        The blocks of a class lie in the same section and over the same mask block, and none is
        ragged but one that is alone. Another one begins at each of the `rows`.
        """
        block, before = self._grain(axis)
        edges = np.arange(block - before % block, cut.n, block)
        ends = cut.sections.edge(np.arange(cut.sections.blocks + 1))
        # A block over an edge is a class of its own, and so is the last one of a section.
        firsts = (cut.done(edges), cut.begun(edges), cut.begun(ends), cut.begun(ends[1:]) - 1)
        more = cut.done(np.array(list(rows), dtype=ends.dtype))
        found = rising(np.concatenate([*firsts, more]), cut.blocks)
        return found, np.append(found[1:], cut.blocks) - found

    def visible(self, queries: slice, keys: slice) -> np.ndarray | None:
        """Return which queries see which keys as booleans; None when all see all."""
        rows = (self.first_query + np.arange(queries.start, queries.stop)[:, None]) // self.rows
        columns = (self.first_key + np.arange(keys.start, keys.stop)[None, :]) // self.columns
        found = self.cells.at(rows, columns)
        if self.offset is not None:
            causal = Causal(self.offset).visible(queries, keys)
            found = found if causal is None else np.asarray(found & causal)
        return None if found.all() else found

    def within(self, queries: Rows, keys: Rows) -> "Blocks":
        """Return the relation of these query rows to these key rows."""
        first_query, first_key = self.first_query + queries[0], self.first_key + keys[0]
        offset = None if self.offset is None else self.offset + queries[0] - keys[0]
        return replace(self, first_query=first_query, first_key=first_key, offset=offset)


@dataclass(frozen=True, eq=False)
class Lines:
    """The true entries of a matrix line by line: those of line a are begin[a] .. begin[a + 1] - 1.

    `across` is their place in the line, which rises. The lines are rows, or columns.
    """

    line: Indices
    across: Indices
    begin: Indices


@lru_cache(maxsize=8)
def lines_of(cells: Cells, turned: bool) -> Lines:
    """Return the entries of a matrix row by row, or column by column."""
    line, across = cells.entries()[:: -1 if turned else 1]
    order = np.lexsort((across, line))
    line, across = line[order], across[order]
    return Lines(line, across, np.searchsorted(line, np.arange(int(line.max(initial=0)) + 2)))


def _distinct(which: Numbers, place: Numbers, line: Numbers, last: bool) -> tuple[Numbers, ...]:
    """Return the places across of each, rising and each once, with its last line or its first."""
    wide, high = (int(values.max(initial=0)).bit_length() for values in (place, line))
    code = (which << wide) + place
    if (np.diff(code) > 0).all():
        return which, place, line
    # Of each the lines come one after the other, and a stable sort only merges them.
    code = np.sort((code << high) + line, kind="stable")
    edges = np.diff(code >> high) > 0
    code = code[np.append(edges, True) if last else np.append(True, edges)]
    line, code = code & (1 << high) - 1, code >> high
    return code >> wide, code & (1 << wide) - 1, line


def runs(cut: Cut, which: Numbers, low: Numbers, high: Numbers) -> tuple[Numbers, ...]:
    """Return the runs of blocks over rows low .. high - 1 that no run before of the same has.

    Rows rise for each. Returned are of which each run is, its first block and one after its last.
    """
    start, stop = cut.done(low), cut.begun(high)
    again = np.diff(which, prepend=-1) == 0
    start[again] = np.maximum(start, np.roll(stop, 1))[again]
    return which, start, stop


def rising(values: Numbers, stop: int) -> Numbers:
    """Return the values 0 .. stop - 1 among some, each once (`np.unique` takes ten times as long).

    >>> rising(np.array([4, 0, 4, -1, 9]), 9)
    array([0, 4])
    """
    values = np.sort(values[(values >= 0) & (values < stop)], kind="stable")
    return values[np.diff(values, prepend=-1) > 0]
