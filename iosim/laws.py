"""The laws of online softmax as named functions, with hypothesis strategies that try to break them.

One registry, `LAWS`, serves the tests and ``iosim fuzz``. A law takes a case and raises where it
does not hold. Cases are plain data: their repr is Python that can be pasted. This module imports
hypothesis; nothing that starts quickly may import it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, TypeVar

import hypothesis
import numpy as np
from hypothesis import strategies as st

from iosim import reference, softmax, softmax_exact, tolerance
from iosim.law_cases import (
    CASES,
    EXACT_CASES,
    KNOWN,
    POISONED_CASES,
    Case,
    ExactCase,
    PoisonedCase,
)
from iosim.precision import Array, precision


@dataclass(frozen=True)
class Law:
    """A named statement; calling it with a case checks it, with every NumPy warning an error."""

    name: str
    statement: str
    cases: st.SearchStrategy[Any]
    check: Callable[[Any], None]

    def __call__(self, case: Any) -> None:
        """Raise `AssertionError` (or what the code raised) where the law does not hold."""
        with np.errstate(all="raise"):
            self.check(case)


LAWS: dict[str, Law] = {}

State = TypeVar("State")


def law(
    name: str, cases: st.SearchStrategy[Any]
) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Register a check under ``name``; the first line of its docstring is the statement."""

    def register(check: Callable[[Any], None]) -> Callable[[Any], None]:
        LAWS[name] = Law(name, (check.__doc__ or name).strip().splitlines()[0], cases, check)
        return check

    return register


@dataclass(frozen=True)
class Failure:
    """A case, as small as hypothesis could make it, that breaks a law."""

    law: str
    case: Any
    error: str

    @property
    def python(self) -> str:
        """Python that shows the failure again."""
        names = ", ".join(sorted(_dataclass_names(self.case)))
        return (
            "from math import inf, nan\n"
            "from iosim.laws import LAWS\n"
            f"from iosim.law_cases import {names}\n"
            f"LAWS[{self.law!r}]({self.case!r})"
        )


class _EnoughError(BaseException):
    """Ends a run early. Not an `Exception`, which hypothesis would take for a failing example."""


def run_law(
    law: Law, *, examples: int, seed: int, wanted: Callable[[], bool] = lambda: True
) -> Failure | None:
    """Check ``law`` on up to ``examples`` random cases, then on those of `KNOWN`; None is success.

    ``wanted`` is asked before each case, and says whether time is left for it. The same seed gives
    the same cases.
    """
    found: Failure | None = None

    def body(case: Any) -> None:
        nonlocal found
        # While a failure is being shrunk every answer must come from the law itself.
        if found is None and not wanted():
            raise _EnoughError
        try:
            law(case)
        except Exception as error:
            found = Failure(law.name, case, _sentence(error))
            raise

    test = hypothesis.settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
        suppress_health_check=list(hypothesis.HealthCheck),
        verbosity=hypothesis.Verbosity.quiet,
        report_multiple_bugs=False,
    )(hypothesis.given(law.cases)(body))
    try:
        hypothesis.seed(seed)(test)()
        for case in KNOWN if law.cases is CASES else ():
            body(case)
    except _EnoughError:
        pass
    except Exception:
        # The last failing call of ``body`` was the smallest one; what it raised is kept there.
        if found is None:
            raise
    return found


# The laws.


@law("merge-commutes", CASES)
def merge_commutes(case: Case) -> None:
    """merge(a, b) = merge(b, a), to the last bit."""
    states = _states(case)
    for a, b in zip(states, [*states[1:], states[0]], strict=True):
        _same(softmax.merge(a, b), softmax.merge(b, a))


@law("identity-is-neutral", CASES)
def identity_is_neutral(case: Case) -> None:
    """merge(a, identity) = a, to the last bit."""
    for a in _states(case):
        neutral = softmax.identity(a.m.shape, a.o.shape[-1], a.m.dtype)
        _same(softmax.merge(a, neutral), a)
        _same(softmax.merge(neutral, a), a)


@law("any-tree", CASES)
def any_tree(case: Case) -> None:
    """Any merge tree over any partition of the keys is within the derived tolerance."""
    _within_tolerance(case, *_tree(case), _execution(case))


@law("tile-loop", CASES)
def tile_loop(case: Case) -> None:
    """The tile loop of FlashAttention-2 over any partition is within the derived tolerance."""
    _within_tolerance(case, *_loop(case), _execution(case))


@law("finished-parts", CASES)
def finished_parts(case: Case) -> None:
    """Parts that were normalised apart merge within the derived tolerance (split-KV)."""
    states = [softmax.of_finished(*softmax.finish(state)) for state in _states(case)]
    output, lse = softmax.finish(_join(states, case.joins, softmax.merge))
    execution = replace(_execution(case), tiles=1, splits=len(case.parts))
    _within_tolerance(case, precision(case.dtype).round(output), lse, execution)


@law("in-the-hull", CASES)
def in_the_hull(case: Case) -> None:
    """O lies between the least and the greatest value, up to the tolerance of equal scores."""
    output, _ = _tree(case)
    scores, values = case.arrays()
    allowed = tolerance.forward_error(
        _execution(case), score_magnitude=0.0, value_magnitude=float(abs(values).max())
    )
    some = (scores > -inf).any(axis=1)
    assert (output[some] >= values.min(axis=0) - allowed).all(), "below every value"
    assert (output[some] <= values.max(axis=0) + allowed).all(), "above every value"
    assert (output[~some] == 0).all(), "a row that sees no key must give 0"


@law("poison-stays-in-its-row", POISONED_CASES)
def poison_stays(poisoned: PoisonedCase) -> None:
    """A NaN or +inf score makes its row NaN, and leaves other rows as they were, bit for bit."""
    case, row = poisoned.case, poisoned.row
    rows = [list(r) for r in case.scores]
    rows[row][poisoned.key] = poisoned.poison
    bad = replace(case, scores=tuple(tuple(r) for r in rows))
    for run in (_tree, _loop):
        for clean, dirty in zip(run(case), run(bad), strict=True):
            assert np.isnan(dirty[row]).all(), f"row {row} must be NaN, not {dirty[row]}"
            others = np.arange(len(rows)) != row
            np.testing.assert_array_equal(dirty[others], clean[others])
            assert not np.isnan(clean).any(), "NaN without a NaN score"


@law("exact-monoid", EXACT_CASES)
def exact_monoid(case: ExactCase) -> None:
    """Exactly: merge is commutative and associative, and the identity is neutral."""
    merge = softmax_exact.merge
    neutral = softmax_exact.identity(len(case.values[0]))
    states = [*case.states(), neutral, neutral]
    for a, b, c in zip(states, states[1:], states[2:], strict=False):
        assert merge(a, b) == merge(b, a)
        assert merge(merge(a, b), c) == merge(a, merge(b, c))
        assert merge(a, neutral) == a == merge(neutral, a)


@law("exact-any-tree", EXACT_CASES)
def exact_any_tree(case: ExactCase) -> None:
    """Exactly: any merge tree over any partition, in any order, is the two-pass average."""
    width = len(case.values[0])
    state = _join(case.states(), case.joins, softmax_exact.merge)
    assert state == softmax_exact.of_block(case.scores, case.values, width)
    assert softmax_exact.finish(state) == softmax_exact.two_pass(case.scores, case.values, width)


# What the laws are made of.


def _join(
    states: Sequence[State], joins: Sequence[int], merge: Callable[[State, State], State]
) -> State:
    """Merge neighbours as ``joins`` says, and from the left when it has no more to say."""
    left = list(states)
    for step in range(len(left) - 1):
        at = joins[step] % (len(left) - 1) if step < len(joins) else 0
        left[at : at + 2] = [merge(left[at], left[at + 1])]
    return left[0]


def _states(case: Case) -> list[softmax.SoftmaxState]:
    form = precision(case.dtype)
    return [softmax.of_block(scores, values, form) for scores, values in case.blocks()]


def _tree(case: Case) -> tuple[Array, Array]:
    output, lse = softmax.finish(_join(_states(case), case.joins, softmax.merge))
    return precision(case.dtype).round(output), lse


def _loop(case: Case) -> tuple[Array, Array]:
    """Dao 2023, arXiv 2307.08691, Algorithm 1, lines 7 to 12, over the parts."""
    form = precision(case.dtype)
    state = softmax.identity(len(case.scores), len(case.values[0]), form.accumulator)
    m, total, o = state.m, state.l, state.o
    for scores, values in case.blocks():
        m_new = softmax.new_maximum(scores, m)
        p, factor = softmax.stable_exp(scores, m_new), softmax.rescale(m, m_new)
        with np.errstate(all="ignore"):
            total = factor * total + p.sum(axis=-1)
            o = factor[:, None] * o + form.round(p) @ values
        m = m_new
    return form.round(softmax.normalise(o, total)), softmax.log_sum_exp(m, total)


def _execution(case: Case) -> tolerance.Execution:
    """Head dimension 1: a given score is the product of itself and 1."""
    longest = max(len(part) for part in case.parts)
    return tolerance.Execution(
        case.dtype, 1, len(case.values), tiles=len(case.parts), largest_tile=longest
    )


def _within_tolerance(
    case: Case, output: Array, lse: Array, execution: tolerance.Execution
) -> None:
    scores, values = case.arrays()
    # Scores as they are: queries are their rows, keys the unit vectors, and -inf is the mask.
    visible = scores > -inf
    q = np.where(visible, scores, 0).astype(np.float64)
    k = np.eye(len(values))
    expected = reference.attention(q, k, values, visible, scale=1.0)
    bound = tolerance.elementwise_error(execution, q, k, values, visible, scale=1.0)
    for name, actual, wanted, allowed in zip(
        ("O", "LSE"), (output, lse), expected, bound, strict=True
    ):
        comparison = tolerance.agrees(actual, wanted, allowed)
        assert comparison, f"{name}: {comparison.reason} (tolerance {np.max(allowed):.3g})"


def _same(a: softmax.SoftmaxState, b: softmax.SoftmaxState) -> None:
    for x, y in ((a.m, b.m), (a.l, b.l), (a.o, b.o)):
        np.testing.assert_array_equal(x, y)


def _sentence(error: Exception) -> str:
    first = next((line for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {first.strip()}" if first else type(error).__name__


def _dataclass_names(case: Any) -> set[str]:
    fields = getattr(case, "__dataclass_fields__", None)
    if fields is None:
        return set()
    inner = (_dataclass_names(getattr(case, name)) for name in fields)
    return {type(case).__name__}.union(*inner)
