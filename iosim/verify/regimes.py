"""Regimes: below M = d^2 the matmuls of standard attention cost more than N^2, and flash loses."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from iosim.bounds import Bound, lower_bounds, regime
from iosim.reading.check import check
from iosim.reading.count import total_words
from iosim.schedule.registry import Family
from iosim.shape import AttentionShape
from iosim.tiles import choose_tiles
from iosim.units import format_count
from iosim.verify.registry import Scope, verification
from iosim.verify.result import Check, found, verdict

N = 16384
FIXED_WORDS = 1024
SLOPE_TOLERANCE = 0.05
"""Room for N d beside N^2, which is at most 1/16 at the largest d, and for -2M a matmul."""


@verification
def regimes(scope: Scope) -> Iterator[Check]:
    """FA1 Theorem 2 says that standard attention moves Theta(N d + N^2) words: not where M < d^2.

    Each of its two matmuls needs 2 N^2 d / sqrt(M) - 2M. Here all words are over N d + N^2.
    """
    family = scope.schedules.get("standard_tiled")
    listing = scope.schedules.get("standard")
    if family is None or listing is None:
        return
    for d in (64, 128, 256) if scope.thorough else (64, 128):
        for words in (d * d // 16, d * d // 4, 4 * d * d):
            scope.progress(f"regimes: d = {d}, M = {words}")
            yield _row(measure(family, d, words), total_words(listing.build(_shape(d))))
    scope.progress("regimes: growth with d")
    yield _growth_row([measure(family, d, FIXED_WORDS) for d in (64, 128, 256, 512, 1024)])
    flash = scope.schedules.get("flash2")
    if flash is not None:
        yield from (_order_row(family, flash, 128, words) for words in (1024, 65536))


def _shape(d: int) -> AttentionShape:
    return AttentionShape(N, N, d)


@dataclass(frozen=True)
class Measured:
    """Words that standard attention with tiled matmuls moves, and its bound, over N d + N^2."""

    shape: AttentionShape
    words: int
    tiles: dict[str, int]
    traffic: int
    bound: Bound

    @property
    def unit(self) -> int:
        """N d + N^2, what FA1 Theorem 2 says that the traffic is of the order of."""
        return self.shape.n_q * (self.shape.head_dim + self.shape.n_k)

    def numbers(self) -> dict[str, object]:
        """Return the figures for a report."""
        return {
            "head_dim": self.shape.head_dim,
            "n": self.shape.n_q,
            "sram_words": self.words,
            "regime": regime(self.shape, self.words),
            "tiles": self.tiles,
            "traffic_words": self.traffic,
            "bound_words": self.bound.words,
            "traffic_over_n_d_plus_n_squared": self.traffic / self.unit,
            "bound_over_n_d_plus_n_squared": self.bound.words / self.unit,
        }


def measure(family: Family, d: int, words: int) -> Measured:
    """Return what the best legal tile of a schedule that materialises S moves at M words."""
    shape = _shape(d)
    tiles = dict(choose_tiles(family, shape, words).sizes)
    schedule = family.build(shape, **tiles)
    checked = check(schedule, capacity=words)
    (bound,) = (b for b in lower_bounds(shape, words, checked) if b.name == "two_matmuls")
    return Measured(shape, words, tiles, total_words(schedule), bound)


def _row(at: Measured, listing: int) -> Check:
    d, small = at.shape.head_dim, at.words < at.shape.head_dim**2
    above = at.traffic >= at.bound.words and at.bound.holds
    refuted = at.bound.words > listing
    detail = (
        f"moved {at.traffic / at.unit:.3g} (standard_tiled), needed by two matmuls "
        f"{at.bound.words / at.unit:.3g}, the listing's count {listing / at.unit:.3g}"
        + (": out of reach" if refuted else "")
    )
    times = f"d^2 / {d * d // at.words}" if small else f"{at.words // (d * d)} d^2"
    return Check(
        "regimes",
        f"d = {d}, M = {format_count(at.words)} = {times}",
        found(above) if small and refuted else verdict(above and refuted == small),
        detail,
        {**at.numbers(), "listing_words": listing},
    )


def _growth_row(rows: list[Measured]) -> Check:
    """Return how the bound over N d + N^2 grows with d: a Theta would have exponent 0."""
    d = np.log([row.shape.head_dim for row in rows])
    slope = float(np.polyfit(d, np.log([row.bound.words / row.unit for row in rows]), 1)[0])
    moved = float(np.polyfit(d, np.log([row.traffic / row.unit for row in rows]), 1)[0])
    above = all(row.traffic >= row.bound.words and row.bound.holds for row in rows)
    fine = above and abs(slope - 1) <= SLOPE_TOLERANCE
    first, last = rows[0].shape.head_dim, rows[-1].shape.head_dim
    return Check(
        "regimes",
        f"M = {FIXED_WORDS}, d = {first}..{last}",
        found(fine),
        f"needed by two matmuls grows as d^{slope:.2f}, moved by standard_tiled as d^{moved:.2f}; "
        "Theta(N d + N^2) would be d^0",
        {
            "sram_words": FIXED_WORDS,
            "bound_exponent_of_d": slope,
            "traffic_exponent_of_d": moved,
            "over_n_d_plus_n_squared": {
                str(row.shape.head_dim): {
                    "bound": row.bound.words / row.unit,
                    "traffic": row.traffic / row.unit,
                }
                for row in rows
            },
        },
    )


def _order_row(tiled: Family, flash: Family, d: int, words: int) -> Check:
    """Return which moves less, standard attention with tiled matmuls or flash2."""
    at = measure(tiled, d, words)
    tiles = dict(choose_tiles(flash, at.shape, words).sizes)
    traffic = total_words(flash.build(at.shape, **tiles))
    small = words < d * d
    fine = (at.traffic < traffic) == small
    ratio = traffic / at.traffic
    detail = (
        f"flash2 moves {ratio:.3g} times as many words as standard_tiled: "
        f"{'below' if small else 'above'} d^2 fusing {'costs more' if small else 'pays'}"
    )
    what = f"d = {d}, M = {format_count(words)}, flash2"
    numbers = {**at.numbers(), "flash2_words": traffic, "flash2_tiles": tiles, "ratio": ratio}
    return Check("regimes", what, found(fine) if small else verdict(fine), detail, numbers)
