"""Standard attention, which materialises S and P in slow memory (FA1, Algorithm 0).

`standard` is the listing, `standard_passes` what a training framework runs for it: one kernel for
each step, the mask among them.
"""

from iosim.schedule.attention import Problem, problem
from iosim.schedule.dropout import dropout_pass, dropped
from iosim.schedule.registry import schedule
from iosim.schedule.tree import Compute, For, Node, Schedule, Tensor, free, load, new, store
from iosim.shape import AttentionShape

SCORES_LINE = "load Q, K; compute S = Q K^T; write S"
MASK_LINE = "read S and the mask; set hidden scores to -inf; write S"
SOFTMAX_LINE = "read S; compute P = softmax(S); write P"


@schedule("standard", source="Dao et al. 2022, arXiv 2205.14135, Algorithm 0")
def standard(shape: AttentionShape) -> Schedule:
    """S = Q K^T, P = softmax S and O = P V as three passes; each operand of a matmul moves once.

    It holds K (then V) whole, one row of Q and one row of S: n_k d + d + n_k words. A causal mask
    sets entries of S to -inf but skips nothing. In all (n_q + n_k) (d + d_v) + 4 n_q n_k words a
    head. Dropout is one pass more: 2 n_q n_k words and n_q n_k mask bytes.
    """
    p = problem(shape, br=1)
    body = (*_scores(p, "scores"), *_softmax(p), *dropout_pass(p, p.query), *_output(p))
    return Schedule("standard", shape, p.per_head(body), p.mask)


@schedule("standard_passes", source="one kernel a step, as frameworks run attention in training")
def standard_passes(shape: AttentionShape) -> Schedule:
    """Standard attention with the mask as a pass of its own over S, after the product Q K^T.

    The mask has one byte a query and key, the same for all heads, or, where the shape has no mask,
    one byte a key, which says whether the key is padding (none is). The pass reads S and the mask
    and writes S: 2 n_q n_k words a head more than `standard`, and the bytes.
    """
    p = problem(shape, br=1)
    body = (
        *_scores(p, "unmasked_scores"),
        *_mask(p),
        *_softmax(p),
        *dropout_pass(p, p.query),
        *_output(p),
    )
    return Schedule("standard_passes", shape, p.per_head(body), p.mask)


def _scores(p: Problem, operation: str) -> tuple[Node, ...]:
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


def _mask(p: Problem) -> tuple[Node, ...]:
    """Return the mask pass; a mask of all queries is loaded once a head, others row by row."""
    axes = (p.batch, p.key) if p.mask is None else (p.query, p.key)
    mask, S = Tensor("mask", axes, "uint8", "input"), p.S
    before, within = ((mask,), (S,)) if p.mask is None else ((), (mask, S))
    rows = For(
        p.query,
        (
            *load(MASK_LINE, *within),
            Compute("apply_mask", (S,), (S, mask), MASK_LINE),
            *store(MASK_LINE, S),
            *free(*within),
        ),
        parallel=True,
        line=MASK_LINE,
    )
    return (*load(MASK_LINE, *before), rows, *free(*before))


def _softmax(p: Problem) -> tuple[Node, ...]:
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


def _output(p: Problem) -> tuple[Node, ...]:
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
