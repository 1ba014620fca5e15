"""Audits: pages of ncu in every form, shapes told from launches, differences and reasons."""

import copy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ncu_pages import (
    COLUMNS,
    DATA,
    FLASH,
    H200,
    OTHER,
    RECORDED,
    UNITS,
    details_page,
    head,
    raw_page,
    text_of,
)

from iosim.audit.audit import audit_cases, audit_page, audit_recording
from iosim.audit.compare import differences
from iosim.audit.counters import METRICS, Counters, counters_of_page
from iosim.audit.gather import gather, totals
from iosim.audit.infer import Given, infer
from iosim.audit.ncu_csv import quantity, read_page
from iosim.device import predict
from iosim.device.case import KernelCall
from iosim.device.hbm import HbmTraffic
from iosim.device.kernels import recognise
from iosim.device.predict import Prediction
from iosim.errors import IosimError
from iosim.measured import load


@pytest.fixture(autouse=True)
def _no_l2(monkeypatch):
    monkeypatch.setattr(predict, "simulate", lambda launch, device: HbmTraffic(1, 0, 10**12, 0))


# --- pages ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [raw_page, details_page])
def test_both_pages_say_the_same(make):
    flash, other = read_page(make(FLASH, OTHER), "here")
    assert (flash.name, flash.grid, flash.block) == (FLASH, (64, 1, 8), (128, 1, 1))
    seen, record = counters_of_page(flash), RECORDED[1]["kernels"][0]
    for name in METRICS:
        assert getattr(seen, name) == record[name], name
    assert seen.seconds == pytest.approx(record["time_ns"] * 1e-9)
    assert counters_of_page(other).dram_write is None
    assert counters_of_page(other).missing == ("dram_write",)


PREFIX = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}


@given(
    st.lists(
        st.lists(st.integers(0, 10**15), min_size=len(METRICS), max_size=len(METRICS)),
        min_size=1,
        max_size=4,
    ),
    st.lists(st.sampled_from(sorted(PREFIX)), min_size=len(METRICS), max_size=len(METRICS)),
    st.booleans(),
)
def test_counters_survive_any_units(values, prefixes, commas):
    """Whatever prefix a column's unit has, the numbers come back."""
    metrics = [metric for metric, _ in METRICS.values()]
    sizes = [size for _, size in METRICS.values()]
    units = ["byte" if size == 1 else "sector" for size in sizes]
    rows = [[*COLUMNS, *metrics], ["" for _ in COLUMNS]]
    rows[1] += [prefix + unit for prefix, unit in zip(prefixes, units, strict=True)]
    for i, row in enumerate(values):
        cells = [
            f"{value // PREFIX[prefix]:{',' if commas else ''}}"
            + (f".{value % PREFIX[prefix]:0{len(str(PREFIX[prefix])) - 1}}" if prefix else "")
            for value, prefix in zip(row, prefixes, strict=True)
        ]
        rows.append([*head(i, FLASH), *cells])
    for kernel, row in zip(read_page(text_of(rows), "here"), values, strict=True):
        seen = counters_of_page(kernel)
        for name, value, size in zip(METRICS, row, sizes, strict=True):
            assert getattr(seen, name) == pytest.approx(value * size, rel=1e-15, abs=0)


@given(st.text(max_size=300) | st.text('",\nID KernelName0.()', max_size=300))
def test_any_text_is_read_or_refused_in_one_sentence(text):
    said = []
    for page in (text, '"ID","Kernel Name","x"\n' + text):
        try:
            for kernel in read_page(page, "here"):
                kernel.quantity("x")
        except IosimError as error:
            said.append(str(error))
    assert all("\n" not in sentence for sentence in said)


@given(st.text(max_size=12), st.text(max_size=12))
def test_any_cell_is_a_number_or_refused(text, unit):
    try:
        found = quantity(text, unit)
    except IosimError:
        return
    assert found.number == found.number
    assert found.unit in ("", "%", "second", "byte", "sector", "inst", "thread", "register",
                          "block", "request", "cycle", "warp")  # fmt: skip


@pytest.mark.parametrize(
    ("text", "unit", "number", "base"),
    [
        ("1,024", "byte", 1024, "byte"),
        ("1.5", "Mbyte", 1_500_000, "byte"),
        ("0.25", "Gbyte", 250_000_000, "byte"),
        ("50.18", "Kbyte/block", 50_180, "byte"),
        ("24,384", "ns", 24_384e-9, "second"),
        ("24.384", "usecond", 24_384e-9, "second"),
        ("3", "msecond", 3e-3, "second"),
        ("2", "second", 2, "second"),
        ("7", "sector", 7, "sector"),
        ("255", "register/thread", 255, "register"),
        ("1e3", "", 1000, ""),
        ("97.03", "%", 97.03, "%"),
    ],
)
def test_units(text, unit, number, base):
    found = quantity(text, unit)
    assert found.number == pytest.approx(number, rel=1e-12)
    assert found.unit == base


@pytest.mark.parametrize(
    ("text", "unit", "says"),
    [
        ("1.024,5", "byte", "'1.024,5' is not a number"),
        ("10,24", "byte", "'10,24' is not a number"),
        ("many", "byte", "'many' is not a number"),
        ("1", "furlong", "unit 'furlong' is not known"),
        ("1", "Qbyte", "unit 'Qbyte' is not known"),
    ],
)
def test_what_is_no_number_and_no_unit(text, unit, says):
    with pytest.raises(IosimError, match=says):
        quantity(text, unit)


# --- shapes from launches -------------------------------------------------------------------------


def test_name_and_grid_say_the_shape_and_the_rest_is_assumed_aloud():
    call = KernelCall(FLASH, 512, 128, dims=(64, 2, 4))
    found = infer(recognise(FLASH), call, Given())
    shape = found.shape
    assert (shape.n_q, shape.n_k, shape.head_dim) == (8192, 8192, 64)
    assert (shape.batch, shape.heads, shape.dtype, shape.causal) == (2, 4, "float16", True)
    said = " ".join(found.assumed)
    for option in ("--seq-len", "--kv-len", "--kv-heads", "--head-dim"):
        assert option in said
    assert "--heads states" not in said
    assert "--causal" not in said


def test_what_is_given_goes_before_what_is_told():
    call = KernelCall(FLASH, 512, 128, dims=(64, 1, 8))
    stated = Given(n_q=8100, n_k=9000, head_dim=64, batch=1, heads=8, kv_heads=2, causal=False,
                   dtype="float16")  # fmt: skip
    found = infer(recognise(FLASH), call, stated)
    assert found.assumed == ()
    assert (found.shape.n_q, found.shape.n_k, found.shape.kv_heads) == (8100, 9000, 2)
    assert not found.shape.causal


CUDNN = RECORDED[12]["kernels"][0]["kernel"]


def test_a_persistent_grid_says_nothing():
    call = KernelCall(CUDNN, 132, 384, dims=(132, 1, 1))
    found = infer(recognise(CUDNN), call, Given())
    assert found.shape is None
    assert found.assumed == ("the shape is not known; give --seq-len, --heads",)
    found = infer(recognise(CUDNN), call, Given(n_q=1024, heads=16))
    assert (found.shape.n_q, found.shape.head_dim, found.shape.heads) == (1024, 64, 16)
    wrong = infer(recognise(CUDNN), call, Given(n_q=1024, heads=16, kv_heads=5))
    assert wrong.shape is None
    assert "multiple of kv_heads" in wrong.assumed[0]


def test_splits_are_told_from_the_grid():
    name = RECORDED[48]["kernels"][0]["kernel"]
    call = KernelCall(name, 256, 128, dims=(1, 4, 64))
    found = infer(recognise(name), call, Given(n_q=1, n_k=65536))
    assert (found.shape.heads, found.shape.batch, found.shape.n_k) == (64, 1, 65536)
    unknown = infer(recognise(name), call, Given())
    assert (unknown.shape, unknown.assumed) == (
        None,
        ("the shape is not known; give --seq-len, --kv-len",),
    )


def test_a_whole_name_says_whether_a_backward_kernel_masks():
    inner = "Flash_kernel_traits<128, 64, 128, 8, cutlass::half_t>"
    traits = f"Flash_bwd_kernel_traits<128, 64, 128, 8, 2, 4, 2, 0, 0, cutlass::half_t, {inner}>"
    name = (
        "flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<{}, 0, {}, 0, 0, 1, 1, 0>(Flash_bwd_params)"
    )
    assert recognise(name.format(traits, 1)).causal is True
    assert recognise(name.format(traits, 0)).causal is False


# --- differences and reasons ----------------------------------------------------------------------

FILLED = Prediction("k", sm_fill=10**6, sm_drain=10**5, compulsory_read=10**6, added=0)


def reasons(made: Prediction = FILLED, **seen: int) -> dict[str, str]:
    return {each.level: each.reason for each in differences(Counters(**seen), made)}


def test_reasons_have_names():
    assert "as its tiles say" in reasons(sm_fill=10**6 + 99)["L2 to SM"]
    spilled = reasons(sm_fill=2 * 10**6, local_load=3 * 10**6)
    assert "read back: 3 000 000 bytes" in spilled["L2 to SM"]
    assert "more than its tiles say" in reasons(sm_fill=2 * 10**6)["L2 to SM"]
    assert "fewer than its tiles say" in reasons(sm_fill=5 * 10**5)["L2 to SM"]
    stored = reasons(sm_drain=3 * 10**5, local_store=2 * 10**5)["SM to L2"]
    assert stored == "registers that did not fit are stored: 200 000 bytes"
    assert "parts of sectors are stored: 50 000" in reasons(sm_drain=150_000)["SM to L2"]
    assert "merge: 60.0%" in reasons(sm_fill=10**6, l2_tex_read=4 * 10**5)["L2 lookups"]
    assert "lookup of its own" in reasons(sm_fill=10**6, l2_tex_read=10**6)["L2 lookups"]
    assert reasons(dram_read=10**6)["HBM to L2"] == "each input once"
    again = reasons(dram_read=3 * 10**6)["HBM to L2"]
    assert "read again after misses in L2: 2 000 000 (3.00 times" in again
    assert "still in L2" in reasons(dram_read=10**4)["HBM to L2"]


def test_writes_to_hbm_are_a_range():
    made = Prediction("k", dram_write_min=100, dram_write_max=1000)
    assert "within the predicted 100 to 1 000" in reasons(made, dram_write=500)["L2 to HBM"]
    assert "fewer than" in reasons(made, dram_write=50)["L2 to HBM"]
    more = reasons(made, dram_write=2000, local_store=5000)["L2 to HBM"]
    assert "more than" in more
    assert "stored registers leave L2 too" in more


def audited(i: int) -> dict[str, dict[str, str]]:
    """The reasons of a recorded case, by role and level."""
    return {
        kernel.made.role: {each.level: each.reason for each in kernel.differences}
        for kernel in audit_cases(RECORDED, [i], H200)
    }


def test_reasons_in_recorded_cases():
    assert "partial results in float32" in audited(47)["split_forward"]["SM to L2"]
    assert "dQ is added in float32" in audited(28)["backward"]["added in L2"]
    standard = audited(26)
    assert "S is materialised: 268 435 456 bytes" in standard["gemm"]["SM to L2"] or (
        "P among them" in standard["gemm"]["HBM to L2"]
    )
    assert "P is materialised" in standard["softmax"]["SM to L2"]
    assert "S among them" in standard["softmax"]["HBM to L2"]
    assert "tile counter" in audited(12)["forward"]["L2 to SM"]
    assert "363.81 times in all" in audited(10)["forward"]["HBM to L2"]
    assert "local loads" in audited(24)["forward"]["L2 to SM"]


def test_every_recorded_difference_at_the_sms_has_a_reason():
    for kernel in audit_cases(RECORDED, range(len(RECORDED)), H200):
        for each in kernel.differences:
            assert each.reason
            assert "another shape" not in each.reason, (kernel.place, each)


def test_one_bad_case_is_listed_and_the_others_stand():
    cases = copy.deepcopy(RECORDED[:3])
    del cases[1]["n_q"]
    cases[2]["kernels"][0]["sm_fill"] = "many"
    cases.append("no case")
    good, *bad = audit_cases(cases, range(4), H200)
    assert good.made.sm_fill == good.seen.sm_fill
    assert [kernel.made for kernel in bad] == [None] * 3
    assert [kernel.notes[0] for kernel in bad] == [
        "case 1 has no n_q; every case and kernel needs one",
        "sm_fill is 'many' in the recording; it must be a whole number from 0 on",
        "case 3 is no JSON object",
    ]


def test_a_recording_of_our_kernels_is_exact_at_the_sms():
    rows = load(DATA / "h200_sweep.json")
    for kernel in audit_recording(rows, range(len(rows.rows)), H200):
        by_level = {each.level: each for each in kernel.differences}
        assert by_level["L2 to SM"].difference == by_level["SM to L2"].difference == 0
        assert kernel.label.startswith(kernel.name)


# --- pages, audited -------------------------------------------------------------------------------


def page_of(*names: str, **changes: Any) -> list[Any]:
    return list(audit_page(read_page(raw_page(*names, **changes), "here"), Given(), H200))


def test_a_page_is_audited_without_a_gpu():
    flash, other = page_of(FLASH, OTHER)
    assert flash.made.sm_fill == 553_648_128
    assert flash.shape.causal
    assert other.made.sm_fill is None
    assert other.seen.sm_fill == 67_108_864
    assert "nobody described" in other.notes[0]


def test_launches_that_are_alike_are_simulated_once(monkeypatch):
    seen = []

    def record(launch: Any, device: Any) -> HbmTraffic:
        seen.append(launch)
        return HbmTraffic(len(seen), 0, 0, 0)

    monkeypatch.setattr(predict, "simulate", record)
    first, second = page_of(FLASH, FLASH)
    assert len(seen) == 1
    assert first.made == second.made


def test_launches_that_are_alike_are_gathered():
    flash, other, again = page_of(FLASH, OTHER, FLASH)
    together, alone = gather([flash, other, again])
    assert together.place == "0 (2 times)"
    assert alone == other
    assert together.made.sm_fill == 2 * flash.made.sm_fill
    assert together.made.reads["K"] == 2 * flash.made.reads["K"]
    assert together.seen.dram_read == flash.seen.dram_read + again.seen.dram_read
    reasons = [(each.level, each.difference) for each in together.differences]
    assert reasons == [(each.level, each.difference) for each in flash.differences]
    part = replace(again, seen=replace(again.seen, dram_read=None))
    assert gather([flash, part])[0].seen.dram_read is None, "a sum of what was not measured is none"
    by_level = {each.level: each for each in totals([together, alone])}
    assert by_level["HBM to L2"].measured_bytes == 2 * flash.seen.dram_read + other.seen.dram_read
    assert by_level["L2 to SM"].shares.startswith("FlashAttention-2 forward 94.3%")


def test_one_bad_row_is_listed_and_the_others_stand():
    page = raw_page(FLASH, FLASH, FLASH).replace('"(64, 1, 8)"', '""', 1)
    page = page.replace('"8,540,416"', '"lots"', 2).replace('"lots"', '"8,540,416"', 1)
    no_grid, no_number, fine = audit_page(read_page(page, "here"), Given(), H200)
    assert "no grid size" in no_grid.notes[0]
    assert "'lots' is not a number" in no_number.notes[0]
    assert no_number.seen is None
    assert no_number.made.sm_fill == fine.made.sm_fill == fine.seen.sm_fill - 8704


def test_a_page_that_was_cut_off_keeps_its_kernels():
    page = raw_page(FLASH, OTHER)
    cut = page[: page.index('"(4096, 1, 1)"')]
    fine, half = audit_page(read_page(cut, "here"), Given(), H200)
    assert fine.seen.missing == ()
    assert half.name == OTHER
    assert "no grid size" in half.notes[0]


def test_a_unit_of_another_kind_is_said_of_its_kernel():
    page = raw_page(FLASH, OTHER).replace('"Mbyte"', '"sector"')
    flash, other = audit_page(read_page(page, "here"), Given(), H200)
    assert flash.seen is None
    assert flash.notes[0].endswith("is in sectors, not in bytes")
    assert flash.made.sm_fill == 553_648_128
    assert other.seen is None


BACKWARD = [(record["kernel"], record) for record in RECORDED[28]["kernels"]]
SHAPES = {"dot_do_o": (64, 1, 64), "seqk_parallel": (64, 1, 64), "convert": (64, 1, 64)}


def test_kernels_around_a_backward_pass_take_its_shape():
    rows = [[*COLUMNS, *UNITS], ["" for _ in COLUMNS] + list(UNITS.values())]
    for i, (name, record) in enumerate(BACKWARD):
        dims = next((d for key, d in SHAPES.items() if key in name), (record["grid"], 1, 1))
        first = [str(i), "1", "p", "h", name, "1", "7", f"({record['block']}, 1, 1)", str(dims),
                 "0", "9.0"]  # fmt: skip
        rows.append([*first, *("0" for _ in UNITS)])
    found = list(audit_page(read_page(text_of(rows), "here"), Given(), H200))
    assert [kernel.shape.n_q if kernel.shape else None for kernel in found] == [8192] * 5
    assert found[3].made.added == BACKWARD[3][1]["l2_tex_red"]
    assert found[0].made.sm_fill == BACKWARD[0][1]["sm_fill"]


def test_a_matrix_product_far_from_a_softmax_is_not_attention():
    gemm = RECORDED[26]["kernels"][0]["kernel"]
    rows = [[*COLUMNS, *UNITS], ["" for _ in COLUMNS] + list(UNITS.values())]
    for i, record in enumerate([*RECORDED[26]["kernels"], *RECORDED[26]["kernels"][:1]]):
        first = [str(i), "1", "p", "h", record["kernel"], "1", "7", f"({record['block']}, 1, 1)",
                 f"({record['grid']}, 1, 1)", "0", "9.0"]  # fmt: skip
        rows.append([*first, *("0" for _ in UNITS)])
    given = Given(n_q=4096, head_dim=64, heads=8)
    found = list(audit_page(read_page(text_of(rows), "here"), given, H200))
    expected = [record["sm_fill"] for record in RECORDED[26]["kernels"]]
    assert [kernel.made.sm_fill for kernel in found] == [*expected, None]
    assert found[-1].name == gemm
    assert "no softmax beside it" in found[-1].notes[0]
