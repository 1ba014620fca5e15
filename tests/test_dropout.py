"""Dropout: the same elements in every schedule and tile, the words of its passes, exactness."""

from dataclasses import replace
from fractions import Fraction

import naive
import naive_philox
import numpy as np
import pytest
import strategies
import trees
from hypothesis import given
from hypothesis import strategies as st
from inputs import operands, output_gradient, run
from test_count import assert_same
from test_execute import visible

from iosim import reference, tolerance
from iosim.errors import IosimError, UnsupportedError
from iosim.precision import NAMES, precision
from iosim.random_bits import RandomState, dropout_factors
from iosim.reading.check import check
from iosim.reading.count import count
from iosim.reading.execute import execute
from iosim.reading.formula import formula
from iosim.reading.gradients import GRADIENTS
from iosim.schedule import Schedule, families, family
from iosim.schedule.registry import backward_of, forward_of
from iosim.shape import AttentionShape
from iosim.training import TrainingStep, training_step
from iosim.verify.counting import differences
from iosim.verify.exactness import rounding_of
from iosim.verify.gradients import backward_rounding_of

RATES = (0.1, 0.5, 0.9)
FLASH = ("flash1", "flash2")


def drops(name: str) -> bool:
    """Whether a schedule has a form with dropout."""
    known = families()[name]
    try:
        known.build(AttentionShape(4, 4, 2, dropout=0.5), **dict.fromkeys(known.tiles, 2))
    except UnsupportedError:
        return False
    return True


EVERY = tuple(filter(drops, strategies.NAMES))
FORWARD = tuple(filter(drops, strategies.FORWARD))
BACKWARD = tuple(filter(drops, strategies.BACKWARD))

sizes = st.integers(1, 9)
spreads = st.sampled_from([0.01, 1.0, 5.0])
states = st.builds(RandomState, st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1))


def factors(shape: AttentionShape, state: RandomState) -> np.ndarray:
    sizes = (shape.batch, shape.heads, shape.n_q, shape.n_k)
    return dropout_factors(state, shape.dropout, sizes)


def test_what_has_dropout() -> None:
    """At the least these; a schedule that has none says so when it is built."""
    assert set(EVERY) >= {
        *("standard", "standard_passes", "standard_tiled", "square_tiling", "flash1", "flash2"),
        *("flash2_packed", "split_kv", "standard_backward", "flash1_backward", "flash2_backward"),
        "flash2_backward_q",
    }


@given(strategies.cases(EVERY, dropout=RATES))
def test_every_reading_says_the_same(case: strategies.Case) -> None:
    """Count, formula, execution and a whole run block by block."""
    schedule = case.schedule
    done = run(schedule, *operands(case.shape, 0)).traffic
    assert differences(schedule, done) == []
    assert done == count(schedule)
    assert_same(count(schedule), naive.Run(schedule))


@given(strategies.cases(EVERY, dropout=RATES, rows=40, width=2, heads=False))
def test_count_is_a_whole_run_of_more_blocks(case: strategies.Case) -> None:
    assert_same(count(case.schedule), naive.Run(case.schedule))


@given(strategies.cases(FORWARD, dropout=RATES, dtypes=("float64",), rows=7), states)
def test_each_schedule_drops_the_elements_that_the_twin_drops(
    case: strategies.Case, state: RandomState
) -> None:
    """With the unit matrix as V, O is P_d itself: its zeros are what was dropped or hidden."""
    shape = replace(case.shape, value_dim=case.shape.n_k)
    q, k, _ = operands(shape, 1)
    v = np.broadcast_to(np.eye(shape.n_k), (shape.batch, shape.kv_heads, shape.n_k, shape.n_k))
    done = execute(replace(case, shape=shape).schedule, q, k, v, random=state)
    threshold = int(Fraction(shape.dropout) * 2**32)
    seen = visible(shape)
    for at in np.ndindex(done.O.shape):
        batch, head, row, column = at
        word = naive_philox.word(state.seed, state.offset, batch * shape.heads + head, row, column)
        assert (done.O[at] != 0) == (word >= threshold and seen[row, column])


@given(strategies.cases(FORWARD, dropout=RATES, rows=12), states, spreads)
def test_what_executes_is_attention_with_those_elements_dropped(
    case: strategies.Case, state: RandomState, spread: float
) -> None:
    inputs, seen, z = operands(case.shape, state.offset, spread), visible(case.shape), None
    z = factors(case.shape, state)
    schedule = case.schedule
    done = execute(schedule, *inputs, random=state)
    expected, lse = reference.attention(*inputs, seen, factors=z)
    error, lse_error = tolerance.elementwise_error(rounding_of(schedule), *inputs, seen, factors=z)
    agreed = tolerance.agrees(done.O, expected, error)
    assert agreed, agreed.reason
    if done.LSE is not None:
        assert tolerance.agrees(done.LSE, lse, lse_error)


@given(
    strategies.shapes(dropout=RATES, rows=12),
    st.sampled_from(FLASH),
    st.sampled_from(["standard", "standard_passes", "standard_tiled"]),
    st.tuples(st.integers(1, 13), st.integers(1, 13)),
    states,
)
def test_dropping_before_the_normalisation_is_dropping_after_it(
    shape: AttentionShape, fused: str, passes: str, sizes: tuple[int, int], state: RandomState
) -> None:
    """Flash drops e^(S - m) and sums l undropped; standard drops P: one result, two roundings."""
    inputs, seen = operands(shape, 3), visible(shape)
    z = factors(shape, state)
    results, errors = [], []
    for name in (fused, passes):
        tiles = dict(zip(family(name).tiles, sizes, strict=False))
        schedule = family(name).build(shape, **tiles)
        results.append(execute(schedule, *inputs, random=state).O.astype(np.float64))
        of = rounding_of(schedule)
        errors.append(tolerance.elementwise_error(of, *inputs, seen, factors=z)[0])
    agreed = tolerance.agrees(*results, sum(errors))
    assert agreed, agreed.reason


@pytest.mark.parametrize("dtype", NAMES)
def test_in_exact_numbers_the_two_orders_are_one(dtype: str) -> None:
    """Equal scores, powers of two, p = 1/2: no rounding anywhere, so not a bit may differ."""
    shape = AttentionShape(16, 64, 4, value_dim=8, heads=2, dtype=dtype, dropout=0.5)
    rng = np.random.default_rng(0)
    q, k = np.zeros((2, 16, 4)), rng.normal(size=(2, 64, 4))
    v = rng.integers(-2, 3, (2, 64, 8)).astype(float)
    found = {
        name: execute(
            each.build(shape, **dict.fromkeys(each.tiles, 32)), q, k, v, random=RandomState(4)
        ).O.astype(np.float64)
        for name, each in ((n, family(n)) for n in FORWARD)
    }
    expected, _ = reference.attention(q, k, v, factors=factors(shape, RandomState(4))[0])
    # Sums over 32 or 64 keys, which divide without rounding; at most 8 bits, which bfloat16 has.
    for name, O in found.items():
        assert (O == expected).all(), name


@given(st.sampled_from(("standard", "standard_tiled")), strategies.shapes(dropout=(0.1,), rows=30))
def test_a_pass_of_dropout_reads_p_and_writes_it_and_a_byte_each(
    name: str, shape: AttentionShape
) -> None:
    sizes = dict.fromkeys(family(name).tiles, 4)
    plain = count(family(name).build(replace(shape, dropout=0.0), **sizes))
    drops = count(family(name).build(shape, **sizes))
    pairs = shape.batch * shape.heads * shape.n_q * shape.n_k
    assert drops.read_bytes - plain.read_bytes == pairs * shape.item_bytes
    assert drops.write_bytes - plain.write_bytes == pairs * (shape.item_bytes + 1)
    assert drops.write_words - plain.write_words == 2 * pairs
    assert drops.flops - plain.flops == pairs
    assert drops.tensors["Z"].total == drops.tensors["Z"].write == pairs


@given(strategies.cases(FLASH, dropout=(0.1,), rows=30))
def test_flash_saves_two_words_of_random_state_and_no_mask(case: strategies.Case) -> None:
    plain = count(replace(case, shape=replace(case.shape, dropout=0.0)).schedule)
    drops = count(case.schedule)
    assert drops.total_words - plain.total_words == 2
    assert drops.total_bytes - plain.total_bytes == 16
    assert drops.peak_words - plain.peak_words == 2
    assert drops.read_words == plain.read_words


@given(strategies.cases(FLASH, dropout=(0.5,)), states)
def test_the_random_state_that_is_saved_is_the_one_drawn_from(
    case: strategies.Case, state: RandomState
) -> None:
    done = execute(case.schedule, *operands(case.shape, 0), random=state)
    assert (int(done.outputs["seed"]), int(done.outputs["offset"])) == (state.seed, state.offset)


backward = st.sampled_from(BACKWARD)


def step(
    name: str,
    shape: AttentionShape,
    sizes: tuple[int, int],
    state: RandomState,
    spread: float = 1.0,
) -> tuple[Schedule, Schedule, TrainingStep]:
    """A backward schedule, its forward one, and both executed one after the other."""
    chosen = family(name)
    schedules = [
        each.build(shape, **dict(zip(each.tiles, sizes, strict=False)))
        for each in (chosen, forward_of(chosen))
    ]
    given = (*operands(shape, 7, spread), output_gradient(shape, 7))
    return (*schedules, training_step(*schedules, *given, random=state))


@given(backward, strategies.shapes(dropout=RATES, rows=8), st.tuples(sizes, sizes), states, spreads)
def test_gradients_are_those_of_attention_with_those_elements_dropped(
    name: str,
    shape: AttentionShape,
    tiles: tuple[int, int],
    state: RandomState,
    spread: float,
) -> None:
    """The backward pass is told no seed: it reads the bytes or the state that the forward left."""
    *schedules, done = step(name, shape, tiles, state, spread)
    given = (*operands(shape, 7, spread), output_gradient(shape, 7), visible(shape))
    z = factors(shape, state)
    expected = reference.attention_gradients(*given, factors=z)
    errors = tolerance.gradient_error(backward_rounding_of(*schedules), *given, factors=z)
    for gradient, right, error in zip(GRADIENTS, expected, errors, strict=True):
        agreed = tolerance.agrees(done.backward.outputs[gradient], right, error)
        assert agreed, f"{gradient}: {agreed.reason}"


@given(strategies.shapes(dropout=RATES, rows=5, dtypes=("float64",)), states, st.integers(0, 9))
def test_reference_gradients_are_the_slopes_of_the_output(
    shape: AttentionShape, state: RandomState, seed: int
) -> None:
    """Central differences along a random direction: h^2 = 1e-8 times third derivatives."""
    q, k, v = operands(shape, seed)
    dO, seen, z = output_gradient(shape, seed), visible(shape), factors(shape, state)
    rng = np.random.default_rng(seed)
    directions = [rng.normal(size=x.shape) / np.sqrt(x.size) for x in (q, k, v)]

    def loss(h: float) -> float:
        moved = [x + h * way for x, way in zip((q, k, v), directions, strict=True)]
        return float((dO * reference.attention(*moved, seen, factors=z)[0]).sum())

    slopes = reference.attention_gradients(q, k, v, dO, seen, factors=z)
    expected = sum(float((g * way).sum()) for g, way in zip(slopes, directions, strict=True))
    size = sum(float(abs(g * way).sum()) for g, way in zip(slopes, directions, strict=True))
    # Values of a few units, ten times as large under dropout, have third derivatives below 1e4.
    assert (loss(1e-4) - loss(-1e-4)) / 2e-4 == pytest.approx(
        expected, rel=0, abs=1e-4 + size / 1e6
    )


@given(backward, strategies.shapes(dropout=(0.5,), rows=8, dtypes=("float64",)), states)
def test_a_backward_pass_that_drops_other_elements_is_seen(
    name: str, shape: AttentionShape, state: RandomState
) -> None:
    *_, done = step(name, shape, (3, 3), state)
    z, other = (factors(shape, each) for each in (state, RandomState(state.seed ^ 1)))
    given = (*operands(shape, 7), output_gradient(shape, 7), visible(shape))
    right, wrong = (reference.attention_gradients(*given, factors=each)[2] for each in (z, other))
    distances = [abs(done.backward.outputs["dV"] - each).max() for each in (right, wrong)]
    assert distances[0] < 1e-12
    assert distances[1] > 1e-12 or (right == wrong).all()


def test_the_standard_backward_pass_reads_the_bytes_and_flash_ones_the_state() -> None:
    shape = AttentionShape(64, 48, 8, batch=2, heads=4, kv_heads=2, dropout=0.1)
    pairs = 2 * 4 * 64 * 48
    standard = count(family("standard_backward").build(shape))
    plain = count(family("standard_backward").build(replace(shape, dropout=0.0)))
    assert standard.tensors["Z"].read == standard.tensors["P_d"].read == pairs
    # dP is read and written once more, Z is read; P_d takes the place of P for dV.
    assert standard.total_bytes - plain.total_bytes == pairs * (2 * shape.item_bytes + 1)
    for name in BACKWARD:
        if name != "standard_backward":
            sizes = {"br": 16, "bc": 16}
            drops = count(family(name).build(shape, **sizes))
            plain = count(family(name).build(replace(shape, dropout=0.0), **sizes))
            assert drops.total_words - plain.total_words == drops.tensors["seed"].read * 2 == 2
            # The state, and P_d beside P (and dP, unless room for it is made later).
            later = name == "flash1_backward"
            assert drops.peak_words == plain.peak_words + 2 + (0 if later else 16 * 16)


def test_a_pass_of_masks_leaves_what_standard_attention_leaves() -> None:
    assert backward_of(family("standard_passes")).name == "standard_backward"
    shape = AttentionShape(9, 7, 4, dtype="float64", causal=True, dropout=0.3)
    built = [family(name).build(shape) for name in ("standard_backward", "standard_passes")]
    given = (*operands(shape, 1), output_gradient(shape, 1))
    passes = training_step(*built, *given)
    plain = training_step(built[0], family("standard").build(shape), *given)
    for name in GRADIENTS:
        assert (passes.backward.outputs[name] == plain.backward.outputs[name]).all()


@given(strategies.shapes(rows=30))
def test_a_mask_of_its_own_is_a_pass_over_s_and_the_bytes_of_the_mask(
    shape: AttentionShape,
) -> None:
    plain, passes = (count(family(name).build(shape)) for name in ("standard", "standard_passes"))
    pairs = shape.n_q * shape.n_k
    heads = shape.batch * shape.heads
    mask_bytes = heads * (pairs if shape.causal or shape.mask else shape.n_k)
    scores = heads * pairs * shape.item_bytes
    assert passes.read_bytes - plain.read_bytes == scores + mask_bytes
    assert passes.write_bytes - plain.write_bytes == scores
    assert passes.tensors["mask"].read == mask_bytes


@pytest.mark.parametrize("dtype", NAMES)
def test_rates_that_leave_hardly_anything(dtype: str) -> None:
    """All but a ten-thousandth dropped: most rows are zero, the others within the tolerance."""
    shape = AttentionShape(40, 60, 8, dtype=dtype, dropout=0.9999)
    inputs = operands(shape, 2)
    for name, each in ((n, family(n)) for n in FORWARD):
        schedule = each.build(shape, **dict.fromkeys(each.tiles, 16))
        z = factors(shape, RandomState())
        done = execute(schedule, *inputs)
        expected, _ = reference.attention(*inputs, factors=z)
        error, _ = tolerance.elementwise_error(rounding_of(schedule), *inputs, factors=z)
        agreed = tolerance.agrees(done.O, expected, error)
        assert agreed, f"{name}: {agreed.reason}"
        assert (done.O == 0).mean() > 0.9


def test_a_wrong_bit_or_a_forgotten_factor_is_seen() -> None:
    """The tolerance is not so wide that it would miss either."""
    for dtype in NAMES:
        shape = AttentionShape(32, 48, 16, dtype=dtype, dropout=0.1)
        inputs = operands(shape, 5)
        schedule = family("flash2").build(shape, br=8, bc=16)
        z = factors(shape, RandomState())
        error, _ = tolerance.elementwise_error(rounding_of(schedule), *inputs, factors=z)
        expected, _ = reference.attention(*inputs, factors=z)
        other_seed = execute(schedule, *inputs, random=RandomState(1)).O
        assert not tolerance.agrees(other_seed, expected, error)
        unscaled, _ = reference.attention(*inputs, factors=(z > 0).astype(float))
        assert not tolerance.agrees(unscaled, expected, error)
        one_bit = z.copy()
        one_bit[0, 0, 3, 7] = 1 / 0.9 - one_bit[0, 0, 3, 7]
        flipped, _ = reference.attention(*inputs, factors=one_bit)
        assert not tolerance.agrees(flipped, expected, error)


def test_float16_promises_nothing_where_the_factor_overflows() -> None:
    form = precision("float16")
    rate = 1 - 1 / float(form.largest)
    execution = tolerance.Execution("float16", 8, 16, dropout=rate)
    assert tolerance.forward_error(execution, score_magnitude=1, value_magnitude=1) == np.inf
    half = replace(execution, dropout=0.5)
    whole = replace(execution, dropout=0.0)
    sizes = [
        tolerance.forward_error(each, score_magnitude=1, value_magnitude=1)
        for each in (half, whole)
    ]
    assert 2 * sizes[1] < sizes[0] < 2.1 * sizes[1]  # a value weighs twice as much


@pytest.mark.parametrize("rate", [1.0, 1, -0.1, float("nan"), float("inf"), "0.1", None])
def test_a_rate_that_is_no_probability_below_one_is_refused(rate: object) -> None:
    with pytest.raises(IosimError, match=r"dropout is .*, but it must be a probability from 0"):
        AttentionShape(4, 4, 2, dropout=rate)  # type: ignore[arg-type]


def test_a_schedule_that_drops_nothing_is_refused() -> None:
    shape = AttentionShape(4, 4, 2, dropout=0.1)
    with pytest.raises(UnsupportedError, match=r"'split_loads' drops nothing, .* dropout 0.1"):
        trees.split_loads(shape, br=2, bc=2)


def test_factors_and_rate_go_together() -> None:
    q = np.ones((2, 2))
    with_rate = tolerance.Execution("float32", 2, 2, dropout=0.5)
    with pytest.raises(IosimError, match=r"dropout is 0.5, and factors are missing"):
        tolerance.elementwise_error(with_rate, q, q, q)
    with pytest.raises(IosimError, match=r"dropout is 0.0, and factors are given"):
        tolerance.elementwise_error(replace(with_rate, dropout=0.0), q, q, q, factors=q)
    with pytest.raises(IosimError, match=r"dropout must be in"):
        replace(with_rate, dropout=1.0)


def test_properties_stay_what_they_were() -> None:
    """Dropout neither fuses a schedule nor takes it apart."""
    shape = AttentionShape(100, 100, 16)
    for each in map(family, EVERY):
        sizes = dict.fromkeys(each.tiles, 16)
        plain = check(each.build(shape, **sizes))
        drops = check(each.build(replace(shape, dropout=0.1), **sizes))
        for name in ("fused", "whole_rows", "materialises", "rematerialises", "once"):
            assert getattr(drops, name) == getattr(plain, name)


def test_the_lines_of_dropout_print() -> None:
    shape = AttentionShape(64, 64, 8, dropout=0.1)
    found = formula(family("standard").build(shape))
    line = "read P; draw Z; compute P_d = P Z / (1 - p); write P_d, Z"
    assert str(found.words("read", line=line)) == "n_q n_k"
    assert str(found.words("write", line=line)) == "2 n_q n_k"
    flash = formula(family("flash2").build(shape, br=8, bc=8))
    assert str(flash.words("write", line="save the random state (seed, offset)")) == "2"
