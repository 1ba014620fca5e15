"""The figure of slow memory: its points are read off schedules, and what the legend says fits."""

from typing import Any

import pytest
from matplotlib.figure import Figure

from iosim.errors import IosimError
from iosim.machine import machine
from iosim.plot import figures
from iosim.plot.figures import FIGURES, Request, default_request
from iosim.plot.slow_memory import draw_growth, growth
from iosim.plot.style import styled
from iosim.schedule import family
from iosim.shape import AttentionShape

SHAPE = AttentionShape(1, 1, 64)
LENGTHS = (16384, 1024, 4096)


def test_the_lines_are_the_bytes_by_hand() -> None:
    """2 N^2 words of float16, N^2 of them and 2 N of float32, 2 N and N of float32."""
    device = machine("H200")
    names = ("standard", "square_tiling", "flash1", "flash2")
    every = [growth(family(name), SHAPE, LENGTHS, device.hbm_bytes) for name in names]
    with styled():
        ax = Figure().subplots()
        draw_growth(every, device, ax)
    lines: dict[str, Any] = {str(line.get_label()): line for line in ax.get_lines()}
    expected = {
        "standard: up to N = 187 685": lambda n: 4 * n * n,
        "square_tiling: up to N = 265 388": lambda n: 2 * n * n + 8 * n,
        "flash1: up to N = 271 153 846": lambda n: 8 * n,
        "flash2: up to N = 273 255 813": lambda n: 4 * n,
        "Q, K, V and O": lambda n: 4 * 2 * 64 * n,
    }
    for label, size in expected.items():
        lengths = sorted(LENGTHS)
        assert list(lines[label].get_xdata()) == lengths
        assert list(lines[label].get_ydata()) == [size(n) for n in lengths]
    assert any(list(line.get_ydata()) == [141e9, 141e9] for line in lines.values())


def test_by_default_even_a_linear_extra_fills_the_device() -> None:
    lengths = default_request("slow_memory").lengths
    assert lengths[0] < 187_685 < lengths[-1]
    assert default_request("memory").lengths == figures.LENGTHS
    (title,) = FIGURES["slow_memory"](Request(lengths=LENGTHS)).texts
    assert title.get_text() == "Slow memory against sequence length\nd = 64, one head, float16"


def test_a_rule_for_tiles_is_refused() -> None:
    with pytest.raises(IosimError, match="--tiles best has no place in a figure of slow memory"):
        FIGURES["slow_memory"](Request(rule="best"))


def test_the_small_memories_show_the_crossover_from_square_tiling() -> None:
    request = Request(
        shape=AttentionShape(256, 256, 32), memories=(128, 512, 2048), marked={"here": 1024}
    )
    drawn = FIGURES["small_memory"](request)
    texts = [text.get_text() for text in drawn.axes[0].texts]
    assert any("flash2 moves less than square_tiling" in text for text in texts)
