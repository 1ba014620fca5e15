"""Exactness: every schedule, executed tile by tile, is attention up to a derived rounding error."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from iosim import reference, tolerance
from iosim.errors import IosimError
from iosim.precision import Array, precision
from iosim.reading.execute import execute
from iosim.schedule.nested import part
from iosim.schedule.operations import find_operation
from iosim.schedule.registry import Family
from iosim.schedule.tree import Compute, Dim, For, Move, Schedule, nodes
from iosim.verify.grid import DTYPES, RANDOM, Case, cases, chosen
from iosim.verify.registry import Scope, verification
from iosim.verify.result import Check, found, verdict
from iosim.verify.two_times import Beyond, stored_wide


@verification
def exactness(scope: Scope) -> Iterator[Check]:
    """Executed tile by tile, every forward schedule is attention, up to a derived rounding error.

    Reference: float64. The 2x rule is the field's own: at most twice the error of standard
    attention in the same dtype, + 1e-5.
    """
    forward = {n: each for n, each in scope.schedules.items() if each.direction == "forward"}
    if not forward:
        raise IosimError("no schedule given is one of a forward pass, so there is no attention")
    grid = list(cases(scope.thorough))
    for dtype in DTYPES:
        truths: dict[int, Truth] = {}  # by the identity of the case
        for name, family in forward.items():
            scope.progress(f"exactness: {name} in {dtype}")
            able = chosen(grid, family, dtype, scope.thorough)
            truths |= {id(c): Truth.of(c, dtype) for c in able if id(c) not in truths}
            yield _row(name, family, dtype, [truths[id(case)] for case in able])


@dataclass(frozen=True, eq=False)
class Truth:
    """A case in a dtype: its inputs rounded to it, and what must come out.

    `O` and `LSE` are the float64 reference's, `standard_error` is the largest error of standard
    attention executed in the dtype, `nan` marks the query rows where NaN must come out.
    """

    case: Case
    dtype: str
    q: Array
    k: Array
    v: Array
    visible: Array | None
    factors: Array | None
    O: Array
    LSE: Array
    nan: Array
    standard_error: float

    @classmethod
    def of(cls, case: Case, dtype: str) -> "Truth":
        """Return what must come out of a case in a dtype."""
        form = precision(dtype)
        q, k, v = (form.round(x.astype(form.accumulator)) for x in case.inputs())
        visible, factors = case.visible(), case.factors()
        wide = [x.astype(np.float64) for x in (q, k, v)]
        O, LSE = reference.attention(wide[0], wide[1], wide[2], visible, factors=factors)
        standard, _ = reference.standard_attention(q, k, v, dtype, visible, factors=factors)
        sees_any = True if visible is None else visible.any(axis=-1)
        nan = np.asarray(np.isnan(q).any(axis=-1) & sees_any)
        error = _largest(standard - O, nan)
        return cls(case, dtype, q, k, v, visible, factors, O, LSE, nan, error)


def _largest(error: Array, left_out: Array) -> float:
    """Return the largest absolute error over the rows that are not left out; NaN if one is NaN."""
    return float(np.abs(np.where(left_out[..., None], 0.0, error)).max(initial=0.0))


def _row(name: str, family: Family, dtype: str, truths: list[Truth]) -> Check:
    worst = _Worst()
    wrong: list[str] = []  # beyond the derived tolerance, or not valid at all
    beyond = Beyond()  # within it, but beyond the 2x rule
    for truth in truths:
        try:
            schedule = truth.case.build(family, dtype)
            output, lse = _compare(truth, schedule)
        except IosimError as error:
            wrong.append(f"{truth.case}: {error}")
            continue
        for tensor, compared in (("O", output), ("LSE", lse)):
            if compared is not None and not compared:
                wrong.append(f"{truth.case}: {tensor}: {compared.reason}")
        worst.note(truth, output, lse)
        late = []
        if not tolerance.two_times_rule(output.max_error, truth.standard_error):
            late = [
                f"{truth.case}: error {output.max_error:.2g} against {truth.standard_error:.2g}"
            ]
        beyond.note(truth.case, late, schedule, partial(_keeps_the_rule, truth, schedule))
    if wrong:
        result, detail = verdict(False), f"{len(wrong)} wrong, such as {wrong[0]}"
    elif beyond.results:
        result = found(not beyond.unexplained)
        detail = (
            f"{len(truths)} cases within the tolerance, but {len(beyond.results)} beyond twice the "
            f"error of standard attention, such as {beyond}"
        )
    else:
        result = verdict(True)
        detail = (
            f"{len(truths)} cases; at worst {worst.of_tolerance:.0%} of the tolerance and "
            f"{worst.of_rule:.0%} of the 2x rule"
        )
    numbers = {
        "schedule": name,
        "dtype": dtype,
        "cases": len(truths),
        "largest_error": worst.error,
        "of_tolerance": worst.of_tolerance,
        "of_tolerance_at": worst.at,
        "of_two_times_rule": worst.of_rule,
        "wrong": len(wrong),
        "beyond_two_times_rule": len(beyond.results),
        "beyond_unexplained": len(beyond.unexplained),
    }
    return Check("exactness", f"{name}, {dtype}", result, detail, numbers)


@dataclass
class _Worst:
    """The largest error met, as it is, over the derived tolerance and over the 2x rule's."""

    error: float = 0.0
    of_tolerance: float = 0.0
    of_rule: float = 0.0
    at: str = ""

    def note(
        self, truth: Truth, output: tolerance.Comparison, lse: tolerance.Comparison | None
    ) -> None:
        ratio = max(output.max_ratio, lse.max_ratio if lse is not None else 0.0)
        if ratio > self.of_tolerance:
            self.of_tolerance, self.at = ratio, str(truth.case)
        self.error = max(self.error, output.max_error)
        self.of_rule = max(self.of_rule, output.max_error / (2 * truth.standard_error + 1e-5))


def _compare(
    truth: Truth, schedule: Schedule
) -> tuple[tolerance.Comparison, tolerance.Comparison | None]:
    """Return how O compares with the reference, and LSE where the schedule stores one."""
    done = execute(schedule, truth.q, truth.k, truth.v, random=RANDOM)
    allowed, allowed_lse = tolerance.elementwise_error(
        rounding_of(schedule), truth.q, truth.k, truth.v, truth.visible, factors=truth.factors
    )
    output = tolerance.agrees(done.O, truth.O, allowed, truth.nan[..., None])
    if done.LSE is None:
        return output, None
    return output, tolerance.agrees(done.LSE, truth.LSE, allowed_lse, truth.nan)


def _keeps_the_rule(truth: Truth, schedule: Schedule, names: Collection[str]) -> bool:
    """Return whether O is within the 2x rule where the tensors of these names are stored wide."""
    output, _ = _compare(truth, stored_wide(schedule, names))
    return bool(output) and tolerance.two_times_rule(output.max_error, truth.standard_error)


def rounding_of(schedule: Schedule) -> tolerance.Execution:
    """Return what the rounding error of a schedule depends on, read off its tree.

    The statistics are rescaled once for every key tile of the loop that rescales them, and keys
    are summed in the order of the loop around P V. Where that is another loop (or none), all keys
    count as one sum, which is more than any order needs. Where finished parts are merged, the loop
    around that has a block for each of them, within which tiles are counted.

    >>> from iosim.schedule import family
    >>> from iosim.shape import AttentionShape
    >>> flash1 = family("flash1").build(AttentionShape(100, 100, 8), br=16, bc=30)
    >>> found = rounding_of(flash1)
    >>> found.tiles, found.largest_tile, found.stored_output_per_tile, found.stored_scores
    (4, 30, True, False)
    """
    shape = schedule.shape
    rescaled = _key_loop(schedule, lambda node: node.operation.startswith("rescale"))
    summed = _key_loop(schedule, lambda node: find_operation(node).role == "accumulate")
    one_loop = rescaled is not None and summed is not None and rescaled.dim == summed.dim
    merged = _key_loop(schedule, lambda node: node.operation == "merge_finished")
    every = [node for node, _ in nodes(schedule.body)]
    moves = [node for node in every if isinstance(node, Move)]
    computes = [node for node in every if isinstance(node, Compute)]
    scores = {n.outputs[0].name for n in computes if find_operation(n).role == "scores"}
    return tolerance.Execution(
        dtype=shape.dtype,
        head_dim=shape.head_dim,
        n_keys=shape.n_k,
        tiles=_tiles(rescaled.dim, merged.dim if merged else None) if rescaled else 1,
        largest_tile=_largest_block(rescaled.dim) if rescaled and one_loop else shape.n_k,
        splits=merged.dim.blocks if merged else 1,
        split_keys=_largest_block(merged.dim) if merged else None,
        stored_scores=any(m.kind == "store" and m.tensor.name in scores for m in moves),
        stored_output_per_tile=any(m.kind == "load" and m.tensor.place == "output" for m in moves),
        dropout=shape.dropout,
    )


def _tiles(dim: Dim, split: Dim | None) -> int:
    """Return the most blocks that a cut of the keys has in a split, or in all without splits."""
    within = split is not None and split in dim.cuts
    return part(dim, min(split.block, split.n)).blocks if split and within else dim.blocks


def _largest_block(dim: Dim) -> int:
    return min(dim.n, *(cut.block for cut in dim.cuts))


def _key_loop(schedule: Schedule, wanted: Callable[[Compute], bool]) -> For | None:
    """Return the innermost loop over keys around the first such computation."""
    for node, loops in nodes(schedule.body):
        if isinstance(node, Compute) and wanted(node):
            around = [loop for loop in loops if loop.dim.name == "key"]
            return around[-1] if around else None
    return None
