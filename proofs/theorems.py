"""The theorems that are checked in Coq: one record each, with what rests on it.

`THEOREMS` holds (a) to (e) and then what goes beyond, in the order of the pages. Counts are words,
for one head; ranges are not repeated here, but read from the Coq text (`Theorem.ranges`).
"""

from iosim.errors import IosimError
from iosim.proofs.beyond import BEYOND
from iosim.proofs.theorem import DERIVED, EXPLICIT, FA1, FA2, MASKED, Theorem
from iosim.units import unknown

A_TO_E = (
    Theorem(
        id="a",
        statement="Online softmax: (m, l, o) with its merge is a commutative monoid, and folding "
        "any binary tree over any partition and order of the keys gives the softmax average.",
        hypotheses="over the reals; masked keys and rows that see nothing included",
        file="OnlineSoftmax.v",
        name="tree_is_softmax",
        also=(
            *("merge_comm", "merge_assoc", "merge_None_l", "merge_None_r", "direct_app"),
            *("tree_is_direct", "direct_Some", "direct_None"),
        ),
        source=f"{FA1}, section 3.1; Milakov and Gimelshein 2018, arXiv 1805.02867",
    ),
    Theorem(
        id="b",
        statement="The tiled forward pass equals standard attention, and exp(LSE) is the sum of "
        "exponentials: FA1's normalised update and FA2's, either loop outside.",
        hypotheses="over the reals; any tiles, any order of blocks, any mask; O = 0 for rows that "
        "see nothing",
        file="TiledForward.v",
        name="flash1_forward",
        also=(
            *("flash2_forward", "fa1_forward", "fa2_forward", "fa1_blocks", "fa2_blocks"),
            "skip_masked",
        ),
        source=f"{FA1}, Theorem 1",
        checks=("exactness",),
    ),
    Theorem(
        id="c-flash1",
        statement="The traffic of flash1 is n_q (d + 2) + 2 n_k d + T_c n_q (3d + 4).",
        hypotheses="any n_q, n_k, d and tiles, ragged ones included; no mask",
        file="Traffic.v",
        name="flash1_traffic",
        also=("flash1_reads_writes", "flash1_fits"),
        source=f"{FA1}, Algorithm 1 and Theorem 2",
        checks=("counting",),
    ),
    Theorem(
        id="c-flash2",
        statement="The traffic of flash2 is 2 n_q d + n_q + T_r 2 n_k d.",
        hypotheses="any n_q, n_k, d and tiles, ragged ones included; no mask",
        file="Traffic.v",
        name="flash2_traffic",
        also=("flash2_reads_writes", "flash2_fits"),
        source=f"{FA2}, Algorithm 1",
        checks=("counting",),
    ),
    Theorem(
        id="c-flash1-printed",
        statement="flash1 with the printed tiles, B_c = ceil(M / 4d) and B_r = min(B_c, d), moves "
        "6 to 40 times N^2 d^2 / M words.",
        hypotheses="n_q = n_k = N, no mask; whether or not the tiles fit",
        file="TrafficBounds.v",
        name="flash1_printed_sandwich",
        constants=(6, 40),
        source=f"{FA1}, Theorem 2; constants {DERIVED}",
        checks=("sandwich: flash1, printed tiles",),
        new=True,
    ),
    Theorem(
        id="c-flash1-printed-tight",
        statement="Its leading constant is 12.",
        hypotheses="n_q = n_k = N, no mask",
        file="TrafficBounds.v",
        name="flash1_printed_tight",
        constants=(12, 12),
        source=DERIVED,
        new=True,
    ),
    Theorem(
        id="c-flash1-printed-fits",
        statement="The printed tiles of flash1 fit in M words from 8 d^2 + 20 d on.",
        hypotheses="one live tile of S or P; an example below that overflows",
        file="TrafficBounds.v",
        name="flash1_printed_fits",
        also=("flash1_printed_too_large",),
        source=DERIVED,
        checks=("capacity",),
        new=True,
    ),
    Theorem(
        id="c-flash1-best",
        statement="flash1 with B_r = 1 and the most keys that fit moves 6 to 66 times "
        "N^2 d^2 / M words.",
        hypotheses="n_q = n_k = N, no mask; the tiles fit",
        file="TrafficBounds.v",
        name="flash1_best_sandwich",
        also=("flash1_best_fits",),
        constants=(6, 66),
        source=DERIVED,
        checks=("sandwich: flash1, B_r = 1", "sandwich: flash1, best legal tile"),
        new=True,
    ),
    Theorem(
        id="c-flash1-best-tight",
        statement="Its leading constant is 6.",
        hypotheses="n_q = n_k = N, no mask",
        file="TrafficBounds.v",
        name="flash1_best_tight",
        constants=(6, 6),
        source=DERIVED,
        new=True,
    ),
    Theorem(
        id="c-flash2-printed",
        statement="flash2 with the mirrored rule, B_r = ceil(M / 4d) and B_c = min(B_r, d), moves "
        "4 to 13 times N^2 d^2 / M words.",
        hypotheses="n_q = n_k = N, no mask; whether or not the tiles fit",
        file="TrafficBounds.v",
        name="flash2_printed_sandwich",
        constants=(4, 13),
        source=DERIVED,
        checks=("sandwich: flash2, mirrored rule",),
        new=True,
    ),
    Theorem(
        id="c-flash2-printed-tight",
        statement="Its leading constant is 8.",
        hypotheses="n_q = n_k = N, no mask",
        file="TrafficBounds.v",
        name="flash2_printed_tight",
        constants=(8, 8),
        source=DERIVED,
        new=True,
    ),
    Theorem(
        id="c-flash2-best",
        statement="flash2 with B_c = 1 and the most queries that fit moves 4 to 30 times "
        "N^2 d^2 / M words.",
        hypotheses="n_q = n_k = N, no mask; the tiles fit",
        file="TrafficBounds.v",
        name="flash2_best_sandwich",
        also=("flash2_best_fits",),
        constants=(4, 30),
        source=DERIVED,
        checks=("sandwich: flash2, B_c = 1", "sandwich: flash2, best legal tile"),
        new=True,
    ),
    Theorem(
        id="c-flash2-best-tight",
        statement="Its leading constant is 4.",
        hypotheses="n_q = n_k = N, no mask",
        file="TrafficBounds.v",
        name="flash2_best_tight",
        constants=(4, 4),
        source=DERIVED,
        new=True,
    ),
    Theorem(
        id="d",
        statement="The fused lower bound: (visible pairs) (d + d_v)^2 <= (M - 1) traffic.",
        hypotheses=f"every visible pair is processed while q_i, k_j, v_j and the accumulator of "
        f"row i are all in fast memory; {EXPLICIT}; {MASKED}",
        file="FusedBound.v",
        name="fused_bound_masked",
        also=("fused_bound",),
        constants=(4,),
        source=DERIVED,
        bounds=("fused",),
        checks=("lower_bounds",),
        new=True,
    ),
    Theorem(
        id="d-constant",
        statement="Without a mask and for d_v = d the fused constant is 4.",
        hypotheses="those of (d)",
        file="FusedBound.v",
        name="fused_bound_constant_4",
        constants=(4,),
        source=DERIVED,
        bounds=("fused",),
        checks=("sandwich: flash1, best legal tile", "sandwich: flash2, best legal tile"),
        new=True,
    ),
    Theorem(
        id="d-causal",
        statement="Causal, n_q = n_k = N: 2 N (N + 1) d^2 <= (M - 1) traffic.",
        hypotheses="those of (d)",
        file="FusedBound.v",
        name="fused_bound_causal",
        constants=(2,),
        source=DERIVED,
        bounds=("fused",),
        new=True,
    ),
    Theorem(
        id="d-attained",
        statement="An execution attains the fused bound: it moves n_q (d + d_v) + "
        "ceil(n_q / B_r) n_k (d + d_v) words.",
        hypotheses="(B_r + 1) (d + d_v) <= M; scores and statistics take no room",
        file="FusedAttained.v",
        name="fused_attained",
        source=DERIVED,
        new=True,
    ),
    Theorem(
        id="d-witness",
        statement="With words for S, m and l an execution moves the count of flash2, to the last "
        "word, LSE included.",
        hypotheses="one key at a time, B_r (2d + 2) + 2d + 1 <= M; no mask",
        file="FusedAttained.v",
        name="flash2_attained",
        source=DERIVED,
        checks=("counting",),
        new=True,
    ),
    Theorem(
        id="e",
        statement="The general lower bound, loads alone: (visible pairs) d^2 <= "
        "(loads + M) max(M, 2 d^2).",
        hypotheses=f"every visible score is formed by summing its d products in one word; "
        f"{EXPLICIT}; {MASKED}",
        file="GeneralBound.v",
        name="general_bound_masked",
        also=("general_bound",),
        constants=(1,),
        source="phases of Hong and Kung 1981; Saha and Ye 2024, arXiv 2402.07443, Lemma 3.3; "
        f"constants {DERIVED}",
        bounds=("general", "backward_general"),
        checks=("lower_bounds",),
        new=True,
    ),
    Theorem(
        id="e-constant",
        statement="For M >= 2 d^2 its constant is 1.",
        hypotheses="those of (e), no mask",
        file="GeneralBound.v",
        name="general_bound_constant_1",
        constants=(1,),
        source=DERIVED,
        bounds=("general",),
        new=True,
    ),
)

THEOREMS = (*A_TO_E, *BEYOND)

# The lower bounds of iosim.bounds that no theorem here backs, and what they rest on.
CITED = {
    "compulsory": "the statement of the problem: inputs start and outputs end in slow memory",
    "backward_compulsory": "the statement of the problem: inputs start and gradients end in slow "
    "memory",
    "two_matmuls": "Smith et al. 2019, arXiv 1702.02017",
}


def theorem(name: str) -> Theorem:
    """Return the record of a theorem by its id or its Coq name.

    Raises IosimError for a name that no record has.

    >>> theorem("fused_bound_masked").bounds
    ('fused',)
    """
    for each in THEOREMS:
        if name in (each.id, each.name, *each.also):
            return each
    raise IosimError(unknown("theorem", name, [each.id for each in THEOREMS]))
