"""Derived tolerances: never exceeded, not vacuous; comparisons in which NaN never passes."""

import math
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive_softmax import Tiled, decimal_attention

from iosim import reference
from iosim.errors import IosimError
from iosim.precision import NAMES, precision
from iosim.reading.execute import execute
from iosim.schedule import family
from iosim.shape import AttentionShape
from iosim.tolerance import (
    EXP_ROUNDOFFS,
    LOG_ROUNDOFFS,
    Execution,
    agrees,
    confidence_factor,
    elementwise_error,
    failure_probability,
    forward_error,
    lse_error,
    score_magnitude,
    two_times_rule,
)
from iosim.tolerance.execution import Rows
from iosim.tolerance.probable import runs
from iosim.verify.exactness import rounding_of

inf, nan = math.inf, math.nan
ORDERS = ("flash2", "flash1", "split", "standard", "tiled standard")


def run(order, dtype, q, k, v, cuts, visible=None, scale=None):
    """(Execution, O, LSE) of an order of computing attention."""
    lengths = np.diff((0, *cuts))
    longest, alike = max(lengths), len(set(lengths)) == 1
    plan = {
        "flash2": {"tiles": len(cuts), "largest_tile": longest},
        "flash1": {"tiles": len(cuts), "largest_tile": longest, "stored_output_per_tile": True},
        "split": {
            "splits": len(cuts),
            "largest_tile": longest,
            "split_keys": longest if alike else None,
        },
        "standard": {"stored_scores": True},
        "tiled standard": {"stored_scores": True, "tiles": len(cuts), "largest_tile": len(k)},
    }[order]
    execution = Execution(dtype, q.shape[-1], len(k), **plan)
    if order == "standard":
        return execution, *reference.standard_attention(q, k, v, dtype, visible, scale)
    loop = getattr(Tiled(dtype, tuple(cuts)), order.replace(" ", "_"))
    return execution, *loop(q, k, v, visible, scale)


@st.composite
def problems(draw):
    """q, k, v given in a dtype, cuts, a mask and a scale: ordinary, cancelling, large, tiny."""
    dtype = draw(st.sampled_from(NAMES))
    order = draw(st.sampled_from(ORDERS))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_q, n_k, d = draw(st.tuples(st.integers(1, 4), st.integers(1, 40), st.integers(1, 16)))
    q, k, v = (rng.standard_normal(shape) for shape in ((n_q, d), (n_k, d), (n_k, 3)))
    q *= draw(st.sampled_from([1.0, 1e-6, 10.0, 100.0]))
    k *= draw(st.sampled_from([1.0, 1e-6, 10.0]))
    v *= draw(st.sampled_from([1.0, 1e-6, 1000.0]))
    if draw(st.booleans()):  # products that cancel: the score is far smaller than its terms
        k[:, d // 2 :] = -k[:, : d - d // 2] * (1 + 1e-3)
        q[:, d // 2 :] = q[:, : d - d // 2]
    if draw(st.booleans()):  # values that cancel
        v = abs(v) * np.where(np.arange(n_k) % 2, 1.0, -1.0)[:, None]
    q, k, v = (precision(dtype).round(x.astype(precision(dtype).accumulator)) for x in (q, k, v))
    cuts = sorted({*draw(st.lists(st.integers(1, n_k), max_size=8)), n_k})
    visible = rng.random((n_q, n_k)) < draw(st.sampled_from([1.0, 0.5, 0.1]))
    return order, dtype, q, k, v, cuts, visible, draw(st.sampled_from([None, 1.0, 0.125]))


@given(problems())
def test_never_exceeded(problem):
    order, dtype, q, k, v, cuts, visible, scale = problem
    execution, O, lse = run(order, dtype, q, k, v, cuts, visible, scale)
    expected = reference.attention(q, k, v, visible, scale)
    O_error, lse_bound = elementwise_error(execution, q, k, v, visible, scale)
    A = score_magnitude(q, k, scale)
    if execution.stored_scores and dtype == "float16" and A > 65000:
        return  # a score may not fit in float16, and nothing is promised
    assert agrees(O, expected[0], O_error)
    assert agrees(lse, expected[1], lse_bound)
    V = float(abs(v).max())
    scalar = forward_error(execution, score_magnitude=A, value_magnitude=V)
    # The scalar bounds are worst cases of the elementwise ones.
    assert O_error.max() <= scalar * (1 + 1e-9)
    assert lse_bound.max() <= lse_error(execution, score_magnitude=A) * (1 + 1e-9)
    if not math.isinf(scalar):
        assert agrees(O, expected[0], scalar)


def worst_case(dtype):
    """Inputs that push every rounding the same way as far as we know how to."""
    form = precision(dtype)
    u = form.roundoff
    n, d = 64, 8
    q = np.full((1, d), 1 + 2 * u)
    k = np.where(np.arange(n)[:, None] % 2, 1 + 2 * u, 1 - 2 * u) * np.ones((1, d)) * 3
    v = np.where(np.arange(n)[:, None] % 2, 1.0, -1.0) * (1 + 2 * u)
    return tuple(form.round(x.astype(form.accumulator)) for x in (q, k, v))


@pytest.mark.parametrize("dtype", NAMES)
@pytest.mark.parametrize("order", ORDERS)
def test_not_exceeded_by_aligned_roundings(order, dtype):
    q, k, v = worst_case(dtype)
    execution, O, lse = run(order, dtype, q, k, v, range(8, 65, 8), scale=1.0)
    expected = reference.attention(q, k, v, scale=1.0)
    bounds = elementwise_error(execution, q, k, v, scale=1.0)
    assert agrees(O, expected[0], bounds[0])
    assert agrees(lse, expected[1], bounds[1])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_nearly_attained(dtype):
    """P's rounding and O's may add up: two keys, of which one has a value, come near the bound."""
    q = precision(dtype).round(np.linspace(-8, 0, 4001, dtype=np.float32))[:, None]
    k, v = np.array([[0.0], [1.0]]), np.array([[0.0], [1.75]])
    execution, O, _ = run("flash2", dtype, q, k, v, (2,), scale=1.0)
    truth, _ = reference.attention(q, k, v, scale=1.0)
    O_error, _ = elementwise_error(execution, q, k, v, scale=1.0)
    assert 0.5 < agrees(O, truth, O_error).max_ratio <= 1


def test_weights_below_the_least_float16():
    """A weight of 2e-9 is 0 in float16: an absolute error, which a large value shows."""
    q, k, v = np.array([[-20.0]]), np.array([[0.0], [1.0]]), np.array([[0.0], [1e4]])
    execution, O, _ = run("flash2", "float16", q, k, v, (2,), scale=1.0)
    truth, _ = reference.attention(q, k, v, scale=1.0)
    assert O[0, 0] == 0 < truth[0, 0]
    assert agrees(O, truth, elementwise_error(execution, q, k, v, scale=1.0)[0])


SCHEDULES = ("flash2", "flash1", "split_kv", "standard", "standard_tiled")


def executed(name, dtype, n, d, rows):
    """The errors of a schedule's O and LSE for Gaussian inputs; bounds in both forms."""
    q, k, v = gaussian(dtype, n, d)
    q = q[:rows]
    chosen = family(name)
    schedule = chosen.build(
        AttentionShape(rows, n, d, dtype=dtype), **dict.fromkeys(chosen.tiles, 128)
    )
    done, truth = execute(schedule, q, k, v), reference.attention(q, k, v)
    errors = [abs(done.O - truth[0])]
    if done.LSE is not None:
        errors.append(abs(done.LSE - truth[1]))
    bounds = [
        elementwise_error(rounding_of(schedule), q, k, v, form=form)
        for form in ("worst", "probable")
    ]
    return errors, bounds


@pytest.mark.parametrize("dtype", NAMES)
@pytest.mark.parametrize("name", SCHEDULES)
def test_not_vacuous_at_1024_keys(name, dtype):
    """As `verify` compares: worst case within 2000 times the largest error, probable within 50."""
    errors, (worst, probable) = executed(name, dtype, 1024, 64, 512)
    for error, most, likely in zip(errors, worst, probable, strict=False):
        assert (error <= likely).all()
        assert (likely <= most).all()
        assert most.max() < 2000 * error.max()
        assert likely.max() < 50 * error.max()


def test_probable_error_is_exceeded_no_more_often_than_stated():
    """Runs in which any element is beyond the bound, and elements beyond two sigma of it."""
    shape, confidence = (48, 16), 0.9
    ran, failed, elements, beyond = 0, 0, 0, 0
    for order in ORDERS:
        for dtype in NAMES:
            for seed in range(6):
                q, k, v = gaussian(dtype, *shape, seed=seed)
                execution, *results = run(order, dtype, q, k, v, range(12, 49, 12))
                truths = reference.attention(q, k, v)
                bounds = elementwise_error(
                    execution, q, k, v, form="probable", confidence=confidence
                )
                off = [abs(a - b) for a, b in zip(results, truths, strict=True)]
                failed += any((a > b).any() for a, b in zip(off, bounds, strict=True))
                ran += 1
                # The bound is lambda sigma and more; two sigma is at least 2 / lambda of it.
                two = 2 / confidence_factor(confidence, sum(each.size for each in off))
                beyond += sum((a > two * b).sum() for a, b in zip(off, bounds, strict=True))
                elements += sum(each.size for each in off)
    assert failed <= (1 - confidence) * ran
    assert beyond <= failure_probability(2) * elements


def test_the_sums_of_neighbours_are_those_of_a_double_loop():
    q, k, v = gaussian("float64", 9, 3)
    v, (O, lse) = v[:, :2], reference.attention(q, k, v[:, :2])
    s = q @ k.T / math.sqrt(3)
    p = np.exp(s - lse[:, None])
    rows = Rows(O, lse, p, s, abs(s), q / math.sqrt(3), k, v, np.zeros((9, 1)), np.ones(()))
    found, whole = runs(rows, 4), runs(rows)

    def neighbours(terms):
        """The largest |sum over neighbours| that ends at each term."""
        ends = range(1, len(terms) + 1)
        return [max(abs(sum(terms[first:end])) for first in range(end)) for end in ends]

    for i in range(9):
        for c in range(2):
            ending = neighbours(p[i] * v[:, c])
            assert found.largest[i, c] == pytest.approx(max(ending))
            assert found.squares_o[i, c] == pytest.approx(sum(x**2 for x in ending))
            assert found.moved[i, c] == pytest.approx(max(neighbours(p[i] * (v[:, c] - O[i, c]))))
            split = [sum(p[i, a : a + 4] * (v[a : a + 4, c] - O[i, c])) for a in (0, 4, 8)]
            assert found.splits_o[i, c] == pytest.approx(sum(x**2 for x in split))
            assert whole.splits_o[i, c] == pytest.approx(0, abs=1e-30)
        assert found.splits_p[i, 0] == pytest.approx(
            sum(sum(p[i, a : a + 4]) ** 2 for a in (0, 4, 8))
        )
        assert whole.splits_p[i, 0] == pytest.approx(1)
        assert found.squares_l[i, 0] == pytest.approx(sum(sum(p[i, :t]) ** 2 for t in range(1, 10)))
        for j in range(9):
            ending = neighbours(q[i] * k[j] / math.sqrt(3))
            assert found.squares_s[i, j] == pytest.approx(sum(x**2 for x in ending))


def test_probable_error_grows_with_the_square_root_of_the_keys():
    """Keys alike, so that nothing else changes: four times the keys, twice the error at most."""
    one = np.ones((1, 1))

    def bound(form, n):
        alike = np.ones((n, 1))
        execution = Execution("float64", 1, n)
        return elementwise_error(execution, 0 * one, alike, alike, form=form)

    O_short, lse_short = bound("probable", 4096)
    O_long, lse_long = bound("probable", 16384)
    assert 1.7 * O_short < O_long < 2.05 * O_short
    assert lse_long < 2.05 * lse_short
    for short, long in zip(bound("worst", 4096), bound("worst", 16384), strict=True):
        assert long > 3.8 * short


def test_probable_error_grows_with_the_square_root_of_the_head_dimension():
    def bound(form, d):
        # Ones and minus ones: equal scores, and two values far apart.
        q, k, v = np.ones((1, d)), np.ones((2, d)), np.array([[1.0], [-1.0]])
        execution = Execution("float32", d, 2)
        return elementwise_error(execution, q, k, v, scale=1 / d, form=form)[0][0, 0]

    assert 1.7 * bound("probable", 1024) < bound("probable", 4096) < 2.05 * bound("probable", 1024)
    assert bound("worst", 4096) > 3.8 * bound("worst", 1024)


@given(problems())
def test_probable_is_never_above_the_worst_case(problem):
    order, dtype, q, k, v, cuts, visible, scale = problem
    execution, _, _ = run(order, dtype, q, k, v, cuts, visible, scale)
    worst = elementwise_error(execution, q, k, v, visible, scale)
    probable = elementwise_error(execution, q, k, v, visible, scale, form="probable")
    for most, likely in zip(worst, probable, strict=True):
        assert (likely <= most).all()
        assert ((likely > 0) == (most > 0)).all()


def test_confidence_and_failure_are_two_sides_of_one_number():
    for confidence in (0.5, 0.99, 1 - 1e-9):
        factor = confidence_factor(confidence, 1000)
        assert failure_probability(factor, 1000) == pytest.approx(1 - confidence)
    assert failure_probability(0.0) == 1.0
    q, k, v = gaussian("float32", 32, 16)
    execution = Execution("float32", 16, 32)
    sure, surer = (
        elementwise_error(execution, q, k, v, form="probable", confidence=confidence)[0]
        for confidence in (0.9, 0.9999)
    )
    assert (sure < surer).all()


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"form": "likely"}, "form must be one of worst, probable, not 'likely'"),
        ({"form": "probable", "confidence": 1.0}, "confidence must be between 0 and 1, not 1.0"),
        ({"form": "probable", "confidence": nan}, "confidence must be between 0 and 1, not nan"),
    ],
)
def test_wrong_forms(asked, message):
    one = np.ones((1, 1))
    with pytest.raises(IosimError, match=message):
        elementwise_error(Execution("float32", 1, 1), one, one, one, **asked)


def exact(q, k, v, dtype):
    """The truth: for float64 to fifty digits, for the others the float64 reference."""
    scale = 1 / math.sqrt(q.shape[-1])
    if dtype != "float64":
        return reference.attention(q, k, v, scale=scale)
    O, lse = decimal_attention(q, k, v, scale)
    return np.array(O), np.array(lse)


def gaussian(dtype, n, d, seed=0):
    rng = np.random.default_rng(seed)
    form = precision(dtype)
    return [form.round(rng.standard_normal((n, d)).astype(form.accumulator)) for _ in range(3)]


@pytest.mark.parametrize("dtype", NAMES)
@pytest.mark.parametrize("order", ORDERS)
def test_not_vacuous(order, dtype):
    """For Gaussian inputs the bounds are within 2000 times the largest error there is."""
    n, d, tile = (48, 16, 16) if dtype == "float64" else (512, 64, 128)
    q, k, v = gaussian(dtype, n, d)
    execution, O, lse = run(order, dtype, q, k, v, range(tile, n + 1, tile))
    truth_O, truth_lse = exact(q, k, v, dtype)
    number = Decimal if dtype == "float64" else float
    error = max(abs(number(float(x)) - y) for x, y in zip(O.flat, truth_O.flat, strict=True))
    lse_off = max(abs(number(float(x)) - y) for x, y in zip(lse, truth_lse, strict=True))
    bound_O, bound_lse = elementwise_error(execution, q, k, v)
    A, V = score_magnitude(q, k), float(abs(v).max())
    scalar = forward_error(execution, score_magnitude=A, value_magnitude=V)
    assert error <= bound_O.max() <= scalar
    assert scalar < 2000 * float(error)
    assert lse_off <= bound_lse.max() < 2000 * float(lse_off)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_roundings_that_are_left_out_are_missed(dtype):
    """The bound of another order or dtype does not hold: each of its terms is needed."""
    q, k, v = worst_case(dtype)
    k = k[::-1] - 0.0
    truth, _ = reference.attention(q, k, v, scale=1.0)
    shape = {"head_dim": 8, "n_keys": 64, "tiles": 8}
    _, O, lse = run("flash2", dtype, q, k, v, range(8, 65, 8), scale=1.0)
    wrong = elementwise_error(Execution("float32", **shape), q, k, v, scale=1.0)
    assert not agrees(O, truth, wrong[0])
    q, k, v = gaussian(dtype, 256, 16)
    truth, truth_lse = reference.attention(q, k, v)
    execution, O, lse = run("standard", dtype, q, k, v, (256,))
    unstored = Execution(dtype, 16, 256)
    assert not agrees(lse, truth_lse, elementwise_error(unstored, q, k, v)[1])
    assert agrees(lse, truth_lse, elementwise_error(execution, q, k, v)[1])


@pytest.mark.parametrize("dtype", NAMES)
def test_a_wrong_result_is_seen(dtype):
    """One key of 64 left out, or its mask ignored, is beyond the tolerance."""
    q, k, v = gaussian(dtype, 64, 16)
    visible = np.ones((64, 64), bool)
    visible[:, 5] = False
    execution, O, lse = run("flash2", dtype, q, k, v, range(16, 65, 16))
    O_error, lse_bound = elementwise_error(execution, q, k, v, visible)
    expected, expected_lse = reference.attention(q, k, v, visible)
    assert not agrees(O, expected, O_error)
    assert not agrees(lse, expected_lse, lse_bound)


@pytest.mark.parametrize("dtype", NAMES)
@pytest.mark.parametrize("order", ["flash2", "split"])
def test_two_times_rule_holds_for_fused_orders(order, dtype):
    q, k, v = gaussian(dtype, 256, 64, seed=3)
    _, O, _ = run(order, dtype, q, k, v, range(64, 257, 64))
    truth, _ = reference.attention(q, k, v)
    standard, _ = reference.standard_attention(q, k, v, dtype)
    assert two_times_rule(abs(O - truth).max(), abs(standard - truth).max())


@pytest.mark.parametrize(
    ("error", "standard", "holds"),
    [
        (2e-3 + 1e-5, 1e-3, True),
        (2.1e-3, 1e-3, False),
        (9e-6, 0.0, True),
        (nan, 1.0, False),
        (0.0, nan, False),
        (nan, nan, False),
    ],
)
def test_two_times_rule(error, standard, holds):
    assert two_times_rule(error, standard) is holds


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exp_and_log_err_as_little_as_assumed(dtype):
    """The bounds rest on NumPy's exp and log; checked where they are run, on a grid."""
    u = float(np.finfo(dtype).eps) / 2
    low = -87.0 if dtype is np.float32 else -700.0
    x = np.concatenate([np.linspace(low, 0, 200_001), -np.logspace(-8, 0, 10_001)]).astype(dtype)
    y = np.concatenate([np.linspace(1, 4, 200_001), np.logspace(0, 9, 10_001)]).astype(dtype)
    if dtype is np.float64:  # Decimal is slow, and there is no wider float everywhere
        x, y = x[::400], y[::400]
        true_exp = np.array([float(Decimal(float(a)).exp() / Decimal(float(np.exp(a)))) for a in x])
        true_log = np.array(
            [float(Decimal(float(b)).ln() / Decimal(float(np.log(b)))) if b > 1 else 1.0 for b in y]
        )
        # The quotients near 1 are themselves rounded: one u.
        assert abs(true_exp - 1).max() <= (EXP_ROUNDOFFS - 1) * u
        assert abs(true_log - 1).max() <= (LOG_ROUNDOFFS - 1) * u
        return
    wide_x, wide_y = np.exp(x.astype(np.float64)), np.log(y.astype(np.float64))
    assert (abs(np.exp(x) - wide_x) <= EXP_ROUNDOFFS * u * wide_x).all()
    assert (abs(np.log(y) - wide_y) <= LOG_ROUNDOFFS * u * wide_y).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exp_of_zero_is_one(dtype):
    # Step 4 rests on it: the largest score has weight exactly 1, so l >= 1.
    assert np.exp(np.zeros(67, dtype)).tolist() == [1.0] * 67


def test_nothing_is_promised_after_an_overflow():
    stored = Execution("float16", 8, 8, stored_scores=True)
    assert forward_error(stored, score_magnitude=7e4, value_magnitude=1) == inf
    assert lse_error(stored, score_magnitude=7e4) == inf
    assert lse_error(stored, score_magnitude=6e4) < inf
    assert forward_error(Execution("float32", 8, 8), score_magnitude=1e38, value_magnitude=1) == inf
    assert forward_error(Execution("float16", 8, 8), score_magnitude=1, value_magnitude=7e4) == inf
    assert (
        forward_error(Execution("float32", 8, 2**25), score_magnitude=1, value_magnitude=1) == inf
    )
    huge = np.array([[3e19]])
    O_error, lse_bound = elementwise_error(Execution("float32", 1, 1), huge, huge, np.ones((1, 1)))
    assert (O_error[0, 0], lse_bound[0]) == (inf, inf)


def test_large_scores_bound_the_error_by_twice_the_values():
    error = forward_error(Execution("float32", 64, 128), score_magnitude=1e9, value_magnitude=1)
    assert 2 <= error < 2.001


def test_bounds_grow_with_what_they_depend_on():
    base = {"dtype": "float16", "head_dim": 64, "n_keys": 1024, "tiles": 8}

    def bound(score=8.0, value=4.0, **changes):
        execution = Execution(**{**base, **changes})
        return forward_error(execution, score_magnitude=score, value_magnitude=value)

    for other in (
        bound(score=16.0),
        bound(value=8.0),
        bound(head_dim=128),
        bound(largest_tile=1024),
        bound(splits=4),
        bound(stored_scores=True),
        bound(stored_output_per_tile=True),
        bound(dtype="bfloat16"),
    ):
        assert other > bound()
    assert bound(dtype="float32") < bound()


def test_empty_row_has_no_error():
    visible = np.array([[False, False], [True, True]])
    one = np.ones((2, 1))
    O_error, lse_bound = elementwise_error(Execution("float32", 1, 2), one, one, one, visible)
    assert O_error[0, 0] == lse_bound[0] == 0
    assert O_error[1, 0] > 0


def test_grouped_heads():
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((2, 4, 3, 5)), *rng.standard_normal((2, 2, 2, 7, 5))
    O_error, lse_bound = elementwise_error(Execution("float32", 5, 7), q, k, v)
    assert (O_error.shape, lse_bound.shape) == ((2, 4, 3, 5), (2, 4, 3))


def test_poison_leaves_the_bounds_of_other_rows():
    q, k, v = (x.astype(np.float64) for x in gaussian("float32", 6, 4))
    clean, clean_lse = elementwise_error(Execution("float32", 4, 6), q, k, v)
    q[2, 1] = nan
    O_error, lse_bound = elementwise_error(Execution("float32", 4, 6), q, k, v)
    others = np.arange(6) != 2
    np.testing.assert_array_equal(O_error[others], clean[others])
    np.testing.assert_array_equal(lse_bound[others], clean_lse[others])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tiles": 0}, "tiles must be at least 1, not 0"),
        ({"largest_tile": 0}, "largest_tile must be at least 1, not 0"),
        ({"dtype": "fp8"}, "dtype must be one of float16, bfloat16, float32, float64, not 'fp8'"),
    ],
)
def test_wrong_executions(changes, message):
    with pytest.raises(IosimError, match=message):
        Execution(**{"dtype": "float32", "head_dim": 1, "n_keys": 1, **changes})


@pytest.mark.parametrize(
    ("actual", "expected", "nan_where", "fine", "reason"),
    [
        ([1.0], [1.5], None, True, ""),
        (
            [1.0],
            [1.6],
            None,
            False,
            "error beyond the tolerance, at (0,): actual 1.0, expected 1.6",
        ),
        ([-inf], [-inf], None, True, ""),
        ([-inf], [0.0], None, False, "error beyond the tolerance"),
        ([0.0], [-inf], None, False, "error beyond the tolerance"),
        ([inf], [-inf], None, False, "error beyond the tolerance"),
        ([nan], [nan], None, False, "NaN where none was asked for"),
        ([nan], [1.0], None, False, "NaN where none was asked for"),
        ([1.0], [nan], None, False, "NaN where none was asked for"),
        ([nan, 1.0], [nan, 1.0], [True, False], True, ""),
        ([nan, nan], [nan, 1.0], [True, False], False, "NaN where none was asked for, at (1,)"),
        ([1.0, 1.0], [nan, 1.0], [True, False], False, "no NaN where one was asked for, at (0,)"),
        ([nan, 1.0], [1.0, 1.0], [True, False], False, "no NaN where one was asked for, at (0,)"),
    ],
)
def test_agrees(actual, expected, nan_where, fine, reason):
    comparison = agrees(
        np.array(actual),
        np.array(expected),
        0.5,
        None if nan_where is None else np.array(nan_where),
    )
    assert bool(comparison) is fine
    assert comparison.reason.startswith(reason)
    assert bool(comparison.reason) is not fine


@pytest.mark.parametrize("tolerance", [nan, inf])
def test_a_tolerance_that_promises_nothing_fails(tolerance):
    assert agrees(np.ones(1), np.ones(1), tolerance).reason.startswith(
        "the tolerance is not finite"
    )


def test_agrees_says_where_the_worst_is():
    comparison = agrees(
        np.array([[1.0, 2.0], [3.0, 4.0]]),
        np.array([[1.0, 2.5], [3.0, 4.125]]),
        np.array([1.0, 0.25]),
    )
    assert not agrees(np.array([0.5]), np.array([0.0]), 0.25)
    assert comparison.index == (0, 1)
    assert (comparison.max_error, comparison.max_ratio) == (0.5, 2.0)


def test_agrees_never_broadcasts():
    with pytest.raises(IosimError, match=r"actual has shape \(2,\) and expected \(2, 1\)"):
        agrees(np.ones(2), np.ones((2, 1)), 1.0)


def test_nothing_agrees_with_nothing():
    assert agrees(np.ones((0, 3)), np.ones((0, 3)), 0.0)
