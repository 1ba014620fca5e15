"""Tree attention for decoding: queries on every device, keys divided, partial results merged."""

from dataclasses import replace

from iosim.errors import IosimError
from iosim.schedule.attention import problem
from iosim.schedule.dropout import save_random_state
from iosim.schedule.flash2 import key_loop
from iosim.schedule.ranks import Butterfly, Ranks, shards
from iosim.schedule.registry import schedule
from iosim.schedule.ring import accumulator, finish
from iosim.schedule.tree import (
    Compute,
    Dim,
    For,
    Move,
    Remark,
    Schedule,
    Tensor,
    free,
    load,
    new,
    store,
)
from iosim.shape import AttentionShape


@schedule("tree_decoding", source="Shyam et al. 2024, arXiv 2408.04093; recursive doubling")
def tree_decoding(shape: AttentionShape, br: int, bc: int, *, ranks: int = 1) -> Schedule:
    """Tree attention: each rank attends to its own keys, then ranks merge states pairwise.

    Every rank has all queries and a shard of ceil(n_k / p) keys, in tiles of `br` and `bc` rows. In
    each of log2 p rounds a rank exchanges the states (m, l, A) of all queries with its partner at
    distance 1, 2, 4, ...: log2 p (d_v + 2) words per query and head, in float32. In the end every
    rank has O and LSE. The ranks must be a power of two.
    """
    p = problem(shape, br, bc)
    rank = shards(p.key, ranks, "keys", "rank")
    if ranks & (ranks - 1):
        raise IosimError(
            f"ranks is {ranks}, but tree_decoding merges the results of ranks r and r xor 2^k; "
            "give a power of two"
        )
    peer = Dim("peer", ranks, 1, symbol="p", count="p", indexed=True)
    Q, l, m = p.Q, p.l, p.m
    A = accumulator(p)
    B = Tensor("B", A.axes, A.dtype, "slow")
    l_B, m_B = (Tensor(f"{t.name}_B", t.axes, t.dtype, "slow") for t in (l, m))
    swap = "exchange A, l, m of all queries with rank s"
    body = (
        Remark("rank r holds Q and shard r of K and V, and ends with O and LSE"),
        For(rank, save_random_state(p, (
            *p.per_head((
                For(p.query, (
                    *load("load Q_i", Q),
                    *new(A, l, m),
                    Compute("start_state", (A, l, m), (), "A_i = 0, l_i = 0, m_i = -inf"),
                    key_loop(replace(p, O=A), p.key.within(rank), " of its keys"),
                    *store("write A_i, l_i, m_i", A, l, m),
                    *free(A, l, m, Q),
                ), parallel=True, line="for each tile i of queries"),
            )),
            *(() if ranks == 1 else (
                For(peer, (
                    *(Move("receive", theirs, swap, own)
                      for theirs, own in ((B, A), (l_B, l), (m_B, m))),
                    *p.per_head((
                        For(p.query, (
                            *load("load both states of Q_i", A, l, m, B, l_B, m_B),
                            Compute("merge_states", (A, l, m), (B, l_B, m_B, A, l, m),
                                    "merge them"),
                            *store("write A_i, l_i, m_i, merged", A, l, m),
                            *free(A, l, m, B, l_B, m_B),
                        ), parallel=True, line="for each tile i of queries, to merge"),
                    )),
                ), relation=Butterfly("rank", "peer"),
                    line="for each partner s = r xor 1, r xor 2, r xor 4, ..."),
            )),
            *p.per_head((finish(p, A, p.query),)),
        )), parallel=True, line="on each rank r, at the same time"),
        Remark("return O and LSE"),
    )  # fmt: skip
    shard = p.key.cut(rank.block)
    tiles = {"br": br, "bc": bc, "ranks": ranks}
    return Schedule(
        "tree_decoding", shape, body, p.mask, tiles, Ranks(rank, {"K": shard, "V": shard})
    )
