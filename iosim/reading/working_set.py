"""Working sets: the words that one iteration of a loop touches, and those made without traffic."""

from math import prod

from iosim.reading.extent import factors
from iosim.schedule.tree import Compute, For, Move, Schedule, Tensor, nodes


def new_words(schedule: Schedule) -> int:
    """Return the words that a schedule makes room for, without traffic."""
    return sum(
        prod(f.value for f in factors(node.tensor.axes, loops))
        for node, loops in nodes(schedule.body)
        if isinstance(node, Move) and node.kind == "new"
    )


def working_sets(schedule: Schedule) -> dict[str, int]:
    """Return the words that one iteration of each loop touches, by the line of the loop.

    A tensor counts with all rows along the axes that are looped over inside, and with one block
    along those outside. Scratch that never visits slow memory reuses its place: one tile of it.

    >>> from iosim.schedule import family
    >>> from iosim.shape import AttentionShape
    >>> flash2 = family("flash2").build(AttentionShape(256, 256, 64), br=64, bc=64)
    >>> working_sets(flash2)
    {'for 1 <= i <= T_r do': 45248, 'for 1 <= j <= T_c do': 20608}
    """
    moved = {
        node.tensor.name
        for node, _ in nodes(schedule.body)
        if isinstance(node, Move) and node.kind in ("load", "store", "add")
    }
    found: dict[str, int] = {}
    for loop, loops in nodes(schedule.body):
        if not isinstance(loop, For) or not loop.line or loop.dim.blocks == 1:
            continue
        outside = _cut_by((*loops, loop))
        touched: dict[str, int] = {}
        for node, inner in nodes(loop.body):
            if isinstance(node, Compute):
                inside = _cut_by(inner)
                for tensor in (*node.outputs, *node.inputs):
                    blocks = outside if tensor.name in moved else {**inside, **outside}
                    words = _words(tensor, blocks)
                    touched[tensor.name] = max(words, touched.get(tensor.name, 0))
        if touched:
            found.setdefault(loop.line, sum(touched.values()))
    return found


def _cut_by(loops: tuple[For, ...]) -> dict[str, int]:
    """Return the rows of a block along each axis looped over; one along an axis of numbers."""
    rows = {loop.dim.name: loop.dim.block for loop in loops}
    return rows | {loop.dim.index: 1 for loop in loops}


def _words(tensor: Tensor, blocks: dict[str, int]) -> int:
    return prod(min(blocks.get(dim.name, dim.n), dim.n) for dim in tensor.axes)
