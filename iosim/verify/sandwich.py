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

TileRule = Callable[[Family, AttentionShape, int], Mapping[str, int]]


def paper_tiles(family: Family, shape: AttentionShape, words: int) -> Mapping[str, int]:
    """Return the tile of the rule that a paper prints, for M words."""
    assert family.paper is not None
    return family.paper(shape, words)


def narrow_keys(family: Family, shape: AttentionShape, words: int) -> Mapping[str, int]:
    """Return B_c = 1 and the most rows B_r that `flash2` holds beside it in M words."""
    d = shape.head_dim
    return {"br": min((words - 2 * d) // (2 * d + 3), shape.n_q), "bc": 1}


def narrow_queries(family: Family, shape: AttentionShape, words: int) -> Mapping[str, int]:
    """Return B_r = 1 and the most rows B_c that `flash1` holds beside it in M words."""
    d = shape.head_dim
    return {"br": 1, "bc": min((words - 2 * d - 2) // (2 * d + 1), shape.n_k)}


def best_tiles(family: Family, shape: AttentionShape, words: int) -> Mapping[str, int]:
    """Return the legal tile of least traffic for M words."""
    return choose_tiles(family, shape, words).sizes


@dataclass(frozen=True)
class Law:
    """Constants for one schedule and tile rule: lower <= traffic / (N^2 d^2 / M) <= upper.

    They hold where a d + b <= M <= N d, with (a, b) = `least`.
    """

    schedule: str
    tiles: str
    rule: TileRule
    least: tuple[int, int]
    lower: int
    upper: int
    source: str

    def range(self) -> str:
        """Return the range of M as a formula."""
        a, b = self.least
        return f"{a} d{f' + {b}' if b else ''} <= M <= N d"


# The theorems are in proofs/coq/TrafficBounds.v, the fused bound is in proofs/coq/FusedBound.v.
BEST = "fused_bound_constant_4 below; no worse than {}"
LAWS = (
    Law("flash1", "printed tiles", paper_tiles, (4, 0), 6, 40, "flash1_printed_sandwich"),
    Law("flash1", "B_r = 1", narrow_queries, (8, 6), 6, 66, "flash1_best_sandwich"),
    Law("flash1", "best legal tile", best_tiles, (8, 6), 4, 66, BEST.format("B_r = 1")),
    Law("flash2", "mirrored rule", paper_tiles, (4, 0), 4, 13, "flash2_printed_sandwich"),
    Law("flash2", "B_c = 1", narrow_keys, (8, 4), 4, 30, "flash2_best_sandwich"),
    Law("flash2", "best legal tile", best_tiles, (8, 4), 4, 30, BEST.format("B_c = 1")),
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
    lengths = {8, 32, 100, 1000, 4096, 65536, 1_000_000}
    dims = {1, 8, 64, 128, 256}
    if thorough:
        lengths |= {9, 16, 33, 256, 1024, 100_003}
        dims |= {2, 3, 16, 32, 80}
    # The search for the best tile takes longer than a rule.
    steps = 12 if thorough else 2 if law.rule is best_tiles else 4
    factor, constant = law.least
    for n in sorted(lengths):
        for d in sorted(dims):
            for words in memories(factor * d + constant, n * d, d, steps):
                shape = AttentionShape(n, n, d)
                traffic = total_words(family.build(shape, **law.rule(family, shape, words)))
                yield Point(Fraction(traffic * words, (n * d) ** 2), n, d, words)


def memories(least: int, most: int, d: int, steps: int) -> list[int]:
    """Return sizes M from `least` to `most` words in ratio, and where ceil(M / 4d) changes there.

    >>> memories(40, 1000, d=8, steps=3)
    [40, 64, 65, 117, 128, 129, 342, 352, 353, 1000]
    """
    if least > most:
        return []
    found = {least, most}
    for step in range(steps + 1):
        power = min(round(least * (most / least) ** (step / steps)), most)
        edge = -(-power // (4 * d)) * 4 * d
        found |= {power, edge, edge + 1}
    return sorted(words for words in found if least <= words <= most)


def _row(law: Law, family: Family, thorough: bool) -> Check:
    grid = list(points(family, law, thorough))
    low, high = min(grid), max(grid)
    fine = law.lower <= low.ratio and high.ratio <= law.upper
    proved = f"{law.lower} to {law.upper}"
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
        "range": law.range(),
        "source": law.source,
    }
    return Check("sandwich", f"{law.schedule}, {law.tiles}", verdict(fine), detail, numbers)
