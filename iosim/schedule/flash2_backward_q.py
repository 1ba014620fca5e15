"""A backward pass of FlashAttention-2 without additions in HBM: dQ in a pass of its own."""

from iosim.schedule.attention_backward import backward_problem
from iosim.schedule.dropout_backward import load_random_state, value_gradient
from iosim.schedule.flash2_backward import probabilities, row_dots_pass, score_gradients
from iosim.schedule.registry import schedule
from iosim.schedule.tree import Compute, For, Remark, Schedule, free, load, new, store
from iosim.shape import AttentionShape


@schedule(
    "flash2_backward_q",
    source="after Dao 2023, arXiv 2307.08691, Algorithm 2, with queries outside for dQ",
    forward="flash2",
)
def flash2_backward_q(shape: AttentionShape, br: int, bc: int) -> Schedule:
    """A backward pass in two sweeps: dK, dV with K/V tiles outside, then dQ with Q tiles outside.

    Tiles of `br` queries and `bc` keys, in rows; two live score tiles, P and dP. Nothing is added
    to in slow memory, so that the result does not depend on the order in which blocks run; instead
    S and dP are formed twice. Per head n_q (2 d_v + 1) words for D, 2 n_k (d + d_v) + T_c n_q (d +
    d_v + 2) for dK and dV, and n_q (2d + d_v + 2) + T_r n_k (d + d_v) for dQ without a mask.
    """
    p = backward_problem(shape, br, bc)
    Q, K, V, dO, LSE, S, D, dP = p.Q, p.K, p.V, p.dO, p.LSE, p.S, p.D, p.dP
    dQ, dK, dV = p.dQ, p.dK, p.dV
    again = "on chip again"
    body = (
        Remark("divide Q into T_r blocks of B_r rows, K and V into T_c blocks of B_c rows"),
        Remark("divide O, dO, LSE into T_r blocks of B_r rows"),
        row_dots_pass(p),
        For(p.key, (
            *load("load K_j, V_j", K, V),
            *new(dK, dV),
            Compute("clear", (dK, dV), (), "on chip, initialise dK_j = 0, dV_j = 0"),
            p.per_query_head(For(p.query, (
                *load("load Q_i, dO_i, LSE_i, D_i", Q, dO, LSE, D),
                *new(S, dP),
                *probabilities(p),
                *value_gradient(p, "on chip, dV_j = dV_j + P_ij^T dO_i"),
                *score_gradients(p),
                Compute("key_gradient", (dK,), (dP, Q, dK),
                        "on chip, dK_j = dK_j + dS_ij^T Q_i, scaled"),
                *free(dP, S, D, LSE, dO, Q),
            ), relation=p.mask, line="for each tile i of queries that meets tile j do")),
            Remark("end for i"),
            *store("write dK_j, dV_j", dK, dV),
            *free(dK, dV, K, V),
        ), parallel=True, line="for 1 <= j <= T_c do"),
        Remark("end for j"),
        p.per_query_head(For(p.query, (
            *load("load Q_i, dO_i, LSE_i, D_i once more", Q, dO, LSE, D),
            *new(dQ),
            Compute("clear", (dQ,), (), "on chip, initialise dQ_i = 0"),
            For(p.key, (
                *load("load K_j, V_j again", K, V),
                *new(S, dP),
                *probabilities(p, again),
                *score_gradients(p, again),
                Compute("query_gradient", (dQ,), (dP, K, dQ),
                        "on chip, dQ_i = dQ_i + dS_ij K_j, scaled"),
                *free(dP, S, K, V),
            ), relation=p.mask, line="for each tile j of keys that meets tile i do"),
            Remark("end for j, again"),
            *store("write dQ_i", dQ),
            *free(dQ, D, LSE, dO, Q),
        ), parallel=True, line="for 1 <= i <= T_r do")),
        Remark("end for i, again"),
        Remark("return dQ, dK, dV"),
    )  # fmt: skip
    return Schedule(
        "flash2_backward_q",
        shape,
        load_random_state(p, p.per_kv_head(body)),
        p.mask,
        {"br": br, "bc": bc},
    )
