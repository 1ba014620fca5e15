"""The figure of walks: its marks are the recording, its lines what is replayed now."""

import json
from pathlib import Path

from iosim.device.profile import profile
from iosim.device.walks import replay, walk_of
from iosim.plot.l2_walks import CURVES, draw_walks

RECORDING = Path(__file__).parents[1] / "docs" / "data" / "h200_l2_walks.json"


def test_the_marks_are_measured_and_the_lines_replayed() -> None:
    record = json.loads(RECORDING.read_text(encoding="utf-8"))
    (ax,) = draw_walks(record).axes
    lines = [line for line in ax.get_lines() if len(line.get_xdata()) > 2]
    curves = list(zip(lines[::2], lines[1::2], strict=True))
    assert len(curves) == len(CURVES)
    for (name, (label, _)), (line, marks) in zip(CURVES.items(), curves, strict=True):
        assert marks.get_label() == label
        drawn = set(zip(*marks.get_data(), strict=True))
        replayed = dict(zip(*line.get_data(), strict=True))
        entries = {e["mib"]: e for e in record["walks"] if e["name"] == name}  # the longest of each
        assert len(entries) == len(drawn) == len(replayed) > 5
        for mib, entry in entries.items():
            walk = walk_of(entry, record["chunk_bytes"])
            assert (mib, walk.share_again(entry["hbm_read_bytes"])) in drawn
            found = replay(walk, profile("H200"), block_sides=entry.get("sides"))
            assert replayed[mib] == walk.share_again(found)
    assert "MiB" in ax.get_xlabel()
    assert "share" in ax.get_ylabel()
    assert record["device"] in ax.figure.get_suptitle()
