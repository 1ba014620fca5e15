"""The figure of masks: its pictures are the masks, its points are counts."""

from dataclasses import replace

import naive
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from iosim.bounds import compulsory_words
from iosim.plot.masks import SCHEDULES, Point, draw_masks
from iosim.reading.count import count
from iosim.schedule import family
from iosim.schedule.masks import Random, Window
from iosim.shape import AttentionShape

WHOLE = AttentionShape(256, 256, 8)
NAMED = {
    "causal": replace(WHOLE, causal=True),
    "window": replace(WHOLE, mask=Window(20, 3)),
    "random": replace(WHOLE, mask=Random(0.25, 32)),
}
SPARSE = [replace(WHOLE, mask=Random(density, 32)) for density in (0.25, 0.5, 1)]
WORDS = 2000


@pytest.fixture(scope="module")
def figure() -> Figure:
    return draw_masks(NAMED, SPARSE, WORDS)


def curves(figure: Figure) -> Axes:
    return figure.axes[-1]


def test_a_picture_is_the_mask(figure: Figure) -> None:
    for shape, ax in zip(NAMED.values(), figure.axes, strict=False):
        (image,) = ax.get_images()
        assert (np.asarray(image.get_array(), bool) == np.array(naive.visible_of(shape))).all()
        share = 100 * naive.visible_pairs(shape) / 256**2
        assert f"{share:.3g} % of pairs" in ax.get_title(loc="center")


def test_points_are_counts_of_tiles_that_fit(figure: Figure) -> None:
    lines = {line.get_label(): line for line in curves(figure).get_lines()}
    for name in SCHEDULES:
        line = lines[f"{name}, blocks of 32 x 32 at random"]
        for x, y, shape in zip(*line.get_data(), SPARSE, strict=True):
            point = Point.of(name, shape, WORDS)
            assert (x, y) == (
                naive.visible_pairs(shape) / 256**2,
                count(family(name).build(shape, **point.run.tiles.sizes)).total_words,
            )
            assert point.run.fits
            assert y >= point.bound.words


def test_named_masks_that_are_no_point_of_a_curve_are_marked(figure: Figure) -> None:
    marks = [line for line in curves(figure).get_lines() if line.get_linestyle() == "None"]
    assert len(marks) == 2 * len(SCHEDULES)
    named = {text.get_text() for text in curves(figure).texts}
    assert named == {"causal", "window"}


def test_the_least_there_is_stands_beside(figure: Figure) -> None:
    (line,) = [
        line
        for line in curves(figure).get_lines()
        if str(line.get_label()).startswith("compulsory")
    ]
    assert set(line.get_ydata()) == {sum(compulsory_words(WHOLE))}
    ax = curves(figure)
    assert "words" in ax.get_ylabel()
    assert "M = 2 000 words" in ax.get_title(loc="left")
