"""How often a node of a schedule runs and how many words it touches, as factors of a product.

The one rule behind `count` and `formula`. Under a nest of loops, a node that touches words along a
set of axes touches, in all iterations together, the product of

* n, for an axis it has (looped over or not),
* T, the number of blocks, for an axis looped over that it does not have,
* one of four sums over the visited block pairs, for two axes that a relation links.

On several devices the factors along the axes that the ranks divide come from
`iosim.reading.rank_extent`.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from math import prod

from iosim.reading.rank_extent import PAIR_SYMBOLS, linked_loop, rank_part
from iosim.schedule.nested import pair_sums
from iosim.schedule.ranks import Ranks
from iosim.schedule.tree import Dim, For, Move, Tensor


@dataclass(frozen=True)
class Factor:
    """One factor: the symbol that a formula shows for it, and its value."""

    symbol: str
    value: int


def factors(axes: Collection[Dim], loops: tuple[For, ...]) -> tuple[Factor, ...]:
    """Return the factors whose product is the words touched by a node under these loops.

    Factors of 1 along an axis of one row are left out.
    """
    linked = linked_loop(loops)
    if linked is not None and linked.relation is not None:
        part = rank_part(axes, loops, linked.relation.query)
        return (*(Factor(*each) for each in part.symbols), *factors(part.axes, part.loops))
    around = {loop.dim.name: loop for loop in loops}  # the innermost cut of each axis
    covered = {loop.dim.index for loop in loops} | set(around)
    names = {dim.name for dim in axes}
    found: list[Factor] = []
    done: set[str] = set()
    for loop in around.values():
        relation = loop.relation
        if relation is None or {relation.query, relation.key} <= done:
            continue
        pair = (relation.query, relation.key)
        query, key = (around[name].dim for name in pair)
        has = (pair[0] in names, pair[1] in names)
        symbol = "_".join([PAIR_SYMBOLS[has], *(d.count for d in (query, key) if d.index)])
        found.append(Factor(symbol, pair_sums(relation, query, key).select(*has)))
        done |= set(pair)
    for name, loop in around.items():
        if name not in done and loop.dim.n > 1:
            dim = loop.dim
            found.append(
                Factor(dim.symbol, dim.n) if name in names else Factor(dim.count, dim.blocks)
            )
    found.extend(Factor(d.symbol, d.n) for d in axes if d.name not in covered and d.n > 1)
    return tuple(found)


def by_rank(axes: Collection[Dim], loops: tuple[For, ...], ranks: Ranks) -> list[int]:
    """Return the words touched by a node on each rank; their sum is the product of `factors`."""
    part = rank_part(axes, loops, ranks.dim.index)
    rest = prod(factor.value for factor in factors(part.axes, part.loops))
    return [value * rest for value in part.values]


def at_other_end(move: Move, loops: tuple[For, ...], ranks: Ranks) -> list[int]:
    """Return the words of an exchange by the rank at its other end."""
    part = rank_part(move.tensor.axes, loops, ranks.dim.index)
    rest = prod(factor.value for factor in factors(part.axes, part.loops))
    if move.kind == "shift":  # rank r passes on what rank r + 1 takes
        return [value * rest for value in (*part.values[1:], part.values[0])]
    return [value * rest for value in part.far]


_PAIR_LEGEND = {
    "X_qk": "query rows x key rows, summed over the visited pairs of tiles",
    "X_q": "query rows, summed over the visited pairs of tiles",
    "X_k": "key rows, summed over the visited pairs of tiles",
    "X": "visited pairs of a query tile and a key tile",
}


RANK_SUFFIXES = {
    "own": "of a rank with its own shard",
    "others": "of a rank with the other shards",
    "butterfly": "of a rank with its partners",
}


def pair_meaning(symbol: str) -> str:
    """Return what a sum over visited pairs stands for; nothing for another symbol.

    The count of an axis whose blocks have numbers stands behind it: X_q_s sums over splits.

    >>> pair_meaning("X_q_s")
    'query rows, summed over the visited pairs of tiles, s of one axis'
    """
    for base, meaning in _PAIR_LEGEND.items():
        if symbol == base:
            return meaning
        if symbol.startswith(f"{base}_"):
            suffix = symbol.removeprefix(f"{base}_")
            if suffix in RANK_SUFFIXES:
                return f"{meaning} {RANK_SUFFIXES[suffix]}"
            return f"{meaning}, {' and '.join(suffix.split('_'))} of one axis"
    return ""


def union(tensors: Iterable[Tensor]) -> tuple[Dim, ...]:
    """Return the axes of several tensors, each once, in the order met."""
    axes: dict[str, Dim] = {}
    for tensor in tensors:
        for dim in tensor.axes:
            axes.setdefault(dim.name, dim)
    return tuple(axes.values())
