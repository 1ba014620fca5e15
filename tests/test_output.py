"""Tables, JSON and CSV of records, and files that are written whole or not at all."""

import csv
import errno
import io
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iosim import output
from iosim.errors import IosimError

RECORDS = [
    {
        "schedule": "flash2",
        "n_q": 8192,
        "causal": False,
        "read_words": 272629760,
        "gap": 1.03875,
        "tensors": {"Q": {"read_words": 524288, "write_words": 0}},
    },
    {
        "schedule": "standard",
        "n_q": 8192,
        "causal": True,
        "read_words": 5,
        "gap": None,
        "tensors": {"S": {"read_words": 7, "write_words": 7}},
    },
]

keys = st.text(st.characters(codec="ascii", categories=["Ll"]), min_size=1, max_size=6)
# Control characters are left out: Python's csv does not quote a lone carriage return.
texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]))
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts
flat_records = st.lists(st.dictionaries(keys, scalars, min_size=1), min_size=1, max_size=5)


def test_table_of_records() -> None:
    assert output.table(RECORDS) == (
        "schedule    n_q  causal  read (words)    gap\n"
        "flash2    8 192  no       272 629 760  1.039\n"
        "standard  8 192  yes                5      -\n"
    )


def test_table_of_chosen_columns_and_of_nothing() -> None:
    assert output.table(RECORDS, ["n_q", "none"]) == "  n_q  none\n8 192     -\n8 192     -\n"
    assert output.table([], ["n_q"]) == "n_q\n"
    assert output.table([]) == ""


@given(flat_records)
def test_lines_of_a_table_hold_one_record_each(records: list[dict[str, object]]) -> None:
    plain = [
        {k: v for k, v in record.items() if not isinstance(v, str)} | {"end": "|"}
        for record in records
    ]
    lines = output.table(plain).splitlines()
    assert len(lines) == 1 + len(plain)


@given(flat_records)
def test_json_round_trips(records: list[dict[str, object]]) -> None:
    finite = [
        {k: v for k, v in r.items() if v not in (float("inf"), -float("inf"))} for r in records
    ]
    assert json.loads(output.to_json(finite)) == {"schema": 1, "records": finite}


def test_json_has_no_numbers_that_json_does_not_have() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        output.to_json([{"gap": float("nan")}])


@given(flat_records)
def test_csv_round_trips_as_text(records: list[dict[str, object]]) -> None:
    def text(value: object) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        return "" if value is None else str(value)

    rows = list(csv.DictReader(io.StringIO(output.to_csv(records), newline="")))
    columns = {key for record in records for key in record}
    assert rows == [{key: text(record.get(key)) for key in columns} for record in records]


def test_csv_flattens_tensors() -> None:
    assert output.to_csv(RECORDS) == (
        "schedule,n_q,causal,read_words,gap,tensors.Q.read_words,tensors.Q.write_words,"
        "tensors.S.read_words,tensors.S.write_words\n"
        "flash2,8192,false,272629760,1.03875,524288,0,,\n"
        "standard,8192,true,5,,,,7,7\n"
    )


def test_render_knows_its_forms() -> None:
    assert output.render(RECORDS, "csv") == output.to_csv(RECORDS)
    assert output.render(RECORDS, "json", ["n_q"]) == output.to_json(RECORDS)
    assert output.render(RECORDS, "table", ["n_q"]) == output.table(RECORDS, ["n_q"])
    with pytest.raises(IosimError, match=r"^unknown --format 'jsn'; did you mean 'json'\?"):
        output.render(RECORDS, "jsn")


@pytest.mark.parametrize("path", [None, "-", Path("-")])
def test_dash_and_nothing_are_standard_output(
    path: str | Path | None, capsys: pytest.CaptureFixture[str]
) -> None:
    output.write_text(path, "text\n")
    assert capsys.readouterr() == ("text\n", "")


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_text("old")
    output.write_text(path, "µ new\n")
    assert path.read_text(encoding="utf-8") == "µ new\n"
    assert [p.name for p in tmp_path.iterdir()] == ["out.csv"]


def test_a_failure_keeps_the_old_file_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "out.svg"
    path.write_text("old")

    def write_half() -> None:
        with output.replacing(path) as beside:
            beside.write_text("half of it")
            assert beside.suffix == ".svg"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_half()
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["out.svg"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.csv").write_text("old")
    link = tmp_path / "link.csv"
    link.symlink_to("real.csv")
    output.write_text(link, "new")
    assert link.is_symlink()
    assert (tmp_path / "real.csv").read_text() == "new"


def test_a_pipe_is_written_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        output.write_text(path, "text\n")
        assert os.read(reader, 100) == b"text\n"
    finally:
        os.close(reader)
    assert path.is_fifo()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("none/out.csv", "there is no folder"),
        ("file/out.csv", "there is no folder"),
        (".", "it is a folder"),
    ],
)
def test_a_path_that_cannot_be_written_is_one_sentence(
    tmp_path: Path, name: str, reason: str
) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / name
    with pytest.raises(IosimError) as caught:
        output.write_text(path, "text")
    assert str(caught.value).startswith(f"--output '{path}' cannot be written ({reason}")
    with pytest.raises(IosimError, match=r"^--plots "):
        output.check_writable(path, "--plots")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_an_error_while_writing_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    with (
        pytest.raises(IosimError, match=r"out\.csv' cannot be written \(No space left"),
        output.replacing(path),
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert not any(tmp_path.iterdir())


def test_a_closed_pipe_is_no_error_of_the_path(tmp_path: Path) -> None:
    with pytest.raises(BrokenPipeError), output.replacing(tmp_path / "out.csv"):
        raise BrokenPipeError


def test_a_link_that_leads_to_itself_gives_way(tmp_path: Path) -> None:
    path = tmp_path / "loop"
    path.symlink_to(path)
    output.write_text(path, "text")
    assert path.read_text() == "text"


@pytest.mark.parametrize(
    ("name", "reason"), [("", "the name is empty"), ("a" * 300, "File name too long")]
)
def test_a_name_that_no_file_can_have(name: str, reason: str) -> None:
    with pytest.raises(IosimError, match=rf"^--output '{name}' cannot be written \({reason}\)"):
        output.check_writable(name)
