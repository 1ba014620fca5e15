"""`iosim plot measured`: what it draws is the recording, beside what is counted now."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from iosim import measured
from iosim.cli import main
from iosim.errors import IosimError
from iosim.gpu import launch, measure
from iosim.plot.figures import draw_measured
from iosim.schedule.tree import Schedule
from iosim.shape import AttentionShape

RECORDING = Path(__file__).parents[1] / "docs" / "data" / "h200_sweep.json"


def test_the_marks_are_the_rows() -> None:
    recording = measured.load(RECORDING)
    (ax,) = draw_measured(recording).axes
    drawn = {
        (str(line.get_label()), x, y)
        for line in ax.get_lines()
        if line.get_label() != "equal"
        for x, y in zip(*line.get_data(), strict=True)
    }
    expected = {
        (
            row.schedule,
            row.counted().total_bytes,
            (row.sm_read_bytes or 0) + (row.sm_write_bytes or 0),
        )
        for row in recording.rows
    }
    assert drawn == expected
    assert "bytes" in ax.get_xlabel()
    assert "bytes" in ax.get_ylabel()


def test_it_is_written(tmp_path: Path) -> None:
    file = tmp_path / "measured.svg"
    arguments = ["plot", "measured", "--measured", str(RECORDING), "-o", str(file)]
    assert CliRunner().invoke(main, arguments).exit_code == 0
    assert file.stat().st_size > 0


def test_a_recording_is_for_this_figure_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["plot", "memory", "--measured", str(RECORDING)])
    assert result.exit_code == 2
    assert "--measured" in result.output
    assert list(tmp_path.iterdir()) == []


def test_without_a_gpu_it_is_the_recording_that_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_gpu() -> None:
        raise IosimError("no GPU can be used here")

    monkeypatch.setattr(launch, "context", no_gpu)
    file = tmp_path / "measured.svg"
    result = CliRunner().invoke(main, ["plot", "measured", "-o", str(file)])
    assert result.exit_code == 0
    assert "recording of NVIDIA H200 of 2026-11-30, since no GPU can be used here" in result.stderr
    kept = tmp_path / "kept.svg"
    CliRunner().invoke(main, ["plot", "measured", "--measured", str(RECORDING), "-o", str(kept)])
    assert file.read_text() == kept.read_text()


def test_with_a_gpu_it_is_a_run_of_what_the_options_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Schedule] = []

    def run(schedules: list[Schedule]) -> measured.Recording:
        asked.extend(schedules)
        return measured.load(RECORDING)

    monkeypatch.setattr(launch, "context", lambda: None)
    monkeypatch.setattr(measure, "measure", run)
    options = ["--schedule", "flash2", "--seq-len", "2k,4k", "--head-dim", "64", "--causal"]
    file = tmp_path / "measured.svg"
    result = CliRunner().invoke(main, ["plot", "measured", *options, "-o", str(file)])
    assert result.exit_code == 0
    assert result.stderr == ""
    shapes = [AttentionShape(n, n, 64, causal=True) for n in (2048, 4096)]
    assert [schedule.shape for schedule in asked] == shapes
    assert {schedule.name for schedule in asked} == {"flash2"}
