"""Whole figures, and the files they go into."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from iosim.errors import IosimError
from iosim.output import replacing
from iosim.plot.draw import draw_constants, draw_traffic, mark_memory
from iosim.plot.draw_tiles import draw_tile_map
from iosim.plot.style import styled
from iosim.plot.sweep import Sweep, against_dim, against_length, against_memory, choose
from iosim.plot.text import memory_text, shape_text
from iosim.plot.tile_map import TileMap, log_steps, map_tiles
from iosim.schedule.registry import family
from iosim.shape import AttentionShape

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHAPE = AttentionShape(n_q=4096, n_k=4096, head_dim=64)
WORDS = 51_200
"""M of the figures that do not sweep it: 100 KiB of float16."""

LENGTHS = tuple(2**k for k in range(8, 17))
DIMS = (8, 16, 32, 64, 128, 256, 512)

NO_DATES: Mapping[str, Mapping[str, None]] = {
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
"""Metadata to leave out, by format, so that the same figure is always the same bytes."""


def memories(shape: AttentionShape) -> tuple[int, ...]:
    """Return sizes of M in words that show all regimes of a shape.

    >>> memories(SHAPE)[0], memories(SHAPE)[-1]
    (128, 2097152)
    """
    d = max(shape.head_dim, shape.value_dim)
    return log_steps(2 * d, max(8 * min(shape.n_q, shape.n_k) * d, 4 * d * d))


def draw_sweep(sweep: Sweep, marked: Mapping[str, int] | None = None) -> "Figure":
    """Return the figure of a sweep: its traffic above, its constants below.

    `marked` maps names of devices to their M in words, for a sweep of M.
    """
    from matplotlib.figure import Figure

    titles = {
        "length": "Traffic against sequence length",
        "dim": "Traffic against head dimension",
        "memory": "Traffic against the size of fast memory",
    }
    case = sweep.case(sweep.xs[0])
    fixed = [shape_text(case.shape, without=sweep.what)]
    if sweep.what != "memory":
        fixed.append(memory_text(case.words, case.shape))
    with styled():
        figure = Figure(figsize=(10, 6.4), layout="constrained")
        above, below = figure.subplots(2, 1, height_ratios=(2.2, 1), sharex=True)
        draw_traffic(sweep, above)
        draw_constants(sweep, below)
        above.set_xlabel("")
        for name, words in (marked or {}).items():
            mark_memory(above, words, name)
        figure.suptitle(f"{titles[sweep.what]}: {'; '.join(fixed)}", x=0.01, ha="left")
    return figure


def draw_tiles(maps: Sequence[TileMap]) -> "Figure":
    """Return the figure of one tile map or several side by side, with the same colours."""
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    every = [words for each in maps for row in each.traffic_words for words in row]
    norm = LogNorm(min(every), max(every))
    shape = maps[0].shape
    with styled():
        figure = Figure(figsize=(5 * len(maps) + 0.5, 5.4), layout="constrained")
        axes = figure.subplots(1, len(maps), squeeze=False)[0]
        for each, ax in zip(maps, axes, strict=True):
            mesh = draw_tile_map(each, ax, norm)
        figure.colorbar(mesh, ax=axes, label="traffic (words)", aspect=30)
        fixed = f"{shape_text(shape)}; {memory_text(maps[0].words, shape)}"
        figure.suptitle(f"Traffic against tile size: {fixed}", x=0.01, ha="left")
    return figure


def save(figure: "Figure", to: Path | IO[bytes], form: str) -> None:
    """Write a figure as 'svg', 'png' or 'pdf', the same bytes every time."""
    with styled():
        figure.draw_without_rendering()  # lays out the figure
        figure.set_layout_engine("none")  # once: it takes as long as the drawing
        figure.savefig(to, format=form, metadata=dict(NO_DATES[form]))


FIGURES: Mapping[str, Callable[[], "Figure"]] = {
    "length": lambda: draw_sweep(
        against_length(SHAPE, WORDS, LENGTHS, choose(["standard", "flash1", "flash2"]))
    ),
    "dim": lambda: draw_sweep(
        against_dim(SHAPE, WORDS, DIMS, choose(["standard", "standard_tiled", "flash1", "flash2"]))
    ),
    "memory": lambda: draw_sweep(
        against_memory(
            SHAPE, memories(SHAPE), choose(["standard", "standard_tiled", "flash1", "flash2"])
        )
    ),
    "tiles": lambda: draw_tiles(
        [map_tiles(family(name), SHAPE, WORDS) for name in ("flash1", "flash2")]
    ),
}


def write_figures(directory: Path, option: str = "--plots") -> list[Path]:
    """Write every figure as SVG and PNG into a folder, made if need be; return the paths.

    Each file is there whole or not at all. Raises IosimError, naming `option`, for a folder that
    cannot be made or written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise IosimError(
            f"{option} '{directory}' cannot be made ({error.strerror}); give a folder"
        ) from error
    written = []
    for name, draw in FIGURES.items():
        figure = draw()
        for form in ("svg", "png"):
            path = directory / f"{name}.{form}"
            with replacing(path, option) as beside:
                save(figure, beside, form)
            written.append(path)
    return written
