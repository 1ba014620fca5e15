"""Slow, obvious twins: what kernels load and add, tile by tile, with loops over tiles and rows."""

from iosim.shape import AttentionShape


def sees(shape: AttentionShape, query: int, key: int) -> bool:
    return not shape.causal or key <= query + shape.causal_offset


def meet(shape: AttentionShape, br: int, bc: int, i: int, j: int) -> bool:
    """Whether any query of tile i sees any key of tile j: the last query sees the most."""
    last = min((i + 1) * br, shape.n_q) - 1
    return sees(shape, last, j * bc)


def forward_read_bytes(shape: AttentionShape, br: int, bc: int, whole: bool) -> int:
    """Q once for each tile of queries, K and V for each pair of tiles that meet."""
    words = 0
    for i in range(-(-shape.n_q // br)):
        rows = br if whole else min(br, shape.n_q - i * br)
        words += rows * shape.head_dim
        for j in range(-(-shape.n_k // bc)):
            if meet(shape, br, bc, i, j):
                keys = bc if whole else min(bc, shape.n_k - j * bc)
                words += keys * (shape.head_dim + shape.value_dim)
    return shape.batch * shape.heads * words * shape.item_bytes


def backward_bytes(shape: AttentionShape, br: int, bc: int, whole: bool) -> tuple[int, int]:
    """Bytes read, and bytes of float32 that are added to dQ in whole tiles."""
    read = added = 0
    width = (shape.head_dim + shape.value_dim) * shape.item_bytes
    for j in range(-(-shape.n_k // bc)):
        read += min(bc, shape.n_k - j * bc) * width
        for i in range(-(-shape.n_q // br)):
            if meet(shape, br, bc, i, j):
                rows = br if whole else min(br, shape.n_q - i * br)
                read += rows * (width + 8)
                added += br * shape.head_dim * 4
    heads = shape.batch * shape.heads
    return heads * read, heads * added
