"""Which blocks of one axis meet which of another: the masks, as integer arithmetic.

The block functions below are plain integer functions, so that the same text serves Python here and
compiled code elsewhere. Sums over the visited block pairs are closed forms (floor sums): their cost
depends neither on the number of rows nor on the number of blocks.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Protocol, overload

import numpy as np

from iosim.schedule.tree import Dim
from iosim.shape import AttentionShape

Rows = tuple[int, int]


@dataclass(frozen=True)
class PairSums:
    """Sums over the visited pairs of a query block and a key block, each exact."""

    pairs: int = 0
    query_rows: int = 0
    key_rows: int = 0
    products: int = 0

    def __add__(self, other: "PairSums") -> "PairSums":
        """Return the sums over the pairs of both."""
        return PairSums(
            self.pairs + other.pairs,
            self.query_rows + other.query_rows,
            self.key_rows + other.key_rows,
            self.products + other.products,
        )

    def __rmul__(self, times: int) -> "PairSums":
        """Return the sums over the pairs of so many that are alike."""
        return PairSums(
            times * self.pairs,
            times * self.query_rows,
            times * self.key_rows,
            times * self.products,
        )

    def __sub__(self, other: "PairSums") -> "PairSums":
        """Return the sums over the pairs that are not in `other`, all of which are here."""
        return PairSums(
            self.pairs - other.pairs,
            self.query_rows - other.query_rows,
            self.key_rows - other.key_rows,
            self.products - other.products,
        )

    def select(self, query: bool, key: bool) -> int:
        """Return the sum of 1, query rows, key rows or their product over the visited pairs."""
        if query:
            return self.products if key else self.query_rows
        return self.key_rows if key else self.pairs


class Relation(Protocol):
    """What a mask must tell: per query block the key blocks it meets, and the other way round."""

    def __hash__(self) -> int:
        """Return the same for equal ones: frozen dataclasses do."""

    @property
    def query(self) -> str:
        """The name of the query axis."""

    @property
    def key(self) -> str:
        """The name of the key axis."""

    def key_range(self, query: Dim, key: Dim, i: int) -> Sequence[int]:
        """Return the key blocks that query block i meets, in rising order."""

    def query_range(self, query: Dim, key: Dim, j: int) -> Sequence[int]:
        """Return the query blocks that key block j meets, in rising order."""

    def samples(self, query: Dim, key: Dim) -> tuple[Sequence[int], Sequence[int]]:
        """Return query blocks and key blocks among which each kind of block is found.

        Two blocks are of one kind when both or neither are the last of their axis, and both or
        neither meet the last block of the other axis, and a block that is not. The blocks that meet
        the most rows are among the samples, too.
        """

    def sums(self, query: Dim, key: Dim) -> PairSums:
        """Return the sums over all visited block pairs."""

    def visible(self, queries: slice, keys: slice) -> np.ndarray | None:
        """Return which queries see which keys as booleans; None when all see all."""

    def within(self, queries: Rows, keys: Rows) -> "Relation":
        """Return the relation of these query rows to these key rows, each counted from its first.

        Rows are (first, row after the last).
        """


@dataclass(frozen=True)
class Runs(Sequence[int]):
    """Blocks in rising order as ranges one after the other, however long they are.

    >>> runs = joined([range(2), range(5, 7), range(7, 9)])
    >>> list(runs), runs[-1], runs[1:3]
    ([0, 1, 5, 6, 7, 8], 8, (1, 5))
    """

    ranges: tuple[range, ...]

    def __len__(self) -> int:
        """Return the number of blocks."""
        return sum(map(len, self.ranges))

    def __iter__(self) -> Iterator[int]:
        """Yield the blocks."""
        return chain.from_iterable(self.ranges)

    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[int]: ...
    def __getitem__(self, at: int | slice) -> int | Sequence[int]:
        """Return a block, or some of them as a tuple."""
        if isinstance(at, slice):
            return tuple(self[place] for place in range(*at.indices(len(self))))
        place = at + len(self) if at < 0 else at
        for each in self.ranges:
            if 0 <= place < len(each):
                return each[place]
            place -= len(each)
        raise IndexError(f"there is no block {at} among {len(self)}")


def joined(ranges: Iterable[range]) -> Sequence[int]:
    """Return the blocks of ranges in rising order: a range if they are one, or else `Runs`."""
    kept: list[range] = []
    for each in ranges:
        if not each:
            continue
        if kept and each.start <= kept[-1].stop:
            kept[-1] = range(kept[-1].start, max(kept[-1].stop, each.stop))
        else:
            kept.append(each)
    if len(kept) < 2:
        return kept[0] if kept else range(0)
    return Runs(tuple(kept))


def kinds(
    own: Dim, other: Dim, blocks: np.ndarray, number: np.ndarray, last: np.ndarray
) -> list[int]:
    """Return one block of each kind (see `Relation.samples`), and those that meet the most.

    For each of the `blocks` there is the `number` of the other axis that it meets, and whether the
    `last` of them is among these.
    """
    ragged = blocks == own.blocks - 1
    rows = number * other.block - last * (other.blocks * other.block - other.n)
    found: set[int] = set()
    for mine in (ragged, ~ragged):
        for alike in (last & (number > 1), last & (number == 1), ~last & (number > 0), number == 0):
            at = np.flatnonzero(mine & alike)
            if at.size:
                found |= {int(blocks[at[0]]), int(blocks[at[np.argmax(rows[at])]])}
    return sorted(found)


def row_numbers(values: Iterable[int], top: int) -> np.ndarray:
    """Return rows or blocks as an array in which sums of a few up to `top` do not overflow."""
    return np.array(list(values), dtype=np.int64 if top < 2**60 else object)


def ranges_of(blocks: Sequence[int]) -> tuple[range, ...]:
    """Return the ranges that blocks in rising order are made of.

    >>> ranges_of(joined([range(2), range(5, 7)])), ranges_of(range(3)), ranges_of(range(0))
    ((range(0, 2), range(5, 7)), (range(0, 3),), ())
    """
    if isinstance(blocks, Runs):
        return blocks.ranges
    if isinstance(blocks, range):
        return (blocks,) if blocks else ()
    return ranges_of(joined(range(block, block + 1) for block in blocks))


def floor_sum(n: int, m: int, a: int, b: int) -> int:
    """Return the sum of floor((a i + b) / m) for i = 0 .. n - 1, in O(log m) steps, exactly.

    The Euclid-like recursion of Graham, Knuth and Patashnik, Concrete Mathematics, section 3.5.

    >>> floor_sum(4, 10, 6, 3)
    3
    """
    total = 0
    while n > 0:
        total += (a // m) * n * (n - 1) // 2 + (b // m) * n
        a %= m
        b %= m
        last = a * n + b
        if last < m:
            break
        n, m, a, b = last // m, a, m, last % m
    return total


def causal_key_stop(i: int, br: int, bc: int, n_q: int, n_k: int, offset: int) -> int:
    """Return the number of key blocks that query block i meets under a causal mask."""
    last = min((i + 1) * br, n_q) - 1 + offset
    return min(max(last // bc + 1, 0), -(-n_k // bc))


def causal_query_start(j: int, br: int, bc: int, n_q: int, n_k: int, offset: int) -> int:
    """Return the first query block that key block j meets under a causal mask."""
    first = max(j * bc - offset, 0)
    return min(first // br, -(-n_q // br)) if first < n_q else -(-n_q // br)


@dataclass(frozen=True)
class Causal:
    """Query row r sees the key rows c with c <= r + offset.

    >>> mask = Causal(offset=0)
    >>> [list(mask.key_range(Dim("query", 5, 2), Dim("key", 5, 2), i)) for i in range(3)]
    [[0], [0, 1], [0, 1, 2]]
    """

    offset: int
    query: str = "query"
    key: str = "key"

    def key_range(self, query: Dim, key: Dim, i: int) -> range:
        """Return the key blocks that query block i meets."""
        return range(causal_key_stop(i, query.block, key.block, query.n, key.n, self.offset))

    def query_range(self, query: Dim, key: Dim, j: int) -> range:
        """Return the query blocks that key block j meets."""
        start = causal_query_start(j, query.block, key.block, query.n, key.n, self.offset)
        return range(start, query.blocks)

    def samples(self, query: Dim, key: Dim) -> tuple[Sequence[int], Sequence[int]]:
        """Return query blocks and key blocks among which each kind of block is found.

        What is met only grows along the queries, and only falls along the keys.
        """
        starts = [self.query_range(query, key, j).start for j in _corners(key)]
        stops = [self.key_range(query, key, i).stop for i in _corners(query)]
        return (
            self._kinds(query, key, starts, lambda i: self.key_range(query, key, i)),
            self._kinds(key, query, stops, lambda j: self.query_range(query, key, j)),
        )

    def _kinds(
        self, own: Dim, other: Dim, changes: list[int], met: Callable[[int], range]
    ) -> list[int]:
        near = {block for change in changes for block in (change - 1, change)}
        blocks = sorted({*_corners(own), *(i for i in near if 0 <= i < own.blocks)})
        ranges, top = [met(i) for i in blocks], max(own.n, other.n, other.block)
        last = np.array([other.blocks - 1 in each for each in ranges])
        return kinds(
            *(own, other, row_numbers(blocks, top)),
            *(row_numbers((each.stop - each.start for each in ranges), top), last),
        )

    def sums(self, query: Dim, key: Dim) -> PairSums:
        """Return the sums over all visited block pairs, in closed form.

        The number of key blocks that query block i meets rises with i: it is 0 up to a first
        block, then floor(((i + 1) B_r - 1 + offset) / B_c) + 1, and from a last block on T_c.
        """
        br, bc, last = query.block, key.block, query.blocks - 1

        def stop(i: int) -> int:
            return causal_key_stop(i, br, bc, query.n, key.n, self.offset)

        # Full query blocks 0 .. last - 1: [0, low) meet nothing, [high, last) meet every block.
        low = min(max(-(-(1 - self.offset) // br) - 1, 0), last)
        reach = (key.blocks - 1) * bc - self.offset + 1
        high = min(max(-(-reach // br) - 1, low), last)
        partial = high - low
        pairs = floor_sum(partial, bc, br, (low + 1) * br - 1 + self.offset) + partial
        key_rows = pairs * bc  # none of these meets the last, perhaps ragged, key block
        pairs += (last - high) * key.blocks
        key_rows += (last - high) * key.n
        last_pairs = stop(last)
        last_rows = min(last_pairs * bc, key.n)
        return PairSums(
            pairs=pairs + last_pairs,
            query_rows=pairs * br + last_pairs * query.rows(last),
            key_rows=key_rows + last_rows,
            products=key_rows * br + last_rows * query.rows(last),
        )

    def visible(self, queries: slice, keys: slice) -> np.ndarray | None:
        """Return which queries see which keys as booleans; None when all see all."""
        if keys.stop - 1 <= queries.start + self.offset:
            return None
        rows = np.arange(queries.start, queries.stop)[:, None]
        columns = np.arange(keys.start, keys.stop)[None, :]
        return np.asarray(columns <= rows + self.offset)

    def within(self, queries: Rows, keys: Rows) -> "Causal":
        """Return the relation of these query rows to these key rows."""
        return Causal(self.offset + queries[0] - keys[0], self.query, self.key)


def _corners(dim: Dim) -> list[int]:
    return sorted({i for i in (0, 1, dim.blocks - 2, dim.blocks - 1) if 0 <= i < dim.blocks})


@lru_cache(maxsize=16)
def relation_of(shape: AttentionShape) -> Relation | None:
    """Return which keys the queries of a shape see; None when all see all.

    Raises IosimError for a mask that the shape cannot have.

    >>> relation_of(AttentionShape(4, 6, 8, causal=True))
    Causal(offset=2, query='query', key='key')
    """
    if shape.mask is not None:
        return shape.mask.relation(shape)
    return Causal(shape.causal_offset) if shape.causal else None
