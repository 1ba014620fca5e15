"""The figure of a training step: its bars are the counts, line by line and kind by kind."""

import pytest

from iosim.plot.training_step import COLOURS, FEW, MASK, MATRIX, draw_training_step, line_bytes
from iosim.proofs.claims.recompute_figure2 import bytes_of, flash_step, standard_step
from iosim.reading.count import count
from iosim.shape import AttentionShape

SHAPE = AttentionShape(64, 64, 8, heads=2, dtype="float16", dropout=0.1)
STEPS = {
    "standard": standard_step(SHAPE, mask_pass=True),
    "flash": flash_step(SHAPE, (32, 16)),
}


@pytest.mark.parametrize("name", STEPS)
def test_lines_add_up_to_the_counts(name: str) -> None:
    step = STEPS[name]
    lines = list(line_bytes(step))
    assert sum(line.total for line in lines) == bytes_of(step)
    for schedule in step:
        own = [line for line in lines if line.schedule == schedule.name]
        assert {line.line for line in own} == set(count(schedule).lines)
        assert sum(line.total for line in own) == count(schedule).total_bytes


def test_kinds_are_what_they_are_called() -> None:
    pairs = 2 * 64 * 64
    kinds = {
        name: {kind: sum(line.by_kind[kind] for line in line_bytes(step)) for kind in COLOURS}
        for name, step in STEPS.items()
    }
    assert kinds["standard"][MATRIX] == 17 * pairs * 2  # 18 N^2 less the bytes of Z
    assert kinds["standard"][MASK] == 2 * pairs + 2 * 64
    assert kinds["standard"][FEW] == 0
    assert kinds["flash"][MATRIX] == kinds["flash"][MASK] == 0
    statistics = 2 * 64 * 4 * (2 + 2 * 4 + 4 * 2)  # l, m: to start, T_c = 2 both ways, T_c = 4 in
    assert kinds["flash"][FEW] == statistics + 2 * 16


def test_bars_are_as_long_as_the_counts() -> None:
    figure = draw_training_step(list(STEPS.values()))
    for step, ax in zip(STEPS.values(), figure.axes, strict=True):
        lines = list(line_bytes(step))
        ends = [0.0] * len(lines)
        for bar in ax.patches:
            ends[round(bar.get_y() + bar.get_height() / 2)] += bar.get_width()
        assert ends == pytest.approx([line.total / 1e9 for line in lines], rel=1e-12)
        assert [label.get_text() for label in ax.get_yticklabels()] == [each.line for each in lines]
        for schedule in step:
            assert schedule.name in ax.get_title(loc="left")
    assert "GB" in figure.axes[-1].get_xlabel()
