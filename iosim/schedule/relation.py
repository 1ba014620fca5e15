"""Which blocks of one axis meet which of another: the masks, as integer arithmetic.

The block functions below are plain integer functions, so that the same text serves Python here and
compiled code elsewhere. Sums over the visited block pairs are closed forms (floor sums): their cost
depends neither on the number of rows nor on the number of blocks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from iosim.schedule.tree import Dim


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

    @property
    def query(self) -> str:
        """The name of the query axis."""

    @property
    def key(self) -> str:
        """The name of the key axis."""

    def key_range(self, query: Dim, key: Dim, i: int) -> Sequence[int]:
        """Return the key blocks that query block i meets."""

    def query_range(self, query: Dim, key: Dim, j: int) -> Sequence[int]:
        """Return the query blocks that key block j meets."""

    def sums(self, query: Dim, key: Dim) -> PairSums:
        """Return the sums over all visited block pairs."""

    def visible(self, queries: slice, keys: slice) -> np.ndarray | None:
        """Return which queries see which keys as booleans; None when all see all."""

    def seen(self, n_q: int, n_k: int) -> tuple[int, int]:
        """Return how many queries see a key, and how many keys are seen."""

    def shifted(self, queries: int, keys: int) -> "Relation":
        """Return the relation of the rows from that query row and that key row on."""


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

    def seen(self, n_q: int, n_k: int) -> tuple[int, int]:
        """Return how many queries see a key, and how many keys are seen."""
        queries = min(max(n_q + min(self.offset, 0), 0), n_q)
        keys = min(max(n_q + self.offset, 0), n_k)
        return queries, keys

    def shifted(self, queries: int, keys: int) -> "Causal":
        """Return the relation of the rows from that query row and that key row on."""
        return replace(self, offset=self.offset + queries - keys)
