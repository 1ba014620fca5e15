"""Several devices: what each rank runs and holds, and which blocks of an axis a rank visits.

The ranks are the blocks of an axis like any other. One loop over it stands in the tree, and each
rank runs the iteration of its own number, at the same time as the others.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from iosim.errors import IosimError, ScheduleError
from iosim.schedule.relation import PairSums, Rows
from iosim.schedule.tree import Dim, For, Move, Node, Remark, Schedule, Tensor, nodes

if TYPE_CHECKING:
    from iosim.schedule.layouts import Layout

EXCHANGES = ("receive", "send", "shift")
"""The kinds of move between the slow memories of two ranks."""


@dataclass(frozen=True)
class Ranks:
    """What each rank runs and holds.

    Rank r runs block r of the loop over `dim`, whose blocks have numbers. `holds` maps the name of
    a tensor to a cut of one of its axes: block r of it belongs to rank r. There an input lies at
    the beginning and an output at the end, and a rank reads no other block that it was not sent. Of
    any other tensor each rank has a copy of its own. Along an axis in `layouts` blocks are places,
    and the layout says which row of the sequence lies at each.
    """

    dim: Dim
    holds: Mapping[str, Dim]
    layouts: Mapping[str, "Layout"] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """The number of ranks, p."""
        return self.dim.blocks

    def shard(self, tensor: Tensor, rank: int) -> tuple[tuple[int, int], ...]:
        """Return the rows of a tensor that belong to a rank, (first, past the last) by axis."""
        held = self.holds.get(tensor.name)
        return tuple(
            held.range(rank) if held is not None and dim.name == held.name else (0, dim.n)
            for dim in tensor.axes
        )


def shards(axis: Dim, ranks: int, rows: str, index: str) -> Dim:
    """Return an axis cut into one block for each rank, of ceil(n / p) rows; the last may have less.

    `index` names the axis that numbers the blocks, `rows` says in an error what the rows are.
    Raises IosimError for ranks below 1, and where some rank would be left without a row.

    >>> shards(Dim("key", 10), 4, "keys", "shard").block
    3
    """
    check_ranks(ranks)
    block = -(-axis.n // ranks)
    full = -(-axis.n // block)
    if full != ranks:
        raise IosimError(
            f"ranks is {ranks}, but in shards of {block} the {axis.n} {rows} are enough for "
            f"{full} only; give {full} ranks"
        )
    return replace(axis, block=block, count="p", index=index, indexed=False)


def even_shards(axis: Dim, ranks: int, rows: str, index: str) -> Dim:
    """Return an axis cut into equal blocks, one for each rank.

    Raises IosimError for ranks below 1, and where the ranks do not divide the rows.
    """
    check_ranks(ranks)
    if axis.n % ranks:
        raise IosimError(
            f"ranks is {ranks}, which does not divide the {axis.n} {rows}; it must, since each "
            "rank attends with whole heads"
        )
    return shards(axis, ranks, rows, index)


def check_ranks(ranks: int) -> None:
    """Raise IosimError for a number of ranks that is no whole number of at least 1."""
    if not isinstance(ranks, int) or isinstance(ranks, bool) or ranks < 1:
        raise IosimError(f"ranks is {ranks!r}, but it must be a whole number of at least 1")


def check_tree(schedule: Schedule) -> None:
    """Raise ScheduleError for a tree that several devices could not run.

    Every node must be inside the loop over the ranks, and every exchange inside a loop that is
    related to them; a schedule of one device has neither.
    """
    ranks = schedule.ranks
    if ranks is None and not any(_of_ranks(node) for node, _ in nodes(schedule.body)):
        return
    for node, loops in nodes(schedule.body):
        related = [loop for loop in loops if isinstance(loop.relation, RankRelation)]
        exchange = isinstance(node, Move) and node.kind in EXCHANGES
        if ranks is None:
            if related or exchange:
                what = "an exchange" if exchange else "a loop that is related to ranks"
                raise ScheduleError(
                    f"{schedule.name} has {what} in it, but does not say what its ranks hold"
                )
            continue
        if not isinstance(node, For | Remark) and all(loop.dim != ranks.dim for loop in loops):
            raise ScheduleError(
                f"{schedule.name} has {node.line or node!r} outside of the loop over its ranks"
            )
        if exchange and not related:
            raise ScheduleError(
                f"{schedule.name} has {node.line or node!r} outside of any loop that is related "
                "to the ranks, so that nobody is at the other end"
            )
        for loop in related:
            if loop.dim.blocks != ranks.count:
                raise ScheduleError(
                    f"the loop over {loop.dim.name!r} has {loop.dim.blocks} blocks for "
                    f"{ranks.count} ranks; there must be one for each"
                )


def _of_ranks(node: Node) -> bool:
    """Return whether a node is an exchange or a loop that is related to ranks."""
    if isinstance(node, Move):
        return node.kind in EXCHANGES
    return isinstance(node, For) and isinstance(node.relation, RankRelation)


@dataclass(frozen=True)
class RankRelation(ABC):
    """Which blocks of the axis `key` each rank, a number along the axis `query`, visits, in order.

    Each rank visits equally many blocks, and each block is visited by equally many ranks; where
    rank r visits block s, rank s visits block r.
    """

    query: str
    key: str

    @property
    def name(self) -> str:
        """What a formula calls the visits."""
        return type(self).__name__.lower()

    def key_range(self, query: Dim, key: Dim, i: int) -> Sequence[int]:
        """Return the blocks that rank i visits, in order."""
        return self.visits(key.blocks, i)

    def query_range(self, query: Dim, key: Dim, j: int) -> Sequence[int]:
        """Return the ranks that visit block j."""
        return self.visits(query.blocks, j)

    @abstractmethod
    def visits(self, ranks: int, i: int) -> Sequence[int]:
        """Return the blocks that rank i of so many visits, in order."""

    def over(self, weights: Sequence[int]) -> list[int]:
        """Return for each rank the sum of the weights of the blocks that it visits."""
        ranks = len(weights)
        return [sum(weights[j] for j in self.visits(ranks, i)) for i in range(ranks)]

    def sums(self, query: Dim, key: Dim) -> PairSums:
        """Return the sums over all visits."""
        rows = [query.rows(i) for i in range(query.blocks)]
        columns = [key.rows(j) for j in range(key.blocks)]
        each, seen = self.over([1] * len(columns)), self.over(columns)
        return PairSums(
            sum(each),
            sum(a * b for a, b in zip(rows, each, strict=True)),
            sum(seen),
            sum(a * b for a, b in zip(rows, seen, strict=True)),
        )

    def visible(self, queries: slice, keys: slice) -> np.ndarray | None:
        """Return None: nothing is hidden."""
        return None

    def within(self, queries: Rows, keys: Rows) -> "RankRelation":
        """Return the same: it is about blocks, not rows."""
        return self

    def samples(self, query: Dim, key: Dim) -> tuple[Sequence[int], Sequence[int]]:
        """Return the first two and the last two ranks, and the blocks of the same numbers."""
        corners = sorted({i % query.blocks for i in (0, 1, -2, -1)})
        return corners, corners


@dataclass(frozen=True)
class Own(RankRelation):
    """Rank r visits block r.

    >>> Own("rank", "shard").visits(4, 3)
    (3,)
    """

    def visits(self, ranks: int, i: int) -> Sequence[int]:
        """Return the block of rank i."""
        return (i,)


@dataclass(frozen=True)
class Others(RankRelation):
    """Rank r visits all blocks but its own, first r - 1, then r - 2 and so on, around the ring.

    That is the order in which they arrive where each rank passes on to rank r + 1 what came last.

    >>> Others("rank", "shard").visits(4, 2)
    (1, 0, 3)
    """

    def visits(self, ranks: int, i: int) -> Sequence[int]:
        """Return the blocks of the other ranks, in the order in which they arrive."""
        return tuple((i - step) % ranks for step in range(1, ranks))

    def over(self, weights: Sequence[int]) -> list[int]:
        """Return for each rank the sum of the weights of all blocks but its own."""
        total = sum(weights)
        return [total - own for own in weights]


@dataclass(frozen=True)
class Butterfly(RankRelation):
    """Rank r visits r xor 1, r xor 2, r xor 4 and so on: the partners of recursive doubling.

    Needs a number of ranks that is a power of two.

    >>> Butterfly("rank", "peer").visits(8, 5)
    (4, 7, 1)
    """

    def visits(self, ranks: int, i: int) -> Sequence[int]:
        """Return the partners of rank i, nearest first."""
        return tuple(i ^ (1 << bit) for bit in range((ranks - 1).bit_length()))
