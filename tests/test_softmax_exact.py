"""Exact online softmax: the laws are in test_softmax.py with the others; here what they rest on."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given

from iosim import softmax, softmax_exact
from iosim.errors import IosimError
from iosim.law_cases import EXACT_CASES
from iosim.laws import LAWS, run_law


def test_two_scores_by_hand():
    # Weights 2^3 and 2^1: (8 * 5 + 2 * 10) / 10 = 6, sum 10.
    state = softmax_exact.of_block([3, None, 1], [[5], [99], [10]], 1)
    assert state == softmax_exact.ExactState(3, Fraction(5, 4), (Fraction(15, 2),))
    assert softmax_exact.finish(state) == ((Fraction(6),), Fraction(10))


def test_masked_row():
    assert softmax_exact.finish(softmax_exact.of_block([None, None], [[1], [2]], 1)) == ((0,), 0)
    assert softmax_exact.two_pass([None], [[1]], 1) == ((0,), 0)


def test_scores_far_apart_stay_exact():
    a, b = softmax_exact.of_key(5000, [0]), softmax_exact.of_key(-5000, [1])
    assert softmax_exact.finish(softmax_exact.merge(a, b))[0][0] == Fraction(1, 1 + 2**10000)


def test_scores_and_values_must_be_as_many():
    with pytest.raises(IosimError, match="2 scores need as many values, not 1"):
        softmax_exact.of_block([1, 2], [[1]], 1)


@given(EXACT_CASES)
def test_floating_point_is_near_the_exact_state(case):
    """The exact twin and `softmax` are the same algorithm: scores times ln 2, base e."""
    scores = np.array([[-np.inf if s is None else s * np.log(2) for s in case.scores]])
    values = np.array(case.values, np.float64)
    (O,), _ = softmax.finish(softmax.of_block(scores, values))
    exact, _ = softmax_exact.two_pass(case.scores, case.values, values.shape[1])
    # s ln 2 errs by 2 units of 2**-53 |s| <= 1400: log-weights err by h < 2 * 2 * 1400 * 2**-53,
    # O by 2 V tanh(h / 2) <= V h (docs/tolerance.md, step 3); 100 roundings more are generous.
    allowed = abs(values).max() * (4 * 1400 + 100) * 2.0**-53
    assert all(abs(float(x) - y) <= allowed for x, y in zip(exact, O, strict=True))


def test_the_exact_laws_can_fail(monkeypatch):
    merge = softmax_exact.merge

    def broken(a, b):
        merged = merge(a, b)
        return merged if a.m is None or b.m is None or a.m != b.m else a

    monkeypatch.setattr(softmax_exact, "merge", broken)
    assert run_law(LAWS["exact-monoid"], examples=300, seed=0)
    assert run_law(LAWS["exact-any-tree"], examples=300, seed=0)
