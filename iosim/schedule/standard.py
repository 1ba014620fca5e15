"""Standard attention, which materialises S and P in slow memory (FA1, Algorithm 0)."""

from iosim.schedule.attention import Problem, problem
from iosim.schedule.dropout import dropout_pass, dropped
from iosim.schedule.registry import schedule
from iosim.schedule.tree import Compute, For, Node, Schedule, free, load, new, store
from iosim.shape import AttentionShape

SCORES_LINE = "load Q, K; compute S = Q K^T; write S"
SOFTMAX_LINE = "read S; compute P = softmax(S); write P"


@schedule("standard", source="Dao et al. 2022, arXiv 2205.14135, Algorithm 0")
def standard(shape: AttentionShape) -> Schedule:
    """S = Q K^T, P = softmax S and O = P V as three passes; each operand of a matmul moves once.

    It holds K (then V) whole, one row of Q and one row of S: n_k d + d + n_k words. A causal mask
    sets entries of S to -inf but skips nothing. In all (n_q + n_k) (d + d_v) + 4 n_q n_k words a
    head. Dropout is one pass more: 2 n_q n_k words and n_q n_k mask bytes.
    """
    p = problem(shape, br=1)
    body = (*scores_pass(p, "scores"), *softmax_pass(p), *dropout_pass(p, p.query), *output_pass(p))
    return Schedule("standard", shape, p.per_head(body), p.mask)


def scores_pass(p: Problem, operation: str) -> tuple[Node, ...]:
    """Return the pass that writes S = scale Q K^T, masked or not as the operation says."""
    rows = For(
        p.query,
        (
            *load(SCORES_LINE, p.Q),
            *new(p.S),
            Compute(operation, (p.S,), (p.Q, p.K), SCORES_LINE),
            *store(SCORES_LINE, p.S),
            *free(p.Q, p.S),
        ),
        parallel=True,
        line=SCORES_LINE,
    )
    return (*load(SCORES_LINE, p.K), rows, *free(p.K))


def softmax_pass(p: Problem) -> tuple[Node, ...]:
    """Return the pass that reads S and writes P."""
    rows = For(
        p.query,
        (
            *load(SOFTMAX_LINE, p.S),
            *new(p.P),
            Compute("row_softmax", (p.P,), (p.S,), SOFTMAX_LINE),
            *store(SOFTMAX_LINE, p.P),
            *free(p.S, p.P),
        ),
        parallel=True,
        line=SOFTMAX_LINE,
    )
    return (rows,)


def output_pass(p: Problem) -> tuple[Node, ...]:
    """Return the pass that reads P (under dropout P_d) and V and writes O."""
    P, V, O = dropped(p), p.V, p.O
    line = f"read {P.name}, load V; compute O = {P.name} V; write O"
    rows = For(
        p.query,
        (
            *load(line, P),
            *new(O),
            Compute("clear", (O,), (), line),
            Compute("accumulate", (O,), (P, V, O), line),
            *store(line, O),
            *free(P, O),
        ),
        parallel=True,
        line=line,
    )
    return (*load(line, V), rows, *free(V))
