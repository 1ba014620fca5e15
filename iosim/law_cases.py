"""Cases for the laws of online softmax: plain data, and hypothesis strategies that are adversarial.

A case holds only numbers, strings and tuples, so that its repr is Python that can be pasted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, nan

import numpy as np
from hypothesis import strategies as st

from iosim import softmax_exact
from iosim.precision import NAMES, Array, precision

SAFE_FLOAT16 = 1e4
"""Values of float16 cases stay below this, so that O and the worst error fit in float16."""


@dataclass(frozen=True)
class Case:
    """Scores and values, a partition of the keys, and a merge tree over its parts.

    ``keys`` is an order of the keys (columns of ``scores``, rows of ``values``); ``cuts`` are the
    ends of the parts, the last being the number of keys; parts may be empty. ``joins`` builds the
    tree: each number says which two neighbouring states merge next (modulo those there are).
    """

    scores: tuple[tuple[float, ...], ...]
    values: tuple[tuple[float, ...], ...]
    keys: tuple[int, ...]
    cuts: tuple[int, ...]
    joins: tuple[int, ...]
    dtype: str = "float32"

    def arrays(self) -> tuple[Array, Array]:
        """Scores (rows, keys) in the accumulator's dtype; values (keys, d_v) in the dtype."""
        form = precision(self.dtype)
        values = np.array(self.values, form.accumulator)
        if self.dtype == "float16":
            values = values.clip(-SAFE_FLOAT16, SAFE_FLOAT16)
        return np.array(self.scores, form.accumulator), form.round(values)

    def parts(self) -> list[tuple[Array, Array]]:
        """The (scores, values) of each part, in the order of ``keys``."""
        scores, values = self.arrays()
        return [
            (scores[:, list(part)], values[list(part)]) for part in parts_of(self.keys, self.cuts)
        ]


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
    keys: tuple[int, ...]
    cuts: tuple[int, ...]
    joins: tuple[int, ...]

    def parts(self) -> list[softmax_exact.ExactState]:
        """The state of each part, in the order of ``keys``."""
        return [
            softmax_exact.of_block(
                [self.scores[k] for k in part],
                [self.values[k] for k in part],
                len(self.values[0]),
            )
            for part in parts_of(self.keys, self.cuts)
        ]


def parts_of(keys: Sequence[int], cuts: Sequence[int]) -> list[Sequence[int]]:
    """The keys of each part.

    >>> parts_of((2, 0, 1), (1, 3))
    [(2,), (0, 1)]
    """
    return [keys[i:j] for i, j in zip((0, *cuts[:-1]), cuts, strict=True)]


# Strategies. The simplest comes first in each: hypothesis shrinks towards it.


def _floats(low: float, high: float) -> st.SearchStrategy[float]:
    narrow = [float(np.float32(x)) for x in (low, high)]
    return st.floats(*narrow, width=32)


@st.composite
def _score_row(draw: st.DrawFn, keys: int) -> tuple[float, ...]:
    """One row of scores of one adversarial kind."""
    ordinary = _floats(-30, 30)
    kinds: dict[str, st.SearchStrategy[float]] = {
        "ordinary": ordinary,
        "some masked": st.one_of(st.just(-inf), ordinary),
        "all masked": st.just(-inf),
        "below any sentinel": _floats(-1e5, -5e4),
        "below, some masked": st.one_of(st.just(-inf), _floats(-1e5, -5e4)),
        "huge": st.one_of(_floats(-1e37, 1e37), st.just(-inf)),
        "large": _floats(-1e4, 1e4),
        "tiny": _floats(-1e-30, 1e-30),
        "few distinct": st.sampled_from([0.0, -0.0, 1.0, -1e5, 88.0, -104.0, -inf]),
    }
    kind = draw(st.sampled_from([*kinds, "equal", "one finite", "first masked, then negative"]))
    if kind == "equal":
        return (draw(_floats(-1e5, 1e5)),) * keys
    if kind == "one finite":
        at = draw(st.integers(0, keys - 1))
        return tuple(draw(_floats(-1e5, 1e5)) if j == at else -inf for j in range(keys))
    if kind == "first masked, then negative":
        first = draw(st.integers(0, keys))
        rest = draw(st.lists(_floats(-1e5, -1e-3), min_size=keys - first, max_size=keys - first))
        return (-inf,) * first + tuple(rest)
    return tuple(draw(st.lists(kinds[kind], min_size=keys, max_size=keys)))


@st.composite
def _values(draw: st.DrawFn, keys: int, value_dim: int) -> tuple[tuple[float, ...], ...]:
    kind = draw(
        st.sampled_from(
            [_floats(-8, 8), st.just(1e5), _floats(-1e5, 1e5), _floats(-1e-30, 1e-30), st.just(0.0)]
        )
    )
    row = st.tuples(*[kind] * value_dim)
    return tuple(draw(st.lists(row, min_size=keys, max_size=keys)))


@st.composite
def _partition(draw: st.DrawFn, keys: int) -> dict[str, tuple[int, ...]]:
    """Any order of the keys, any cuts of it, any merge tree."""
    cuts = draw(st.lists(st.integers(0, keys), max_size=6))
    return {
        "keys": tuple(draw(st.permutations(range(keys)))),
        "cuts": (*sorted(cuts), keys),
        "joins": tuple(draw(st.lists(st.integers(0, 6), max_size=6))),
    }


@st.composite
def _cases(draw: st.DrawFn) -> Case:
    keys = draw(st.integers(1, 12))
    rows = draw(st.integers(1, 4))
    return Case(
        scores=tuple(draw(_score_row(keys)) for _ in range(rows)),
        values=draw(_values(keys, draw(st.integers(1, 3)))),
        **draw(_partition(keys)),
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
    keys = draw(st.integers(1, 10))
    # Exponents of a few thousand bits cost time, not exactness.
    reach = draw(st.sampled_from([4, 64, 2000]))
    score = st.one_of(st.integers(-reach, reach), st.none())
    value = st.tuples(*[st.integers(-(10**6), 10**6)] * draw(st.integers(1, 2)))
    return ExactCase(
        scores=tuple(draw(st.lists(score, min_size=keys, max_size=keys))),
        values=tuple(draw(st.lists(value, min_size=keys, max_size=keys))),
        **draw(_partition(keys)),
    )


CASES = _cases()
POISONED_CASES = _poisoned()
EXACT_CASES = _exact_cases()

KNOWN = tuple(
    Case(scores, values, keys, cuts, (), dtype)
    for dtype in NAMES
    for scores, values, keys, cuts in [
        # q = [-20000, 0], k = [1, 0]: a sentinel of -1e4 lets the hidden key win the first row.
        (((-20000.0, -inf), (0.0, -inf)), ((1.0,), (100.0,)), (0, 1), (1, 2)),
        (((-20000.0, -inf), (0.0, -inf)), ((1.0,), (100.0,)), (1, 0), (1, 2)),
        # All scores below -5e4, and a first tile that is masked before negative scores come.
        (((-5e4 - 8, -6e4, -1e5, -7e4),), ((1.0,), (2.0,), (3.0,), (4.0,)), (0, 1, 2, 3), (2, 4)),
        (((-inf, -inf, -3.0, -9e4),), ((5.0,), (6.0,), (7.0,), (8.0,)), (0, 1, 2, 3), (2, 4)),
        # An empty row, and a row with one finite score and a large value.
        (((-inf, -inf), (-inf, -7e4)), ((1e5,), (1e5,)), (0, 1), (1, 2)),
    ]
)
"""Known answers and kinds of fault seen in public kernels, in every dtype."""
