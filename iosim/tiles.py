"""Tile sizes: by a paper's rule, the largest square that fits, or the least traffic that fits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from math import isqrt

from iosim.errors import IosimError
from iosim.reading.count import total_words
from iosim.reading.residency import FastMemory
from iosim.reading.walk import kept_axes, walk_body
from iosim.schedule.registry import Family, Given
from iosim.schedule.tree import For, Move, Node, Schedule, nodes
from iosim.shape import AttentionShape
from iosim.units import unknown

RULES = ("paper", "largest", "best")


@dataclass(frozen=True)
class Tiles:
    """Tile sizes in rows and settings, by name, and the rule they came from ('given' for none)."""

    sizes: Given
    rule: str


def choose_tiles(
    family: Family,
    shape: AttentionShape,
    words: int | None,
    rule: str = "best",
    given: Given | None = None,
) -> Tiles:
    """Return the tile sizes of a schedule for M words; `given` sizes stay as they are.

    'paper' is the rule of the schedule's source, whether or not it fits. 'largest' is the largest
    square tile that fits, 'best' the fitting tile of least traffic. Without a mask that is the
    least there is. Under a mask a larger tile may reach over its edges and move more, and 'best' is
    the least found among the largest fitting tiles, their evenly cut versions and, beside a block
    mask, those that are cut as it is.
    Raises IosimError where nothing fits, where there is no such rule, or where a size is missing
    and M is unknown.

    >>> from iosim.schedule import family
    >>> choose_tiles(family("flash2"), AttentionShape(65536, 65536, 64), 65536).sizes
    {'br': 499, 'bc': 1}
    """
    if rule not in RULES:
        raise IosimError(unknown("--tiles", rule, RULES))
    known = (*family.tiles, *family.settings)
    fixed = {name: size for name, size in (given or {}).items() if name in known}
    free = tuple(name for name in family.tiles if name not in fixed)
    if not free:
        sizes = {name: fixed[name] for name in known if name in fixed}
        return Tiles(sizes, "given" if fixed else "none")
    if words is None:
        missing = " and ".join(f"--{name}" for name in free)
        raise IosimError(
            f"{family.name} has no value for {missing}; give it, or give --sram or --device"
        )
    search = _Search(family, shape, words, fixed)
    found = {"paper": search.paper, "largest": search.largest, "best": search.best}[rule](free)
    return Tiles({name: found[name] for name in known if name in found}, rule)


class _Search:
    """The tile sizes of one schedule, shape and memory; M and all sums in words."""

    def __init__(self, family: Family, shape: AttentionShape, words: int, fixed: Given) -> None:
        self.family = family
        self.shape = shape
        self.words = words
        self.fixed = dict(fixed)
        self.rows = {name: self._rows(name) for name in family.tiles if name not in fixed}

    def build(self, sizes: Mapping[str, int]) -> Schedule:
        return self.family.build(self.shape, **self.fixed, **sizes)

    def fits(self, sizes: Mapping[str, int]) -> bool:
        return full_tile_peak(self.build(sizes)) <= self.words

    def paper(self, free: tuple[str, ...]) -> dict[str, int]:
        if self.family.paper is None:
            known = ", ".join(rule for rule in RULES if rule != "paper")
            raise IosimError(
                f"--tiles paper is not a rule that {self.family.name} has; give one of {known}"
            )
        rule = self.family.paper(self.shape, self.words)
        return self.fixed | {name: rule[name] for name in free}

    def largest(self, free: tuple[str, ...]) -> dict[str, int]:
        side = self._largest(free, {}, max(self.rows[name] for name in free))
        return self.fixed | dict.fromkeys(free, side)

    def best(self, free: tuple[str, ...]) -> dict[str, int]:
        if len(free) > 2:
            raise IosimError(
                f"--tiles best searches at most two sizes, but {self.family.name} lacks "
                f"{', '.join(free)}; give all but two of them"
            )
        best = self._best_pair(*free) if len(free) == 2 else self._best_single(free[0])
        return self.fixed | best

    def _words(self, sizes: Mapping[str, int]) -> int:
        return total_words(self.build(sizes))

    def _best_single(self, name: str) -> dict[str, int]:
        most = self._largest((name,), {}, self.rows[name])
        return min(self._even(name, most, {}), key=self._words)

    def _best_pair(self, first: str, second: str) -> dict[str, int]:
        """Branch and bound over the size of the second tile, the first being the largest that fits.

        Traffic falls as either tile grows, so over the sizes lo .. hi of the second tile it is at
        least that of (the largest first tile beside lo, hi), which is larger than any that fits.
        """
        largest: dict[int, int] = {}
        best: tuple[int, dict[str, int]] | None = None

        def try_size(size: int) -> None:
            nonlocal best
            if size in largest:
                return
            reach = min((r for s, r in largest.items() if s < size), default=self.rows[first])
            largest[size] = self._largest((first,), {second: size}, reach)
            for sizes in self._even(first, largest[size], {second: size}):
                words = self._words(sizes)
                if best is None or words < best[0]:
                    best = words, sizes

        most = self._largest((second,), {first: 1}, self.rows[second])
        for size in self._aligned(second, most):
            try_size(size)
        intervals = [(0, 1, most)]
        while intervals:
            low_words, low, high = heappop(intervals)
            if best is not None and low_words >= best[0]:
                break
            try_size(low)
            try_size(high)
            middle = isqrt(low * high)
            for lo, hi in ((low, middle), (middle + 1, high)):
                if hi - lo > 1 and high - low > 1:
                    try_size(lo)
                    bound = self._words({first: largest[lo], second: hi})
                    heappush(intervals, (bound, lo, hi))
                elif lo <= hi:
                    try_size(lo)
                    try_size(hi)
        assert best is not None
        return best[1]

    def _even(self, name: str, size: int, others: Mapping[str, int]) -> list[dict[str, int]]:
        """Return the tile of that size and smaller ones that cut evenly, or as the mask is cut."""
        rows = self.rows[name]
        even = -(-rows // -(-rows // size))
        chosen = dict.fromkeys((size, even, *self._aligned(name, size)))
        return [{name: each, **others} for each in chosen]

    def _aligned(self, name: str, most: int) -> list[int]:
        """Return sizes up to `most` that cut no block of the mask in two, or blocks into tiles."""
        if self.shape.mask is None or name not in ("br", "bc"):
            return []
        grain = self.shape.mask.grain[name == "bc"]
        if grain == 1:
            return []
        if grain > most:
            return [max(size for size in range(1, most + 1) if grain % size == 0)]
        doubled = [grain << k for k in range((most // grain).bit_length())]
        return [*doubled, most - most % grain]

    def _rows(self, name: str) -> int:
        """Return the rows of the longest axis that a tile size cuts: a larger size is no other."""
        ones = {tile: 1 for tile in self.family.tiles if tile not in self.fixed}
        one, two = (
            [
                node.dim
                for node, _ in nodes(self.build({**ones, name: size}).body)
                if isinstance(node, For)
            ]
            for size in (1, 2)
        )
        if len(one) != len(two):  # a builder may do something else for single rows
            return max(self.shape.n_q, self.shape.n_k)
        cut = (a.n for a, b in zip(one, two, strict=True) if a.block != b.block)
        return max(cut, default=1)

    def _largest(self, names: tuple[str, ...], others: Mapping[str, int], limit: int) -> int:
        """Return the largest common size of the named tiles that fits, at most `limit` rows."""

        def peak(size: int) -> int:
            sizes = {**dict.fromkeys(names, size), **others}
            return full_tile_peak(self.build(sizes))

        low, at_low = 1, peak(1)
        if at_low > self.words:
            raise self._nothing_fits(at_low)
        high = limit + 1  # the least size known not to fit, or out of range
        slope = max(peak(min(2, limit)) - at_low, 1)
        while high - low > 1:
            # The peak is linear in one size over long stretches, so a secant lands close.
            guess = min(max(low + (self.words - at_low) // slope, low + 1), high - 1)
            at_guess = peak(guess)
            if at_guess <= self.words:
                slope = max((at_guess - at_low) // (guess - low), 1)
                low, at_low = guess, at_guess
                if low + 1 < high and peak(low + 1) > self.words:
                    return low
            else:
                high = guess
                slope = max(-(-(at_guess - at_low) // (guess - low)), 1)
        return low

    def _nothing_fits(self, needed: int) -> IosimError:
        given = " and ".join(f"--{name} {size}" for name, size in self.fixed.items())
        return IosimError(
            f"no tile of {self.family.name} fits{f' with {given} given' if given else ''}: the "
            f"smallest needs {needed} words, but M has {self.words} "
            f"word{'' if self.words == 1 else 's'}; give --sram {needed}w or more"
        )


def full_tile_peak(schedule: Schedule) -> int:
    """Return the words that fast memory holds at most when every tile is a full one.

    One iteration of each loop shows it, or all where tiles are kept from one to the next. It equals
    `check`'s peak but where a mask lets only ragged tiles meet or some tiles not at all.
    """
    kept = kept_axes(schedule)

    def choose(loop: For, blocks: Sequence[int]) -> Sequence[int]:
        if loop.dim.name in kept or loop.dim.index in kept:
            return blocks if loop.dim.parent else range(loop.dim.blocks)
        return range(1)

    memory = FastMemory()
    for node, position in walk_body(_unrelated(schedule.body), choose):
        if isinstance(node, Move):
            memory.move(node, position)
    return memory.peak_words


def _unrelated(body: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return the tree with loops that visit all blocks."""
    if all(node.relation is None for node, _ in nodes(body) if isinstance(node, For)):
        return body
    return tuple(
        replace(node, body=_unrelated(node.body), relation=None) if isinstance(node, For) else node
        for node in body
    )
