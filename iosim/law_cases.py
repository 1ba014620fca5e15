"""Cases for the laws of online softmax: plain data, and hypothesis strategies that are adversarial.

A case holds only numbers, strings and tuples, so that its repr is Python that can be pasted.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, nan

import hypothesis
import numpy as np
from hypothesis import strategies as st

from iosim import softmax_exact
from iosim.precision import NAMES, Array, precision

SAFE_FLOAT16 = 1e4
"""Values of float16 cases stay below this, so that O and the worst error fit in float16."""


@dataclass(frozen=True)
class Case:
    """Scores (rows x keys) and values (keys x d_v), a partition of the keys, and a merge tree.

    ``parts`` lists the keys of each part; a part may be empty. ``joins`` builds the tree: each
    number says which two neighbouring states merge next (modulo those there are); when it has no
    more to say they merge from the left.
    """

    scores: tuple[tuple[float, ...], ...]
    values: tuple[tuple[float, ...], ...]
    parts: tuple[tuple[int, ...], ...]
    joins: tuple[int, ...] = ()
    dtype: str = "float32"

    def arrays(self) -> tuple[Array, Array]:
        """Scores (rows, keys) in the accumulator's dtype; values (keys, d_v) in the dtype."""
        form = precision(self.dtype)
        values = np.array(self.values, form.accumulator)
        if self.dtype == "float16":
            values = values.clip(-SAFE_FLOAT16, SAFE_FLOAT16)
        return np.array(self.scores, form.accumulator), form.round(values)

    def blocks(self) -> list[tuple[Array, Array]]:
        """The (scores, values) of each part."""
        scores, values = self.arrays()
        return [(scores[:, list(part)], values[list(part)]) for part in self.parts]


@dataclass(frozen=True)
class PoisonedCase:
    """A case of which one score is replaced by NaN or +inf."""

    case: Case
    row: int
    key: int
    poison: float


@dataclass(frozen=True)
class ExactCase:
    """One row with integer scores (None is masked) and integer values; the rest as in `Case`."""

    scores: tuple[int | None, ...]
    values: tuple[tuple[int, ...], ...]
    parts: tuple[tuple[int, ...], ...]
    joins: tuple[int, ...] = ()

    def states(self) -> list[softmax_exact.ExactState]:
        """The state of each part."""
        return [
            softmax_exact.of_block(
                [self.scores[key] for key in part],
                [self.values[key] for key in part],
                len(self.values[0]),
            )
            for part in self.parts
        ]


# Strategies. The simplest comes first in each, as hypothesis shrinks towards it. All there is to a
# key (part, scores, value) is drawn together, so that hypothesis can leave the key out.


def _floats(low: float, high: float) -> st.SearchStrategy[float]:
    narrow = [float(np.float32(x)) for x in (low, high)]
    return st.floats(*narrow, width=32)


_MASKED = st.just(-inf)
SCORES = {
    "ordinary": _floats(-30, 30),
    "some masked": st.one_of(_floats(-30, 30), _MASKED),
    "all masked": _MASKED,
    "few finite": st.one_of(_MASKED, _MASKED, _MASKED, _floats(-1e5, 1e5)),
    "few distinct": st.sampled_from([0.0, -0.0, 1.0, -1e5, 88.0, -104.0, -inf]),
    "below any sentinel": _floats(-1e5, -5e4),
    "below, some masked": st.one_of(_floats(-1e5, -5e4), _MASKED),
    "negative, many masked": st.one_of(_floats(-1e5, -1e-3), _MASKED, _MASKED),
    "large": _floats(-1e4, 1e4),
    "huge": st.one_of(_floats(-1e37, 1e37), _MASKED),
    "tiny": _floats(-1e-30, 1e-30),
}
"""Kinds of score: a row draws all its scores from one kind, or repeats a single one."""

VALUES = {
    "ordinary": _floats(-8, 8),
    "zero": st.just(0.0),
    "one large": st.just(1e5),
    "large": _floats(-1e5, 1e5),
    "tiny": _floats(-1e-30, 1e-30),
}


@st.composite
def _score(draw: st.DrawFn) -> st.SearchStrategy[float]:
    """What the scores of one row are drawn from."""
    kind = draw(st.sampled_from([*SCORES, "equal"]))
    return st.just(draw(_floats(-1e5, 1e5))) if kind == "equal" else SCORES[kind]


# The part of a key, counted from 1; 0 leaves the key out, and is simpler than any part.
_PART = st.integers(0, 6)
_JOINS = st.lists(st.integers(0, 6), max_size=6).map(tuple)


def _parts(part_of_key: list[int]) -> tuple[tuple[int, ...], ...]:
    """The keys of each part, from the part of each key, counted from 1.

    >>> _parts([3, 1, 3])
    ((1,), (), (0, 2))
    """
    return tuple(
        tuple(key for key, part in enumerate(part_of_key) if part == i)
        for i in range(1, max(part_of_key) + 1)
    )


ROWS, WIDTH = 4, 3


@st.composite
def _cases(draw: st.DrawFn) -> Case:
    # All rows and columns are drawn and some kept, so that hypothesis can leave out any of them
    # without drawing the rest anew.
    rows = [draw(_score()) for _ in range(ROWS)]
    kept = [row for row in range(ROWS) if draw(st.booleans())] or [0]
    value = VALUES[draw(st.sampled_from(list(VALUES)))]
    width = draw(st.integers(1, WIDTH))
    key = st.tuples(_PART, st.tuples(*rows), st.tuples(*[value] * WIDTH))
    keys = [key for key in draw(st.lists(key, min_size=4, max_size=14)) if key[0]]
    hypothesis.assume(keys)
    return Case(
        scores=tuple(tuple(scores[row] for _, scores, _ in keys) for row in kept),
        values=tuple(values[:width] for _, _, values in keys),
        parts=_parts([part for part, _, _ in keys]),
        joins=draw(_JOINS),
        dtype=draw(st.sampled_from(["float32", "float64", "float16", "bfloat16"])),
    )


@st.composite
def _poisoned(draw: st.DrawFn) -> PoisonedCase:
    case = draw(CASES)
    return PoisonedCase(
        case,
        row=draw(st.integers(0, len(case.scores) - 1)),
        key=draw(st.integers(0, len(case.values) - 1)),
        poison=draw(st.sampled_from([nan, inf])),
    )


@st.composite
def _exact_cases(draw: st.DrawFn) -> ExactCase:
    # Exponents of a few thousand bits cost time, not exactness.
    reach = draw(st.sampled_from([4, 64, 2000]))
    score = st.one_of(st.integers(-reach, reach), st.none())
    value = st.tuples(*[st.integers(-(10**6), 10**6)] * draw(st.integers(1, 2)))
    key = st.tuples(_PART, score, value)
    keys = [key for key in draw(st.lists(key, min_size=4, max_size=12)) if key[0]]
    hypothesis.assume(keys)
    return ExactCase(
        scores=tuple(score for _, score, _ in keys),
        values=tuple(value for _, _, value in keys),
        parts=_parts([part for part, _, _ in keys]),
        joins=draw(_JOINS),
    )


CASES = _cases()
POISONED_CASES = _poisoned()
EXACT_CASES = _exact_cases()

KNOWN = tuple(
    Case(scores, values, parts, dtype=dtype)
    for dtype in NAMES
    for scores, values, parts in [
        # q = [-20000, 0], k = [1, 0]: a sentinel of -1e4 lets the hidden key win the first row.
        (((-20000.0, -inf), (0.0, -inf)), ((1.0,), (100.0,)), ((0,), (1,))),
        (((-20000.0, -inf), (0.0, -inf)), ((1.0,), (100.0,)), ((1,), (0,))),
        # All scores below -5e4, and a first tile that is masked before negative scores come.
        (((-5e4 - 8, -6e4, -1e5, -7e4),), ((1.0,), (2.0,), (3.0,), (4.0,)), ((0, 1), (2, 3))),
        (((-inf, -inf, -3.0, -9e4),), ((5.0,), (6.0,), (7.0,), (8.0,)), ((0, 1), (2, 3))),
        # An empty row, and a row with one finite score and a large value.
        (((-inf, -inf), (-inf, -7e4)), ((1e5,), (1e5,)), ((0,), (1,))),
    ]
)
"""Known answers and kinds of fault seen in public kernels, in every dtype."""
