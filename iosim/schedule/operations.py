"""The tile computations a schedule may name: their NumPy code and their FLOPs.

Each operation works on arrays of the accumulator's dtype with the rows of a tile along the last
axes, and writes its outputs in place. FLOPs count a multiply and an add as two, and every other
elementwise step (an exponential too) as one per word.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from iosim import softmax
from iosim.errors import ScheduleError
from iosim.random_bits import RandomState
from iosim.schedule.tree import Compute
from iosim.units import unknown

Array = NDArray[np.floating]


class Tile(Protocol):
    """What an operation may ask about the tile it works on."""

    scale: float
    dropout: float
    random: RandomState

    def visible(self) -> NDArray[np.bool_] | None:
        """Return which of the tile's queries see which of its keys; None when all see all."""

    def kept(self, random: RandomState) -> NDArray[np.bool_]:
        """Return which probabilities of the tile dropout keeps, from a random state."""

    def rounded(self, array: Array) -> Array:
        """Return the array rounded to the dtype in which matmuls take their operands."""


@dataclass(frozen=True)
class Operation:
    """A tile computation: `run(tile, outputs, inputs)` and its FLOPs.

    `takes` names its operands, outputs first, as in "O <- P V O"; what it updates in place stands
    on both sides. `flops` is a list of (coefficient, operands): so many FLOPs for each combination
    of indices of the operands of these numbers, outputs first. `role` marks the products of
    attention: "scores" takes Q and K, "accumulate" takes P and V; of the backward pass "dP" takes
    dO and V, and "dV", "dQ" and "dK" add to the gradients of their names; "dropout" drops.
    """

    name: str
    takes: str
    run: Callable[[Tile, list[Array], list[Array]], None]
    flops: tuple[tuple[int, tuple[int, ...]], ...]
    role: str = ""

    @property
    def matmul(self) -> bool:
        """Whether it is one of the products of attention; the first of its FLOPs are those."""
        return self.role not in ("", "dropout")


ANY = "any outputs"
OPERATIONS: dict[str, Operation] = {}

# Each module registers its operations when it is imported.
MODULES = ("operations", "operations_backward", "operations_dropout")


@cache
def operations() -> dict[str, Operation]:
    """Return the operations by name."""
    for module in MODULES:
        importlib.import_module(f"iosim.schedule.{module}")
    return OPERATIONS


def operation(
    takes: str, *flops: tuple[int, tuple[int, ...]], role: str = ""
) -> Callable[[Callable[[Tile, list[Array], list[Array]], None]], Operation]:
    """Register a function as the operation of its name."""

    def register(run: Callable[[Tile, list[Array], list[Array]], None]) -> Operation:
        OPERATIONS[run.__name__] = Operation(run.__name__, takes, run, flops, role)
        return OPERATIONS[run.__name__]

    return register


def find_operation(node: Compute) -> Operation:
    """Return the operation of a computation.

    Raises ScheduleError for an unknown one (with the closest) or for operands it cannot work on.
    """
    known = operations()
    if node.operation not in known:
        raise ScheduleError(unknown("operation", node.operation, known))
    found = known[node.operation]
    outputs, inputs = ([t.name for t in side] for side in (node.outputs, node.inputs))
    if not _takes(found.takes, tuple(outputs), tuple(inputs)):
        given = f"{' '.join(outputs)} <- {' '.join(inputs)}"
        raise ScheduleError(
            f"operation {node.operation!r} takes {found.takes!r}, but is given {given!r}"
        )
    return found


@lru_cache(maxsize=1024)  # a reading that runs the tree asks at every step
def _takes(takes: str, outputs: tuple[str, ...], inputs: tuple[str, ...]) -> bool:
    """Return whether tensors of these names fit letters that each stand for one tensor."""
    if takes == ANY:
        return True
    letters_out, letters_in = (side.split() for side in takes.split("<-"))
    if (len(outputs), len(inputs)) != (len(letters_out), len(letters_in)):
        return False
    named: dict[str, str] = {}
    pairs = zip((*letters_out, *letters_in), (*outputs, *inputs), strict=True)
    return all(named.setdefault(letter, name) == name for letter, name in pairs)


@operation("S <- Q K", (2, (1, 2)), (1, (0,)), role="scores")
def scores(tile: Tile, outputs: list[Array], inputs: list[Array]) -> None:
    """S = scale Q K^T, with -inf where a query may not see a key."""
    (s,), (q, k) = outputs, inputs
    np.matmul(q, k.swapaxes(-1, -2), out=s)
    _scale_and_mask(tile, s)


@operation("S <- Q K", (2, (1, 2)), (1, (0,)), role="scores")
def unmasked_scores(tile: Tile, outputs: list[Array], inputs: list[Array]) -> None:
    """S = scale Q K^T, whatever the mask."""
    (s,), (q, k) = outputs, inputs
    np.matmul(q, k.swapaxes(-1, -2), out=s)
    s *= s.dtype.type(tile.scale)


@operation("S <- S mask")
def apply_mask(tile: Tile, outputs: list[Array], inputs: list[Array]) -> None:
    """S = -inf where the byte of the mask is 0."""
    np.copyto(outputs[0], -np.inf, where=inputs[1] == 0)


@operation("S <- Q K S", (2, (1, 2)), role="scores")
def add_scores(tile: Tile, outputs: list[Array], inputs: list[Array]) -> None:
    """S = S + Q K^T over a slice of the head dimension."""
    (s,), (q, k, _) = outputs, inputs
    s += q @ k.swapaxes(-1, -2)


@operation("S <- S", (1, (0,)))
def finish_scores(tile: Tile, outputs: list[Array], inputs: list[Array]) -> None:
    """S = scale S, with -inf where a query may not see a key."""
    _scale_and_mask(tile, outputs[0])


@operation("S <- S")
def round_scores(tile: Tile, outputs: list[Array], inputs: list[Array]) -> None:
    """S rounded to the dtype in which it is stored: what comes back from slow memory."""
    (s,) = outputs
    s[...] = tile.rounded(s)


@operation("S <- S", (1, (0,)))
def bare_exponentials(tile: Tile, outputs: list[Array], inputs: list[Array]) -> None:
    """S = e^S without a maximum subtracted, in place: infinite beyond the dtype's range."""
    (s,) = outputs
    np.exp(s, out=s)


def _scale_and_mask(tile: Tile, s: Array) -> None:
    s *= s.dtype.type(tile.scale)
    visible = tile.visible()
    if visible is not None:
        np.copyto(s, -np.inf, where=~visible)


@operation(ANY)
def clear(tile: Tile, outputs: list[Array], inputs: list[Array]) -> None:
    """Set the outputs to zero."""
    for output in outputs:
        output.fill(0)


@operation("O l m <-")
def start_state(tile: Tile, outputs: list[Array], inputs: list[Array]) -> None:
    """O = 0, l = 0, m = -inf: the identity of the online softmax."""
    o, l, m = outputs
    o.fill(0)
    l.fill(0)
    m.fill(-np.inf)


@operation("l m <-")
def start_statistics(tile: Tile, outputs: list[Array], inputs: list[Array]) -> None:
    """l = 0, m = -inf."""
    l, m = outputs
    l.fill(0)
    m.fill(-np.inf)


@operation("l m <- S l m", (1, (2,)), (3, (0,)), (1, (1,)))
def rescale_statistics(tile: Tile, outputs: list[Array], inputs: list[Array]) -> None:
    """m' = max(m, rowmax S); l = e^(m - m') l."""
    (l, m), (s, _, _) = outputs, inputs
    grown = softmax.new_maximum(s, m)
    l *= softmax.rescale(m, grown)
    m[...] = grown


@operation("O l m <- S O l m", (1, (3,)), (3, (1,)), (1, (2,)), (1, (0,)))
def rescale_state(tile: Tile, outputs: list[Array], inputs: list[Array]) -> None:
    """m' = max(m, rowmax S); l = e^(m - m') l; O = e^(m - m') O."""
    (o, l, m), (s, _, _, _) = outputs, inputs
    grown = softmax.new_maximum(s, m)
    factor = softmax.rescale(m, grown)
    l *= factor
    o *= factor[..., None]
    m[...] = grown


@operation("S <- S m", (2, (0,)))
def exponentiate(tile: Tile, outputs: list[Array], inputs: list[Array]) -> None:
    """S = e^(S - m), in place."""
    (s,), (_, m) = outputs, inputs
    softmax.stable_exp(s, m, out=s)


@operation("l <- S l", (1, (1,)))
def add_row_sums(tile: Tile, outputs: list[Array], inputs: list[Array]) -> None:
    """L = l + rowsum S."""
    (l,), (s, _) = outputs, inputs
    l += s.sum(axis=-1)


@operation("l <- S m l", (1, (1,)), (2, (1,)))
def add_exponential_sums(tile: Tile, outputs: list[Array], inputs: list[Array]) -> None:
    """L = l + rowsum e^(S - m), leaving S as it is."""
    (l,), (s, m, _) = outputs, inputs
    l += softmax.stable_exp(s, m).sum(axis=-1)


@operation("O <- P V O", (2, (1, 2)), role="accumulate")
def accumulate(tile: Tile, outputs: list[Array], inputs: list[Array]) -> None:
    """O = O + P V, with P rounded to the dtype of the operands first."""
    (o,), (p, v, _) = outputs, inputs
    o += tile.rounded(p) @ v


@operation("O <- O l", (1, (0,)))
def normalise(tile: Tile, outputs: list[Array], inputs: list[Array]) -> None:
    """O = diag(l)^-1 O, zero for a row that has seen no key."""
    (o,), (_, l) = outputs, inputs
    o[...] = softmax.normalise(o, l)


@operation("O <- A l", (1, (0,)))
def finish_state(tile: Tile, outputs: list[Array], inputs: list[Array]) -> None:
    """O = diag(l)^-1 A, zero for a row that has seen no key."""
    (o,), (a, l) = outputs, inputs
    o[...] = softmax.normalise(a, l)


@operation("A l m <- B n k A l m", (3, (0,)), (8, (1,)))
def merge_states(tile: Tile, outputs: list[Array], inputs: list[Array]) -> None:
    """(m, l, A) = the state of the keys of (m, l, A) and of (k, n, B) together."""
    (a, l, m), (b, n, k, *_) = outputs, inputs
    merged = softmax.merge(softmax.SoftmaxState(m, l, a), softmax.SoftmaxState(k, n, b))
    a[...], l[...], m[...] = merged.o, merged.l, merged.m


@operation("O <- O l", (1, (0,)))
def unnormalise(tile: Tile, outputs: list[Array], inputs: list[Array]) -> None:
    """O = diag(l) O: back from averages to sums."""
    (o,), (_, l) = outputs, inputs
    o *= l[..., None]


@operation("O l m <- A L O l m", (3, (0,)), (6, (1,)))
def merge_finished(tile: Tile, outputs: list[Array], inputs: list[Array]) -> None:
    """Merge the state (m, l, O) with a finished part: its output A and its LSE L."""
    (o, l, m), (part, lse, _, _, _) = outputs, inputs
    merged = softmax.merge(softmax.SoftmaxState(m, l, o), softmax.of_finished(part, lse))
    o[...], l[...], m[...] = merged.o, merged.l, merged.m


@operation("LSE <- m l", (2, (0,)))
def log_sum_exp(tile: Tile, outputs: list[Array], inputs: list[Array]) -> None:
    """LSE = m + log l, -inf for a row that has seen no key."""
    (lse,), (m, l) = outputs, inputs
    lse[...] = softmax.log_sum_exp(m, l)


@operation("P <- S", (5, (0,)))
def row_softmax(tile: Tile, outputs: list[Array], inputs: list[Array]) -> None:
    """P = softmax of whole rows of S."""
    (p,), (s,) = outputs, inputs
    m = s.max(axis=-1)
    softmax.stable_exp(s, m, out=p)
    p[...] = softmax.normalise(p, p.sum(axis=-1))


@operation("P <- S m l", (3, (0,)))
def tile_softmax(tile: Tile, outputs: list[Array], inputs: list[Array]) -> None:
    """P = e^(S - m) / l, for rows whose statistics are known."""
    (p,), (s, m, l) = outputs, inputs
    softmax.stable_exp(s, m, out=p)
    p[...] = softmax.normalise(p, l)
