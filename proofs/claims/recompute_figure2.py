"""FA1, Figure 2 (left): bytes and FLOPs of a forward and a backward pass, counted on schedules."""

from dataclasses import replace

from iosim.proofs.claims.common import matmul_flops, octets, square, times
from iosim.proofs.claims.quantity import Number
from iosim.proofs.claims.registry import Reading, Recomputed, recomputation
from iosim.reading.check import check
from iosim.reading.count import count
from iosim.reading.formula import formula
from iosim.schedule import Schedule, family
from iosim.shape import AttentionShape
from iosim.tiles import choose_tiles


def standard_step(shape: AttentionShape, *, mask_pass: bool) -> tuple[Schedule, Schedule]:
    """Return FA1's Algorithms 0 and 3; with `mask_pass` the mask is a pass of its own over S."""
    forward = "standard_passes" if mask_pass else "standard"
    return family(forward).build(shape), family("standard_backward").build(shape)


def flash_step(shape: AttentionShape, bc: tuple[int, int]) -> tuple[Schedule, Schedule]:
    """Return FA1's Algorithms 1 and 4 with B_c keys a tile, forward and backward."""
    return (
        family("flash1").build(shape, br=min(bc[0], shape.head_dim), bc=bc[0]),
        family("flash1_backward").build(shape, br=min(bc[1], shape.head_dim), bc=bc[1]),
    )


def bytes_of(step: tuple[Schedule, Schedule]) -> int:
    """Return the bytes that the two passes of a step read and write."""
    return sum(count(schedule).total_bytes for schedule in step)


def initialising_bytes(step: tuple[Schedule, Schedule]) -> int:
    """Return the bytes of the lines that write zeros (and m = -inf) into slow memory first."""
    found = 0
    for schedule in step:
        form, items = formula(schedule), count(schedule).items
        found += sum(
            entry.words.value(form.values) * items[entry.tensor]
            for entry in form.entries
            if entry.line.startswith("initialise")
        )
    return found


@recomputation
def figure_2_bytes(
    n: int,
    d: int,
    heads: int,
    batch: int,
    dtype: str,
    dropout: float,
    sram_bytes: int,
    passes: list[int],
) -> Recomputed:
    """Counts the schedules of Algorithms 0 and 3, and of 1 and 4, forward and backward.

    As stated: the listings with their printed block sizes at M, without mask and dropout. Assumed
    for standard attention: a mask pass over S and dropout passes over P and dP with a mask of one
    byte a score; for FlashAttention: dropout on chip from a random state, the numbers of passes
    given (forward, backward), and no initialisation.
    """
    shape = replace(square(n, d, dtype, heads=heads), batch=batch)
    drops = replace(shape, dropout=dropout)
    words = sram_bytes // shape.item_bytes
    standard = bytes_of(standard_step(shape, mask_pass=False))
    with_passes = bytes_of(standard_step(drops, mask_pass=True))

    printed_bc = choose_tiles(family("flash1"), shape, words, "paper").sizes["bc"]
    flash_printed = bytes_of(flash_step(shape, (printed_bc, printed_bc)))
    assumed_bc = (-(-n // passes[0]), -(-n // passes[1]))
    assumed = flash_step(drops, assumed_bc)
    flash_initialised = bytes_of(assumed)
    flash = flash_initialised - initialising_bytes(assumed)
    # As for the printed sizes, the peak is that of the plain listing, without dropout.
    forward, backward = flash_step(shape, assumed_bc)
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
                    "standard": octets(with_passes),
                    "flash": octets(flash),
                    "ratio": times(with_passes / flash),
                },
                assumed=True,
            ),
        ),
        facts={
            "listings": standard / 1e9,
            "with_passes": with_passes / 1e9,
            "printed_passes": -(-n // printed_bc),
            "flash_printed": flash_printed / 1e9,
            "flash": flash / 1e9,
            "flash_initialised": flash_initialised / 1e9,
            "bc": assumed_bc[0],
            "peak": check(forward).peak_words,
            "bc_backward": assumed_bc[1],
            "peak_backward": check(backward).peak_words,
            "sram_words": words,
        },
    )


@recomputation
def figure_2_flops(n: int, d: int, heads: int, batch: int) -> Recomputed:
    """Counts the FLOPs of the matrix products of standard and flash1, forward and backward.

    The backward pass has four products of the size of Q K^T, and FlashAttention forms S again.
    """
    shape = replace(square(n, d, heads=heads), batch=batch)
    standard = sum(map(matmul_flops, standard_step(shape, mask_pass=False)))
    flash = sum(map(matmul_flops, flash_step(shape, (d, d))))
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
        facts={
            "ratio": flash / standard,
            "standard": standard / 1e9,
            "flash": flash / 1e9,
        },
    )
