"""The figure of rounding errors shows what the executor, the reference and the bounds give."""

from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from iosim import reference, tolerance
from iosim.errors import IosimError
from iosim.plot import rounding
from iosim.plot.figures import FIGURES, Request, draw_errors
from iosim.plot.style import styled
from iosim.precision import NAMES
from iosim.reading.execute import execute
from iosim.schedule import family
from iosim.shape import AttentionShape

# What rounding depends on, by the order of loops: written down here, not read off the tree.
EXECUTIONS: dict[str, dict[str, Any]] = {
    "flash1": {"stored_output_per_tile": True},
    "flash2": {},
}


def expected(name: str, dtype: str, n: int, tile: int) -> dict[str, float]:
    """The largest error of a schedule with 4 queries and d = 8, and the largest bounds."""
    q, k, v = rounding.inputs(4, n, 8, dtype)
    schedule = family(name).build(AttentionShape(4, n, 8, dtype=dtype), br=tile, bc=tile)
    error = execute(schedule, q, k, v).O - reference.attention(q, k, v)[0]
    execution = tolerance.Execution(
        dtype, 8, n, tiles=-(-n // tile), largest_tile=min(tile, n), **EXECUTIONS[name]
    )
    bounds = {
        form: tolerance.elementwise_error(execution, q, k, v, form=form)[0].max()
        for form in ("worst", "probable")
    }
    return {"measured": float(abs(error).max()), **bounds}


def drawn(lines: list[rounding.Line]) -> dict[str, dict[int, float]]:
    with styled():
        ax = Figure().subplots()
        rounding.draw_rounding(lines, ax)
    return {
        str(line.get_label()): dict(zip(*map(list, line.get_data()), strict=True))
        for line in ax.get_lines()
    }


@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_lines_against_keys_are_what_the_library_computes(dtype: str) -> None:
    lines = [
        rounding.against_keys(family(name), dtype, (16, 40), n_q=4, head_dim=8, tile=16)
        for name in EXECUTIONS
    ]
    shown = drawn(lines)
    assert len(shown) == 6
    for name in EXECUTIONS:
        for n in (16, 40):
            for kind, value in expected(name, dtype, n, 16).items():
                assert shown[f"{kind} {name}"][n] == pytest.approx(value)


def test_lines_against_tiles_are_what_the_library_computes() -> None:
    lines = [
        rounding.against_tiles(family(name), "float16", (1, 4), n_q=4, n_k=32, head_dim=8)
        for name in EXECUTIONS
    ]
    shown = drawn(lines)
    for name in EXECUTIONS:
        for tiles in (1, 4):
            for kind, value in expected(name, "float16", 32, 32 // tiles).items():
                assert shown[f"{kind} {name}"][tiles] == pytest.approx(value)


def test_errors_lie_below_the_bounds() -> None:
    for name in ("standard", "standard_tiled", "flash1", "flash2"):
        shape = AttentionShape(4, 64, 16, dtype="float32")
        point = rounding.point(family(name), shape, 16)
        assert 0 < point.measured < point.probable < point.worst


def test_the_figure_has_a_column_for_each_dtype_and_a_row_for_each_sweep() -> None:
    figure = draw_errors([family("standard"), family("flash2")], 256, 16)
    assert [ax.get_title(loc="left") for ax in figure.axes[:4]] == list(NAMES)
    for ax in figure.axes[:4]:
        assert len(ax.get_lines()) == 6
        assert list(ax.get_lines()[0].get_xdata()) == [64, 256]
    for ax in figure.axes[4:]:
        assert len(ax.get_lines()) == 3  # standard has no tiles
        assert list(ax.get_lines()[0].get_xdata()) == [1, 4, 16]


def test_inputs_are_of_the_dtype_and_always_the_same() -> None:
    q, k, v = rounding.inputs(2, 3, 4, "bfloat16")
    assert (q.shape, k.shape, v.shape) == ((2, 4), (3, 4), (3, 4))
    for first, again in zip((q, k, v), rounding.inputs(2, 3, 4, "bfloat16"), strict=True):
        np.testing.assert_array_equal(first, again)
        assert (first.view(np.uint32) << 16 == 0).all()


@pytest.mark.parametrize("changes", [{"causal": True}, {"heads": 2}])
def test_what_the_figure_does_not_show_is_refused(changes: dict[str, Any]) -> None:
    request = Request(shape=AttentionShape(64, 64, 8, **changes))
    with pytest.raises(IosimError, match=r"one head without a mask.*leave them out"):
        FIGURES["rounding"](request)
    with pytest.raises(IosimError, match=r"--tiles have no place"):
        FIGURES["rounding"](Request(shape=AttentionShape(64, 64, 8), rule="paper"))
