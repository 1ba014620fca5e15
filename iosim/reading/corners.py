"""Corners: the blocks of each axis that show all there is to see of residency, and no others.

They are the first two blocks and the last one of each axis. Blocks of one size along an axis
without a relation are alike, so that two of them are enough; along an axis of `kept_axes` all
blocks are needed. Under a relation blocks differ in what they meet, and more may be needed.
"""

from collections.abc import Iterator, Sequence

from iosim.reading.nested_corners import nested_corners
from iosim.reading.walk import Blocks, kept_axes
from iosim.schedule.ranks import RankRelation
from iosim.schedule.relation import Runs, ranges_of
from iosim.schedule.tree import Dim, For, Schedule, nodes

Places = dict[tuple[str, int], set[int]]
"""Blocks of cuts, by the name and the block size of each."""


def corner_blocks(schedule: Schedule) -> Blocks:
    """Return the choice of blocks that shows all there is to see of residency.

    Under a relation it says which blocks show all kinds of them; of an axis that is cut twice those
    are looked for that no corner shows (see `nested_corners`).
    """
    related: set[str] = set()
    all_needed = set(kept_axes(schedule))
    samples: Places = {}  # of loops without a relation
    within: Places = {}  # of loops around one that is cut within a block
    nests: list[tuple[For, ...]] = []
    for node, loops in nodes(schedule.body):
        if not isinstance(node, For) or node.relation is None:
            continue
        if isinstance(node.relation, RankRelation):
            continue  # blocks of ranks are alike but for the last
        pair = {node.relation.query, node.relation.key}
        related |= pair
        if not any(each.dim.parent for each in (*loops, node) if each.dim.name in pair):
            for dim, blocks in _samples(node, loops):
                samples.setdefault((dim.name, dim.block), set()).update(blocks)
        elif pair & all_needed:
            all_needed |= pair  # nothing tells which block keeps the most
        else:
            nests.append((*loops, node))

    def choose(loop: For, blocks: Sequence[int]) -> Sequence[int]:
        dim = loop.dim
        if dim.name in all_needed or dim.index in all_needed:
            return blocks
        if dim.name not in related and dim.parent is None and dim.n % dim.block == 0:
            return blocks[:2]
        if len(blocks) <= 3:
            return blocks
        chosen = {*blocks[:2], blocks[-1]}
        if loop.relation is None:
            chosen |= samples.get((dim.name, dim.block), set())
        for block in within.get((dim.name, dim.block), ()):
            if any(block in each for each in _ranges(blocks)):
                chosen.add(block)
        return sorted(chosen)

    for nest in nests:
        for place, more in nested_corners(nest, choose).items():
            within.setdefault(place, set()).update(more)
    return choose


def _ranges(blocks: Sequence[int]) -> Sequence[Sequence[int]]:
    return ranges_of(blocks) if isinstance(blocks, Runs) else (blocks,)


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
