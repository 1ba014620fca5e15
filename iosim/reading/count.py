"""Count: the exact traffic, peak residency and FLOPs of a schedule, in closed form.

The cost depends on the depth of the tree, never on the number of rows.
"""

from math import prod

from iosim.reading.extent import at_other_end, by_rank, factors, union
from iosim.reading.residency import FastMemory
from iosim.reading.traffic import COUNTED, DIRECTIONS, Share, Tally, Traffic, item_sizes
from iosim.reading.walk import corner_blocks, walk
from iosim.schedule.operations import find_operation
from iosim.schedule.ranks import Ranks
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
    tally, flops = _tally(schedule), _flops(schedule)
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
        flops=flops,
        ranks=_shares(schedule, schedule.ranks) if schedule.ranks is not None else (),
    )


def total_words(schedule: Schedule) -> int:
    """Return the words that a schedule moves, all directions together, and nothing else."""
    return sum(words.total for words in _tally(schedule).tensors.values())


def _tally(schedule: Schedule) -> Tally:
    tally = Tally()
    for node, loops in nodes(schedule.body):
        if isinstance(node, Move) and node.kind in COUNTED:
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


def rank_flops(node: Compute, loops: tuple[For, ...], ranks: Ranks) -> list[int]:
    """Return the FLOPs of a computation on each rank, in all iterations of the loops around it."""
    operands = (*node.outputs, *node.inputs)
    flops = [0] * ranks.count
    for coefficient, which in find_operation(node).flops:
        words = by_rank(union(operands[i] for i in which), loops, ranks)
        flops = [a + coefficient * b for a, b in zip(flops, words, strict=True)]
    return flops


def _shares(schedule: Schedule, ranks: Ranks) -> tuple[Share, ...]:
    """Return what each rank moves, sends, receives and computes."""
    ways = ("read", "write", "add", "send", "receive", "flops")
    found = {way: [0] * ranks.count for way in ways}

    def add(way: str, words: list[int]) -> None:
        found[way] = [a + b for a, b in zip(found[way], words, strict=True)]

    for node, loops in nodes(schedule.body):
        if isinstance(node, Move) and node.kind in DIRECTIONS:
            add(DIRECTIONS[node.kind], by_rank(node.tensor.axes, loops, ranks))
        elif isinstance(node, Move) and node.kind in COUNTED:
            own = by_rank(node.tensor.axes, loops, ranks)
            far = at_other_end(node, loops, ranks)
            send, receive = (own, far) if node.kind == "send" else (far, own)
            add("send", send)
            add("receive", receive)
        elif isinstance(node, Compute):
            add("flops", rank_flops(node, loops, ranks))
    return tuple(Share(*(found[way][rank] for way in ways)) for rank in range(ranks.count))
