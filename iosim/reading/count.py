"""Count: the exact traffic, peak residency and FLOPs of a schedule, in closed form.

The cost depends on the depth of the tree, never on the number of rows.
"""

from math import prod

from iosim.reading.extent import factors, union
from iosim.reading.residency import FastMemory
from iosim.reading.traffic import DIRECTIONS, Tally, Traffic, item_sizes
from iosim.reading.walk import corner_blocks, walk
from iosim.schedule.operations import find_operation
from iosim.schedule.tree import Compute, For, Move, Schedule, nodes


def count(schedule: Schedule) -> Traffic:
    """Return the traffic of a schedule in words, over batch and heads, every number exact.

    Raises ScheduleError for moves that no machine could make; `check` looks at all the rest.

    >>> from iosim.schedule import family
    >>> from iosim.shape import AttentionShape
    >>> shape = AttentionShape(4096, 4096, 64, heads=8)
    >>> traffic = count(family("flash2").build(shape, br=128, bc=128))
    >>> traffic.read_bytes, traffic.write_bytes
    (272629760, 4325376)
    """
    tally = _tally(schedule)
    memory = FastMemory()
    for node, position in walk(schedule, corner_blocks(schedule)):
        if isinstance(node, Move):
            memory.move(node, position)
    return Traffic(
        tensors=tally.tensors,
        lines=tally.lines,
        items=item_sizes(schedule),
        peak_words=memory.peak_words,
        peak_bytes=memory.peak_bytes,
        flops=_flops(schedule),
    )


def total_words(schedule: Schedule) -> int:
    """Return the words that a schedule moves, all directions together, and nothing else."""
    return sum(words.total for words in _tally(schedule).tensors.values())


def _tally(schedule: Schedule) -> Tally:
    tally = Tally()
    for node, loops in nodes(schedule.body):
        if isinstance(node, Move) and node.kind in DIRECTIONS:
            tally.note(node, prod(f.value for f in factors(node.tensor.axes, loops)))
    return tally


def _flops(schedule: Schedule) -> int:
    return sum(
        flops_of(node, loops) for node, loops in nodes(schedule.body) if isinstance(node, Compute)
    )


def flops_of(node: Compute, loops: tuple[For, ...]) -> int:
    """Return the FLOPs of a computation in all iterations of the loops around it."""
    operands = (*node.outputs, *node.inputs)
    flops = 0
    for coefficient, which in find_operation(node).flops:
        axes = union(operands[i] for i in which)
        flops += coefficient * prod(f.value for f in factors(axes, loops))
    return flops
