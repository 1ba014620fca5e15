"""Where the bytes of a training step go: a bar for each line of a schedule that moves anything."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from iosim.plot.style import styled
from iosim.plot.text import shape_text
from iosim.reading.count import count
from iosim.reading.formula import formula
from iosim.reading.traffic import item_sizes
from iosim.schedule.tree import Move, Schedule, Tensor, nodes
from iosim.units import format_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Step = tuple[Schedule, ...]

# What a tensor is by its size, and the colour of its part of a bar (Okabe and Ito's palette).
MATRIX = "matrices of n_q x n_k numbers"
MASK = "masks of a byte each"
ROWS = "rows of d numbers: Q, K, V, O and gradients"
FEW = "statistics, random state"
COLOURS = {MATRIX: "#D55E00", MASK: "#F0C75E", ROWS: "#0072B2", FEW: "black"}


@dataclass(frozen=True)
class LineBytes:
    """The bytes that one line of a schedule reads and writes, by kind of tensor."""

    schedule: str
    line: str
    by_kind: dict[str, int]

    @property
    def total(self) -> int:
        """Bytes of all kinds."""
        return sum(self.by_kind.values())


def kind_of(tensor: Tensor) -> str:
    """Return what a tensor is by its axes and item type."""
    if tensor.dtype == "uint8":
        return MASK
    if tensor.has("query") and tensor.has("key"):
        return MATRIX
    return ROWS if tensor.has("dim") or tensor.has("value") else FEW


def line_bytes(step: Step) -> Iterator[LineBytes]:
    """Yield the lines that move anything, in order, over the schedules of a step.

    >>> from iosim.schedule import family
    >>> from iosim.shape import AttentionShape
    >>> step = (family("standard").build(AttentionShape(64, 64, 8, dtype="float16")),)
    >>> [each.total for each in line_bytes(step)] == [2 * (64 * 64 + 1024), 2 * 8192, 2 * 5120]
    True
    """
    for schedule in step:
        moves = [node for node, _ in nodes(schedule.body) if isinstance(node, Move)]
        tensors = {move.tensor.name: move.tensor for move in moves}
        found, items = formula(schedule), item_sizes(schedule)
        for line in dict.fromkeys(entry.line for entry in found.entries):
            by_kind = dict.fromkeys(COLOURS, 0)
            for entry in found.entries:
                if entry.line == line:
                    moved = entry.words.value(found.values) * items[entry.tensor]
                    by_kind[kind_of(tensors[entry.tensor])] += moved
            yield LineBytes(schedule.name, line, by_kind)


def draw_training_step(steps: Sequence[Step]) -> "Figure":
    """Return the figure of steps, one below the other on one scale: bytes by line and kind."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    every = [list(line_bytes(step)) for step in steps]
    shape = steps[0][0].shape
    with styled():
        rows = [len(lines) for lines in every]
        figure = Figure(figsize=(10, 0.26 * sum(rows) + 1.9), layout="constrained")
        axes = figure.subplots(len(steps), 1, sharex=True, squeeze=False, height_ratios=rows)[:, 0]
        for step, lines, ax in zip(steps, every, axes, strict=True):
            _draw_bars(step, lines, ax)
        longest = max(line.total for lines in every for line in lines)
        axes[-1].set_xlim(0, 1.08 * longest / 1e9)
        axes[-1].set_xlabel("read and written (GB, 1000³ bytes)")
        axes[-1].legend(
            handles=[Patch(color=colour, label=kind) for kind, colour in COLOURS.items()],
            loc="lower right",
        )
        dropout = f", dropout {shape.dropout:g}" if shape.dropout else ""
        figure.suptitle(
            f"Bytes of a training step, forward and backward, line by line\n"
            f"{shape_text(shape)}, {shape.dtype}{dropout}",
            x=0.01,
            ha="left",
        )
    return figure


def _draw_bars(step: Step, lines: Sequence[LineBytes], ax: "Axes") -> None:
    heights = range(len(lines))
    left = [0.0] * len(lines)
    for kind, colour in COLOURS.items():
        widths = [line.by_kind[kind] / 1e9 for line in lines]
        ax.barh(heights, widths, left=left, color=colour, height=0.72)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    for y, (end, line) in enumerate(zip(left, lines, strict=True)):
        shown = f"{line.total / 1e9:.2f}" if line.total >= 5e6 else f"{format_count(line.total)} B"
        ax.text(end, y, f" {shown}", va="center", fontsize=8)
    # A line between the passes.
    passes = [line.schedule for line in lines]
    for y in range(1, len(passes)):
        if passes[y] != passes[y - 1]:
            ax.axhline(y - 0.5, color="0.5", linewidth=0.8, linestyle=(0, (4, 3)))
    ax.set_yticks(heights, [line.line for line in lines], fontsize=8)
    ax.invert_yaxis()
    ax.grid(visible=False, axis="y")
    ax.margins(y=0.02)
    total = sum(count(schedule).total_bytes for schedule in step)
    sizes = " and ".join(
        schedule.name + (f" (B_c = {schedule.tiles['bc']})" if "bc" in schedule.tiles else "")
        for schedule in step
    )
    ax.set_title(f"{sizes}: {total / 1e9:.2f} GB")
