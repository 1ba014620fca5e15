"""The figure of HBM bytes: predicted by the simulated L2 against measured, a mark for each case."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from iosim.plot.style import Look, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOOKS = {
    "without a mask": Look("#0072B2", "o"),
    "causal": Look("#D55E00", "^"),
    "backward": Look("#009E73", "s"),
    "decoding": Look("#E69F00", "D"),
}


def draw_hbm(record: Mapping[str, Any]) -> "Figure":
    """Return the figure of a record of benchmarks/device_fit.py.

    Across: measured over compulsory; up: how far the prediction is off, by kind of case. Marks of
    cases that were held out when the model was chosen are filled.
    """
    from matplotlib.figure import Figure

    with styled():
        figure = Figure(figsize=(6.4, 4.6), layout="constrained")
        ax = figure.subplots()
        for kind, look in LOOKS.items():
            cases = [case for case in record["cases"] if case["kind"] == kind]
            for held_out in (False, True):
                some = [case for case in cases if (case["part"] == "held out") == held_out]
                ax.plot(
                    [case["measured"] / case["compulsory"] for case in some],
                    [1 + case["error"] for case in some],
                    look.marker,
                    color=look.colour,
                    markersize=5,
                    markerfacecolor=look.colour if held_out else "none",
                    label=None if held_out else f"{kind} ({len(cases)})",
                )
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_ylim(0.24, 4.2)
        ticks = {"1/4": 0.25, "1/2": 0.5, "0.8": 0.8, "1": 1, "1.25": 1.25, "2": 2, "4": 4}
        ax.set_yticks(list(ticks.values()), list(ticks))
        ax.minorticks_off()
        ax.axhspan(0.8, 1.25, color="0.93", zorder=0)
        ax.set_xlabel("read from HBM as measured, times compulsory")
        ax.set_ylabel("predicted / measured")
        ax.legend()
        figure.suptitle(
            f"HBM reads predicted by the simulated L2\n{len(record['cases'])} cases (filled: held "
            f"out), {record['device']}, {record['date']}",
            x=0.01,
            ha="left",
        )
    return figure
