"""How the figures look: colours that colour-blind readers tell apart, markers, ticks, titles."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from iosim.plot.sweep import Choice

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.patheffects import AbstractPathEffect

STYLE: Any = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.labelsize": 10,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "figure.dpi": 100,
    "figure.titlesize": 11,
    "font.family": "DejaVu Sans",  # comes with matplotlib, so every machine draws the same
    "font.size": 9,
    "grid.color": "0.9",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "legend.title_fontsize": 9,
    "savefig.dpi": 144,
    "svg.fonttype": "path",
    "svg.hashsalt": "iosim",  # the ids in an SVG file are then the same every time
}


@contextmanager
def styled() -> Iterator[None]:
    """Draw in the style of the figures, whatever the reader's matplotlibrc says."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        yield


class Look(NamedTuple):
    """Colour and marker of a curve."""

    colour: str
    marker: str


# Okabe and Ito's palette.
LOOKS = {
    ("standard", "best"): Look("#D55E00", "s"),
    ("standard_tiled", "best"): Look("#E69F00", "D"),
    ("square_tiling", "best"): Look("#56B4E9", "P"),
    ("flash1", "paper"): Look("#CC79A7", "^"),
    ("flash1", "best"): Look("#0072B2", "v"),
    ("flash2", "best"): Look("#009E73", "o"),
    ("standard_backward", "best"): Look("#D55E00", "s"),
    ("flash1_backward", "best"): Look("#0072B2", "v"),
    ("flash2_backward", "best"): Look("#009E73", "o"),
    ("flash2_backward_q", "best"): Look("#CC79A7", "^"),
}
OTHER_LOOKS = (Look("#56B4E9", "P"), Look("#999933", "X"), Look("#882255", "*"), Look("0.4", "h"))


class BoundLook(NamedTuple):
    """Colour and dashes of a bound's line: black for the bounds on every schedule."""

    colour: str
    dashes: Any


BOUND_LOOKS = {
    "compulsory": BoundLook("black", "solid"),
    "general": BoundLook("black", (0, (2, 1.5))),
    "fused": BoundLook("#00465F", (0, (6, 2))),
    "whole_rows": BoundLook("#5A5A8C", (0, (4, 1, 1, 1))),
    "whole_rows_large_memory": BoundLook("#8C5A8C", (0, (3, 1, 1, 1, 1, 1))),
    "general_large_memory": BoundLook("0.35", (0, (1, 1))),
    "small_memory": BoundLook("0.2", (0, (5, 1.5))),
    "two_matmuls": BoundLook("#7A3B00", (0, (6, 2, 1, 2))),
    "backward_compulsory": BoundLook("black", "solid"),
    "backward_general": BoundLook("black", (0, (2, 1.5))),
    "backward_fused": BoundLook("#00465F", (0, (6, 2))),
    "backward_fused_again": BoundLook("#5A5A8C", (0, (4, 1, 1, 1))),
    "backward_fused_made": BoundLook("#8C5A8C", (0, (3, 1, 1, 1, 1, 1))),
}
OTHER_BOUND = BoundLook("0.3", (0, (1, 1)))


def looks(choices: Sequence[Choice]) -> list[Look]:
    """Return a look for each choice; a schedule keeps its look from figure to figure."""
    taken: list[Look] = []
    for choice in choices:
        own = [LOOKS.get((choice.family.name, rule)) for rule in (choice.rule, "best")]
        free = [look for look in (*own, *OTHER_LOOKS) if look is not None and look not in taken]
        taken.append(free[0] if free else OTHER_LOOKS[0])
    return taken


def short(n: float) -> str:
    """Return a whole number, multiples of 1024 with a k.

    >>> short(512), short(4096), short(1000)
    ('512', '4k', '1000')
    """
    whole = round(n)
    return f"{whole // 1024}k" if whole and whole % 1024 == 0 else str(whole)


def binary_ticks(axis: "Axis", first: int, last: int, most: int = 10) -> None:
    """Put ticks at powers of two, at most `most` of them, evenly apart."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    low = (first - 1).bit_length()
    powers = range(low, max(last.bit_length(), low + 1))
    step = -(-len(powers) // most)
    axis.set_major_locator(FixedLocator([2.0**power for power in powers[::step]]))
    axis.set_major_formatter(FuncFormatter(lambda n, _: short(n)))
    axis.set_minor_locator(NullLocator())


def halo() -> list["AbstractPathEffect"]:
    """Return the effect that keeps text readable over lines."""
    from matplotlib.patheffects import withStroke

    return [withStroke(linewidth=3.5, foreground="white")]
