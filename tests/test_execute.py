"""Execute: the same words as count, and attention within the derived tolerance."""

import math
from dataclasses import replace
from functools import partial

import naive
import numpy as np
import pytest
import strategies
import trees
from hypothesis import given
from hypothesis import strategies as st
from inputs import operands, run

from iosim import reference, tolerance
from iosim.errors import CapacityError, IosimError, ScheduleError
from iosim.precision import precision
from iosim.reading.check import check
from iosim.reading.count import count
from iosim.reading.execute import Execution, execute
from iosim.reading.walk import walk
from iosim.schedule import (
    Compute,
    Dim,
    For,
    Move,
    Schedule,
    family,
    free,
    load,
    new,
    problem,
    store,
)
from iosim.schedule.relation import Causal
from iosim.shape import AttentionShape


def visible(shape: AttentionShape) -> np.ndarray:
    return np.array(naive.visible_of(shape))


def model(case: strategies.Case) -> tolerance.Execution:
    """What the tolerance has to know: tiles a row meets, and what is rounded on its way."""
    shape, sizes = case.shape, case.tiles
    page = min(sizes.get("page_size", shape.n_k), shape.n_k)
    split = -(-shape.n_k // sizes.get("splits", 2 if case.name == "split_kv" else 1))
    if "page_size" in sizes:
        split = min(-(-split // page) * page, shape.n_k)
    bc = min(sizes.get("bc", shape.n_k), split, page)
    return tolerance.Execution(
        shape.dtype,
        shape.head_dim,
        shape.n_k,
        tiles=sum(-(-(b - a) // bc) for a, b in naive.cut(split, page)),
        largest_tile=bc,
        splits=-(-shape.n_k // split),
        split_keys=split if case.name == "split_kv" else None,
        stored_scores=case.name.startswith(("standard", "square")),
        stored_output_per_tile=case.name == "flash1",
    )


def assert_attention(done: Execution, case: strategies.Case, inputs: list[np.ndarray]) -> None:
    seen = visible(case.shape)
    expected, lse = reference.attention(*inputs, seen)
    error, lse_error = tolerance.elementwise_error(model(case), *inputs, seen)
    agreed = tolerance.agrees(done.O.astype(np.float64), expected, error)
    assert agreed, agreed.reason
    if done.LSE is not None:
        agreed = tolerance.agrees(done.LSE, lse, lse_error)
        assert agreed, agreed.reason


seeds = st.integers(0, 2**32 - 1)
forward = partial(strategies.cases, names=strategies.FORWARD)


@given(forward(rows=12), seeds, st.sampled_from([0.01, 1.0, 5.0]))
def test_what_executes_is_attention(case: strategies.Case, seed: int, spread: float) -> None:
    inputs = operands(case.shape, seed, spread)
    done = execute(case.schedule, *inputs)
    assert_attention(done, case, inputs)
    empty = ~visible(case.shape).any(axis=1)
    assert (done.O[..., empty, :] == 0).all()
    if done.LSE is not None:
        assert (done.LSE[..., empty] == -np.inf).all()
        assert np.isfinite(done.LSE[..., ~empty]).all()


@given(strategies.cases())
def test_the_words_really_moved_are_those_counted(case: strategies.Case) -> None:
    done = run(case.schedule, *operands(case.shape, 0))
    assert done.traffic == count(case.schedule)


@pytest.mark.parametrize("dtype", strategies.DTYPES)
@pytest.mark.parametrize("name", strategies.FORWARD)
def test_attention_of_some_size(name: str, dtype: str) -> None:
    """Ragged everywhere: 70 queries, 90 keys, causal, grouped heads, other widths."""
    shape = AttentionShape(70, 90, 32, value_dim=24, heads=4, kv_heads=2, dtype=dtype, causal=True)
    tiles = dict(zip(family(name).tiles, (16, 24), strict=False))
    case = strategies.Case(name, shape, tiles)
    inputs = operands(shape, 7)
    done = execute(case.schedule, *inputs)
    assert_attention(done, case, inputs)
    assert done.traffic == count(case.schedule)
    assert done.O.dtype == precision(dtype).storage


@given(
    strategies.cases(names=("flash1", "flash2"), rows=12),
    st.sampled_from(["reverse", "snake"]),
    st.sampled_from(["query", "key"]),
    seeds,
)
def test_the_order_of_blocks_changes_nothing_but_rounding(
    case: strategies.Case, order: str, axis: str, seed: int
) -> None:
    schedule = trees.in_order(case.schedule, axis, order)
    inputs = operands(case.shape, seed)
    done = execute(schedule, *inputs)
    assert_attention(done, case, inputs)
    assert done.traffic == count(schedule) == count(case.schedule)
    assert check(schedule) == check(case.schedule)


def order_of_loads(schedule: Schedule) -> list[int]:
    return [
        position["key"][1]
        for node, position in walk(schedule)
        if isinstance(node, Move) and node.kind == "load" and node.tensor.name == "K"
    ]


def test_orders_are_what_they_are_called() -> None:
    schedule = family("flash2").build(AttentionShape(6, 6, 1), br=2, bc=2)
    assert order_of_loads(schedule) == [0, 1, 2] * 3
    assert order_of_loads(trees.in_order(schedule, "key", "reverse")) == [2, 1, 0] * 3
    snake = trees.in_order(schedule, "key", "snake")
    assert order_of_loads(snake) == [0, 1, 2, 2, 1, 0, 0, 1, 2]


@given(strategies.cases(rows=6))
def test_a_memory_of_the_peak_is_enough_and_a_word_less_is_not(case: strategies.Case) -> None:
    schedule, inputs = case.schedule, operands(case.shape, 3)
    peak = count(schedule).peak_words
    assert run(schedule, *inputs, capacity=peak).traffic.peak_words == peak
    with pytest.raises(CapacityError) as caught:
        run(schedule, *inputs, capacity=peak - 1)
    assert str(caught.value).startswith("line '") or "a step without a line" in str(caught.value)
    assert f"but M is {peak - 1} words" in str(caught.value)


@given(forward(rows=8), seeds, st.sampled_from([np.nan, np.inf]), st.data())
def test_a_nan_or_infinite_score_poisons_its_own_row_and_no_other(
    case: strategies.Case, seed: int, bad: float, data: st.DataObject
) -> None:
    q, k, v = operands(case.shape, seed)
    k = precision(case.shape.dtype).round(abs(k) + 0.5).astype(np.float64)  # inf * k stays inf
    clean = execute(case.schedule, q, k, v)
    row = data.draw(st.integers(0, case.shape.n_q - 1))
    batch = data.draw(st.integers(0, case.shape.batch - 1))
    head = data.draw(st.integers(0, case.shape.heads - 1))
    at = (batch, head, row)
    poisoned = q.copy()
    poisoned[at] = bad
    done = execute(case.schedule, poisoned, k, v)
    for name, output in done.outputs.items():
        rows = np.isnan(output.astype(np.float64)).reshape(*q.shape[:3], -1)
        expected = np.zeros(q.shape[:3], bool)
        expected[at] = visible(case.shape)[row].any()
        assert (rows == expected[..., None]).all()
        others = ~expected
        assert (output[others] == clean.outputs[name][others]).all()


@given(forward(rows=8), seeds, st.data())
def test_a_row_of_scores_minus_infinity_is_a_row_that_sees_nothing(
    case: strategies.Case, seed: int, data: st.DataObject
) -> None:
    q, k, v = operands(case.shape, seed)
    k = precision(case.shape.dtype).round(abs(k) + 0.5).astype(np.float64)
    row = data.draw(st.integers(0, case.shape.n_q - 1))
    q[:, :, row] = -np.inf
    done = execute(case.schedule, q, k, v)
    assert (done.O[:, :, row] == 0).all()
    assert np.isfinite(done.O.astype(np.float64)).all()
    if done.LSE is not None:
        assert (done.LSE[:, :, row] == -np.inf).all()


def test_a_mask_is_not_a_large_negative_number() -> None:
    """A sentinel of -1e4 would let the masked key, with score 0, win: output 100, not 1."""
    q, k, v = np.array([[-20000.0], [0.0]]), np.array([[1.0], [0.0]]), np.array([[1.0], [100.0]])
    for name in strategies.FORWARD:
        for size in (1, 2):
            shape = AttentionShape(2, 2, 1, dtype="float32", causal=True)
            sizes = dict.fromkeys(family(name).tiles, size)
            done = execute(family(name).build(shape, **sizes), q, k, v, scale=1.0)
            assert done.O[0, 0] == 1.0
            assert done.O[1, 0] == pytest.approx(50.5, rel=1e-6)  # float32: 2^-24 a step


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_scores_far_below_zero_are_no_empty_row(dtype: str) -> None:
    shape = AttentionShape(3, 5, 1, dtype=dtype)
    q, k = np.full((3, 1), -6e4), np.array([[1.0], [1.0], [2.0], [1.0], [2.0]])
    v = np.array([[1.0], [2.0], [1e5], [3.0], [1e5]])
    for name in strategies.FORWARD:
        sizes = dict.fromkeys(family(name).tiles, 2)
        done = execute(family(name).build(shape, **sizes), q, k, v)
        # The keys 0, 1, 3 share all weight: the next score is 6e4 lower. Of LSE = -6e4 + log l a
        # split keeps as much as float32 can: weights err by 4 u 6e4, and values here are below 3.
        u = precision(dtype).roundoff
        lost = 3 * 4 * u * 6e4 if name == "split_kv" else 0
        assert done.O[:, 0] == pytest.approx(2.0, rel=1e-6, abs=lost)
        if done.LSE is not None:
            assert done.LSE == pytest.approx(-6e4 + math.log(3), rel=1e-6)


@given(forward(rows=6, heads=False), seeds)
def test_leading_axes_of_one_may_be_left_out(case: strategies.Case, seed: int) -> None:
    inputs = operands(case.shape, seed)
    whole = execute(case.schedule, *inputs)
    for leading in (0, 1):
        fewer = [x.reshape(x.shape[2 - leading :]) for x in inputs]
        done = execute(case.schedule, *fewer)
        assert done.O.shape == (*fewer[0].shape[:-1], case.shape.value_dim)
        assert (done.O == whole.O.reshape(done.O.shape)).all()
        assert done.traffic == whole.traffic


@given(strategies.cases(rows=4))
def test_inputs_stay_as_they_are(case: strategies.Case) -> None:
    storage = precision(case.shape.dtype).storage
    inputs = [x.astype(storage) for x in operands(case.shape, 5)]
    copies = [x.copy() for x in inputs]
    for x in inputs:
        x.flags.writeable = False
    run(case.schedule, *inputs)
    for x, copy in zip(inputs, copies, strict=True):
        assert (x == copy).all()


@given(strategies.shapes(rows=6, heads=False, dtypes=("float32",)), st.floats(0.01, 3.0))
def test_the_scale_is_one_over_the_root_of_d_unless_given(
    shape: AttentionShape, scale: float
) -> None:
    case = strategies.Case("flash2", shape, {"br": 2, "bc": 2})
    q, k, v = operands(shape, 11)
    usual = execute(case.schedule, q, k, v)
    told = execute(case.schedule, q, k, v, scale=1 / math.sqrt(shape.head_dim))
    assert (usual.O == told.O).all()
    other = execute(case.schedule, q, k, v, scale=scale)
    expected, _ = reference.attention(q, k, v, visible(shape), scale)
    error, _ = tolerance.elementwise_error(model(case), q, k, v, visible(shape), scale)
    assert tolerance.agrees(other.O, expected, error)


def test_half_precision_rounds_p_before_pv() -> None:
    """l sums P as it was, P V takes it rounded: 1 - 2^-13 is 1 in float16, but not in l."""
    p = 1 - 2.0**-13
    shape = AttentionShape(1, 2, 1, dtype="float16")
    k = np.array([[0.0], [1.0]])
    done = execute(
        family("flash2").build(shape, br=1, bc=2),
        np.array([[1.0]]),
        k,
        np.array([[-1.0], [1.0]]),
        scale=math.log(p),
    )
    # Scores 0 and log p: P = (1, p), which rounds to (1, 1) in float16; l = 1 + p.
    # Without rounding O would be (p - 1) / (p + 1), which is a number in float16.
    assert done.O[0, 0] == 0
    assert done.LSE == pytest.approx(math.log(1 + p), abs=2.0**-22)
    assert done.LSE != pytest.approx(math.log(2), abs=2.0**-15)


WRONG_ARRAYS = {
    "rows of Q": (((5, 2), (7, 2), (7, 3)), "Q has shape [(]5, 2[)].*[(]1, 2, 4, 2[)]"),
    "K and V swapped": (
        ((2, 4, 2), (2, 7, 3), (2, 7, 2)),
        "K has shape [(]2, 7, 3[)], but the schedule is for [(]1, 2, 7, 2[)]",
    ),
    "one head missing": (((4, 2), (7, 2), (7, 3)), "Q has shape [(]4, 2[)]"),
    "too many axes": (((1, 1, 2, 4, 2), (2, 7, 2), (2, 7, 3)), "Q has shape"),
    "a scalar": (((), (2, 7, 2), (2, 7, 3)), "Q has shape [(][)]"),
    "V of another length": (((2, 4, 2), (2, 7, 2), (2, 8, 3)), "V has shape [(]2, 8, 3[)]"),
    "mixed leading axes": (((2, 4, 2), (1, 2, 7, 2), (2, 7, 3)), "K has shape"),
}


@pytest.mark.parametrize("what", WRONG_ARRAYS)
def test_arrays_of_another_shape_are_refused(what: str) -> None:
    sizes, complaint = WRONG_ARRAYS[what]
    shape = AttentionShape(4, 7, 2, value_dim=3, heads=2)
    with pytest.raises(IosimError, match=complaint):
        execute(family("standard").build(shape), *map(np.zeros, sizes))


P = problem(AttentionShape(4, 4, 2, dtype="float64"), 2, 2)
ZEROS = np.zeros((4, 2))


def run_odd(*body: object) -> Execution:
    schedule = Schedule("odd", P.shape, P.per_head(body))  # type: ignore[arg-type]
    return execute(schedule, ZEROS, ZEROS, ZEROS)


CLEAR_AND_STORE = (*new(P.O), Compute("clear", (P.O,), ()), *store("write O", P.O), *free(P.O))
LOWER_TRIANGLE = For(P.query, (For(P.key, (
    *new(P.S), Compute("clear", (P.S,), ()), *store("write S", P.S), *free(P.S),
), relation=Causal(0)),))  # fmt: skip


ALL_OF_S = (*load("load S", P.S), *free(P.S))
ADD_TO_O = (*new(P.O), Compute("clear", (P.O,), ()), Move("add", P.O, "add O"), *free(P.O))
PART_OF_O = For(P.query, (For(P.key, CLEAR_AND_STORE, relation=Causal(-2)),))
# Trees that only a whole run finds wrong: words are missing, or sizes do not match.
ODD: tuple[tuple[object, ...], ...] = (
    (LOWER_TRIANGLE, *ALL_OF_S),
    (PART_OF_O,),
    (PART_OF_O, *ADD_TO_O),
    (*load("load", P.Q, P.K), *new(P.O), Compute("scores", (P.O,), (P.Q, P.K))),
)


def test_words_that_nothing_has_written_cannot_be_added_to() -> None:
    with pytest.raises(ScheduleError, match=r"line 'add O': add to O\[0:4, 0:2\], some words of"):
        run_odd(PART_OF_O, *ADD_TO_O)
    assert (run_odd(*CLEAR_AND_STORE, *ADD_TO_O).O == 0).all()


def test_words_that_nothing_has_written_cannot_be_loaded() -> None:
    with pytest.raises(ScheduleError, match=r"load of S\[0:4, 0:4\], some words of which nothing"):
        run_odd(LOWER_TRIANGLE, *ALL_OF_S)
    half = (P.query, (For(P.key, ALL_OF_S, relation=Causal(0)),))
    with pytest.raises(ScheduleError, match="odd ends without having stored O"):
        run_odd(LOWER_TRIANGLE, For(*half), *new(P.O), *free(P.O))
    assert (run_odd(LOWER_TRIANGLE, For(*half), *CLEAR_AND_STORE).O == 0).all()


def test_what_nothing_has_set_is_nan() -> None:
    """Check refuses such a tree; run all the same, it shows."""
    done = run_odd(
        *load("load", P.Q, P.K, P.V), *new(P.S, P.O),
        Compute("scores", (P.S,), (P.Q, P.K)), Compute("accumulate", (P.O,), (P.S, P.V, P.O)),
        *store("write O", P.O), *free(P.Q, P.K, P.V, P.S, P.O),
    )  # fmt: skip
    assert np.isnan(done.O).all()


def test_an_output_of_which_words_were_never_written_is_refused() -> None:
    with pytest.raises(ScheduleError, match="output 'O' has words that nothing has written"):
        run_odd(PART_OF_O)


def test_sizes_that_do_not_match_are_told_by_line() -> None:
    column = P.dim.cut(1)
    with pytest.raises(ScheduleError) as caught:
        run_odd(
            *load("load K", P.K),
            For(column, (
                *load("a column of Q", P.Q), *new(P.S),
                Compute("scores", (P.S,), (P.Q, P.V), "S = Q V"),
            )),
        )  # fmt: skip
    assert "line 'S = Q V': scores uses V" in str(caught.value)
    with pytest.raises(
        ScheduleError, match=r"sizes of O\[0:4, 0:2\], Q\[0:4, 0:2\], K\[0:4, 0:2\]"
    ):
        run_odd(*load("load", P.Q, P.K), *new(P.O), Compute("scores", (P.O,), (P.Q, P.K)))


def test_a_mask_between_axes_of_other_names() -> None:
    """Standard attention whose axes are called rows and columns; the mask asks for those."""
    shape = AttentionShape(3, 3, 1, dtype="float64", causal=True)
    p = problem(shape)
    rows, columns = Dim("rows", 3), Dim("columns", 3)
    heads = p.Q.axes[:3]
    Q, O = (replace(t, axes=(*heads, rows, p.dim)) for t in (p.Q, p.O))
    K = replace(p.K, axes=(*heads[:2], columns, p.dim))
    V = replace(p.V, axes=(*heads[:2], columns, p.dim))
    S = replace(p.S, axes=(*heads, rows, columns))
    body = (
        *load("load", Q, K, V), *new(S, O),
        Compute("scores", (S,), (Q, K)),
        Compute("row_softmax", (S,), (S,)),
        Compute("clear", (O,), ()), Compute("accumulate", (O,), (S, V, O)),
        *store("write", O), *free(Q, K, V, S, O),
    )  # fmt: skip
    mask = Causal(0, query="rows", key="columns")
    schedule = Schedule("own axes", shape, p.per_head(body), mask)
    zeros, v = np.zeros((3, 1)), np.array([[3.0], [6.0], [12.0]])
    assert execute(schedule, zeros, zeros, v).O[:, 0] == pytest.approx([3.0, 4.5, 7.0], rel=1e-15)


@given(strategies.shapes(rows=10), st.integers(1, 4), st.integers(1, 4), seeds)
def test_schedules_of_ones_own_execute_too(
    shape: AttentionShape, br: int, bc: int, seed: int
) -> None:
    inputs = operands(shape, seed)
    for build in (trees.split_loads, trees.rows_kept, trees.scores_twice):
        schedule = build(shape, br, bc)
        done = execute(schedule, *inputs)
        assert_attention(done, strategies.Case("own", shape, {"br": br, "bc": bc}), inputs)
        assert done.traffic == count(schedule)


@given(strategies.shapes(rows=5, dtypes=("float32",), causal=False))
def test_zero_operands_average_the_values(shape: AttentionShape) -> None:
    zeros = [np.zeros_like(x) for x in operands(shape, 0)]
    zeros[2] += np.arange(shape.n_k)[:, None]
    done = execute(family("flash2").build(shape, br=2, bc=2), *zeros)
    assert done.O == pytest.approx((shape.n_k - 1) / 2, rel=1e-6)
    assert done.LSE == pytest.approx(math.log(shape.n_k), rel=1e-6)
