"""`iosim simulate`: the traffic of schedules for shapes and memories."""

from pathlib import Path
from typing import Any

import click

from iosim.cli import options
from iosim.cli.cases import cases, given_tiles, schedules
from iosim.output import render, write_text
from iosim.report import simulate as run

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
@options.schedule
@options.shape
@options.memory
@options.tile_sizes
@options.results
def simulate(form: str, output: Path | None, **given: Any) -> None:
    """Count the traffic of schedules, with the bound and the gap.

    Words and bytes cover batch and heads; bytes count accumulators and statistics as the float32
    that they are. Tile sizes that are not given follow --tiles, by default
    the sizes of the least traffic that fits. fits says whether the schedule fits the memory; where
    it does, gap is the traffic over the largest lower bound that may be claimed for it.
    """
    records = [
        run(
            family,
            case.shape,
            sram_words=case.sram_words,
            rule=given["tiles"] or "best",
            given=sizes,
        ).to_dict()
        for case in cases(given)
        for family in schedules(given, SCHEDULES)
        for sizes in (given_tiles(given) if family.tiles else ({},))
    ]
    write_text(output, render(records, form, COLUMNS))
