"""Backward schedules, executed after their forward pass, compute the gradients of attention."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import naive
import naive_gradients
import numpy as np
import pytest
import strategies
import trees
from hypothesis import given
from hypothesis import strategies as st
from inputs import operands, output_gradient

from iosim import reference, tolerance
from iosim.precision import precision
from iosim.reading.count import count
from iosim.reading.gradients import GRADIENTS
from iosim.schedule import family, forward_of
from iosim.shape import AttentionShape
from iosim.training import TrainingStep, training_step
from iosim.verify.gradients import backward_rounding_of

RECORDING = Path(__file__).parents[1] / "docs/data/h200_torch_attention.json"
plain = strategies.shapes(rows=40, width=12, heads=False, causal=False)
backward = partial(strategies.cases, names=strategies.BACKWARD)
sizes = st.integers(1, 12)
seeds = st.integers(0, 2**32 - 1)


def visible(shape: AttentionShape) -> np.ndarray:
    return np.array(naive.visible_of(shape))


def step_of(
    case: strategies.Case, given_arrays: list[np.ndarray], forward_size: int = 3, **more: object
) -> TrainingStep:
    """Both passes, the forward one in tiles of its own."""
    forward = forward_of(family(case.name))
    built = forward.build(case.shape, **dict.fromkeys(forward.tiles, forward_size))
    return training_step(case.schedule, built, *given_arrays, **more)  # type: ignore[arg-type]


def given_of(shape: AttentionShape, seed: int, spread: float = 1.0) -> list[np.ndarray]:
    return [*operands(shape, seed, spread), output_gradient(shape, seed)]


# The reference.


@given(strategies.shapes(rows=6, dtypes=("float64",)), seeds)
def test_the_reference_is_the_chain_rule(shape: AttentionShape, seed: int) -> None:
    q, k, v, dO = given_of(shape, seed)
    seen = visible(shape)
    expected = [np.zeros_like(x) for x in (q, k, v)]
    for b in range(shape.batch):
        for h in range(shape.heads):
            own = (b, h // shape.group)
            found = naive_gradients.by_the_chain_rule(
                q[b, h], k[own], v[own], dO[b, h],
                lambda i, j: seen[i, j], shape.head_dim**-0.5,
            )  # fmt: skip
            for at, gradient, one in zip(((b, h), own, own), expected, found, strict=True):
                gradient[at] += one
    for one, other in zip(
        reference.attention_gradients(q, k, v, dO, visible(shape)), expected, strict=True
    ):
        assert np.allclose(one, other, rtol=0, atol=1e-12 * (1 + abs(other).max()))


@given(strategies.shapes(rows=4, dtypes=("float64",)), seeds)
def test_the_reference_is_the_limit_of_differences(shape: AttentionShape, seed: int) -> None:
    """sum(dO * O) after each element: the third derivative is below 10^3 for such numbers."""
    *given_arrays, dO = given_of(shape, seed)

    def loss(arrays: list[np.ndarray]) -> float:
        return float((dO * reference.attention(*arrays, visible(shape))[0]).sum())

    found = naive_gradients.differences(loss, given_arrays, step := 1e-4)
    exact = reference.attention_gradients(*given_arrays, dO, visible(shape))
    largest = max(1.0, *(abs(x).max() for x in (*given_arrays, dO)))
    allowed = 1e3 * step**2 / 6 * largest**5 + 1e-14 / step * dO.size * largest
    for one, other in zip(exact, found, strict=True):
        assert abs(one - other).max() <= allowed


# Execution.


@given(backward(rows=12), seeds, st.sampled_from([0.01, 1.0, 5.0]))
def test_what_executes_are_the_gradients_of_attention(
    case: strategies.Case, seed: int, spread: float
) -> None:
    shape = case.shape
    given_arrays = given_of(shape, seed, spread)
    done = step_of(case, given_arrays)
    forward = forward_of(family(case.name))
    built = forward.build(shape, **dict.fromkeys(forward.tiles, 3))
    rounding = backward_rounding_of(case.schedule, built)
    allowed = tolerance.gradient_error(rounding, *given_arrays, visible(shape))
    right = reference.attention_gradients(*given_arrays, visible(shape))
    for name, expected, error in zip(GRADIENTS, right, allowed, strict=True):
        found = done.backward.outputs[name]
        assert found.dtype == precision(shape.dtype).storage
        agreed = tolerance.agrees(found.astype(np.float64), expected, error)
        assert agreed, (name, agreed.reason)
    assert done.backward.traffic == count(case.schedule)
    hidden = ~visible(shape)
    assert (done.backward.outputs["dQ"][..., hidden.all(axis=1), :] == 0).all()
    for name in ("dK", "dV"):
        assert (done.backward.outputs[name][..., hidden.all(axis=0), :] == 0).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", strategies.BACKWARD)
def test_what_executes_is_the_limit_of_differences(name: str, dtype: str) -> None:
    """Differences of the float64 reference: 3e-6 is what the steps leave, beside the rounding."""
    shape = AttentionShape(5, 7, 3, value_dim=2, heads=2, kv_heads=1, causal=True, dtype=dtype)
    case = strategies.Case(name, shape, dict(zip(family(name).tiles, (2, 3), strict=False)))
    given_arrays = given_of(shape, 5)
    *qkv, dO = [x.copy() for x in given_arrays]

    def loss(arrays: list[np.ndarray]) -> float:
        return float((dO * reference.attention(*arrays, visible(shape))[0]).sum())

    found = naive_gradients.differences(loss, qkv, 1e-4)
    done = step_of(case, given_arrays).backward.outputs
    built = forward_of(family(name)).build(
        shape, **dict.fromkeys(forward_of(family(name)).tiles, 3)
    )
    allowed = tolerance.gradient_error(
        backward_rounding_of(case.schedule, built), *given_arrays, visible(shape)
    )
    for gradient, expected, error in zip(GRADIENTS, found, allowed, strict=True):
        assert (abs(done[gradient] - expected) <= error + 3e-6).all()
        assert abs(expected).max() > 0.05


@pytest.mark.parametrize("dtype", strategies.DTYPES)
@pytest.mark.parametrize("name", strategies.BACKWARD)
def test_gradients_of_some_size(name: str, dtype: str) -> None:
    """Ragged everywhere: 70 queries, 90 keys, causal, grouped heads, other widths."""
    shape = AttentionShape(70, 90, 32, value_dim=24, heads=4, kv_heads=2, dtype=dtype, causal=True)
    case = strategies.Case(name, shape, dict(zip(family(name).tiles, (16, 24), strict=False)))
    given_arrays = given_of(shape, 7)
    done = step_of(case, given_arrays, forward_size=32)
    forward = forward_of(family(name))
    built = forward.build(shape, **dict.fromkeys(forward.tiles, 32))
    allowed = tolerance.gradient_error(
        backward_rounding_of(case.schedule, built), *given_arrays, visible(shape)
    )
    right = reference.attention_gradients(*given_arrays, visible(shape))
    for gradient, expected, error in zip(GRADIENTS, right, allowed, strict=True):
        found = done.backward.outputs[gradient].astype(np.float64)
        assert tolerance.agrees(found, expected, error)
        # The tolerance says something: it is below the gradients themselves.
        assert error.max() < abs(expected).max() * (0.5 if dtype != "bfloat16" else 2)
    assert done.backward.traffic == count(case.schedule)


@given(
    backward(rows=10),
    st.sampled_from(["reverse", "snake"]),
    st.sampled_from(["query", "key", "group"]),
    seeds,
)
def test_the_order_of_blocks_changes_nothing_but_rounding(
    case: strategies.Case, order: str, axis: str, seed: int
) -> None:
    case = replace(case, shape=replace(case.shape, dtype="float64"))
    turned = trees.in_order(case.schedule, axis, order)
    given_arrays = given_of(case.shape, seed)
    forward = forward_of(family(case.name))
    built = forward.build(case.shape, **dict.fromkeys(forward.tiles, 3))
    done = training_step(turned, built, *given_arrays).backward
    usual = step_of(case, given_arrays).backward
    assert done.traffic == usual.traffic
    for name in GRADIENTS:
        assert done.outputs[name] == pytest.approx(usual.outputs[name], rel=1e-9, abs=1e-12)


@given(backward(rows=8, dtypes=("float64",)), st.floats(0.01, 3.0), seeds)
def test_the_scale_reaches_both_passes(case: strategies.Case, scale: float, seed: int) -> None:
    given_arrays = given_of(case.shape, seed)
    done = step_of(case, given_arrays, scale=scale).backward.outputs
    right = reference.attention_gradients(*given_arrays, visible(case.shape), scale)
    for name, expected in zip(GRADIENTS, right, strict=True):
        assert done[name] == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(backward(rows=6, heads=False, dtypes=("float64",)), seeds)
def test_leading_axes_of_one_may_be_left_out(case: strategies.Case, seed: int) -> None:
    given_arrays = given_of(case.shape, seed)
    whole = step_of(case, given_arrays).backward
    for leading in (0, 1):
        fewer = [x.reshape(x.shape[2 - leading :]) for x in given_arrays]
        done = step_of(case, fewer).backward
        for name, shaped in zip(GRADIENTS, fewer, strict=False):
            assert done.outputs[name].shape == shaped.shape
            assert (done.outputs[name] == whole.outputs[name].reshape(shaped.shape)).all()


def test_a_shared_key_gets_the_sum_over_its_query_heads() -> None:
    """Three heads with one key head: as three key heads whose gradients are added up."""
    shape = AttentionShape(9, 11, 4, heads=3, kv_heads=1, dtype="float64", causal=True)
    apart = replace(shape, kv_heads=3)
    q, k, v, dO = given_of(shape, 3)
    for name in strategies.BACKWARD:
        tiles = dict(zip(family(name).tiles, (4, 5), strict=False))
        shared = step_of(strategies.Case(name, shape, tiles), [q, k, v, dO]).backward.outputs
        three = [np.repeat(x, 3, axis=1) for x in (k, v)]
        each = step_of(strategies.Case(name, apart, tiles), [q, *three, dO]).backward.outputs
        assert shared["dQ"] == pytest.approx(each["dQ"], rel=1e-12)
        for gradient in ("dK", "dV"):
            total = each[gradient].sum(axis=1, keepdims=True)
            assert shared[gradient] == pytest.approx(total, rel=1e-11, abs=1e-13)


@given(plain, sizes, sizes, st.integers(1, 4))
def test_shared_keys_are_loaded_once_for_all_their_heads(
    shape: AttentionShape, br: int, bc: int, group: int
) -> None:
    many = replace(shape, heads=group)
    many = replace(many, kv_heads=1)
    for name in ("flash1_backward", "flash2_backward"):
        one, all_of_them = (
            count(family(name).build(s, br=br, bc=bc)).tensors for s in (shape, many)
        )
        for tensor, words in one.items():
            times = 1 if tensor in ("K", "V", "dK", "dV") else group
            assert all_of_them[tensor].total == times * words.total
