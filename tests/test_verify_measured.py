"""`iosim verify --measured`: a recording is checked against the counts, and can fail."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from iosim.cli import main

RECORDING = Path(__file__).parents[1] / "docs" / "data" / "h200_sweep.json"


def verify(path: Path) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["verify", "--measured", str(path)])
    return result.exit_code, result.output


def test_the_recording_of_the_h200_passes() -> None:
    code, output = verify(RECORDING)
    assert code == 0, output
    assert "NVIDIA H200" in output
    assert "0 failed" in output


@pytest.mark.parametrize("key", ["sm_read_bytes", "sm_write_bytes"])
def test_a_byte_count_that_is_off_fails(key: str, tmp_path: Path) -> None:
    document: dict[str, Any] = json.loads(RECORDING.read_text(encoding="utf-8"))
    row = next(r for r in document["records"] if r["schedule"] == "flash2")
    row[key] = round(row[key] * 1.001)
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps(document))
    code, output = verify(changed)
    assert code == 1
    assert "FAIL" in output


def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text("[]")
    for path in (other, tmp_path / "absent.json"):
        code, output = verify(path)
        assert code == 2
        assert str(path) in output
        assert len(output.splitlines()) == 1


def test_it_goes_with_no_other_check() -> None:
    arguments = ["verify", "--measured", str(RECORDING), "--only", "counting"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert "--measured" in result.output
