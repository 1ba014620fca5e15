"""Ring attention: queries stay where they are, keys and values go round all devices."""

from dataclasses import replace

from iosim.schedule.attention import Problem, problem
from iosim.schedule.dropout import save_random_state
from iosim.schedule.flash2 import key_loop
from iosim.schedule.layouts import laid_out, layout_of
from iosim.schedule.ranks import Others, Own, Ranks, shards
from iosim.schedule.registry import schedule
from iosim.schedule.tree import (
    Compute,
    Dim,
    For,
    Node,
    Remark,
    Schedule,
    Tensor,
    exchange,
    free,
    load,
    new,
    store,
)
from iosim.shape import AttentionShape


@schedule("ring", source="Liu, Zaharia and Abbeel 2023, arXiv 2310.01889, Algorithm 1")
def ring(
    shape: AttentionShape, br: int, bc: int, *, ranks: int = 1, layout: str = "contiguous"
) -> Schedule:
    """Ring attention: each rank keeps its queries, K and V shards go from rank to rank.

    Shards of ceil(n / p) rows, in tiles of `br` queries and `bc` keys. In each of p - 1 shifts a
    rank sends the shard of K and V that it has used and receives the next: (p - 1) n_k (d + d_v)
    words per head of keys and values over all ranks. The state (m, l, A) of its queries waits in
    slow memory in float32 between the shards. A causal mask skips tiles, but no shift.

    `layout` says which rows a shard holds (`iosim.schedule.layouts`): neighbours (contiguous),
    early and late ones (zigzag: Llama 3, arXiv 2407.21783, section 3.3.2), or every p-th (striped:
    Brandon et al. 2023, arXiv 2311.09431). The last two even out the work under a causal mask and
    take no other. Without a mask all layouts count alike.
    """
    p = problem(shape, br, bc)
    rank = shards(p.query, ranks, "queries", "rank")
    shard = shards(p.key, ranks, "keys", "shard")
    rows = layout_of(layout, p.query, ranks, "queries")
    columns = layout_of(layout, p.key, ranks, "keys")
    p = replace(p, mask=laid_out(p.mask, rows, columns))
    A = accumulator(p)
    query = p.query.within(rank)
    arrive = "send K_s and V_s to rank r + 1, take the next shard from rank r - 1"
    body = (
        Remark(f"rank r holds shard r of Q, K, V and O{_OF_SHARD[layout]}"),
        For(rank, save_random_state(p, (
            For(shard, p.per_head(_attend(p, A, rank, shard, first=True)),
                relation=Own("rank", "shard"), line="with its own shard of keys"),
            *(() if ranks == 1 else (
                For(shard, (
                    *exchange("shift", arrive, p.K, p.V),
                    *p.per_head(_attend(p, A, rank, shard, first=False)),
                ), relation=Others("rank", "shard"), line="for each of the p - 1 other shards s"),
            )),
            *p.per_head((finish(p, A, query),)),
        )), parallel=True, line="on each rank r, at the same time"),
        Remark("return O and LSE"),
    )  # fmt: skip
    mine, theirs = p.query.cut(rank.block), p.key.cut(shard.block)
    holds = {"Q": mine, "O": mine, "LSE": mine, "K": theirs, "V": theirs}
    tiles = {"br": br, "bc": bc, "ranks": ranks, "layout": layout}
    layouts = {"query": rows, "key": columns}
    return Schedule("ring", shape, body, p.mask, tiles, Ranks(rank, holds, layouts))


_OF_SHARD = {
    "contiguous": "",
    "zigzag": ": rows from the front and as many from the back",
    "striped": ": every p-th row from row r on",
}


def accumulator(p: Problem) -> Tensor:
    """Return the tensor of unnormalised outputs that wait in slow memory, in float32."""
    return Tensor("A", p.O.axes, p.shape.accumulator_dtype, "slow")


def finish(p: Problem, A: Tensor, query: Dim) -> For:
    """Return the pass that turns states (m, l, A) in slow memory into O and LSE."""
    O, LSE, l, m = p.O, p.LSE, p.l, p.m
    return For(query, (
        *load("load A_i, l_i, m_i", A, l, m),
        *new(O),
        Compute("finish_state", (O,), (A, l), "O_i = diag(l_i)^-1 A_i"),
        *store("write O_i", O),
        *free(O, A),
        *new(LSE),
        Compute("log_sum_exp", (LSE,), (m, l), "LSE_i = m_i + log l_i"),
        *store("write LSE_i", LSE),
        *free(LSE, l, m),
    ), parallel=True, line="for each tile i of its queries, to finish")  # fmt: skip


def _attend(p: Problem, A: Tensor, rank: Dim, shard: Dim, *, first: bool) -> tuple[Node, ...]:
    Q, l, m = p.Q, p.l, p.m
    query, key, state = p.query.within(rank), p.key.within(shard), replace(p, O=A)
    if first:
        return (
            For(query, (
                *load("load Q_i", Q),
                *new(A, l, m),
                Compute("start_state", (A, l, m), (), "A_i = 0, l_i = 0, m_i = -inf"),
                key_loop(state, key, " of its shard"),
                *store("write A_i, l_i, m_i", A, l, m),
                *free(A, l, m, Q),
            ), parallel=True, line="for each tile i of its queries"),
        )  # fmt: skip
    return (
        For(query, (
            *load("load Q_i again, and A_i, l_i, m_i so far", Q, A, l, m),
            key_loop(state, key, " of shard s"),
            *store("write A_i, l_i, m_i again", A, l, m),
            *free(A, l, m, Q),
        ), relation=p.mask, parallel=True, line="for each tile i of its queries that sees s"),
    )  # fmt: skip
