"""Draw a tile map on axes that the caller gives."""

from typing import TYPE_CHECKING

from iosim.plot.style import binary_ticks, halo
from iosim.plot.tile_map import Marked, TileMap
from iosim.units import format_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.colors import LogNorm

RULE_MARKERS = {"paper": ("^", 9), "largest": ("s", 8), "best": ("*", 15)}
RULE_TEXTS = {"paper": "the paper's rule", "largest": "largest square", "best": "least traffic"}


def draw_tile_map(tiles: TileMap, ax: "Axes", norm: "LogNorm | None" = None) -> "QuadMesh":
    """Draw the traffic in words as colour over B_r and B_c; tiles that do not fit are hatched.

    The tiles that the rules choose are marked, with their numbers in a legend below the axes.
    `norm` lets several maps share their colours. Returns the colours, for a colour bar.
    """
    from matplotlib.colors import LogNorm

    ax.set(xscale="log", yscale="log")
    mesh = ax.pcolormesh(
        tiles.bcs,
        tiles.brs,
        tiles.traffic_words,
        norm=norm or LogNorm(),
        cmap="viridis_r",
        shading="nearest",
    )
    ax.grid(visible=False)
    _hatch_what_does_not_fit(ax, tiles)
    for each in tiles.marked:
        _mark(ax, each)
    binary_ticks(ax.xaxis, tiles.bcs[0], tiles.bcs[-1], most=7)
    binary_ticks(ax.yaxis, tiles.brs[0], tiles.brs[-1], most=7)
    # One row or key alone would leave an axis no length.
    ax.set(xlim=(1, max(tiles.bcs[-1], 2)), ylim=(1, max(tiles.brs[-1], 2)))
    ax.set_xlabel("tile of K and V, $B_c$ (rows; k = 1024)")
    ax.set_ylabel("tile of Q, $B_r$ (rows; k = 1024)")
    ax.set_title(tiles.family.name)
    ax.legend(loc="upper left", bbox_to_anchor=(-0.02, -0.16), handletextpad=0.6, fontsize=9)
    return mesh


def _hatch_what_does_not_fit(ax: "Axes", tiles: TileMap) -> None:
    edge = {bc: max(br, tiles.brs[0]) for bc, br in tiles.edge.items()}
    ax.fill_between(
        list(edge),
        list(edge.values()),
        tiles.brs[-1],
        facecolor=(1, 1, 1, 0.55),
        edgecolor="0.45",
        hatch="////",
        linewidth=0,
        label="_does not fit",
    )
    ax.plot(list(edge), list(edge.values()), color="black", linewidth=1.2)
    ax.text(
        0.97,
        0.96,
        "does not fit in M",
        transform=ax.transAxes,
        ha="right",
        va="top",
        path_effects=halo(),
    )


def _mark(ax: "Axes", marked: Marked) -> None:
    point = marked.point
    marker, size = RULE_MARKERS[marked.rule]
    sizes = f"$B_r$ = {point.sizes['br']}, $B_c$ = {point.sizes['bc']}"
    needed = format_count(point.checked.peak_words)
    does_not = "" if point.fits else f"\ndoes not fit: it needs {needed} words"
    ax.plot(
        [point.sizes["bc"]],
        [point.sizes["br"]],
        linestyle="none",
        marker=marker,
        markersize=size,
        color="black" if point.fits else "white",
        markeredgecolor="white" if point.fits else "black",
        clip_on=False,
        zorder=5,
        label=f"{RULE_TEXTS[marked.rule]}: {sizes}; {format_count(point.words)} words{does_not}",
    )
