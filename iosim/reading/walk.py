"""Walking a schedule: its nodes in the order in which they run."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from iosim.schedule.layouts import CausalPlaces
from iosim.schedule.nested import blocks_met, nested_samples
from iosim.schedule.ranks import RankRelation
from iosim.schedule.relation import Causal, Relation, ranges_of
from iosim.schedule.tree import Compute, Dim, For, Move, Node, Schedule, Tensor, nodes

Range = tuple[int, int]
Ranges = tuple[Range, ...]
# Where the walk stands: for each axis looped over, the Dim, the block, and the rows it means.
Position = dict[str, tuple[Dim, int, Range]]
Blocks = Callable[[For, Sequence[int]], Sequence[int]]


def all_blocks(loop: For, blocks: Sequence[int]) -> Sequence[int]:
    """Return every block, as a machine runs them."""
    return blocks


def corner_blocks(schedule: Schedule) -> Blocks:
    """Return the choice of blocks that shows all there is to see of residency.

    It is the first two and the last two blocks of each axis. Blocks of one size along an axis
    without a relation are alike, so that two of them are enough; along an axis of `kept_axes` all
    blocks are needed. Under a relation blocks differ in what they meet, and it says which show all
    kinds of them.
    """
    related: set[str] = set()
    all_needed = set(kept_axes(schedule))
    samples: dict[tuple[str, int], set[int]] = {}  # of loops without a relation
    within: dict[tuple[str, int], set[int]] = {}  # of loops around one that is cut within a block
    for node, loops in nodes(schedule.body):
        if isinstance(node, For) and isinstance(node.relation, RankRelation):
            continue  # blocks of ranks are alike but for the last
        if isinstance(node, For) and node.relation is not None:
            pair = {node.relation.query, node.relation.key}
            related |= pair
            around = [each for each in (*loops, node) if each.dim.name in pair]
            if not any(each.dim.parent for each in around):
                for dim, blocks in _samples(node, loops):
                    samples.setdefault((dim.name, dim.block), set()).update(blocks)
            elif not isinstance(node.relation, Causal | CausalPlaces):
                query, key = _inner_cuts(node.relation, around)
                shown = nested_samples(node.relation, query, key, node.dim.name)
                for dim_name, block, places in shown:
                    within.setdefault((dim_name, block), set()).update(places)

    def choose(loop: For, blocks: Sequence[int]) -> Sequence[int]:
        dim = loop.dim
        if dim.name in all_needed or dim.index in all_needed:
            return blocks
        if dim.name not in related and dim.parent is None and dim.n % dim.block == 0:
            return blocks[:2]
        if len(blocks) <= 4:
            return blocks
        chosen = {*blocks[:2], *blocks[-2:]}
        if loop.relation is None:
            chosen |= samples.get((dim.name, dim.block), set())
        wanted = within.get((dim.name, dim.block))
        if wanted:
            ranges = ranges_of(blocks)
            chosen |= {i for i in wanted if any(i in each for each in ranges)}
        return sorted(chosen)

    return choose


def _inner_cuts(relation: Relation, loops: Sequence[For]) -> tuple[Dim, Dim]:
    dims = {loop.dim.name: loop.dim for loop in loops}
    return dims[relation.query], dims[relation.key]


def _samples(loop: For, loops: tuple[For, ...]) -> Iterator[tuple[Dim, set[int]]]:
    """Yield the axes that a loop relates, with the blocks of each that show what there is to see.

    They are blocks of each kind, and one that each of these meets.
    """
    relation = loop.relation
    assert relation is not None
    around = {each.dim.name: each.dim for each in (*loops, loop)}
    query, key = around[relation.query], around[relation.key]
    rows, columns = (set(blocks) for blocks in relation.samples(query, key))
    for i in tuple(rows):
        columns.update(relation.key_range(query, key, i)[:1])
    for j in tuple(columns):
        rows.update(relation.query_range(query, key, j)[:1])
    yield query, rows
    yield key, columns


def kept_axes(schedule: Schedule) -> set[str]:
    """Return the axes along which some tile stays resident after the iteration that made it.

    There it is freed by another loop, and each iteration adds to what is resident.
    """
    axis: dict[int, str] = {}  # of each loop, by its identity
    made: dict[str, Counter[tuple[int, ...]]] = {}
    for node, loops in nodes(schedule.body):
        if isinstance(node, Move) and node.kind in ("load", "new", "free"):
            walked = [(loop, axis_walked(node.tensor, loop)) for loop in loops]
            own = [loop for loop, name in walked if name]
            axis.update((id(loop), name) for loop, name in walked if name)
            balance = made.setdefault(node.tensor.name, Counter())
            balance[tuple(map(id, own))] += -1 if node.kind == "free" else 1
    kept: set[str] = set()
    for balance in made.values():
        apart = [set(own) for own, times in balance.items() if times]
        if apart:
            shared = apart[0].intersection(*apart)
            kept.update(axis[loop] for own in apart for loop in own - shared)
    return kept


def axis_walked(tensor: Tensor, loop: For) -> str:
    """Return the axis along which a loop moves the tensor's tile: its own, or that of its numbers.

    Empty for none.
    """
    dim = loop.dim
    return next((name for name in (dim.name, dim.index) if name and tensor.has(name)), "")


def walk(
    schedule: Schedule, choose: Blocks = all_blocks
) -> Iterator[tuple[Move | Compute, Position]]:
    """Yield each move and compute as it runs, with the position, valid until the next one."""
    return walk_body(schedule.body, choose)


def walk_body(
    body: tuple[Node, ...], choose: Blocks = all_blocks
) -> Iterator[tuple[Move | Compute, Position]]:
    """Yield what `walk` does of the body of a schedule."""
    return _walk(body, choose, {}, ())


_STEPS = (Move, Compute)


def _walk(
    body: tuple[Node, ...], choose: Blocks, position: Position, outer: tuple[int, ...]
) -> Iterator[tuple[Move | Compute, Position]]:
    for node in body:
        if isinstance(node, _STEPS):
            yield node, position
        elif isinstance(node, For):
            name, dim = node.dim.name, node.dim
            outside = position.get(name)
            within = section(dim, position)
            numbers = dim.numbers() if dim.index else None
            blocks = choose(node, visited_blocks(node, position))
            if node.order == "reverse" or (node.order == "snake" and outer and outer[-1] % 2):
                blocks = blocks[::-1]
            for i in blocks:
                rows = dim.range(i, within)
                position[name] = (dim, i, rows)
                if numbers is not None:
                    number = rows[0] // dim.block
                    position[dim.index] = (numbers, number, (number, number + 1))
                yield from _walk(node.body, choose, position, (*outer, i))
            for each in (name, dim.index):
                position.pop(each, None)
            if outside is not None:
                position[name] = outside


def section(dim: Dim, position: Position) -> Range:
    """Return the rows that a loop over `dim` cuts: all, or the current block of its parent."""
    return (0, dim.n) if dim.parent is None else position[dim.name][2]


def visited_blocks(loop: For, position: Position) -> Sequence[int]:
    """Return the blocks that a loop visits at a position: all, or those its relation names.

    They count from the first block of the current block of the Dim's parent, if it has one.
    """
    relation = loop.relation
    first, stop = section(loop.dim, position)
    if relation is None:
        return range(loop.dim.blocks_in(stop - first))
    is_key = relation.key in (loop.dim.name, loop.dim.index)
    dim, i, rows = position[relation.query if is_key else relation.key]
    if dim.parent is not None or loop.dim.parent is not None:
        return blocks_met(relation, loop.dim, (first, stop), rows)
    if is_key:
        return relation.key_range(dim, loop.dim, i)
    return relation.query_range(loop.dim, dim, i)


def tile_ranges(tensor: Tensor, position: Position) -> Ranges:
    """Return the rows of a tensor's current tile along each of its axes, (first, past the last)."""
    get = position.get
    return tuple([rows if (at := get(name)) is None else at[2] for name, rows in tensor.whole])


def whole_rows(tensor: Tensor, position: Position) -> Ranges:
    """Return the current rows of a tensor at full width: all words of its last axis."""
    ranges = tile_ranges(tensor, position)
    return (*ranges[:-1], (0, tensor.axes[-1].n))


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
