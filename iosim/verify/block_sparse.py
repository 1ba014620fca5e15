"""Block-sparse traffic: Theta(N d + N^2 d^2 s / M) for a density s of blocks (FA1, Proposition 4).

The tiles are those of FA1's rule, B_c = M / 4d and B_r = min(B_c, d) (mirrored for `flash2`), and
divide the blocks of the mask, so that the density is the same for tiles of every size.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from iosim.reading.count import count
from iosim.reading.traffic import Traffic
from iosim.schedule.masks import Random
from iosim.schedule.nested import seen
from iosim.schedule.registry import Family
from iosim.schedule.relation import relation_of
from iosim.schedule.tree import Dim
from iosim.shape import AttentionShape
from iosim.tiles import choose_tiles
from iosim.units import format_count
from iosim.verify.exponents import TOLERANCE
from iosim.verify.registry import Scope, verification
from iosim.verify.result import Check, found, verdict

BLOCK = 256
"""Queries and keys of a block of the masks here."""

LENGTHS, DIMS, TILES = (16384, 65536), (64, 128), (32, 64, 128, 256)
DENSITIES = (1, 1 / 4, 1 / 16, 1 / 64, 0)


@verification
def block_sparse(scope: Scope) -> Iterator[Check]:
    """Under masks of blocks at random: what moves with no block, and how the rest grows.

    Proposition 4 of FA1 says Theta(N d + N^2 d^2 s / M) for a share s of blocks that are not zero;
    exponents within 0.02. K_j and V_j are loaded for every j in its listing.
    """
    for name in ("flash1", "flash2"):
        if name in scope.schedules:
            scope.progress(f"block_sparse: {name}")
            points = list(_points(scope.schedules[name]))
            yield _nothing_row(name, points)
            yield _exponents_row(name, points)
    if scope.schedules.keys() >= {"flash1", "flash2"}:
        yield _empty_columns_row(scope)
        yield _small_blocks_row(scope)


@dataclass(frozen=True)
class Point:
    """The words moved for N rows, d, M words (by the rule B = M / 4d) and a density s."""

    n: int
    d: int
    memory: int
    density: float
    traffic: Traffic

    @property
    def words(self) -> int:
        """All words moved."""
        return self.traffic.total_words


def _points(family: Family) -> Iterator[Point]:
    for n in LENGTHS:
        for d in DIMS:
            for wide in TILES:
                narrow = min(wide, d)
                keys_outside = family.name == "flash1"
                sizes = {"br": narrow, "bc": wide} if keys_outside else {"br": wide, "bc": narrow}
                for s in DENSITIES:
                    shape = AttentionShape(n, n, d, mask=Random(s, BLOCK))
                    traffic = count(family.build(shape, **sizes))
                    yield Point(n, d, 4 * d * wide, s, traffic)


def _fit(columns: list[list[float]], words: list[int]) -> list[float]:
    """Return the exponents of words ~ product of powers of the columns, by least squares."""
    table = np.log(np.array(columns, dtype=float))
    table = np.column_stack([np.ones(len(words)), table])
    solution, *_ = np.linalg.lstsq(table, np.log(np.array(words, dtype=float)), rcond=None)
    return [float(exponent) for exponent in solution[1:]]


def _nothing_row(name: str, points: list[Point]) -> Check:
    """The N d term: what moves where no block is left is linear in N and d, whatever M."""
    empty = [point for point in points if point.density == 0]
    exponents = _fit([[p.n, p.d, p.memory] for p in empty], [p.words for p in empty])
    distance = max(abs(a - b) for a, b in zip(exponents, (1, 1, 0), strict=True))
    least = min(p.words / (p.n * p.d) for p in empty)
    most = max(p.words / (p.n * p.d) for p in empty)
    return Check(
        "block_sparse",
        f"{name}, no block",
        verdict(distance <= TOLERANCE),
        f"{least:.3f} to {most:.3f} N d words, N^{exponents[0]:.3f} d^{exponents[1]:.3f} "
        f"M^{abs(exponents[2]):.3f}: the N d term",
        {"exponents": dict(zip("NdM", exponents, strict=True)), "least": least, "most": most},
    )


def _exponents_row(name: str, points: list[Point]) -> Check:
    """What moves more than that is N^2 d^2 s / M."""
    nothing = {(p.n, p.d, p.memory): p.words for p in points if p.density == 0}
    some = [point for point in points if point.density]
    more = [p.words - nothing[p.n, p.d, p.memory] for p in some]
    if min(more) <= 0:
        detail = "as much moves with no block as with some: what the mask hides is not left out"
        return Check("block_sparse", f"{name}, the rest", verdict(False), detail)
    exponents = _fit([[p.n, p.d, p.memory, p.density] for p in some], more)
    distance = max(abs(a - b) for a, b in zip(exponents, (2, 2, -1, 1), strict=True))
    constants = [
        w * p.memory / (p.n**2 * p.d**2 * p.density) for w, p in zip(more, some, strict=True)
    ]
    law = " ".join(f"{x}^{e:.3f}" for x, e in zip("NdMs", exponents, strict=True))
    return Check(
        "block_sparse",
        f"{name}, the rest",
        verdict(distance <= TOLERANCE),
        f"{law}, {min(constants):.2f} to {max(constants):.2f} N^2 d^2 s / M, for N "
        f"{LENGTHS[0]}..{LENGTHS[-1]}, d {DIMS[0]}, {DIMS[-1]}, s 1/64..1",
        {
            "exponents": dict(zip("NdMs", exponents, strict=True)),
            "distance": distance,
            "least_constant": min(constants),
            "most_constant": max(constants),
        },
    )


def _empty_columns_row(scope: Scope) -> Check:
    """K_j and V_j of columns that no query sees: loaded by the listing, not by the other order."""
    n, d, density = 65536, 64, 1 / 512
    shape = AttentionShape(n, n, d, mask=Random(density, BLOCK))
    mask = relation_of(shape)
    assert mask is not None
    unseen = n - seen(mask, Dim("query", n, BLOCK), Dim("key", n, BLOCK))[1]
    read = {}
    for name in ("flash1", "flash2"):
        tensors = count(scope.schedules[name].build(shape, br=BLOCK, bc=BLOCK)).tensors
        read[name] = tensors["K"].read + tensors["V"].read
    pairs = round(density * (n // BLOCK) ** 2)
    # flash1 reads each row of K and V once, seen or not; flash2 once for each block it meets.
    right = read["flash1"] == 2 * n * d and read["flash2"] == pairs * 2 * BLOCK * d and unseen > 0
    return Check(
        "block_sparse",
        "empty columns",
        found(right),
        f"N {n}, s = 1/512: {format_count(unseen)} keys are seen by no query; flash1 loads their "
        f"{format_count(2 * unseen * d)} words of K and V all the same, flash2 none of them",
        {"unseen_keys": unseen, "unseen_words": 2 * unseen * d, "read_words": read},
    )


def _small_blocks_row(scope: Scope) -> Check:
    """With blocks much smaller than tiles s is not the mask's: more memory helps less."""
    n, d, block, density = 8192, 64, 32, 1 / 16
    gains = {}
    for label, mask in (("dense", None), ("sparse", Random(density, block))):
        shape = AttentionShape(n, n, d, mask=mask)
        words = [
            count(family.build(shape, **choose_tiles(family, shape, m).sizes)).tensors["K"].read
            for family in [scope.schedules["flash2"]]
            for m in (8192, 131072)
        ]
        gains[label] = words[0] / words[1]
    return Check(
        "block_sparse",
        "blocks of 32 rows",
        found(gains["sparse"] < gains["dense"] / 2),
        f"16 times the memory saves flash2 a factor of {gains['dense']:.1f} of its reads of K "
        f"without a mask, {gains['sparse']:.1f} with s = 1/16: larger tiles meet more blocks",
        {"dense": gains["dense"], "sparse": gains["sparse"]},
    )
