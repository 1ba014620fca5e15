"""Exponents: traffic ~ N^a d^b M^c, fitted by least squares in logarithms."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from iosim.reading.count import total_words
from iosim.schedule.registry import Family
from iosim.shape import AttentionShape
from iosim.tiles import choose_tiles
from iosim.verify.registry import Scope, verification
from iosim.verify.result import Check, verdict

TOLERANCE = 0.02
"""How far a fitted exponent may lie from the law's: what the claim asks for.

On the range of the claim a term of relative size e moves a local exponent by about e. The terms
are M / 2Nd <= 1/128 (Q and O beside K and V), 2d / M <= 1/64 (the memory that K_j and V_j take)
and, for the best legal tile, 3 / 2d (scores and statistics), 1/43 at d = 64, 1/171 at d = 256.
"""

FLASH, STANDARD = (2, 2, -1), (2, 0, 0)


@dataclass(frozen=True)
class Grid:
    """Lengths, head dimensions, and the least and the most M (words) for each, with its text."""

    lengths: tuple[int, ...]
    dims: tuple[int, ...]
    memory: Callable[[int, int], tuple[float, float]]
    memory_text: str
    steps: int = 4

    def points(self) -> Iterator[tuple[int, int, int]]:
        """Yield N, d and M in words, M in equal ratios."""
        for n in self.lengths:
            for d in self.dims:
                for words in np.geomspace(*self.memory(n, d), self.steps):
                    yield n, d, round(words)

    def __str__(self) -> str:
        """Return the range in a few words."""
        return f"N {_short(self.lengths)}, d {self.dims[0]}..{self.dims[-1]}, {self.memory_text}"


# The range on which the law is to be seen.
LAW = Grid(
    (65536, 262144, 1048576),
    (64, 96, 128, 256),
    lambda n, d: (128 * d, n * d / 64),
    "128 d <= M <= N d / 64",
)

# Memories of real devices, where the range above is empty for shorter sequences.
DRIFT = tuple(
    Grid(lengths, (64, 128), lambda n, d: (8192, 32768), "8k <= M <= 32k words")
    for lengths in ((512, 1024, 2048), (4096, 8192, 16384), (65536, 131072, 262144))
)


@verification
def exponents(scope: Scope) -> Iterator[Check]:
    """Traffic as a power of N, d and M, by least squares in logarithms, exponents within 0.02.

    The best legal tile fits every M; the mirrored paper rule is the cleaner law, but overflows M
    below about 8 d^2.
    """
    for name, rule, expected in (
        ("flash2", "best", FLASH),
        ("flash2", "paper", FLASH),
        ("standard", "", STANDARD),
    ):
        if name in scope.schedules:
            scope.progress(f"exponents: {name}")
            yield _law_row(scope.schedules[name], rule, expected)
    for grid in DRIFT:
        for name, rule, expected in (("flash2", "best", FLASH), ("standard", "", STANDARD)):
            if name in scope.schedules:
                scope.progress(f"exponents: {name} at N {_short(grid.lengths)}")
                yield _drift_row(scope.schedules[name], rule, grid, expected)


@dataclass(frozen=True)
class Fit:
    """The exponents of N, d and M, and the largest relative error of the fitted power law."""

    exponents: tuple[float, float, float]
    residual: float

    def distance(self, expected: Sequence[int]) -> float:
        """Return the largest distance of an exponent from the expected one."""
        return max(abs(a - b) for a, b in zip(self.exponents, expected, strict=True))

    def __str__(self) -> str:
        """Return the law with three decimals."""
        n, d, m = (f"{x + 0.0:.3f}" for x in np.round(self.exponents, 3))
        return f"N^{n} d^{d} M^{m}"


def fit(family: Family, rule: str, grid: Grid) -> Fit:
    """Return the power law that fits a schedule's traffic over a grid best, in logarithms.

    >>> from iosim.schedule import family
    >>> fit(family("standard"), "", LAW).distance(STANDARD) < 0.01
    True
    """
    rows = []
    for n, d, words in grid.points():
        shape = AttentionShape(n, n, d)
        tiles = choose_tiles(family, shape, words, rule).sizes if family.tiles else {}
        rows.append((1, n, d, words, total_words(family.build(shape, **tiles))))
    table = np.log(np.array(rows, dtype=float))
    table[:, 0] = 1
    solution, *_ = np.linalg.lstsq(table[:, :4], table[:, 4], rcond=None)
    residual = np.abs(np.expm1(table[:, :4] @ solution - table[:, 4])).max()
    of_n, of_d, of_m = (float(x) for x in solution[1:])
    return Fit((of_n, of_d, of_m), float(residual))


def _law_row(family: Family, rule: str, expected: tuple[int, int, int]) -> Check:
    found = fit(family, rule, LAW)
    what = family.name + {"best": ", best legal tile", "paper": ", mirrored paper rule"}.get(
        rule, ""
    )
    fine = found.distance(expected) <= TOLERANCE
    law = "N^{} d^{} M^{}".format(*expected)
    detail = f"{found}, within {found.distance(expected):.3f} of {law}, for {LAW}"
    if not fine:
        detail = f"{found} for {LAW}: further than {TOLERANCE} from {law}"
    return Check(
        "exponents", what, verdict(fine), detail, _numbers(family, rule, LAW, expected, found)
    )


def _drift_row(family: Family, rule: str, grid: Grid, expected: tuple[int, int, int]) -> Check:
    """Return a row that is there to be read: no law is claimed on its range."""
    found = fit(family, rule, grid)
    return Check(
        "exponents",
        f"{family.name}, N {_short(grid.lengths)}",
        "finding",
        f"drift: {found} for {grid.memory_text}; lower-order terms show",
        _numbers(family, rule, grid, expected, found),
    )


def _numbers(
    family: Family, rule: str, grid: Grid, expected: tuple[int, int, int], found: Fit
) -> dict[str, object]:
    return {
        "schedule": family.name,
        "tile_rule": rule or None,
        "range": str(grid),
        "exponents": dict(zip("NdM", found.exponents, strict=True)),
        "expected": dict(zip("NdM", expected, strict=True)),
        "distance": found.distance(expected),
        "largest_relative_error": found.residual,
    }


def _short(lengths: Sequence[int]) -> str:
    def one(n: int) -> str:
        return f"{n // 1024}k" if n % 1024 == 0 else str(n)

    return f"{one(lengths[0])}..{one(lengths[-1])}"
