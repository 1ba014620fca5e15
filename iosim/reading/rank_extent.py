"""The part of an extent that differs from rank to rank, for schedules of several devices.

A rank runs one block of the loop over the ranks, and a loop whose relation links it to the ranks
visits some blocks of another axis. What a node touches along these axes (and along one that a mask
links to them) is worked out rank by rank; along all others it is the same on every rank.
"""

from collections.abc import Collection, Hashable
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from iosim.schedule.nested import sections, sums_in
from iosim.schedule.ranks import RankRelation, Visit, visited_parts
from iosim.schedule.relation import PairSums, Relation
from iosim.schedule.tree import Dim, For

PAIR_SYMBOLS = {
    (False, False): "X",
    (True, False): "X_q",
    (False, True): "X_k",
    (True, True): "X_qk",
}

TIMES = {"others": "p_o", "butterfly": "p_r"}
"""What a formula calls the number of visits of a rank, by the name of the relation."""


@dataclass(frozen=True)
class RankPart:
    """What a node touches on each rank along some axes, and what is left to multiply it with.

    `symbols` are factors, with their values, whose product is the sum of `values` over the ranks.
    `far` has the same words by the rank whose block is visited, where no mask is at work.
    """

    values: tuple[int, ...]
    far: tuple[int, ...]
    symbols: tuple[tuple[str, int], ...]
    axes: tuple[Dim, ...]
    loops: tuple[For, ...]


@dataclass(frozen=True)
class _Side:
    """What a node touches along one axis in each block of its outermost cut."""

    symbol: str  # none where it is one in each
    values: tuple[int, ...]
    rows: bool = False

    @property
    def uniform(self) -> bool:
        return len(set(self.values)) == 1


def linked_loop(loops: tuple[For, ...]) -> For | None:
    """Return the loop that is related to the ranks, if there is one."""
    return next((loop for loop in loops if isinstance(loop.relation, RankRelation)), None)


def rank_part(axes: Collection[Dim], loops: tuple[For, ...], rank: str) -> RankPart:
    """Return the part of an extent that depends on the rank; `rank` is the axis of its numbers."""
    own = next(loop.dim.name for loop in loops if loop.dim.index == rank)
    linked = linked_loop(loops)
    relation = linked.relation if linked is not None else None
    assert relation is None or isinstance(relation, RankRelation)
    other = "" if linked is None else linked.dim.name
    mask = _mask(loops, own)
    inner = {loop.dim.name: loop.dim for loop in loops}
    has = {dim.name for dim in axes}
    a = _side(inner[own], own in has)
    b = _side(inner[other], other in has) if linked is not None else None
    far: tuple[int, ...] = ()
    if mask is None:
        over = relation.over(b.values) if relation is not None and b is not None else None
        values = _product(a, over)
        if relation is not None and b is not None:
            far = _product(b, relation.over(a.values))
        symbols = _symbols(a, b, relation, inner[own].cuts[0].count, sum(values))
        taken = {own, other}
    else:
        query, key = inner[mask.query], inner[mask.key]
        chosen = (mask.query in has, mask.key in has)
        suffix = [d.count for d in (query, key) if d.index]
        linked_too = relation is not None and other in (mask.query, mask.key)
        assert isinstance(mask, Hashable)
        sums = _masked_visits(mask, relation if linked_too else None, query, key, own)
        values = tuple(each.select(*chosen) for each in sums)
        if relation is not None and linked_too:
            suffix = [relation.name]
        elif relation is not None and b is not None:
            over = relation.over(b.values)
            values = _product(_Side("", values), over)
            if over != [1] * len(values):
                suffix.append(relation.name)
        symbols = [("_".join([PAIR_SYMBOLS[chosen], *suffix]), sum(values))]
        taken = {own, other, mask.query, mask.key}
    return RankPart(
        values,
        far,
        tuple(symbols),
        tuple(dim for dim in axes if dim.name not in taken and dim.name != rank),
        tuple(loop for loop in loops if loop.dim.name not in taken),
    )


def _mask(loops: tuple[For, ...], own: str) -> Relation | None:
    """Return the mask that links the axis of the ranks to another, if one does."""
    for loop in loops:
        mask = loop.relation
        if (
            mask is not None
            and not isinstance(mask, RankRelation)
            and own in (mask.query, mask.key)
        ):
            return mask
    return None


@lru_cache(maxsize=64)
def _side(inner: Dim, has: bool) -> _Side:
    outer = inner.cuts[0]
    if has:
        return _Side(outer.symbol, tuple(outer.rows(i) for i in range(outer.blocks)), rows=True)
    if inner.parent is None:
        return _Side("", (1,) * outer.blocks)
    return _Side(inner.count, tuple(part.blocks for _, part in sections(inner)))


def _product(a: _Side, over: list[int] | None) -> tuple[int, ...]:
    return a.values if over is None else tuple(x * y for x, y in zip(a.values, over, strict=True))


def _symbols(
    a: _Side, b: _Side | None, relation: RankRelation | None, count: str, total: int
) -> list[tuple[str, int]]:
    """Return factors whose product is the total, as readable as the raggedness of shards allows."""
    ranks = len(a.values)
    times = []
    if relation is not None and relation.name in TIMES:
        times = [(TIMES[relation.name], len(relation.visits(ranks, 0)))]
    full = [side for side in (a, b) if side is not None and side.symbol]
    if not full:
        return [*times, (count, ranks)]
    if len(full) == 1:
        return [*times, (full[0].symbol, sum(full[0].values))]
    for one, rest in (full, full[::-1]):
        if one.uniform:
            return [*times, (f"{one.symbol}_p", one.values[0]), (rest.symbol, sum(rest.values))]
    assert relation is not None
    return [(f"{PAIR_SYMBOLS[full[0].rows, full[1].rows]}_{relation.name}", total)]


@lru_cache(maxsize=256)  # the nodes of a schedule ask for a few sums over and over
def _masked_visits(
    mask: Relation, relation: RankRelation | None, query: Dim, key: Dim, own: str
) -> tuple[PairSums, ...]:
    """Return for each rank the sums over the visited pairs in the blocks that it visits.

    Without a relation it visits all of the axis that the mask links to its own.
    """
    if isinstance(relation, Visit):
        each = _visit_by_visit(mask, relation.of, query, key, own)
        return tuple(visits[relation.number] for visits in each)
    mine, theirs = (query, key) if own == mask.query else (key, query)
    ranks, parts = visited_parts(mine.cuts[0], theirs.cuts[0], relation)
    if own != mask.query:
        parts = tuple((there, rows) for rows, there in parts)
    found = [PairSums()] * mine.cuts[0].blocks
    for rank, sums in zip(ranks, sums_in(mask, query, key, parts), strict=True):
        found[rank] += sums
    return tuple(found)


@lru_cache(maxsize=16)  # one visit after the other is asked for
def _visit_by_visit(
    mask: Relation, relation: RankRelation, query: Dim, key: Dim, own: str
) -> tuple[tuple[PairSums, ...], ...]:
    """Return for each rank the sums over the visited pairs in each block that it visits."""
    mine, theirs = (cut.cuts[0] for cut in ((query, key) if own == mask.query else (key, query)))
    visits = [relation.visits(theirs.blocks, rank) for rank in range(mine.blocks)]
    pairs = ((mine.range(r), theirs.range(s)) for r, blocks in enumerate(visits) for s in blocks)
    parts = tuple(pair if own == mask.query else pair[::-1] for pair in pairs)
    each = iter(sums_in(mask, query, key, parts))
    return tuple(tuple(islice(each, len(blocks))) for blocks in visits)
