"""Standard attention as a training framework runs it: one kernel a step, the mask among them."""

from iosim.schedule.attention import Problem, problem
from iosim.schedule.dropout import dropout_pass
from iosim.schedule.registry import schedule
from iosim.schedule.standard import output_pass, scores_pass, softmax_pass
from iosim.schedule.tree import Compute, For, Node, Schedule, Tensor, free, load, store
from iosim.shape import AttentionShape

MASK_LINE = "read S and the mask; set hidden scores to -inf; write S"


@schedule(
    "standard_passes",
    source="one kernel a step, as frameworks run attention in training",
    like="standard",
)
def standard_passes(shape: AttentionShape) -> Schedule:
    """Standard attention with the mask as a pass of its own over S, after the product Q K^T.

    The mask has one byte a query and key, the same for all heads, or, where the shape has no mask,
    one byte a key, which says whether the key is padding (none is). The pass reads S and the mask
    and writes S: 2 n_q n_k words a head more than `standard`, and the bytes.
    """
    p = problem(shape, br=1)
    body = (
        *scores_pass(p, "unmasked_scores"),
        *mask_pass(p),
        *softmax_pass(p),
        *dropout_pass(p, p.query),
        *output_pass(p),
    )
    return Schedule("standard_passes", shape, p.per_head(body), p.mask)


def mask_pass(p: Problem) -> tuple[Node, ...]:
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
