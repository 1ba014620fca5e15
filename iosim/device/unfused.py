"""Kernels of standard attention: Q K^T, softmax and P V as three calls."""

import math

from iosim.device.case import KernelCall
from iosim.device.kernels import Known
from iosim.device.moves import Moves, Setting, role, stream


@role("gemm")
def gemm(known: Known, call: KernelCall, setting: Setting) -> Moves:
    """A matrix product tile by tile: S = Q K^T before the softmax, O = P V after it.

    A tile of m x n of the column-major result reads m and n rows of the operands, of the whole
    inner length. m runs along the keys of S, or along d_v of O; n along the queries. Blocks of a
    cluster that stand side by side along n share their rows of m, and along m those of n.
    """
    shape, item = setting.shape, setting.shape.item_bytes
    last = setting.last("softmax", "gemm")
    scores = last is None or last[0].role != "softmax"
    m, n = known.tiles["m"], known.tiles["n"]
    across, inner = (shape.n_k, shape.head_dim) if scores else (shape.value_dim, shape.n_k)
    heads = shape.batch * shape.heads
    columns, rows = math.ceil(across / m), math.ceil(shape.n_q / n)
    tiles = heads * columns * rows
    left_bytes, right_bytes = tiles * m * inner * item, tiles * n * inner * item
    left, right, result = ("K", "Q", "S") if scores else ("V", "P", "O")
    later = max(0, tiles - call.grid) * known.facts.ticket_bytes
    counter = {"tile counter": later} if later else {}
    notes: tuple[str, ...] = ()
    if call.grid > tiles:
        notes = (f"the grid has {call.grid} blocks, more than {tiles} tiles of {m} x {n}",)
    return Moves(
        reads={left: left_bytes, right: right_bytes, **counter},
        writes={result: heads * shape.n_q * across * item, **counter},
        merged=_once_a_cluster(left_bytes, known.tiles["cluster_n"])
        + _once_a_cluster(right_bytes, known.tiles["cluster_m"]),
        compulsory_read=heads * (across + shape.n_q) * inner * item,
        compulsory_write=heads * shape.n_q * across * item,
        flops=2 * heads * shape.n_q * across * inner,
        tiles={"m": m, "n": n},
        notes=notes,
    )


def _once_a_cluster(size: int, blocks: int) -> int:
    """Return the bytes that need no lookup in L2, as so many blocks get them together."""
    return size - size // max(1, blocks)


@role("softmax")
def softmax(known: Known, call: KernelCall, setting: Setting) -> Moves:
    """P = softmax(S), each row read once and written once."""
    shape = setting.shape
    size = shape.batch * shape.heads * shape.n_q * shape.n_k * shape.item_bytes
    return stream({"S": size}, {"P": size})
