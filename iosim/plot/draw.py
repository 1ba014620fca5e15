"""Draw sweeps and tile maps on axes that the caller gives. matplotlib is loaded when one draws."""

from collections.abc import Mapping, Sequence
from math import log
from typing import TYPE_CHECKING, Any

from iosim.plot.style import BOUND_LOOKS, OTHER_BOUND, Look, binary_ticks, looks
from iosim.plot.sweep import LISTED, BoundCurve, Curve, Sweep, Theory, crossover, scale
from iosim.plot.text import bound_text, theory_text, unit_text
from iosim.units import format_count

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

X_LABELS = {
    "length": "sequence length N (rows; k = 1024)",
    "dim": "head dimension d (words of a row)",
    "memory": "fast memory M (words; k = 1024)",
}

SYMBOLS = {"length": ("N", "rows"), "dim": ("d", "words"), "memory": ("M", "words")}

DEVICE_LINE: Any = {"color": "black", "linewidth": 1.5, "linestyle": (0, (1, 2)), "zorder": 1.5}

REGIME_NAMES = {
    "M < d^2": ("small memory", "M < d²", "#FBE9D9"),
    "d^2 <= M <= N d": ("middle", "d² ≤ M ≤ Nd", "#FFFFFF"),
    "M > N d": ("large memory", "M > Nd", "#E1EEF7"),
}


def draw_traffic(sweep: Sweep, ax: "Axes", marked: Mapping[str, int] | None = None) -> None:
    """Draw the words moved along a sweep, with theory, bounds and regimes; a legend to the right.

    Filled markers fit in M and hollow ones do not. `marked` maps names of devices to their M in
    words, for a sweep of M. Give the figure a constrained layout, so that there is room for the
    legend.
    """
    ax.set(xscale="log", yscale="log")
    styles = dict(zip((c.label for c in sweep.choices), looks(sweep.choices), strict=True))
    for theory in sweep.theory:
        _draw_theory(ax, theory, styles[theory.choice.label])
    low, high = _limits(sweep)
    ax.set_ylim(low, high)
    bounds = [bound for bound in sweep.bounds if max(bound.words) > low]
    for bound in bounds:
        _draw_bound(ax, bound, bound.words)
    for curve in sweep.curves:
        _draw_curve(ax, curve, curve.words, styles[curve.choice.label])
    for words in (marked or {}).values():
        ax.axvline(words, **DEVICE_LINE)
    _shade_out_of_reach(ax, sweep, low)
    _finish_x(ax, sweep)
    _name_regimes(ax, sweep)
    _mark_crossover(ax, sweep)
    ax.set_ylabel("traffic (words)")
    _legend(ax, sweep, bounds, marked or {})


def draw_constants(sweep: Sweep, ax: "Axes") -> None:
    """Draw the traffic of a sweep divided by N^2 d^2 / M, so that the theorem's constants show."""
    from matplotlib.ticker import FixedLocator

    ax.set(xscale="log", yscale="log")
    highest = 0.0
    for curve, look in zip(sweep.curves, looks(sweep.choices), strict=True):
        ratios = [w / scale(sweep.case(x)) for x, w in zip(curve.xs, curve.words, strict=True)]
        _draw_curve(ax, curve, ratios, look)
        highest = max(highest, *ratios)
    for bound in sweep.bounds:
        ratios = [w / scale(sweep.case(x)) for x, w in zip(bound.xs, bound.words, strict=True)]
        _draw_bound(ax, bound, ratios)
    ax.set_ylim(0.7, min(highest * 1.4, 100))
    ax.yaxis.set_major_locator(FixedLocator([1, 2, 4, 6, 12, 25, 50, 100]))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.minorticks_off()
    _finish_x(ax, sweep)
    unit = unit_text(sweep.case(sweep.xs[0]).shape).strip()
    ax.set_ylabel(f"traffic ÷{' ' if len(unit) < 10 else chr(10)}{unit}\n(no unit)")


def _draw_curve(ax: "Axes", curve: Curve, ys: Sequence[float], look: Look) -> None:
    """Draw a line through all positions, filled markers where it fits and hollow ones elsewhere."""
    label = curve.choice.label
    ax.plot(curve.xs, ys, color=look.colour, linewidth=1, zorder=3, label=f"curve {label}")
    for fits in (True, False):
        chosen = [(x, y) for x, y, f in zip(curve.xs, ys, curve.fits, strict=True) if f == fits]
        if chosen:
            ax.plot(
                *zip(*chosen, strict=True),
                linestyle="none",
                marker=look.marker,
                markersize=5.5,
                color=look.colour,
                markerfacecolor=look.colour if fits else "white",
                zorder=4,
                label=f"{'fits' if fits else 'does not fit'} {label}",
            )


def _draw_theory(ax: "Axes", theory: Theory, look: Look) -> None:
    ax.plot(
        theory.xs,
        theory.words,
        color=look.colour,
        linewidth=7,
        alpha=0.25,
        solid_capstyle="butt",
        zorder=2,
        label=f"theory {theory.choice.label}",
    )


def _draw_bound(ax: "Axes", bound: BoundCurve, ys: Sequence[float]) -> None:
    look = BOUND_LOOKS.get(bound.name, OTHER_BOUND)
    ax.plot(
        bound.xs,
        ys,
        color=look.colour,
        linewidth=1.2,
        linestyle=look.dashes,
        zorder=2.5,
        label=f"bound {bound.name}",
    )


def _limits(sweep: Sweep) -> tuple[float, float]:
    values = [w for curve in sweep.curves for w in curve.words]
    floor = [w for bound in sweep.bounds if "compulsory" in bound.name for w in bound.words]
    return min(values + floor) / 2, max(values) * 3


def _shade_out_of_reach(ax: "Axes", sweep: Sweep, low: float) -> None:
    """Shade what lies below the bounds that hold for every schedule."""
    best: dict[int, int] = {}
    for bound in sweep.bounds:
        if not bound.schedules:
            for x, words in zip(bound.xs, bound.words, strict=True):
                best[x] = max(best.get(x, 0), words)
    xs = sorted(best)
    ax.fill_between(xs, low, [max(best[x], low) for x in xs], color="0.85", linewidth=0, zorder=1)


def _finish_x(ax: "Axes", sweep: Sweep) -> None:
    first, last = sweep.xs[0], sweep.xs[-1]
    ax.set_xlim(first / 1.12, last * 1.12)
    binary_ticks(ax.xaxis, first, last)
    ax.set_xlabel(X_LABELS[sweep.what])
    for regime in sweep.regimes:
        _, _, colour = REGIME_NAMES[regime.name]
        left = first / 1.12 if regime.first == first else regime.first
        right = last * 1.12 if regime.last == last else regime.last + 1
        ax.axvspan(left, right, color=colour, linewidth=0, zorder=0)
        if regime.last != last:
            ax.axvline(right, color="0.6", linewidth=0.7, zorder=1)


def _name_regimes(ax: "Axes", sweep: Sweep) -> None:
    """Write the name of each regime above the axes."""
    width = log(sweep.xs[-1] / sweep.xs[0])
    for regime in sweep.regimes:
        if log((regime.last + 1) / regime.first) < 0.07 * width:
            continue  # too narrow for its name
        name, condition, _ = REGIME_NAMES[regime.name]
        ax.annotate(
            f"{name}\n{condition}",
            xy=((regime.first * regime.last) ** 0.5, 1),
            xycoords=("data", "axes fraction"),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=8.5,
            color="0.25",
        )


def _mark_crossover(ax: "Axes", sweep: Sweep) -> None:
    shown = [choice.family.name for choice in sweep.choices]
    unfused = "square_tiling" if "square_tiling" in shown else "standard_tiled"
    found = crossover(sweep, "flash2", unfused)
    if found is None:
        return
    ax.plot(
        [found.x], [found.words], marker="o", markersize=14, color="0.2", fillstyle="none", zorder=5
    )
    # Where there is room: traffic falls with M and rises with the others.
    late = sweep.what != "memory" and found.x**2 > sweep.xs[0] * sweep.xs[-1]
    symbol, unit = SYMBOLS[sweep.what]
    ax.annotate(
        f"{found.fewer} moves less than {found.more}\n"
        f"from {symbol} = {format_count(found.x)} {unit} on",
        xy=(found.x, found.words),
        xycoords="data",
        xytext=(0.28 if late else 0.56, 0.9),
        textcoords="axes fraction",
        ha="center",
        va="center",
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 2},
        arrowprops={"arrowstyle": "-", "color": "0.2", "linewidth": 0.8, "shrinkB": 7},
        zorder=6,
    )


def _legend(
    ax: "Axes", sweep: Sweep, bounds: Sequence[BoundCurve], marked: Mapping[str, int]
) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    shape = sweep.case(sweep.xs[0]).shape
    theory = {
        each.choice.label: theory_text(
            each.constant, shape, LISTED.get(each.choice.family.name, LISTED["standard"])
        )
        for each in sweep.theory
    }
    nothing = Line2D([], [], linestyle="none")
    per_head = " (formulas: for one head)" if shape.batch * shape.heads > 1 else ""
    rows: list[tuple[Artist | tuple[Artist, ...], str]] = [(nothing, f"Words counted{per_head}")]
    for choice, look in zip(sweep.choices, looks(sweep.choices), strict=True):
        line = Line2D([], [], color=look.colour, marker=look.marker, markersize=5.5, linewidth=1)
        band = Line2D([], [], color=look.colour, linewidth=7, alpha=0.25)
        if choice.label in theory:
            rows.append(((band, line), f"{choice.label}; band: {theory[choice.label]}"))
        else:
            rows.append((line, choice.label))
    if not all(fits for curve in sweep.curves for fits in curve.fits):
        hollow = Line2D([], [], color="0.4", marker="o", markerfacecolor="white", linestyle="none")
        rows.append((hollow, "hollow: does not fit in M"))
    for name, words in marked.items():
        rows.append((Line2D([], [], **DEVICE_LINE), f"{name}: M = {format_count(words)} words"))
    rows.append((nothing, "Lower bounds, where they hold"))
    for bound in sorted(bounds, key=lambda each: not each.schedules):
        dashes = BOUND_LOOKS.get(bound.name, OTHER_BOUND)
        line = Line2D([], [], color=dashes.colour, linewidth=1.2, linestyle=dashes.dashes)
        rows.append((line, bound_text(bound.name, bound.schedules, shape)))
    rows.append((Patch(color="0.85"), "no schedule gets here"))
    legend = ax.legend(
        *zip(*rows, strict=True), loc="upper left", bbox_to_anchor=(1.01, 1.04), handlelength=2.6
    )
    for (handle, _), text in zip(rows, legend.get_texts(), strict=True):
        if handle is nothing:
            text.set_fontweight("bold")
