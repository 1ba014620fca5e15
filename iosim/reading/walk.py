"""Walking a schedule: its nodes in the order in which they run."""

from collections.abc import Callable, Iterator, Sequence

from iosim.errors import ScheduleError
from iosim.schedule.tree import Compute, Dim, For, Move, Node, Schedule, Tensor

Range = tuple[int, int]
Ranges = tuple[Range, ...]
# Where the walk stands: for each axis looped over, the Dim, the block, and the rows it means.
Position = dict[str, tuple[Dim, int, Range]]
Blocks = Callable[[For, range], Sequence[int]]


def all_blocks(loop: For, blocks: range) -> Sequence[int]:
    """Return every block, as a machine runs them."""
    return blocks


def corner_blocks(loop: For, blocks: range) -> Sequence[int]:
    """Return blocks that show all there is to see of residency: the first two and the last two.

    Blocks of one size without a relation are alike, so that two of them are enough.
    """
    if loop.relation is None and loop.dim.n % loop.dim.block == 0:
        return blocks[:2]
    return blocks if len(blocks) <= 4 else (*blocks[:2], *blocks[-2:])


def walk(
    schedule: Schedule, choose: Blocks = all_blocks
) -> Iterator[tuple[Move | Compute, Position]]:
    """Yield each move and compute as it runs, with the position, valid until the next one."""
    return _walk(schedule.body, choose, {}, ())


def _walk(
    body: tuple[Node, ...], choose: Blocks, position: Position, outer: tuple[int, ...]
) -> Iterator[tuple[Move | Compute, Position]]:
    for node in body:
        if isinstance(node, Move | Compute):
            yield node, position
        elif isinstance(node, For):
            name, dim = node.dim.name, node.dim
            before = position.get(name)
            blocks = choose(node, visited_blocks(node, position))
            if node.order == "reverse" or (node.order == "snake" and outer and outer[-1] % 2):
                blocks = blocks[::-1]
            for i in blocks:
                position[name] = (dim, i, dim.range(i))
                yield from _walk(node.body, choose, position, (*outer, i))
            if before is None:
                position.pop(name, None)
            else:
                position[name] = before


def visited_blocks(loop: For, position: Position) -> range:
    """Return the blocks that a loop visits at a position: all, or those its relation names."""
    relation = loop.relation
    if relation is None:
        return range(loop.dim.blocks)
    other = relation.query if loop.dim.name == relation.key else relation.key
    if other not in position:
        raise ScheduleError(
            f"the loop over {loop.dim.name!r} is related to {other!r}, "
            f"but no loop over {other!r} is around it"
        )
    dim, i, _ = position[other]
    if loop.dim.name == relation.key:
        return relation.key_range(dim, loop.dim, i)
    return relation.query_range(loop.dim, dim, i)


def tile_ranges(tensor: Tensor, position: Position) -> Ranges:
    """Return the rows of a tensor's current tile along each of its axes, (first, past the last)."""
    get = position.get
    return tuple([(0, dim.n) if (at := get(dim.name)) is None else at[2] for dim in tensor.axes])


def tile_words(ranges: Ranges) -> int:
    """Return the words of a tile."""
    words = 1
    for first, stop in ranges:
        words *= stop - first
    return words


def tile_name(tensor: Tensor, ranges: Ranges) -> str:
    """Return a tile as an error message shows it: S[0:32, 64:128], batch and heads left out."""
    inside = ", ".join(
        f"{first}:{stop}"
        for (first, stop), dim in zip(ranges, tensor.axes, strict=True)
        if not dim.indexed
    )
    return f"{tensor.name}[{inside}]"
