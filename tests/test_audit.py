"""Audits: pages of ncu in every form, shapes told from launches, differences and their reasons.

The pages here are written by hand in the form that Nsight Compute's documentation and its CSV
output have: a row of units under the header of the raw page, a unit in each row of the details
page, commas between thousands, and a program's own lines before the header.
"""

import copy
import csv
import io
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from iosim.audit.audit import audit_cases, audit_page, audit_recording
from iosim.audit.compare import differences
from iosim.audit.counters import ALL_METRICS, METRICS, Counters, counters_of_page
from iosim.audit.gather import gather, totals
from iosim.audit.infer import Given, infer
from iosim.audit.ncu_csv import quantity, read_page
from iosim.cli import main
from iosim.device import predict
from iosim.device.case import KernelCall, read_document
from iosim.device.hbm import HbmTraffic
from iosim.device.kernels import recognise
from iosim.device.predict import Prediction
from iosim.device.profile import profile
from iosim.errors import IosimError
from iosim.gpu import ncu
from iosim.measured import load

DATA = Path(__file__).parents[1] / "docs" / "data"
FILE = DATA / "h200_torch_attention.json"
RECORDED = read_document(FILE)["cases"]
H200 = profile("H200")

FLASH = (
    "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<(int)64, "
    "(int)128, (int)128, (int)4, (bool)0, (bool)0, cutlass::half_t, "
    "pytorch_flash::Flash_kernel_traits<(int)64, (int)128, (int)128, (int)4, cutlass::half_t>>, "
    "(bool)0, (bool)1, (bool)0, (bool)0, (bool)1, (bool)1, (bool)0, (bool)0>"
    "(pytorch_flash::Flash_fwd_params)"
)
OTHER = "vectorized_add(float *, float *, int)"
COLUMNS = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream",
           "Block Size", "Grid Size", "Device", "CC")  # fmt: skip
UNITS = {
    "dram__bytes_read.sum": "Mbyte",
    "dram__bytes_write.sum": "Kbyte",
    "gpu__time_duration.sum": "us",
    "l1tex__m_l1tex2xbar_write_bytes.sum": "byte",
    "l1tex__m_xbar2l1tex_read_bytes.sum": "Gbyte",
    "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum": "sector",
    "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum": "sector",
    "launch__registers_per_thread": "register/thread",
    "launch__shared_mem_per_block": "Kbyte/block",
    "lts__t_sectors_srcunit_tex_op_read.sum": "sector",
    "lts__t_sectors_srcunit_tex_op_red.sum": "sector",
    "lts__t_sectors_srcunit_tex_op_write.sum": "sector",
}
# Case 1 of the recording (causal, N 8192, d 64, 8 heads), and a kernel that nobody described.
VALUES = {
    FLASH: ("25.267456", "3,024.384", "352.16", "66,576,384", "0.553656832", "8,540,416",
            "1,810,176", "255", "50.176", "17,280,812", "0", "2,080,512"),
    OTHER: ("33.6", "n/a", "12.8", "33,554,432", "0.067108864", "0", "0", "16", "1.024",
            "2,097,152", "0", "1,048,576"),
}  # fmt: skip
LAUNCHES = {FLASH: ("(128, 1, 1)", "(64, 1, 8)"), OTHER: ("(256, 1, 1)", "(4096, 1, 1)")}


@pytest.fixture(autouse=True)
def _no_l2(monkeypatch):
    monkeypatch.setattr(predict, "simulate", lambda launch, device: HbmTraffic(1, 0, 10**12, 0))


def text_of(rows: list[list[str]]) -> str:
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    return out.getvalue()


def head(i: int, name: str, capability: str = "9.0") -> list[str]:
    block, grid = LAUNCHES[name]
    return [str(i), "4711", "python3", "127.0.0.1", name, "1", "7", block, grid, "0", capability]


def raw_page(*names: str, without: tuple[str, ...] = (), capability: str = "9.0", **units: str):
    metrics = [metric for metric in UNITS if metric not in without]
    rows = [[*COLUMNS, *metrics], ["" for _ in COLUMNS] + [UNITS[metric] for metric in metrics]]
    for i, name in enumerate(names):
        given = dict(zip(UNITS, VALUES[name], strict=True))
        rows.append([*head(i, name, capability), *(given[metric] for metric in metrics)])
    return (
        "==PROF== Connected to process 4711\nhello from the program\n"
        + text_of(rows)
        + "==PROF== Disconnected from process 4711\n"
    )


def details_page(*names: str) -> str:
    rows = [[*COLUMNS, "Section Name", "Metric Name", "Metric Unit", "Metric Value"]]
    for i, name in enumerate(names):
        for (metric, unit), value in zip(UNITS.items(), VALUES[name], strict=True):
            rows.append([*head(i, name), "Command line profiler metrics", metric, unit, value])
    return "==PROF== Connected\n" + text_of(rows)


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
        "sm_fill is 'many' in the recording; it must be a number",
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


# --- the command ----------------------------------------------------------------------------------


def iosim(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["audit", *arguments])


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "page.csv"
    path.write_text(raw_page(FLASH, OTHER))
    return path


def test_one_table(page):
    done = iosim("--csv", str(page))
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0].split()[:3] == ["place", "kernel", "level"]
    assert [line.split("  ")[0] for line in lines[1:]] == ["0"] * 5 + ["1"] + ["all"] * 5
    assert "553 656 832" in done.stdout
    assert "nobody described" in lines[6]
    assert f"{553_656_832 + 67_108_864:,}".replace(",", " ") in lines[7]
    assert lines[7].endswith(
        "FlashAttention-2 forward 89.2%, vectorized_add(float *, float *, int) 10.8%"
    )
    assert "H200 is assumed" in done.stderr
    assert "n_q is taken as 8192" in done.stderr


def test_json_and_csv(page):
    records = json.loads(iosim("--csv", str(page), "--format", "json").stdout)["records"]
    assert [record["known_as"] for record in records] == ["FlashAttention-2 forward", None]
    assert records[0]["measured"]["dram_read"] == RECORDED[1]["kernels"][0]["dram_read"]
    assert records[0]["differences"][0]["level"] == "L2 to SM"
    done = iosim("--csv", str(page), "--format", "csv", "--device", "H200")
    assert "assumed" not in done.stderr.replace("is taken as", "")
    assert len(list(csv.reader(io.StringIO(done.stdout)))) == 12


def test_recordings_of_both_kinds(tmp_path):
    done = iosim("--recording", str(FILE))
    assert done.exit_code == 0
    assert "CUTLASS memory-efficient forward" in done.stdout
    some = iosim("--recording", str(FILE), "--case", "26,24")
    places = [line.split(" ")[0] for line in some.stdout.splitlines()[1::5]]
    assert places == ["26.0", "26.1", "26.2", "24"]
    document = json.loads((DATA / "h200_sweep.json").read_text())
    document["records"] = document["records"][:2]
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(document))
    done = iosim("--recording", str(path))
    assert done.exit_code == 0
    assert done.stdout.count("as its tiles say") == 4


def test_files_that_are_no_pages(tmp_path):
    path = tmp_path / "report.ncu-rep"
    path.write_bytes(b"NVR\x00\xff\xfe\x81")
    done = iosim("--csv", str(path))
    assert done.exit_code == 2
    assert "ncu --import FILE --csv" in done.stderr
    path.write_text(raw_page(FLASH).partition("program\n")[2], encoding="utf-8-sig")
    assert iosim("--csv", str(path)).exit_code == 0


def test_missing_counters_are_one_sentence(tmp_path):
    path = tmp_path / "page.csv"
    path.write_text(raw_page(FLASH, without=("lts__t_sectors_srcunit_tex_op_read.sum",)))
    done = iosim("--csv", str(path))
    assert done.exit_code == 0
    assert "lacks lts__t_sectors_srcunit_tex_op_read.sum; ncu --metrics" in done.stderr
    assert "L2 lookups" not in done.stdout
    path.write_text(raw_page(FLASH, without=tuple(metric for metric, _ in METRICS.values())))
    done = iosim("--csv", str(path))
    assert done.exit_code == 2
    assert "has none of the counters" in done.stderr


WRONG: dict[str, tuple[tuple[str, ...], str]] = {
    "nothing": ((), "give one of PROGRAM"),
    "two sources": (("--csv", "a", "--recording", "b"), "give one of PROGRAM"),
    "no file": (("--csv", "absent.csv"), "'absent.csv' cannot be read"),
    "a foreign file": (("--csv", str(Path(__file__))), "is no CSV of Nsight Compute"),
    "no recording": (("--recording", "absent.json"), "cannot be read"),
    "a shape beside a recording": (("--recording", str(FILE), "--seq-len", "8k"), "stand in the"),
    "a case that is not there": (("--recording", str(FILE), "--case", "71"), "the last one is 70"),
    "a case of no recording": (("--csv", str(FILE), "--case", "1"), "--case chooses from"),
    "another device": (("--recording", str(FILE), "--device", "A100"), "L2 of A100"),
    "an option of a program": (("python", "--version"), "--version"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_use_is_one_sentence(what):
    arguments, says = WRONG[what]
    done = iosim(*arguments)
    assert done.exit_code == 2
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('"ID","Kernel Name","dram__bytes_read.sum"\n"","","byte"\n', "has no kernel in it"),
        ("a,b\n1,2\n", "is no CSV of Nsight Compute"),
        ("", "is no CSV of Nsight Compute"),
        ("\x00\x01", "is no CSV of Nsight Compute"),
        (raw_page(FLASH, capability="8.0"), "compute capability 8.0"),
    ],
)
def test_wrong_pages_are_one_sentence(tmp_path, content, says):
    path = tmp_path / "page.csv"
    path.write_text(content)
    done = iosim("--csv", str(path))
    assert done.exit_code == 2
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("document", "says"),
    [({}, "neither cases nor records"), ({"cases": 3}, "no list of cases"),
     ({"records": []}, "no recording of schema")],
)  # fmt: skip
def test_wrong_recordings_are_one_sentence(tmp_path, document, says):
    path = tmp_path / "x.json"
    path.write_text(json.dumps(document))
    done = iosim("--recording", str(path))
    assert done.exit_code == 2
    assert says in done.stderr


# --- a program under a stand-in for ncu -----------------------------------------------------------

STAND_IN = """\
#!/bin/sh
while [ $# -gt 0 ]; do
  case "$1" in
    --log-file) log="$2"; shift 2;;
    --metrics) metrics="$2"; shift 2;;
    --profile-from-start) from="$2"; shift 2;;
    --csv|--page|--print-units|--clock-control|--cache-control) shift;;
    raw|base|none|all) shift;;
    *) break;;
  esac
done
echo "$from $metrics $*" > "{folder}/called"
{body}
"""


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Put a program called ncu on the PATH that takes ncu's options and then does `body`."""

    def install(body: str) -> Path:
        path = tmp_path / "ncu"
        path.write_text(STAND_IN.replace("{folder}", str(tmp_path)).replace("{body}", body))
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        return tmp_path / "called"

    return install


def test_a_program_is_profiled_from_its_start(stand_in, page):
    called = stand_in(f'cp "{page}" "$log"; "$@"')
    done = iosim("--", "python", "train.py", "--steps", "1")
    assert done.exit_code == 0
    assert "553 656 832" in done.stdout
    start, metrics, *program = called.read_text().split()
    assert start == "on"
    assert metrics.split(",") == list(ALL_METRICS)
    assert program == ["python", "train.py", "--steps", "1"]
    assert "the program ended with exit code" in done.stderr  # there is no train.py


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ('echo "==ERROR== ERR_NVGPUCTRPERM - no permission" > "$log"; exit 1', "administrators"),
        ('echo "==WARNING== No kernels were profiled." > "$log"', "launched no kernel"),
        ('echo "==ERROR== LibraryNotLoaded"; exit 1', "no hardware counters"),
        ("echo something else >&2; exit 3", "something else"),
    ],
)
def test_a_run_that_failed_is_one_sentence(stand_in, body, says):
    stand_in(body)
    done = iosim("--", "true")
    assert done.exit_code == 2
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_program_that_takes_too_long(stand_in):
    stand_in("exec sleep 30")
    done = iosim("--timeout", "1", "--", "true")
    assert done.exit_code == 2
    assert "still running after 1 s" in done.stderr


def test_without_ncu(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    done = iosim("--", "true")
    assert done.exit_code == 2
    assert "ncu is not on the PATH" in done.stderr
    with pytest.raises(IosimError, match="cannot be run"):
        ncu.run(str(tmp_path / "ncu"), ["true"], ["m"], from_start=True, timeout_seconds=1)
