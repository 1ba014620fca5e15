"""The axes and tensors that forward schedules of attention share."""

from collections.abc import Sequence
from dataclasses import dataclass

from iosim.errors import IosimError
from iosim.schedule.relation import Relation, relation_of
from iosim.schedule.tree import Dim, For, Node, Tensor
from iosim.shape import AttentionShape


@dataclass(frozen=True)
class Problem:
    """Axes, tensors and mask of one attention shape, cut into tiles of B_r queries and B_c keys.

    Q, K, V start in slow memory and O (and LSE, if a schedule stores it) must end there. S and P
    are score and probability matrices in the dtype of Q; whether they visit slow memory is the
    schedule's choice. O is held on chip in the accumulator's dtype, and so is a tile of S.
    """

    shape: AttentionShape
    batch: Dim
    kv_head: Dim
    group: Dim
    query: Dim
    key: Dim
    dim: Dim
    value: Dim
    Q: Tensor
    K: Tensor
    V: Tensor
    O: Tensor
    LSE: Tensor
    S: Tensor
    P: Tensor
    m: Tensor
    l: Tensor
    mask: Relation | None

    def per_head(self, body: Sequence[Node]) -> tuple[Node, ...]:
        """Return the body repeated for every batch entry, key-value head and query head of it."""
        heads = For(self.kv_head, (For(self.group, tuple(body), parallel=True),), parallel=True)
        return (For(self.batch, (heads,), parallel=True),)


def problem(
    shape: AttentionShape, br: int | None = None, bc: int | None = None, pack: int | None = None
) -> Problem:
    """Return the axes and tensors of a shape, in tiles of `br` queries and `bc` keys (None: all).

    A tile of Q holds the rows of one head, or of `pack` heads of a group. Raises IosimError for a
    tile size below 1.

    >>> p = problem(AttentionShape(n_q=100, n_k=50, head_dim=8), br=32, bc=16)
    >>> p.query.blocks, p.key.blocks, p.S.held
    (4, 4, 'float32')
    """
    batch = Dim("batch", shape.batch, 1, symbol="b", count="b", indexed=True)
    kv_head = Dim("kv_head", shape.kv_heads, 1, symbol="h_kv", count="h_kv", indexed=True)
    group = Dim("group", shape.group, 1, symbol="g", count="g", indexed=True)
    if pack is not None:
        heads_of_tile = at_least_one("pack", pack)
        group = Dim("group", shape.group, heads_of_tile, symbol="g", count="T_g")
    br = shape.n_q if br is None else at_least_one("br", br)
    bc = shape.n_k if bc is None else at_least_one("bc", bc)
    query = Dim("query", shape.n_q, br, symbol="n_q", count="T_r")
    key = Dim("key", shape.n_k, bc, symbol="n_k", count="T_c")
    dim = Dim("dim", shape.head_dim, symbol="d", count="T_d")
    same = shape.value_dim == shape.head_dim
    value = Dim("value", shape.value_dim, symbol="d" if same else "d_v", count="T_v")
    heads = (batch, kv_head, group)
    wide, statistic = shape.accumulator_dtype, shape.statistic_dtype
    return Problem(
        shape=shape,
        batch=batch,
        kv_head=kv_head,
        group=group,
        query=query,
        key=key,
        dim=dim,
        value=value,
        Q=Tensor("Q", (*heads, query, dim), shape.dtype, "input"),
        K=Tensor("K", (batch, kv_head, key, dim), shape.dtype, "input"),
        V=Tensor("V", (batch, kv_head, key, value), shape.dtype, "input"),
        O=Tensor("O", (*heads, query, value), shape.dtype, "output", wide),
        LSE=Tensor("LSE", (*heads, query), statistic, "output"),
        S=Tensor("S", (*heads, query, key), shape.dtype, "slow", wide),
        P=Tensor("P", (*heads, query, key), shape.dtype, "slow", wide),
        m=Tensor("m", (*heads, query), statistic, "slow"),
        l=Tensor("l", (*heads, query), statistic, "slow"),
        mask=relation_of(shape),
    )


def at_least_one(name: str, size: int) -> int:
    """Return a tile size, or raise IosimError if it is no whole number of at least 1."""
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise IosimError(
            f"tile size {name} is {size!r}, but it must be a whole number of at least 1"
        )
    return size
