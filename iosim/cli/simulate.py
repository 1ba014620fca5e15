"""`iosim simulate`: the traffic of schedules for shapes and memories."""

from pathlib import Path
from typing import Any

import click

from iosim.cli import options
from iosim.cli.cases import simulations, with_settings
from iosim.output import render, write_text

SCHEDULES = ("standard", "flash1", "flash2")
COLUMNS = (
    "schedule",
    "n_q",
    "n_k",
    "head_dim",
    "heads",
    "sram_words",
    "br",
    "bc",
    "total_words",
    "total_bytes",
    "peak_words",
    "fits",
    "bound",
    "lower_bound_words",
    "gap",
)


@click.command()
@options.simulation
def simulate(form: str, output: Path | None, **given: Any) -> None:
    """Count the traffic of schedules, with the bound and the gap.

    Words and bytes cover batch and heads; bytes count accumulators and statistics as the float32
    that they are. Tile sizes that are not given follow --tiles, by default
    the sizes of the least traffic that fits. fits says whether the schedule fits the memory; where
    it does, gap is the traffic over the largest lower bound that may be claimed for it.
    """
    records = [run.to_dict() for run in simulations(given, SCHEDULES)]
    write_text(output, render(records, form, with_settings(COLUMNS, records)))
