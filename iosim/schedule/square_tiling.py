"""Square tiling for small fast memories, M < d^2: S in slow memory, softmax fused into both passes.

Saha and Ye's listing stores A = e^S, which overflows. Here S itself is stored. The maximum m and
the sum l of each row stay on chip while the row block of S is made, go to slow memory once and come
back once: N words more each way than the listing, which stores l alone.
"""

from math import isqrt

from iosim.errors import IosimError
from iosim.schedule.attention import Problem, problem
from iosim.schedule.dropout import drop_tile, save_random_state
from iosim.schedule.registry import schedule
from iosim.schedule.tree import Compute, Dim, For, Node, Remark, Schedule, free, load, new, store
from iosim.shape import AttentionShape

SOURCE = "Saha and Ye 2024, arXiv 2402.07443, Algorithm 1"


def printed_tiles(shape: AttentionShape, words: int) -> dict[str, int]:
    """Return B_r = B_c = B = floor(sqrt(M / 4)), the listing's tile for M words, at least 1.

    >>> printed_tiles(AttentionShape(1024, 1024, 64), 1024)
    {'br': 16, 'bc': 16}
    """
    side = max(isqrt(max(words, 0) // 4), 1)
    return {"br": min(side, shape.n_q), "bc": min(side, max(shape.n_k, shape.value_dim))}


@schedule("square_tiling", source=SOURCE, paper=printed_tiles)
def square_tiling(shape: AttentionShape, br: int, bc: int) -> Schedule:
    """Square tiling: tiles of S are made from slices of Q and K, and go through slow memory once.

    A tile of S has `br` x `bc` words, one of O `br` x min(`bc`, d_v). A slice is one column of Q
    and K, or one key of S and V: its width moves no word and costs room, so that the listing's
    squares (`listed`) move as much in more memory. Per head T_c n_q d + T_r n_k (d + d_v) +
    T_v n_q n_k + 2 n_q words read and n_q n_k + 2 n_q + n_q d_v written, with
    T_v = ceil(d_v / B_c); it holds at most B_r B_c + 3 B_r + B_c. A mask skips nothing.
    """
    p = problem(shape, br, bc)
    slices = p.dim.cut(1, "d"), p.key.cut(1, "n_k")
    body = save_random_state(p, p.per_head(_body(p, bc, *slices)))
    return Schedule("square_tiling", shape, body, p.mask, {"br": br, "bc": bc})


def listed(shape: AttentionShape, b: int, *, maximum: bool = True) -> Schedule:
    """Return the listing with its own tiles: squares of `b` x `b` words throughout.

    Without the `maximum`, as printed: A = e^S and its row sums l are stored, per head
    2 n N d + N + k N^2 + n N d words read and N^2 + N + N d written, with n = ceil(N / b) and
    k = ceil(d / b); scores above 11.1 overflow in float16, above 88.7 in float32, and there is no
    dropout. Raises IosimError for b below 1.

    >>> from iosim.reading.count import count
    >>> traffic = count(listed(AttentionShape(1024, 1024, 64), 16, maximum=False))
    >>> traffic.read_words, traffic.write_words
    (16778240, 1115136)
    """
    if b < 1:
        raise IosimError(f"tile size b is {b}, but it must be at least 1")
    p = problem(shape, b, b)
    slices = p.dim.cut(b, "T_d"), p.key
    name = "square_tiling, as listed" if maximum else "square_tiling, as printed"
    body = p.per_head(_body(p, b, *slices) if maximum else _printed(p, b, *slices))
    return Schedule(name, shape, save_random_state(p, body), p.mask, {"b": b})


def _body(p: Problem, bc: int, column: Dim, key: Dim) -> tuple[Node, ...]:
    S, V, O, m, l = p.S, p.V, p.O, p.m, p.l
    return (
        Remark("pass 1: S = Q K^T, tile by tile, with the maximum and the sum of each row"),
        For(p.query, (
            *new(m, l),
            Compute("start_statistics", (l, m), (), "on chip, m_i = -inf, l_i = 0"),
            For(p.key, (
                *_scores(p, column),
                Compute("round_scores", (S,), (S,)),
                Compute("rescale_statistics", (l, m), (S, l, m),
                        "on chip, m_i = max(m_i, rowmax S_ij), rescale l_i"),
                Compute("add_exponential_sums", (l,), (S, m, l),
                        "on chip, l_i = l_i + rowsum e^(S_ij - m_i)"),
                *store("write S_ij", S),
                *free(S),
            ), line="for each tile j of keys"),
            *store("write m_i, l_i", m, l),
            *free(m, l),
        ), parallel=True, line="for each tile i of queries"),
        Remark("pass 2: O = diag(l)^-1 e^(S - m) V, tile by tile"),
        For(p.query, (
            *load("load m_i, l_i", m, l),
            For(_columns(p, bc), (
                *new(O),
                Compute("clear", (O,), ()),
                For(key, (
                    *load("load a slice of S_i and of V", S, V),
                    Compute("exponentiate", (S,), (S, m), "on chip, P = e^(S - m_i)"),
                    *drop_tile(p, S),
                    Compute("accumulate", (O,), (S, V, O), "O_ic = O_ic + P V"),
                    *free(S, V),
                ), line="for each slice of keys"),
                Compute("normalise", (O,), (O, l), "O_ic = diag(l_i)^-1 O_ic"),
                *store("write O_ic", O),
                *free(O),
            ), line="for each tile c of value columns"),
            *free(m, l),
        ), parallel=True, line="for each tile i of queries of O"),
    )  # fmt: skip


def _printed(p: Problem, b: int, column: Dim, key: Dim) -> tuple[Node, ...]:
    S, V, O, l = p.S, p.V, p.O, p.l
    return (
        For(p.query, (
            *new(l),
            Compute("clear", (l,), ()),
            For(p.key, (
                *_scores(p, column),
                Compute("bare_exponentials", (S,), (S,), "A_ij = e^(S_ij)"),
                Compute("add_row_sums", (l,), (S, l), "l_i = l_i + rowsum A_ij"),
                *store("write A_ij", S),
                *free(S),
            ), line="for each tile j of keys"),
            *store("write l_i", l),
            *free(l),
        ), line="for each tile i of queries"),
        For(p.query, (
            *load("load l_i", l),
            For(_columns(p, b), (
                *new(O),
                Compute("clear", (O,), ()),
                For(key, (
                    *load("load A_ij, V_jc", S, V),
                    *drop_tile(p, S),
                    Compute("accumulate", (O,), (S, V, O), "O_ic = O_ic + A_ij V_jc"),
                    *free(S, V),
                ), line="for each tile j of keys again"),
                Compute("normalise", (O,), (O, l), "O_ic = diag(l_i)^-1 O_ic"),
                *store("write O_ic", O),
                *free(O),
            ), line="for each tile c of value columns"),
            *free(l),
        ), line="for each tile i of queries of O"),
    )  # fmt: skip


def _scores(p: Problem, column: Dim) -> tuple[Node, ...]:
    """Return the making of one tile of S from slices of the head dimension."""
    Q, K, S = p.Q, p.K, p.S
    return (
        *new(S),
        Compute("clear", (S,), ()),
        For(column, (
            *load("load a slice of Q_i and of K_j", Q, K),
            Compute("add_scores", (S,), (Q, K, S), "S_ij = S_ij + Q_ic K_jc^T"),
            *free(Q, K),
        ), line="for each slice c of the head dimension"),
        Compute("finish_scores", (S,), (S,), "scale and mask S_ij"),
    )  # fmt: skip


def _columns(p: Problem, b: int) -> Dim:
    return p.value.cut(min(b, p.value.n))
