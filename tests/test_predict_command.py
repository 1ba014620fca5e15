"""`iosim predict`: a record for each case in order, our own kernels, other orders, wrong use."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from iosim.cli import main
from iosim.device import orders, predict
from iosim.device.case import read_document
from iosim.device.hbm import HbmTraffic
from iosim.reading.count import count
from iosim.schedule import family
from iosim.shape import AttentionShape

FILE = Path(__file__).parents[1] / "docs" / "data" / "h200_torch_attention.json"
RECORDED = read_document(FILE)["cases"]


@pytest.fixture
def no_l2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predict, "simulate", lambda launch, device: HbmTraffic(0, 0, 0, 0))


def iosim(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["predict", *arguments])


def test_one_record_for_each_case_in_order(no_l2):
    done = iosim("--cases", str(FILE), "--format", "json")
    assert done.exit_code == 0
    records = json.loads(done.stdout)["records"]
    assert len(records) == len(RECORDED)
    for record, entry in zip(records, RECORDED, strict=True):
        longest = max(entry["kernels"], key=lambda kernel: kernel["time_ns"])
        assert record["kernel"] == longest["kernel"]
        assert record["n_q"] == entry["n_q"]
        assert [k["kernel"] for k in record["kernels"]] == [k["kernel"] for k in entry["kernels"]]
        for level in ("sm_fill", "l2_tex_read", "dram_read", "dram_write_min", "dram_write_max"):
            assert isinstance(record[level], int)
        assert record["limited_by"] in ("SM", "HBM", "compute")
        assert record["roofline_seconds"] > 0


def test_our_flash2_without_a_gpu(no_l2):
    options = ("--seq-len", "8k", "--head-dim", "64", "--br", "128", "--bc", "128")
    done = iosim("--device", "h200", "--schedule", "flash2", *options, "--format", "json")
    (record,) = json.loads(done.stdout)["records"]
    built = family("flash2").build(AttentionShape(8192, 8192, 64), br=128, bc=128)
    assert record["sm_fill"] == count(built).read_bytes
    masked = iosim("--mask", "window:256", *options, "--format", "json")
    (record,) = json.loads(masked.stdout)["records"]
    assert record["sm_fill"] > 0
    assert record["dram_read"] is None
    assert record["notes"][0].startswith("mask window:256")
    table = iosim("--schedule", "flash2,standard", *options[:4])
    assert table.exit_code == 0
    assert "no kernel of ours runs this schedule" in table.stderr
    assert "sm_fill" in table.stdout.splitlines()[0]


GOOD = RECORDED[0]
CALL = GOOD["kernels"][0]
WRONG_FILES: dict[str, tuple[Any, str]] = {
    "no JSON": ("{", "is not JSON"),
    "a list": ([], "holds no JSON object"),
    "no cases": ({"device": "H200"}, "no list of cases"),
    "empty": ({"cases": []}, "no list of cases"),
    "a case of text": ({"cases": ["x"]}, "case 0 is no JSON object"),
    "no n_q": ({"cases": [{**GOOD, "n_q": None}]}, "case 0: n_q is None"),
    "no shape": ({"cases": [{"op": "fwd"}]}, "case 0 has no n_q"),
    "op": ({"cases": [{**GOOD, "op": "train"}]}, "op is 'train'"),
    "causal": ({"cases": [{**GOOD, "causal": 1}]}, "causal is 1"),
    "dtype": ({"cases": [{**GOOD, "dtype": 16}]}, "dtype is 16"),
    "kernels": ({"cases": [{**GOOD, "kernels": []}]}, "kernels is no list"),
    "a kernel of text": ({"cases": [{**GOOD, "kernels": ["x"]}]}, "kernel 0 is no JSON object"),
    "no name": ({"cases": [{**GOOD, "kernels": [{**CALL, "kernel": ""}]}]}, "kernel is ''"),
    "grid": ({"cases": [{**GOOD, "kernels": [{**CALL, "grid": 0}]}]}, "grid is 0"),
    "registers": ({"cases": [{**GOOD, "kernels": [{"kernel": "k"}]}]}, "kernel 0 has no grid"),
    "device": ({"device": {"name": "NVIDIA A100"}, "cases": [GOOD]}, "A100', whose L2"),
    "odd device": ({"device": 3, "cases": [GOOD]}, "names the device 3"),
    "unknown device": ({"device": "MI300", "cases": [GOOD]}, "MI300"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG_FILES)
def test_a_wrong_file_is_one_sentence(tmp_path, what):
    content, says = WRONG_FILES[what]
    path = tmp_path / "cases.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    done = iosim("--cases", str(path))
    assert done.exit_code == 2
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "--seq-len is missing"),
        (("--case", "3"), "--case chooses from the file of --cases"),
        (("--cases", str(FILE), "--case", "71"), "the last one is 70"),
        (("--cases", "absent.json"), "cannot be read"),
        (("--cases", str(FILE), "--seq-len", "8k"), "--seq-len"),
        (("--seq-len", "8k", "--head-dim", "64", "--device", "A100"), "L2 of A100"),
        (("--seq-len", "8k", "--head-dim", "64", "--device", "H20"), "did you mean"),
        (("--seq-len", "8k", "--head-dim", "64", "--schedule", "flash9"), "flash9"),
    ],
)
def test_wrong_use_is_one_sentence(arguments, says):
    done = iosim(*arguments)
    assert done.exit_code == 2
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_file_that_names_no_device_is_taken_to_be_of_the_one_with_a_profile(tmp_path, no_l2):
    path = tmp_path / "cases.json"
    path.write_text(json.dumps({"cases": [GOOD]}))
    done = iosim("--cases", str(path), "--format", "csv")
    assert done.exit_code == 0
    assert "H200 is assumed" in done.stderr
    assert done.stdout.splitlines()[0].startswith("op,backend,n_q")


ORDERED = ("--orders", "--seq-len", "1k", "--head-dim", "64", "--br", "128", "--bc", "128")


def test_orders_are_distinct_launches_and_one_is_usual(monkeypatch):
    seen = []

    def record(launch: Any, device: Any) -> HbmTraffic:
        seen.append(launch)
        return HbmTraffic(2 * launch.compulsory_read_bytes, 0, 1, 0)

    monkeypatch.setattr(orders, "simulate", record)
    done = iosim(*ORDERED, "--heads", "2", "--causal", "--format", "json")
    records = json.loads(done.stdout)["records"]
    assert len(set(seen)) == len(seen) == len(records) == 8
    (usual,) = [record for record in records if record["usual"]]
    assert (usual["order"], usual["tiles"], usual["keys"]) == (
        "blocks-first", "descending", "ascending",
    )  # fmt: skip
    assert {record["times_compulsory"] for record in records} == {2.0}
    seen.clear()
    iosim(*ORDERED)
    assert len(seen) == 4, "with one head the order of heads is none"


def test_orders_are_about_flash2_of_our_own():
    done = iosim(*ORDERED[:5], "--schedule", "flash1")
    assert done.exit_code == 2
    assert "--orders is about flash2" in done.stderr
    done = iosim("--orders", "--cases", str(FILE))
    assert done.exit_code == 2


def test_some_cases_of_a_file(no_l2):
    done = iosim("--cases", str(FILE), "--case", "26,0", "--format", "json")
    records = json.loads(done.stdout)["records"]
    assert [record["op"] for record in records] == ["std", "fwd"]
