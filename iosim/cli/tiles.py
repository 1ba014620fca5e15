"""`iosim tiles`: tile sizes for a memory, by each rule."""

from pathlib import Path
from typing import Any

import click

from iosim.cli import options
from iosim.cli.cases import cases, schedules, simulations_of, with_settings
from iosim.errors import IosimError
from iosim.output import render, write_text
from iosim.tiles import RULES

SCHEDULES = ("flash1", "flash2", "standard_tiled")
COLUMNS = (
    "schedule",
    "n_q",
    "n_k",
    "head_dim",
    "sram_words",
    "tile_rule",
    "br",
    "bc",
    "peak_words",
    "fits",
    "peak_bytes",
    "total_words",
    "gap",
)


@click.command()
@options.direction
@options.simulation
def tiles(direction: str | None, form: str, output: Path | None, **given: Any) -> None:
    """Find tile sizes that fit in a memory.

    For each schedule the paper's rule (which may not fit), the largest square tile that fits, and
    the tile of the least traffic; one of them with --tiles. peak (words) is what must fit in the
    memory; peak (bytes) counts accumulators and statistics as the float32 that they are.
    """
    default = SCHEDULES if direction is None else SCHEDULES[:2]  # which have both passes
    records = []
    for case in cases(given, need_memory=True):
        for family in schedules(given, default, direction):
            if not family.tiles:
                raise IosimError(f"--schedule {family.name} has no tile sizes; name one that has")
            rules = [rule for rule in RULES if rule != "paper" or family.paper]
            chosen = (given["tiles"],) if given["tiles"] else rules
            if {name for name in ("br", "bc") if given[name]} >= set(family.tiles):
                chosen = RULES[-1:]  # nothing is left for a rule to choose
            records += [run.to_dict() for run in simulations_of(family, case, given, chosen)]
    write_text(output, render(records, form, with_settings(COLUMNS, records)))
