"""The rounding error of executed schedules beside both of its bounds: the data, and the drawing.

Everything is computed when it is asked for. Errors are absolute, of normal inputs (mean 0, variance
1), so that a value of 1 is an ordinary one; no unit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from iosim import reference, tolerance
from iosim.plot.style import Look, binary_ticks, looks
from iosim.plot.sweep import Choice
from iosim.precision import Array, precision
from iosim.reading.execute import execute
from iosim.schedule.registry import Family
from iosim.shape import AttentionShape
from iosim.verify.exactness import rounding_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

X_LABELS = {
    "length": "keys N (rows; k = 1024)",
    "tiles": "key tiles T (no unit)",
}
DASHES: dict[str, Any] = {"measured": "solid", "probable": (0, (4, 1.5)), "worst": (0, (1, 1.5))}


@dataclass(frozen=True)
class Point:
    """The largest error of an element of O, and the largest bound of each form."""

    measured: float
    probable: float
    worst: float


@dataclass(frozen=True)
class Line:
    """A schedule in a dtype along a sweep: ``xs`` are keys N ("length"), or key tiles ("tiles")."""

    family: Family
    dtype: str
    what: str
    xs: tuple[int, ...]
    points: tuple[Point, ...]


def inputs(n_q: int, n_k: int, head_dim: int, dtype: str) -> tuple[Array, Array, Array]:
    """Return normal q (n_q, d), k and v (n_k, d) of a dtype, the same every time."""
    form = precision(dtype)
    rng = np.random.default_rng(0)
    q, k, v = (
        form.round(rng.standard_normal((n, head_dim)).astype(form.accumulator))
        for n in (n_q, n_k, n_k)
    )
    return q, k, v


def point(chosen: Family, shape: AttentionShape, tile: int) -> Point:
    """Execute a schedule of one head with B_r = B_c = ``tile`` rows, and compare it.

    >>> from iosim.schedule import family
    >>> found = point(family("flash2"), AttentionShape(8, 256, 16, dtype="float32"), 64)
    >>> found.measured < found.probable < found.worst
    True
    """
    schedule = chosen.build(shape, **dict.fromkeys(chosen.tiles, tile))
    q, k, v = inputs(shape.n_q, shape.n_k, shape.head_dim, shape.dtype)
    error = abs(execute(schedule, q, k, v).O - reference.attention(q, k, v)[0])
    rounding = rounding_of(schedule)
    probable, worst = (
        float(tolerance.elementwise_error(rounding, q, k, v, form=form)[0].max())
        for form in ("probable", "worst")
    )
    return Point(float(error.max()), probable, worst)


def against_keys(
    chosen: Family, dtype: str, lengths: Sequence[int], *, n_q: int, head_dim: int, tile: int
) -> Line:
    """Return a line against the number of keys, in tiles of ``tile`` rows."""
    shapes = [AttentionShape(n_q, n, head_dim, dtype=dtype) for n in lengths]
    points = tuple(point(chosen, shape, tile) for shape in shapes)
    return Line(chosen, dtype, "length", tuple(lengths), points)


def against_tiles(
    chosen: Family, dtype: str, counts: Sequence[int], *, n_q: int, n_k: int, head_dim: int
) -> Line:
    """Return a line against the number of key tiles that ``n_k`` keys are cut into."""
    shape = AttentionShape(n_q, n_k, head_dim, dtype=dtype)
    points = tuple(point(chosen, shape, -(-n_k // count)) for count in counts)
    return Line(chosen, dtype, "tiles", tuple(counts), points)


def draw_rounding(lines: Sequence[Line], ax: "Axes") -> None:
    """Draw lines of one dtype and one sweep: errors with markers, bounds without."""
    ax.set(xscale="log", yscale="log")
    for line, look in zip(lines, _looks(lines), strict=True):
        for form, dashes in DASHES.items():
            ax.plot(
                line.xs,
                [getattr(each, form) for each in line.points],
                color=look.colour,
                linestyle=dashes,
                linewidth=1.2,
                marker=look.marker if form == "measured" else "",
                markersize=5,
                label=f"{form} {line.family.name}",
            )
    xs = sorted({x for line in lines for x in line.xs})
    ax.set_xlim(xs[0] / 1.2, xs[-1] * 1.2)
    binary_ticks(ax.xaxis, xs[0], xs[-1], most=5)
    ax.set_xlabel(X_LABELS[lines[0].what])
    ax.set_ylabel("error of O (no unit)")


def draw_legend(lines: Sequence[Line], ax: "Axes") -> None:
    """Put the legend of such lines to the right of the axes."""
    from matplotlib.lines import Line2D

    kinds = {
        "measured": "largest error measured",
        "probable": "probable bound (a model)",
        "worst": "worst-case bound",
    }
    handles = [
        Line2D([], [], color=look.colour, marker=look.marker, markersize=5, label=line.family.name)
        for line, look in zip(lines, _looks(lines), strict=True)
    ]
    handles += [
        Line2D([], [], color="0.2", linestyle=DASHES[form], linewidth=1.2, label=kinds[form])
        for form in ("worst", "probable", "measured")
    ]
    ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.02, 1.02), handlelength=3)


def _looks(lines: Sequence[Line]) -> list[Look]:
    return looks([Choice(line.family) for line in lines])
