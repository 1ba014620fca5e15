"""`iosim verify`: check the theorem and the exactness of attention over a grid."""

import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path

import click

from iosim.cli import options
from iosim.errors import IosimError
from iosim.output import to_csv, write_text
from iosim.schedule.registry import Family, family
from iosim.verify import Check, VerificationReport, about_checks
from iosim.verify import verify as run
from iosim.verify.registry import OVER_SCHEDULES

WIDTH = 100
WORDS = {"pass": "pass", "finding": "finding", "fail": "FAIL"}
COLOURS = {"pass": "green", "finding": "yellow", "fail": "red"}
_INSIDE = re.compile(r"(?<=\d) (?=\d{3})|(?<=\d) (?=x \d)|(?<=\d x) (?=\d)|(?<=\b[NdM]) (?=\d)")
VERDICT_WIDTH = max(map(len, WORDS.values()))


def _folder(text: str) -> Path:
    if not text:
        raise IosimError("'' is no name of a folder; write --plots figures")
    return Path(text)


@click.command()
@click.option("--only", multiple=True, metavar="CHECK", help="Run this check; repeat for more.")
@options.schedule
@click.option("--thorough", is_flag=True, help="Take a larger grid, for about ten minutes.")
@click.option(
    "--plots",
    type=options.Parsed("folder", _folder),
    metavar="DIR",
    help="Write figures into this folder too, as SVG and PNG.",
)
@click.option(
    "--measured",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Check this recording of gpu measure instead.",
)
@options.results
@click.pass_context
def verify(
    ctx: click.Context,
    only: tuple[str, ...],
    schedule: tuple[str, ...] | None,
    thorough: bool,
    plots: Path | None,
    measured: Path | None,
    form: str,
    output: Path | None,
) -> None:
    """Check the theorem and the exactness of attention over a grid.

    Checks: exactness, gradients, counting, capacity, sandwich, exponents, block_sparse,
    lower_bounds, ratios, regimes, small_memory, slow_memory. A row passes, fails, or is a finding:
    what the mathematics says, found by the check itself, where papers say otherwise or nothing. The
    exit code is 1 when any row fails.

    With --schedule, the checks that go over schedules (exactness of forward ones and gradients of
    backward ones, counting, lower_bounds) take these only, and the others, about fixed schedules,
    are left out. With --measured, a recording of hardware counters is checked against the counts
    instead, which needs no GPU.
    """
    schedules = _schedules(schedule, only) if schedule else None
    if plots is not None:  # first, since a folder that cannot be written then shows at once
        from iosim.plot.figures import write_figures

        for path in write_figures(plots):
            click.echo(f"wrote {path}", err=True)
    about = about_checks()
    if measured is not None:
        if only or schedule or thorough:
            raise IosimError(
                f"--measured {measured} is checked by itself; leave out --only, --schedule and "
                "--thorough"
            )
        from iosim.measured import load
        from iosim.verify.measured import about as about_recording
        from iosim.verify.measured import verify_recording

        recording = load(measured)
        report = verify_recording(recording)
        about = {"measured": about_recording(recording)}
    else:
        with _Progress() as progress:
            report = run(only, thorough=thorough, schedules=schedules, progress=progress)
    if form == "json":
        write_text(output, json.dumps(report.to_dict(), indent=2, allow_nan=False) + "\n")
    elif form == "csv":
        write_text(output, to_csv(report.to_dict()["records"]))
    elif output is not None:
        write_text(output, "".join(f"{line}\n" for line in table(report, about=about)))
    else:
        for line in table(report, click.style, about):
            click.echo(line)
    if not report.passed:
        ctx.exit(1)


def _schedules(names: Iterable[str], only: Iterable[str]) -> dict[str, Family]:
    """Return the schedules of these names; two of one name are told apart by what was written.

    Raises IosimError where `only` names a check that is about fixed schedules.
    """
    for check in only:
        if check in about_checks() and check not in OVER_SCHEDULES:
            raise IosimError(
                f"--only {check} is about fixed schedules, so that --schedule cannot restrict it; "
                "give one of the two"
            )
    found: dict[str, Family] = {}
    for name in dict.fromkeys(names):
        chosen = family(name)
        found[name if chosen.name in found else chosen.name] = chosen
    return found


class _Progress:
    """What is being done, on one line of a terminal's standard error; elsewhere nothing."""

    def __init__(self) -> None:
        self.shown = sys.stderr.isatty()

    def __call__(self, message: str) -> None:
        self._show(f"{message} ...")

    def __enter__(self) -> "_Progress":
        return self

    def __exit__(self, *error: object) -> None:
        self._show("")

    def _show(self, text: str) -> None:
        if self.shown:
            click.echo(f"\r\x1b[K{text}", err=True, nl=False)


def table(
    report: VerificationReport,
    style: Callable[..., str] = lambda text, **_: text,
    about: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """Yield the lines of a report for people: a heading for each check, then its rows.

    `style(text, fg=...)` colours the verdicts, which are words all the same.
    """
    about = about_checks() if about is None else about
    for name, rows in groupby(report.checks, key=lambda row: row.name):
        yield from _wrap(f"{name}: {about.get(name, '')}", WIDTH)
        listed = list(rows)
        width = max(len(row.what) for row in listed)
        for row in listed:
            yield from _row(row, width, style)
        yield ""
    yield (
        f"{report.count('pass')} passed, {report.count('finding')} findings, "
        f"{report.count('fail')} failed in {report.seconds:.1f} s"
    )
    if report.left_out:
        yield f"Left out, being about other schedules: {', '.join(report.left_out)}."
    if report.count("finding"):
        yield (
            "A finding is no failure: it is what the mathematics says, and papers do not, "
            "found by the check."
        )


def _wrap(text: str, width: int) -> list[str]:
    """Return text in lines, without tearing '8 192', '64 x 100' or 'd 64' apart."""
    held = _INSIDE.sub("\xa0", text)
    return [line.replace("\xa0", " ") for line in textwrap.wrap(held, max(width, 30))]


def _row(row: Check, width: int, style: Callable[..., str]) -> Iterator[str]:
    """Yield the lines of one row, the explanation folded beside what it explains."""
    indent = 2 + VERDICT_WIDTH + 2 + width + 2
    first, *rest = _wrap(row.detail, WIDTH - indent) or [""]
    word = style(WORDS[row.verdict], fg=COLOURS[row.verdict])
    gap = " " * (VERDICT_WIDTH - len(WORDS[row.verdict]) + 2)
    yield f"  {word}{gap}{row.what.ljust(width)}  {first}"
    for line in rest:
        yield " " * indent + line
