"""Dropout in schedules of the backward pass: the same elements are dropped once more.

With P_d = P Z / (1 - p) in the place of P in O = P_d V, the chain rule gives dV = P_d^T dO, and
dP = (dO V^T) Z / (1 - p); dS = P (dP - D) and D = rowsum(dO O) stay as they are. Standard attention
reads P_d and the bytes Z that its forward pass kept; flash schedules read the random state and
draw Z again.
"""

from collections.abc import Sequence
from dataclasses import replace

from iosim.schedule.attention_backward import BackwardProblem
from iosim.schedule.dropout import dropped, kept_bytes, random_state
from iosim.schedule.tree import Compute, For, Node, Tensor, free, load, new, store

LOAD_LINE = "load the random state (seed, offset)"
VALUE_LINE = "on chip, P_d = P_ij Z_ij / (1 - p), Z_ij drawn from the random state"
TILE_LINE = "on chip, dP_ij = dP_ij Z_ij / (1 - p)"
PASS_LINE = "read dP, Z; compute dP = dP Z / (1 - p); write dP"


def probabilities_of_values(p: BackwardProblem) -> Tensor:
    """Return what met V in the forward pass and was kept: P_d under dropout, else P."""
    return replace(dropped(p), place="input")


def dropout_pass(p: BackwardProblem) -> tuple[Node, ...]:
    """Return the pass that reads dP and the bytes Z, which the forward pass kept, and writes dP."""
    if not p.shape.dropout:
        return ()
    dP, Z = p.dP, replace(kept_bytes(p), place="input")
    rows = For(
        p.query,
        (
            *load(PASS_LINE, dP, Z),
            Compute("drop_by", (dP,), (dP, Z), PASS_LINE),
            *store(PASS_LINE, dP),
            *free(dP, Z),
        ),
        line=PASS_LINE,
    )
    return (p.per_query_head(rows),)


def value_gradient(p: BackwardProblem, line: str) -> tuple[Node, ...]:
    """Return the step dV_j = dV_j + P_ij^T dO_i, P_ij being where S_ij was; under dropout, P_d."""
    if not p.shape.dropout:
        return (Compute("value_gradient", (p.dV,), (p.S, p.dO, p.dV), line),)
    P_d = dropped(p)
    return (
        *new(P_d),
        Compute("drop", (P_d,), (p.S, *random_state("input")), VALUE_LINE),
        Compute("value_gradient", (p.dV,), (P_d, p.dO, p.dV), line.replace("P_ij", "P_d")),
        *free(P_d),
    )


def drop_gradient(p: BackwardProblem) -> tuple[Node, ...]:
    """Return the step that drops elements of a resident tile dP_ij, in place."""
    if not p.shape.dropout:
        return ()
    return (Compute("drop", (p.dP,), (p.dP, *random_state("input")), TILE_LINE),)


def load_random_state(p: BackwardProblem, body: Sequence[Node]) -> tuple[Node, ...]:
    """Return the body with the forward pass's random state loaded before and held around it."""
    if not p.shape.dropout:
        return tuple(body)
    state = random_state("input")
    return (*load(LOAD_LINE, *state), *body, *free(*state))
