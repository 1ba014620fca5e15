"""What lies in the slow memory of each rank: its own shard of the inputs, and what it is sent."""

from iosim.errors import ScheduleError
from iosim.reading.residency import where
from iosim.reading.walk import Position, tile_name, tile_ranges
from iosim.schedule.ranks import RankRelation, Ranks
from iosim.schedule.tree import Move, Schedule, nodes


class Holdings:
    """The blocks of each input that a rank has at some time: its own, and those that arrive.

    That is read off the exchanges of the whole tree. It does not say when a block arrives.
    """

    def __init__(self, schedule: Schedule, ranks: Ranks) -> None:
        """Note which relations bring in blocks of which tensor."""
        self.ranks = ranks
        self.arriving: dict[str, list[RankRelation]] = {}
        for node, loops in nodes(schedule.body):
            if isinstance(node, Move) and node.kind in ("receive", "shift"):
                for loop in loops:
                    if isinstance(loop.relation, RankRelation):
                        self.arriving.setdefault(node.tensor.name, []).append(loop.relation)
        self._blocks: dict[tuple[str, int], set[int]] = {}

    def blocks(self, name: str, rank: int) -> set[int]:
        """Return the blocks of a tensor that a rank has at some time."""
        if (name, rank) not in self._blocks:
            found = {rank}
            for relation in self.arriving.get(name, ()):
                found |= set(relation.visits(self.ranks.count, rank))
            self._blocks[name, rank] = found
        return self._blocks[name, rank]

    def see(self, move: Move, position: Position) -> None:
        """Raise ScheduleError for a load of an input's rows that the rank never has."""
        tensor = move.tensor
        held = self.ranks.holds.get(tensor.name)
        if move.kind != "load" or tensor.place != "input" or held is None:
            return
        rank = position[self.ranks.dim.index][1]
        ranges = tile_ranges(tensor, position)
        first, stop = ranges[[dim.name for dim in tensor.axes].index(held.name)]
        needed = range(first // held.block, -(-stop // held.block))
        if not self.blocks(tensor.name, rank).issuperset(needed):
            raise ScheduleError(
                f"{where(move)}: load of {tile_name(tensor, ranges)} on rank {rank}, "
                "which neither holds all of it nor is sent it"
            )
