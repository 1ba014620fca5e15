"""What splits and packed heads cost in decoding: one query a sequence against a long cache."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from iosim.bounds import compulsory_words
from iosim.plot.style import OTHER_LOOKS, Look, binary_ticks, styled
from iosim.reading.count import total_words
from iosim.schedule.registry import family
from iosim.shape import AttentionShape

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHAPE = AttentionShape(n_q=1, n_k=65536, head_dim=128, heads=32, kv_heads=8)
SPLITS = tuple(2**k for k in range(11))
KEYS = (4096, 65536, 2**20)
TILE = 64  # rows of a key tile, which no word depends on without a mask

LOOKS = (Look("#009E73", "o"), Look("#0072B2", "v"), Look("#D55E00", "s"), *OTHER_LOOKS)


@dataclass(frozen=True)
class Line:
    """Words moved in all by split_kv, one count for each number of splits, beside the least."""

    shape: AttentionShape
    pack: int
    splits: tuple[int, ...]
    words: tuple[int, ...]
    compulsory: int

    @property
    def above(self) -> list[float]:
        """How far each count is above what is compulsory, as a share of that."""
        return [(words - self.compulsory) / self.compulsory for words in self.words]


def against_splits(shape: AttentionShape, pack: int, splits: Sequence[int] = SPLITS) -> Line:
    """Return what split_kv moves with so many heads in a tile.

    >>> line = against_splits(SHAPE, 4, (1, 8))
    >>> line.words, line.compulsory
    ((134234208, 134320672), 134225920)
    """
    build = family("split_kv").build
    words = tuple(
        total_words(build(shape, br=shape.n_q, bc=TILE, splits=s, pack=pack)) for s in splits
    )
    return Line(shape, pack, tuple(splits), words, sum(compulsory_words(shape)))


def draw_decoding() -> "Figure":
    """Return the figure: words against splits for each packing, and the cost of the splits."""
    from matplotlib.figure import Figure

    packs = [pack for pack in range(SHAPE.group, 0, -1) if SHAPE.group % pack == 0]
    with styled():
        figure = Figure(figsize=(10.5, 4.4), layout="constrained")
        left, right = figure.subplots(1, 2)
        _draw_packing([against_splits(SHAPE, pack) for pack in packs], left)
        _draw_cost([against_splits(replace(SHAPE, n_k=n), SHAPE.group) for n in KEYS], right)
        figure.suptitle(
            "One token decoded by split_kv: $n_q$ = 1, "
            f"{SHAPE.heads} heads on {SHAPE.kv_heads} of keys and values, d = {SHAPE.head_dim}",
            x=0.01,
            ha="left",
        )
    return figure


def _draw_packing(lines: Sequence[Line], ax: "Axes") -> None:
    for line, look in zip(lines, LOOKS, strict=False):
        heads = "1 head" if line.pack == 1 else f"{line.pack} heads"
        ax.plot(
            line.splits,
            line.words,
            color=look.colour,
            marker=look.marker,
            markersize=5,
            label=f"{heads} in a tile",
        )
    ax.axhline(lines[0].compulsory, color="black", linewidth=1, label="compulsory")
    ax.set(xscale="log", yscale="log", ylabel="words moved, all heads")
    ax.set_ylim(lines[0].compulsory / 1.5, max(lines[-1].words) * 3)
    ax.set_title(f"Heads packed into a tile, $n_k$ = {_keys(lines[0].shape)}")
    _finish(ax)


def _draw_cost(lines: Sequence[Line], ax: "Axes") -> None:
    for line, look in zip(lines, LOOKS, strict=False):
        ax.plot(
            line.splits,
            [100 * share for share in line.above],
            color=look.colour,
            marker=look.marker,
            markersize=5,
            label=f"$n_k$ = {_keys(line.shape)}",
        )
    ax.set(xscale="log", yscale="log", ylabel="above compulsory (% of it)")
    ax.set_title(f"What splits add, {lines[0].pack} heads in a tile")
    _finish(ax)


def _finish(ax: "Axes") -> None:
    binary_ticks(ax.xaxis, SPLITS[0], SPLITS[-1])
    ax.set_xlabel("splits s (no unit; k = 1024)")
    ax.legend(loc="upper left")


def _keys(shape: AttentionShape) -> str:
    millions, left = divmod(shape.n_k, 2**20)
    return f"{shape.n_k // 1024}k" if left else f"{millions}M"
