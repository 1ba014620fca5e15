"""The axes and tensors that backward schedules of attention share."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from iosim.schedule.attention import Problem, problem
from iosim.schedule.tree import For, Node, Tensor
from iosim.shape import AttentionShape

# What a forward schedule may leave in slow memory for the backward pass.
KEPT = ("O", "LSE", "m", "l", "P")


@dataclass(frozen=True)
class BackwardProblem(Problem):
    """A `Problem` with the gradients, where what the forward pass left (see KEPT) is an input.

    dO, the gradient of O, is an input; dQ, dK and dV must end in slow memory, in the dtype of Q.
    They are sums, and held on chip in the accumulator's dtype; `dQ_sum` is dQ as it is while it is
    summed in slow memory, in that dtype. `D` is rowsum(dO * O); dP and dS are matrices like S and
    P. K, V and their gradients have no axis over the query heads that share them: dK and dV are
    sums over these heads, which therefore must be looped over inside the tile of keys.
    """

    dO: Tensor
    D: Tensor
    dP: Tensor
    dS: Tensor
    dQ: Tensor
    dQ_sum: Tensor
    dK: Tensor
    dV: Tensor

    def per_kv_head(self, body: Sequence[Node]) -> tuple[Node, ...]:
        """Return the body repeated for every batch entry and key-value head."""
        return (For(self.batch, (For(self.kv_head, tuple(body), parallel=True),), parallel=True),)

    def per_query_head(self, *body: Node) -> For:
        """Return the body repeated for each query head of the current key-value head."""
        return For(self.group, body)


def backward_problem(
    shape: AttentionShape, br: int | None = None, bc: int | None = None
) -> BackwardProblem:
    """Return the axes and tensors of a shape, in tiles of `br` queries and `bc` keys (None: all).

    Raises IosimError for a tile size below 1.

    >>> p = backward_problem(AttentionShape(n_q=100, n_k=50, head_dim=8), br=32, bc=16)
    >>> p.O.place, p.dQ.dtype, p.dQ.held, p.dQ_sum.dtype
    ('input', 'float16', 'float32', 'float32')
    """
    p = problem(shape, br, bc)
    shared = {field.name: getattr(p, field.name) for field in fields(Problem)}
    shared |= {name: replace(shared[name], place="input") for name in KEPT}
    wide = shape.accumulator_dtype
    heads = (p.batch, p.kv_head, p.group)
    return BackwardProblem(
        **shared,
        dO=Tensor("dO", (*heads, p.query, p.value), shape.dtype, "input"),
        D=Tensor("D", (*heads, p.query), shape.statistic_dtype, "slow"),
        dP=Tensor("dP", (*heads, p.query, p.key), shape.dtype, "slow", wide),
        dS=Tensor("dS", (*heads, p.query, p.key), shape.dtype, "slow", wide),
        dQ=Tensor("dQ", (*heads, p.query, p.dim), shape.dtype, "output", wide),
        dQ_sum=Tensor("dQ_sum", (*heads, p.query, p.dim), wide, "slow"),
        dK=Tensor("dK", (p.batch, p.kv_head, p.key, p.dim), shape.dtype, "output", wide),
        dV=Tensor("dV", (p.batch, p.kv_head, p.key, p.value), shape.dtype, "output", wide),
    )
