"""Masks as pictures, and what the flash schedules move under them against what they let meet."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from iosim.bounds import Bound, compulsory_words, fused, visible_pairs
from iosim.plot.style import LOOKS, halo, styled
from iosim.plot.text import memory_text, shape_text
from iosim.report import Simulation, simulate
from iosim.schedule.registry import family
from iosim.schedule.relation import relation_of
from iosim.shape import AttentionShape

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SCHEDULES = ("flash1", "flash2")


@dataclass(frozen=True)
class Point:
    """What a schedule moves for a masked shape, and the share of all pairs that its mask shows."""

    share: float
    run: Simulation
    bound: Bound

    @classmethod
    def of(cls, name: str, shape: AttentionShape, words: int) -> "Point":
        """Return the point of a schedule by name, with its tiles of least traffic for M words."""
        run = simulate(family(name), shape, sram_words=words)
        share = visible_pairs(shape) / (shape.n_q * shape.n_k)
        return cls(share, run, fused(shape, words, run.checked))


def draw_masks(
    named: Mapping[str, AttentionShape], sparse: Sequence[AttentionShape], words: int
) -> "Figure":
    """Return the figure: a picture of each named shape's mask, and traffic against what is seen.

    `sparse` are shapes under blocks at random, of one size and ever more of them, and make the
    curves; M has `words` words.
    """
    from matplotlib.figure import Figure

    first = next(iter(named.values()))
    with styled():
        figure = Figure(figsize=(10, 7.6), layout="constrained")
        above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=(1, 2.1))[:, 0]
        pictures = above.subplots(1, len(named), squeeze=False)[0]
        for (label, shape), ax in zip(named.items(), pictures, strict=True):
            _picture(label, shape, ax)
        ax = below.subplots()
        for name in SCHEDULES:
            _curve(name, [Point.of(name, shape, words) for shape in sparse], ax)
            for label, shape in named.items():
                if shape not in sparse:
                    _mark(label, Point.of(name, shape, words), ax, with_label=name == "flash2")
        _finish(replace(first, causal=False, mask=None), words, ax)
    return figure


def _picture(label: str, shape: AttentionShape, ax: "Axes") -> None:
    """Draw which of 256 queries see which of 256 keys, spread over all of them (black: seen)."""
    mask = relation_of(shape)
    rows, columns = (np.linspace(0, n - 1, 256).astype(int) for n in (shape.n_q, shape.n_k))
    seen = np.ones((256, 256), np.bool_)
    if mask is not None:
        for at, row in enumerate(rows.tolist()):
            visible = mask.visible(slice(row, row + 1), slice(0, shape.n_k))
            if visible is not None:
                seen[at] = visible[0, columns]
    ax.imshow(seen, cmap="gray_r", interpolation="nearest", extent=(0, 1, 1, 0))
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(True)
    ax.grid(visible=False)
    share = visible_pairs(shape) / (shape.n_q * shape.n_k)
    ax.set_title(f"{label}\n{100 * share:.3g} % of pairs", loc="center")
    ax.set_xlabel("keys")
    ax.set_ylabel("queries")


def _curve(name: str, points: Sequence[Point], ax: "Axes") -> None:
    look = LOOKS[name, "best"]
    mask = points[0].run.schedule.shape.mask
    blocks = (1, 1) if mask is None else mask.grain
    shares = [point.share for point in points]
    ax.plot(
        shares,
        [point.run.traffic.total_words for point in points],
        color=look.colour,
        marker=look.marker,
        markersize=4,
        label=f"{name}, blocks of {' x '.join(map(str, blocks))} at random",
    )
    if name == "flash2":
        ax.plot(
            shares,
            [point.bound.words for point in points],
            color="#00465F",
            linestyle=(0, (6, 2)),
            label="fused: (visible pairs) 4d² / (M − 1)",
        )


def _mark(label: str, point: Point, ax: "Axes", *, with_label: bool) -> None:
    look = LOOKS[point.run.schedule.name, "best"]
    words = point.run.traffic.total_words
    ax.plot(
        [point.share],
        [words],
        linestyle="none",
        marker=look.marker,
        markersize=9,
        color=look.colour,
        markeredgecolor="black",
        zorder=4,
    )
    if with_label:
        ax.annotate(
            label,
            (point.share, words),
            xytext=(0, -15),
            textcoords="offset points",
            ha="center",
            fontsize=8,
            path_effects=halo(),
        )


def _finish(shape: AttentionShape, words: int, ax: "Axes") -> None:
    from matplotlib.ticker import FixedLocator, NullLocator, PercentFormatter

    least = sum(compulsory_words(shape))
    ax.axhline(least, color="black", label="compulsory, where every row is seen")
    ax.set(xscale="log", yscale="log")
    ax.xaxis.set_major_locator(FixedLocator([0.02, 0.05, 0.1, 0.2, 0.5, 1]))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    ax.set_xlabel("pairs of a query and a key that the mask shows, of all pairs")
    ax.set_ylabel("traffic (words)")
    ax.legend(loc="upper left")
    ax.set_title(
        f"{shape_text(shape)}, {memory_text(words, shape)}; tiles of least "
        "traffic; named masks have black edges"
    )
