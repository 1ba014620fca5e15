"""Capacity: the tile sizes that papers print, held against the words that fast memory has."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from iosim.errors import CapacityError
from iosim.reading.check import check
from iosim.reading.count import total_words
from iosim.schedule.registry import Family, PaperRule
from iosim.shape import AttentionShape
from iosim.tiles import choose_tiles
from iosim.units import MemorySize, format_count, item_bytes
from iosim.verify.registry import Scope, verification
from iosim.verify.result import Check, found, verdict

N = 65536  # so many rows that no tile of the scan is cut short by the end of the sequence

# The schedules whose printed tiles are looked at here; small_memory has that of square_tiling.
RULED = ("flash1", "flash2", "flash1_backward")

# The fast memory that FA1 (arXiv 2205.14135, section 2.1) reckons with is about 100 KB.
MEMORY = MemorySize(100 * 1024, "bytes")


@verification
def capacity(scope: Scope) -> Iterator[Check]:
    """Do the tile sizes that papers print fit in M words? Check runs for every M and finds out.

    Tiles are written B_r x B_c; flash2 takes FA1's rule mirrored. A tile that does fit is named
    beside those that do not.
    """
    dims = (16, 32, 64, 80, 96, 128, 192, 256) if scope.thorough else (32, 64, 128)
    ruled = [
        (name, family, family.paper)
        for name, family in scope.schedules.items()
        if name in RULED and family.paper is not None
    ]
    for name, family, paper in ruled:
        for d in dims:
            scope.progress(f"capacity: {name}, d = {d}")
            row = _never_row if family.direction == "backward" else _scan_row
            yield row(name, family, paper, d)
    for name, family, paper in ruled:
        for dtype, d in (("float16", 64), ("float16", 128), ("float32", 64)):
            yield _memory_row(name, family, paper, dtype, d)


def held_words(d: int, br: int, bc: int) -> int:
    """Return the words that Q_i, O_i, K_j, V_j, S_ij, l_i and m_i hold together.

    >>> held_words(64, br=64, bc=200)
    46720
    """
    return 2 * br * d + 2 * bc * d + br * bc + 2 * br


def backward_held_words(d: int, br: int, bc: int) -> int:
    """Return the words that the tiles of flash1_backward hold together.

    They are Q_i, O_i, dO_i, dQ_i, K_j, V_j, dK_j, dV_j, two score tiles, l_i, m_i and D_i.

    >>> backward_held_words(64, br=64, bc=200)
    93376
    """
    return 4 * br * d + 4 * bc * d + 2 * br * bc + 3 * br


def held_by(family: Family) -> Callable[..., int]:
    """Return the function that says what the tiles of a schedule hold, from d, B_r and B_c."""
    return backward_held_words if family.direction == "backward" else held_words


@dataclass(frozen=True)
class Scan:
    """What the scan over M from `first` to `last` words found, all in words.

    `fits_from` is the least M from which on the rule fits up to `last`; `fit_below` so many
    smaller sizes fit too, `overflow` so many do not, by `least_excess` words or more. `agrees`:
    each peak is what held_words says.
    """

    first: int
    last: int
    fits_from: int
    fit_below: int
    overflow: int
    least_excess: int
    agrees: bool


def scan(family: Family, rule: PaperRule, d: int, last: int = 0) -> Scan:
    """Check the tiles that a rule gives for every M that can hold any, to `last` words.

    By default that is a bit beyond 8 d^2.

    >>> from iosim.schedule import family
    >>> flash1 = family("flash1")
    >>> scan(flash1, flash1.paper, 64).fits_from
    33856
    """
    shape = AttentionShape(N, N, d)
    held = held_by(family)
    first, last = held(d, 1, 1), last or 8 * d * d + 40 * d
    peaks: dict[tuple[tuple[str, int], ...], int] = {}  # the rule keeps a tile for 4d values of M
    fits: list[bool] = []
    agrees, excess = True, []
    for words in range(first, last + 1):
        tiles = rule(shape, words)
        key = tuple(sorted(tiles.items()))
        if key not in peaks:
            peaks[key] = check(family.build(shape, **tiles)).peak_words
            agrees &= peaks[key] == held(d, **tiles)
        fits.append(peaks[key] <= words)
        excess.append(peaks[key] - words)
    overflow = fits.count(False)
    fits_from = last + 1 - next((i for i, fit in enumerate(reversed(fits)) if not fit), len(fits))
    least = min((each for each in excess if each > 0), default=0)
    return Scan(first, last, fits_from, fits_from - first - overflow, overflow, least, agrees)


def always_fits_from(rule: PaperRule, d: int) -> int:
    """Return the least M that mathematics says a rule fits from: held_words, and no schedule.

    Where the tile grows by a row, M grew by 4d words and held_words by at most 3d + 2, so that the
    rule fits for good once it does for the first M that gives a tile of 2d rows or more.
    """
    shape = AttentionShape(N, N, d)

    def step_fits(rows: int) -> bool:
        """Whether all the M that the rule gives so many rows for are enough."""
        least = 4 * d * (rows - 1) + 1
        return held_words(d, **rule(shape, least)) <= least

    rows = bisect_left(range(4 * d), True, lo=d, key=step_fits)
    held = held_words(d, **rule(shape, 4 * d * (rows - 1)))
    return min(held, 4 * d * (rows - 1) + 1)


def _scan_row(name: str, family: Family, rule: PaperRule, d: int) -> Check:
    result = scan(family, rule, d)
    expected = always_fits_from(rule, d)
    fine = result.agrees and result.fits_from == expected and result.overflow > 0
    below = result.fits_from - 1
    legal = _legal(family, AttentionShape(N, N, d), below) if result.overflow else {}
    detail = (
        f"overflow {format_count(result.overflow)} sizes M below {format_count(result.fits_from)} "
        f"words (8 d^2 = {format_count(8 * d * d)}), none from there on; "
        f"{_sizes(legal)} fits at {format_count(below)}"
    )
    if not fine:
        detail = (
            f"check finds that the printed tiles fit from {format_count(result.fits_from)} words "
            f"on, the mathematics says from {format_count(expected)}, or the peaks differ"
        )
    numbers = {
        "schedule": name,
        "head_dim": d,
        "fits_from_words": result.fits_from,
        "expected_words": expected,
        "eight_d_squared_words": 8 * d * d,
        "scanned_from_words": result.first,
        "scanned_to_words": result.last,
        "sizes_that_overflow": result.overflow,
        "smaller_sizes_that_fit": result.fit_below,
        "legal_at_words": below,
        "legal_tiles": legal,
    }
    return Check("capacity", f"{name}, d = {d}", found(fine), detail, numbers)


def _never_row(name: str, family: Family, rule: PaperRule, d: int) -> Check:
    """Return the row of a rule that fits in no M: 4 B_c d >= M words are K_j, V_j, dK_j, dV_j."""
    result = scan(family, rule, d)
    sizes = result.last + 1 - result.first
    fine = result.agrees and result.overflow == sizes
    legal = _legal(family, AttentionShape(N, N, d), result.last)
    detail = (
        f"overflow each of the {format_count(sizes)} sizes M up to {format_count(result.last)} "
        f"words, since K_j, V_j, dK_j and dV_j alone hold 4 B_c d >= M words; "
        f"{_sizes(legal)} fits at {format_count(result.last)}"
    )
    if not fine:
        detail = (
            f"check finds that {format_count(sizes - result.overflow)} of "
            f"{format_count(sizes)} printed tiles fit, the mathematics says none, or the peaks "
            "differ"
        )
    numbers = {
        "schedule": name,
        "head_dim": d,
        "scanned_from_words": result.first,
        "scanned_to_words": result.last,
        "sizes_that_overflow": result.overflow,
        "least_excess_words": result.least_excess,
        "legal_at_words": result.last,
        "legal_tiles": legal,
    }
    return Check("capacity", f"{name}, d = {d}", found(fine), detail, numbers)


def _memory_row(name: str, family: Family, rule: PaperRule, dtype: str, d: int) -> Check:
    shape = AttentionShape(N, N, d, dtype=dtype)
    words = MEMORY.words(item_bytes(dtype))
    tiles = rule(shape, words)
    need = held_by(family)(d, **tiles)
    try:
        check(family.build(shape, **tiles), capacity=words)
        fits = True
    except CapacityError:
        fits = False
    legal = _legal(family, shape, words)
    fine = fits == (need <= words)
    detail = f"{_sizes(tiles)} needs {format_count(need)} of {format_count(words)} words: " + (
        "fits" if fits else f"overflows; {_sizes(legal)} fits"
    )
    numbers = {
        "schedule": name,
        "dtype": dtype,
        "head_dim": d,
        "sram_words": words,
        "tiles": dict(tiles),
        "needed_words": need,
        "fits": fits,
        "legal_tiles": legal,
        "legal_total_words": total_words(family.build(shape, **legal)),
    }
    what = f"{name}, d = {d}, 100 KiB {dtype}"
    return Check("capacity", what, verdict(fine) if fits else found(fine), detail, numbers)


def _legal(family: Family, shape: AttentionShape, words: int) -> dict[str, int]:
    """Return the tile of least traffic that fits, having checked that it does."""
    tiles = dict(choose_tiles(family, shape, words).sizes)
    check(family.build(shape, **tiles), capacity=words)
    return tiles


def _sizes(tiles: Mapping[str, int]) -> str:
    return " x ".join(str(size) for size in tiles.values())
