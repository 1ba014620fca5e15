"""Claims about how traffic grows, and how many times less one schedule moves than another."""

from iosim.proofs.claims.common import at, exponent, listing, moved, square, times
from iosim.proofs.claims.registry import Reading, Recomputed, recomputation


@recomputation
def growth_with_d(n: int, d: int, sram_words: int) -> Recomputed:
    """Counts flash1 with the printed tiles at d and 2d, N and M being the same."""
    one, two = (moved("flash1", square(n, each), sram_words, "paper") for each in (d, 2 * d))
    best = exponent(*(moved("flash2", square(n, each), sram_words) for each in (d, 2 * d)))
    return Recomputed(
        readings=(Reading("words of flash1 as printed, d doubled", {"d": exponent(one, two)}),),
        facts={"best": best.value},
    )


@recomputation
def growth_of_intensity(n: int, d: int, sram_words: int) -> Recomputed:
    """Counts FLOPs over bytes of flash2 with its best tiles at N, 2N; d, 2d; M, 2M."""

    def intensity(n: int, d: int, words: int) -> float:
        traffic = at("flash2", square(n, d), words).traffic
        return traffic.flops / traffic.total_bytes

    here = intensity(n, d, sram_words)
    return Recomputed(
        readings=(
            Reading(
                "FLOPs over bytes of flash2",
                {
                    "N": exponent(here, intensity(2 * n, d, sram_words)),
                    "M": exponent(here, intensity(n, d, 2 * sram_words)),
                    "d": exponent(here, intensity(n, 2 * d, sram_words)),
                },
            ),
        ),
        facts={"intensity": here},
    )


@recomputation
def times_fewer(n: int, d: int, sram_words: int) -> Recomputed:
    """Counts standard attention over flash1 with the printed tiles at M words."""
    shape = square(n, d)
    standard = listing(shape).traffic.total_words
    printed = at("flash1", shape, sram_words, "paper")
    return Recomputed(
        readings=(
            Reading(
                "standard over flash1 as printed",
                {"ratio": times(standard / printed.traffic.total_words)},
            ),
        ),
        facts={
            "flash1": standard / printed.traffic.total_words,
            "flash1_best": standard / moved("flash1", shape, sram_words),
            "mirrored": standard / moved("flash2", shape, sram_words, "paper"),
            "flash2_best": standard / moved("flash2", shape, sram_words),
            "terms": (n * n + n * d) * sram_words / (n * n * d * d),
            "square_terms": sram_words / (d * d),
            "bytes_for_words": 2 * sram_words / (d * d),
        },
    )


@recomputation
def second_over_first(n: int, d: int, sram_words: int) -> Recomputed:
    """Counts flash2 over flash1, at M/4d rows of the outer tile and at the best tiles of each."""
    shape = square(n, d)
    unit = n * n * d * d / sram_words
    printed = [moved(name, shape, sram_words, "paper") for name in ("flash1", "flash2")]
    best = [moved(name, shape, sram_words) for name in ("flash1", "flash2")]
    return Recomputed(
        readings=(
            Reading(
                "words of flash2 over those of flash1",
                {
                    "same tile": times(printed[1] / printed[0]),
                    "best tiles": times(best[1] / best[0]),
                },
            ),
        ),
        facts={
            "flash1": printed[0] / unit,
            "flash2": printed[1] / unit,
            "flash1_best": best[0] / unit,
            "flash2_best": best[1] / unit,
        },
    )
