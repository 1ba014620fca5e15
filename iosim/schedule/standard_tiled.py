"""Standard attention with its two matmuls tiled for a finite fast memory."""

from iosim.schedule.attention import problem
from iosim.schedule.dropout import dropout_pass, dropped
from iosim.schedule.registry import schedule
from iosim.schedule.tree import Compute, For, Remark, Schedule, free, load, new, store
from iosim.shape import AttentionShape


@schedule("standard_tiled", source="outer-product tiling: Smith et al. 2019, arXiv 1702.02017")
def standard_tiled(shape: AttentionShape, br: int, bc: int) -> Schedule:
    """Standard attention, each matmul by outer products into a resident tile; legal in any small M.

    A tile of S has br x bc words, one of O br x min(bc, d_v); beside it lie one column and one row
    of the operands. The row statistics are a pass over S of their own. A causal mask skips nothing.
    """
    p = problem(shape, br, bc)
    Q, K, V, O, S, P, m, l = p.Q, p.K, p.V, p.O, p.S, p.P, p.m, p.l
    P_d = dropped(p)
    row = p.query.cut(1, "n_q")
    column, key = p.dim.cut(1, "d"), p.key.cut(1, "n_k")
    value = p.value.cut(min(bc, shape.value_dim))
    body = (
        Remark("pass 1: S = Q K^T, tile by tile"),
        For(p.query, (
            For(p.key, (
                *new(S),
                Compute("clear", (S,), ()),
                For(column, (
                    *load("load a column of Q_i and of K_j", Q, K),
                    Compute("add_scores", (S,), (Q, K, S), "S_ij = S_ij + outer product"),
                    *free(Q, K),
                ), line="for each column of Q and K"),
                Compute("finish_scores", (S,), (S,), "scale and mask S_ij"),
                *store("write S_ij", S),
                *free(S),
            ), line="for each tile j of keys"),
        ), parallel=True, line="for each tile i of queries"),
        Remark("pass 2: P = softmax(S), row by row"),
        For(row, (
            *new(m, l),
            Compute("start_statistics", (l, m), ()),
            For(p.key, (
                *load("read a piece of S for its maximum and sum", S),
                Compute("rescale_statistics", (l, m), (S, l, m)),
                Compute("add_exponential_sums", (l,), (S, m, l)),
                *free(S),
            ), line="for each piece of the row"),
            For(p.key, (
                *load("read the piece again", S),
                *new(P),
                Compute("tile_softmax", (P,), (S, m, l), "P = e^(S - m) / l"),
                *store("write the piece of P", P),
                *free(S, P),
            ), line="for each piece of the row, again"),
            *free(m, l),
        ), parallel=True, line="for each row"),
        *dropout_pass(p, row, p.key),
        Remark("pass 3: O = P V, tile by tile"),
        For(p.query, (
            For(value, (
                *new(O),
                Compute("clear", (O,), ()),
                For(key, (
                    *load("load a column of P_i and a row of V", P_d, V),
                    Compute("accumulate", (O,), (P_d, V, O), "O_ic = O_ic + outer product"),
                    *free(P_d, V),
                ), line="for each key"),
                *store("write O_ic", O),
                *free(O),
            ), line="for each tile c of value columns"),
        ), parallel=True, line="for each tile i of queries of O"),
    )  # fmt: skip
    return Schedule("standard_tiled", shape, p.per_head(body), p.mask, {"br": br, "bc": bc})
