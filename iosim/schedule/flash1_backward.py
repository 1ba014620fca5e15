"""The backward pass of FlashAttention (FA1, Algorithm 4): keys outside, dQ in HBM and back."""

from iosim.schedule.attention_backward import backward_problem
from iosim.schedule.dropout_backward import drop_gradient, load_random_state, value_gradient
from iosim.schedule.flash1 import paper_tiles
from iosim.schedule.registry import schedule
from iosim.schedule.tree import Compute, For, Remark, Schedule, free, load, new, store
from iosim.shape import AttentionShape


@schedule(
    "flash1_backward",
    source="Dao et al. 2022, arXiv 2205.14135, Algorithm 4",
    paper=paper_tiles,  # the listing takes the block sizes of Algorithm 1, which fit in no M
    forward="flash1",
)
def flash1_backward(shape: AttentionShape, br: int, bc: int) -> Schedule:
    """FlashAttention-1's backward pass: K/V tiles with dK, dV outside; dQ goes to HBM and back.

    Tiles of `br` queries and `bc` keys, in rows. Per head 2 n_k (d + d_v) + T_c n_q (3d + 2 d_v +
    2) words without a mask, and n_q d + n_k (d + d_v) to initialise dQ, dK and dV; two live score
    tiles, P and dP. l and m come from the forward pass, and each tile of P is formed again.
    """
    p = backward_problem(shape, br, bc)
    Q, K, V, O, dO, l, m, S, D = p.Q, p.K, p.V, p.O, p.dO, p.l, p.m, p.S, p.D
    dP, dQ, dK, dV = p.dP, p.dQ, p.dK, p.dV
    clear_queries = "initialise dQ = 0 in HBM"
    clear_keys = "initialise dK = 0, dV = 0 in HBM"
    on_chip = "on chip, initialise dK_j = 0, dV_j = 0"
    body = (
        Remark(f"set block sizes B_c = {bc}, B_r = {br}"),
        Remark("divide Q into T_r blocks of B_r rows, K and V into T_c blocks of B_c rows"),
        Remark("divide O, dO, l, m into T_r blocks of B_r rows"),
        p.per_query_head(For(p.query, (
            *new(dQ),
            Compute("clear", (dQ,), (), clear_queries),
            *store(clear_queries, dQ),
            *free(dQ),
        ), line=clear_queries)),
        For(p.key, (
            *new(dK, dV),
            Compute("clear", (dK, dV), (), clear_keys),
            *store(clear_keys, dK, dV),
            *free(dK, dV),
        ), line=clear_keys),
        For(p.key, (
            *load("load K_j, V_j", K, V),
            *new(dK, dV),
            Compute("clear", (dK, dV), (), on_chip),
            p.per_query_head(For(p.query, (
                *load("load Q_i, O_i, dO_i, dQ_i, l_i, m_i", Q, O, dO, dQ, l, m),
                *new(S),
                Compute("scores", (S,), (Q, K), "compute S_ij = Q_i K_j^T, scaled and masked"),
                Compute("tile_softmax", (S,), (S, m, l),
                        "compute P_ij = diag(l_i)^-1 e^(S_ij - m_i)"),
                *value_gradient(p, "compute dV_j = dV_j + P_ij^T dO_i"),
                *new(dP),
                Compute("probability_gradient", (dP,), (dO, V), "compute dP_ij = dO_i V_j^T"),
                *drop_gradient(p),
                *new(D),
                Compute("row_dots", (D,), (dO, O), "compute D_i = rowsum(dO_i * O_i)"),
                Compute("score_gradient", (dP,), (S, dP, D),
                        "compute dS_ij = P_ij * (dP_ij - D_i)"),
                *free(D),
                Compute("query_gradient", (dQ,), (dP, K, dQ)),
                *store("write dQ_i with dS_ij K_j added, scaled", dQ),
                Compute("key_gradient", (dK,), (dP, Q, dK),
                        "compute dK_j = dK_j + dS_ij^T Q_i, scaled"),
                *free(dP, S, Q, O, dO, dQ, l, m),
            ), relation=p.mask, line="for 1 <= i <= T_r do")),
            Remark("end for i"),
            *store("write dK_j, dV_j", dK, dV),
            *free(dK, dV, K, V),
        ), line="for 1 <= j <= T_c do"),
        Remark("end for j"),
        Remark("return dQ, dK, dV"),
    )  # fmt: skip
    return Schedule(
        "flash1_backward",
        shape,
        load_random_state(p, p.per_kv_head(body)),
        p.mask,
        {"br": br, "bc": bc},
    )
