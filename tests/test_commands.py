"""The commands simulate, explain, bound and tiles, run in process: records, pages and errors."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
import trees
from click.testing import CliRunner, Result

from iosim.cli import main
from iosim.schedule import family
from iosim.schedule.listing import listing
from iosim.shape import AttentionShape

EXAMPLE = trees.EXAMPLES / "split_loads.py"

SHAPE = ("--seq-len", "1k", "--head-dim", "64")
KEYS = {
    *("schedule", "n_q", "n_k", "head_dim", "heads", "kv_heads", "batch", "causal", "dtype"),
    *("sram_words", "br", "bc", "read_words", "write_words", "total_words"),
    *("read_bytes", "write_bytes", "total_bytes", "peak_words", "fits"),
    *("lower_bound_words", "gap", "tensors"),
}


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def records(*arguments: str) -> list[dict[str, Any]]:
    result = run(*arguments, "--format", "json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["schema"] == 1
    found: list[dict[str, Any]] = document["records"]
    return found


def test_simulate_writes_the_documented_record() -> None:
    (record,) = records(
        *("simulate", "--schedule", "flash2", "--seq-len", "4096", "--head-dim", "64"),
        *("--heads", "8", "--br", "128", "--bc", "128", "--sram", "100KiB"),
    )
    assert set(record) >= KEYS
    assert (record["read_bytes"], record["write_bytes"]) == (272629760, 4325376)
    assert record["sram_words"] == 51200
    assert record["fits"] is True
    assert record["gap"] == record["total_words"] / record["lower_bound_words"]
    tensors = record["tensors"].values()
    assert sum(t["read_words"] for t in tensors) == record["read_words"]
    assert sum(t["write_words"] for t in tensors) == record["write_words"]


def test_without_a_memory_the_bound_is_null() -> None:
    (record,) = records("simulate", "--schedule", "flash2", *SHAPE, "--br", "64", "--bc", "64")
    nulls = ("sram_words", "fits", "lower_bound_words", "gap", "bound")
    assert [record[key] for key in nulls] == [None] * 5


def test_what_does_not_fit_has_no_gap() -> None:
    standard, flash1 = records(
        *("simulate", "--schedule", "standard,flash1", "--seq-len", "1k", "--head-dim", "128"),
        *("--sram", "100KiB", "--tiles", "paper"),
    )
    # The paper's rule at d = 128 holds 61 400 words, more than 100 KiB of float16.
    assert flash1["peak_words"] == 61400
    assert (standard["br"], standard["bc"]) == (None, None)
    for record in (standard, flash1):
        assert record["fits"] is False
        assert record["gap"] is None
        assert record["lower_bound_words"] is None


def test_sweeps_multiply() -> None:
    found = records(
        *("simulate", "--schedule", "flash2,flash1", "--seq-len", "1k,2k", "--head-dim", "32,64"),
        *("--br", "16,32", "--bc", "16"),
    )
    assert len(found) == 2 * 2 * 2 * 2
    assert len({(r["schedule"], r["n_q"], r["head_dim"], r["br"]) for r in found}) == 16


def test_model_and_device_state_heads_and_memory(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text('{"hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8}')
    (record,) = records(
        *("simulate", "--schedule", "flash2", "--seq-len", "8k", "--model", str(config)),
        *("--device", "h200", "--causal"),
    )
    assert (record["heads"], record["kv_heads"], record["head_dim"]) == (32, 8, 128)
    assert record["sram_words"] == 232448 // 2


@pytest.mark.parametrize("command", ["simulate", "explain", "bound", "tiles", "cache"])
@pytest.mark.parametrize(
    ("more", "noted"),
    [
        ('"sliding_window": 32', True),
        ('"sliding_window": 32, "use_sliding_window": true', True),
        ('"sliding_window": 32, "use_sliding_window": false', False),
        ('"sliding_window": 64', False),  # every key is in the window
        ('"sliding_window": null', False),
    ],
)
def test_a_sliding_window_is_noted_once_on_standard_error(
    command: str, more: str, noted: bool, tmp_path: Path
) -> None:
    config = tmp_path / "config.json"
    config.write_text(f'{{"_name_or_path": "m", "n_embd": 16, "n_head": 2, {more}}}')
    result = run(
        *(command, "--schedule", "flash2", "--model", str(config), "--sram", "999w"),
        *("--seq-len", "64", *(["--capacity", "8"] if command == "cache" else [])),
    )
    assert result.exit_code == 0, result.output
    note = "note: m states a sliding window of 32 keys, which is not counted; "
    assert "note" not in result.stdout
    assert len(result.stderr.splitlines()) == noted
    assert result.stderr.startswith(note if noted else "")


def test_csv_and_table_say_the_same(tmp_path: Path) -> None:
    arguments = ("simulate", "--schedule", "flash2", *SHAPE, "--br", "64", "--bc", "64")
    file = tmp_path / "out.csv"
    assert run(*arguments, "--format", "csv", "-o", str(file)).exit_code == 0
    (row,) = csv.DictReader(io.StringIO(file.read_text()))
    (record,) = records(*arguments)
    assert int(row["total_words"]) == record["total_words"]
    assert int(row["tensors.K.read_words"]) == record["tensors"]["K"]["read_words"]
    table = run(*arguments).stdout
    assert f"{record['total_words']:,}".replace(",", " ") in table
    assert "total (words)" in table


def test_what_rows_have_in_common_stands_above_the_table() -> None:
    given = ("simulate", *SHAPE, "--schedule", "flash2", "--sram")
    one = run(*given, "100KiB").stdout.splitlines()
    assert one[0] == "n_q = 1 024, n_k = 1 024, head_dim = 64, heads = 1, sram (words) = 51 200"
    assert one[2].split() == [
        *("schedule", "br", "bc", "total", "(words)", "total", "(bytes)", "peak", "(words)"),
        *("fits", "bound", "lower_bound", "(words)", "gap"),
    ]
    sweep = run(*given, "9KiB,99KiB", "--seq-len", "1k,2k").stdout
    assert sweep.startswith("n_k = n_q, head_dim = 64, heads = 1\n\nschedule    n_q  sram (words)")
    keys = run(*given, "99KiB", "--kv-len", "1k,2k").stdout
    assert keys.startswith("n_q = 1 024, head_dim = 64")
    assert keys.splitlines()[2].split()[1] == "n_k"
    assert all(len(line) <= 120 for line in (*one, *keys.splitlines()))


def test_explain_shows_line_8_of_the_listing() -> None:
    page = run("explain", "--schedule", "flash1", *SHAPE, "--br", "64", "--bc", "200").stdout
    assert "  8      load Q_i, O_i, l_i, m_i" in page
    assert "together T_c n_q (2 d + 2) = 798 720 words" in page
    assert "T_c = 6" in page


def test_explain_records_add_up() -> None:
    arguments = (*SHAPE, "--br", "64", "--bc", "200")
    for schedule in ("flash1", "flash2", "standard_tiled", "standard"):
        lines = records("explain", "--schedule", schedule, *arguments)
        (total,) = records("simulate", "--schedule", schedule, *arguments)
        for key in ("read_words", "write_words"):
            assert sum(line[key] for line in lines) == total[key]
        assert sum(line["share"] for line in lines) == pytest.approx(1)


def test_explain_shows_every_line_of_the_listing(tmp_path: Path) -> None:
    twice = tmp_path / "twice.py"
    twice.write_text(
        EXAMPLE.read_text().replace("load V_j", "load K_j").replace("split_loads", "twice")
    )
    shape = AttentionShape(8, 8, 8)
    lines = listing(family(f"{twice}:twice").build(shape, br=2, bc=2))
    result = run(
        *("explain", "--schedule", f"{twice}:twice", "--seq-len", "8", "--head-dim", "8"),
        *("--br", "2", "--bc", "2"),
    )
    shown = [line for line in result.stdout.splitlines() if line[:3].strip().isdigit()]
    assert [int(line[:3]) for line in shown] == [line.number for line in lines]
    first, second = [line.number for line in lines if line.text == "load K_j"]
    assert f"counted at line {first}, which reads the same" in result.stdout
    assert second > first


def test_bound_claims_by_schedule() -> None:
    arguments = ("bound", "--seq-len", "64k", "--head-dim", "64", "--sram", "65536w")
    free = {r["bound"]: r for r in records(*arguments)}
    assert free["general"]["holds"]
    assert not free["fused"]["holds"]
    # theory: (n_q n_k) (2 d)^2 / (M - 1), the known value 1.074e9
    assert free["fused"]["lower_bound_words"] == -(-(65536**2) * 128**2 // 65535)
    held = {r["bound"]: r["holds"] for r in records(*arguments, "--schedule", "flash2")}
    failing = {name for name, holds in held.items() if not holds}
    assert failing == {"two_matmuls", "small_memory"}
    unfit = records(*arguments, "--schedule", "standard")
    assert {r["bound"] for r in unfit if r["holds"]} == {"compulsory"}


def test_tiles_shows_given_sizes_once() -> None:
    given = ("tiles", *SHAPE, "--sram", "100KiB", "--br", "4", "--bc", "4")
    assert [r["tile_rule"] for r in records(*given, "--schedule", "flash1,flash2")] == ["given"] * 2


def test_tiles_gives_each_rule() -> None:
    found = records(
        *("tiles", "--schedule", "flash2", "--seq-len", "64k", "--head-dim", "64"),
        *("--sram", "65536w"),
    )
    by_rule = {r["tile_rule"]: r for r in found}
    assert set(by_rule) == {"paper", "largest", "best"}
    assert by_rule["best"]["br"] == 499
    assert by_rule["largest"]["br"] == by_rule["largest"]["bc"]
    assert by_rule["best"]["total_words"] == min(r["total_words"] for r in found)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("simulate",), ["--seq-len", "8k"]),
        (("simulate", "--seq-len", "1k"), ["--head-dim"]),
        (("simulate", *SHAPE), ["--br", "--bc", "--sram"]),
        (("simulate", *SHAPE, "--br", "4", "--sram", "100w"), ["100 words"]),
        (("simulate", "--seq-len", "0", "--head-dim", "64"), ["--seq-len", "'0'", "1"]),
        (("simulate", *SHAPE, "--br", "-1", "--bc", "1"), ["--br", "'-1'"]),
        (("simulate", *SHAPE, "--schedule", "flahs2"), ["flahs2", "flash2"]),
        (("simulate", *SHAPE, "--dtype", "flot16"), ["flot16", "float16"]),
        (("simulate", *SHAPE, "--heads", "8", "--kv-heads", "3"), ["--kv-heads 3", "--heads 8"]),
        (("simulate", *SHAPE, "--sram", "100"), ["--sram", "'100'", "100KiB"]),
        (("simulate", *SHAPE, "--tiles", "odd"), ["--tiles", "odd", "paper"]),
        (("bound", *SHAPE, "--sram", "999w", "--align", "top-left"), ["top-left", "--causal"]),
        (("simulate", *SHAPE, "--align", "top-left", "--no-causal"), ["top-left", "--causal"]),
        (("simulate", *SHAPE, "--sram", "1KiB", "--device", "a100"), ["--sram", "--device"]),
        (
            ("simulate", *SHAPE, "--tiles", "best", "--br", "1", "--bc", "1"),
            ["--tiles best", "--br"],
        ),
        (
            ("simulate", *SHAPE, "--schedule=flash2", "--br=1k", "--bc=8", "--sram=100KiB"),
            ["--br 1024", "Q[0:1024, 0:64]", "65536 words", "M is 51200"],
        ),
        (("bound", *SHAPE), ["--sram"]),
        (("tiles", *SHAPE, "--sram", "1KiB", "--schedule", "standard"), ["standard"]),
        (("tiles", *SHAPE, "--sram", "9KiB", "--schedule", "standard_tiled", "--tiles", "paper"),
         ["--tiles paper", "standard_tiled", "largest"]),
        (("plot",), ["WHAT", "length, dim, memory, ", "small_memory"]),
        (("plot", "length", "-o", ""), ["--output ''", "empty"]),
        (("simulate", *SHAPE, "--hed-dim", "1"), ["--hed-dim", "--head-dim"]),
    ],
)  # fmt: skip
def test_wrong_use_is_one_sentence(arguments: tuple[str, ...], named: list[str]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert len(result.stderr.splitlines()) == 1
    for text in named:
        assert text in result.stderr


def test_an_unwritable_output_leaves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "absent" / "out.json"
    result = run("simulate", *SHAPE, "--sram", "100KiB", "-o", str(file))
    assert result.exit_code == 2
    assert str(file) in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_dropout_is_in_the_record_and_in_the_counts() -> None:
    arguments = ("simulate", "--schedule", "standard,flash2", *SHAPE, "--br", "64", "--bc", "64")
    plain, drops = records(*arguments), records(*arguments, "--dropout", "0.1")
    assert [record["dropout"] for record in (*plain, *drops)] == [0.0, 0.0, 0.1, 0.1]
    more = [b["total_bytes"] - a["total_bytes"] for a, b in zip(plain, drops, strict=True)]
    assert more == [1024 * 1024 * (2 * 2 + 1), 16]
    bounds = records("bound", *SHAPE, "--sram", "9kw", "--dropout", "0.5")
    assert {record["dropout"] for record in bounds} == {0.5}
    page = run("explain", "--schedule", "flash2", *SHAPE, "--sram", "99KiB", "--dropout", "0.25")
    assert ", dropout 0.25, B_r" in page.stdout
    assert "writes seed: 1 word\n" in page.stdout


@pytest.mark.parametrize("text", ["1", "1.0", "-0.1", "nan", "ten", ""])
@pytest.mark.parametrize("command", ["simulate", "explain", "bound", "tiles"])
def test_a_rate_that_is_none_is_one_sentence(command: str, text: str) -> None:
    result = run(command, *SHAPE, "--sram", "100KiB", f"--dropout={text}")
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"'--dropout': '{text}' is not a number from 0 up to, but not includ" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_schedule_that_cannot_drop_says_so() -> None:
    mine = f"{EXAMPLE}:split_loads"
    result = run("simulate", "--schedule", mine, *SHAPE, "--sram", "9kw", "--dropout", "0.1")
    assert result.exit_code == 2
    assert "schedule 'split_loads' drops nothing, but the shape has dropout 0.1" in result.stderr
    checked = run("verify", "--only", "counting", "--schedule", mine)  # leaves such cases out
    assert checked.exit_code == 0
    assert "1 passed, 0 findings, 0 failed" in checked.stdout


def test_a_training_step_of_figure_2() -> None:
    *_, step = records(
        *("simulate", "--pass", "both", "--schedule", "standard_passes", *SHAPE),
        *("--heads", "16", "--batch", "64", "--dropout", "0.1"),
    )
    assert step["total_bytes"] == 40_266_366_976
