"""What a check derives of a backward pass: do the rows of a pair meet, and how often?

The lower bounds of the backward pass (proofs/coq/BackwardBound.v) take each pair of a query and a
key to be processed at one moment, with the rows of Q, dO, dQ, K, V, dK and dV in fast memory. A
schedule adds to dV, dQ and dK one after the other; the moment is that of the first of these.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

from iosim.reading.count import flops_of
from iosim.reading.extent import factors
from iosim.reading.residency import FastMemory, Key
from iosim.reading.walk import Position, Ranges, tile_ranges, whole_rows
from iosim.schedule.operations import find_operation
from iosim.schedule.tree import Compute, Move, Schedule, Tensor, nodes

GRADIENTS = ("dQ", "dK", "dV")  # the roles of the computations that add to them


def gradient_nodes(schedule: Schedule) -> Iterator[tuple[str, Compute]]:
    """Yield the computations that form dP or add to a gradient, each with its role."""
    for node, _ in nodes(schedule.body):
        if isinstance(node, Compute):
            role = find_operation(node).role
            if role in (*GRADIENTS, "dP"):
                yield role, node


def gradients_of(schedule: Schedule) -> tuple[str, ...]:
    """Return which gradients a schedule computes, of dQ, dK and dV; none in a forward pass.

    >>> from iosim.schedule import family
    >>> from iosim.shape import AttentionShape
    >>> gradients_of(family("flash1_backward").build(AttentionShape(8, 8, 4), br=2, bc=2))
    ('dQ', 'dK', 'dV')
    """
    roles = {role for role, _ in gradient_nodes(schedule)}
    return tuple(name for name in GRADIENTS if name in roles)


def words_made(schedule: Schedule) -> int:
    """Return the words of gradients that are made in fast memory, without a load."""
    sums = {n.outputs[0].name for role, n in gradient_nodes(schedule) if role in GRADIENTS}
    return sum(
        prod(f.value for f in factors(node.tensor.axes, loops))
        for node, loops in nodes(schedule.body)
        if isinstance(node, Move) and node.kind == "new" and node.tensor.name in sums
    )


def recomputed_flops(schedule: Schedule) -> int:
    """Return the FLOPs that a backward pass spends on what was formed before.

    That is S and P, which the forward pass formed, and dP and dS where they are formed a second
    time. 0 where P comes from slow memory.

    >>> from iosim.schedule import family
    >>> from iosim.shape import AttentionShape
    >>> shape = AttentionShape(1000, 1000, 64)
    >>> recomputed_flops(family("flash2_backward").build(shape, br=100, bc=100))
    131000000
    """
    computes = [(n, loops) for n, loops in nodes(schedule.body) if isinstance(n, Compute)]
    roles = [find_operation(node).role for node, _ in computes]
    again = {n.outputs[0] for (n, _), r in zip(computes, roles, strict=True) if r == "scores"}
    twice = {n.outputs[0] for (n, _), r in zip(computes, roles, strict=True) if r == "dP"}
    flops = 0
    formed = set()
    for node, loops in computes:
        if node.outputs[0] in again or node.operation in formed:
            flops += flops_of(node, loops)
        if node.outputs[0] in twice:
            formed.add(node.operation)
    return flops


@dataclass
class _Pair:
    """A pair of tiles that is being processed: which sums it is in, and which it has yet to reach.

    `waiting` maps the tile of each sum that it has not been added to yet to that sum's role.
    """

    together: bool
    waiting: dict[Key, str] = field(default_factory=dict)


class Meetings:
    """Watches a backward pass run: `fused` and `once` say what the bounds need to know."""

    def __init__(self, schedule: Schedule) -> None:
        """Find the tensors of the seven rows in the tree."""
        self.gradients = gradients_of(schedule)
        self._sums: dict[str, set[Tensor]] = {}
        self._rows: set[Tensor] = set()
        for role, node in gradient_nodes(schedule):
            if role in GRADIENTS:
                self._sums.setdefault(role, set()).add(node.outputs[0])
                self._rows |= {node.outputs[0], node.inputs[1]}
            else:
                self._rows |= set(node.inputs[:2])
        self._open: dict[Ranges, _Pair] = {}
        self._done: dict[tuple[int, ...], set[Ranges]] = {}
        self._apart = len(self.gradients) < 3 or any(len(each) > 1 for each in self._sums.values())
        self._again = False

    def see_move(self, move: Move, key: Key) -> None:
        """Note that a sum goes or starts anew before a pair was added to it."""
        if move.kind != "store":
            for pair in self._open.values():
                if key in pair.waiting:
                    pair.together = False

    def see_compute(self, node: Compute, position: Position, memory: FastMemory) -> None:
        """Note an addition to a gradient."""
        role = find_operation(node).role
        if role not in GRADIENTS or self._apart:
            return
        at = tile_ranges(node.inputs[0], position)
        pair = self._open.get(at)
        if pair is None:
            pair = self._open[at] = _Pair(
                together=all((t.name, whole_rows(t, position)) in memory.tiles for t in self._rows),
                waiting={
                    (t.name, tile_ranges(t, position)): each
                    for each, tensors in self._sums.items()
                    for t in tensors
                },
            )
        key = (node.outputs[0].name, tile_ranges(node.outputs[0], position))
        if pair.waiting.pop(key, None) is None:
            self._apart = True  # added to the same sum twice, before the others
        if not pair.waiting:
            self._apart |= not pair.together
            del self._open[at]
            self._see_pair(at, position)

    def _see_pair(self, at: Ranges, position: Position) -> None:
        cut = tuple(dim.block for dim, _, _ in position.values())
        # Tiles of one cut are the same or apart; those of another cut are taken to overlap.
        self._again |= at in self._done.setdefault(cut, set()) or len(self._done) > 1
        self._done[cut].add(at)

    @property
    def fused(self) -> bool:
        """Whether each pair is processed while its seven whole rows are in fast memory."""
        return bool(self._done) and not self._apart and not self._open

    @property
    def once(self) -> bool:
        """Whether no pair is processed twice."""
        return self.fused and not self._again
