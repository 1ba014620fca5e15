"""Claims about devices: rates, ridges, and what counts say about time."""

from iosim.bounds import compulsory_words
from iosim.interconnect import overlap_rows
from iosim.machine import machine
from iosim.proofs.claims.common import at, listing, matmul_flops, moved, square, times
from iosim.proofs.claims.quantity import Number
from iosim.proofs.claims.registry import Condition, Reading, Recomputed, recomputation
from iosim.reading.count import count
from iosim.schedule import family


@recomputation
def ring_block(
    link_bytes_per_second: float, device: str = "", flops_per_second: float = 0
) -> Recomputed:
    """Divides the device's peak in 16 bits by the rate of the link, and takes six blocks.

    The ring schedule, counted on two devices with shards of one block of c rows, computes 4 d c^2
    FLOPs in matrix products for each block of keys and values, and sends its 4 c d bytes, two bytes
    a word. So c FLOPs hide a byte, and c >= FLOP/s over byte/s hides the transfer.
    """
    peak = machine(device).flops_per_second("float16") if device else flops_per_second
    rows = overlap_rows(peak, link_bytes_per_second)
    ring = family("ring").build(square(2 * _BLOCK, 64), br=_BLOCK, bc=_BLOCK, ranks=2)
    step, shift = matmul_flops(ring) / 4, count(ring).interconnect_bytes / 2
    return Recomputed(
        readings=(
            Reading(
                "peak FLOP/s over byte/s, and six times that",
                {"block": Number(rows, "rows"), "sequence": Number(6 * rows, "rows")},
            ),
        ),
        facts={"block": round(rows), "sequence": round(6 * rows)},
        conditions=(
            Condition(
                f"a block of {_BLOCK} rows has {step / shift:.0f} FLOPs of the ring for each byte "
                "that it sends",
                step / shift == _BLOCK,
            ),
        ),
    )


_BLOCK = 128


@recomputation
def ridge(device: str, bytes_per_second: float) -> Recomputed:
    """Divides the device's peak in float16 by the bandwidth that the claim states."""
    found = machine(device)
    peak = found.flops_per_second("float16")
    return Recomputed(
        readings=(
            Reading(
                "peak FLOP/s over byte/s",
                {"ridge": Number(peak / bytes_per_second, "FLOP/byte")},
            ),
        ),
        facts={
            "own": peak / found.hbm_bytes_per_second,
            "rate": found.hbm_bytes_per_second / 1e12,
        },
    )


@recomputation
def vector_flops(device: str) -> Recomputed:
    """Divides the device's tensor-core rate in float16 by its plain rate in float32."""
    found = machine(device)
    ratio = found.flops_per_second("float16") / found.flops_per_second("float32")
    return Recomputed((Reading("float16 matmul over float32", {"ratio": times(ratio)}),))


@recomputation
def intensity(n: int, d: int, device: str) -> Recomputed:
    """Counts FLOPs over bytes of standard attention; flash1 and flash2 at two M stand beside it."""
    shape, found = square(n, d), machine(device)
    own = found.flops_per_second("float16") / found.hbm_bytes_per_second
    standard = listing(shape).traffic
    facts: dict[str, float] = {"ridge": own, "standard": standard.flops / standard.total_bytes}
    for name in ("flash1", "flash2"):
        for label, memory in (("small", d * d), ("block", found.fast_words("float16"))):
            traffic = at(name, shape, memory).traffic
            facts[f"{name}_{label}"] = traffic.flops / traffic.total_bytes
    return Recomputed(
        readings=(
            Reading(
                "FLOPs over bytes of standard attention",
                {"standard": Number(facts["standard"], "FLOP/byte")},
            ),
        ),
        facts=facts,
    )


@recomputation
def speed(n: int, d: int, device: str) -> Recomputed:
    """Counts standard attention over flash1 as printed in a block's memory of the device.

    A ratio of times follows from a ratio of bytes only where bytes set both times: where each
    schedule's FLOPs over bytes of HBM lie below the device's ridge. With K and V of a head in L2,
    FlashAttention's HBM traffic is the compulsory one.
    """
    shape, found = square(n, d), machine(device)
    memory = found.fast_words("float16")
    standard, flash = listing(shape).traffic, at("flash1", shape, memory, "paper").traffic
    own = found.flops_per_second("float16") / found.hbm_bytes_per_second
    compulsory = sum(compulsory_words(shape)) * shape.item_bytes
    at_hbm = flash.flops / compulsory
    cached = 2 * n * d * shape.item_bytes <= found.l2_bytes
    return Recomputed(
        readings=(
            Reading(
                "words of standard attention over those of flash1 as printed",
                {"ratio": times(standard.total_words / flash.total_words)},
            ),
        ),
        facts={
            "counted": standard.total_words / flash.total_words,
            "best": standard.total_words / moved("flash2", shape, memory),
            "most": standard.total_bytes / compulsory,
            "at_hbm": at_hbm,
            "ridge": own,
        },
        conditions=(
            Condition(
                f"bytes set the time of FlashAttention: {at_hbm:.0f} FLOP a byte of HBM with K "
                f"and V in L2, against a ridge of {own:.0f} on {found.name}",
                not cached or at_hbm < own,
            ),
        ),
    )
