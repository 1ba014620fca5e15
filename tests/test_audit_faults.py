"""Pages as they come: whole names, several families in one program, and everything that spoils one.

A page that is damaged loses what was damaged and nothing else, and says so in one sentence.
"""

import json
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from ncu_pages import DATA, H200, RECORDED, flash_name, page_of_rows, row_of

from iosim.audit.audit import audit_page
from iosim.audit.compare import differences
from iosim.audit.counters import METRICS, Counters
from iosim.audit.infer import OTHERS, Given
from iosim.audit.ncu_csv import read_page
from iosim.cli import main
from iosim.device import predict
from iosim.device.hbm import HbmTraffic
from iosim.device.kernels import recognise
from iosim.device.predict import Prediction


@pytest.fixture(autouse=True)
def _no_l2(monkeypatch):
    monkeypatch.setattr(predict, "simulate", lambda launch, device: HbmTraffic(1, 0, 10**12, 0))


def forward(causal: int, local: int = 0) -> str:
    return flash_name("flash_fwd_kernel", 64, 128, 128, 0, causal, local, 0, 1, 1, 0, 0)


def split(causal: int = 0, local: int = 0, parts: int = 1) -> str:
    flags = (causal, local, 0, 0, 1, 0, parts, 0)
    return flash_name("flash_fwd_splitkv_kernel", 128, 64, 128, *flags)


MERGE = flash_name("flash_fwd_splitkv_combine_kernel", 128, 64, 128).replace(
    ">(pytorch", ", (int)4, (int)3, (bool)1>(pytorch"
)
DECODED = RECORDED[47]["kernels"]  # one query, 16384 keys, 32 heads, 7 parts
PREFILL = row_of(forward(1), (64, 1, 8), RECORDED[1]["kernels"][0])
DECODING = (row_of(split(), (1, 7, 32), DECODED[0]), row_of(MERGE, (8, 1, 1), DECODED[1]))


def audit(*rows: Any, **stated: Any) -> list[Any]:
    return list(audit_page(read_page(page_of_rows(*rows), "here"), Given(**stated), H200))


def table(page: str | bytes, tmp_path: Any, *options: str) -> Any:
    path = tmp_path / "page.csv"
    path.write_bytes(page if isinstance(page, bytes) else page.encode())
    return CliRunner().invoke(main, ["audit", "--csv", str(path), *options])


# --- what whole names say -------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("local", [0, 1])
def test_the_flags_of_each_kernel_stand_in_their_own_order(causal, local):
    backward = flash_name(
        "flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel", 64, 128, 128,
        *(1, causal, local, 0, 1, 1, 0), backward=True,
    )  # fmt: skip
    for name in (forward(causal, local), split(causal, local), backward):
        known = recognise(name)
        assert known.causal is bool(causal)
        assert known.flags["local"] is bool(local)
    assert recognise(split(causal, local, parts=1)).flags["split"] is True
    assert recognise(split(causal, local, parts=0)).flags["split"] is False


def test_of_a_version_with_other_flags_the_causal_one_is_believed():
    old = flash_name("flash_fwd_kernel", 64, 128, 128, 0, 1, 1, 1, 0)  # the third is not `local`
    assert dict(recognise(old).flags) == {"dropout": False, "causal": True}
    assert recognise(old.partition("cutlass::half_t>>")[0]).causal is None


def test_a_window_of_keys_is_not_predicted():
    (found,) = audit(row_of(forward(0, local=1), (64, 1, 8), RECORDED[1]["kernels"][0]))
    assert found.made.sm_fill is None
    assert "window of keys is not known: nothing is predicted" in found.notes[-1]


def test_kernels_of_one_program_take_the_lengths_that_fit_their_grids():
    """Prefill and decoding together: the lengths given are those of the kernels that need them."""
    prefill, decode, merge = audit(PREFILL, *DECODING, n_q=1, n_k=16384)
    assert (prefill.shape.n_q, prefill.shape.n_k, prefill.shape.causal) == (8192, 8192, True)
    assert prefill.notes[0] == OTHERS
    assert prefill.made.sm_fill == 553_648_128
    for found, record in zip((decode, merge), DECODED, strict=True):
        assert (found.shape.n_q, found.shape.n_k, found.shape.heads) == (1, 16384, 32)
        assert found.made.sm_fill == record["sm_fill"]
    assert OTHERS not in decode.notes


def test_lengths_that_nobody_knows_are_asked_for_by_each_kernel():
    for found in audit(*DECODING):
        assert found.made.sm_fill is None
        assert found.notes == ("the shape is not known; give --seq-len, --kv-len",)
    for found in audit(*DECODING, n_q=8192, n_k=8192):  # of 128 tiles, and the grid has one
        assert found.notes == (OTHERS, "the shape is not known; give --seq-len, --kv-len")


def test_a_split_kernel_that_splits_nothing_has_another_grid():
    (found,) = audit(row_of(split(parts=0), (1, 2, 32), DECODED[0]), n_q=1, n_k=16384)
    assert (found.shape.batch, found.shape.heads) == (2, 32)
    assert found.made.tiles["splits"] == 1
    assert "partial O" not in found.made.writes


@pytest.mark.parametrize(
    ("z", "stated", "expected"),
    [
        (8, {"heads": 32}, (1, 32, 8)),
        (64, {"heads": 32, "kv_heads": 8}, (8, 32, 8)),
        (64, {"heads": 32}, (2, 32, 32)),
        (64, {"batch": 8, "heads": 32}, (8, 32, 8)),
        (32, {}, (1, 32, 32)),
    ],
)
def test_the_grid_of_one_query_counts_key_heads(z, stated, expected):
    row = row_of(split(), (1, 7, z), DECODED[0])
    (found,) = audit(row, n_q=1, n_k=16384, **stated)
    assert (found.shape.batch, found.shape.heads, found.shape.kv_heads) == expected
    assert found.made.tiles["splits"] == 7


def test_a_copy_is_known_by_its_whole_name():
    call = "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase &)"
    whole = "void at::native::elementwise_kernel<(int)128, (int)4, "
    whole += f"void at::native::gpu_kernel_impl_nocast<{call}::[lambda() (instance 3)]>"
    assert recognise(whole).tiles == {"threads": 128, "each": 4}
    assert recognise(whole.replace("native::", "").replace("(int)", "")).role == "copy"


# --- kernels that cannot be read, or not predicted ------------------------------------------------

RECORD = RECORDED[1]["kernels"][0]
BROKEN: dict[str, tuple[Any, str]] = {
    "no number": (row_of(forward(1), (64, 1, 8), RECORD, sm_fill="12.5e"), "is not a number"),
    "no end": (row_of(forward(1), (64, 1, 8), RECORD, sm_fill="1e999"), "range of any counter"),
    "negative": (row_of(forward(1), (64, 1, 8), RECORD, sm_fill="-5"), "range of any counter"),
    "points": (row_of(forward(1), (64, 1, 8), RECORD, dram_read="25.267"), "with LC_ALL=C"),
    "registers": (row_of(forward(1), (64, 1, 8), RECORD, registers="1e999"), "any counter"),
    "too many registers": (
        row_of(forward(1), (64, 1, 8), RECORD, registers="99999"), "does not fit in an SM"
    ),
    "no block": (row_of(forward(1), (64, 1, 8), RECORD | {"block": 0}), "a block of size 0"),
    "no grid": (row_of(forward(1), (0, 1, 8), RECORD), "a grid of size 0"),
    "no counters": (
        row_of(forward(1), (64, 1, 8), RECORD, **dict.fromkeys(METRICS, "n/a")),
        "none of its counters was read",
    ),
    "no tiles": (
        row_of(
            "flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<48", (64, 1, 8),
            RECORD,
        ),
        "the tiles of the kernel at d 48 are not known",
    ),
    "another name": (row_of('void f<"a", \'b\'>(int, "x")\\', (3, 1, 1), {}), "nobody described"),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_a_kernel_that_is_wrong_is_listed_and_the_others_stand(what, tmp_path):
    row, says = BROKEN[what]
    options = ["--seq-len", "8k"] if what == "no tiles" else []
    done = table(page_of_rows(PREFILL, row, PREFILL), tmp_path, *options)
    assert done.exit_code == 0, done.exception
    lines = [line.split("  ") for line in done.stdout.splitlines()]
    places = [cells[0] for cells in lines]
    assert places.count("1") == 1
    assert says in done.stdout.splitlines()[places.index("1")]
    assert places.count("0 (2 times)") == 5


def test_every_reason_of_a_table_is_there(tmp_path):
    rows = (*DECODING, *(row for row, _ in BROKEN.values()))
    done = table(page_of_rows(*rows), tmp_path)
    assert done.exit_code == 0
    for line in done.stdout.splitlines()[1:]:
        assert not line.endswith(" -"), line
        assert "  ; " not in line


def test_registers_do_not_explain_more_than_there_were():
    made = Prediction("k", sm_fill=10**6, sm_drain=10**6)
    seen = Counters(sm_fill=3 * 10**6, sm_drain=2 * 10**6, local_load=10**5, local_store=10**5)
    fill, drain = (each.reason for each in differences(seen, made))
    assert "another shape" in fill
    assert "another shape" in drain


NAMES = sorted({kernel["kernel"] for case in RECORDED for kernel in case["kernels"]})
NAMES += [forward(0), forward(1), split(), split(parts=0), MERGE, "k<<<", ""]
CELL = st.sampled_from(["", "n/a", "0", "1", "12.5", "1e300", "-1", "x", "4,096"])


@given(
    st.lists(
        st.tuples(
            st.sampled_from(NAMES),
            st.tuples(*[st.integers(0, 9)] * 3),
            st.sampled_from([0, 1, 128, 384, 10**6]),
            st.dictionaries(st.sampled_from([*METRICS, "registers", "smem_bytes"]), CELL),
        ),
        min_size=1,
        max_size=6,
    ),
    st.builds(
        Given,
        n_q=st.sampled_from([None, 1, 300]),
        n_k=st.sampled_from([None, 7, 2000]),
        head_dim=st.sampled_from([None, 64, 100]),
        batch=st.sampled_from([None, 2]),
        heads=st.sampled_from([None, 4, 6]),
        kv_heads=st.sampled_from([None, 2, 4]),
        dtype=st.sampled_from([None, "float32"]),
        causal=st.sampled_from([None, True]),
    ),
)
def test_an_audit_ends_with_as_many_kernels_as_the_page_has(launches, stated):
    """Whatever stands in the rows, and whatever is stated of them."""
    rows = [
        row_of(name, dims, {"block": block, "registers": 32, "smem_bytes": 2048}, **cells)
        for name, dims, block, cells in launches
    ]
    page = page_of_rows(*rows)
    if not any(name for name, *_ in launches):
        return
    kernels = read_page(page, "here")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(predict, "simulate", lambda launch, device: HbmTraffic(1, 0, 10**12, 0))
        found = list(audit_page(kernels, stated, H200))
    assert [kernel.name for kernel in found] == [kernel.name for kernel in kernels]
    for kernel in found:
        json.dumps(kernel.to_dict(), allow_nan=False)
        assert kernel.differences or kernel.notes, kernel


# --- pages that are damaged -----------------------------------------------------------------------

PAGE = page_of_rows(PREFILL, PREFILL, DECODING[0])
WHOLE = read_page(PAGE, "here")
ROWS = PAGE.partition("\n")[2]


@given(st.integers(PAGE.index('\n"1"'), len(PAGE)))
def test_a_page_cut_anywhere_has_no_number_that_was_not_there(at):
    """Of a cell that was cut nothing is left, since its first digits are a number, too."""
    *before, last = read_page(PAGE[:at], "here")
    assert before == WHOLE[: len(before)]
    cells = WHOLE[len(before)].cells
    assert all(text in ("", cells[metric][0]) for metric, (text, _) in last.cells.items())
    assert len(before) + 1 >= PAGE[:at].count("\n") - 3  # the program, the header, the units


OPEN = '"epoch 1, said somebody\n'
SPOILED: dict[str, str | bytes] = {
    "a quote left open before": OPEN + PAGE,
    "a quote left open between": PAGE.replace('\n"1"', f'\n{OPEN}"1"'),
    "warnings between": PAGE.replace(
        '\n"1"', '\n==WARNING== Launching the workload takes longer\n1, 2, 3, 4, 5, 6, 7\n"1"'
    ),
    "a line too long for CSV": PAGE.replace('\n"1"', '\n"' + 200_000 * "x" + '"\n"1"'),
    "a mark of UTF-8": b"\xef\xbb\xbf" + ROWS.encode(),
    "UTF-16": PAGE.encode("utf-16"),
    "ends of lines of Windows": PAGE.replace("\n", "\r\n"),
    "blank lines": PAGE.replace("\n", "\n\n"),
}


@pytest.mark.parametrize("what", SPOILED)
def test_what_spoils_a_page_spoils_nothing_else(what, tmp_path):
    expected = table(PAGE, tmp_path, "--format", "json")
    done = table(SPOILED[what], tmp_path, "--format", "json")
    assert done.exit_code == 0, done.stderr
    assert done.stdout == expected.stdout


def test_pages_may_follow_one_another(tmp_path):
    done = table(PAGE + PAGE, tmp_path, "--format", "json")
    records = json.loads(done.stdout)["records"]
    assert [record["place"] for record in records] == [str(i) for i in range(6)]
    assert {record["known_as"] for record in records[:2]} == {"FlashAttention-2 forward"}
    other = page_of_rows(DECODING[1]).replace('"dram__bytes_read.sum"', '"some__other.sum"')
    both = read_page(PAGE + other, "here")
    assert [kernel.name for kernel in both] == [kernel.name for kernel in WHOLE] + [MERGE]


def test_cells_without_quotes_are_read(tmp_path):
    plain = page_of_rows(row_of("k", (1, 1, 1), {}, time_ns="5", smem_bytes="0")).replace(", ", "x")
    (found,) = read_page(plain.replace('"', ""), "here")
    assert (found.name, found.grid, found.quantity("gpu__time_duration.sum").number) == (
        "k", (1, 1, 1), pytest.approx(5e-9),
    )  # fmt: skip


def test_ten_thousand_kernels_are_as_many_rows_and_few_predictions(monkeypatch):
    calls = []
    real = predict.predict_kernel

    def counted(call: Any, *rest: Any, **named: Any) -> Any:
        calls.append(call.name)
        return real(call, *rest, **named)

    monkeypatch.setattr("iosim.audit.audit.predict_kernel", counted)
    rows = (PREFILL, *DECODING) * 300
    found = audit(*rows, n_q=1, n_k=16384)
    assert len(found) == 900
    assert len({id(kernel.made) for kernel in found if kernel.name == forward(1)}) == 1
    assert calls.count(forward(1)) == calls.count(split()) == 1
    assert all(kernel.made.sm_fill == DECODED[1]["sm_fill"] for kernel in found[2::3])


def test_a_note_about_many_kernels_names_a_few(tmp_path):
    rows = [row_of(f"k<{i}>(int)", (1, 1, 1), {}) for i in range(1000)]
    done = table(page_of_rows(*rows), tmp_path)
    assert "note: kernel 0, 1, 2, 3, 4, 5 and 994 more: nobody described" in done.stderr
    assert len(done.stderr.splitlines()) == 2  # and which device is assumed


# --- recordings of other devices ------------------------------------------------------------------


@pytest.mark.parametrize("named", ["NVIDIA H100 80GB HBM3", "A100", 7])
@pytest.mark.parametrize("file", ["h200_torch_attention.json", "h200_sweep.json"])
def test_a_recording_of_a_device_without_a_profile(named, file, tmp_path):
    document = json.loads((DATA / file).read_text())
    key = "cases" if "cases" in document else "records"
    document[key] = document[key][:1]
    document["device"] = named
    path = tmp_path / "recording.json"
    path.write_text(json.dumps(document))
    arguments = ["audit", "--recording", str(path)]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2
    assert done.stderr.endswith(
        f"was recorded on '{named}', whose L2 is not described; give --device H200 to compare with "
        "that one\n"
    )
    assert CliRunner().invoke(main, [*arguments, "--device", "H200"]).exit_code == 0


WRONG = [float("nan"), float("inf"), -5, 1.5, True, "many"]


@pytest.mark.parametrize("value", WRONG, ids=str)
@pytest.mark.parametrize(
    ("file", "at", "key"),
    [("h200_torch_attention.json", ("cases", 0, "kernels", 0), "sm_fill"),
     ("h200_sweep.json", ("records", 0), "sm_read_bytes")],
)  # fmt: skip
def test_a_number_that_is_none_is_one_row_of_a_recording(value, file, at, key, tmp_path):
    lines = recorded(file, at, key, value, tmp_path)
    said = next(line for line in lines if line.startswith("0 "))
    assert f"{key} is {value!r} in the recording; it must be a whole number from 0 on" in said
    assert any(line.startswith("1 ") and "as its tiles say" in line for line in lines)


@pytest.mark.parametrize("key", ["kernel", "threads", "registers", "shared_bytes"])
def test_a_row_without_its_launch_is_one_row(key, tmp_path):
    lines = recorded("h200_sweep.json", ("records", 0, "kernels", 0), key, None, tmp_path)
    said = next(line for line in lines if line.startswith("0 "))
    assert "needs a name, threads, registers and shared_bytes" in said
    assert any(line.startswith("1 ") and "as its tiles say" in line for line in lines)


def recorded(file: str, at: tuple[Any, ...], key: str, value: Any, folder: Any) -> list[str]:
    """The table of two entries of a recording, one value of which is wrong, or gone for None."""
    document = json.loads((DATA / file).read_text())
    document[at[0]] = document[at[0]][:2]
    place = document
    for step in at:
        place = place[step]
    place.pop(key)
    if value is not None:
        place[key] = value
    path = folder / "recording.json"
    path.write_text(json.dumps(document))
    done = CliRunner().invoke(main, ["audit", "--recording", str(path), "--device", "H200"])
    assert done.exit_code == 0, done.exception
    return done.stdout.splitlines()
