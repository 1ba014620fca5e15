"""Claims about block-sparse attention."""

from dataclasses import replace

from iosim.bounds import compulsory_words, visible_pairs
from iosim.machine import machine
from iosim.proofs.claims.common import exponent, square, times
from iosim.proofs.claims.registry import Condition, Reading, Recomputed, recomputation
from iosim.reading.count import count, total_words
from iosim.schedule import family
from iosim.schedule.masks import Butterfly, Random
from iosim.shape import AttentionShape
from iosim.units import format_count


def _flash1(shape: AttentionShape, block: int) -> int:
    """Return the words of flash1 in tiles of d queries and as many keys as a block of the mask."""
    return total_words(family("flash1").build(shape, br=shape.head_dim, bc=block))


@recomputation
def block_sparse_speed(lengths: list[int], d: int, block: int, device: str) -> Recomputed:
    """Counts flash1 over flash1 under a butterfly of blocks, in the same tiles, at each length.

    A ratio of times follows from a ratio of words only where bytes set both times: where FLOPs over
    bytes of HBM lie below the device's ridge, without a mask, too. At the shortest length K and V
    of a head lie in L2, and HBM moves what is compulsory.
    """
    ratios, shares = [], []
    for n in lengths:
        shape = square(n, d)
        sparse = replace(shape, mask=Butterfly(block))
        ratios.append(_flash1(shape, block) / _flash1(sparse, block))
        shares.append(visible_pairs(sparse) / n**2)
    shape, found = square(lengths[0], d), machine(device)
    flops = count(family("flash1").build(shape, br=d, bc=block)).flops
    ridge = found.flops_per_second("float16") / found.hbm_bytes_per_second
    at_hbm = flops / (sum(compulsory_words(shape)) * shape.item_bytes)
    return Recomputed(
        readings=(
            Reading(
                "words of flash1 over those of flash1 under a butterfly",
                {"least": times(min(ratios)), "most": times(max(ratios))},
            ),
        ),
        facts={
            "shortest": ratios[0],
            "longest": ratios[-1],
            "share_shortest": 100 * shares[0],
            "share_longest": 100 * shares[-1],
            "short": format_count(lengths[0]),
            "long": format_count(lengths[-1]),
        },
        conditions=(
            Condition(
                f"bytes set the time of flash1 at N {lengths[0]}: {at_hbm:.0f} FLOP a byte of HBM "
                f"with K and V in L2, against a ridge of {ridge:.0f} on {found.name}",
                at_hbm < ridge,
            ),
        ),
    )


@recomputation
def growth_of_block_sparse(n: int, d: int, block: int, density: float) -> Recomputed:
    """Counts flash1 at a density s, at 2s, and without a block, in tiles that divide the blocks.

    What moves more than without a block grows with s and falls with M, which is 4d B_c.
    """

    def moved(share: float, keys: int) -> int:
        shape = square(n, d)
        return _flash1(replace(shape, mask=Random(share, block)), keys)

    nothing = moved(0, block)
    more = moved(density, block) - nothing
    return Recomputed(
        readings=(
            Reading(
                "words of flash1 beyond those that it moves under no block",
                {
                    "s": exponent(more, moved(2 * density, block) - nothing),
                    "M": exponent(moved(density, block // 2) - nothing, more),
                },
            ),
        ),
        facts={
            "constant": more * 4 * d * block / (n * n * d * d * density),
            "nothing": nothing / (n * d),
        },
    )
