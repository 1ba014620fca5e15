"""Dropout in schedules: a pass of its own, or fused into the tile that holds the probabilities.

A schedule for a shape without dropout has none of these nodes. The bits come from a counter-based
generator (`iosim.random_bits`), so that all schedules drop the same elements for the same state.
"""

from collections.abc import Sequence

from iosim.errors import UnsupportedError
from iosim.schedule.attention import Problem
from iosim.schedule.tree import (
    Compute,
    Dim,
    For,
    Node,
    Place,
    Tensor,
    free,
    load,
    new,
    nodes,
    store,
)
from iosim.shape import AttentionShape

SAVE_LINE = "save the random state (seed, offset)"
TILE_LINE = "on chip, P_ij = P_ij Z_ij / (1 - p), Z_ij drawn from the random state"
PASS_LINE = "read P; draw Z; compute P_d = P Z / (1 - p); write P_d, Z"


def random_state(place: Place = "output") -> tuple[Tensor, Tensor]:
    """Return seed and offset: two words of 8 bytes for all heads together."""
    return Tensor("seed", (), "uint64", place), Tensor("offset", (), "uint64", place)


def kept_bytes(p: Problem) -> Tensor:
    """Return Z, which says of each probability whether it is kept: one byte each."""
    return Tensor("Z", p.P.axes, "uint8", "slow")


def dropped(p: Problem) -> Tensor:
    """Return the probabilities that meet V: P_d under dropout, else P."""
    return Tensor("P_d", p.P.axes, p.P.dtype, "slow", p.P.held) if p.shape.dropout else p.P


def drop_tile(p: Problem, tile: Tensor, line: str = TILE_LINE) -> tuple[Node, ...]:
    """Return the step that drops elements of a resident tile of probabilities, in place."""
    return (Compute("drop", (tile,), (tile, *random_state()), line),) if p.shape.dropout else ()


def save_random_state(p: Problem, body: Sequence[Node]) -> tuple[Node, ...]:
    """Return the body with the random state held around it and saved first, for the backward pass.

    Saving it costs two words in all; no mask is stored.
    """
    if not p.shape.dropout:
        return tuple(body)
    state = random_state()
    return (
        *new(*state),
        Compute("start_random", state, (), SAVE_LINE),
        *store(SAVE_LINE, *state),
        *body,
        *free(*state),
    )


def dropout_pass(p: Problem, rows: Dim, pieces: Dim | None = None) -> tuple[Node, ...]:
    """Return the pass that reads P and writes P_d and the bytes Z, kept for the backward pass.

    It goes by blocks of `rows` and, within, of `pieces` of a row (None: whole rows).
    """
    if not p.shape.dropout:
        return ()
    state, P, Z, P_d = random_state("fast"), p.P, kept_bytes(p), dropped(p)
    step: tuple[Node, ...] = (
        *load(PASS_LINE, P),
        *new(Z, P_d),
        Compute("draw_kept", (Z,), state, PASS_LINE),
        Compute("drop_by", (P_d,), (P, Z), PASS_LINE),
        *store(PASS_LINE, P_d, Z),
        *free(P, Z, P_d),
    )
    if pieces is not None:
        step = (For(pieces, step, line=PASS_LINE),)
    return (
        *new(*state),
        Compute("start_random", state, (), PASS_LINE),
        For(rows, step, parallel=True, line=PASS_LINE),
        *free(*state),
    )


def check_dropout(name: str, shape: AttentionShape, body: tuple[Node, ...]) -> None:
    """Raise UnsupportedError for a tree that drops nothing although its shape has dropout."""
    from iosim.schedule.operations import operations

    dropping = [name for name, known in operations().items() if known.role == "dropout"]
    drops = any(isinstance(node, Compute) and node.operation in dropping for node, _ in nodes(body))
    if shape.dropout and not drops:
        raise UnsupportedError(
            f"schedule {name!r} drops nothing, but the shape has dropout {shape.dropout:g}; "
            "leave dropout out or give the schedule a step that drops"
        )
