"""The part of an extent that differs from rank to rank, for schedules of several devices.

A rank runs one block of the loop over the ranks, and a loop whose relation links it to the ranks
visits some blocks of another axis. What a node touches along these axes (and along one that a mask
links to them) is worked out rank by rank; along all others it is the same on every rank.
"""

from collections.abc import Collection, Hashable
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, islice

from iosim.schedule.layouts import CausalPlaces
from iosim.schedule.nested import pair_sums, sections
from iosim.schedule.ranks import Others, RankRelation
from iosim.schedule.relation import Causal, PairSums, Relation, Rows, ranges_of
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
        facing = mask.key if own == mask.query else mask.query
        chosen = (mask.query in has, mask.key in has)
        suffix = [d.count for d in (query, key) if d.index]
        if relation is not None and other in (mask.query, mask.key):
            assert isinstance(mask, Hashable)
            sums = _masked_visits(mask, relation, query, key, own)
            values = tuple(each.select(*chosen) for each in sums)
            suffix = [relation.name]
        else:
            sums = [
                pair_sums(
                    _within(mask, own, rows, (0, inner[facing].n)),
                    *_pair(mask, own, part, inner[facing]),
                )
                for rows, part in sections(inner[own])
            ]
            one = tuple(each.select(*chosen) for each in sums)
            over = relation.over(b.values) if relation is not None and b is not None else None
            values = _product(_Side("", one), over)
            if relation is not None and over != [1] * len(one):
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


def _within(mask: Relation, own: str, mine: Rows, theirs: Rows) -> Relation:
    return mask.within(mine, theirs) if own == mask.query else mask.within(theirs, mine)


def _pair(mask: Relation, own: str, mine: Dim, theirs: Dim) -> tuple[Dim, Dim]:
    return (mine, theirs) if own == mask.query else (theirs, mine)


@lru_cache(maxsize=256)  # the nodes of a schedule ask for a few sums over and over
def _masked_visits(
    mask: Relation, relation: RankRelation, query: Dim, key: Dim, own: str
) -> list[PairSums]:
    """Return for each rank the sums over the visited pairs in the blocks that it visits."""
    mine, theirs = _pair(mask, own, query, key)
    blocks = list(sections(theirs))
    if isinstance(mask, CausalPlaces) and own == mask.query:
        runs = [ranges_of(sorted(relation.visits(len(blocks), r))) for r in range(len(blocks))]
        parts = (
            (rows, (blocks[run[0]][0][0], blocks[run[-1]][0][1]))
            for (rows, _), visited in zip(sections(mine), runs, strict=True)
            for run in visited
        )
        each = iter(mask.sums_in(query, key, parts))
        return [sum(islice(each, len(visited)), PairSums()) for visited in runs]

    def sums(rows: Rows, part: Dim, block: int) -> PairSums:
        there, piece = blocks[block]
        return pair_sums(_within(mask, own, rows, there), *_pair(mask, own, part, piece))

    rows_before = [0, *accumulate(piece.n for _, piece in blocks)]
    tiles_before = [0, *accumulate(piece.blocks for _, piece in blocks)]
    found = []
    for rank, (rows, part) in enumerate(sections(mine)):
        total, visits = PairSums(), relation.visits(len(blocks), rank)
        if isinstance(mask, Causal) and own == mask.query and isinstance(relation, Others):
            # Most blocks are seen by all queries of the rank or by none of them.
            every, some = _causal(mask.within(rows, (0, theirs.n)), part, theirs)
            mine_too = rank < every
            total += _all_pairs(
                part,
                rows_before[every] - mine_too * blocks[rank][1].n,
                tiles_before[every] - mine_too * blocks[rank][1].blocks,
            )
            visits = [block for block in range(every, some) if block != rank]
        for block in visits:
            total += sums(rows, part, block)
        found.append(total)
    return found


def _all_pairs(query: Dim, rows: int, tiles: int) -> PairSums:
    """Return the sums where all blocks of the queries meet so many tiles of so many key rows."""
    return PairSums(query.blocks * tiles, query.n * tiles, query.blocks * rows, query.n * rows)


def _causal(mask: Causal, query: Dim, key: Dim) -> tuple[int, int]:
    """Return how many blocks of the outermost cut of the keys all queries see, and some see."""
    whole, blocks = Dim(query.name, query.n), key.cuts[0]
    some = len(mask.key_range(whole, blocks, 0))
    rows = len(mask.key_range(Dim(query.name, 1), Dim(key.name, key.n, 1), 0))
    return (blocks.blocks if rows == key.n else rows // blocks.block), some
