"""The figure of walks: how much of a stream is read again from HBM, measured and replayed."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from iosim.device.profile import profile
from iosim.device.walks import replay, walk_of
from iosim.plot.style import Look, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Name of a walk in the recording, what it is called here, and its look; Okabe and Ito's palette.
CURVES = {
    "cyclic": ("all SMs together, in a circle", Look("#0072B2", "o")),
    "cyclic, one block": ("one SM alone, in a circle", Look("#D55E00", "^")),
    "half behind": ("half of the SMs behind the others", Look("#009E73", "s")),
    "spread": ("every SM at a place of its own", Look("#CC79A7", "D")),
}


def draw_walks(record: Mapping[str, Any]) -> "Figure":
    """Return the figure of a recording of benchmarks/gpu_l2.py.

    Across: MiB of the circle, of the lag or of the window that the SMs spread over; up: the share
    of all possible re-reads that came from HBM. Marks are measured, lines replayed.
    """
    from matplotlib.figure import Figure

    device = profile(record["device"].removeprefix("NVIDIA "))
    with styled():
        figure = Figure(figsize=(6.4, 4.6), layout="constrained")
        ax = figure.subplots()
        for name, (label, look) in CURVES.items():
            marks, line = {}, {}
            for entry in record["walks"]:
                if entry["name"] != name:
                    continue
                walk = walk_of(entry, record["chunk_bytes"])
                found = replay(walk, device, block_sides=entry.get("sides"))
                marks[entry["mib"]] = walk.share_again(entry["hbm_read_bytes"])
                line[entry["mib"]] = walk.share_again(found)
            places = sorted(marks)
            ax.plot(places, [line[x] for x in places], color=look.colour, linewidth=1.2)
            ax.plot(
                places,
                [marks[x] for x in places],
                look.marker,
                color=look.colour,
                markersize=5,
                markerfacecolor="none",
                label=label,
            )
        half = device.machine.l2_bytes / device.l2_partitions / (1 << 20)
        ax.axvline(half, color="0.6", linewidth=0.8, zorder=0)
        ax.annotate(f"half of L2, {half:.0f} MiB", (half + 1, 1.06), color="0.3")
        ax.set_xlim(0, 100)
        ax.set_ylim(-0.03, 1.13)
        ax.set_xlabel("circle, lag or window (MiB)")
        ax.set_ylabel("share of re-reads that came from HBM")
        ax.legend(loc="lower right", title="marks measured, lines replayed")
        figure.suptitle(
            f"What the L2 of an {record['device']} keeps of a stream\n"
            f"walks measured {record['date']}, and the same in the simulated L2",
            x=0.01,
            ha="left",
        )
    return figure
