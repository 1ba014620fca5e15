"""``iosim fuzz``: check the laws of online softmax on adversarial cases for as long as asked."""

from __future__ import annotations

import math
import secrets
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from iosim import output

if TYPE_CHECKING:
    from iosim.laws import Failure

EXAMPLES = 200
"""Examples of each law in a round, unless asked otherwise."""

INTERRUPTED = 130


@dataclass
class Tally:
    """What has been done for one law so far."""

    examples: int = 0
    failure: Failure | None = None

    @property
    def verdict(self) -> str:
        """One word for the table, or two."""
        if self.failure is not None:
            return "FAILS"
        return "holds" if self.examples else "not run"


@click.command(name="fuzz")
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    help="Go on for so long, in rounds with new cases; inf never stops.  [default: one round]",
)
@click.option(
    "--examples",
    type=click.IntRange(min=1),
    default=EXAMPLES,
    show_default=True,
    help="Random examples of each law in a round.",
)
@click.option("--seed", type=click.IntRange(min=0), help="Repeat a run.  [default: a new one]")
@click.option("--law", "names", multiple=True, metavar="NAME", help="Only this law; repeatable.")
@click.pass_context
def fuzz(
    ctx: click.Context,
    minutes: float | None,
    examples: int,
    seed: int | None,
    names: tuple[str, ...],
) -> None:
    """Fuzz the merges of online softmax.

    Every law is checked on scores and values that are huge, tiny, equal, masked, NaN or infinite,
    with any partition of the keys and any merge tree. A failing case is made as small as possible
    and printed as Python that shows it again. Exit code 1: a law fails; 130: interrupted.
    """
    # Hypothesis takes a while to import, which `iosim --help` should not pay for.
    from iosim.laws import LAWS

    for name in names:
        if name not in LAWS:
            raise click.BadParameter(
                f"{name!r} is not a law: known are {', '.join(LAWS)}.", ctx, param_hint="--law"
            )
    if minutes is not None and math.isnan(minutes):
        raise click.BadParameter("nan is not a number of minutes.", ctx, param_hint="--minutes")
    if seed is None:
        seed = secrets.randbits(32)
    click.echo(f"seed {seed}", err=True)
    tallies = {name: Tally() for name in LAWS if not names or name in names}
    code = 0
    try:
        with _nothing_left(), _interrupts_kept() as raise_if_interrupted:
            _run(tallies, minutes, examples, seed, raise_if_interrupted)
    except KeyboardInterrupt:
        click.echo("interrupted: this is what was done so far", err=True)
        code = INTERRUPTED
    _print(tallies)
    ctx.exit(code or int(any(tally.failure for tally in tallies.values())))


@contextmanager
def _nothing_left() -> Iterator[None]:
    """Let hypothesis keep what it notes down in a folder that goes, not in the current one."""
    from hypothesis.configuration import set_hypothesis_home_dir

    with tempfile.TemporaryDirectory() as folder:
        set_hypothesis_home_dir(folder)
        try:
            yield
        finally:
            set_hypothesis_home_dir(None)  # back to its default


@contextmanager
def _interrupts_kept() -> Iterator[Callable[[], None]]:
    """Remember Ctrl-C, and give a function that raises `KeyboardInterrupt` if there was one.

    What is raised inside a hook of the garbage collector is lost, and hypothesis has such a hook:
    without this, one Ctrl-C in a few would be ignored.
    """
    interrupted = False

    def handle(number: int, frame: object) -> None:
        nonlocal interrupted
        interrupted = True
        raise KeyboardInterrupt

    def raise_if_interrupted() -> None:
        if interrupted:
            raise KeyboardInterrupt

    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not usual or threading.current_thread() is not threading.main_thread():
        yield raise_if_interrupted
        return
    signal.signal(signal.SIGINT, handle)
    try:
        yield raise_if_interrupted
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _run(
    tallies: dict[str, Tally],
    minutes: float | None,
    examples: int,
    seed: int,
    raise_if_interrupted: Callable[[], None],
) -> None:
    """Fill in the tallies, round by round; each law that still holds gets an equal time."""
    from iosim.laws import LAWS, run_law

    start = time.monotonic()
    end = start + (math.inf if minutes is None else 60 * minutes)
    round_number = 0
    while True:
        left = [name for name, tally in tallies.items() if tally.failure is None]
        for position, name in enumerate(left):
            tally = tallies[name]
            now = time.monotonic()
            stop = now + (end - now) / (len(left) - position)

            def wanted(tally: Tally = tally, stop: float = stop) -> bool:
                raise_if_interrupted()
                # The first example always runs: a law that was not tried must not seem to hold.
                if tally.examples and time.monotonic() >= stop:
                    return False
                tally.examples += 1
                return True

            tally.failure = run_law(
                LAWS[name], examples=examples, seed=seed + round_number, wanted=wanted
            )
            _progress(name, tally, round_number, time.monotonic() - start)
        round_number += 1
        if minutes is None or time.monotonic() >= end or not left:
            return


def _progress(name: str, tally: Tally, round_number: int, seconds: float) -> None:
    """One line on standard error: rewritten on a terminal, else only for the first round."""
    terminal = sys.stderr.isatty()
    if terminal or not round_number or tally.failure:
        line = f"{seconds:6.0f} s  {name}: {tally.examples} examples, {tally.verdict}"
        # \x1b[K clears what a longer line left behind.
        click.echo(f"\r{line}\x1b[K" if terminal else line, err=True, nl=not terminal)
        if terminal and (tally.failure or not round_number):
            click.echo(err=True)


def _print(tallies: dict[str, Tally]) -> None:
    from iosim.laws import LAWS

    records = [
        {
            "law": name,
            "examples": tally.examples,
            "verdict": tally.verdict,
            "statement": LAWS[name].statement,
        }
        for name, tally in tallies.items()
    ]
    click.echo(output.table(records), nl=False)
    for tally in tallies.values():
        if tally.failure is not None:
            click.echo(f"\n{tally.failure.law} fails: {tally.failure.error}")
            click.echo(tally.failure.python)
