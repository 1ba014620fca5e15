"""Claims about how many words or bytes are moved or held, at one shape."""

from iosim.bounds import compulsory_words
from iosim.machine import machine
from iosim.proofs.claims.common import at, exponent, listing, matmul_flops, octets, square, words
from iosim.proofs.claims.quantity import Number
from iosim.proofs.claims.registry import Reading, Recomputed, recomputation
from iosim.reading.count import count
from iosim.reading.slow_memory import slow_memory
from iosim.report import simulate
from iosim.schedule import family


@recomputation
def bare_terms(n: int, d: int, sram_words: int) -> Recomputed:
    """Counts standard attention, and flash1 with the printed tiles at M."""
    shape = square(n, d, "float32")
    standard = listing(shape).traffic.total_words
    flash = at("flash1", shape, sram_words, "paper")
    best = at("flash2", shape, sram_words)
    return Recomputed(
        readings=(
            Reading(
                "words counted",
                {
                    "standard": words(standard),
                    "flash": words(flash.traffic.total_words),
                    "ratio": Number(standard / flash.traffic.total_words, "times"),
                },
            ),
        ),
        facts={
            "term_standard": n * n + n * d,
            "term_flash": n * n * d * d // sram_words,
            "compulsory": sum(compulsory_words(shape)),
            "fits": "fit" if flash.fits else "do not fit",
            "peak": flash.traffic.peak_words,
            "best": best.traffic.total_words,
        },
    )


@recomputation
def score_matrices(
    lengths: list[int], heads: int, dtype: str, moves: int, binary: bool = False
) -> Recomputed:
    """Counts the bytes of S and P that one move, or several, of them takes in standard attention.

    Each of its four moves is that of one N x N matrix: S written and read, P written and read.
    With `binary`, a second reading takes MB and GB to be powers of 1024.
    """
    numbers, facts = {}, {}
    for n in lengths:
        traffic = simulate(family("standard"), square(n, 64, dtype, heads=heads)).traffic
        each = [
            moved * traffic.items[name]
            for name in "SP"
            for moved in (traffic.tensors[name].write, traffic.tensors[name].read)
        ]
        numbers[f"one matrix, N = {n}"] = octets(each[0])
        numbers[f"{moves} moves, N = {n}"] = octets(sum(each[:moves]))
        facts[f"at_{n}"] = round(sum(each[:moves]) / 1e6)
    readings = [Reading("MB and GB are powers of 1000", numbers)]
    if binary:
        sizes = {"KB": 1024, "MB": 1024**2, "GB": 1024**3}
        readings.append(Reading("MB and GB are powers of 1024", numbers, True, sizes))
    return Recomputed(tuple(readings), facts)


@recomputation
def read_once(n: int, d: int, heads: int, dtype: str, device: str) -> Recomputed:
    """Counts what flash2 reads with the best tiles that fit in a block's memory of the device."""
    shape = square(n, d, dtype, heads=heads)
    flash = at("flash2", shape, machine(device).fast_words(dtype)).traffic
    standard = listing(shape).traffic
    passes = sum(standard.tensors[name].total * standard.items[name] for name in "SP")
    one_head = square(n, d, dtype)
    return Recomputed(
        readings=(
            Reading(
                "bytes that flash2 reads, all heads",
                {
                    "read": octets(flash.read_bytes),
                    "ratio": Number(passes / flash.total_bytes, "times"),
                },
            ),
        ),
        facts={
            "once": compulsory_words(shape)[0] * shape.item_bytes / 1e6,
            "one_head": sum(compulsory_words(one_head)) * shape.item_bytes / 1e6,
            "read": flash.read_bytes / 1e6,
            "ratio": passes / flash.total_bytes,
            "passes": passes / 1e9,
        },
    )


@recomputation
def output_words(n: int, d: int) -> Recomputed:
    """Counts the words of O that flash2 writes for one head; how they are tiled plays no part."""
    shape = square(n, d)
    written = count(family("flash2").build(shape, br=128, bc=128)).tensors["O"].write
    return Recomputed(
        readings=(Reading("words of O written", {"output": words(written)}),),
        facts={"written": written, "factor": 2 * n * n / written, "once": n * n // written},
    )


@recomputation
def softmax_pass(n: int, d: int, sram_words: int) -> Recomputed:
    """Counts the softmax pass of standard_tiled: the words of S read and of P written by it.

    It finds maximum and sum of a row in one pass over S (online), and forms P in a second one.
    """
    traffic = at("standard_tiled", square(n, d), sram_words).traffic
    moved = traffic.tensors["S"].read + traffic.tensors["P"].write
    return Recomputed(
        readings=(
            Reading(
                "words of S read and of P written, for each score",
                {"accesses": Number(moved / (n * n), "words/score")},
            ),
        ),
        facts={"moved": moved, "scores": n * n},
    )


@recomputation
def memory_and_flops(n: int, d: int, br: int, bc: int) -> Recomputed:
    """Counts what flash1 keeps in slow memory beside Q, K, V and O, and its FLOPs, at N and 2N."""
    extra, flops = [], []
    for length in (n, 2 * n):
        schedule = family("flash1").build(square(length, d), br=br, bc=bc)
        extra.append(slow_memory(schedule).extra_words)
        flops.append(count(schedule).flops)
    wide = count(family("flash1").build(square(n, 2 * d), br=br, bc=bc)).flops
    return Recomputed(
        readings=(
            Reading(
                "l and m in slow memory; all FLOPs counted",
                {
                    "memory N": exponent(*extra),
                    "FLOPs N": exponent(*flops),
                    "FLOPs d": exponent(flops[0], wide),
                },
            ),
        ),
        facts={"extra": extra[0], "per_score": flops[0] / (n * n * d)},
    )


@recomputation
def flash2_flops(n: int, d: int, br: int, bc: int) -> Recomputed:
    """Counts the FLOPs of flash2's two matrix products over N^2 d, with and without a mask."""
    full = matmul_flops(family("flash2").build(square(n, d), br=br, bc=bc))
    causal = matmul_flops(family("flash2").build(square(n, d, causal=True), br=br, bc=bc))
    return Recomputed(
        readings=(
            Reading(
                "FLOPs of Q K^T and P V",
                {
                    "full": Number(full / (n * n * d), "FLOPs/(N^2 d)"),
                    "causal share": Number(causal / full, "times"),
                },
            ),
        ),
        facts={"causal": causal / full},
    )
