"""Steps: what the ranks compute between two exchanges, in which all wait for the busiest."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from iosim.reading.count import rank_flops
from iosim.schedule.ranks import EXCHANGES, RankRelation
from iosim.schedule.tree import Compute, For, Move, Node, Schedule, nodes


def step_flops(schedule: Schedule) -> tuple[tuple[int, ...], ...]:
    """Return the FLOPs of each rank in each step of a schedule of several devices.

    A step begins where the ranks exchange: with each visit of a loop that is related to them and
    has an exchange in it. Nothing for a schedule of one device.

    >>> from iosim.schedule import family
    >>> from iosim.shape import AttentionShape
    >>> ring = family("ring").build(AttentionShape(64, 64, 8), br=8, bc=8, ranks=4)
    >>> [len(step) for step in step_flops(ring)]
    [4, 4, 4, 4]
    """
    ranks = schedule.ranks
    if ranks is None:
        return ()
    steps = [[0] * ranks.count]

    def add(body: Sequence[Node], loops: tuple[For, ...]) -> None:
        for node, inner in nodes(tuple(body), loops):
            if isinstance(node, Compute):
                flops = rank_flops(node, inner, ranks)
                steps[-1] = [a + b for a, b in zip(steps[-1], flops, strict=True)]

    def walk(body: Sequence[Node], loops: tuple[For, ...]) -> None:
        for node in body:
            relation = node.relation if isinstance(node, For) else None
            if isinstance(node, For) and node.dim == ranks.dim:
                walk(node.body, (*loops, node))
            elif isinstance(node, For) and isinstance(relation, RankRelation) and _exchanges(node):
                for number in range(len(relation.visits(ranks.count, 0))):
                    steps.append([0] * ranks.count)
                    visit = _Visit(relation.query, relation.key, relation, number)
                    add(node.body, (*loops, replace(node, relation=visit)))
            else:
                add((node,), loops)

    walk(schedule.body, ())
    return tuple(tuple(step) for step in steps)


def critical_path(schedule: Schedule) -> int:
    """Return the FLOPs of the busiest rank in each step, summed: what all ranks wait for.

    >>> from iosim.schedule import family
    >>> from iosim.shape import AttentionShape
    >>> shape = AttentionShape(4096, 4096, 64, causal=True)
    >>> contiguous, zigzag = (
    ...     critical_path(family("ring").build(shape, br=64, bc=64, ranks=8, layout=layout))
    ...     for layout in ("contiguous", "zigzag")
    ... )
    >>> round(contiguous / zigzag, 3)
    1.861
    """
    return sum(max(step) for step in step_flops(schedule))


def _exchanges(loop: For) -> bool:
    """Return whether something is sent within a loop."""
    return any(isinstance(n, Move) and n.kind in EXCHANGES for n, _ in nodes(loop.body))


@dataclass(frozen=True)
class _Visit(RankRelation):
    """One visit of each rank, by its number among those of another relation."""

    of: RankRelation
    number: int

    def visits(self, ranks: int, i: int) -> Sequence[int]:
        """Return the block that rank i visits then."""
        return (self.of.visits(ranks, i)[self.number],)
