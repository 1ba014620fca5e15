"""`iosim simulate`: the traffic of schedules for shapes and memories."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from iosim.cli import options
from iosim.cli.cases import passes, with_settings
from iosim.output import heading, render, table, write_text
from iosim.units import format_count

SCHEDULES = ("standard", "flash1", "flash2")
# What is the same in every row stands in a line above the table, so that it stays narrow.
CASE = ("n_q", "n_k", "head_dim", "heads", "sram_words")
TRAFFIC = (
    *("br", "bc", "total_words", "total_bytes", "peak_words", "fits"),
    *("bound", "lower_bound_words", "gap"),
)
RANKS = (
    *("interconnect_words", "interconnect_send_words", "interconnect_bound_words"),
    *("rank_total_words", "rank_balance"),
)
STEP = ("recomputed_flops", "saved_words")
MEMORY = (
    *("slow_input_bytes", "slow_output_bytes", "extra_slow_words", "extra_slow_bytes"),
    "longest_seq_len",
)


@click.command()
@click.option(
    "--pass",
    "direction",
    type=click.Choice(["forward", "backward", "both"]),
    help="The pass of each schedule named: its forward one, its backward one, or a whole training "
    "step.  [default: that of the schedule]",
)
@options.simulation
@options.hbm
def simulate(direction: str | None, form: str, output: Path | None, **given: Any) -> None:
    """Count the traffic of schedules, with the bound and the gap.

    Words and bytes cover batch and heads; bytes count accumulators and statistics as the float32
    that they are. Tile sizes that are not given follow --tiles, by default
    the sizes of the least traffic that fits. fits says whether the schedule fits the memory; where
    it does, gap is the traffic over the largest lower bound that may be claimed for it.

    With --device or --hbm a second table says what each schedule keeps in slow memory: inputs,
    outputs, extra (S, P, statistics), and the longest sequence that fits, the rest being as stated.

    With --pass both a third row has the sums of a training step: beside them the FLOPs that form
    scores again in the backward pass, and the words that this saves against standard attention,
    which stores P.

    With --ranks, words and bytes cover all devices; interconnect words are sent by one rank and
    received by another, and the send, receive and rank columns have the most of any rank.
    rank_balance is the mean of the ranks' FLOPs over the most of one, and critical_path_flops, in
    JSON and CSV, the most of one in each step, summed over the steps.
    """
    records = [run.to_dict() for run in passes(given, SCHEDULES, direction)]
    text = _tables(records) if form == "table" else render(records, form)
    write_text(output, text)


def _tables(records: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of traffic, and that of slow memory where its size is known."""
    same = [key for key in CASE if len({record[key] for record in records}) == 1]
    own = ["schedule", *(key for key in CASE if key not in same)]
    if any(record["pass"] != "forward" for record in records):
        own.insert(1, "pass")
    stated = [_stated(key, records[0][key]) for key in same]
    if "n_k" in own and all(record["n_k"] == record["n_q"] for record in records):
        own.remove("n_k")
        stated.insert(0, "n_k = n_q")
    text = f"{', '.join(stated)}\n\n" if stated else ""
    steps = any(record["pass"] == "both" for record in records)
    columns = with_settings((*own, *TRAFFIC, *(STEP if steps else ())), records)
    if "ranks" in columns:
        columns += RANKS
    text += table(records, columns)
    kept = [record for record in records if record.get("hbm_bytes") is not None]
    if kept:
        text += f"\nslow memory of {format_count(kept[0]['hbm_bytes'])} bytes\n\n"
        text += table(kept, (*own, *MEMORY))
    return text


def _stated(key: str, value: int | None) -> str:
    """Return what every row has in common: 'n_q = 8 192', 'sram (words) = 51 200'."""
    return f"{heading(key)} = {'-' if value is None else format_count(value)}"
