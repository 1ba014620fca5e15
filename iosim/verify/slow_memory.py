"""Slow memory: what schedules keep there beside Q, K, V and O grows with N^2, or with N."""

from collections.abc import Iterator

import numpy as np

from iosim.longest import longest
from iosim.machine import machine
from iosim.reading import slow_memory as reading
from iosim.schedule.registry import Family
from iosim.shape import AttentionShape
from iosim.units import format_count
from iosim.verify.registry import Scope, verification
from iosim.verify.result import Check, verdict

LENGTHS = tuple(2**k for k in range(12, 21, 2))
D, TILE = 64, 64
DEVICE = "H200"

# Words beside Q, K, V and O: c N^2 + s N, from the listings; the same for every tile.
QUADRATIC = {"standard": (2, 0), "standard_tiled": (2, 0), "square_tiling": (1, 2)}
LINEAR = {"flash1": (0, 2), "flash2": (0, 1)}
EXPECTED = QUADRATIC | LINEAR

TOLERANCE = 0.001
"""How far an exponent may lie from 2: 2 N words beside N^2 are 1/2048 of it at N = 4096."""


@verification
def slow_memory(scope: Scope) -> Iterator[Check]:
    """FA1 Theorem 1: O(N) memory beside inputs and output, where standard attention takes O(N^2).

    Words of S, P, m, l and LSE in slow memory for one head; and the longest sequence of one head
    of float16 that an H200 holds.
    """
    for name, expected in EXPECTED.items():
        family = scope.schedules.get(name)
        if family is not None:
            yield _row(family, expected)


def beside(family: Family, n: int) -> reading.SlowMemory:
    """Return what a schedule keeps in slow memory for one head of n queries and n keys."""
    return reading.slow_memory(family.build(AttentionShape(n, n, D), **_tiles(family)))


def _tiles(family: Family) -> dict[str, int]:
    return dict.fromkeys(family.tiles, TILE)


def _row(family: Family, expected: tuple[int, int]) -> Check:
    kept = [beside(family, n) for n in LENGTHS]
    words = [each.extra_words + each.kept_words for each in kept]
    squares, rows = expected
    exact = words == [squares * n * n + rows * n for n in LENGTHS]
    exponent = float(np.polyfit(np.log(LENGTHS), np.log(np.maximum(words, 1)), 1)[0])
    power = 2 if squares else 1
    capacity = machine(DEVICE).hbm_bytes
    most = longest(family, AttentionShape(1, 1, D), _tiles(family), capacity) or 0
    fine = exact and abs(exponent - power) <= TOLERANCE
    terms = [(squares, "N^2"), (rows, "N")]
    formula = " + ".join(f"{c if c > 1 else ''} {t}".strip() for c, t in terms if c)
    detail = (
        f"{formula} words, N^{exponent:.3f}: {format_count(words[0])} at N = "
        f"{format_count(LENGTHS[0])}; {format_count(capacity)} bytes hold N = {format_count(most)}"
    )
    if not fine:
        detail = f"{words} words at N = {list(LENGTHS)}, N^{exponent:.3f}, but {formula} expected"
    numbers = {
        "schedule": family.name,
        "lengths": list(LENGTHS),
        "words": words,
        "exponent": exponent,
        "expected_exponent": power,
        "device": DEVICE,
        "hbm_bytes": capacity,
        "longest_seq_len": most,
    }
    return Check("slow_memory", family.name, verdict(fine), detail, numbers)
