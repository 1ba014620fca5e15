"""FlashAttention-2 (FA2, Algorithm 1): queries outside, keys inside, O and statistics on chip."""

from iosim.schedule.attention import Problem, problem
from iosim.schedule.dropout import drop_tile, save_random_state
from iosim.schedule.registry import schedule
from iosim.schedule.tree import (
    Compute,
    Dim,
    For,
    Node,
    Remark,
    Schedule,
    free,
    load,
    new,
    store,
)
from iosim.shape import AttentionShape


def mirrored_tiles(shape: AttentionShape, words: int) -> dict[str, int]:
    """Return B_r = ceil(M / 4d), B_c = min(B_r, d) for M words: FA1's rule with the loops swapped.

    With FA1's own B_r = min(B_c, d) the traffic of this order would not fall with M.
    """
    br = max(-(-words // (2 * (shape.head_dim + shape.value_dim))), 1)
    return {"br": min(br, shape.n_q), "bc": min(br, shape.head_dim, shape.n_k)}


@schedule("flash2", source="Dao 2023, arXiv 2307.08691, Algorithm 1", paper=mirrored_tiles)
def flash2(shape: AttentionShape, br: int, bc: int) -> Schedule:
    """FlashAttention-2: Q tiles outside, K/V tiles inside; O, l and m stay on chip, LSE is written.

    Tiles of `br` queries and `bc` keys, in rows. Per head n_q d + T_r n_k (d + d_v) words read,
    n_q (d_v + 1) written without a mask; one live S/P tile.
    """
    p = problem(shape, br, bc)
    body = query_loop(p, (key_loop(p, p.key), Remark("end for j")))
    return Schedule(
        "flash2", shape, save_random_state(p, p.per_head(body)), p.mask, {"br": br, "bc": bc}
    )


def query_loop(p: Problem, over_keys: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return the loop over Q tiles around what goes over the keys, and the remarks about it."""
    return (
        Remark("divide Q into T_r blocks of B_r rows, K and V into T_c blocks of B_c rows"),
        Remark("divide O and LSE into T_r blocks of B_r rows"),
        For(p.query, (
            *rows_from_chip(p, over_keys),
            *store("write O_i", p.O),
            *store("write LSE_i", p.LSE),
            *free(p.LSE, p.m, p.l, p.O, p.Q),
        ), parallel=True, line="for 1 <= i <= T_r do"),
        Remark("end for i"),
        Remark("return O and LSE"),
    )  # fmt: skip


def rows_from_chip(p: Problem, over_keys: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return the steps from loading Q_i to finished rows of O and LSE in fast memory."""
    O, LSE, m, l = p.O, p.LSE, p.m, p.l
    return (
        *load("load Q_i", p.Q),
        *new(O, l, m),
        Compute("start_state", (O, l, m), (), "on chip, initialise O_i = 0, l_i = 0, m_i = -inf"),
        *over_keys,
        Compute("normalise", (O,), (O, l), "on chip, O_i = diag(l_i)^-1 O_i"),
        *new(LSE),
        Compute("log_sum_exp", (LSE,), (m, l), "on chip, LSE_i = m_i + log l_i"),
    )


def key_loop(p: Problem, key: Dim, of: str = "") -> For:
    """Return the loop over K/V tiles, cut as `key` says, that adds each to the rows on chip.

    `of` says in the listing whose tiles they are.
    """
    Q, K, V, O, S, m, l = p.Q, p.K, p.V, p.O, p.S, p.m, p.l
    return For(key, (
        *load(f"load K_j, V_j{of}", K, V),
        *new(S),
        Compute("scores", (S,), (Q, K), "on chip, compute S_ij = Q_i K_j^T"),
        Compute("rescale_state", (O, l, m), (S, O, l, m),
                "on chip, m_i = max(m_i, rowmax S_ij), rescale l_i and O_i"),
        Compute("exponentiate", (S,), (S, m), "on chip, P_ij = e^(S_ij - m_i)"),
        Compute("add_row_sums", (l,), (S, l), "on chip, l_i = l_i + rowsum P_ij"),
        *drop_tile(p, S),
        Compute("accumulate", (O,), (S, V, O), "on chip, O_i = O_i + P_ij V_j"),
        *free(S, K, V),
    ), relation=p.mask, line=f"for 1 <= j <= T_c{of} do")  # fmt: skip
