"""Several devices: what each rank runs and holds, and which blocks of an axis a rank visits.

The ranks are the blocks of an axis like any other. One loop over it stands in the tree, and each
rank runs the iteration of its own number, at the same time as the others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from iosim.errors import IosimError
from iosim.schedule.relation import PairSums
from iosim.schedule.tree import Dim, Tensor

EXCHANGES = ("receive", "send", "shift")
"""The kinds of move between the slow memories of two ranks."""


@dataclass(frozen=True)
class Ranks:
    """What each rank runs and holds.

    Rank r runs block r of the loop over `dim`. `holds` maps the name of a tensor to a cut of one of
    its axes: block r of it lies in the slow memory of rank r, at the beginning if it is an input
    and at the end if it is an output. Of any other tensor each rank has a copy of its own.
    """

    dim: Dim
    holds: Mapping[str, Dim]

    @property
    def count(self) -> int:
        """The number of ranks, p."""
        return self.dim.blocks

    def shard(self, tensor: Tensor, rank: int) -> tuple[tuple[int, int], ...]:
        """Return the rows of a tensor that a rank holds, (first, past the last) for each axis."""
        held = self.holds.get(tensor.name)
        return tuple(
            held.range(rank) if held is not None and dim.name == held.name else (0, dim.n)
            for dim in tensor.axes
        )


def shards(name: str, what: str, n: int, ranks: int, *, count: str = "p") -> Dim:
    """Return an axis of n rows cut into one block of ceil(n / p) rows for each rank.

    The last rank may hold fewer. Raises IosimError for ranks below 1, and where some rank would be
    left without a row; `what` names the rows in the sentence.

    >>> shards("key", "keys", 10, 4).blocks
    4
    """
    check_ranks(ranks)
    block = -(-n // ranks)
    full = -(-n // block)
    if full != ranks:
        raise IosimError(
            f"ranks is {ranks}, but {n} {what} in shards of {block} are enough for {full} only; "
            f"give at most {full} ranks"
        )
    return Dim(name, n, block, symbol=f"n_{name[0]}", count=count)


def check_ranks(ranks: int) -> None:
    """Raise IosimError for a number of ranks that is no whole number of at least 1."""
    if not isinstance(ranks, int) or isinstance(ranks, bool) or ranks < 1:
        raise IosimError(f"ranks is {ranks!r}, but it must be a whole number of at least 1")


@dataclass(frozen=True)
class RankRelation:
    """Which blocks of the axis `key` each rank, a block of the axis `query`, visits, in order."""

    query: str
    key: str

    def key_range(self, query: Dim, key: Dim, i: int) -> Sequence[int]:
        """Return the blocks that rank i visits, in order."""
        raise NotImplementedError

    def query_range(self, query: Dim, key: Dim, j: int) -> Sequence[int]:
        """Return the ranks that visit block j."""
        return tuple(i for i in range(query.blocks) if j in self.key_range(query, key, i))

    def weigh(self, a: Sequence[int], b: Sequence[int]) -> int:
        """Return the sum of a[i] b[j] over all ranks i and the blocks j that they visit."""
        raise NotImplementedError

    def sums(self, query: Dim, key: Dim) -> PairSums:
        """Return the sums over all visits."""
        rows = [query.rows(i) for i in range(query.blocks)]
        columns = [key.rows(j) for j in range(key.blocks)]
        one, each = [1] * len(rows), [1] * len(columns)
        return PairSums(
            self.weigh(one, each),
            self.weigh(rows, each),
            self.weigh(one, columns),
            self.weigh(rows, columns),
        )

    def visible(self, queries: slice, keys: slice) -> np.ndarray | None:
        """Return None: nothing is hidden."""
        return None

    def seen(self, n_q: int, n_k: int) -> tuple[int, int]:
        """Return all rows of both: nothing is hidden."""
        return n_q, n_k


@dataclass(frozen=True)
class Own(RankRelation):
    """Rank r visits block r.

    >>> Own("rank", "shard").key_range(Dim("rank", 4, 1), Dim("shard", 8, 2), 3)
    (3,)
    """

    def key_range(self, query: Dim, key: Dim, i: int) -> Sequence[int]:
        """Return the block of rank i."""
        return (i,)

    def weigh(self, a: Sequence[int], b: Sequence[int]) -> int:
        """Return the sum of a[i] b[i]."""
        return sum(x * y for x, y in zip(a, b, strict=True))


@dataclass(frozen=True)
class Others(RankRelation):
    """Rank r visits all blocks but its own, first r - 1, then r - 2 and so on, around the ring.

    That is the order in which they arrive where each rank passes on to rank r + 1 what came last.

    >>> Others("rank", "shard").key_range(Dim("rank", 4, 1), Dim("shard", 8, 2), 2)
    (1, 0, 3)
    """

    def key_range(self, query: Dim, key: Dim, i: int) -> Sequence[int]:
        """Return the blocks that rank i visits, in order."""
        return tuple((i - step) % key.blocks for step in range(1, key.blocks))

    def weigh(self, a: Sequence[int], b: Sequence[int]) -> int:
        """Return the sum of a[i] b[j] over all i and j != i."""
        return sum(a) * sum(b) - sum(x * y for x, y in zip(a, b, strict=True))


@dataclass(frozen=True)
class Butterfly(RankRelation):
    """Rank r visits r xor 1, r xor 2, r xor 4 and so on: the partners of recursive doubling.

    Needs a number of ranks that is a power of two.

    >>> Butterfly("rank", "peer").key_range(Dim("rank", 8, 1), Dim("peer", 8, 1), 5)
    (4, 7, 1)
    """

    def key_range(self, query: Dim, key: Dim, i: int) -> Sequence[int]:
        """Return the blocks that rank i visits, in order."""
        return tuple(i ^ (1 << bit) for bit in range((key.blocks - 1).bit_length()))

    def weigh(self, a: Sequence[int], b: Sequence[int]) -> int:
        """Return the sum of a[i] b[j] over all ranks i and the blocks j that they visit."""
        bits = range((len(b) - 1).bit_length())
        return sum(x * b[i ^ (1 << bit)] for i, x in enumerate(a) for bit in bits)
