"""Which blocks to look at where a mask links axes that are cut within cuts.

What fast memory holds at a node only depends on the sizes of the current blocks, those of all cuts
around it, and grows with each of them. So the most is held at one of the *largest* pairs of a query
block and a key block that meet: no other pair has blocks as large in each cut and a larger one in
some. Mostly the first corners show a pair of whole blocks, and nothing is larger. What they do not
show is looked for by counting: pairs of a kind are counted in parts of the mask, in one of which
there is one, then in parts of that part, and so on.

In the same way one block is looked for that meets no block of a loop inside, and one that meets
several, since the rules of `check` may be broken there only.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, product

import numpy as np

from iosim.reading.walk import Blocks, walk_body
from iosim.schedule.cuts import Cut, Numbers, levels
from iosim.schedule.nested import sums_in
from iosim.schedule.ranks import RankRelation, visited_parts
from iosim.schedule.relation import Part, Relation, Rows
from iosim.schedule.tree import Compute, Dim, For

Sizes = tuple[int, ...]
"""The rows of a block, of the block around it and so on, outermost first."""

PARTS = 64
"""Into how many parts a part is divided to find one pair in it."""


def nested_corners(nest: Sequence[For], choose: Blocks) -> dict[tuple[str, int], set[int]]:
    """Return blocks that the innermost loop of a nest needs to show all there is, beside `choose`.

    They are those of each cut, by the name and the block size of the Dim, counted within a block of
    its parent.
    """
    loop = nest[-1]
    relation = loop.relation
    assert relation is not None
    names = {relation.query, relation.key}
    for each in nest:
        if isinstance(each.relation, RankRelation) and each.dim.name in names:
            names |= {each.relation.query}
    linked = [each for each in nest if {each.dim.name, each.dim.index} & names]
    dims = {each.dim.name: each.dim for each in linked}
    query, key = dims[relation.query], dims[relation.key]
    shown, numbers = _shown(linked, query, key, choose)
    parts = _visited(linked, relation)
    found: dict[tuple[str, int], set[int]] = {}
    for rows in (
        *_larger(relation, query, key, parts, shown),
        *_numbers(relation, linked, query, key, parts, numbers),
    ):
        for dim, row in zip((query, key), rows, strict=True):
            first = 0
            for cut, level in zip(dim.cuts, levels(dim), strict=True):
                found.setdefault((cut.name, cut.block), set()).add((row - first) // cut.block)
                first = int(level.edge(level.done(np.array(row))))
    return found


def _shown(
    loops: Sequence[For], query: Dim, key: Dim, choose: Blocks
) -> tuple[set[tuple[Sizes, Sizes]], set[int]]:
    """Return the sizes of the pairs of blocks that a choice shows, and how many blocks one meets.

    That is 0, 1 or 2 for more.
    """
    numbers: set[int] = set()
    inner = Compute("", (), ())
    body: tuple[Compute | For, ...] = (inner,)
    for loop in reversed(loops):
        body = (replace(loop, body=body),)

    def noted(loop: For, blocks: Sequence[int]) -> Sequence[int]:
        if loop.body == (inner,):
            numbers.add(min(len(blocks), 2))
        return choose(loop, blocks)

    rows: tuple[list[int], list[int]] = ([], [])
    for _, position in walk_body(body, noted):
        for found, dim in zip(rows, (query, key), strict=True):
            found.append(position[dim.name][2][0])
    each = [_sizes(dim, np.array(at, int)) for dim, at in zip((query, key), rows, strict=True)]
    return set(zip(*each, strict=True)), numbers


def _sizes(dim: Dim, rows: Numbers) -> list[Sizes]:
    """Return the sizes of the blocks that some rows are in."""
    found = [
        level.edge(at + 1) - level.edge(at) for level in levels(dim) for at in [level.done(rows)]
    ]
    return list(zip(*(each.tolist() for each in found), strict=True))


def _visited(loops: Sequence[For], relation: Relation) -> tuple[Part, ...]:
    """Return the parts of the mask that loops go through: those in shards that ranks visit."""
    outermost = {each.dim.name: each.dim.cuts[0] for each in loops}
    query, key = outermost[relation.query], outermost[relation.key]
    for loop in loops:
        if isinstance(loop.relation, RankRelation):
            own = next((dim for dim in (query, key) if dim.index == loop.relation.query), None)
            if own is None:
                break
            _, parts = visited_parts(own, key if own is query else query, loop.relation)
            return parts if own is query else tuple((rows, own) for own, rows in parts)
    return (((0, query.n), (0, key.n)),)


def _larger(
    relation: Relation,
    query: Dim,
    key: Dim,
    parts: tuple[Part, ...],
    shown: set[tuple[Sizes, Sizes]],
) -> Iterator[tuple[int, int]]:
    """Yield the rows of a pair of blocks of each kind than which nothing larger is shown."""
    first = np.array([0])
    if (_sizes(query, first)[0], _sizes(key, first)[0]) in shown:
        return  # nothing is larger than the first blocks
    kinds = sorted(
        product(_kinds(query).items(), _kinds(key).items()),
        key=lambda kind: -sum((*kind[0][0], *kind[1][0])),
    )

    def count(parts: tuple[Part, ...]) -> list[int]:
        return [sums.pairs for sums in sums_in(relation, query, key, parts)]

    known = set(shown)
    parts = tuple(part for part, n in zip(parts, count(parts), strict=True) if n)
    for (rows, all_rows), (columns, all_columns) in kinds:
        if any(_as_large(a, rows) and _as_large(b, columns) for a, b in known):
            continue
        inside = tuple(
            (mine, theirs)
            for a, b in parts
            for mine in _inside(all_rows, a)
            for theirs in _inside(all_columns, b)
        )
        pair = _find(count, inside, query, key)
        if pair is not None:
            known.add((rows, columns))
            yield pair


def _as_large(sizes: Sizes, others: Sizes) -> bool:
    return all(a >= b for a, b in zip(sizes, others, strict=True))


def _kinds(dim: Dim) -> dict[Sizes, list[Rows]]:
    """Return the rows of blocks of the same sizes, those in one section together."""
    cut = levels(dim)[-1]
    sections = cut.sections
    start = sections.edge(np.arange(sections.blocks))
    stop = sections.edge(np.arange(sections.blocks) + 1)
    whole = start + (stop - start) // cut.block * cut.block
    found: dict[Sizes, list[Rows]] = {}
    for first, last in ((start, whole), (whole, stop)):
        there = first < last
        for sizes, *rows in zip(
            _sizes(dim, first[there]), first[there].tolist(), last[there].tolist(), strict=True
        ):
            found.setdefault(sizes, []).append((rows[0], rows[1]))
    return found


def _inside(all_rows: Sequence[Rows], part: Rows) -> Sequence[Rows]:
    """Return those of some rows, which rise, that lie in a part."""
    return all_rows[bisect_left(all_rows, (part[0], 0)) : bisect_left(all_rows, (part[1], 0))]


def _numbers(
    relation: Relation,
    loops: Sequence[For],
    query: Dim,
    key: Dim,
    parts: tuple[Part, ...],
    numbers: set[int],
) -> Iterator[tuple[int, int]]:
    """Yield the rows of a block that meets none, and of one that meets several, if none is shown.

    They are blocks of the other axis that meet so many in one block of the innermost loop's parent.
    """
    inner = loops[-1].dim
    around = inner.parent or inner.cut(inner.n)
    dims = (query, around) if inner.name == key.name else (around, key)
    cuts = [Cut.of(dim) for dim in dims]

    def blocks(cut: Cut, rows: Rows) -> int:
        first, stop = np.array(rows)
        return int(cut.begun(stop) - cut.done(first))

    def none(parts: tuple[Part, ...]) -> list[int]:
        met = sums_in(relation, *dims, parts)
        return [
            blocks(cuts[0], rows) * blocks(cuts[1], columns) - sums.pairs
            for (rows, columns), sums in zip(parts, met, strict=True)
        ]

    def several(parts: tuple[Part, ...]) -> list[int]:
        met, all_met = sums_in(relation, *dims, parts), sums_in(relation, query, key, parts)
        return [a.pairs - b.pairs for a, b in zip(all_met, met, strict=True)]

    # Inside a loop that is related itself there is always something to meet.
    outside = loops[-2].relation
    free = outside is None or isinstance(outside, RankRelation)
    for number, count in ((0, none), (2, several)):
        if number not in numbers and (number or free):
            pair = _find(count, parts, *dims)
            if pair is not None:
                yield pair


def _find(
    count: Callable[[tuple[Part, ...]], list[int]], parts: tuple[Part, ...], query: Dim, key: Dim
) -> tuple[int, int] | None:
    """Return the first rows of a query block and a key block in one of the parts that count."""
    cuts = Cut.of(query), Cut.of(key)
    while parts:
        found = next((part for part, n in zip(parts, count(parts), strict=True) if n), None)
        if found is None:
            return None
        parts = (found,)
        for axis, cut in enumerate(cuts):
            first, stop = np.array(found[axis])
            low, high = int(cut.done(first)), int(cut.begun(stop))
            if high - low > 1:
                marks = np.unique(np.linspace(low, high, min(high - low, PARTS) + 1).astype(int))
                edges = cut.edge(marks).tolist()
                pieces = pairwise(edges)
                parts = tuple((p, found[1]) if axis == 0 else (found[0], p) for p in pieces)
                break
        else:
            return found[0][0], found[1][0]
    return None
