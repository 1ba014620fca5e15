"""Lower bounds on the words that a backward pass moves, claimed for backward schedules only.

Each has its hypotheses, which `check` derives, and its range of validity; see `iosim.bounds`. The
query heads that share keys are one head of so many more queries.
"""

from iosim.bounds import Bound, all_pairs, backward_bound, ceil, seen_rows
from iosim.reading.check import Checked
from iosim.shape import AttentionShape

_ALL = ("dQ", "dK", "dV")


def backward_compulsory_words(
    shape: AttentionShape, gradients: tuple[str, ...] = _ALL
) -> tuple[int, int]:
    """Return the words that must be read and written for these gradients, whatever the schedule.

    Read once: rows of dO that see a key and rows of V that are seen, of Q for dK and of K for dQ;
    written once: the gradients. What the forward pass left (O, LSE, P) might be formed again.

    >>> backward_compulsory_words(AttentionShape(1024, 1024, 64))
    (262144, 196608)
    """
    queries, keys = seen_rows(shape)
    d, d_v, kv = shape.head_dim, shape.value_dim, shape.kv_heads
    read = shape.heads * queries * d_v
    read += shape.heads * queries * d if "dK" in gradients else 0
    read += kv * keys * d if "dQ" in gradients else 0
    read += kv * keys * d_v if {"dQ", "dK"} & set(gradients) else 0
    written = {
        "dQ": shape.heads * shape.n_q * d,
        "dK": kv * shape.n_k * d,
        "dV": kv * shape.n_k * d_v,
    }
    return shape.batch * read, shape.batch * sum(written[name] for name in gradients)


@backward_bound
def backward_compulsory(shape: AttentionShape, words: int, checked: Checked | None = None) -> Bound:
    """Every input word that matters is read once and every word of a gradient written once.

    Hypotheses: Q, K, V and dO start in slow memory; dQ, dK, dV must end there. Holds for every M.
    """
    gradients = checked.gradients if checked is not None and checked.backward else _ALL
    return Bound(
        name="backward_compulsory",
        words=sum(backward_compulsory_words(shape, gradients)),
        holds=True,
        reason="any backward schedule, any M",
        leading="2 n_q d + n_q d_v + 2 n_k (d + d_v)",
        source="the statement of the problem: inputs start and gradients end in slow memory",
        any_memory=True,
    )


@backward_bound
def backward_general(shape: AttentionShape, words: int, checked: Checked | None = None) -> Bound:
    """Every dP_ij is a sum of d_v products: pairs d_v^2 <= (loads + M) max(M, 2 d_v^2).

    Hypotheses: each visible dP_ij is formed by summing its d_v products of dO_i and V_j, in any
    order, with or without recomputation: theorem (e) with dO and V in the place of Q and K. A pass
    that only computes dV need not form dP.
    """
    d_v = shape.value_dim
    value = max(ceil(all_pairs(shape) * d_v * d_v, max(words, 2 * d_v * d_v)) - words, 0)
    holds = checked is None or bool({"dQ", "dK"} & set(checked.gradients))
    told = "any schedule that sums d_v products a dP" if value else "vacuous: M^2 > pairs d_v^2"
    return Bound(
        name="backward_general",
        words=value,
        holds=holds,
        reason=told if holds else "claimed for schedules that form dP",
        leading="pairs d_v^2 / max(M, 2 d_v^2) - M",
        source="proofs/coq/GeneralBound.v, general_bound_masked, for dP = dO V^T",
    )


@backward_bound
def backward_fused(shape: AttentionShape, words: int, checked: Checked | None = None) -> Bound:
    """Fused, each pair once: 2 pairs (d + d_v) (2d + d_v) <= (M - 1) traffic.

    Hypotheses: each visible pair is processed once, while its rows of Q, dO, dQ, K, V, dK and dV
    are all in fast memory. Constant 12 for d_v = d, attained by additions into slow memory.
    """
    d, d_v = shape.head_dim, shape.value_dim
    holds = checked is not None and checked.fused and checked.once
    return Bound(
        name="backward_fused",
        words=ceil(all_pairs(shape) * 2 * (d + d_v) * (2 * d + d_v), max(words - 1, 1)),
        holds=holds,
        reason="fused, and no pair is processed twice"
        if holds
        else "claimed for fused schedules that process no pair twice",
        leading="2 pairs (d + d_v) (2 d + d_v) / (M - 1)",
        source="derived in this project; proofs/coq/BackwardBound.v, backward_bound",
    )


@backward_bound
def backward_fused_again(
    shape: AttentionShape, words: int, checked: Checked | None = None
) -> Bound:
    """Fused, pairs processed again or not: pairs (d + d_v) (3d + 2 d_v) <= (M - 1) traffic.

    Hypotheses: those of `backward_fused`, but a pair may be processed any number of times. Constant
    10 for d_v = d.
    """
    d, d_v = shape.head_dim, shape.value_dim
    holds = checked is not None and checked.fused
    return Bound(
        name="backward_fused_again",
        words=ceil(all_pairs(shape) * (d + d_v) * (3 * d + 2 * d_v), max(words - 1, 1)),
        holds=holds,
        reason="the schedule is fused" if holds else "claimed for fused schedules only",
        leading="pairs (d + d_v) (3 d + 2 d_v) / (M - 1)",
        source="derived in this project; proofs/coq/BackwardBound.v, backward_bound_recomputing",
    )


@backward_bound
def backward_fused_made(shape: AttentionShape, words: int, checked: Checked | None = None) -> Bound:
    """Fused, each pair once: pairs (d + d_v) (5d + 2 d_v) <= (M - 1) (traffic + made).

    Hypotheses: those of `backward_fused`. `made` are the words of dQ, dK and dV for which fast
    memory gets room without a load, as the schedule has them; the least there can be (each made
    once) where no schedule is given. Constant 14 for d_v = d, but for these words.
    """
    d, d_v = shape.head_dim, shape.value_dim
    holds = checked is not None and checked.fused and checked.once
    made = backward_compulsory_words(shape)[1]
    if checked is not None and checked.backward:
        made = checked.gradient_words_made
    meetings = all_pairs(shape) * (d + d_v) * (5 * d + 2 * d_v)
    return Bound(
        name="backward_fused_made",
        words=max(ceil(meetings, max(words - 1, 1)) - made, 0),
        holds=holds,
        reason="fused, no pair is processed twice, and so many gradient words are made"
        if holds
        else "claimed for fused schedules that process no pair twice",
        leading="pairs (d + d_v) (5 d + 2 d_v) / (M - 1) - made",
        source="derived in this project; proofs/coq/BackwardBound.v, backward_bound_news",
    )
