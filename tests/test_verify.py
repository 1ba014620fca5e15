"""What `iosim verify` checks: it passes as things are, and every check fails when they break."""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import trees
from hypothesis import given
from hypothesis import strategies as st

from iosim import bounds, tolerance
from iosim.errors import IosimError
from iosim.reading.check import check
from iosim.reading.execute import Execution, execute
from iosim.schedule.flash1 import paper_tiles
from iosim.schedule.masks import Window
from iosim.schedule.registry import Family, families
from iosim.schedule.tree import Compute, For, Move, Node, Schedule
from iosim.shape import AttentionShape
from iosim.training import TrainingStep, training_step
from iosim.verify import (
    Check,
    VerificationReport,
    about_checks,
    capacity,
    counting,
    exactness,
    exponents,
    gradients,
    grid,
    ratios,
    regimes,
    sandwich,
    verify,
)


@pytest.fixture(scope="session")
def report() -> VerificationReport:
    """The default grid, run once."""
    return verify()


def rows(report: VerificationReport, name: str) -> dict[str, Check]:
    return {row.what: row for row in report.checks if row.name == name}


def run(name: str, **changed: Family) -> dict[str, Check]:
    """Run one check, with some of the schedules changed."""
    return rows(verify([name], schedules=families() | changed), name)


def run_only(name: str, *schedules: str) -> dict[str, Check]:
    """Run one check for some of the schedules."""
    return rows(verify([name], schedules={each: families()[each] for each in schedules}), name)


# As things are


def test_the_default_grid_passes(report: VerificationReport) -> None:
    assert report.failures == ()
    assert report.passed


def test_every_check_reports(report: VerificationReport) -> None:
    assert {row.name for row in report.checks} == set(about_checks())


def test_every_schedule_is_executed_in_every_dtype(report: VerificationReport) -> None:
    for about, of in (("exactness", "forward"), ("gradients", "backward")):
        expected = {f"{name}, {dtype}" for name in families(of) for dtype in grid.DTYPES}
        assert set(rows(report, about)) == expected


def test_the_capacities_are_those_published(report: VerificationReport) -> None:
    # Worked out by hand from the listing, before this check was written.
    found = rows(report, "capacity")
    assert found["flash1, d = 64"].numbers["fits_from_words"] == 33_856
    assert found["flash1, d = 128"].numbers["fits_from_words"] == 133_248
    half = found["flash1, d = 64, 100 KiB float16"]
    assert (half.verdict, half.numbers["needed_words"]) == ("pass", 46_720)
    wide = found["flash1, d = 128, 100 KiB float16"]
    assert (wide.verdict, wide.numbers["needed_words"]) == ("finding", 61_400)
    single = found["flash1, d = 64, 100 KiB float32"]
    assert (single.verdict, single.numbers["needed_words"]) == ("finding", 27_520)


def test_the_tiles_that_are_offered_do_fit(report: VerificationReport) -> None:
    for row in rows(report, "capacity").values():
        words = row.numbers.get("sram_words", row.numbers.get("legal_at_words"))
        assert isinstance(words, int)
        tiles: Any = row.numbers["legal_tiles"]
        d: Any = row.numbers["head_dim"]
        family = families()[str(row.numbers["schedule"])]
        assert capacity.held_by(family)(d, **tiles) <= words


def test_the_printed_backward_tiles_fit_in_no_memory(report: VerificationReport) -> None:
    for d in (32, 64, 128):
        row = rows(report, "capacity")[f"flash1_backward, d = {d}"]
        assert row.verdict == "finding"
        numbers: Any = row.numbers
        tried = numbers["scanned_to_words"] + 1 - numbers["scanned_from_words"]
        assert numbers["sizes_that_overflow"] == tried


def test_the_mathematics_of_capacity_by_brute_force() -> None:
    for d in (3, 4, 8):
        shape = AttentionShape(capacity.N, capacity.N, d)
        fits = [
            capacity.held_words(d, **paper_tiles(shape, words)) <= words
            for words in range(40 * d * d + 400)
        ]
        last = max(words for words, fit in enumerate(fits) if not fit)
        assert capacity.always_fits_from(paper_tiles, d) == last + 1


def test_the_smallest_sandwich_constants_come_from_the_edges(report: VerificationReport) -> None:
    printed = rows(report, "sandwich")["flash1, printed tiles"].numbers
    lower: Any = printed["lower"]
    # One word more than a multiple of 4d, where ceil(M / 4d) has just grown.
    assert lower["words"] % (4 * lower["head_dim"]) == 1
    assert 6 <= lower["ratio"] < 6.1


def test_real_models_are_among_the_rows(report: VerificationReport) -> None:
    names = " ".join(rows(report, "ratios"))
    assert "GPT-2 medium" in names
    assert "Llama-3-8B" in names
    assert "128k" in names


def test_drift_is_reported_and_shrinks_with_length(report: VerificationReport) -> None:
    distances = [
        row.numbers["distance"]
        for row in rows(report, "exponents").values()
        if row.verdict == "finding" and row.numbers["schedule"] == "standard"
    ]
    assert distances == sorted(distances, reverse=True)
    assert len(distances) == 3


def test_the_report_is_json(report: VerificationReport) -> None:
    document = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert document["schema"] == 1
    assert document["passed"] is True
    assert len(document["records"]) == len(report.checks)
    assert set(document["records"][0]) == {"name", "what", "verdict", "detail", "numbers"}


def test_the_report_reads_well() -> None:
    failed = Check("counting", "flash2", "fail", "1 wrong", {"ratio": math.nan, "all": [math.inf]})
    report = VerificationReport((failed, replace(failed, verdict="pass")), False, 1.25)
    assert repr(report) == (
        "VerificationReport(1 pass, 0 finding, 1 fail, 1.2 s)\n"
        "  Check('counting', 'flash2', 'fail', '1 wrong')"
    )
    assert not report.passed
    assert failed.to_dict()["numbers"] == {"ratio": None, "all": [None]}


def test_nothing_checked_is_nothing_passed() -> None:
    assert not VerificationReport((), False, 0.0).passed


def test_an_unknown_check_is_refused() -> None:
    with pytest.raises(IosimError, match="unknown check 'exactnes'; did you mean 'exactness'"):
        verify(["exactnes"])


def test_progress_is_told() -> None:
    told: list[str] = []
    verify(["counting"], progress=told.append)
    assert told == ["counting", *(f"counting: {name}" for name in families())]


# The grid


def test_the_grid_has_what_goes_wrong() -> None:
    cases = list(grid.cases())
    shapes = [case.shape for case in cases]
    assert {case.data for case in cases} == set(grid.INPUTS)
    assert any(s.n_q % c.br and s.n_k % c.bc for c in cases for s in [c.shape])
    assert any(s.n_q < s.n_k for s in shapes)
    assert any(s.n_q > s.n_k for s in shapes)
    assert any(s.kv_heads < s.heads for s in shapes)
    assert any(s.value_dim != s.head_dim for s in shapes)
    for align in ("bottom-right", "top-left"):
        for longer in (True, False):
            assert any(
                s.causal and s.align == align and s.n_q != s.n_k and (s.n_q > s.n_k) == longer
                for s in shapes
            )
    masked = [c.visible() for c in cases if c.shape.causal]
    assert any(visible is not None and not visible.any(axis=-1).all() for visible in masked)


def test_a_thorough_grid_is_larger() -> None:
    assert len(list(grid.cases(thorough=True))) > 3 * len(list(grid.cases()))


def test_inputs_are_as_hard_as_their_names() -> None:
    shape = AttentionShape(6, 9, 4)

    def scores(name: str) -> np.ndarray:
        q, k, _ = grid.Case(shape, 2, 2, name).inputs()
        return q @ k.swapaxes(-1, -2) / 2

    assert (np.diff(scores("rising scores")) > 0).all()
    assert (np.diff(scores("falling scores")) < 0).all()
    assert (np.diff(scores("equal scores")) == 0).all()
    assert np.abs(scores("scores in the hundreds")).max() > 89
    assert np.abs(scores("tiny scores")).max() < 1e-4
    assert np.isnan(scores("a query of NaN")[0, 0]).any(axis=-1).tolist() == [False] * 5 + [True]
    _, _, v = grid.Case(shape, 2, 2, "cancelling values").inputs()
    assert np.abs(v).min() > 100 * np.abs(v[..., :8, :].sum(axis=-2)).max() / 8


def test_the_tiles_of_the_laws_fit() -> None:
    for law in sandwich.LAWS:
        if law.rule is sandwich.paper_tiles:
            continue  # they do not, and capacity says so
        family = families()[law.schedule]
        for d in (1, 3, 64):
            for words in (law.least[0] * d + law.least[1], 50 * d + 7):
                shape = AttentionShape(1000, 1000, d)
                built = family.build(shape, **law.rule(family, shape, words))
                assert check(built, capacity=words).peak_words <= words


@given(st.integers(1, 10**6), st.integers(0, 10**6), st.integers(1, 300), st.integers(1, 9))
def test_memories_are_in_range(least: int, more: int, d: int, steps: int) -> None:
    found = sandwich.memories(least, least + more, d, steps)
    assert {least, least + more} <= set(found)
    assert all(least <= words <= least + more for words in found)
    assert found == sorted(set(found))


def test_what_rounding_depends_on_is_read_off_the_tree() -> None:
    shape = AttentionShape(50, 40, 8)
    found = {
        name: exactness.rounding_of(grid.Case(shape, 16, 12).build(family, "bfloat16"))
        for name, family in families("forward").items()
    }
    base = tolerance.Execution("bfloat16", head_dim=8, n_keys=40)
    assert found == {
        "standard": replace(base, largest_tile=40, stored_scores=True),
        "standard_passes": replace(base, largest_tile=40, stored_scores=True),
        "standard_tiled": replace(base, tiles=4, largest_tile=40, stored_scores=True),
        "square_tiling": replace(base, tiles=4, largest_tile=40, stored_scores=True),
        "flash1": replace(base, tiles=4, largest_tile=12, stored_output_per_tile=True),
        "flash2": replace(base, tiles=4, largest_tile=12),
        "flash2_packed": replace(base, tiles=4, largest_tile=12),
        "split_kv": replace(base, tiles=2, largest_tile=12, splits=2, split_keys=20),
        # Shards of 10 keys on 4 ranks, each no larger than one tile; one head is for one rank.
        "ring": replace(base, tiles=4, largest_tile=10),
        "ulysses": replace(base, tiles=4, largest_tile=12),
        "tree_decoding": replace(base, tiles=4, largest_tile=10),
    }


# Every check fails when something breaks


def changed(name: str, change: Callable[[Schedule], Schedule]) -> dict[str, Family]:
    """The schedule of that name with something about its tree changed."""
    whole = families()[name]

    def build(shape: AttentionShape, **tiles: int) -> Schedule:
        return change(whole.build(shape, **tiles))

    return {name: replace(whole, build=build)}


def without(wanted: Callable[[Node], bool]) -> Callable[[Schedule], Schedule]:
    """A change that drops the nodes that are wanted."""

    def drop(body: tuple[Node, ...]) -> tuple[Node, ...]:
        kept = (node for node in body if not wanted(node))
        return tuple(
            replace(node, body=drop(node.body)) if isinstance(node, For) else node for node in kept
        )

    return lambda schedule: replace(schedule, body=drop(schedule.body))


def is_load_of_v(node: Node) -> bool:
    return isinstance(node, Move) and node.kind == "load" and node.tensor.name == "V"


def is_rescale(node: Node) -> bool:
    return isinstance(node, Compute) and node.operation == "unnormalise"


@pytest.mark.parametrize("name", ["exactness", "counting", "lower_bounds"])
def test_a_schedule_that_drops_a_load_fails(name: str) -> None:
    report = verify([name], schedules=changed("flash2", without(is_load_of_v)))
    assert not report.passed
    assert "V" in report.failures[0].detail
    assert "not resident" in report.failures[0].detail


def test_a_schedule_that_computes_something_else_fails_exactness_alone() -> None:
    # Averages that are not turned back into sums: no attention, but as many words.
    broken = changed("flash1", without(is_rescale))
    assert {row.verdict for row in verify(["exactness"], schedules=broken).checks} == {"fail"}
    assert verify(["counting"], schedules=broken).checks[0].verdict == "pass"


@pytest.mark.parametrize(("of_tolerance", "verdict"), [(0.0, "pass"), (1.1, "fail")])
def test_a_result_beyond_the_tolerance_fails(
    of_tolerance: float, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nudged(schedule: Schedule, q: Any, k: Any, v: Any, **more: Any) -> Execution:
        done = execute(schedule, q, k, v, **more)
        if schedule.shape.n_q == 37 and not schedule.shape.dropout:  # one case of the grid
            allowed, _ = tolerance.elementwise_error(exactness.rounding_of(schedule), q, k, v)
            done.O[..., 3, 5] += (of_tolerance * allowed)[..., 3, 5]
        return done

    monkeypatch.setattr(exactness, "execute", nudged)
    # So that the derived tolerance alone decides.
    monkeypatch.setattr(tolerance, "two_times_rule", lambda error, standard: True)
    row = run_only("exactness", "flash2")["flash2, float64"]
    assert row.verdict == verdict
    if verdict == "fail":
        assert "37 x 29" in row.detail
        assert "beyond the tolerance, at (0, 0, 3, 5)" in row.detail


GRADIENTS = ("dQ", "dK", "dV")


@pytest.mark.parametrize("name", GRADIENTS)
@pytest.mark.parametrize(("of_tolerance", "verdict"), [(0.0, "pass"), (1.1, "fail")])
def test_a_gradient_beyond_the_tolerance_fails(
    of_tolerance: float, verdict: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nudged(schedule: Schedule, forward: Schedule, *given: Any, **more: Any) -> TrainingStep:
        done = training_step(schedule, forward, *given, **more)
        if schedule.shape.n_q == 37 and not schedule.shape.dropout:  # one case of the grid
            rounding = gradients.backward_rounding_of(schedule, forward)
            allowed = tolerance.gradient_error(rounding, *given)[GRADIENTS.index(name)]
            done.backward.outputs[name][..., 3, 5] += (of_tolerance * allowed)[..., 3, 5]
        return done

    monkeypatch.setattr(gradients, "training_step", nudged)
    monkeypatch.setattr(tolerance, "two_times_rule", lambda error, standard: True)
    row = run_only("gradients", "flash2_backward")["flash2_backward, float64"]
    assert row.verdict == verdict
    if verdict == "fail":
        assert f"37 x 29, d 16, tiles 8 x 5: {name}: " in row.detail
        assert "beyond the tolerance, at (0, 0, 3, 5)" in row.detail


@pytest.mark.parametrize(
    "operation", ["row_dots", "score_gradient", "value_gradient", "key_gradient"]
)
def test_a_backward_pass_that_leaves_something_out_fails_gradients(operation: str) -> None:
    broken = changed(
        "flash1_backward",
        without(lambda node: isinstance(node, Compute) and node.operation == operation),
    )
    assert {row.verdict for row in verify(["gradients"], schedules=broken).checks} == {"fail"}


def test_a_check_without_a_schedule_it_is_about_fails() -> None:
    for check_of, name in (("gradients", "flash2"), ("exactness", "flash2_backward")):
        report = verify([check_of], schedules={name: families()[name]})
        assert not report.passed
        assert "no schedule given is one of a" in report.failures[0].detail


def test_nan_where_none_belongs_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoilt(schedule: Schedule, q: Any, k: Any, v: Any, **more: Any) -> Execution:
        done = execute(schedule, q, k, v, **more)
        done.O[..., 0, 0] = np.nan
        return done

    monkeypatch.setattr(exactness, "execute", spoilt)
    report = verify(["exactness"], schedules={"flash2": families()["flash2"]})
    assert {row.verdict for row in report.checks} == {"fail"}
    assert "NaN where none was asked for" in report.failures[0].detail
    json.dumps(report.to_dict(), allow_nan=False)


def test_an_lse_that_is_off_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def nudged(schedule: Schedule, q: Any, k: Any, v: Any, **more: Any) -> Execution:
        done = execute(schedule, q, k, v, **more)
        if done.LSE is not None:
            done.LSE[...] += 0.5
        return done

    monkeypatch.setattr(exactness, "execute", nudged)
    found = run_only("exactness", "flash1", "flash2")
    assert found["flash2, float32"].verdict == "fail"
    assert found["flash1, float32"].verdict == "pass"  # it stores no LSE


def test_the_two_times_rule_fails_what_it_is_made_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tolerance, "two_times_rule", lambda error, standard: error == 0)
    for name, row in run_only("exactness", "flash1", "flash2").items():
        assert row.verdict == "fail"
        assert "beyond twice the error" in row.detail, name


def test_a_count_that_is_off_by_one_word_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def off(schedule: Schedule) -> Any:
        traffic = count(schedule)
        one_more = replace(traffic.tensors["Q"], read=traffic.tensors["Q"].read + 1)
        return replace(traffic, tensors={**traffic.tensors, "Q": one_more})

    count = counting.count
    monkeypatch.setattr(counting, "count", off)
    row = run("counting")["flash1"]
    assert row.verdict == "fail"
    assert re.search(r"read of Q: count says \d+, execute \d+", row.detail)


def test_a_formula_that_differs_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def off(schedule: Schedule) -> Any:
        found = formula(schedule)
        return replace(found, entries=found.entries[1:])

    formula = counting.formula
    monkeypatch.setattr(counting, "formula", off)
    row = run("counting")["standard"]
    assert row.verdict == "fail"
    assert ", formula 0" in row.detail


def test_a_check_of_capacity_that_misses_a_tile_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(schedule: Schedule, capacity: int | None = None) -> Any:
        found = check(schedule)
        return replace(found, peak_words=found.peak_words - schedule.tiles["br"])

    monkeypatch.setattr(capacity, "check", blind)
    found = run("capacity")
    assert found["flash1, d = 64"].verdict == "fail"
    assert found["flash1, d = 128, 100 KiB float16"].verdict == "fail"


def test_a_rule_that_always_fits_is_no_finding() -> None:
    def half(shape: AttentionShape, words: int) -> dict[str, int]:
        return {"br": 1, "bc": max((words - 2 * shape.head_dim - 2) // (8 * shape.head_dim), 1)}

    flash1 = replace(families()["flash1"], paper=half)
    row = rows(verify(["capacity"], schedules={"flash1": flash1}), "capacity")["flash1, d = 64"]
    assert row.verdict == "fail"


@pytest.mark.parametrize(
    "constants", [{"lower": 7, "upper": 40}, {"lower": 6, "upper": 30}], ids=["lower", "upper"]
)
def test_wrong_constants_fail(
    constants: Mapping[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = replace(sandwich.LAWS[0], **constants)  # type: ignore[arg-type]
    monkeypatch.setattr(sandwich, "LAWS", (printed,))
    row = run("sandwich")["flash1, printed tiles"]
    assert row.verdict == "fail"
    assert "outside" in row.detail


def test_a_tile_rule_that_ignores_the_memory_fails_the_exponents() -> None:
    # FA1's own rule, B_r <= d, on flash2: then traffic does not fall with M.
    found = run("exponents", flash2=replace(families()["flash2"], paper=paper_tiles))
    assert found["flash2, best legal tile"].verdict == "pass"
    row = found["flash2, mirrored paper rule"]
    assert row.verdict == "fail"
    assert re.search(r"M\^-?0\.", row.detail)


@pytest.mark.parametrize("name", ["flash1", "flash2"])
def test_a_schedule_that_skips_nothing_fails_block_sparse(name: str) -> None:
    def skip_nothing(schedule: Schedule) -> Schedule:
        return trees.edited(
            schedule,
            lambda node: (replace(node, relation=None) if isinstance(node, For) else node,),
        )

    found = run("block_sparse", **changed(name, skip_nothing))
    assert found[f"{name}, the rest"].verdict == "fail"
    assert "not left out" in found[f"{name}, the rest"].detail
    other = {"flash1": "flash2", "flash2": "flash1"}[name]
    assert found[f"{other}, the rest"].verdict == "pass"
    assert found["blocks of 32 rows"].verdict == ("fail" if name == "flash2" else "finding")


def test_loads_of_empty_columns_must_be_those_of_the_listing() -> None:
    """With flash2 in the place of flash1 nobody loads them."""
    found = run("block_sparse", flash1=families()["flash2"])
    assert found["empty columns"].verdict == "fail"
    assert found["flash1, no block"].verdict == "pass", "another N d term, but linear all the same"


def test_a_term_that_depends_on_the_memory_is_no_n_d_term() -> None:
    """standard_tiled moves all of S whatever the mask."""
    found = run("block_sparse", flash2=families()["standard_tiled"])
    assert found["flash2, no block"].verdict == "fail"


def test_a_power_law_is_found_exactly() -> None:
    assert exponents.Fit((2.0, 2.0, -1.0), 0.0).distance((2, 2, -1)) == 0
    # standard moves 4 N^2 + 4 N d words: nearly a power law of N alone.
    found = exponents.fit(families()["standard"], "", exponents.LAW)
    assert found.residual < 4 * 256 / 65536
    assert found.exponents[2] == pytest.approx(0, abs=1e-9)


def test_a_bound_above_what_is_attained_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def raised(shape: AttentionShape, words: int, checked: Any = None) -> bounds.Bound:
        found = bounds.compulsory(shape, words, checked)
        return replace(found, name="raised", words=found.words + extra)

    monkeypatch.setitem(bounds.BOUNDS, "raised", raised)
    extra = 0  # flash2 with one query attains the compulsory traffic and writes its LSE
    assert run("lower_bounds")["raised"].verdict == "pass"
    extra = 2
    row = run("lower_bounds")["raised"]
    assert row.verdict == "fail"
    assert "below the" in row.detail


def test_a_bound_that_nobody_may_claim_was_not_checked() -> None:
    found = run("lower_bounds", **dict.fromkeys(families(), families()["flash2"]))
    assert found["fused"].verdict == "pass"
    assert found["two_matmuls"].verdict == "fail"
    assert "nothing was checked" in found["two_matmuls"].detail


def test_a_bound_that_a_few_schedules_may_not_claim_is_no_failure() -> None:
    found = run_only("lower_bounds", "flash2")
    assert found["fused"].verdict == "pass"
    assert found["two_matmuls"].verdict == "finding"
    assert "nothing was checked" in found["two_matmuls"].detail


def test_checks_about_fixed_schedules_are_left_out_for_others() -> None:
    report = verify(schedules={"flash2": families()["flash2"]})
    assert {row.name for row in report.checks} == {"exactness", "counting", "lower_bounds"}
    assert {row.name for row in report.checks} | set(report.left_out) == set(about_checks())
    assert report.to_dict()["left_out"] == list(report.left_out)
    report = verify(schedules={"flash1_backward": families()["flash1_backward"]})
    assert {row.name for row in report.checks} == {"gradients", "counting", "lower_bounds"}
    assert verify(["counting"]).left_out == ()


def test_a_tile_size_of_another_name_is_refused() -> None:
    def build(shape: AttentionShape, rows: int) -> Schedule:
        return families()["flash2"].build(shape, br=rows, bc=rows)

    with pytest.raises(
        IosimError, match="schedule 'mine' has a tile size 'rows', but verify knows"
    ):
        verify(schedules={"mine": Family("mine", build, ("rows",), "Mine.")})


def test_flash_that_saves_nothing_fails() -> None:
    found = run("ratios", flash2=families()["standard_tiled"])
    assert found[f"{ratios.WORKLOADS[0].name}, A100"].verdict == "fail"


def test_a_bound_that_is_not_claimed_fails_the_regimes() -> None:
    found = run("regimes", standard_tiled=replace(families()["flash2"], name="standard_tiled"))
    assert {row.verdict for row in found.values()} == {"fail"}


def test_a_check_that_cannot_go_on_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise IosimError("no tile fits")

    monkeypatch.setattr(regimes, "measure", refuse)
    (row,) = verify(["regimes"]).checks
    assert (row.verdict, row.detail) == ("fail", "it cannot go on: no tile fits")


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_keys_that_a_query_of_nan_does_not_see_are_not_asked_about(dropout: float) -> None:
    """Their tolerance is NaN, too: their weight of 0 times NaN may be anything."""
    shape = AttentionShape(14, 14, 6, mask=Window(2, 0), dropout=dropout)
    case = grid.Case(shape, 5, 4, "a query of NaN")
    truth = gradients.Truth.of(case, "float64")
    assert truth.unsaid.any()
    passes = (case.build(families()[name], "float64") for name in ("flash2_backward", "flash2"))
    compared = gradients.compare(truth, *passes)
    assert [one.reason for one in compared] == ["", "", ""]
