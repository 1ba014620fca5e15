"""`iosim plot measured`: what it draws is the recording, beside what is counted now."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from iosim import measured
from iosim.cli import main
from iosim.plot.figures import draw_measured

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


@pytest.mark.parametrize("arguments", [["measured"], ["memory", "--measured", str(RECORDING)]])
def test_the_figure_and_the_recording_go_together(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["plot", *arguments])
    assert result.exit_code == 2
    assert "--measured" in result.output
    assert list(tmp_path.iterdir()) == []
