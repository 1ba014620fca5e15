"""A schedule of one's own: like flash2, but K_j and V_j are never in fast memory together."""

from iosim.schedule import Compute, For, Schedule, free, load, new, problem, store


def split_loads(shape, br, bc):
    """Load K_j, release it, then load V_j: less room for tiles, but no longer fused."""
    p = problem(shape, br, bc)
    Q, K, V, O, S, m, l = p.Q, p.K, p.V, p.O, p.S, p.m, p.l
    step = (
        *load("load K_j", K), *new(S),
        Compute("scores", (S,), (Q, K), "compute S_ij = Q_i K_j^T"), *free(K),
        Compute("rescale_state", (O, l, m), (S, O, l, m), "raise m_i, rescale l_i and O_i"),
        Compute("exponentiate", (S,), (S, m), "P_ij = e^(S_ij - m_i)"),
        Compute("add_row_sums", (l,), (S, l), "l_i = l_i + rowsum P_ij"),
        *load("load V_j", V),
        Compute("accumulate", (O,), (S, V, O), "O_i = O_i + P_ij V_j"), *free(S, V),
    )
    rows = (
        *load("load Q_i", Q), *new(O, l, m),
        Compute("start_state", (O, l, m), (), "O_i = 0, l_i = 0, m_i = -inf"),
        For(p.key, step, relation=p.mask, line="for each tile j of keys"),
        Compute("normalise", (O,), (O, l), "O_i = O_i / l_i"),
        *store("write O_i", O), *free(Q, O, l, m),
    )
    body = p.per_head([For(p.query, rows, parallel=True, line="for each tile i of queries")])
    return Schedule("split_loads", shape, body, p.mask, {"br": br, "bc": bc})
