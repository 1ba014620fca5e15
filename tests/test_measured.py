"""Recordings of hardware: the committed one holds, and a wrong one is found out."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from iosim.errors import IosimError
from iosim.measured import Recording, Row, draw, fit, in_law, load, statements
from iosim.shape import AttentionShape

RECORDING = Path(__file__).parents[1] / "docs/data/h200_sweep.json"


def row(n: int = 8192, d: int = 64, br: int = 64, name: str = "flash2", **changes: object) -> Row:
    """Return a row whose bytes are what the schedule says."""
    made = Row(name, AttentionShape(n, n, d), {"br": br, "bc": 64}, spill_bytes=0)
    counted = made.counted()
    exact = {"sm_read_bytes": counted.read_bytes, "sm_write_bytes": counted.write_bytes}
    return replace(made, **(exact | changes))


def recording(*rows: Row) -> Recording:
    return Recording("a device", "1", "2026-01-01", {}, {}, rows)


def grid() -> list[Row]:
    return [row(n, d, br) for n in (8192, 65536) for d in (64, 128) for br in (32, 128)]


def test_the_committed_recording_holds():
    found = load(RECORDING)
    assert len(found.rows) > 200
    made = statements(found)
    assert [one.text for one in made if not one.holds] == []
    assert len(made) >= 9


def test_a_recording_survives_writing_and_reading(tmp_path):
    path = tmp_path / "rows.json"
    whole = recording(*grid())
    path.write_text(json.dumps(whole.to_dict()))
    assert load(path) == whole


def test_counts_are_made_afresh_and_not_believed(tmp_path):
    document = recording(row()).to_dict()
    document["records"][0]["counted_read_bytes"] = 1
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(document))
    assert all(one.holds for one in statements(load(path)))


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([row(sm_read_bytes=None)], None),
        ([row(sm_read_bytes=int(row().counted().read_bytes * 1.0001))], "read"),
        ([row(sm_write_bytes=1)], "write"),
        ([row(spill_bytes=32)], "spilled"),
        ([row(name="flash1", sm_read_bytes=1)], "flash1"),
        ([replace(one, sm_read_bytes=one.sm_read_bytes * one.shape.n_q) for one in grid()], "N >="),
    ],
)  # fmt: skip
def test_what_is_wrong_fails_its_check(rows, complaint):
    made = statements(recording(*rows))
    failed = [f"{one.subject}: {one.text}" for one in made if not one.holds]
    assert bool(failed) == (complaint is not None)
    assert complaint is None or any(complaint in name for name in failed)


def test_the_fit_finds_an_exact_law():
    rows = [
        replace(one, sm_read_bytes=round(12 * one.shape.n_q**2 * 64**2 / one.memory_words))
        for one in grid()
        if one.shape.head_dim == 64
    ]
    rows += [
        replace(
            one,
            shape=replace(one.shape, head_dim=128, value_dim=128),
            sm_read_bytes=round(
                12 * one.shape.n_q**2 * 128**2 / (2 * one.memory_words)
            ),
        )
        for one in rows
    ]  # fmt: skip
    law = fit(rows)
    assert np.allclose([law.constant, law.n, law.d, law.memory], [12, 2, 2, -1], rtol=1e-6)
    assert law.residual < 1e-6


def test_the_law_of_the_count_is_that_of_the_theorem():
    # 4 N^2 d^2 / M words of 2 bytes, and the rows of Q, K and V once.
    law = fit(grid())
    assert law.constant == pytest.approx(8, rel=0.05)
    assert all(in_law(one) for one in grid())


def test_a_fit_needs_more_than_one_length():
    with pytest.raises(IosimError, match="several lengths"):
        fit([row(br=br) for br in (16, 32, 64, 128)])


@pytest.mark.parametrize("text", ["", "[]", '{"schema": 2}', '{"schema": 1}', "{"])
def test_a_file_that_is_no_recording_is_one_sentence(tmp_path, text):
    path = tmp_path / "wrong.json"
    path.write_text(text)
    with pytest.raises(IosimError, match=r"wrong\.json"):
        load(path)
    with pytest.raises(IosimError, match="cannot be read"):
        load(tmp_path / "absent.json")


def test_the_figure_has_a_mark_for_each_row():
    from matplotlib.figure import Figure

    ax = Figure().subplots()
    draw([*grid(), row(name="flash1")], ax)
    marks = {line.get_label(): len(line.get_xdata()) for line in ax.get_lines()}
    assert marks == {"equal": 2, "flash2": 8, "flash1": 1}
    with pytest.raises(IosimError, match="no bytes"):
        draw([row(sm_read_bytes=None)], Figure().subplots())
