"""`iosim simulate`: the traffic of schedules for shapes and memories."""

from pathlib import Path
from typing import Any

import click

from iosim.cli import options
from iosim.cli.cases import simulations
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
RANK_COLUMNS = (
    "interconnect_words",
    "interconnect_send_words",
    "interconnect_bound_words",
    "rank_total_words",
    "rank_balance",
)


@click.command()
@options.simulation
def simulate(form: str, output: Path | None, **given: Any) -> None:
    """Count the traffic of schedules, with the bound and the gap.

    Words and bytes cover batch and heads; bytes count accumulators and statistics as the float32
    that they are. Tile sizes that are not given follow --tiles, by default
    the sizes of the least traffic that fits. fits says whether the schedule fits the memory; where
    it does, gap is the traffic over the largest lower bound that may be claimed for it.

    With --ranks, words and bytes cover all devices; interconnect words are sent by one rank and
    received by another, and the send, receive and rank columns have the most of any rank.
    rank_balance is the mean of the ranks' FLOPs over the most of one.
    """
    records = [run.to_dict() for run in simulations(given, SCHEDULES)]
    write_text(output, render(records, form, columns(records)))


def columns(records: list[dict[str, Any]]) -> tuple[str, ...]:
    """Return the columns of the table: those about ranks where a schedule has any."""
    if not any("ranks" in record for record in records):
        return COLUMNS
    at = COLUMNS.index("sram_words")
    return (*COLUMNS[:at], "ranks", *COLUMNS[at:], *RANK_COLUMNS)
