"""Check: the peak from sampled blocks, capacity, derived properties, and trees that are wrong."""

from dataclasses import replace

import naive
import numpy as np
import pytest
import strategies
import trees
from hypothesis import assume, given
from hypothesis import strategies as st
from inputs import run as run_of

from iosim import bounds
from iosim.errors import CapacityError, ScheduleError
from iosim.reading.check import check
from iosim.reading.corners import corner_blocks
from iosim.reading.count import count
from iosim.reading.execute import execute
from iosim.reading.walk import kept_axes, walk
from iosim.schedule import (
    Causal,
    Compute,
    For,
    Move,
    Schedule,
    Tensor,
    families,
    family,
    free,
    load,
    new,
    problem,
    store,
)
from iosim.schedule.masks import BlockMask, Window
from iosim.schedule.tree import nodes
from iosim.shape import AttentionShape
from iosim.tiles import full_tile_peak


@given(strategies.cases(rows=14))
def test_the_peak_of_sampled_blocks_is_that_of_a_whole_run(case: strategies.Case) -> None:
    schedule = case.schedule
    run, checked, counted = naive.Run(schedule), check(schedule), count(schedule)
    assert run.left == []
    assert (checked.peak_words, checked.peak_bytes) == (run.peak_words, run.peak_bytes)
    assert (counted.peak_words, counted.peak_bytes) == (run.peak_words, run.peak_bytes)
    assert full_tile_peak(schedule) >= run.peak_words
    if not case.shape.causal and case.shape.mask is None:
        assert full_tile_peak(schedule) == run.peak_words


@given(st.sampled_from(sorted(trees.OWN)), strategies.shapes(rows=14), st.data())
def test_so_it_is_for_schedules_of_ones_own(
    name: str, shape: AttentionShape, data: st.DataObject
) -> None:
    tiles = data.draw(strategies.tiles(family("flash2"), shape))
    schedule = trees.OWN[name](shape, **tiles)
    run, checked = naive.Run(schedule), check(schedule)
    assert (checked.peak_words, checked.peak_bytes) == (run.peak_words, run.peak_bytes)
    assert count(schedule).peak_words == run.peak_words
    assert count(schedule).total_words == sum(run.tensors.values())
    assert full_tile_peak(schedule) >= run.peak_words


def test_queries_that_see_nothing_do_not_hide_the_peak() -> None:
    """The first 999 997 queries see nothing, and the blocks are all of one size."""
    shape = AttentionShape(10**6, 3, 4, causal=True)
    schedule = family("flash2").build(shape, br=1, bc=1)
    assert check(schedule).peak_words == 4 * 4 + 3
    with pytest.raises(CapacityError):
        check(schedule, capacity=18)


def test_the_last_full_block_counts_beside_a_ragged_one() -> None:
    """Blocks 0, 1 and 2 of the queries see nothing, the last is one row, the one before it two."""
    schedule = family("flash2").build(AttentionShape(9, 3, 4, causal=True), br=2, bc=1)
    assert check(schedule).peak_words == naive.Run(schedule).peak_words == 3 * 8 + 2 + 4


@pytest.mark.parametrize("name", ["flash1", "flash2"])
def test_tiles_that_meet_in_the_middle_alone_are_found(name: str) -> None:
    """All the blocks at both ends of both axes meet nothing."""
    matrix = np.zeros((9, 11), bool)
    matrix[4, 5] = True
    shape = AttentionShape(36, 44, 8, mask=BlockMask.of(matrix, 4))
    schedule = family(name).build(shape, br=4, bc=4)
    assert check(schedule).peak_words == naive.Run(schedule).peak_words == 4 * 4 * 8 + 16 + 8
    assert check(schedule).fused


def test_the_most_that_are_kept_may_be_in_the_middle() -> None:
    """Queries at both ends see 6 keys at most, those in the middle 11."""
    schedule = trees.rows_kept(AttentionShape(40, 40, 8, mask=Window(5, 5)), br=1, bc=1)
    assert check(schedule).peak_words == naive.Run(schedule).peak_words
    assert count(schedule).peak_words == 2 * 8 + 2 + 11 + 8


def test_tiles_kept_from_one_iteration_to_the_next_all_count() -> None:
    schedule = trees.rows_kept(AttentionShape(1000, 1000, 8), br=10, bc=10)
    assert kept_axes(schedule) == {"key"}
    held = 10 * 8 + 10 * 8 + 20 + 10 * 1000  # Q_i, O_i, l_i and m_i, a row of tiles S_ij
    assert check(schedule).peak_words == held + 10 * 8
    assert full_tile_peak(schedule) == held + 10 * 8


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", sorted(families()))
def test_the_work_does_not_depend_on_the_length(name: str, causal: bool) -> None:
    def steps(n: int) -> int:
        family = families()[name]
        shape = AttentionShape(n, n, 64, heads=8, kv_heads=2, batch=3, causal=causal)
        schedule = family.build(shape, **dict.fromkeys(family.tiles, 10))
        assert kept_axes(schedule) == set()
        return sum(1 for _ in walk(schedule, corner_blocks(schedule)))

    assert steps(1005) == steps(10**9 + 5) < 10_000


@given(strategies.cases(rows=6), st.integers(0, 10))
def test_a_memory_of_the_peak_is_enough_and_a_word_less_is_not(
    case: strategies.Case, more: int
) -> None:
    schedule = case.schedule
    peak = check(schedule).peak_words
    assert check(schedule, capacity=peak + more) == check(schedule)
    with pytest.raises(CapacityError) as caught:
        check(schedule, capacity=peak - 1)
    sentence = str(caught.value)
    assert sentence.endswith(f"but M is {peak - 1} words")
    assert "resident" in sentence


def test_too_small_a_memory_is_told_with_the_line_the_tiles_the_words_and_m() -> None:
    schedule = family("flash2").build(AttentionShape(100, 100, 8), br=32, bc=16)
    with pytest.raises(CapacityError) as caught:
        check(schedule, capacity=800)
    assert str(caught.value) == (
        "line 'load K_j, V_j': load of V[0:16, 0:8] needs 832 words of fast memory with "
        "Q[0:32, 0:8], O[0:32, 0:8], l[0:32], m[0:32], K[0:16, 0:8] resident, but M is 800 words"
    )
    with pytest.raises(CapacityError, match="with nothing resident, but M is 0 words"):
        check(schedule, capacity=0)


def derived(schedule: Schedule) -> set[str]:
    checked = check(schedule)
    names = ("fused", "whole_rows", "materialises", "rematerialises")
    return {name for name in names if getattr(checked, name)}


@given(strategies.cases(names=("flash1", "flash2")))
def test_flash_is_fused_and_does_not_materialise(case: strategies.Case) -> None:
    assume(naive.visible_pairs(case.shape))  # what computes nothing is nothing
    assert derived(case.schedule) == {"fused", "whole_rows"}


@given(strategies.cases(names=("standard",)))
def test_standard_attention_materialises_and_is_not_fused(case: strategies.Case) -> None:
    assert derived(case.schedule) == {"materialises", "whole_rows"}


@given(strategies.cases(names=("standard_tiled",)))
def test_its_tiles_do_not_hold_whole_rows_but_of_one_column(case: strategies.Case) -> None:
    whole = case.shape.head_dim == 1 and case.tiles["bc"] >= case.shape.value_dim
    assert derived(case.schedule) == {"materialises"} | ({"whole_rows"} if whole else set())


@given(strategies.shapes(), st.integers(1, 9), st.integers(1, 9))
def test_releasing_keys_before_values_is_not_fused(shape: AttentionShape, br: int, bc: int) -> None:
    assume(naive.visible_pairs(shape))
    for build in (trees.split_loads, trees.rows_kept):
        assert derived(build(shape, br, bc)) == {"whole_rows"}


@given(strategies.shapes(), st.integers(1, 9), st.integers(1, 9))
def test_forming_the_scores_twice_is_rematerialising(
    shape: AttentionShape, br: int, bc: int
) -> None:
    assume(naive.visible_pairs(shape))
    schedule = trees.scores_twice(shape, br, bc)
    assert derived(schedule) == {"fused", "whole_rows", "rematerialises"}
    # The second pass in other tiles than the first.
    finer = iter((False, True))
    other = trees.edited(
        schedule,
        lambda node: (
            replace(node, dim=node.dim.cut(2))
            if isinstance(node, For) and node.dim.name == "key" and next(finer)
            else node,
        ),
    )
    assert derived(other) == {"fused", "whole_rows", "rematerialises"}


def test_slices_of_v_and_o_are_not_fused_and_go_below_the_fused_bound() -> None:
    """Words of V and O of different columns never meet, so nothing keeps traffic above the bound.

    A check that looked at Q and K alone would claim it.
    """
    schedule = trees.sliced_values(AttentionShape(256, 256, 1, value_dim=512), br=64, bc=64)
    checked = check(schedule)
    assert not checked.fused
    assert not checked.whole_rows
    bound = bounds.fused(schedule.shape, checked.peak_words, checked)
    assert count(schedule).total_words < bound.words
    assert not bound.holds
    whole = trees.sliced_values(AttentionShape(256, 256, 1, value_dim=1), br=64, bc=64)
    assert check(whole).fused, "one column is all of V"


def test_one_product_apart_is_enough_not_to_be_fused() -> None:
    """The keys once as flash2 takes them and once as split_loads does."""
    shape = AttentionShape(8, 8, 4)

    def inner(schedule: Schedule) -> tuple[For, ...]:
        return tuple(
            node
            for node, _ in nodes(schedule.body)
            if isinstance(node, For) and node.dim.name == "key"
        )

    fused, split = (
        build(shape, br=4, bc=4) for build in (family("flash2").build, trees.split_loads)
    )
    both = trees.edited(
        fused,
        lambda node: (
            (node, *inner(split)) if isinstance(node, For) and node.dim.name == "key" else (node,)
        ),
    )
    assert derived(fused) == {"fused", "whole_rows"}
    assert derived(both) == {"whole_rows", "rematerialises"}


def test_scores_that_never_leave_do_not_materialise() -> None:
    """P passes through slow memory and S does not: the first product does not stand alone."""
    p = problem(AttentionShape(8, 8, 4), 2)
    probabilities = For(p.query, (
        *load("load Q_i", p.Q), *new(p.S, p.P),
        Compute("scores", (p.S,), (p.Q, p.K)), Compute("row_softmax", (p.P,), (p.S,)),
        *store("write P_i", p.P), *free(p.Q, p.S, p.P),
    ))  # fmt: skip
    outputs = For(p.query, (
        *load("load P_i", p.P), *new(p.O),
        Compute("clear", (p.O,), ()), Compute("accumulate", (p.O,), (p.P, p.V, p.O)),
        *store("write O_i", p.O), *free(p.P, p.O),
    ))  # fmt: skip
    body = (*load("K", p.K), probabilities, *free(p.K), *load("V", p.V), outputs, *free(p.V))
    assert derived(Schedule("half", p.shape, p.per_head(body))) == {"whole_rows"}


def test_queries_in_slices_of_their_width_are_not_fused() -> None:
    """A product with columns of Q and K inside a fused loop: the rest of them is not there."""
    p = problem(AttentionShape(8, 8, 4), 4, 4)
    column = p.dim.cut(1)
    body = For(p.query, (
        *new(p.O), Compute("clear", (p.O,), ()),
        For(p.key, (
            *load("load V", p.V),
            For(column, (
                *load("load columns", p.Q, p.K), *new(p.S),
                Compute("scores", (p.S,), (p.Q, p.K)),
                Compute("accumulate", (p.O,), (p.S, p.V, p.O)),
                *free(p.S, p.Q, p.K),
            )),
            *free(p.V),
        )),
        *store("write O", p.O), *free(p.O),
    ))  # fmt: skip
    assert derived(Schedule("columns", p.shape, p.per_head((body,)))) == set()


SHAPE = AttentionShape(5, 7, 2, causal=True, dtype="float64")


def smallest(name: str) -> Schedule:
    family = families()[name]
    return family.build(SHAPE, **dict.fromkeys(family.tiles, 2))


# Lines of listings that nothing reads from: FA1 clears dK and dV in HBM, and then on chip again.
NEEDLESS = {"initialise dK = 0, dV = 0 in HBM"}


@pytest.mark.parametrize("name", sorted(families()))
def test_every_move_and_computation_is_needed(name: str) -> None:
    """Leave one out: check refuses it, or what it computes is wrong."""
    schedule = smallest(name)
    rng = np.random.default_rng(1)
    q, k, v = (rng.normal(size=s) for s in [(5, 2), (7, 2), (7, 2)])
    # Scores beyond 709 overflow where no maximum is subtracted.
    data = [(q, k, v), (q * 3000, k, v)]

    def run(schedule: Schedule) -> list[np.ndarray]:
        check(schedule)
        return [
            outputs[name]
            for inputs in data
            for outputs in [run_of(schedule, *inputs).outputs]
            for name in sorted(outputs)
        ]

    right = run(schedule)
    seen = set()
    for node, without in trees.edits_of_one(schedule, (Move, Compute), times=0):
        assert isinstance(node, Move | Compute)
        seen.add(type(node))
        if node.line in NEEDLESS:
            continue
        if isinstance(node, Compute) and node.operation == "round_scores":
            continue  # float64 is not rounded; test_square_tiling.py shows what it is for
        try:
            wrong = run(without)
        except ScheduleError:
            continue
        same = [np.allclose(a, b, rtol=1e-9, atol=0) for a, b in zip(wrong, right, strict=True)]
        assert not all(same), f"{name} does not need {node}"
    assert seen == {Move, Compute}


@pytest.mark.parametrize("name", sorted(families()))
def test_no_move_but_a_store_may_be_made_twice(name: str) -> None:
    for node, twice in trees.edits_of_one(smallest(name), Move, times=2):
        assert isinstance(node, Move)
        if node.kind in ("store", "add"):
            assert count(twice).total_words > count(smallest(name)).total_words
            check(twice)
        else:
            with pytest.raises(ScheduleError, match="resident"):
                check(twice)
            with pytest.raises(ScheduleError, match="resident"):
                count(twice)


P = problem(AttentionShape(8, 8, 4), 2, 2)
FAST = Tensor("X", (P.query,), "float32")
ONE = problem(AttentionShape(8, 8, 4), 1, 1)


def of(*body: object) -> Schedule:
    return Schedule("odd", P.shape, P.per_head(body))  # type: ignore[arg-type]


WRONG = {
    "a tile left behind": (
        of(*load("load Q", P.Q)),
        r"odd ends with Q\[0:8, 0:4\] still resident; free them",
    ),
    "a tile of the last iteration left behind": (
        of(For(P.query, (*load("load Q", P.Q), *free(P.K)))),
        "free uses K.*which is not resident",
    ),
    "a double load": (
        of(*load("load Q", P.Q, P.Q), *free(P.Q)),
        "line 'load Q': load of Q.*resident already; free it first",
    ),
    "new room for a resident tile": (
        of(*load("load Q", P.Q), *new(P.Q), *free(P.Q)),
        "new of Q.*resident already",
    ),
    "a load that each iteration repeats": (
        of(For(P.key, load("load Q", P.Q)), *free(P.Q)),
        "load of Q.*resident already",
    ),
    "a store of nothing": (
        of(*store("write O", P.O)),
        "line 'write O': store uses O.*not resident",
    ),
    "a store of what was never computed": (
        of(*new(P.O), *store("write O", P.O), *free(P.O)),
        "line 'write O': store of O, which was never computed",
    ),
    "a store of room that was made anew": (
        of(
            *(*new(P.O), Compute("clear", (P.O,), ()), *store("write O", P.O), *free(P.O)),
            *(*new(P.O), *store("write O again", P.O), *free(P.O)),
        ),
        "line 'write O again': store of O, which was never computed",
    ),
    "a store to an input": (
        of(*load("load Q", P.Q), *store("write Q", P.Q), *free(P.Q)),
        "line 'write Q': store to Q, an input",
    ),
    "a store of what lives in fast memory": (
        of(*new(FAST), Compute("clear", (FAST,), ()), *store("write X", FAST), *free(FAST)),
        "line 'write X': store of X, a tensor of fast memory only",
    ),
    "a load of what nothing stored": (
        of(*load("load S", P.S), *free(P.S)),
        "line 'load S': load of S.*but nothing has stored S before",
    ),
    "an output that is never stored": (
        of(*new(P.O), Compute("clear", (P.O,), ()), *free(P.O)),
        "odd ends without having stored O",
    ),
    "a computation without its operand": (
        of(*load("load Q", P.Q), *new(P.S), Compute("scores", (P.S,), (P.Q, P.K), "S = Q K")),
        "line 'S = Q K': scores uses K.*not resident",
    ),
    "a computation without room for its result": (
        of(*load("load", P.Q, P.K), Compute("scores", (P.S,), (P.Q, P.K))),
        "a step without a line: scores uses S.*not resident",
    ),
    "a sum added to nothing": (
        of(
            *load("load", P.Q, P.K, P.V),
            *new(P.S, P.O),
            Compute("scores", (P.S,), (P.Q, P.K)),
            Compute("accumulate", (P.O,), (P.S, P.V, P.O), "O = O + P V"),
        ),
        "line 'O = O [+] P V': accumulate uses O, which was never computed",
    ),
    "a tile of another cut": (
        of(
            For(P.query, (*load("load Q", P.Q),)),
            For(ONE.query, (*free(ONE.Q),)),
        ),
        r"free uses Q\[0:1, 0:4\], which is not resident",
    ),
    "an unknown operation": (
        of(*new(P.O), Compute("claer", (P.O,), ())),
        "unknown operation 'claer'; did you mean 'clear'",
    ),
    "too few operands": (
        of(*load("load", P.Q), *new(P.S), Compute("scores", (P.S,), (P.Q,))),
        "operation 'scores' takes 'S <- Q K', but is given 'S <- Q'",
    ),
    "too many outputs": (
        of(*load("load", P.Q, P.K), *new(P.S, P.P), Compute("scores", (P.S, P.P), (P.Q, P.K))),
        "takes 'S <- Q K', but is given 'S P <- Q K'",
    ),
    "an update of something else": (
        of(
            *new(P.O, P.l, P.m),
            Compute("start_state", (P.O, P.l, P.m), ()),
            Compute("normalise", (P.O,), (P.m, P.l)),
        ),
        "takes 'O <- O l', but is given 'O <- m l'",
    ),
    "an addition to what nothing stored": (
        of(*new(P.O), Compute("clear", (P.O,), ()), Move("add", P.O, "add O"), *free(P.O)),
        "line 'add O': add of O.*but nothing has stored O before",
    ),
    "an addition to an input": (
        of(*load("load Q", P.Q), Move("add", P.Q, "add Q"), *free(P.Q)),
        "line 'add Q': add to Q, an input",
    ),
}


@pytest.mark.parametrize("why", WRONG)
def test_a_wrong_tree_is_refused_by_check_and_by_execute(why: str) -> None:
    schedule, complaint = WRONG[why]
    with pytest.raises(ScheduleError, match=complaint):
        check(schedule)
    if "never computed" not in complaint:  # execute carries NaN where nothing was computed
        q = np.zeros((8, 4))
        with pytest.raises(ScheduleError):
            execute(schedule, q, q, q)


def test_additions_are_words_of_their_own() -> None:
    clear = (*new(P.O), Compute("clear", (P.O,), ()), *store("clear O", P.O), *free(P.O))
    adding = (*new(P.O), Compute("clear", (P.O,), ()), Move("add", P.O, "add O"), *free(P.O))
    schedule = of(For(P.query, clear), For(P.key, (For(P.query, adding, relation=Causal(0)),)))
    with pytest.raises(ScheduleError, match="no loop"):
        of(For(P.query, adding, relation=Causal(0)))
    traffic = count(schedule)
    rows = naive.pair_sums(8, 8, 2, 2, 0)[1]
    assert (traffic.add_words, traffic.write_words, traffic.read_words) == (rows * 4, 32, 0)
    assert traffic.add_bytes == rows * 4 * 2
    assert traffic.total_words == rows * 4 + 32
    assert traffic.to_dict()["tensors"]["O"]["add_words"] == rows * 4
    zeros = np.zeros((8, 4))
    assert execute(schedule, zeros, zeros, zeros).traffic == traffic
    assert check(schedule).peak_words == 8
