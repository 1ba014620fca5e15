"""Claims about what fits in fast memory."""

from iosim.machine import machine
from iosim.proofs.claims.common import at, octets, square, words
from iosim.proofs.claims.quantity import Number
from iosim.proofs.claims.registry import Condition, Reading, Recomputed, recomputation
from iosim.reading.check import check
from iosim.schedule import family
from iosim.tiles import choose_tiles
from iosim.units import format_count
from iosim.verify.capacity import scan


@recomputation
def tile_bytes(br: int, bc: int, d: int, dtype: str) -> Recomputed:
    """Checks flash1 with these tiles and reports the most that fast memory holds at once."""
    shape = square(65536, d, dtype)
    held = check(family("flash1").build(shape, br=br, bc=bc)).peak_words
    three = (br * d + bc * d + br * bc) * shape.item_bytes
    return Recomputed(
        readings=(Reading("peak residency of flash1", {"held": octets(held * shape.item_bytes)}),),
        facts={
            "held": held * shape.item_bytes,
            "held_kib": held * shape.item_bytes / 1024,
            "three": three,
            "three_kib": three / 1024,
            "statistics": 2 * br * shape.item_bytes,
        },
    )


@recomputation
def printed_tiles(d: int) -> Recomputed:
    """Checks flash1 with the printed tiles at every M from its smallest tile to beyond 8 d^2."""
    flash1 = family("flash1")
    assert flash1.paper is not None
    found = scan(flash1, flash1.paper, d)
    return Recomputed(
        readings=(
            Reading(
                f"sizes of M from {found.first} to {found.last} words that overflow",
                {"overflow": Number(found.overflow, "sizes of M")},
            ),
        ),
        facts={
            "overflow": found.overflow,
            "fits_from": found.fits_from,
            "eight": 8 * d * d,
            "below": found.fit_below,
        },
    )


@recomputation
def backward_tiles(d: int, last_words: int) -> Recomputed:
    """Checks flash1_backward with the printed tiles at every M from its smallest tile to the last.

    Algorithm 4 takes the B_c and B_r of Algorithm 1.
    """
    backward = family("flash1_backward")
    assert backward.paper is not None
    found = scan(backward, backward.paper, d, last_words)
    return Recomputed(
        readings=(
            Reading(
                f"sizes of M from {found.first} to {found.last} words that overflow",
                {"overflow": Number(found.overflow, "sizes of M")},
            ),
        ),
        facts={
            "sizes": found.last + 1 - found.first,
            "overflow": found.overflow,
            "least_excess": found.least_excess,
        },
    )


@recomputation
def least_memory(n: int, d: int) -> Recomputed:
    """Checks flash1 with tiles of one row, the smallest there are, for the M they need."""
    least = check(family("flash1").build(square(n, d), br=1, bc=1)).peak_words
    fused = check(family("flash2").build(square(n, d), br=1, bc=1)).peak_words
    return Recomputed(
        readings=(Reading("words held with B_r = B_c = 1", {"least M": words(least)}),),
        facts={"least": least, "flash2": fused, "d": d},
    )


@recomputation
def share_of_memory(n: int, d: int, sram_words: int) -> Recomputed:
    """Searches flash2's tile of least traffic, and again in 70 % and 90 % of M."""
    shape = square(n, d)
    best = at("flash2", shape, sram_words)
    share = Number(100 * best.traffic.peak_words / sram_words, "% of M")
    less = [at("flash2", shape, sram_words * part // 100).traffic.total_words for part in (70, 90)]
    full = best.traffic.total_words
    return Recomputed(
        readings=(Reading("share of M that the tile of least traffic holds", {"share": share}),),
        facts={
            "share": float(share.value),
            "at_70": 100 * (less[0] / full - 1),
            "at_90": 100 * (less[1] / full - 1),
        },
    )


@recomputation
def memory_of_a_block(device: str, sram_bytes: int, d: int) -> Recomputed:
    """Compares the size with the shared memory of a block on record for the device."""
    found = machine(device)
    dtype = "float16"
    fits = sram_bytes <= found.shared_bytes_per_block
    legal = choose_tiles(family("flash2"), square(65536, d), found.fast_words(dtype)).sizes
    stated = choose_tiles(family("flash2"), square(65536, d), sram_bytes // 2).sizes
    return Recomputed(
        readings=(
            Reading(
                "shared memory of one multiprocessor",
                {"size": octets(found.shared_bytes_per_sm)},
                assumed=True,
                sizes={"KB": 1024},
            ),
        ),
        facts={
            "block": found.shared_bytes_per_block // 1024,
            "sm": found.shared_bytes_per_sm // 1024,
            "legal": legal["br"],
            "stated": stated["br"],
        },
        conditions=(
            Condition(
                f"one block of threads may hold M: {format_count(sram_bytes)} bytes against "
                f"{format_count(found.shared_bytes_per_block)} on {found.name}",
                fits,
            ),
        ),
    )
