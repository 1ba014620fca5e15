"""FA1, Figure 2 (left): bytes and FLOPs of a forward and a backward pass.

The backward passes have no schedule in the library yet. Their closed forms are written here, once:
FA1 (arXiv 2205.14135), Algorithms 3 and 4, counted by hand line by line.
"""

from iosim.proofs.claims.common import listing, matmul_flops, octets, square, times
from iosim.proofs.claims.quantity import Number
from iosim.proofs.claims.registry import Reading, Recomputed, recomputation
from iosim.reading.check import check
from iosim.reading.count import count
from iosim.reading.formula import formula
from iosim.schedule import Schedule, family
from iosim.shape import AttentionShape
from iosim.tiles import choose_tiles

BACKWARD_MATMULS = 4  # dV = P'dO, dP = dO V', dQ = dS K, dK = dS'Q; a flash kernel forms S again


def standard_backward_bytes(shape: AttentionShape) -> int:
    """Bytes of FA1 Algorithm 3 for one head: P twice, dP and dS written and read, 8 N x d moves."""
    n, d = shape.n_q, shape.head_dim
    return shape.item_bytes * (7 * n * n + 8 * n * d)


def flash1_backward_bytes(shape: AttentionShape, passes: int, *, initialise: bool) -> int:
    """Bytes of FA1 Algorithm 4 for one head in T_c passes; statistics are float32.

    K_j, V_j come in and dK_j, dV_j go out once; each pass moves Q, O, dO, dQ in, l, m in and dQ
    out. To initialise is to write dQ, dK and dV once more.
    """
    n, d = shape.n_q, shape.head_dim
    words = 4 * n * d + passes * 5 * n * d + (3 * n * d if initialise else 0)
    return shape.item_bytes * words + 4 * passes * 2 * n


def initialising_bytes(schedule: Schedule) -> int:
    """Return the bytes that flash1's first line writes, O = 0, l = 0, m = -inf."""
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
    """Counts standard and flash1 for the forward pass; adds closed forms of Algorithms 3 and 4.

    As stated: the listings with their printed block sizes at M. Assumed for standard attention: a
    mask pass over S and dropout passes over P and dP with a mask of one byte a score; for
    FlashAttention: the numbers of passes given (forward, backward), and no initialisation.
    """
    shape = square(n, d, dtype)
    of_heads = heads * batch
    words = sram_bytes // shape.item_bytes
    standard = (listing(shape).traffic.total_bytes + standard_backward_bytes(shape)) * of_heads
    scores = n * n * shape.item_bytes
    mask = 2 * scores * of_heads
    dropout = 2 * (2 * scores + n * n) * of_heads

    printed = choose_tiles(family("flash1"), shape, words, "paper").sizes
    as_printed = family("flash1").build(shape, **printed)
    printed_passes = -(-n // printed["bc"])
    flash_printed = of_heads * (
        count(as_printed).total_bytes
        + flash1_backward_bytes(shape, printed_passes, initialise=True)
    )
    assumed_bc = -(-n // passes[0])
    assumed = family("flash1").build(shape, br=min(assumed_bc, d), bc=assumed_bc)
    forward = count(assumed).total_bytes
    flash = of_heads * (
        forward
        - initialising_bytes(assumed)
        + flash1_backward_bytes(shape, passes[1], initialise=False)
    )
    flash_initialised = of_heads * (
        forward + flash1_backward_bytes(shape, passes[1], initialise=True)
    )
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
            "bc": assumed_bc,
            "peak": check(assumed).peak_words,
            "sram_words": words,
        },
    )


@recomputation
def figure_2_flops(n: int, d: int, heads: int, batch: int) -> Recomputed:
    """Counts the FLOPs of the matrix products of standard and flash1, forward.

    The backward pass has four products of the same size, and FlashAttention forms S once more.
    """
    shape = square(n, d)
    forward = matmul_flops(family("standard").build(shape)) * heads * batch
    one = forward // 2
    standard = forward + BACKWARD_MATMULS * one
    flash_forward = matmul_flops(family("flash1").build(shape, br=d, bc=d)) * heads * batch
    flash = flash_forward + (BACKWARD_MATMULS + 1) * one
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
