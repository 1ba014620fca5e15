"""`iosim audit`: what a profiler saw of attention kernels, beside the prediction."""

import codecs
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iosim.cli import options
from iosim.cli.profiles import DEFAULT_DEVICE, recorded_profile
from iosim.errors import IosimError
from iosim.output import render, write_text
from iosim.units import format_count

if TYPE_CHECKING:
    from iosim.audit.audit import AuditedKernel
    from iosim.audit.infer import Given
    from iosim.audit.ncu_csv import ProfiledKernel

MOST_PLACES = 6  # of kernels that a note names
COLUMNS = ("place", "kernel", "level", "measured_bytes", "predicted_bytes", "off", "reason")
HOPPER = "9.0"  # the compute capability of the one device with a profile


@click.command(context_settings={"ignore_unknown_options": False})
@click.argument("program", nargs=-1, type=click.UNPROCESSED)
@click.option("--csv", "page", metavar="FILE", help="Read this CSV page of ncu instead.")
@click.option(
    "--recording",
    metavar="FILE",
    help="Read this JSON recording instead: of attention calls, or of iosim gpu measure.",
)
@click.option(
    "--case",
    "chosen",
    type=options.PLACES,
    help="Only these cases or rows of --recording: 0,3 or 0..9:+1.",
)
@click.option("--seq-len", type=options.COUNT, help="Queries, where grids do not say.")
@click.option("--kv-len", type=options.COUNT, help="Keys, if not as many as queries.")
@click.option("--head-dim", type=options.COUNT, help="Words of a row, where names do not say.")
@click.option("--batch", type=options.COUNT, help="Sequences, where grids do not say.")
@click.option("--heads", type=options.COUNT, help="Query heads, where grids do not say.")
@click.option("--kv-heads", type=options.COUNT, help="Key/value heads, if fewer than heads.")
@click.option("--dtype", type=options.DTYPE, help="The type of Q, where names do not say.")
@click.option("--causal/--no-causal", default=None, help="Whether a causal mask is used.")
@click.option("--device", metavar="NAME", help="A GPU whose L2 is described: H200.")
@click.option(
    "--timeout",
    type=options.COUNT,
    default=3600,
    show_default=True,
    help="Seconds that PROGRAM may take under ncu.",
)
@options.results
def audit(
    program: tuple[str, ...],
    page: str | None,
    recording: str | None,
    chosen: tuple[int, ...] | None,
    form: str,
    output: Path | None,
    device: str | None,
    timeout: int,
    seq_len: int | None,
    kv_len: int | None,
    **shape: Any,
) -> None:
    """Set the bytes that a profiler saw beside the prediction.

    iosim audit -- python program.py profiles every kernel that PROGRAM launches (the -- is needed);
    with --csv or --recording no GPU is needed. Shapes are told from names and grids where these say
    them, and what is assumed is said. A kernel that nobody described is listed without prediction.
    """
    sources = [bool(program), page is not None, recording is not None]
    if sum(sources) != 1:
        raise IosimError(
            "give one of PROGRAM (iosim audit -- python program.py), --csv FILE, --recording FILE"
        )
    from iosim.audit.infer import Given

    given = Given(n_q=seq_len, n_k=kv_len, **shape)
    if recording is not None:
        if not given.nothing:
            raise IosimError("the shapes stand in the file of --recording; give none beside it")
        audited = _of_recording(recording, device, chosen)
    elif chosen is not None:
        raise IosimError("--case chooses from the cases of --recording; give one with it")
    else:
        where = f"'{page}'" if page is not None else "the page of ncu"
        text = _read(page) if page is not None else _profile_program(program, timeout)
        audited = _of_page(text, where, given, device)
    _show(list(audited), form, output, whole=recording is None)


def _read(path: str) -> str:
    try:
        content = Path(path).read_bytes()
        wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))  # as PowerShell's >
        return content.decode("utf-16" if wide else "utf-8-sig")
    except OSError as error:
        raise IosimError(f"'{path}' cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise IosimError(
            f"'{path}' is no text; a report becomes a page with ncu --import FILE --csv --page raw"
        ) from error


def _profile_program(program: Sequence[str], timeout: int) -> str:
    """Run the program under ncu and return the page."""
    from iosim.audit.counters import ALL_METRICS
    from iosim.gpu import ncu

    done = ncu.run(ncu.find(), program, ALL_METRICS, from_start=True, timeout_seconds=timeout)
    said = f" ({done.last_words[:200]})" if done.last_words else ""
    if '"Kernel Name"' in done.page:
        if done.returncode:
            click.echo(
                f"note: the program ended with exit code {done.returncode}{said}; "
                "the kernels until then are audited",
                err=True,
            )
        return done.page
    everything = done.page + done.printed
    if ncu.NO_KERNELS in everything and ncu.PERMISSION not in everything:
        command = " ".join(program)
        if done.returncode:
            raise IosimError(
                f"'{command}' ended with exit code {done.returncode}{said} before it launched a "
                "kernel; make it run without iosim audit first"
            )
        raise IosimError(
            f"'{command}' launched no kernel that ncu saw; audit a program that runs one, where "
            "counters can be read (in some virtual machines they cannot)"
        )
    raise IosimError(ncu.explain(everything))


def _of_page(
    text: str, where: str, given: "Given", device: str | None
) -> "Iterator[AuditedKernel]":
    from iosim.audit.audit import audit_page
    from iosim.audit.counters import METRICS
    from iosim.audit.ncu_csv import read_page
    from iosim.device.profile import profile

    kernels = read_page(text, where)
    present = {name for kernel in kernels for name in kernel.cells}
    missing = [metric for metric, _ in METRICS.values() if metric not in present]
    if len(missing) == len(METRICS):
        raise IosimError(
            f"{where} has none of the counters that an audit compares; profile again with "
            f"ncu --metrics {','.join(metric for metric, _ in METRICS.values())}"
        )
    if missing:
        click.echo(f"note: {where} lacks {', '.join(missing)}; ncu --metrics adds them", err=True)
    return audit_page(kernels, given, profile(device or _device_of(kernels, where)))


def _device_of(kernels: "Iterable[ProfiledKernel]", where: str) -> str:
    """Return the device with a profile that the page may be of, saying that it is assumed."""
    others = {kernel.capability for kernel in kernels} - {HOPPER, None}
    if others:
        raise IosimError(
            f"{where} is of a GPU of compute capability {', '.join(sorted(map(str, others)))}, "
            f"whose L2 is not described; give --device {DEFAULT_DEVICE} to compare with that one"
        )
    click.echo(f"note: {where} names no device; {DEFAULT_DEVICE} is assumed", err=True)
    return DEFAULT_DEVICE


def _of_recording(
    path: str, device: str | None, chosen: "Sequence[int] | None"
) -> "Iterator[AuditedKernel]":
    from iosim.audit.audit import audit_cases, audit_recording
    from iosim.device.case import read_document
    from iosim.measured import load

    document = read_document(path)
    if "cases" in document:
        cases = document["cases"]
        if not isinstance(cases, list):
            raise IosimError(f"'{path}' has no list of cases under the key \"cases\"")
        places = options.resolve_places(chosen, len(cases))
        return audit_cases(cases, places, recorded_profile(device, document.get("device"), path))
    if "records" in document:
        found = load(path)
        places = options.resolve_places(chosen, len(found.rows))
        return audit_recording(found, places, recorded_profile(device, found.device, path))
    raise IosimError(f"'{path}' is no recording: it has neither cases nor records")


def _show(audited: "list[AuditedKernel]", form: str, output: Path | None, *, whole: bool) -> None:
    """Write the records, or rows for each kernel and level, and the notes to standard error.

    The rows of a `whole` program gather launches that are alike, and end with all kernels together.
    """
    from iosim.audit.gather import gather

    if form == "json":
        write_text(output, render([kernel.to_dict() for kernel in audited], form))
        return
    shown = gather(audited) if whole else audited
    said: dict[str, list[str]] = {}
    for kernel in shown:
        for note in kernel.notes if kernel.differences else ():
            said.setdefault(note, []).append(kernel.place)
    for note, places in said.items():
        named = ", ".join(places[:MOST_PLACES])
        if len(places) > MOST_PLACES:
            named += f" and {len(places) - MOST_PLACES} more"
        click.echo(f"note: kernel {named}: {note}", err=True)
    rows = list(_rows(shown))
    if whole and len(shown) > 1:
        rows += _totals(shown)
    write_text(output, render(rows, form, COLUMNS))


def _totals(audited: "list[AuditedKernel]") -> Iterator[dict[str, Any]]:
    from iosim.audit.gather import totals

    for each in totals(audited):
        yield {
            "place": "all",
            "kernel": "all kernels",
            "level": each.level,
            "measured_bytes": each.measured_bytes,
            "reason": each.shares,
        }


def _rows(audited: "Iterable[AuditedKernel]") -> Iterator[dict[str, Any]]:
    """Yield a row for each level of a kernel; one row where one of the sides is missing."""
    for kernel in audited:
        if kernel.made is None or kernel.made.sm_fill is None or not kernel.differences:
            seen = [f"{each.level} {format_count(each.measured_bytes)}" for each in
                    kernel.differences]  # fmt: skip
            measured = [f"bytes measured: {', '.join(seen)}"] if seen else []
            reason = "; ".join([*kernel.notes, *measured])
            yield {"place": kernel.place, "kernel": kernel.label, "reason": reason}
            continue
        for each in kernel.differences:
            off = each.difference
            yield {
                "place": kernel.place,
                "kernel": kernel.label,
                "level": each.level,
                "measured_bytes": each.measured_bytes,
                "predicted_bytes": each.predicted_bytes,
                "off": None if off is None else _percent(off),
                "reason": each.reason,
            }


def _percent(share: float) -> str:
    """Return a signed share in percent; a factor where it is large."""
    if share >= 1:
        return f"{share + 1:.1f} x"
    return f"{100 * share:+.3f} %" if abs(share) < 0.001 else f"{100 * share:+.1f} %"
