"""The figure of slow memory: what schedules keep beside Q, K, V and O, against N, and what fits."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from iosim.longest import longest
from iosim.machine import Machine
from iosim.plot.style import Look, binary_ticks, halo, looks, short
from iosim.plot.sweep import Choice
from iosim.reading.slow_memory import SlowMemory, slow_memory
from iosim.schedule.registry import Family
from iosim.shape import AttentionShape
from iosim.units import format_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TILE = 64
"""Rows of the tiles: no tensor of slow memory depends on them."""

INPUTS_LINE: Any = {"color": "0.35", "linestyle": (0, (4, 2)), "linewidth": 1.2}


@dataclass(frozen=True)
class Growth:
    """What one schedule keeps in slow memory at each N, and the longest N that a capacity holds."""

    family: Family
    lengths: tuple[int, ...]
    kept: tuple[SlowMemory, ...]
    longest: int | None

    @property
    def beside_bytes(self) -> tuple[int, ...]:
        """Bytes beside Q, K, V and O: extra tensors, and statistics among the outputs."""
        return tuple(each.extra_bytes + each.kept_bytes for each in self.kept)


def growth(family: Family, shape: AttentionShape, lengths: Sequence[int], capacity: int) -> Growth:
    """Return what a schedule keeps at each N = n_q = n_k, and the longest N in `capacity` bytes."""
    sizes = dict.fromkeys(family.tiles, TILE)
    kept = [
        slow_memory(family.build(replace(shape, n_q=n, n_k=n), **sizes)) for n in sorted(lengths)
    ]
    square = replace(shape, n_q=lengths[0], n_k=lengths[0])
    most = longest(family, square, sizes, capacity)
    return Growth(family, tuple(sorted(lengths)), tuple(kept), most)


def draw_growth(every: Sequence[Growth], device: Machine, ax: "Axes") -> None:
    """Draw bytes beside Q, K, V and O against N, Q, K, V and O themselves, and the capacity."""
    ax.set(xscale="log", yscale="log")
    shown: list[Look] = looks([Choice(each.family) for each in every])
    for each, look in zip(every, shown, strict=True):
        beside = f": up to N = {format_count(each.longest)}" if each.longest else ""
        ax.plot(
            each.lengths,
            each.beside_bytes,
            color=look.colour,
            marker=look.marker,
            markersize=5.5,
            linewidth=1.2,
            zorder=3,
            label=f"{each.family.name}{beside}",
        )
    lengths = every[0].lengths
    own = [kept.total_bytes - kept.extra_bytes - kept.kept_bytes for kept in every[0].kept]
    ax.plot(lengths, own, zorder=2, label="Q, K, V and O", **INPUTS_LINE)
    ax.axhline(device.hbm_bytes, color="black", linewidth=1.2, zorder=2)
    ax.annotate(
        f"{device.name}: {device.hbm_bytes / 1e9:g} GB",
        xy=(lengths[0], device.hbm_bytes),
        xytext=(2, 4),
        textcoords="offset points",
        path_effects=halo(),
    )
    ax.set_xlim(lengths[0] / 1.12, lengths[-1] * 1.12)
    binary_ticks(ax.xaxis, lengths[0], lengths[-1])
    ax.xaxis.set_major_formatter(lambda n, _: _rows(round(n)))
    ax.set_xlabel("sequence length N (rows; k = 1024, m = 1024 k)")
    ax.set_ylabel("slow memory (bytes)")
    ax.legend(
        loc="upper left",
        bbox_to_anchor=(1.01, 1.02),
        title=f"Bytes beside Q, K, V and O, and the longest N\nof which {device.name} holds all",
        alignment="left",
    )


def _rows(n: int) -> str:
    """Return a number of rows, multiples of 1024^2 with an m and of 1024 with a k."""
    return f"{n >> 20}m" if n and n % (1 << 20) == 0 else short(n)
