"""Relations between axes of which one, or both, are cut within blocks of another cut."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from iosim.schedule.relation import PairSums, Relation
from iosim.schedule.tree import Dim

Rows = tuple[int, int]


def blocks_met(relation: Relation, dim: Dim, section: Rows, other: Rows) -> Sequence[int]:
    """Return which blocks of `dim` within its rows `section` meet the rows `other`.

    Blocks count from the first row of the section; `other` are rows of the relation's other axis.

    >>> from iosim.schedule.relation import Causal
    >>> tile = Dim("key", 10, 2, parent=Dim("key", 10, 5))
    >>> list(blocks_met(Causal(0), tile, (5, 10), (6, 8)))  # keys 5, 6 and 7, 8
    [0, 1]
    """
    whole = Dim("other", other[1] - other[0])
    part = replace(dim, n=section[1] - section[0], parent=None)
    if dim.name == relation.key:
        return relation.shifted(other[0], section[0]).key_range(whole, part, 0)
    return relation.shifted(section[0], other[0]).query_range(part, whole, 0)


def pair_sums(relation: Relation, query: Dim, key: Dim) -> PairSums:
    """Return the sums over all visited pairs of a query block and a key block, each exact.

    >>> from iosim.schedule.relation import Causal
    >>> tile = Dim("key", 6, 2, parent=Dim("key", 6, 3))
    >>> pair_sums(Causal(0), Dim("query", 6, 6), tile)  # tiles of 2, 1, 2 and 1 keys
    PairSums(pairs=4, query_rows=24, key_rows=6, products=36)
    """
    query, key = flattened(query), flattened(key)
    if query.parent is None and key.parent is None:
        return relation.sums(query, key)
    total = PairSums()
    if key.parent is not None:
        for first, part in sections(key):
            total += pair_sums(relation.shifted(0, first), query, part)
    else:
        for first, part in sections(query):
            total += pair_sums(relation.shifted(first, 0), part, key)
    return total


def flattened(dim: Dim) -> Dim:
    """Return the cut with as few parents as make the same blocks.

    A parent whose blocks are whole multiples of this cut's, or no larger, makes no difference to
    it or replaces it.
    """
    if dim.parent is None:
        return dim
    outer = flattened(dim.parent)
    if dim.block >= outer.block:
        return outer
    if outer.block % dim.block == 0:
        return flattened(replace(dim, parent=outer.parent))
    return replace(dim, parent=outer)


def sections(dim: Dim) -> Iterator[tuple[int, Dim]]:
    """Yield the first row of each outermost block, and the cut of its rows.

    Without a parent that is one block of all rows in each.
    """
    outermost = dim.cuts[0]
    for i in range(outermost.blocks):
        first, stop = outermost.range(i)
        yield first, _part(dim, stop - first)


def _part(dim: Dim, rows: int) -> Dim:
    """Return the cut without its outermost one, of so many rows."""
    parent = dim.parent
    if parent is None:
        return replace(dim, n=rows, block=rows, index="")
    inner = None if parent.parent is None else _part(parent, rows)
    return replace(dim, n=rows, parent=inner)
