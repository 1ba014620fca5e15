"""The data of the tile figure: traffic over B_r and B_c, what fits in M, and the rules' choices."""

from collections.abc import Mapping
from dataclasses import dataclass

from iosim.errors import IosimError
from iosim.plot.steps import log_steps
from iosim.plot.sweep import Case, Choice, Point, count_choice
from iosim.reading.count import total_words
from iosim.schedule.registry import Family
from iosim.shape import AttentionShape
from iosim.tiles import full_tile_peak

TILES = ("br", "bc")


@dataclass(frozen=True)
class Marked:
    """The tile that a rule chooses, counted."""

    rule: str
    point: Point


@dataclass(frozen=True)
class TileMap:
    """The traffic of one schedule over its tile sizes, in rows, for one shape and M words.

    `traffic_words[i][j]` is the traffic with tiles of `brs[i]` queries and `bcs[j]` keys, whether
    or not they fit. `edge` maps a B_c to the largest B_r beside which it fits in M (0: none does).
    """

    family: Family
    shape: AttentionShape
    words: int
    brs: tuple[int, ...]
    bcs: tuple[int, ...]
    traffic_words: tuple[tuple[int, ...], ...]
    edge: Mapping[int, int]
    marked: tuple[Marked, ...]


def map_tiles(family: Family, shape: AttentionShape, words: int) -> TileMap:
    """Return the traffic of a schedule over B_r and B_c, and the tiles that the rules choose.

    Raises IosimError for a schedule whose tile sizes are not B_r and B_c, or none of which fits.

    >>> from iosim.schedule import family
    >>> found = map_tiles(family("flash2"), AttentionShape(4096, 4096, 64), 51_200)
    >>> [(each.rule, each.point.sizes["br"], each.point.words) for each in found.marked]
    [('paper', 200, 11538432), ('largest', 131, 17305600), ('best', 389, 6295552)]
    """
    if family.tiles != TILES:
        raise IosimError(
            f"--schedule {family.name} has no tile sizes B_r and B_c to draw; give flash1 or flash2"
        )
    brs, bcs = log_steps(1, shape.n_q), log_steps(1, shape.n_k)
    return TileMap(
        family=family,
        shape=shape,
        words=words,
        brs=brs,
        bcs=bcs,
        traffic_words=tuple(
            tuple(total_words(family.build(shape, br=br, bc=bc)) for bc in bcs) for br in brs
        ),
        edge={
            bc: _largest_br(family, shape, words, bc)
            for bc in log_steps(1, shape.n_k, per_octave=12)
        },
        marked=_marked(family, shape, words),
    )


def _largest_br(family: Family, shape: AttentionShape, words: int, bc: int) -> int:
    """Return the largest B_r that fits beside B_c = bc, or 0."""
    low, high = 0, shape.n_q
    while low < high:
        middle = (low + high + 1) // 2
        if full_tile_peak(family.build(shape, br=middle, bc=bc)) <= words:
            low = middle
        else:
            high = middle - 1
    return low


def _marked(family: Family, shape: AttentionShape, words: int) -> tuple[Marked, ...]:
    rules = ("paper", "largest", "best") if family.paper else ("largest", "best")
    case = Case(shape, words)
    return tuple(Marked(rule, count_choice(Choice(family, rule), case)) for rule in rules)
