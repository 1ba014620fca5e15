"""Several devices: what each sends over the interconnect, and who computes how much."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from iosim.errors import IosimError
from iosim.plot.style import OTHER_LOOKS, Look, binary_ticks, styled
from iosim.plot.text import shape_text
from iosim.reading.count import count
from iosim.reading.traffic import Share
from iosim.schedule.registry import family
from iosim.shape import AttentionShape

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PREFILL = AttentionShape(65_536, 65_536, 128, heads=32, kv_heads=8)
"""A layer of a model with 32 query heads in groups of 4, and 64k tokens."""
RANKS = (2, 4, 8, 16, 32, 64)
TILE = 128
DECODE_RANKS = 8

LOOKS: Mapping[str, Look] = {
    "ring": Look("#0072B2", "o"),
    "ulysses": Look("#D55E00", "s"),
    "tree_decoding": Look("#009E73", "D"),
}


@dataclass(frozen=True)
class SentCurve:
    """The most bytes that any device sends, against the number of devices or of keys."""

    schedule: str
    label: str
    xs: tuple[int, ...]
    bytes: tuple[int, ...]


def shares(
    name: str, shape: AttentionShape, ranks: int, layout: str | None = None
) -> tuple[Share, ...]:
    """Return what each of several devices moves, sends and computes, in tiles of 128 rows."""
    laid = {} if layout is None else {"layout": layout}
    return count(family(name).build(shape, br=TILE, bc=TILE, ranks=ranks, **laid)).ranks


def sent_bytes(name: str, shape: AttentionShape, ranks: int) -> int:
    """Return the most bytes that any device sends; states are float32 beside a 16-bit dtype.

    >>> sent_bytes("tree_decoding", AttentionShape(1, 4096, 128), 8) == 3 * 130 * 4
    True
    """
    schedule = family(name).build(shape, br=TILE, bc=TILE, ranks=ranks)
    traffic = count(schedule)
    words = max(share.send_words for share in traffic.ranks)
    # All that a schedule sends is of one item size.
    return words * traffic.interconnect_bytes // max(traffic.interconnect_words, 1)


def against_ranks(shape: AttentionShape, ranks: Sequence[int] = RANKS) -> list[SentCurve]:
    """Return what ring and Ulysses send, with the heads of the shape and with none shared."""
    alone = replace(shape, kv_heads=shape.heads)
    curves = []
    for name in ("ring", "ulysses"):
        for each in dict.fromkeys((alone, shape)):
            able = [p for p in ranks if _can(name, each, p)]
            label = f"{name}, {each.heads} heads, K and V of {each.kv_heads}"
            sent = tuple(sent_bytes(name, each, p) for p in able)
            curves.append(SentCurve(name, label, tuple(able), sent))
    return curves


def against_keys(shape: AttentionShape, ranks: int = DECODE_RANKS) -> list[SentCurve]:
    """Return what is sent to decode with a query on each rank: K and V round a ring, or results."""
    keys = [1024 * 2**step for step in range(11)]
    curves = []
    for name in ("ring", "ulysses", "tree_decoding"):
        sent = tuple(sent_bytes(name, replace(shape, n_q=ranks, n_k=n), ranks) for n in keys)
        curves.append(SentCurve(name, name, tuple(keys), sent))
    return curves


def _can(name: str, shape: AttentionShape, ranks: int) -> bool:
    try:
        family(name).build(shape, br=TILE, bc=TILE, ranks=ranks)
    except IosimError:
        return False
    return True


def draw_devices(shape: AttentionShape = PREFILL) -> "Figure":
    """Return the figure: bytes sent against devices and against keys; FLOPs of a causal ring."""
    from matplotlib.figure import Figure

    with styled():
        figure = Figure(figsize=(13, 4.3), layout="constrained")
        left, middle, right = figure.subplots(1, 3)
        draw_sent(against_ranks(shape), left, "devices p")
        left.set_title(f"Prefill of {shape.n_q // 1024}k tokens: ring and Ulysses")
        draw_sent(against_keys(shape), middle, "keys n_k")
        middle.set_title(f"{DECODE_RANKS} queries on {DECODE_RANKS} devices: the tree beside them")
        draw_balance(replace(shape, causal=True), right)
        fixed = shape_text(replace(shape, n_q=shape.n_k), without="length")
        figure.suptitle(f"Between devices\n{fixed}", x=0.01, ha="left")
    return figure


def draw_sent(curves: Sequence[SentCurve], ax: "Axes", label: str) -> None:
    """Draw the bytes that a device sends, one curve each; lighter where K and V are shared."""
    ax.set(xscale="log", yscale="log")
    drawn: set[str] = set()
    for curve in curves:
        look = LOOKS.get(curve.schedule, OTHER_LOOKS[0])
        again = curve.schedule in drawn
        drawn.add(curve.schedule)
        ax.plot(
            curve.xs,
            curve.bytes,
            color=look.colour,
            marker=look.marker,
            markersize=5,
            markerfacecolor="white" if again else look.colour,
            linestyle="dashed" if again else "solid",
            linewidth=1.3,
            label=curve.label,
        )
    xs = [x for curve in curves for x in curve.xs]
    binary_ticks(ax.xaxis, min(xs), max(xs))
    ax.set_xlabel(label)
    ax.set_ylabel("sent by one device (bytes)")
    ax.set_ylim(bottom=min(b for curve in curves for b in curve.bytes) / 3)
    ax.legend(loc="best")


def draw_balance(shape: AttentionShape, ax: "Axes", ranks: int = DECODE_RANKS) -> None:
    """Draw the FLOPs of each rank under a causal mask: the last one makes the others wait.

    A ring is drawn with contiguous shards (full) and in a zigzag (hollow).
    """
    width = 0.27
    for place, (name, layout) in enumerate((("ring", None), ("ring", "zigzag"), ("ulysses", None))):
        flops = [share.flops for share in shares(name, shape, ranks, layout)]
        mean = sum(flops) / ranks
        colour = LOOKS[name].colour
        ax.bar(
            [rank + (place - 1) * width for rank in range(ranks)],
            [each / 1e12 for each in flops],
            width,
            facecolor=colour if layout is None else "white",
            edgecolor=colour,
            label=f"{name if layout is None else f'{name}, {layout}'}: "
            f"mean {mean / max(flops):.0%} of the most",
        )
    ax.set_xticks(range(ranks))
    ax.grid(axis="x", visible=False)
    ax.set_xlabel("rank")
    ax.set_ylabel("work of one device (TFLOP)")
    ax.set_title("Causal mask: who computes how much")
    ax.legend(loc="upper left")
