"""Online softmax in exact arithmetic: with integer scores and base 2, every quantity is rational.

Softmax in base 2 is softmax of scores multiplied by ln 2, so nothing in the algebra of the merge
depends on the base. For integer scores and rational values 2^(s - m) is a fraction, and the laws
that floating point obeys only up to rounding hold with ``==``: the states are a commutative monoid,
and every merge tree over every partition of the keys gives the two-pass average. A masked key has
the score None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from iosim.errors import IosimError


@dataclass(frozen=True)
class ExactState:
    """One row's (m, l, o): m = max s_j or None, l = sum 2^(s_j - m), o = sum 2^(s_j - m) v_j.

    ``o`` is a tuple of d_v fractions. Equal sets of keys have equal states.
    """

    m: int | None
    l: Fraction
    o: tuple[Fraction, ...]


def identity(value_dim: int) -> ExactState:
    """The state of a row that has seen no key.

    >>> identity(1)
    ExactState(m=None, l=Fraction(0, 1), o=(Fraction(0, 1),))
    """
    return ExactState(None, Fraction(0), (Fraction(0),) * value_dim)


def of_key(score: int | None, value: Sequence[Fraction | int]) -> ExactState:
    """The state of a single key; a masked one (None) is the identity.

    >>> of_key(7, [3]) == ExactState(7, Fraction(1), (Fraction(3),))
    True
    """
    if score is None:
        return identity(len(value))
    return ExactState(score, Fraction(1), tuple(Fraction(x) for x in value))


def of_block(
    scores: Sequence[int | None], values: Sequence[Sequence[Fraction | int]], value_dim: int
) -> ExactState:
    """The state of a block of keys, by its definition: the maximum first, then the sums.

    Raises `IosimError` unless there are as many values as scores.
    """
    if len(scores) != len(values):
        raise IosimError(f"{len(scores)} scores need as many values, not {len(values)}")
    seen = [(s, v) for s, v in zip(scores, values, strict=True) if s is not None]
    if not seen:
        return identity(value_dim)
    m = max(s for s, _ in seen)
    weights = [_power(s - m) for s, _ in seen]
    o = (
        sum((w * v[c] for w, (_, v) in zip(weights, seen, strict=True)), Fraction(0))
        for c in range(value_dim)
    )
    return ExactState(m, sum(weights, Fraction(0)), tuple(o))


def merge(a: ExactState, b: ExactState) -> ExactState:
    """The state of the keys of ``a`` and ``b`` together.

    >>> merge(of_key(1, [0]), of_key(0, [3]))
    ExactState(m=1, l=Fraction(3, 2), o=(Fraction(3, 2),))
    """
    if a.m is None:
        return b
    if b.m is None:
        return a
    m = max(a.m, b.m)
    f, g = _power(a.m - m), _power(b.m - m)
    o = tuple(f * x + g * y for x, y in zip(a.o, b.o, strict=True))
    return ExactState(m, f * a.l + g * b.l, o)


def finish(state: ExactState) -> tuple[tuple[Fraction, ...], Fraction]:
    """The output, and the sum of 2^s_j (whose binary logarithm is LSE in base 2).

    A row that saw no key gives 0 and 0, the power of two of minus infinity.

    >>> finish(merge(of_key(1, [0]), of_key(0, [3])))
    ((Fraction(1, 1),), Fraction(3, 1))
    """
    if state.m is None:
        return state.o, Fraction(0)
    return tuple(x / state.l for x in state.o), state.l * _power(state.m)


def two_pass(
    scores: Sequence[int | None], values: Sequence[Sequence[Fraction | int]], value_dim: int
) -> tuple[tuple[Fraction, ...], Fraction]:
    """The same by the definition of softmax, without a maximum, a state or a merge.

    >>> two_pass([1, 0, None], [[0], [3], [9]], 1)
    ((Fraction(1, 1),), Fraction(3, 1))
    """
    weights = [Fraction(0) if s is None else _power(s) for s in scores]
    total = sum(weights, Fraction(0))
    average = tuple(
        sum((w * v[c] for w, v in zip(weights, values, strict=True)), Fraction(0)) / (total or 1)
        for c in range(value_dim)
    )
    return average, total


def _power(exponent: int) -> Fraction:
    return Fraction(2) ** exponent
