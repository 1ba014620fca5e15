"""`iosim simulate`: the traffic of schedules for shapes and memories."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from iosim.cli import options
from iosim.cli.cases import passes, with_settings
from iosim.output import render, write_text

SCHEDULES = ("standard", "flash1", "flash2")
COLUMNS: Sequence[str] = (
    "schedule",
    "pass",
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
STEP_COLUMNS: Sequence[str] = (*COLUMNS, "recomputed_flops", "saved_words")


@click.command()
@click.option(
    "--pass",
    "direction",
    type=click.Choice(["forward", "backward", "both"]),
    help="The pass of each schedule named: its forward one, its backward one, or a whole training "
    "step.  [default: that of the schedule]",
)
@options.simulation
def simulate(direction: str | None, form: str, output: Path | None, **given: Any) -> None:
    """Count the traffic of schedules, with the bound and the gap.

    Words and bytes cover batch and heads; bytes count accumulators and statistics as the float32
    that they are. Tile sizes that are not given follow --tiles, by default
    the sizes of the least traffic that fits. fits says whether the schedule fits the memory; where
    it does, gap is the traffic over the largest lower bound that may be claimed for it.

    With --pass both a third row has the sums of a training step: beside them the FLOPs that form
    scores again in the backward pass, and the words that this saves against standard attention,
    which stores P.

    With --ranks, words and bytes cover all devices; interconnect words are sent by one rank and
    received by another, and the send, receive and rank columns have the most of any rank.
    rank_balance is the mean of the ranks' FLOPs over the most of one.
    """
    records = [run.to_dict() for run in passes(given, SCHEDULES, direction)]
    columns = COLUMNS if direction != "both" else STEP_COLUMNS
    if all(record["pass"] == "forward" for record in records):
        columns = [column for column in columns if column != "pass"]
    columns = with_settings(columns, records)
    if "ranks" in columns:
        columns += RANK_COLUMNS
    write_text(output, render(records, form, columns))
