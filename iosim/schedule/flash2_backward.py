"""The backward pass of FlashAttention-2 (FA2, Algorithm 2): keys outside, dQ added to in HBM."""

from iosim.schedule.attention_backward import BackwardProblem, backward_problem
from iosim.schedule.dropout_backward import drop_gradient, load_random_state, value_gradient
from iosim.schedule.registry import schedule
from iosim.schedule.tree import Compute, For, Node, Remark, Schedule, add, free, load, new, store
from iosim.shape import AttentionShape


@schedule(
    "flash2_backward",
    source="Dao 2023, arXiv 2307.08691, Algorithm 2",
    forward="flash2",
)
def flash2_backward(shape: AttentionShape, br: int, bc: int) -> Schedule:
    """FlashAttention-2's backward pass: K/V tiles with dK, dV outside; dQ is added to in HBM.

    Tiles of `br` queries and `bc` keys, in rows; two live score tiles, P and dP. Per head
    2 n_k (d + d_v) + T_c n_q (d + d_v + 2) words read and written and T_c n_q d added without a
    mask; n_q (2 d_v + 1) for D and n_q d to clear dQ before, and 2 n_q d to convert dQ after, where
    its sums are wider than Q. O and LSE come from the forward pass, and P is formed again.
    """
    p = backward_problem(shape, br, bc)
    Q, K, V, dO, LSE, S, D, dP, dK, dV = p.Q, p.K, p.V, p.dO, p.LSE, p.S, p.D, p.dP, p.dK, p.dV
    convert = p.dQ.dtype != p.dQ_sum.dtype
    dQ = p.dQ_sum if convert else p.dQ
    clear = "initialise dQ = 0 in HBM"
    body = (
        Remark("divide Q into T_r blocks of B_r rows, K and V into T_c blocks of B_c rows"),
        Remark("divide O, dO, LSE into T_r blocks of B_r rows"),
        p.per_query_head(For(p.query, (
            *new(dQ),
            Compute("clear", (dQ,), (), clear),
            *store(clear, dQ),
            *free(dQ),
        ), line=clear)),
        row_dots_pass(p),
        For(p.key, (
            *load("load K_j, V_j", K, V),
            *new(dK, dV),
            Compute("clear", (dK, dV), (), "on chip, initialise dK_j = 0, dV_j = 0"),
            p.per_query_head(For(p.query, (
                *load("load Q_i, dO_i, LSE_i, D_i", Q, dO, LSE, D),
                *new(dQ, S, dP),
                Compute("clear", (dQ,), ()),
                *probabilities(p),
                *value_gradient(p, "on chip, dV_j = dV_j + P_ij^T dO_i"),
                *score_gradients(p),
                Compute("query_gradient", (dQ,), (dP, K, dQ)),
                *add("add dS_ij K_j, scaled, to dQ_i in HBM", dQ),
                Compute("key_gradient", (dK,), (dP, Q, dK),
                        "on chip, dK_j = dK_j + dS_ij^T Q_i, scaled"),
                *free(dP, S, dQ, D, LSE, dO, Q),
            ), relation=p.mask, line="for 1 <= i <= T_r do")),
            Remark("end for i"),
            *store("write dK_j, dV_j", dK, dV),
            *free(dK, dV, K, V),
        ), parallel=True, line="for 1 <= j <= T_c do"),
        Remark("end for j"),
        *(_conversion(p) if convert else ()),
        Remark("return dQ, dK, dV"),
    )  # fmt: skip
    return Schedule(
        "flash2_backward",
        shape,
        load_random_state(p, p.per_kv_head(body)),
        p.mask,
        {"br": br, "bc": bc},
    )


def row_dots_pass(p: BackwardProblem) -> For:
    """Return the pass that comes first: D = rowsum(dO * O) into slow memory, tile by tile."""
    line = "compute D = rowsum(dO * O), write D to HBM"
    return p.per_query_head(For(p.query, (
        *load(line, p.dO, p.O),
        *new(p.D),
        Compute("row_dots", (p.D,), (p.dO, p.O), line),
        *store(line, p.D),
        *free(p.D, p.dO, p.O),
    ), parallel=True, line=line))  # fmt: skip


def probabilities(p: BackwardProblem, when: str = "on chip") -> tuple[Node, ...]:
    """Return the nodes that form P_ij again, in the place of S_ij."""
    return (
        Compute("scores", (p.S,), (p.Q, p.K), f"{when}, S_ij = Q_i K_j^T, scaled and masked"),
        Compute("exponentiate", (p.S,), (p.S, p.LSE), f"{when}, P_ij = e^(S_ij - LSE_i)"),
    )


def score_gradients(p: BackwardProblem, when: str = "on chip") -> tuple[Node, ...]:
    """Return the nodes that form dP_ij and then dS_ij, in the place of dP_ij."""
    return (
        Compute("probability_gradient", (p.dP,), (p.dO, p.V), f"{when}, dP_ij = dO_i V_j^T"),
        *drop_gradient(p),
        Compute(
            "score_gradient", (p.dP,), (p.S, p.dP, p.D), f"{when}, dS_ij = P_ij * (dP_ij - D_i)"
        ),
    )


def _conversion(p: BackwardProblem) -> tuple[Node, ...]:
    """Return the pass that comes last: dQ from the dtype of its sums to that of Q."""
    line = f"convert dQ from {p.dQ_sum.dtype} to {p.dQ.dtype}"
    return (
        p.per_query_head(For(p.query, (
            *load(line, p.dQ_sum),
            *new(p.dQ),
            Compute("copy", (p.dQ,), (p.dQ_sum,), line),
            *store(line, p.dQ),
            *free(p.dQ, p.dQ_sum),
        ), parallel=True, line=line)),
    )  # fmt: skip
