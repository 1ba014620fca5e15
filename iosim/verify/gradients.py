"""Gradients: every backward schedule gives the gradients of attention, up to a derived error."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np

from iosim import reference, tolerance
from iosim.errors import IosimError
from iosim.precision import Array, precision
from iosim.reading.gradients import GRADIENTS
from iosim.schedule.operations import find_operation
from iosim.schedule.registry import Family, forward_of
from iosim.schedule.tree import Compute, For, Move, Schedule, nodes
from iosim.shape import AttentionShape
from iosim.training import training_step
from iosim.verify.exactness import rounding_of
from iosim.verify.grid import DTYPES, RANDOM, Case, cases, chosen
from iosim.verify.registry import Scope, verification
from iosim.verify.result import Check, found, verdict
from iosim.verify.two_times import Beyond, read_narrow, stored_wide


@verification
def gradients(scope: Scope) -> Iterator[Check]:
    """Executed after its forward pass, every backward schedule gives the gradients of attention.

    Up to a derived rounding error; reference: float64. The 2x rule is the field's own: at most
    twice the error of the standard backward pass in the same dtype, + 1e-5.
    """
    backward = {n: each for n, each in scope.schedules.items() if each.direction == "backward"}
    if not backward:
        raise IosimError("no schedule given is one of a backward pass, so there are no gradients")
    grid = list(cases(scope.thorough))
    for dtype in DTYPES:
        truths: dict[int, Truth] = {}  # by the identity of the case
        for name, family in backward.items():
            scope.progress(f"gradients: {name} in {dtype}")
            able = chosen(grid, family, dtype, scope.thorough)
            truths |= {id(c): Truth.of(c, dtype) for c in able if id(c) not in truths}
            yield _row(name, family, dtype, [truths[id(case)] for case in able])


@dataclass(frozen=True, eq=False)
class Truth:
    """A case in a dtype: its inputs rounded to it, and the gradients that must come out.

    `nan` marks the rows of dQ, dK and dV where NaN must come out: those of queries that are NaN,
    and of the keys that they see. Of the keys that are hidden from them nothing is asked
    (`unsaid`): a weight of 0 times NaN is NaN where their tile is met. `standard_errors` are the
    largest errors of the standard backward pass executed in the dtype.
    """

    case: Case
    q: Array
    k: Array
    v: Array
    dO: Array
    visible: Array | None
    factors: Array | None
    gradients: tuple[Array, Array, Array]
    nan: tuple[Array, Array, Array]
    unsaid: Array
    standard_errors: tuple[float, ...]

    @classmethod
    def of(cls, case: Case, dtype: str) -> "Truth":
        """Return what must come out of a case in a dtype."""
        form = precision(dtype)
        given = (*case.inputs(), case.output_gradient())
        q, k, v, dO = (form.round(x.astype(form.accumulator)).astype(np.float64) for x in given)
        visible, factors = case.visible(), case.factors()
        right = reference.attention_gradients(q, k, v, dO, visible, factors=factors)
        standard = reference.standard_gradients(q, k, v, dO, dtype, visible, factors=factors)
        seen = np.ones((case.shape.n_q, case.shape.n_k), bool) if visible is None else visible
        of_query = np.asarray(np.isnan(q).any(axis=-1) & seen.any(axis=-1))
        of_key = _of_group(np.any(of_query[..., None] & seen, axis=-2), case.shape)
        any_query = _of_group(np.any(of_query, axis=-1, keepdims=True), case.shape)
        nan = (of_query, of_key, of_key)
        unsaid = any_query & ~of_key
        errors = tuple(
            float(abs(np.where((rows | hidden)[..., None], 0.0, a - b)).max())
            for a, b, rows, hidden in zip(
                standard, right, nan, (np.zeros_like(of_query), unsaid, unsaid), strict=True
            )
        )
        return cls(case, q, k, v, dO, visible, factors, right, nan, unsaid, errors)

    def compare(self, name: str, actual: Array, allowed: Array) -> tolerance.Comparison:
        """Return how a gradient compares with what must come out."""
        at = GRADIENTS.index(name)
        expected, nan = self.gradients[at], self.nan[at][..., None]
        if name != "dQ":
            actual, expected, allowed = (
                np.where(self.unsaid[..., None], 0.0, x) for x in (actual, expected, allowed)
            )
        return tolerance.agrees(actual, expected, allowed, nan)


def _of_group(marks: Array, shape: AttentionShape) -> Array:
    """Return (..., heads, n) marks as (..., kv_heads, n): any of the heads that share a key."""
    *batch, _, n = marks.shape
    return np.asarray(marks.reshape(*batch, shape.kv_heads, shape.group, n).any(axis=-2))


def _row(name: str, family: Family, dtype: str, truths: list[Truth]) -> Check:
    of_tolerance = of_rule = largest = 0.0
    wrong: list[str] = []  # beyond the derived tolerance, or not valid at all
    beyond = Beyond()  # within it, but beyond the 2x rule
    for truth in truths:
        try:
            passes = truth.case.build(family, dtype), truth.case.build(forward_of(family), dtype)
            compared = compare(truth, *passes)
        except IosimError as error:
            wrong.append(f"{truth.case}: {error}")
            continue
        late = []
        for gradient, one, standard in zip(GRADIENTS, compared, truth.standard_errors, strict=True):
            if not one:
                wrong.append(f"{truth.case}: {gradient}: {one.reason}")
            of_tolerance = max(of_tolerance, one.max_ratio)
            of_rule = max(of_rule, one.max_error / (2 * standard + 1e-5))
            largest = max(largest, one.max_error)
            if not tolerance.two_times_rule(one.max_error, standard):
                late.append(f"{truth.case}: {gradient} errs by {one.max_error:.2g}, "
                            f"against {standard:.2g}")  # fmt: skip
        beyond.note(truth.case, late, passes[0], partial(_keeps_the_rule, truth, *passes))
    if wrong:
        result, detail = verdict(False), f"{len(wrong)} wrong, such as {wrong[0]}"
    elif beyond.results:
        result = found(not beyond.unexplained)
        detail = (
            f"{len(truths)} cases within the tolerance, but {len(beyond.results)} gradients beyond "
            f"twice the error of the standard backward pass, such as {beyond}"
        )
    else:
        result = verdict(True)
        detail = (
            f"{len(truths)} cases; at worst {of_tolerance:.0%} of the tolerance and "
            f"{of_rule:.0%} of the 2x rule"
        )
    numbers = {
        "schedule": name,
        "dtype": dtype,
        "cases": len(truths),
        "largest_error": largest,
        "of_tolerance": of_tolerance,
        "of_two_times_rule": of_rule,
        "wrong": len(wrong),
        "beyond_two_times_rule": len(beyond.results),
        "beyond_unexplained": len(beyond.unexplained),
    }
    return Check("gradients", f"{name}, {dtype}", result, detail, numbers)


def compare(
    truth: Truth, schedule: Schedule, forward: Schedule
) -> tuple[tolerance.Comparison, ...]:
    """Return how dQ, dK and dV of a backward schedule, after a forward one, compare."""
    given = (truth.q, truth.k, truth.v, truth.dO)
    done = training_step(schedule, forward, *given, random=RANDOM).backward.outputs
    rounding = backward_rounding_of(schedule, forward)
    allowed = tolerance.gradient_error(rounding, *given, truth.visible, factors=truth.factors)
    for name in GRADIENTS:
        if name not in done:
            raise IosimError(f"{schedule.name} stores no output {name}")
    return tuple(
        truth.compare(name, done[name], error)
        for name, error in zip(GRADIENTS, allowed, strict=True)
    )


def _keeps_the_rule(
    truth: Truth, schedule: Schedule, forward: Schedule, names: Collection[str]
) -> bool:
    """Return whether all gradients are within the 2x rule where these tensors are stored wide."""
    compared = compare(truth, stored_wide(schedule, names), stored_wide(forward, names))
    return all(
        one and tolerance.two_times_rule(one.max_error, standard)
        for one, standard in zip(compared, truth.standard_errors, strict=True)
    )


def backward_rounding_of(schedule: Schedule, forward: Schedule) -> tolerance.BackwardExecution:
    """Return what the rounding errors of gradients depend on, read off the trees of both passes.

    >>> from iosim.schedule import family
    >>> from iosim.shape import AttentionShape
    >>> shape = AttentionShape(100, 100, 8)
    >>> built = (family(name).build(shape, br=16, bc=30) for name in ("flash1_backward", "flash1"))
    >>> found = backward_rounding_of(*built)
    >>> found.query_tiles, found.key_tiles, found.stored_dq_per_tile
    (7, 4, True)
    """
    shape = schedule.shape
    moves = [node for node, _ in nodes(schedule.body) if isinstance(node, Move)]
    stored = {move.tensor.name for move in moves if move.kind == "store"}
    formed = {n.outputs[0].name for n, _ in _of_role(schedule, "dP")}
    return tolerance.BackwardExecution(
        forward=rounding_of(forward),
        value_dim=shape.value_dim,
        rows=shape.group * shape.n_q,
        query_tiles=_pieces(schedule, ("dK", "dV"), ("query", "group")),
        key_tiles=_pieces(schedule, ("dQ",), ("key",)),
        stored_scores=bool(formed & stored),
        stored_dq_per_tile=stored_per_tile(schedule),
    )


def stored_per_tile(schedule: Schedule) -> bool:
    """Return whether dQ is loaded, added to and stored in a dtype narrower than its sums."""
    return not read_narrow(schedule).isdisjoint(
        node.outputs[0] for node, _ in _of_role(schedule, "dQ")
    )


def _of_role(schedule: Schedule, *roles: str) -> Iterator[tuple[Compute, tuple[For, ...]]]:
    """Yield the computations of these roles, each with the loops around it."""
    for node, loops in nodes(schedule.body):
        if isinstance(node, Compute) and find_operation(node).role in roles:
            yield node, loops


def _pieces(schedule: Schedule, roles: tuple[str, ...], axes: tuple[str, ...]) -> int:
    """Return in how many pieces a gradient is summed at most: iterations of the loops over axes."""
    return max(
        prod(loop.dim.blocks for loop in loops if loop.dim.name in axes)
        for _, loops in _of_role(schedule, *roles)
    )
