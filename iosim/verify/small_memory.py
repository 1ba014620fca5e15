"""Small memories, M < d^2: square tiling, its printed tile, and where fusing begins to pay."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from math import isqrt

import numpy as np

from iosim.bounds import fused, lower_bound
from iosim.crossover import best_words, order_changes
from iosim.reading.check import check
from iosim.reading.count import total_words
from iosim.reading.execute import execute
from iosim.schedule.registry import Family
from iosim.schedule.square_tiling import listed
from iosim.shape import AttentionShape
from iosim.tiles import choose_tiles
from iosim.units import format_count
from iosim.verify.grid import Case
from iosim.verify.registry import Scope, verification
from iosim.verify.result import Check, found, verdict

N = 1 << 20  # so long that terms of N d do not move a crossover by a word
GAP_N = 16384
SCANNED = 4096  # words


@verification
def small_memory(scope: Scope) -> Iterator[Check]:
    """Where M < d^2, schedules that are not fused move less: square tiling (Saha and Ye 2024).

    The order of flash2 and square tiling, each at its best legal tile, changes at M = c d^2; every
    change is found by exact counts. Mathematics without whole rows brackets it; c tends to 2/3.
    """
    square, flash = (scope.schedules.get(name) for name in ("square_tiling", "flash2"))
    if square is None or flash is None:
        return
    yield _printed_row()
    yield _overflow_row()
    for d in (64, 128, 256) if scope.thorough else (64, 128):
        for share in (16, 4):
            yield _gap_row(square, d, d * d // share)
    for d in (16, 32, 64, 128, 256) if scope.thorough else (16, 32, 64):
        scope.progress(f"small memory: crossover at d = {d}")
        yield _crossover_row(square, flash, d, N)
    for n in (1024, 4096, 65536) if scope.thorough else ():
        scope.progress(f"small memory: crossover at N = {n}")
        yield _crossover_row(square, flash, 64, n)


def _printed_row() -> Check:
    """Return for which M the printed B = floor(sqrt(M / 4)) fits, with and without the maximum."""
    shape = AttentionShape(SCANNED, SCANNED, SCANNED)
    peaks: dict[tuple[int, bool], int] = {}
    unfit: dict[bool, list[int]] = {True: [], False: []}
    for words in range(4, SCANNED + 1):
        side = isqrt(words // 4)
        for maximum in (True, False):
            if (side, maximum) not in peaks:
                schedule = listed(shape, side, maximum=maximum)
                peaks[side, maximum] = check(schedule).peak_words
            if peaks[side, maximum] > words:
                unfit[maximum].append(words)
    # By hand: three squares, and one or two statistics for each row of a block.
    agrees = all(peak == 3 * b * b + (1 + most) * b for (b, most), peak in peaks.items())
    fine = agrees and unfit == {True: [4], False: []}
    detail = (
        f"holds 3 B^2 + 2 B words with B = floor(sqrt(M / 4)): fits every M from 5 to "
        f"{format_count(SCANNED)}, but 4 words need 5; without the maximum 3 B^2 + B, which fits"
    )
    if not fine:
        detail = f"does not fit at M = {unfit}, or the peaks are not 3 B^2 + 2 B and 3 B^2 + B"
    numbers = {"unfit_words": unfit[True], "unfit_without_maximum_words": unfit[False]}
    return Check("small_memory", "square_tiling, printed tile", found(fine), detail, numbers)


def _overflow_row() -> Check:
    """Return what comes out of the listing as printed where scores are in the hundreds."""
    case = Case(AttentionShape(24, 40, 16, dtype="float32"), 8, 8, "scores in the hundreds")
    q, k, v = case.inputs()
    outputs = [
        execute(listed(case.shape, 8, maximum=maximum), q, k, v).O for maximum in (False, True)
    ]
    broken, kept = (int(np.count_nonzero(~np.isfinite(o).all(axis=-1))) for o in outputs)
    rows = case.shape.n_q
    fine = broken > 0 and kept == 0
    detail = (
        f"without the maximum {broken} of {rows} rows are not finite in float32 where scores are "
        f"in the hundreds; with it {'none' if kept == 0 else kept}"
    )
    numbers = {"rows": rows, "not_finite": broken, "not_finite_with_maximum": kept}
    return Check("small_memory", "square_tiling, as printed", found(fine), detail, numbers)


def _gap_row(square: Family, d: int, words: int) -> Check:
    shape = AttentionShape(GAP_N, GAP_N, d)
    tiles = dict(choose_tiles(square, shape, words).sizes)
    schedule = square.build(shape, **tiles)
    checked = check(schedule, capacity=words)
    moved, bound = total_words(schedule), lower_bound(shape, words, checked)
    below = fused(shape, words, checked)
    fine = bound.words <= moved < below.words and not below.holds
    detail = (
        f"moves {moved / bound.words:.2f} times its bound ({bound.name}) and "
        f"{moved / below.words:.2f} times the bound of fused schedules, which it is not"
    )
    numbers = {
        "n": GAP_N,
        "head_dim": d,
        "sram_words": words,
        "tiles": tiles,
        "traffic_words": moved,
        "bound": bound.name,
        "bound_words": bound.words,
        "fused_bound_words": below.words,
    }
    what = f"square_tiling, d = {d}, M = d^2 / {d * d // words}"
    return Check("small_memory", what, found(fine), detail, numbers)


def _crossover_row(square: Family, flash: Family, d: int, n: int) -> Check:
    shape = AttentionShape(n, n, d)
    less, more = best_words(square, shape), best_words(flash, shape)
    low, high = 4 * d + 3, 2 * d * d  # flash2 fits from the first on
    changes = order_changes(less, more, low, high)
    between = bracket(d, n)
    fine = (
        len(changes) % 2 == 1
        and less(low) < more(low)
        and between[0] <= changes[0] <= changes[-1] <= between[1]
    )
    shares = [f"{change / (d * d):.3f}" for change in changes]
    shown = format_count(changes[0]) if changes else "no M"
    detail = f"flash2 moves less from M = {shown} words on"
    if len(changes) > 1:
        detail += f", for good from {format_count(changes[-1])}"
    ends = " to ".join(dict.fromkeys((shares[0], shares[-1]))) if shares else "-"
    detail += f": {ends} d^2 (bracket {format_count(between[0])} to {format_count(between[1])})"
    numbers = {
        "n": n,
        "head_dim": d,
        "changes_words": list(changes),
        "over_d_squared": [change / (d * d) for change in changes],
        "bracket_words": list(between),
    }
    what = f"square_tiling or flash2, d = {d}"
    if n != N:
        what += f", N {format_count(n)}"
    return Check("small_memory", what, verdict(fine), detail, numbers)


@dataclass(frozen=True)
class Bracket:
    """Words over N^2 that the best tiles of both schedules move at most and at least, by hand.

    N = n_q = n_k, d_v = d. A tile of flash2 is best with one key: B_r = floor((M - 2d) / (2d + 3)).
    One of square tiling has B_r (B_c + 3) + B_c <= M, and its T_v = ceil(d / B_c). T_r and T_c lie
    between N / B and N / B + 1.
    """

    d: int
    n: int

    def flash_at_least(self, words: float) -> float:
        """Return 2 d T_r / N + (2 d + 1) / N with B_r a real number."""
        d, n = self.d, self.n
        return 2 * d * (2 * d + 3) / (words - 2 * d) + (2 * d + 1) / n

    def flash_at_most(self, words: float) -> float:
        """Return the same with B_r rounded down and T_r up."""
        return self.flash_at_least(words - (2 * self.d + 2)) + 2 * self.d / self.n

    def square_at_least(self, words: float) -> float:
        """Return d T_c / N + 2 d T_r / N + 1 + T_v + (d + 4) / N, least over all B_c."""
        d = self.d
        return (d + 4) / self.n + min(
            d / bc + 2 * d * (bc + 3) / (words - bc) + 1 - (-d // bc) for bc in range(1, 2 * d + 1)
        )

    def square_at_most(self, words: float) -> float:
        """Return it for B_c = d, with B_r rounded down and T_r and T_c up."""
        d = self.d
        rows = (words - d - (d + 2)) / (d + 3)
        return 3 + 2 * d / rows + (4 * d + 4) / self.n


def bracket(d: int, n: int) -> tuple[int, int]:
    """Return M in words at which square tiling surely moves less, and one at which flash2 does.

    What flash2 moves beyond square tiling falls with M, whatever B_c up to 2d that has: its
    2d (2d + 3) / M falls faster than 2d (B_c + 3) / M. So there is one crossing each, to be halved.

    >>> bracket(64, 1 << 20)
    (2856, 3168)
    """
    by_hand = Bracket(d, n)
    memories = range(4 * d + 3, 8 * d * d)
    low = bisect_left(
        memories, True, key=lambda m: by_hand.square_at_most(m) >= by_hand.flash_at_least(m)
    )
    high = bisect_left(
        memories, True, low, key=lambda m: by_hand.flash_at_most(m) < by_hand.square_at_least(m)
    )
    return memories[max(low - 1, 0)], memories[min(high, len(memories) - 1)]
