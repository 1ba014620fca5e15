"""The sandwich: FA1's Theorem 2 with its constants, c1 <= traffic / (N^2 d^2 / M) <= c2."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from iosim.reading.count import total_words
from iosim.schedule.registry import Family
from iosim.shape import AttentionShape
from iosim.tiles import choose_tiles
from iosim.units import format_count
from iosim.verify.registry import Scope, verification
from iosim.verify.result import Check, verdict

TileRule = Callable[[AttentionShape, int], Mapping[str, int]]


@dataclass(frozen=True)
class Law:
    """Constants for one schedule and tile rule: c1 <= traffic / (N^2 d^2 / M) <= c2.

    It holds where least(d) <= M <= N d. `upper` is None where nobody has proved a constant.
    """

    schedule: str
    tiles: str
    least: Callable[[int], int]
    lower: int
    upper: int | None
    source: str

    def rule(self, family: Family) -> TileRule:
        """Return the tile rule, from a shape and M in words."""
        if self.tiles == "printed tiles":
            assert family.paper is not None
            return family.paper
        if self.tiles == "B_c = 1":
            return narrow_tiles
        return lambda shape, words: choose_tiles(family, shape, words).sizes


def narrow_tiles(shape: AttentionShape, words: int) -> dict[str, int]:
    """Return B_c = 1 and the most rows B_r that `flash2` can hold beside it, for M words."""
    d = shape.head_dim
    return {"br": min((words - 2 * d) // (2 * d + 3), shape.n_q), "bc": 1}


def _four_rows(d: int) -> int:
    return 4 * d


def _eight_rows(d: int) -> int:
    return 8 * d + 4


LAWS = (
    Law("flash1", "printed tiles", _four_rows, 6, 40, "proved in Coq, proofs/"),
    Law("flash2", "B_c = 1", _eight_rows, 4, 30, "proved in Coq, proofs/"),
    Law("flash1", "best legal tile", _eight_rows, 4, None, "the fused bound"),
    Law("flash2", "best legal tile", _eight_rows, 4, 30, "the fused bound; no worse than B_c = 1"),
)


@verification
def sandwich(scope: Scope) -> Iterator[Check]:
    """FA1 Theorem 2 with its constants: c1 <= traffic / (N^2 d^2 / M) <= c2.

    The least and the largest ratio found, and where, against the constants proved.
    """
    for law in LAWS:
        if law.schedule in scope.schedules:
            scope.progress(f"sandwich: {law.schedule}, {law.tiles}")
            yield _row(law, scope.schedules[law.schedule], scope.thorough)


@dataclass(frozen=True, order=True)
class Point:
    """traffic / (N^2 d^2 / M) at one N, d and M, exactly; points are ordered by it."""

    ratio: Fraction
    n: int
    d: int
    words: int

    def __str__(self) -> str:
        """Return the ratio and where it was found."""
        return (
            f"{float(self.ratio):.2f} (N {format_count(self.n)}, d {self.d}, "
            f"M {format_count(self.words)})"
        )

    def numbers(self) -> dict[str, object]:
        """Return the point for a report."""
        return {"ratio": float(self.ratio), "n": self.n, "head_dim": self.d, "words": self.words}


def points(family: Family, law: Law, thorough: bool) -> Iterator[Point]:
    """Yield the ratio over a grid of N, d and every kind of M from least(d) to N d."""
    rule = law.rule(family)
    lengths = {8, 32, 100, 1000, 4096, 65536, 1_000_000}
    dims = {1, 8, 64, 128, 256}
    if thorough:
        lengths |= {9, 16, 33, 256, 1024, 100_003}
        dims |= {2, 3, 16, 32, 80}
    # The search for the best tile takes longer than a rule.
    steps = 12 if thorough else 2 if law.tiles == "best legal tile" else 4
    for n in sorted(lengths):
        for d in sorted(dims):
            for words in memories(law.least(d), n * d, d, steps):
                shape = AttentionShape(n, n, d)
                traffic = total_words(family.build(shape, **rule(shape, words)))
                yield Point(Fraction(traffic * words, (n * d) ** 2), n, d, words)


def memories(least: int, most: int, d: int, steps: int) -> list[int]:
    """Return sizes M from `least` to `most` words: powers, and where ceil(M / 4d) changes.

    >>> memories(40, 1000, d=8, steps=3)
    [40, 64, 65, 96, 97, 192, 193, 480, 481, 1000]
    """
    if least > most:
        return []
    found = {least, most}
    for step in range(steps + 1):
        power = round(least * (most / least) ** (step / steps))
        edge = -(-power // (4 * d)) * 4 * d
        found |= {edge, edge + 1, 4 * edge, 4 * edge + 1} if step < 1 else {edge, edge + 1}
    return sorted(words for words in found if least <= words <= most)


def _row(law: Law, family: Family, thorough: bool) -> Check:
    grid = list(points(family, law, thorough))
    low, high = min(grid), max(grid)
    fine = low.ratio >= law.lower and (law.upper is None or high.ratio <= law.upper)
    proved = f"at least {law.lower}" if law.upper is None else f"{law.lower} to {law.upper}"
    detail = f"{low} to {high}; proved: {proved}"
    if not fine:
        detail = f"found {low} to {high}, outside of what is proved: {proved}"
    numbers = {
        "schedule": law.schedule,
        "tiles": law.tiles,
        "cases": len(grid),
        "lower": low.numbers(),
        "upper": high.numbers(),
        "proved_lower": law.lower,
        "proved_upper": law.upper,
        "range": "8 d + 4 <= M <= N d" if law.least is _eight_rows else "4 d <= M <= N d",
        "source": law.source,
    }
    return Check("sandwich", f"{law.schedule}, {law.tiles}", verdict(fine), detail, numbers)
