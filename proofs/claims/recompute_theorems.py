"""Claims that theorems make: growth, ranges of validity, optimality."""

from iosim.bounds import compulsory_words, lower_bounds, two_matmuls
from iosim.proofs.claims.common import at, exponent, moved, square, times, words
from iosim.proofs.claims.registry import Condition, Reading, Recomputed, recomputation
from iosim.reading.check import check
from iosim.schedule import family


@recomputation
def growth_of_flash1(n: int, d: int, sram_words: int) -> Recomputed:
    """Counts flash1 with the printed tiles at N and 2N, d and d/2, M and 2M.

    Each must fit, so that what is counted could run.
    """
    cases = {
        "here": (n, d, sram_words),
        "n": (2 * n, d, sram_words),
        "d": (n, d // 2, sram_words),
        "M": (n, d, 2 * sram_words),
    }
    found = {name: at("flash1", square(*c[:2]), c[2], "paper") for name, c in cases.items()}
    counts = {name: each.traffic.total_words for name, each in found.items()}
    return Recomputed(
        readings=(
            Reading(
                "words of flash1 with the printed tiles",
                {
                    "N": exponent(counts["here"], counts["n"]),
                    "d": exponent(counts["d"], counts["here"]),
                    "M": exponent(counts["here"], counts["M"]),
                },
            ),
        ),
        facts={"constant": counts["here"] * sram_words / (n * n * d * d)},
        conditions=(
            Condition("the printed tiles fit in M", all(each.fits for each in found.values())),
        ),
    )


@recomputation
def growth_of_standard(n: int, d: int, sram_words: int) -> Recomputed:
    """Takes the lower bound for two matmuls that stand alone, over N d + N^2, at d and 2d.

    Were standard attention Theta(N d + N^2) at this M, the quotient would not grow with d.
    """

    def over(width: int) -> float:
        bound = two_matmuls(square(n, width), sram_words, None)
        return bound.words / (n * (n + width))

    shape = square(n, 2 * d)
    tiled = at("standard_tiled", shape, sram_words)
    return Recomputed(
        readings=(
            Reading(
                "two matmuls at M, at least, over N d + N^2",
                {"d": exponent(over(d), over(2 * d))},
            ),
        ),
        facts={
            "over": over(2 * d),
            "wide": 2 * d,
            "tiled": tiled.traffic.total_words / (n * (n + 2 * d)),
        },
    )


@recomputation
def proposition_3(lengths: list[int], d: int) -> Recomputed:
    """Takes the compulsory traffic at M = N d over N^2 d^2 / M, the least over these N."""
    ratios = []
    for n in lengths:
        memory = n * d
        ratios.append(sum(compulsory_words(square(n, d))) * memory / (n * d) ** 2)
    return Recomputed(
        readings=(
            Reading("compulsory traffic over N^2 d^2 / M, M = N d", {"ratio": times(min(ratios))}),
        ),
        facts={"ratio": min(ratios)},
    )


@recomputation
def least_at_small_memory(n: int, d: int, sram_words: int) -> Recomputed:
    """Counts standard_tiled, best tiles, at M = d over N^2 d^2 / M, and how that grows with d.

    Check says that it fits. The words at the M given stand beside those of both flash schedules.
    """
    shape = square(n, d)
    smallest = at("standard_tiled", shape, d)
    long, wide = 2**20, (16 * d, 32 * d)
    ratios = [moved("standard_tiled", square(long, w), w) / (long * long * w) for w in wide]
    tiled = moved("standard_tiled", shape, sram_words)
    return Recomputed(
        readings=(
            Reading(
                f"standard_tiled over N^2 d^2 / M at M = {d} words",
                {
                    "ratio": times(smallest.traffic.total_words / (n * n * d)),
                    "d": exponent(*ratios),
                },
            ),
        ),
        facts={
            "smallest": smallest.traffic.total_words / (n * n * d),
            "tiled": tiled,
            "square": moved("square_tiling", shape, sram_words),
            "listed": moved("square_tiling", shape, sram_words, "paper"),
            "flash1": moved("flash1", shape, sram_words),
            "flash2": moved("flash2", shape, sram_words),
            "unit": n * n * d * d // sram_words,
            "printed_peak": at("flash1", shape, sram_words, "paper").traffic.peak_words,
        },
        conditions=(Condition("the schedule fits in M", bool(smallest.fits)),),
    )


@recomputation
def square_tiling_law(n: int, d: int, sram_words: int) -> Recomputed:
    """Counts square tiling, the listing's tile, at N, 2N; d, 2d; M, 4M words, M below d^2."""

    def listed(rows: int, width: int, memory: int) -> int:
        return moved("square_tiling", square(rows, width), memory, "paper")

    here = listed(n, d, sram_words)
    best = at("square_tiling", square(n, d), sram_words)
    unit = n * n * d / sram_words**0.5
    return Recomputed(
        readings=(
            Reading(
                "square_tiling in the listing's tile, one of N, d, M growing",
                {
                    "N": exponent(here, listed(2 * n, d, sram_words)),
                    "d": exponent(here, listed(n, 2 * d, sram_words)),
                    "M": exponent(here, listed(n, d, 4 * sram_words), 2),
                },
            ),
        ),
        facts={
            "constant": here / unit,
            "best": best.traffic.total_words / unit,
            "gap": best.gap,
            "fused": best.traffic.total_words / (n * n * d * d * 4 / sram_words),
        },
        conditions=(
            Condition("M < d^2", 4 * sram_words < d * d),
            Condition("the best tile fits in M", bool(best.fits)),
        ),
    )


@recomputation
def crossover(n: int, d: int, unfused: str = "standard_tiled") -> Recomputed:
    """Bisects for the M at which flash2 and an unfused schedule, best tiles, move alike; at d, 2d.

    The interval that is left is a 256th of M wide at most.
    """

    def equal(width: int) -> int:
        shape = square(n, width)
        low, high = 4 * width + 3, 4 * width * width  # fusing loses at the first, wins at the last
        while high - low > max(low // 256, 1):
            middle = (low + high) // 2
            if moved("flash2", shape, middle) > moved(unfused, shape, middle):
                low = middle
            else:
                high = middle
        return high

    one, two = equal(d), equal(2 * d)
    return Recomputed(
        readings=(Reading("M at which both move alike, d doubled", {"d": exponent(one, two)}),),
        facts={"share": two / (2 * d) ** 2, "at": two, "wide": 2 * d},
    )


@recomputation
def long_sequence(n: int, d: int, sram_words: int) -> Recomputed:
    """Takes the general bound, and counts the best flash2 that fits and flash1 as printed."""
    shape = square(n, d)
    best, printed = at("flash2", shape, sram_words), at("flash1", shape, sram_words, "paper")
    named = {b.name: b for b in lower_bounds(shape, sram_words, best.checked)}
    check(family("flash2").build(shape, **best.tiles.sizes), capacity=sram_words)
    return Recomputed(
        readings=(
            Reading(
                "the bound and both counts",
                {
                    "bound": words(named["general"].words),
                    "flash2": words(best.traffic.total_words),
                    "flash1": words(printed.traffic.total_words),
                    "rows": words(best.tiles.sizes["br"])._replace(unit="rows"),
                },
            ),
        ),
        facts={
            "fused": named["fused"].words / 1e9,
            "gap": best.traffic.total_words / named["fused"].words,
        },
    )
