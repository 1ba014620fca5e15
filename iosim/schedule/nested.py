"""What a relation says of two axes, each cut once or within the blocks of other cuts."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise, product

import numpy as np

from iosim.schedule.cuts import Cut, flattened
from iosim.schedule.masks.staircase import staircase
from iosim.schedule.relation import Causal, PairSums, Part, Parted, Relation, Rows
from iosim.schedule.tree import Dim


@lru_cache(maxsize=1024)  # each head asks for the same ones
def blocks_met(relation: Relation, dim: Dim, section: Rows, other: Rows) -> Sequence[int]:
    """Return which blocks of `dim` within its rows `section` meet the rows `other`.

    Blocks count from the first row of the section; `other` are rows of the relation's other axis.

    >>> from iosim.schedule.relation import Causal
    >>> tile = Dim("key", 10, 2, parent=Dim("key", 10, 5))
    >>> list(blocks_met(Causal(0), tile, (5, 10), (6, 8)))  # keys 5, 6 and 7, 8
    [0, 1]
    """
    whole = Dim("other", other[1] - other[0])
    inside = replace(dim, n=section[1] - section[0], parent=None, index="")
    if dim.name == relation.key:
        return relation.within(other, section).key_range(whole, inside, 0)
    return relation.within(section, other).query_range(inside, whole, 0)


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
    return sums_in(relation, query, key, (((0, query.n), (0, key.n)),))[0]


@lru_cache(maxsize=64)
def sums_in(
    relation: Relation, query: Dim, key: Dim, parts: tuple[Part, ...]
) -> tuple[PairSums, ...]:
    """Return the sums over the visited pairs of a query block and a key block in each part.

    Whole blocks fill the queries and the keys of each part, and the keys of parts with the same
    queries do not overlap. The masks of iosim work out all parts at once; of a relation that has no
    `sums_in` they are added up section by section. Those asked for last are remembered.

    >>> tile = Dim("key", 6, 2, parent=Dim("key", 6, 3))
    >>> halves = (((0, 6), (0, 3)), ((0, 6), (3, 6)))
    >>> [each.pairs for each in sums_in(Causal(0), Dim("query", 6, 6), tile, halves)]
    [2, 2]
    """
    if not parts:
        return ()
    if isinstance(relation, Causal):
        relation = staircase(relation, query.n, key.n)
    if isinstance(relation, Parted):
        return tuple(relation.sums_in(query, key, parts))
    return tuple(_one_by_one(relation, query, key, part) for part in parts)


def _one_by_one(relation: Relation, query: Dim, key: Dim, part: Part) -> PairSums:
    """Return the sums over a part, section by section."""
    total = PairSums()
    for rows, columns in product(_sections(query, part[0]), _sections(key, part[1])):
        inside = (
            Dim(dim.name, stop - first, min(Cut.of(dim).block, stop - first))
            for dim, (first, stop) in ((query, rows), (key, columns))
        )
        total += relation.within(rows, columns).sums(*inside)
    return total


def _sections(dim: Dim, rows: Rows) -> Iterator[Rows]:
    """Yield what lies in some rows of each section that is cut into blocks of one size."""
    sections = Cut.of(dim).sections
    edges = sections.edge(np.arange(sections.blocks + 1)).tolist()
    for first, stop in pairwise(edges):
        if max(first, rows[0]) < min(stop, rows[1]):
            yield max(first, rows[0]), min(stop, rows[1])


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


def sections(dim: Dim) -> Iterator[tuple[Rows, Dim]]:
    """Yield the rows of each outermost block, and the cut of them.

    Without a parent that is one block of all rows in each.
    """
    outermost = dim.cuts[0]
    for i in range(outermost.blocks):
        first, stop = outermost.range(i)
        yield (first, stop), part(dim, stop - first)


def part(dim: Dim, rows: int) -> Dim:
    """Return the cut within one block, of so many rows, of the outermost cut around it.

    Without a parent that is the block itself.
    """
    parent = dim.parent
    if parent is None:
        return replace(dim, n=rows, block=rows, index="")
    inner = None if parent.parent is None else part(parent, rows)
    return replace(dim, n=rows, parent=inner, index="")
