"""The float64 reference against sums in Python floats, and standard attention in each dtype."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive_softmax import decimal_attention, plain_attention

from iosim import reference
from iosim.errors import IosimError
from iosim.precision import NAMES, precision

inf, nan = math.inf, math.nan


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 6),
    st.integers(1, 8),
    st.integers(1, 4),
    st.integers(1, 3),
    st.floats(0, 1),
)
def test_attention_is_what_plain_sums_give(seed, n_q, n_k, d, d_v, density):
    rng = np.random.default_rng(seed)
    q, k, v = (rng.standard_normal(shape) for shape in ((n_q, d), (n_k, d), (n_k, d_v)))
    visible = rng.random((n_q, n_k)) < density
    O, lse = reference.attention(q, k, v, visible, scale=0.5)
    expected_O, expected_lse = plain_attention(q.tolist(), k.tolist(), v.tolist(), visible, 0.5)
    # |scores| < 50 and fewer than 20 roundings of 2**-53 each.
    np.testing.assert_allclose(O, expected_O, rtol=0, atol=50 * 20 * 2**-53 * abs(v).max())
    np.testing.assert_allclose(lse, expected_lse, rtol=1e-13, atol=1e-13)


def test_attention_to_fifty_digits():
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((9, 5)) for _ in range(3))
    O, lse = reference.attention(q, k, v, scale=0.25)
    exact_O, exact_lse = decimal_attention(q, k, v, 0.25)
    # Errors of some units of 2**-53: see forward_error, which test_tolerance.py holds up to this.
    np.testing.assert_allclose(O, np.array(exact_O, float), rtol=0, atol=1e-14)
    np.testing.assert_allclose(lse, np.array(exact_lse, float), rtol=0, atol=1e-14)


def test_scale_is_one_over_root_d_unless_given():
    q, k, v = np.full((1, 4), 1.0), np.array([[1.0] * 4, [0.0] * 4]), np.array([[1.0], [0.0]])
    O, _ = reference.attention(q, k, v)
    assert O[0, 0] == pytest.approx(math.exp(2) / (math.exp(2) + 1), rel=1e-15)


@given(st.integers(0, 2**32 - 1), st.sampled_from([(1, 1), (4, 1), (4, 2), (6, 6)]))
def test_grouped_heads_are_repeated_heads(seed, counts):
    heads, kv_heads = counts
    rng = np.random.default_rng(seed)
    q = rng.standard_normal((2, heads, 3, 4))
    k, v = rng.standard_normal((2, kv_heads, 5, 4)), rng.standard_normal((2, kv_heads, 5, 2))
    O, lse = reference.attention(q, k, v)
    assert (O.shape, lse.shape) == ((2, heads, 3, 2), (2, heads, 3))
    for b in range(2):
        for h in range(heads):
            g = h // (heads // kv_heads)
            alone, alone_lse = reference.attention(q[b, h], k[b, g], v[b, g])
            # The same sums, perhaps in another order.
            np.testing.assert_allclose(O[b, h], alone, rtol=0, atol=1e-14)
            np.testing.assert_allclose(lse[b, h], alone_lse, rtol=0, atol=1e-14)


@pytest.mark.parametrize("dtype", NAMES)
@pytest.mark.parametrize("poison", [nan, inf])
def test_poison_stays_in_its_row(dtype, poison):
    q, k, v = np.array([[1.0], [poison], [1.0]]), np.ones((2, 1)), np.ones((2, 2))
    visible = np.array([[True, True], [True, True], [False, False]])
    with np.errstate(all="raise"):
        O, lse = reference.standard_attention(q, k, v, dtype, visible, scale=1.0)
    assert O[0].tolist() == [1.0, 1.0]
    assert np.isnan(O[1]).all()
    assert np.isnan(lse[1])
    assert O[2].tolist() == [0.0, 0.0]
    assert lse[2] == -inf


@pytest.mark.parametrize("dtype", NAMES)
def test_a_masked_score_may_be_anything(dtype):
    q, k, v = np.array([[1.0]]), np.array([[nan], [inf], [1.0]]), np.array([[5.0], [6.0], [7.0]])
    O, _ = reference.standard_attention(q, k, v, dtype, np.array([[False, False, True]]))
    assert O.tolist() == [[7.0]]


def test_no_keys_at_all():
    O, lse = reference.attention(np.ones((2, 3)), np.ones((0, 3)), np.ones((0, 4)))
    assert O.tolist() == [[0.0] * 4] * 2
    assert lse.tolist() == [-inf, -inf]


@given(st.integers(0, 2**32 - 1))
def test_standard_attention_in_float64_is_the_reference(seed):
    rng = np.random.default_rng(seed)
    q, k, v = (rng.standard_normal((6, 4)) for _ in range(3))
    for ours, theirs in zip(
        reference.standard_attention(q, k, v, "float64"),
        reference.attention(q, k, v),
        strict=True,
    ):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("dtype", "stored"), [("float16", 1 + 2**-10), ("bfloat16", 1.0), ("float32", 1.001)]
)
def test_operands_are_rounded_to_the_dtype(dtype, stored):
    one = np.ones((1, 1))
    O, _ = reference.standard_attention(one, one, np.array([[1.001]]), dtype)
    assert O[0, 0] == np.float32(stored)


def test_scores_and_weights_are_stored_in_the_dtype():
    # S = 257 rounds to 256 in bfloat16 (8 bits): a tie with the other score.
    q, k, v = np.array([[1.0, 1.0]]), np.array([[256.0, 1.0], [256.0, 0.0]]), np.eye(2)
    O, _ = reference.standard_attention(q, k, v, "bfloat16", scale=1.0)
    assert O.tolist() == [[0.5, 0.5]]
    # Scores 1 and 0: P = (0.7311, 0.2689) is stored as (187, 69) / 256, which changes a difference.
    q, k, v = np.array([[1.0]]), np.array([[1.0], [0.0]]), np.array([[1.0], [-2.71875]])
    O, _ = reference.standard_attention(q, k, v, "bfloat16", scale=1.0)
    assert O[0, 0] == pytest.approx((187 - 2.71875 * 69) / 256, rel=2**-8)
    assert reference.attention(q, k, v, scale=1.0)[0] == pytest.approx(-1.26e-4, rel=0.01)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((2, 3), (2, 4), (2, 4)), r"q, k, v have shapes \(2, 3\), \(2, 4\), \(2, 4\): q and k"),
        (((2, 3), (2, 3), (5, 4)), "k and v in their number of rows"),
        (((3, 2, 1), (2, 2, 1), (2, 2, 1)), "3 query heads must be a multiple of the 2 key heads"),
    ],
)
def test_shapes_that_do_not_fit(shapes, message):
    with pytest.raises(IosimError, match=message):
        reference.attention(*(np.zeros(shape) for shape in shapes))


def test_unknown_dtype():
    with pytest.raises(IosimError, match="float16, bfloat16, float32, float64, not 'half'"):
        precision("half")


@pytest.mark.parametrize(
    ("dtype", "u", "underflow", "largest"),
    [
        ("float16", 2**-11, 2**-25, 65504.0),
        ("bfloat16", 2**-8, 2**-134, (2 - 2**-7) * 2.0**127),
        ("float32", 2**-24, 2**-150, (2 - 2**-23) * 2.0**127),
        ("float64", 2**-53, 0.0, (2 - 2**-52) * 2.0**1023),
    ],
)
def test_formats(dtype, u, underflow, largest):
    form = precision(dtype)
    assert (form.roundoff, form.underflow, form.largest) == (u, underflow, largest)


@given(st.floats(-1e30, 1e30), st.sampled_from(NAMES))
def test_rounding_errs_by_no_more_than_it_says(x, dtype):
    form = precision(dtype)
    x = np.array(x, form.accumulator)
    rounded = form.round(x)
    assert rounded.dtype == form.accumulator
    if abs(x) <= form.largest:
        allowed = max(form.roundoff * abs(float(x)), form.underflow)
        assert abs(float(rounded) - float(x)) <= allowed
    else:
        assert abs(rounded) in (form.largest, inf)
