"""A schedule of one's own: FlashAttention-2 that never holds a tile of K and one of V together."""

from iosim.schedule import Compute, For, Schedule, free, load, new, problem, store


def keys_then_values(shape, br, bc):
    """Q outside; K_j is released before V_j is loaded: less memory, but not fused."""
    p = problem(shape, br, bc)
    Q, K, V, O, S, m, l = p.Q, p.K, p.V, p.O, p.S, p.m, p.l
    inner = (
        *load("load K_j", K), *new(S),
        Compute("scores", (S,), (Q, K), "S_ij = Q_i K_j^T"), *free(K),
        *load("load V_j", V),
        Compute("rescale_state", (O, l, m), (S, O, l, m), "rescale O_i, l_i to the new m_i"),
        Compute("exponentiate", (S,), (S, m), "P_ij = e^(S_ij - m_i)"),
        Compute("add_row_sums", (l,), (S, l), "l_i = l_i + rowsum P_ij"),
        Compute("accumulate", (O,), (S, V, O), "O_i = O_i + P_ij V_j"), *free(S, V),
    )  # fmt: skip
    outer = (
        *load("load Q_i", Q), *new(O, l, m), Compute("start_state", (O, l, m), ()),
        For(p.key, inner, relation=p.mask, line="for each tile j of keys"),
        Compute("normalise", (O,), (O, l)), *store("write O_i", O), *free(Q, O, l, m),
    )  # fmt: skip
    body = p.per_head([For(p.query, outer, parallel=True, line="for each tile i of queries")])
    return Schedule("keys_then_values", shape, body, p.mask, {"br": br, "bc": bc})
