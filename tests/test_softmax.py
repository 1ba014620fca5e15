"""The online-softmax state: laws, twins, and the kinds of fault seen in public kernels."""

import doctest
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive_softmax import Tiled, row_finish, row_merge, row_state

from iosim import law_cases, reference, softmax, softmax_exact, tolerance
from iosim import precision as precision_module
from iosim.errors import IosimError
from iosim.law_cases import CASES, KNOWN, Case
from iosim.laws import LAWS, run_law
from iosim.precision import NAMES

inf, nan = math.inf, math.nan


@pytest.fixture(autouse=True)
def _no_warning_escapes():
    with np.errstate(all="raise"):
        yield


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
@given(data=st.data())
def test_law_holds(law, data):
    law(data.draw(law.cases))


@pytest.mark.parametrize(
    "law", [law for law in LAWS.values() if law.cases is CASES], ids=lambda law: law.name
)
@pytest.mark.parametrize("case", KNOWN)
def test_law_holds_on_known_cases(law, case):
    law(case)


@given(CASES)
def test_states_are_those_of_the_slow_twin(case):
    case = Case(**{**vars(case), "dtype": "float64"})
    (a_scores, a_values), *_ = case.blocks()
    b_scores, b_values = case.arrays()
    a, b = softmax.of_block(a_scores, a_values), softmax.of_block(b_scores, b_values)
    # Double counting is no matter here: the merge does not know which keys a state has seen.
    merged = softmax.merge(a, b)
    O, lse = softmax.finish(merged)
    for row in range(len(b_scores)):
        twin_a = row_state(a_scores[row].tolist(), a_values.tolist() or [[0.0] * O.shape[1]])
        if not len(a_values):
            twin_a = (-inf, 0.0, [0.0] * O.shape[1])
        twin = row_merge(twin_a, row_state(b_scores[row].tolist(), b_values.tolist()))
        assert merged.m[row] == twin[0]
        # Each exp argument is at most 2e37 and exact to 2**-53: only tiny weights can be far off.
        np.testing.assert_allclose(merged.l[row], twin[1], rtol=1e-13)
        reach = abs(b_values).max()
        np.testing.assert_allclose(merged.o[row], twin[2], rtol=1e-13, atol=1e-13 * 24 * reach)
        twin_o, twin_lse = row_finish(twin)
        np.testing.assert_allclose(O[row], twin_o, rtol=1e-13, atol=1e-13 * 24 * reach)
        np.testing.assert_allclose(lse[row], twin_lse, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("dtype", NAMES)
@pytest.mark.parametrize("loop", ["flash1", "flash2", "split"])
def test_hidden_key_does_not_leak_past_a_sentinel(dtype, loop):
    # With -1e4 for "masked", the first row would see the second key: O = 100.
    q, k, v = np.array([[-20000.0], [0.0]]), np.array([[1.0], [0.0]]), np.array([[1.0], [100.0]])
    visible = np.array([[True, False], [True, False]])
    for cuts in ((1, 2), (2,)):
        O, lse = getattr(Tiled(dtype, cuts), loop)(q, k, v, visible, scale=1.0)
        assert O.tolist() == [[1.0], [1.0]]
        stored = -19968.0 if dtype == "bfloat16" else -20000.0  # q rounded to 8 bits
        assert lse.tolist() == [stored, 0.0]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("loop", ["flash1", "flash2", "split"])
def test_known_answers(dtype, loop):
    """All scores below -5e4; a first tile masked; an empty row; one finite score, v = 1e5."""
    q = np.array([[1.0], [1.0], [1.0], [1.0]])
    k = np.array([[-65536.0], [-65536.0], [-131072.0], [-65536.0]])
    v = np.array([[2.0], [4.0], [7.0], [1e5]])
    visible = np.array([[1, 1, 1, 0], [0, 0, 1, 1], [0, 0, 0, 0], [0, 0, 0, 1]], bool)
    O, lse = getattr(Tiled(dtype, (2, 4)), loop)(q, k, v, visible, scale=1.0)
    large = 99840.0 if dtype == "bfloat16" else 1e5  # 1e5 rounded to 8 bits
    assert O.tolist() == [[3.0], [large], [0.0], [large]]
    low = np.array(-65536.0, lse.dtype)
    assert lse.tolist() == [low + np.log(np.array(2, lse.dtype)), low, -inf, low]


@pytest.mark.parametrize("poison", [nan, inf])
def test_poison_in_each_step(poison):
    scores = np.array([[0.0, poison], [0.0, 1.0]], np.float32)
    m = softmax.new_maximum(scores, np.zeros(2, np.float32))
    p = softmax.stable_exp(scores, m)
    assert np.isnan(p[0]).any()
    assert np.isfinite(p[1]).all()
    O, lse = softmax.finish(softmax.of_block(scores, np.ones((2, 3), np.float32)))
    assert np.isnan(O[0]).all()
    assert np.isnan(lse[0])
    assert (O[1] == 1).all()


@given(CASES)
def test_leading_axes_are_rows_apart(case):
    scores, values = case.arrays()
    both = softmax.of_block(np.stack([scores, scores[::-1]]), np.stack([values, -values]))
    for head, alone in enumerate(
        [softmax.of_block(scores, values), softmax.of_block(scores[::-1], -values)]
    ):
        np.testing.assert_array_equal(both.m[head], alone.m)
        np.testing.assert_array_equal(both.l[head], alone.l)
        # BLAS may sum a stack in another order: two ways to sum 12 products, both within gamma_12.
        np.testing.assert_allclose(
            both.o[head], alone.o, rtol=0, atol=2 * 13 * 2**-24 * 12 * abs(values).max()
        )


def test_block_without_keys_is_the_identity():
    state = softmax.of_block(np.zeros((2, 0)), np.zeros((0, 3)))
    neutral = softmax.identity(2, 3, np.float64)
    for x, y in zip(vars(state).values(), vars(neutral).values(), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize(
    ("given_dtype", "kept"),
    [("float16", "float32"), ("float32", "float32"), ("float64", "float64"), ("int64", "float64")],
)
def test_statistics_are_at_least_float32(given_dtype, kept):
    state = softmax.of_block(np.ones((1, 2), given_dtype), np.ones((2, 1), given_dtype))
    assert {x.dtype.name for x in vars(state).values()} == {kept}


def test_stable_exp_works_in_place():
    x = np.array([[1.0, -inf], [-inf, -inf]])
    assert softmax.stable_exp(x, np.array([1.0, -inf]), out=x) is x
    assert x.tolist() == [[1.0, 0.0], [0.0, 0.0]]


def test_stable_exp_takes_no_maximum_of_another_shape():
    with pytest.raises(IosimError, match=r"m has shape \(1,\): it must be that of x, \(2, 2, 3\)"):
        softmax.stable_exp(np.zeros((2, 2, 3)), np.zeros(1))


def test_square_tile_takes_its_maximum_per_row():
    # m of shape (2,) broadcast as it stands would go along the keys.
    p = softmax.stable_exp(np.array([[1.0, 1.0], [5.0, 5.0]]), np.array([1.0, 5.0]))
    assert p.tolist() == [[1.0, 1.0], [1.0, 1.0]]


# What is broken, in which function, how, and the law that finds it.
FAULTS = {
    "a finite sentinel": ("new_maximum", lambda f: lambda *a: np.maximum(f(*a), -1e4), "tile-loop"),
    "no guard for (-inf) - (-inf)": ("stable_exp", lambda f: _unguarded, "any-tree"),
    "NaN turned into zero": (
        "stable_exp",
        lambda f: lambda *a, **k: np.nan_to_num(f(*a, **k)),
        "poison-stays-in-its-row",
    ),
    "NaN hidden by the maximum": (
        "of_block",
        lambda f: lambda s, v, p=None: f(np.where(np.isnan(s), -inf, s), v, p),
        "poison-stays-in-its-row",
    ),
    "one maximum for the whole tile": (
        "new_maximum",
        lambda f: lambda *a: np.full_like(f(*a), f(*a).max()),
        "poison-stays-in-its-row",
    ),
    "m never rises": ("rescale", lambda f: lambda old, new: np.ones_like(new), "finished-parts"),
    "factor upside down": ("rescale", lambda f: lambda old, new: f(new, old), "any-tree"),
    "0/0 in an empty row": ("normalise", lambda f: lambda o, l: o / l[..., None], "any-tree"),
    "LSE of an empty row is 0": (
        "log_sum_exp",
        lambda f: lambda m, l: np.where(l == 0, 0.0, f(m, l)),
        "tile-loop",
    ),
    "LSE without the maximum": ("log_sum_exp", lambda f: lambda m, l: np.log(l), "tile-loop"),
    "LSE with log 2": ("log_sum_exp", lambda f: lambda m, l: m + np.log2(l), "any-tree"),
    "O not normalised": ("normalise", lambda f: lambda o, l: o, "in-the-hull"),
    "only one side rescaled": (
        "merge",
        lambda f: (
            lambda a, b: softmax.SoftmaxState(
                np.maximum(a.m, b.m),
                softmax.rescale(a.m, np.maximum(a.m, b.m)) * a.l + b.l,
                a.o + b.o,
            )
        ),
        "merge-commutes",
    ),
    "a neutral element that counts": (
        "identity",
        lambda f: lambda *a: softmax.SoftmaxState(f(*a).m * 0, f(*a).l + 1, f(*a).o),
        "identity-is-neutral",
    ),
}


def _unguarded(x, m, out=None):
    return np.exp(x - (m[..., None] if m.ndim < x.ndim else m))


@pytest.mark.parametrize("fault", FAULTS)
def test_the_laws_can_fail(fault, monkeypatch):
    """Every kind of fault, planted, is found by a law."""
    name, plant, law = FAULTS[fault]
    monkeypatch.setattr(softmax, name, plant(getattr(softmax, name)))
    assert run_law(LAWS[law], examples=200, seed=0)


def test_every_law_can_fail():
    found = {law for _, _, law in FAULTS.values()}
    assert found | {name for name in LAWS if name.startswith("exact")} == set(LAWS)


@pytest.mark.parametrize("page", ["softmax.md", "tolerance.md"])
def test_the_code_of_the_pages_runs(page):
    path = Path(__file__).parents[1] / "docs" / page
    with np.errstate(all="warn"):
        failures, tried = doctest.testfile(str(path), module_relative=False)
    assert tried > 3
    assert not failures


@pytest.mark.parametrize(
    "module", [softmax, softmax_exact, reference, tolerance, precision_module, law_cases]
)
def test_the_examples_of_the_docstrings_run(module):
    failures, tried = doctest.testmod(module)
    assert tried
    assert not failures
