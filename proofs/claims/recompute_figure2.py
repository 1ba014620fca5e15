"""FA1, Figure 2 (left): bytes and FLOPs of a forward and a backward pass."""

from iosim.proofs.claims.common import listing, matmul_flops, octets, square, times
from iosim.proofs.claims.quantity import Number
from iosim.proofs.claims.registry import Reading, Recomputed, recomputation
from iosim.reading.check import check
from iosim.reading.count import count
from iosim.reading.formula import formula
from iosim.schedule import Schedule, family
from iosim.shape import AttentionShape
from iosim.tiles import choose_tiles


def in_passes(name: str, shape: AttentionShape, passes: int) -> Schedule:
    """Return flash1 or its backward pass with as many keys in a tile as give so many passes."""
    bc = -(-shape.n_k // passes)
    return family(name).build(shape, br=min(bc, shape.head_dim), bc=bc)


def initialising_bytes(schedule: Schedule) -> int:
    """Return the bytes that initialise O, l and m in HBM, or dQ, dK and dV."""
    form, items = formula(schedule), count(schedule).items
    return sum(
        entry.words.value(form.values) * items[entry.tensor]
        for entry in form.entries
        if entry.line.startswith("initialise")
    )


@recomputation
def figure_2_bytes(
    n: int, d: int, heads: int, batch: int, dtype: str, sram_bytes: int, passes: list[int]
) -> Recomputed:
    """Counts standard and flash1 with their backward passes (Algorithms 0, 1, 3 and 4).

    As stated: the listings with their printed block sizes at M. Assumed for standard attention: a
    mask pass over S and dropout passes over P and dP with a mask of one byte a score; for
    FlashAttention: the numbers of passes given (forward, backward), and no initialisation.
    """
    shape = square(n, d, dtype)
    of_heads = heads * batch
    words = sram_bytes // shape.item_bytes
    standard_backward = count(family("standard_backward").build(shape)).total_bytes
    standard = (listing(shape).traffic.total_bytes + standard_backward) * of_heads
    scores = n * n * shape.item_bytes
    mask = 2 * scores * of_heads
    dropout = 2 * (2 * scores + n * n) * of_heads

    printed = choose_tiles(family("flash1"), shape, words, "paper").sizes
    printed_passes = -(-n // printed["bc"])
    flash_printed = of_heads * sum(
        count(family(name).build(shape, **printed)).total_bytes
        for name in ("flash1", "flash1_backward")
    )
    assumed = in_passes("flash1", shape, passes[0])
    both = (assumed, in_passes("flash1_backward", shape, passes[1]))
    flash_initialised = of_heads * sum(count(each).total_bytes for each in both)
    flash = flash_initialised - of_heads * sum(initialising_bytes(each) for each in both)
    return Recomputed(
        readings=(
            Reading(
                "the listings with their printed block sizes",
                {
                    "standard": octets(standard),
                    "flash": octets(flash_printed),
                    "ratio": times(standard / flash_printed),
                },
            ),
            Reading(
                "with mask and dropout passes; FlashAttention in the passes given",
                {
                    "standard": octets(standard + mask + dropout),
                    "flash": octets(flash),
                    "ratio": times((standard + mask + dropout) / flash),
                },
                assumed=True,
            ),
        ),
        facts={
            "listings": standard / 1e9,
            "with_passes": (standard + mask + dropout) / 1e9,
            "printed_passes": printed_passes,
            "flash_printed": flash_printed / 1e9,
            "flash": flash / 1e9,
            "flash_initialised": flash_initialised / 1e9,
            "bc": assumed.tiles["bc"],
            "peak": check(assumed).peak_words,
            "sram_words": words,
        },
    )


@recomputation
def figure_2_flops(n: int, d: int, heads: int, batch: int) -> Recomputed:
    """Counts the FLOPs of the matrix products of standard and flash1, with their backward passes.

    The backward pass has four products of the same size, and FlashAttention forms S once more.
    """
    shape = square(n, d)
    standard = sum(
        matmul_flops(family(name).build(shape)) for name in ("standard", "standard_backward")
    )
    flash = sum(
        matmul_flops(family(name).build(shape, br=d, bc=d))
        for name in ("flash1", "flash1_backward")
    )
    standard, flash = (of_one * heads * batch for of_one in (standard, flash))
    return Recomputed(
        readings=(
            Reading(
                "the matrix products of the caption's shape, forward and backward",
                {
                    "standard": Number(standard, "FLOPs"),
                    "flash": Number(flash, "FLOPs"),
                },
            ),
        ),
        facts={"ratio": flash / standard, "standard": standard / 1e9},
    )
