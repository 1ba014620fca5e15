"""The probable form of the tolerance with dropout: held, not vacuous, and only by what is kept."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs import operands

from iosim import reference
from iosim.precision import NAMES, precision
from iosim.random_bits import RandomState, dropout_factors
from iosim.reading.execute import execute
from iosim.schedule import family
from iosim.shape import AttentionShape
from iosim.tolerance import (
    Execution,
    confidence_factor,
    elementwise_error,
    failure_probability,
)
from iosim.tolerance.execution import Rows
from iosim.tolerance.probable import parts, runs
from iosim.verify.exactness import rounding_of

FUSED = ("flash2", "flash1", "split_kv")
SCHEDULES = (*FUSED, "standard", "standard_tiled")


def factors(shape, seed=0):
    size = (shape.batch, shape.heads, shape.n_q, shape.n_k)
    return dropout_factors(RandomState(seed), shape.dropout, size)


def executed(name, shape, tile, seed=0):
    """Inputs, factors, what depends on rounding, the errors of O and LSE."""
    q, k, v = operands(shape, seed)
    chosen, z = family(name), factors(shape, seed)
    schedule = chosen.build(shape, **dict.fromkeys(chosen.tiles, tile))
    done = execute(schedule, q, k, v, random=RandomState(seed))
    O, LSE = reference.attention(q, k, v, factors=z)
    errors = [abs(done.O - O), *([] if done.LSE is None else [abs(done.LSE - LSE)])]
    return (q, k, v, z), rounding_of(schedule), errors


def bounds(rounding, given_arrays, form="probable", **more):
    q, k, v, z = given_arrays
    return elementwise_error(rounding, q, k, v, factors=z, form=form, **more)


@pytest.mark.parametrize(("rate", "times"), [(0.1, 50), (0.5, 100)])
@pytest.mark.parametrize("dtype", NAMES)
@pytest.mark.parametrize("name", SCHEDULES)
def test_not_vacuous_at_512_keys(name, dtype, rate, times):
    """As without dropout: the probable form is within 50 times the largest error at a low rate."""
    shape = AttentionShape(512, 512, 16, dtype=dtype, dropout=rate)
    arrays, rounding, errors = executed(name, shape, 128)
    for error, likely, most in zip(
        errors, bounds(rounding, arrays), bounds(rounding, arrays, "worst"), strict=False
    ):
        assert (error <= likely).all()
        assert (likely <= most).all()
        assert likely.max() < times * error.max()


def test_exceeded_no_more_often_than_stated():
    """Runs in which any element is beyond the bound, and elements beyond two sigma of it."""
    confidence = 0.9
    ran, failed, elements, beyond = 0, 0, 0, 0
    for name in SCHEDULES:
        for dtype in NAMES:
            for seed, rate in enumerate((0.1, 0.1, 0.3, 0.5, 0.9)):
                shape = AttentionShape(48, 48, 16, dtype=dtype, dropout=rate)
                arrays, rounding, off = executed(name, shape, 12, seed)
                allowed = bounds(rounding, arrays, confidence=confidence)
                pairs = list(zip(off, allowed, strict=False))
                failed += any((a > b).any() for a, b in pairs)
                ran += 1
                # The bound is lambda sigma and more; two sigma is at least 2 / lambda of it.
                two = 2 / confidence_factor(confidence, sum(each.size for each in allowed))
                beyond += sum((a > two * b).sum() for a, b in pairs)
                elements += sum(each.size for each in off)
    assert failed <= (1 - confidence) * ran
    assert beyond <= failure_probability(2) * elements


def test_the_sums_of_neighbours_are_those_of_a_double_loop():
    rng = np.random.default_rng(3)
    q, k, v = rng.standard_normal((5, 3)), rng.standard_normal((7, 3)), rng.standard_normal((7, 2))
    z = 2.0 * (rng.random((5, 7)) < 0.5)
    O, lse = reference.attention(q, k, v, factors=z)
    s = q @ k.T / math.sqrt(3)
    p = np.exp(s - lse[:, None])
    found = runs(Rows(O, lse, p, s, abs(s), q / math.sqrt(3), k, v, np.zeros((5, 1)), z), 3)

    def neighbours(terms):
        """The largest |sum over neighbours| that ends at each term."""
        ends = range(1, len(terms) + 1)
        return [max(abs(sum(terms[first:end])) for first in range(end)) for end in ends]

    for i in range(5):
        for c in range(2):
            values = z[i] * v[:, c]
            ending = neighbours(p[i] * values)
            assert found.largest[i, c] == pytest.approx(max(ending))
            assert found.squares_o[i, c] == pytest.approx(sum(x**2 for x in ending))
            away = p[i] * (values - O[i, c])
            assert found.moved[i, c] == pytest.approx(max(neighbours(away)))
            split = [sum(away[a : a + 3]) for a in (0, 3, 6)]
            assert found.splits_o[i, c] == pytest.approx(sum(x**2 for x in split))
        # l sums what is not dropped yet.
        assert found.squares_l[i, 0] == pytest.approx(sum(sum(p[i, :t]) ** 2 for t in range(1, 8)))


executions = st.sampled_from(
    [
        {},
        {"tiles": 4},
        {"tiles": 4, "stored_output_per_tile": True},
        {"splits": 3},
        {"stored_scores": True},
        {"stored_scores": True, "tiles": 4},
    ]
)


@st.composite
def problems(draw):
    """An execution with dropout, q, k, v in its dtype, and factors."""
    dtype, rate = draw(st.sampled_from(NAMES)), draw(st.sampled_from([0.01, 0.5, 0.99]))
    n_q, n_k, d = draw(st.tuples(st.integers(1, 3), st.integers(4, 30), st.integers(1, 9)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    form = precision(dtype)
    q, k, v = (rng.standard_normal(size) for size in ((n_q, d), (n_k, d), (n_k, 2)))
    v *= draw(st.sampled_from([1.0, 1e-6, 1000.0]))
    q, k, v = (form.round(x.astype(form.accumulator)).astype(np.float64) for x in (q, k, v))
    z = (rng.random((n_q, n_k)) >= rate) / (1 - rate)
    return Execution(dtype, d, n_k, dropout=rate, **draw(executions)), (q, k, v, z)


@given(problems())
def test_never_above_the_worst_case(problem):
    execution, arrays = problem
    for likely, most in zip(
        bounds(execution, arrays), bounds(execution, arrays, "worst"), strict=True
    ):
        assert (likely <= most).all()
        assert ((likely > 0) == (most > 0)).all()


@given(problems(), st.integers(0, 3))
def test_a_dropped_key_has_no_part_in_the_error_of_o(problem, j):
    """Its value may be anything that is not the largest, which underflow alone looks at."""
    execution, (q, k, v, z) = problem
    z[:, j] = 0
    other = v.copy()
    other[j] = -0.5 * abs(v).max()
    v[j] = 0.0
    if abs(v).max() < abs(other).max():
        return
    for one, two in zip(
        bounds(execution, (q, k, v, z)), bounds(execution, (q, k, other, z)), strict=True
    ):
        assert np.array_equal(one, two)


@given(problems())
def test_the_bound_of_o_is_that_of_a_row_with_values_of_its_own(problem):
    """One row, z v in the place of v, in a dtype that stores nothing: a rounding or two apart."""
    execution, (q, k, v, z) = problem
    plan = {"tiles": execution.tiles, "splits": execution.splits}
    with_z = Execution("float32", q.shape[-1], len(k), dropout=execution.dropout, **plan)
    plain = Execution("float32", q.shape[-1], len(k), **plan)
    for i in range(len(q)):
        row, own = q[i : i + 1], z[i][:, None] * v
        for form in ("probable", "worst"):
            found, of_lse = bounds(with_z, (row, k, v, z[i : i + 1]), form)
            least, lse_least = elementwise_error(plain, row, k, own, form=form)
            assert (found >= least * (1 - 1e-9)).all()
            assert (found <= 2 * least + 1e-25).all()
            assert of_lse == pytest.approx(lse_least, rel=0.25)


def part_of_one_key(dtype, p, z, v, **plan):
    """What one key of a weight p, a score of 0 and no doubt contributes; its O is p z v."""
    one = np.ones((1, 1))
    rows = Rows(p * z * v * one, np.zeros(1), p * one, 0 * one, 0 * one, 0 * one, one, v * one,
                0 * one, z * one)  # fmt: skip
    return parts(Execution(dtype, 1, 1, **plan), rows, runs(rows))


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("dtype", NAMES)
def test_the_squares_of_one_key_by_hand(dtype, stored):
    """With dropout and without, of the same z v: the difference is what dropout adds, step 12."""
    form, (p, z, v) = precision(dtype), (2.0**-12, 8.0, 3.0)
    found = part_of_one_key(dtype, p, z, v, dropout=1 - 1 / z, stored_scores=stored)
    plain = part_of_one_key(dtype, p, 1.0, z * v, stored_scores=stored)
    narrow = form.storage != form.accumulator
    w, eta = (form.roundoff, form.underflow) if narrow else (0.0, 0.0)
    u, o = form.accumulator_roundoff, p * z * v
    # The factor on the term; two roundings more of whole sums, in o and in l.
    more = u**2 * (o**2 + 2 * o**2 + 2 * o**2)
    # eta on z p instead of on p, and P stored before it is dropped, too.
    more += eta**2 * v**2 - eta**2 * (z * v) ** 2
    if stored:
        more += w**2 * o**2 + eta**2 * z**2 * v**2
    assert found.output_squares[0, 0] - plain.output_squares[0, 0] == pytest.approx(
        more, rel=1e-3, abs=1e-5 * plain.output_squares[0, 0]
    )


def test_a_weight_next_to_the_least_numbers_is_lost_after_dropout_or_before():
    """eta is 3e-8 in float16: z p is lost up to that, and p where it is stored before it drops."""
    eta, v = precision("float16").underflow, 5.0

    def lost(p, z, stored):
        found = part_of_one_key("float16", p, z, v, dropout=1 - 1 / z, stored_scores=stored)
        return found.output_rest[0, 0] / v

    for p, z, once, before in (
        (eta / 8, 4.0, eta / 2, eta / 2),
        (eta / 8, 64.0, 0.0, 8 * eta),
        (1.5 * eta, 4.0, 0.0, 4 * eta),
        (8 * eta, 4.0, 0.0, 0.0),
    ):
        room = 0.01 * p * z  # what is beyond first order
        assert lost(p, z, False) == pytest.approx(once, abs=room)
        assert lost(p, z, True) == pytest.approx(once + before, abs=room)


def test_underflow_and_the_second_order_see_the_factor_and_both_roundings():
    tiny = precision("float32").tiny
    # A weight of 0 loses what underflow loses: 4 tiny V / (1 - p) for its exponential, and the sum.
    rests = [
        part_of_one_key("float32", 0.0, z, 7.0, dropout=1 - 1 / z).output_rest[0, 0]
        for z in (2.0, 64.0)
    ]
    assert rests[1] - rests[0] == pytest.approx(4 * tiny * 62 * 7.0, abs=0)
    # Beyond first order: ((1 + w)^r - 1)^2 of p z v and of p O, with r roundings of P.
    w, (p, z, v) = precision("bfloat16").roundoff, (2.0**-4, 2.0, 1.0)
    for stored, second in ((False, w**2), (True, ((1 + w) ** 2 - 1) ** 2)):
        found = part_of_one_key("bfloat16", p, z, v, dropout=0.5, stored_scores=stored)
        expected = p * z * v * (1 + p) * second
        assert found.output_rest[0, 0] == pytest.approx(expected, rel=0.01)


def test_standard_attention_stores_p_once_more():
    q, k, v = np.zeros((1, 1)), np.zeros((64, 1)), np.ones((64, 1))
    z = np.full((1, 64), 2.0)
    once, twice = (
        bounds(Execution("bfloat16", 1, 64, stored_scores=stores, dropout=0.5), (q, k, v, z))[0]
        for stores in (False, True)
    )
    stored = precision("bfloat16").roundoff * 2  # of O, which is 2, at the end
    ratio = (twice - stored) / (once - stored)
    assert 1.3 < ratio[0, 0] < 1.5  # sqrt(2): two roundings of each term, no error of a score of 0


def test_nothing_is_promised_where_o_may_overflow():
    one, zero = np.ones((1, 1)), np.zeros((1, 1))
    for rate in (0.0, 0.5):
        z = None if rate == 0 else one / (1 - rate)
        for v, fine in ((60000.0, True), (65504.0, False)):
            execution = Execution("float16", 1, 1, dropout=rate)
            value = np.array([[v * (1 - rate)]])
            for form in ("worst", "probable"):
                found, _ = elementwise_error(execution, zero, zero, value, factors=z, form=form)
                assert math.isfinite(found[0, 0]) == fine
