"""Layouts: which rows of a sequence lie on which of several devices.

A rank holds a shard of ceil(n / p) places, whatever the layout, and its rows in rising order. So a
schedule stays the same tree, over places in the stead of rows. What changes is the causal mask: the
rows of two ranks see each other along another staircase.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, chain, product

import numpy as np
from numpy.typing import NDArray

from iosim.errors import IosimError, UnsupportedError
from iosim.schedule.masks.staircase import Staircase, Steps
from iosim.schedule.nested import part
from iosim.schedule.relation import Causal, PairSums, Relation, Rows, joined
from iosim.schedule.tree import Dim
from iosim.units import unknown

Shard = tuple[range, ...]
"""The rows of a rank in rising order, as ranges of one step."""


def _contiguous(n: int, block: int, ranks: int, rank: int) -> Shard:
    return (range(rank * block, min((rank + 1) * block, n)),)


def _zigzag(n: int, block: int, ranks: int, rank: int) -> Shard:
    """Each rank but the last takes ceil(b / 2) rows from the front, floor(b / 2) from the back."""
    back = block // 2
    front = block - back
    last = n - rank * back
    if rank == ranks - 1:
        return (range(rank * front, last),)
    return (range(rank * front, (rank + 1) * front), range(last - back, last))


def _striped(n: int, block: int, ranks: int, rank: int) -> Shard:
    return (range(rank, n, ranks),)


LAYOUTS: dict[str, Callable[[int, int, int, int], Shard]] = {
    "contiguous": _contiguous,
    "zigzag": _zigzag,
    "striped": _striped,
}
"""The rows of a rank, from n, the places of a shard, p and the rank."""


@dataclass(frozen=True)
class Layout:
    """Where the `n` rows of a sequence lie on ranks with shards of `block` places.

    Place x belongs to rank floor(x / block). Contiguous: the rows of a rank are neighbours. Zigzag:
    rank after rank takes half a shard from the front of what is left and half from the back, so
    that of 2p even chunks rank r has r and 2p - 1 - r. Striped: row i lies on rank i mod p.

    >>> Layout("zigzag", 16, 4).shards[1], Layout("striped", 16, 4).shards[1]
    ((range(2, 4), range(12, 14)), (range(1, 16, 4),))
    """

    kind: str
    n: int
    ranks: int

    @property
    def block(self) -> int:
        """The places of a shard; the last may have less."""
        return -(-self.n // self.ranks)

    @cached_property
    def shards(self) -> tuple[Shard, ...]:
        """The rows that each rank holds, in the order of its places."""
        rows_of = LAYOUTS[self.kind]
        held = (rows_of(self.n, self.block, self.ranks, rank) for rank in range(self.ranks))
        return tuple(tuple(rows for rows in shard if rows) for shard in held)

    def pieces(self, first: int, stop: int) -> Iterable[tuple[int, Shard]]:
        """Yield the first place of each shard that places reach into, and their rows there."""
        block = self.block
        for rank in range(first // block, -(-stop // block)):
            base, shard = rank * block, self.shards[rank]
            whole = first <= base and base + block <= stop
            yield base, shard if whole else _cut(shard, max(first - base, 0), stop - base)

    def rows(self, first: int, stop: int) -> NDArray[np.int64]:
        """Return the row at each of some places: all of them, a permutation of the rows."""
        ranges = chain.from_iterable(shard for _, shard in self.pieces(first, stop))
        return np.concatenate([np.arange(r.start, r.stop, r.step) for r in ranges])


def layout_of(kind: str, axis: Dim, ranks: int, rows: str) -> Layout:
    """Return the layout of that name for an axis; `rows` says in an error what its rows are.

    Raises IosimError for an unknown name, and where a striped one has shards of unequal length.
    """
    if kind not in LAYOUTS:
        raise IosimError(unknown("layout", str(kind), LAYOUTS))
    if kind == "striped" and axis.n % ranks:
        raise IosimError(
            f"ranks is {ranks}, which does not divide the {axis.n} {rows}; in a striped layout it "
            "must, since rank r has the rows r, r + p, r + 2 p and so on"
        )
    return Layout(kind, axis.n, ranks)


def laid_out(mask: Relation | None, queries: Layout, keys: Layout) -> Relation | None:
    """Return a causal mask, or none, between the places of two layouts.

    Raises UnsupportedError for another mask, but between contiguous layouts.
    """
    if mask is None or (queries.kind == keys.kind == "contiguous"):
        return mask
    if not isinstance(mask, Causal):
        raise UnsupportedError(
            f"a {queries.kind} layout evens out the work under a causal mask; beside --mask the "
            "layout must be contiguous"
        )
    return CausalPlaces(mask.offset, queries, keys)


@dataclass(frozen=True)
class CausalPlaces:
    """A causal mask between places: query row r sees the key rows c with c <= r + offset.

    Between the places of one rank and of another it is a `Causal` or a `Staircase`, since both hold
    their rows in rising order (`within`), and from these a ring makes all its sums. Over places of
    several ranks it is no staircase, and `sums` goes through the blocks of queries one by one.

    >>> places = CausalPlaces(0, Layout("zigzag", 8, 2), Layout("zigzag", 8, 2))
    >>> [list(places.key_range(Dim("query", 8, 4), Dim("key", 8, 1), i)) for i in range(2)]
    [[0, 1, 2, 3, 4, 5, 6, 7], [0, 1, 4, 5, 6, 7]]
    """

    offset: int
    queries: Layout
    keys: Layout
    query: str = "query"
    key: str = "key"

    def within(self, queries: Rows, keys: Rows) -> Causal | Staircase:
        """Return the relation of places of one rank to those of one rank, each from its first."""
        (_, mine), *further = self.queries.pieces(*queries)
        (_, theirs), *more = self.keys.pieces(*keys)
        assert not further
        assert not more
        return _between(*_shifts(mine, theirs, self.offset))

    def sums_in(self, query: Dim, key: Dim, parts: Iterable[tuple[Rows, Rows]]) -> list[PairSums]:
        """Return the sums over the visited block pairs in each part: queries of a rank, and keys.

        Blocks lie within shards. Of many pairs of shards there are few kinds, since most see each
        other in whole ranges; each kind is summed once.
        """
        known: dict[_Shifts, PairSums] = {}

        def sums(kind: _Shifts) -> PairSums:
            if kind not in known:
                n_q, n_k = sum(kind[0]), sum(kind[1])
                known[kind] = _between(*kind).sums(part(query, n_q), part(key, n_k))
            return known[kind]

        found = []
        for rows, columns in parts:
            pairs = product(self.queries.pieces(*rows), self.keys.pieces(*columns))
            kinds = Counter(_shifts(mine, theirs, self.offset) for (_, mine), (_, theirs) in pairs)
            found.append(sum((n * sums(kind) for kind, n in kinds.items()), PairSums()))
        return found

    def key_range(self, query: Dim, key: Dim, i: int) -> Sequence[int]:
        """Return the key blocks that query block i meets: of each shard those up to a place."""
        last = max(shard[-1][-1] for _, shard in self.queries.pieces(*query.range(i)))
        seen = (
            (base, base + _rows_below(shard, last + self.offset + 1))
            for base, shard in self.keys.pieces(0, key.n)
        )
        return _blocks(seen, key.block)

    def query_range(self, query: Dim, key: Dim, j: int) -> Sequence[int]:
        """Return the query blocks that key block j meets: of each shard those from a place on."""
        first = min(shard[0][0] for _, shard in self.keys.pieces(*key.range(j)))
        seeing = (
            (base + _rows_below(shard, first - self.offset), base + sum(map(len, shard)))
            for base, shard in self.queries.pieces(0, query.n)
        )
        return _blocks(seeing, query.block)

    def samples(self, query: Dim, key: Dim) -> tuple[Sequence[int], Sequence[int]]:
        """Return all query blocks and all key blocks."""
        return range(query.blocks), range(key.blocks)

    def sums(self, query: Dim, key: Dim) -> PairSums:
        """Return the sums over all visited block pairs, block by block of the queries."""
        total = PairSums()
        for i in range(query.blocks):
            met = self.key_range(query, key, i)
            rows = len(met) * key.block
            if met and met[-1] == key.blocks - 1:
                rows -= key.blocks * key.block - key.n
            total += PairSums(len(met), len(met) * query.rows(i), rows, rows * query.rows(i))
        return total

    def visible(self, queries: slice, keys: slice) -> NDArray[np.bool_] | None:
        """Return which queries see which keys as booleans; None when all see all."""
        rows = self.queries.rows(queries.start, queries.stop)[:, None] + self.offset
        seen = np.asarray(self.keys.rows(keys.start, keys.stop)[None, :] <= rows)
        return None if seen.all() else seen


def _cut(shard: Shard, first: int, stop: int) -> Shard:
    """Return the rows at some places of a shard, counted from its first."""
    starts = _starts([len(rows) for rows in shard])
    cut = (
        rows[max(first - at, 0) : max(stop - at, 0)] for at, rows in zip(starts, shard, strict=True)
    )
    return tuple(rows for rows in cut if rows)


def _starts(lengths: Sequence[int]) -> list[int]:
    """Return where ranges of such lengths begin, one after the other."""
    return [0, *accumulate(lengths[:-1])]


def _rows_below(shard: Shard, row: int) -> int:
    """Return how many rows of a shard come before a row."""
    return sum(len(range(r.start, min(max(row, r.start), r.stop), r.step)) for r in shard)


def _blocks(places: Iterable[tuple[int, int]], block: int) -> Sequence[int]:
    """Return the blocks that ranges of places, in rising order, reach into."""
    some = ((first, stop) for first, stop in places if first < stop)
    return joined(range(first // block, -(-stop // block)) for first, stop in some)


_Shifts = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


@lru_cache(maxsize=2**14)  # all pairs of 128 shards: every cut of them asks
def _shifts(queries: Shard, keys: Shard, offset: int) -> _Shifts:
    """Return the rows of each range of two shards, and how far each query range sees each of keys.

    The i-th query of a range sees i + shift keys of a range, as far as there are so many; all
    ranges have one step. Shifts that show all or nothing are cut to the first such one.
    """
    step, starts = keys[0].step, [(k.start, len(k)) for k in keys]
    shifts = []
    for rows in queries:
        first, nothing = rows.start + offset, 1 - len(rows)
        for start, everything in starts:
            shift = (first - start) // step + 1
            shifts.append(
                nothing if shift < nothing else everything if shift > everything else shift
            )
    return tuple(map(len, queries)), tuple(map(len, keys)), tuple(shifts)


@lru_cache(maxsize=256)
def _between(
    queries: tuple[int, ...], keys: tuple[int, ...], shifts: tuple[int, ...]
) -> Causal | Staircase:
    """Return the relation of ranges of so many queries and keys, from the shift of each pair."""
    if len(shifts) == 1:
        return Causal(shifts[0] - 1)
    pieces, each = [], iter(shifts)
    for first, rows in zip(_starts(queries), queries, strict=True):
        pieces.append((first, 0, 0))
        for before, n in zip(_starts(keys), keys, strict=True):
            shift = next(each)
            if shift + rows > 1:  # or none of these queries sees one of these keys
                pieces += [
                    (first + max(-shift, 0), before + max(shift, 0), 1),
                    (first + n - shift, before + n, 0),
                ]
    n_q = sum(queries)
    return Staircase(lo=Steps.of([(0, 0, 0)], n_q), hi=Steps.of(pieces, n_q))
