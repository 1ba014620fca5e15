"""`iosim cache`: what a cache would move, for a trace file or for a schedule."""

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iosim import units
from iosim.cli import options
from iosim.cli.cases import simulations
from iosim.errors import IosimError
from iosim.output import render, write_text

if TYPE_CHECKING:
    from iosim.cache.result import CacheResult, CurveResult
    from iosim.cache.stream import Stream
    from iosim.report import Simulation

LINE = 128  # bytes, where --line does not say: a line of an NVIDIA GPU's caches
EXIT_INTERRUPTED = 130  # 128 + SIGINT
TRACE_COLUMNS = ("policy", "capacity_lines", "line_bytes", "ways", "accesses", "hits", "misses",
                 "miss_ratio", "compulsory", "evictions", "writebacks")  # fmt: skip
SCHEDULE_COLUMNS = ("schedule", "n_q", "head_dim", "br", "bc", "policy", "capacity_lines", "ways",
                    "accesses", "misses", "compulsory", "writebacks")  # fmt: skip
SUFFIXES = {".txt": "ids", ".din": "din", ".lackey": "lackey", ".csv": "csv"}


def _line(text: str) -> int | None:
    return None if text == "word" else units.parse_count(text)


@click.command()
@click.argument("trace", required=False)
@click.option(
    "--policy",
    type=options.NAMES,
    default="lru",
    show_default=True,
    help="Policies: lru, opt, fifo, plru.",
)
@click.option("--capacity", type=options.SWEEP, help="Lines: 4k, a list, or a range 64..64k:x2.")
@click.option("--size", type=options.MEMORY_SIZES, help="The same as a size: 192KiB, or a list.")
@click.option(
    "--line",
    type=options.Parsed("bytes", _line),
    metavar="BYTES|word",
    help=f"Bytes of a line.  [default: {LINE}; 1 for a trace of ids]",
)
@click.option("--ways", type=options.COUNT, help="Lines of a set.  [default: fully associative]")
@click.option(
    "--curve",
    is_flag=True,
    help="Count all sizes in one pass (lru, opt); show those where the misses change.",
)
@click.option("--write-through", is_flag=True, help="Pass every write on at once.")
@click.option("--no-write-allocate", is_flag=True, help="Pass a write that misses on.")
@click.option("--bypass", is_flag=True, help="Let opt keep out a line that it needs last.")
@click.option("--no-flush", is_flag=True, help="Leave dirty lines in the cache at the end.")
@click.option(
    "--trace-format",
    type=click.Choice(["ids", "din", "lackey", "csv"]),
    help="The form of the trace.  [default: by its suffix or first line]",
)
@click.option("--ignore-sizes", is_flag=True, help="Count each access in its first line only.")
@click.option("--instructions", is_flag=True, help="Count instruction fetches as reads.")
@click.option(
    "--export",
    metavar="FILE",
    help="Write the accesses to FILE (.din, .lackey, .csv or .txt, also .gz or .zst) "
    "and simulate nothing.",
)
@options.schedule
@options.shape
@options.memory
@options.tile_sizes
@options.results
@click.pass_context
def cache(
    ctx: click.Context, /, trace: str | None, form: str, output: Path | None, **given: Any
) -> None:
    """Count what a cache would move, for a TRACE file or for schedules.

    A cache is fast memory that a policy manages: not the model of the theorem, but what a real
    memory does with the same accesses. TRACE holds ids one a line, Dinero din, Valgrind lackey or
    CSV, plain or compressed; - is standard input. An access that straddles lines counts once for
    each. With --schedule, operands are touched tile by tile; moved is what the cache would move
    beside what the schedule moves itself (explicit).

    Ctrl-C on a long run prints what was counted so far, marked as partial, and exits with 130.
    """  # fmt: skip
    sources = list(_trace_source(trace, given) if trace else _schedule_sources(given))
    if given["export"] is not None:
        _export(sources, given["export"])
        return
    records: list[dict[str, Any]] = []
    partial = False
    for source in sources:
        records += _records(source, given)
        partial = any(record["partial"] for record in records)
        if partial:
            break
    write_text(output, render(records, form, _columns(sources[0], records)))
    if partial:
        click.echo("interrupted: the counts are partial, up to the access where it stopped",
                   err=True)  # fmt: skip
        ctx.exit(EXIT_INTERRUPTED)


@dataclass(frozen=True)
class _Source:
    """A stream, the bytes of its lines (None: words), and the first keys of its records."""

    stream: "Stream"
    line_bytes: int | None
    keys: dict[str, Any]
    simulation: "Simulation | None" = None


def _trace_source(trace: str, given: dict[str, Any]) -> Iterator[_Source]:
    from iosim.cache.formats import open_trace, read_trace

    if given["schedule"]:
        raise IosimError(
            f"TRACE '{trace}' and --schedule {','.join(given['schedule'])} are both given; give one"
        )
    if _stated("line") and given["line"] is None:
        raise IosimError("--line word is for schedules; give the bytes of a line")
    opened = open_trace(trace, given["trace_format"])
    line = given["line"] or (1 if opened.form == "ids" else LINE)
    stream = read_trace(
        opened,
        line_bytes=line,
        ignore_sizes=given["ignore_sizes"],
        instructions=given["instructions"],
    )
    yield _Source(stream, line, {"trace": trace})


def _schedule_sources(given: dict[str, Any]) -> Iterator[_Source]:
    from iosim.reading.trace import trace

    if not given["schedule"]:
        raise IosimError("TRACE is missing; give a trace file, - or --schedule flash2")
    line = given["line"] if _stated("line") else LINE
    for found in simulations(given, ()):
        record = found.to_dict()
        names = list(record)[: list(record).index("bc") + 1]
        keys = {name: record[name] for name in names if name != "sram_words"}
        yield _Source(trace(found.schedule, line), line, keys, found)


def _stated(option: str) -> bool:
    """Return whether an option stands on the command line."""
    source = click.get_current_context().get_parameter_source(option)
    return source is click.core.ParameterSource.COMMANDLINE


def _records(source: _Source, given: dict[str, Any]) -> list[dict[str, Any]]:
    from iosim.cache.driver import simulate, simulate_curves
    from iosim.cache.result import CacheConfig

    config = CacheConfig(
        1,
        line_bytes=source.line_bytes,
        ways=given["ways"],
        write_allocate=not given["no_write_allocate"],
        write_back=not given["write_through"],
        bypass=given["bypass"],
        flush=not given["no_flush"],
    )
    capacities = _capacities(source, given)
    with _Progress() as progress:
        if given["curve"]:
            curves = simulate_curves(source.stream, given["policy"], config, progress)
            found = [result for curve in curves for result in _points(curve, capacities)]
        elif not capacities:
            raise IosimError(
                "--capacity is missing; write --capacity 4k or --size 192KiB, or --curve for all"
            )
        else:
            found = simulate(source.stream, given["policy"], capacities, config, progress)
    return [_record(source, result) for result in found]


def _capacities(source: _Source, given: dict[str, Any]) -> Sequence[int]:
    """Return the capacities in lines that --capacity or --size states, none for neither."""
    if given["size"] is None:
        return given["capacity"] or ()
    if given["capacity"]:
        raise IosimError("--capacity and --size both state the cache; give one")
    lines = []
    for size in given["size"]:
        unit = "words" if source.line_bytes is None else "bytes"
        if size.unit != unit:
            other = "25600w" if unit == "words" else "192KiB"
            raise IosimError(
                f"--size {size} is not in {unit}, but the lines are; write --size {other}"
            )
        line = source.line_bytes or 1
        if size.amount % line or size.amount < line:
            raise IosimError(f"--size {size} is no whole number of lines of {line} bytes")
        lines.append(size.amount // line)
    return lines


def _points(curve: "CurveResult", capacities: Sequence[int]) -> "Iterator[CacheResult]":
    """Yield the counts at the capacities, or wherever misses or write-backs change."""
    import numpy as np

    if not capacities:
        changes = np.diff(curve.misses, prepend=-1) != 0
        if curve.writebacks is not None:
            changes |= np.diff(curve.writebacks, prepend=-1) != 0
        changes[0] = False
        changes[1] = True
        capacities = np.flatnonzero(changes).tolist()
    yield from map(curve.at, capacities)


def _record(source: _Source, result: "CacheResult") -> dict[str, Any]:
    record = {**source.keys, **result.to_dict(), "miss_ratio": result.miss_ratio}
    if source.simulation is not None:
        traffic = source.simulation.traffic
        words = source.line_bytes is None
        unit = "words" if words else "bytes"
        explicit = traffic.total_words if words else traffic.total_bytes
        moved = result.moved_lines
        if moved is not None:
            moved *= source.line_bytes or 1
        record[f"moved_{unit}"] = moved
        record[f"explicit_{unit}"] = explicit
        # Part of a run is not to be compared with the whole schedule.
        known = None if moved is None or result.partial else moved / explicit
        record["moved_over_explicit"] = known
    return record


def _columns(source: _Source, records: Sequence[dict[str, Any]]) -> Sequence[str]:
    """Choose the columns of a table: those that say something."""
    names = TRACE_COLUMNS if source.simulation is None else SCHEDULE_COLUMNS
    own = [name for name in ("moved_words", "explicit_words", "moved_bytes", "explicit_bytes",
                             "moved_over_explicit") if name in records[0]]  # fmt: skip
    columns = [
        name
        for name in names
        if name not in ("ways", "br", "bc") or any(record[name] is not None for record in records)
    ]
    return [*columns, *own, *(["partial"] if any(r["partial"] for r in records) else [])]


def _export(sources: Sequence[_Source], path: str) -> None:
    from iosim.cache.writers import write_trace

    if len(sources) > 1:
        raise IosimError(f"--export '{path}' takes one schedule and shape, not {len(sources)}")
    form = next((SUFFIXES[suffix] for suffix in Path(path).suffixes if suffix in SUFFIXES), None)
    if form is None:
        raise IosimError(
            f"--export '{path}' names no format; let it end in {', '.join(SUFFIXES)}, "
            "and then in .gz or .zst to be compressed"
        )
    with _Progress() as progress:
        stream = progress.watching(sources[0].stream)
        accesses = write_trace(path, stream, form, sources[0].line_bytes or 1)
    click.echo(f"wrote {units.format_count(accesses)} accesses to {path}", err=True)


class _Progress:
    """How far a long run is, on standard error: one line of a terminal, else a line at times."""

    def __init__(self) -> None:
        self.terminal = sys.stderr.isatty()
        self.every = 0.2 if self.terminal else 10.0
        self.start = time.monotonic()
        self.next = self.start + (1.0 if self.terminal else self.every)
        self.shown = False

    def __enter__(self) -> "_Progress":
        return self

    def __exit__(self, *error: object) -> None:
        if self.terminal and self.shown:
            click.echo("\r\x1b[K", err=True, nl=False)

    def __call__(self, accesses: int) -> None:
        now = time.monotonic()
        if now < self.next:
            return
        self.next = now + self.every
        self.shown = True
        rate = accesses / (now - self.start) / 1e6
        text = f"{units.format_count(accesses)} accesses, {rate:.0f} million a second ..."
        click.echo(f"\r\x1b[K{text}" if self.terminal else text, err=True, nl=not self.terminal)

    def watching(self, stream: "Stream") -> "Stream":
        """Pass a stream on, telling how far it is."""
        accesses = 0
        for block in stream:
            accesses += block.lines.size
            self(accesses)
            yield block
