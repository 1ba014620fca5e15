"""What a relation says of two axes, each cut once or within the blocks of other cuts."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from iosim.schedule.relation import PairSums, Relation, Rows
from iosim.schedule.tree import Dim


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
        return relation.within(other, section).key_range(whole, part, 0)
    return relation.within(section, other).query_range(part, whole, 0)


@lru_cache(maxsize=16)
def pair_sums(relation: Relation, query: Dim, key: Dim) -> PairSums:
    """Return the sums over all visited pairs of a query block and a key block, each exact.

    Those asked for last are remembered.

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
        for rows, part in _sections(key):
            total += pair_sums(relation.within((0, query.n), rows), query, part)
    else:
        for rows, part in _sections(query):
            total += pair_sums(relation.within(rows, (0, key.n)), part, key)
    return total


def seen(relation: Relation, query: Dim, key: Dim) -> tuple[int, int]:
    """Return the rows of the query blocks that meet a key, and of the key blocks that are met.

    >>> from iosim.schedule.relation import Causal
    >>> seen(Causal(-2), Dim("query", 5, 1), Dim("key", 5, 1))
    (3, 3)
    """
    return (
        pair_sums(relation, query, key.cut(key.n)).query_rows,
        pair_sums(relation, query.cut(query.n), key).key_rows,
    )


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


def _sections(dim: Dim) -> Iterator[tuple[Rows, Dim]]:
    """Yield the rows of each outermost block, and the cut of them."""
    outermost = dim.cuts[0]
    for i in range(outermost.blocks):
        first, stop = outermost.range(i)
        yield (first, stop), _part(dim, stop - first)


def _part(dim: Dim, rows: int) -> Dim:
    """Return the cut without its outermost one, of so many rows."""
    parent = dim.parent
    assert parent is not None
    inner = None if parent.parent is None else _part(parent, rows)
    return replace(dim, n=rows, parent=inner)
