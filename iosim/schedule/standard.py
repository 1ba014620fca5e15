"""Standard attention, which materialises S and P in slow memory (FA1, Algorithm 0)."""

from iosim.schedule.attention import problem
from iosim.schedule.registry import schedule
from iosim.schedule.tree import Compute, For, Node, Schedule, free, load, new, store
from iosim.shape import AttentionShape


@schedule("standard", source="Dao et al. 2022, arXiv 2205.14135, Algorithm 0")
def standard(shape: AttentionShape) -> Schedule:
    """S = Q K^T, P = softmax S and O = P V as three passes; each operand of a matmul moves once.

    It holds K (then V) whole, one row of Q and one row of S: n_k d + d + n_k words. A causal mask
    sets entries of S to -inf but skips nothing. In all (n_q + n_k) (d + d_v) + 4 n_q n_k words a
    head.
    """
    p = problem(shape, br=1)
    Q, K, V, O, S, P = p.Q, p.K, p.V, p.O, p.S, p.P
    rows = p.query
    scores_line = "load Q, K; compute S = Q K^T; write S"
    softmax_line = "read S; compute P = softmax(S); write P"
    output_line = "read P, load V; compute O = P V; write O"
    body: tuple[Node, ...] = (
        *load(scores_line, K),
        For(
            rows,
            (
                *load(scores_line, Q),
                *new(S),
                Compute("scores", (S,), (Q, K), scores_line),
                *store(scores_line, S),
                *free(Q, S),
            ),
            parallel=True,
            line=scores_line,
        ),
        *free(K),
        For(
            rows,
            (
                *load(softmax_line, S),
                *new(P),
                Compute("row_softmax", (P,), (S,), softmax_line),
                *store(softmax_line, P),
                *free(S, P),
            ),
            parallel=True,
            line=softmax_line,
        ),
        *load(output_line, V),
        For(
            rows,
            (
                *load(output_line, P),
                *new(O),
                Compute("clear", (O,), (), output_line),
                Compute("accumulate", (O,), (P, V, O), output_line),
                *store(output_line, O),
                *free(P, O),
            ),
            parallel=True,
            line=output_line,
        ),
        *free(V),
    )
    return Schedule("standard", shape, p.per_head(body), p.mask)
