"""Check: does a schedule hold what it uses, fit a fast memory of M words, and leave nothing behind?

The tree is run on the first two blocks and the last one of each axis, with their real sizes: tiles
of other blocks have the same sizes and meet the same rules (see `corners`).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from iosim.errors import ScheduleError
from iosim.reading.corners import corner_blocks
from iosim.reading.gradients import Meetings, words_made
from iosim.reading.holdings import Holdings
from iosim.reading.residency import FastMemory, where
from iosim.reading.walk import Position, Ranges, tile_ranges, walk, whole_rows
from iosim.schedule.operations import find_operation
from iosim.schedule.tree import Compute, Move, Schedule, Tensor


@dataclass(frozen=True)
class Checked:
    """What a check found.

    `peak_words` and `peak_bytes` are the most that fast memory holds at once. A schedule is `fused`
    when every product P V happens while the whole rows of Q and K that formed P, and of V and O,
    are in fast memory (theory of the fused bound). Weaker, it uses `whole_rows` when each score is
    formed from whole rows of Q and K at once, and each value absorbed as a whole row of V into a
    whole row of O. It `materialises` when its scores go to slow memory and its probabilities come
    back from there, so that each matmul stands alone; it `rematerialises` when it forms some score
    more than once. `ranks` is the number of devices it runs on.

    `gradients` are those of dQ, dK, dV that it computes: none in a forward pass. A `backward`
    schedule is `fused` when each pair of a query and a key is processed while the whole rows of Q,
    dO, dQ, K, V, dK and dV are in fast memory, and it does so `once` when no pair is processed
    twice; `gradient_words_made` are the words of dQ, dK, dV for which it makes room without a load.
    """

    peak_words: int
    peak_bytes: int
    fused: bool
    whole_rows: bool
    materialises: bool
    rematerialises: bool
    ranks: int = 1
    gradients: tuple[str, ...] = ()
    once: bool = False
    gradient_words_made: int = 0

    @property
    def backward(self) -> bool:
        """Whether the schedule is one of a backward pass."""
        return bool(self.gradients)


def check(schedule: Schedule, capacity: int | None = None) -> Checked:
    """Return the peak residency and the derived properties of a schedule, or raise what is wrong.

    `capacity` is M in words; None asks for the properties alone. Raises ScheduleError for a tile
    that is used while it is not resident or before anything computed it, made twice, loaded before
    anything stored its tensor, or left resident at the end, and for a load on a rank of rows that
    it neither holds nor is sent; CapacityError where more than `capacity` words are needed. When
    rows are sent, and whether the sender holds them then, shows in `execute`.

    >>> from iosim.schedule import family
    >>> from iosim.shape import AttentionShape
    >>> flash2 = family("flash2").build(AttentionShape(4096, 4096, 64), br=128, bc=128)
    >>> found = check(flash2, capacity=50_000)
    >>> found.peak_words, found.fused, found.materialises
    (49408, True, False)
    """
    memory = FastMemory(capacity)
    holdings = None if schedule.ranks is None else Holdings(schedule, schedule.ranks)
    products = _Products()
    meetings = Meetings(schedule)
    outputs = set()
    written: set[tuple[str, object]] = set()
    for node, position in walk(schedule, corner_blocks(schedule)):
        if isinstance(node, Move):
            key = memory.move(node, position)
            if holdings is not None:
                holdings.see(node, position)
            if node.tensor.place == "output":
                outputs.add(node.tensor.name)
            if node.kind == "load":
                written.add(key)
            elif node.kind == "new":
                written.discard(key)
            elif node.kind in ("store", "add") and key not in written:
                raise ScheduleError(
                    f"{where(node)}: {node.kind} of {node.tensor.name}, which was never computed"
                )
            products.see_move(node)
            meetings.see_move(node, key)
        else:
            made = [memory.require(t, tile_ranges(t, position), node) for t in node.outputs]
            for tensor in node.inputs:
                key = memory.require(tensor, tile_ranges(tensor, position), node)
                if key not in written:
                    raise ScheduleError(
                        f"{where(node)}: {node.operation} uses {tensor.name}, "
                        "which was never computed"
                    )
            written.update(made)
            products.see_compute(node, position, memory)
            meetings.see_compute(node, position, memory)
    memory.finish(schedule, outputs)
    return Checked(
        peak_words=memory.peak_words,
        peak_bytes=memory.peak_bytes,
        fused=meetings.fused if meetings.gradients else products.fused,
        whole_rows=products.whole_rows,
        materialises=products.materialises,
        rematerialises=products.rematerialises,
        ranks=1 if schedule.ranks is None else schedule.ranks.count,
        gradients=meetings.gradients,
        once=meetings.once,
        gradient_words_made=words_made(schedule) if meetings.gradients else 0,
    )


# The names of Q and K, and the ranges of their tiles one after the other.
_Formed = tuple[tuple[str, str], Ranges]


def _overlap(a: _Formed, b: _Formed) -> bool:
    return a[0] == b[0] and all(
        max(first_a, first_b) < min(stop_a, stop_b)
        for (first_a, stop_a), (first_b, stop_b) in zip(a[1], b[1], strict=True)
    )


class _Products:
    """Watches the two matmuls: what was resident when P met V, what went through slow memory."""

    def __init__(self) -> None:
        self.operands: dict[str, tuple[Tensor, Tensor]] = {}
        self.meetings = 0
        self.apart = 0
        self.split = 0
        self.formed: dict[tuple[tuple[str, int], ...], set[_Formed]] = {}
        self.rematerialises = False
        self.from_slow: set[str] = set()
        self.stored_scores = False
        self.loaded_probabilities = False
        self.kept_on_chip = False

    def see_move(self, move: Move) -> None:
        name = move.tensor.name
        if move.kind == "load":
            self.from_slow.add(name)
        elif move.kind == "new":
            self.from_slow.discard(name)
        elif move.kind == "store" and name in self.operands:
            self.stored_scores = True

    def see_compute(self, node: Compute, position: Position, memory: FastMemory) -> None:
        role = find_operation(node).role
        if role == "scores":
            self.operands[node.outputs[0].name] = (node.inputs[0], node.inputs[1])
            self.split += not _all_whole(node.inputs[:2], position)
            self._see_scores(node, position)
        elif role == "accumulate":
            self.meetings += 1
            self.split += not _all_whole((node.inputs[1], node.outputs[0]), position)
            if not self._together(node, position, memory):
                self.apart += 1
            if node.inputs[0].name in self.from_slow:
                self.loaded_probabilities = True
            else:
                self.kept_on_chip = True

    def _see_scores(self, node: Compute, position: Position) -> None:
        """Note whether a score is formed that was formed before, in the same or in other tiles."""
        q, k = node.inputs[:2]
        formed = ((q.name, k.name), tile_ranges(q, position) + tile_ranges(k, position))
        # Tiles of one cut are the same or apart; those of another cut may overlap.
        cut = tuple(sorted((name, dim.block) for name, (dim, _, _) in position.items()))
        alike = self.formed.setdefault(cut, set())
        self.rematerialises |= formed in alike or any(
            _overlap(formed, before)
            for other, tiles in self.formed.items()
            if other != cut
            for before in tiles
        )
        alike.add(formed)

    def _together(self, product: Compute, position: Position, memory: FastMemory) -> bool:
        """Return whether the whole rows of Q, K, V and O of the current tile are resident."""
        own = (product.inputs[1], product.outputs[0])
        return bool(self.operands) and all(
            (tensor.name, whole_rows(tensor, position)) in memory.tiles
            for pair in (own, *self.operands.values())
            for tensor in pair
        )

    @property
    def fused(self) -> bool:
        return self.meetings > 0 and self.apart == 0

    @property
    def whole_rows(self) -> bool:
        return self.meetings > 0 and bool(self.operands) and self.split == 0

    @property
    def materialises(self) -> bool:
        return self.stored_scores and self.loaded_probabilities and not self.kept_on_chip


def _all_whole(tensors: Iterable[Tensor], position: Position) -> bool:
    """Return whether the current tiles hold all words of their rows."""
    return all(tile_ranges(t, position) == whole_rows(t, position) for t in tensors)
