"""Whole figures, and the files they go into.

>>> print(*sorted(FIGURES))
backward cache dim length memory rounding slow_memory small_memory tiles
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

from iosim.errors import IosimError
from iosim.machine import machine
from iosim.measured import Recording
from iosim.measured import draw as draw_recording
from iosim.output import replacing
from iosim.plot.draw import draw_constants, draw_traffic
from iosim.plot.draw_tiles import draw_tile_map
from iosim.plot.rounding import against_keys, against_tiles, draw_legend, draw_rounding
from iosim.plot.steps import log_steps
from iosim.plot.style import styled
from iosim.plot.sweep import Choice, Sweep, against_dim, against_length, against_memory, choose
from iosim.plot.text import memory_text, shape_text
from iosim.plot.tile_map import TileMap, map_tiles
from iosim.precision import NAMES
from iosim.schedule.registry import Family, family
from iosim.shape import AttentionShape
from iosim.tiles import choose_tiles
from iosim.units import MemorySize

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHAPE = AttentionShape(n_q=4096, n_k=4096, head_dim=64)
SRAM = MemorySize(100 * 1024, "bytes")
LENGTHS = tuple(2**k for k in range(8, 17))
# To where even a linear extra fills a device.
LONG = tuple(2**k for k in range(10, 30, 2))
# A cache sees every access, so that its figure is of a smaller case, in tiles of 64 x 64.
CACHE_LENGTH = 256
CACHE_WORDS = 20_608
ROUNDING_ROWS, ROUNDING_TILE, ROUNDING_KEYS = 16, 64, 1024
DIMS = (8, 16, 32, 64, 128, 256, 512)

FORMATS: Mapping[str, Mapping[str, None]] = {
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
"""The formats of files, with the metadata to leave out, so that one figure is always one file."""


@dataclass(frozen=True)
class Request:
    """What a figure is to show; a quantity that the figure sweeps is not read from `shape`.

    `words` is M where it is not swept. `lengths` in rows, `dims` and `memories` in words are the
    positions of the sweeps (no memories: sizes that show all regimes). Without `schedules` a
    figure shows those it is about, and without a `rule` those tiles that theory speaks of.
    `marked` maps names of devices to their M in words; `device` names that whose slow memory a
    figure shows.
    """

    shape: AttentionShape = SHAPE
    words: int = SRAM.words(SHAPE.item_bytes)
    lengths: Sequence[int] = LENGTHS
    dims: Sequence[int] = DIMS
    memories: Sequence[int] = ()
    schedules: Sequence[str] = ()
    rule: str | None = None
    marked: Mapping[str, int] = field(default_factory=dict)
    device: str = "H200"

    def choices(self, *names: str) -> tuple[Choice, ...]:
        """Return what to draw: the schedules asked for, or those of `names` that have the rule."""
        if self.schedules:
            return choose(self.schedules, self.rule)
        able = [
            name
            for name in names
            if self.rule != "paper" or family(name).paper or not family(name).tiles
        ]
        return choose(able, self.rule)


FIGURES: dict[str, Callable[[Request], "Figure"]] = {}


def figure(draw: Callable[[Request], "Figure"]) -> Callable[[Request], "Figure"]:
    """Register a function that draws a figure, by its name."""
    FIGURES[draw.__name__] = draw
    return draw


@figure
def length(request: Request) -> "Figure":
    """Draw the traffic against N."""
    choices = request.choices("standard", "flash1", "flash2")
    return draw_sweep(against_length(request.shape, request.words, request.lengths, choices))


@figure
def dim(request: Request) -> "Figure":
    """Draw the traffic against d."""
    choices = request.choices("standard", "standard_tiled", "flash1", "flash2")
    return draw_sweep(against_dim(request.shape, request.words, request.dims, choices))


@figure
def memory(request: Request) -> "Figure":
    """Draw the traffic against M, the devices' own among it."""
    choices = request.choices("standard", "standard_tiled", "flash1", "flash2")
    sizes = {*(request.memories or memories(request.shape)), *request.marked.values()}
    return draw_sweep(against_memory(request.shape, sorted(sizes), choices), request.marked)


@figure
def backward(request: Request) -> "Figure":
    """Draw the traffic of backward passes against M, beside the bounds on them."""
    choices = request.choices(
        "standard_backward", "flash1_backward", "flash2_backward", "flash2_backward_q"
    )
    sizes = {*(request.memories or memories(request.shape)), *request.marked.values()}
    swept = against_memory(request.shape, sorted(sizes), choices)
    return draw_sweep(swept, request.marked, of="the backward pass")


@figure
def small_memory(request: Request) -> "Figure":
    """Draw the traffic against M around d^2, with and without fusing."""
    choices = request.choices("square_tiling", "standard_tiled", "flash2")
    d = max(request.shape.head_dim, request.shape.value_dim)
    sizes = {*(request.memories or log_steps(max(d * d // 64, 5), 8 * d * d))}
    sizes |= set(request.marked.values())
    return draw_sweep(against_memory(request.shape, sorted(sizes), choices), request.marked)


@figure
def slow_memory(request: Request) -> "Figure":
    """Draw what schedules keep in slow memory against N; a rule for tiles has no place here."""
    from matplotlib.figure import Figure

    from iosim.plot.slow_memory import draw_growth, growth

    if request.rule is not None:
        raise IosimError(
            f"--tiles {request.rule} has no place in a figure of slow memory, which does not "
            "depend on tiles; leave it out"
        )
    device = machine(request.device)
    names = request.schedules or ("standard", "square_tiling", "flash1", "flash2")
    every = [
        growth(family(each), request.shape, request.lengths, device.hbm_bytes)
        for each in dict.fromkeys(names)
    ]
    with styled():
        figure = Figure(figsize=(10, 4.8), layout="constrained")
        draw_growth(every, device, figure.subplots())
        fixed = f"{shape_text(request.shape, without='length')}, {request.shape.dtype}"
        figure.suptitle(f"Slow memory against sequence length\n{fixed}", x=0.01, ha="left")
    return figure


@figure
def tiles(request: Request) -> "Figure":
    """Draw the traffic over B_r and B_c; raises IosimError for a rule, as all are marked."""
    if request.rule is not None:
        raise IosimError(
            f"--tiles {request.rule} has no place in a figure of tiles, which marks every rule; "
            "leave it out"
        )
    names = dict.fromkeys(request.schedules or ("flash1", "flash2"))
    return draw_tiles([map_tiles(family(each), request.shape, request.words) for each in names])


@figure
def cache(request: Request) -> "Figure":
    """Draw what LRU and OPT caches of every size fetch, beside the explicit scratchpad."""
    from matplotlib.figure import Figure

    from iosim.plot.caches import cache_curves, draw_cache_curves

    every = []
    for name in request.schedules or ("flash1", "flash2"):
        chosen = family(name)
        sizes = choose_tiles(chosen, request.shape, request.words, request.rule or "largest").sizes
        every.append(cache_curves(chosen.build(request.shape, **sizes)))
    with styled():
        figure = Figure(figsize=(5.2 * len(every), 4.8), layout="constrained")
        axes = figure.subplots(1, len(every), squeeze=False, sharey=True)[0]
        for curves, ax in zip(every, axes, strict=True):
            draw_cache_curves(curves, ax)
        fixed = f"{shape_text(request.shape)}; a line of the cache holds one word"
        figure.suptitle(f"A cache in place of the scratchpad\n{fixed}", x=0.01, ha="left")
    return figure


@figure
def rounding(request: Request) -> "Figure":
    """Draw rounding errors against N and the number of key tiles, up to N and d of the shape.

    Raises IosimError for more than one head, a mask or a rule for tiles, which it does not have.
    """
    shape = request.shape
    masked = shape.causal or shape.mask is not None
    if masked or shape.batch * shape.heads > 1 or request.rule is not None:
        raise IosimError(
            "a figure of rounding shows one head without a mask and its own tiles, so that "
            "--causal, --mask, --heads, --model and --tiles have no place in it; leave them out"
        )
    chosen = [family(name) for name in request.schedules or ("standard", "flash1", "flash2")]
    return draw_errors(chosen, shape.n_k, shape.head_dim)


def memories(shape: AttentionShape) -> tuple[int, ...]:
    """Return sizes of M in words that show all regimes of a shape.

    >>> memories(SHAPE)[0], memories(SHAPE)[-1]
    (128, 2097152)
    """
    d = max(shape.head_dim, shape.value_dim)
    return log_steps(2 * d, max(8 * min(shape.n_q, shape.n_k) * d, 4 * d * d))


def draw_sweep(sweep: Sweep, marked: Mapping[str, int] | None = None, of: str = "") -> "Figure":
    """Return the figure of a sweep: its traffic above, its constants below.

    `marked` maps names of devices to their M in words, for a sweep of M; `of` says what moves it.
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
        height = 6.4 if len(sweep.bounds) < 6 else 7.4  # room for the legend
        figure = Figure(figsize=(10, height), layout="constrained")
        above, below = figure.subplots(2, 1, height_ratios=(2.2, 1), sharex=True)
        draw_traffic(sweep, above, marked)
        draw_constants(sweep, below)
        above.set_xlabel("")
        title = titles[sweep.what].replace("Traffic", f"Traffic of {of}" if of else "Traffic")
        figure.suptitle(f"{title}\n{'; '.join(fixed)}", x=0.01, ha="left")
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
        figure.suptitle(f"Traffic against tile size\n{fixed}", x=0.01, ha="left")
    return figure


def draw_errors(chosen: Sequence[Family], n_k: int, head_dim: int) -> "Figure":
    """Return the figure of rounding errors: against N above, against key tiles below.

    One column for each dtype; schedules without tiles are in the upper row only.
    """
    from matplotlib.figure import Figure

    # Every power of 4: an execution takes longer than a count.
    lengths = [n for n in (ROUNDING_TILE * 4**i for i in range(n_k.bit_length())) if n < n_k]
    lengths.append(n_k)
    most = min(n_k, ROUNDING_KEYS)
    counts = [4**i for i in range(most.bit_length()) if 4**i <= most / 8] or [1]
    fixed = {"n_q": ROUNDING_ROWS, "head_dim": head_dim}
    with styled():
        figure = Figure(figsize=(13, 6.4), layout="constrained")
        axes = figure.subplots(2, len(NAMES), sharey="col")
        for (above, below), dtype in zip(axes.T, NAMES, strict=True):
            lines = [
                against_keys(each, dtype, lengths, tile=ROUNDING_TILE, **fixed) for each in chosen
            ]
            draw_rounding(lines, above)
            tiled = [
                against_tiles(each, dtype, counts, n_k=most, **fixed)
                for each in chosen
                if each.tiles
            ]
            draw_rounding(tiled, below)
            above.set_title(dtype)
        draw_legend(lines, axes[0, -1])
        figure.suptitle(
            f"Rounding error of executed schedules\n{ROUNDING_ROWS} queries, d = {head_dim}, "
            f"normal inputs; above: tiles of {ROUNDING_TILE} keys; below: N = {most}",
            x=0.01,
            ha="left",
        )
    return figure


def draw_measured(recording: Recording) -> "Figure":
    """Return the figure of a recording: measured against simulated bytes, one mark a row."""
    from matplotlib.figure import Figure

    with styled():
        figure = Figure(figsize=(6.4, 5.6), layout="constrained")
        draw_recording(recording.rows, figure.subplots())
        figure.suptitle(
            f"Simulated against measured\n{len(recording.rows)} rows, {recording.device}, "
            f"{recording.date}",
            x=0.01,
            ha="left",
        )
    return figure


def form_of(path: Path) -> str:
    """Return the format that a file's suffix states: 'svg', 'png' or 'pdf'.

    Raises IosimError for another suffix.

    >>> form_of(Path("memory.PNG"))
    'png'
    """
    suffix = path.suffix.lower().removeprefix(".")
    if suffix not in FORMATS:
        known = ", ".join(f".{name}" for name in FORMATS)
        raise IosimError(f"--output '{path}' does not end in a format; end it in one of {known}")
    return suffix


def save(figure: "Figure", to: Path | IO[bytes], form: str) -> None:
    """Write a figure as 'svg', 'png' or 'pdf', the same bytes every time."""
    with styled():
        figure.draw_without_rendering()  # lays out the figure
        figure.set_layout_engine("none")  # once: it takes as long as the drawing
        figure.savefig(to, format=form, metadata=dict(FORMATS[form]))


def default_request(name: str) -> Request:
    """Return what a figure shows when nothing is asked for."""
    if name == "cache":
        return Request(replace(SHAPE, n_q=CACHE_LENGTH, n_k=CACHE_LENGTH), CACHE_WORDS)
    if name == "slow_memory":
        return Request(lengths=LONG)
    return Request()


def write_figures(directory: Path, option: str = "--plots") -> list[Path]:
    """Write the figures of traffic as SVG and PNG into a folder, made if need be; return paths.

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
        if name == "rounding":  # of errors, not of traffic
            continue
        drawn = draw(default_request(name))
        for form in ("svg", "png"):
            path = directory / f"{name}.{form}"
            with replacing(path, option) as beside:
                save(drawn, beside, form)
            written.append(path)
    return written
