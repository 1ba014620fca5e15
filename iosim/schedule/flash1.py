"""FlashAttention (FA1, Algorithm 1): keys outside, queries inside, O and statistics in HBM."""

from iosim.schedule.attention import problem
from iosim.schedule.dropout import drop_tile, save_random_state
from iosim.schedule.registry import schedule
from iosim.schedule.tree import Compute, For, Remark, Schedule, free, load, new, store
from iosim.shape import AttentionShape


def paper_tiles(shape: AttentionShape, words: int) -> dict[str, int]:
    """Return B_c = ceil(M / 4d), B_r = min(B_c, d), line 1 of the listing, for M words.

    With value_dim != head_dim, 4d becomes 2 (d + d_v), the words that the rule divides M by.
    """
    bc = max(-(-words // (2 * (shape.head_dim + shape.value_dim))), 1)
    return {"br": min(bc, shape.head_dim, shape.n_q), "bc": min(bc, shape.n_k)}


@schedule(
    "flash1", source="Dao et al. 2022, arXiv 2205.14135, Algorithms 1 and 5", paper=paper_tiles
)
def flash1(shape: AttentionShape, br: int, bc: int) -> Schedule:
    """FlashAttention-1: K/V tiles outside, Q tiles inside; O, l and m go to HBM and back each time.

    Tiles of `br` queries and `bc` keys, in rows. Per head 2 n_k d + T_c n_q (2d + 2) words read,
    n_q (d + 2) + T_c n_q (d + 2) written without a mask; one live S/P tile. With a mask it is
    block-sparse FlashAttention (Algorithm 5): what is hidden whole is left out, but K_j and V_j are
    loaded for every j.
    """
    p = problem(shape, br, bc)
    Q, K, V, O, S, m, l = p.Q, p.K, p.V, p.O, p.S, p.m, p.l
    initialise = "initialise O = 0, l = 0, m = -inf in HBM"
    skip, kept = ((Remark("if M_ij != 0 then"),), (Remark("end if"),)) if shape.mask else ((), ())
    probabilities = "compute row maxima of S_ij, P_ij = e^(S_ij - maximum) and its row sums"
    body = (
        Remark(f"set block sizes B_c = {bc}, B_r = {br}"),
        For(p.query, (
            *new(O, l, m),
            Compute("start_state", (O, l, m), (), initialise),
            *store(initialise, O, l, m),
            *free(O, l, m),
        ), line=initialise),
        Remark("divide Q into T_r blocks of B_r rows, K and V into T_c blocks of B_c rows"),
        Remark("divide O, l, m into T_r blocks of B_r rows"),
        For(p.key, (
            *load("load K_j, V_j", K, V),
            For(p.query, (
                *skip,
                *load("load Q_i, O_i, l_i, m_i", Q, O, l, m),
                *new(S),
                Compute("scores", (S,), (Q, K), "compute S_ij = Q_i K_j^T"),
                Compute("unnormalise", (O,), (O, l)),
                Compute("rescale_state", (O, l, m), (S, O, l, m)),
                Compute("exponentiate", (S,), (S, m), probabilities),
                Compute("add_row_sums", (l,), (S, l), "compute the new m_i and l_i"),
                *drop_tile(p, S),
                Compute("accumulate", (O,), (S, V, O)),
                Compute("normalise", (O,), (O, l)),
                *store("write O_i, rescaled and with P_ij V_j added", O),
                *store("write l_i, m_i", l, m),
                *free(S, Q, O, l, m),
                *kept,
            ), relation=p.mask, line="for 1 <= i <= T_r do"),
            Remark("end for i"),
            *free(K, V),
        ), line="for 1 <= j <= T_c do"),
        Remark("end for j"),
        Remark("return O"),
    )  # fmt: skip
    return Schedule(
        "flash1", shape, save_random_state(p, p.per_head(body)), p.mask, {"br": br, "bc": bc}
    )
