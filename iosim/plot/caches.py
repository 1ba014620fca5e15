"""The words that caches of every size would fetch for a schedule, beside what it moves itself."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from iosim.cache.driver import simulate_curves
from iosim.cache.result import CurveResult
from iosim.plot.style import binary_ticks
from iosim.reading.count import count
from iosim.reading.trace import trace
from iosim.reading.working_set import new_words, working_sets
from iosim.schedule.tree import Schedule
from iosim.units import format_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class CacheCurves:
    """Misses of LRU and OPT at every size, each word a line of its own, and the scratchpad's own.

    `explicit_words` are the words that the schedule loads or makes room for in `peak_words` of fast
    memory; `working_sets` maps what one iteration of a loop touches to its words.
    """

    schedule: Schedule
    lru: CurveResult
    opt: CurveResult
    explicit_words: int
    peak_words: int
    working_sets: dict[str, int]


def cache_curves(schedule: Schedule) -> CacheCurves:
    """Run a schedule's accesses through LRU and OPT caches of all sizes, word by word.

    The work grows with the accesses, about n_q n_k (2 d + 2) a head: minutes for N = 4k.
    """
    curves = simulate_curves(trace(schedule), ["lru", "opt"])
    traffic = count(schedule)
    return CacheCurves(
        schedule=schedule,
        lru=curves[0],
        opt=curves[1],
        explicit_words=traffic.read_words + new_words(schedule),
        peak_words=traffic.peak_words,
        working_sets=working_sets(schedule),
    )


def draw_cache_curves(curves: CacheCurves, ax: "Axes") -> None:
    """Draw the words fetched against the size of fast memory, both in words."""
    lru, opt = curves.lru.misses, curves.opt.misses
    last = max(len(lru), len(opt)) - 1
    last = max(last, curves.peak_words)
    ax.set(xscale="log", yscale="log", xlim=(16, 2 * last))
    for name, misses, colour, width in (
        ("LRU cache", lru, "#D55E00", 1.8),
        ("OPT cache", opt, "#0072B2", 1.8),
    ):
        sizes = range(1, len(misses))
        ax.plot(
            [*sizes, 2 * last], [*misses[1:].tolist(), int(misses[-1])],
            color=colour, linewidth=width, drawstyle="steps-post", label=name,
            linestyle="solid" if name.startswith("LRU") else (0, (5, 1.5)),
        )  # fmt: skip
    ax.plot(
        [curves.peak_words, 2 * last],
        [curves.explicit_words] * 2,
        color="#009E73",
        linewidth=3,
        alpha=0.8,
        label=f"explicit scratchpad, from {format_count(curves.peak_words)} words on",
    )
    ax.plot(curves.peak_words, curves.explicit_words, "o", color="#009E73", markersize=8)
    top = max(lru[0], opt[0])
    for line, words in curves.working_sets.items():
        ax.axvline(words, color="0.45", linewidth=1, linestyle=(0, (1, 2)))
        ax.annotate(
            f"{_loop_text(line)}\n{format_count(words)} words",
            (words, 1),
            xycoords=ax.get_xaxis_transform(),
            xytext=(-3, -4),
            textcoords="offset points",
            rotation=90,
            ha="right",
            va="top",
            fontsize=8,
            color="0.3",
        )
    ax.set_ylim(top=6 * top)  # room for the names of the working sets
    binary_ticks(ax.xaxis, 16, 2 * last, most=8)
    ax.set_xlabel("fast memory (words; k = 1024)")
    ax.set_ylabel("words fetched or made room for (words)")
    sizes_text = ", ".join(f"{n} = {s}" for n, s in curves.schedule.tiles.items())
    ax.set_title(f"{curves.schedule.name} ({sizes_text.replace('br', 'B_r').replace('bc', 'B_c')})")
    ax.legend(loc="lower left")


def _loop_text(line: str, most: int = 20) -> str:
    """Return the line of a loop, short enough to stand beside its working set.

    >>> _loop_text("for 1 <= i <= T_r do"), _loop_text("initialise O = 0, l = 0 in HBM")
    ('for 1 ≤ i ≤ T_r', 'initialise O = 0, l…')
    """
    text = line.removesuffix(" do").replace("<=", "≤")
    return text if len(text) <= most else text[: most - 1] + "…"
