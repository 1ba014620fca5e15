"""`iosim bound`: lower bounds for shapes and memories, with their ranges of validity."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from iosim.bounds import Bound, lower_bounds, regime
from iosim.cli import options
from iosim.cli.cases import Case, cases, schedules, simulations_of
from iosim.interconnect import queries_stay
from iosim.output import render, write_text

COLUMNS = (
    "n_q",
    "n_k",
    "head_dim",
    "heads",
    "sram_words",
    "regime",
    "schedule",
    "bound",
    "lower_bound_words",
    "holds",
    "reason",
    "leading",
)


@click.command()
@options.direction
@options.simulation
def bound(direction: str | None, form: str, output: Path | None, **given: Any) -> None:
    """Give lower bounds, with their regime and range.

    Words cover batch and heads. With --schedule, holds says whether each bound may be claimed for
    that schedule; without, only the bounds of every schedule of the pass are claimed. On several
    devices (--ranks) words are over all of them, and queries_stay bounds what they send.
    """
    records = [
        {
            **case.shape.to_dict(),
            "sram_words": case.sram_words,
            "regime": regime(case.shape, words),
            "schedule": name,
            "bound": found.name,
            "lower_bound_words": found.words,
            "lower_bound_bytes": found.words * case.shape.item_bytes,
            "holds": found.holds,
            "reason": found.reason,
            "leading": found.leading,
            "source": found.source,
        }
        for case in cases(given, need_memory=True)
        if (words := case.sram_words) is not None
        for name, found in _claims(case, words, given, direction)
    ]
    columns = [c for c in COLUMNS if c != "schedule" or given["schedule"]]
    write_text(output, render(records, form, columns))


def _claims(
    case: Case, words: int, given: dict[str, Any], direction: str | None
) -> Iterator[tuple[str | None, Bound]]:
    """Yield the bounds for no schedule in particular, or for each schedule by name."""
    if not given["schedule"]:
        bounds = lower_bounds(case.shape, words, direction=direction or "forward")
        yield from ((None, found) for found in bounds)
        return
    for family in schedules(given, (), direction):
        for run in simulations_of(family, case, given):
            for found in lower_bounds(case.shape, words, run.checked):
                if not run.fits and not found.any_memory:
                    peak = run.traffic.peak_words
                    found = replace(
                        found, holds=False, reason=f"the schedule needs {peak} words, more than M"
                    )
                yield run.schedule.name if run.among else family.name, found
            between = queries_stay(run.schedule)
            if between is not None:
                yield family.name, between
