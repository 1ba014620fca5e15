"""`iosim predict`: the bytes at every level of a GPU, for our kernels or for recorded cases."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iosim.cli import options
from iosim.cli.cases import given_tiles, schedules, shapes
from iosim.cli.profiles import DEFAULT_DEVICE, recorded_profile
from iosim.errors import IosimError
from iosim.machine import Machine
from iosim.output import render, write_text
from iosim.schedule.tree import Schedule
from iosim.tiles import choose_tiles

if TYPE_CHECKING:
    from iosim.device.case import KernelCall
    from iosim.device.profile import Profile

BYTES = ("sm_fill", "l2_tex_read", "dram_read", "dram_write_min", "dram_write_max",
         "compulsory_read", "limited_by", "roofline_seconds")  # fmt: skip
SHAPE = ("n_q", "n_k", "head_dim", "heads", "kv_heads", "causal")
CASE_COLUMNS = ("op", "known_as", *SHAPE, *BYTES)
SCHEDULE_COLUMNS = ("schedule", *SHAPE, "br", "bc", *BYTES)
ORDER_SHAPE = ("n_q", "n_k", "head_dim", "heads", "causal")
ORDER_COLUMNS = (*ORDER_SHAPE, "br", "bc", "order", "tiles", "keys", "dram_read",
                 "times_compulsory", "usual")  # fmt: skip

device = click.option(
    "--device",
    metavar="NAME",
    help="A GPU whose L2 is described: H200.  [default: the one that --cases names, or H200]",
)


@click.command()
@click.option(
    "--cases",
    "case_file",
    metavar="FILE",
    help="Predict the recorded attention calls of a JSON file, in its order: what each kernel's "
    "name, grid and resources say. Counters in the file are not read.",
)
@click.option(
    "--case", "places", type=options.PLACES, help="Only these cases of the file: 0,3 or 0..9:+1."
)
@click.option(
    "--orders",
    is_flag=True,
    help="Show what HBM moves when the tiles of flash2 are handed out in other orders.",
)
@options.schedule
@options.shape
@device
@options.tile_sizes
@options.results
@click.pass_context
def predict(
    ctx: click.Context,
    /,
    form: str,
    output: Path | None,
    case_file: str | None,
    places: tuple[int, ...] | None,
    orders: bool,
    device: str | None,
    **given: Any,
) -> None:
    """Predict the bytes at every level of a GPU.

    All numbers are bytes: sm_fill from L2 into the SMs, l2_tex_read looked up in L2, dram_read and
    dram_write between HBM and L2, with caches cold at the start. limited_by is the level, or the
    arithmetic, that takes longest. Without --cases it is about our own kernels of a schedule. What
    is not known is null, and a note says why.
    """
    columns: tuple[str, ...] = SCHEDULE_COLUMNS
    if case_file is not None:
        _refuse_others(ctx)
        records, columns = _of_cases(case_file, places, device), CASE_COLUMNS
    elif places is not None:
        raise IosimError("--case chooses from the file of --cases; give one with it")
    elif orders:
        write_text(output, render(list(_of_orders(given, device)), form, ORDER_COLUMNS))
        return
    else:
        records = list(_of_schedules(given, device))
    if form == "json":
        write_text(output, render(records, form))
        return
    _say(records)
    flat = [{key: value for key, value in record.items() if key != "kernels"} for record in records]
    for record in flat:
        record["notes"] = "; ".join(record["notes"])
    write_text(output, render(flat, form, columns))


def _refuse_others(ctx: click.Context) -> None:
    """Raise IosimError where --cases is given with options that state a shape of their own."""
    allowed = ("case_file", "places", "device", "form", "output")
    for name in ctx.params:
        source = ctx.get_parameter_source(name)
        if name not in allowed and source == click.core.ParameterSource.COMMANDLINE:
            option = "--" + name.replace("_", "-")
            raise IosimError(f"{option} states what the file of --cases states; give only one")


def _of_cases(path: str, places: Sequence[int] | None, device: str | None) -> list[dict[str, Any]]:
    from iosim.device.case import cases_of, read_document
    from iosim.device.predict import predict_case

    found = cases_of(read_document(path), path)
    chosen = recorded_profile(device, found.device, path)
    cases = [found.cases[i] for i in options.resolve_places(places, len(found.cases))]
    return [predict_case(case, chosen).to_dict() for case in cases]


def _of_schedules(given: dict[str, Any], device: str | None) -> Iterator[dict[str, Any]]:
    from iosim.device.own import predict_schedule
    from iosim.device.profile import profile
    from iosim.gpu.plan import key_order

    chosen = profile(device or DEFAULT_DEVICE)
    for schedule in _planned(given, chosen.machine):
        calls, why = [], ""
        try:
            calls = calls_of(schedule, chosen)
        except IosimError as error:
            why = str(error)
        keys = key_order(schedule) if calls else "forward"
        yield predict_schedule(schedule, calls, chosen, keys, why).to_dict()


def _of_orders(given: dict[str, Any], device: str | None) -> Iterator[dict[str, Any]]:
    from iosim.device.orders import orders
    from iosim.device.own import launch_of
    from iosim.device.profile import profile

    chosen = profile(device or DEFAULT_DEVICE)
    for schedule in _planned(given, chosen.machine):
        if schedule.name != "flash2":
            raise IosimError(f"--orders is about flash2, not about --schedule {schedule.name}")
        (call,) = calls_of(schedule, chosen)
        for each in orders(launch_of(schedule, call, chosen), chosen):
            record = each.to_dict()
            yield {
                **schedule.shape.to_dict(ORDER_SHAPE),
                **schedule.tiles,
                "order": record.pop("heads"),
                **record,
            }


def _planned(given: dict[str, Any], machine: Machine) -> Iterator[Schedule]:
    """Yield the schedules on the tiles given, by the rule of --tiles, or on the usual ones."""
    from iosim.gpu.plan import KERNELS, usual_tiles

    for shape in shapes(given):
        for family in schedules(given, ("flash2",)):
            for sizes in given_tiles(given) if family.tiles else ({},):
                tiles: Mapping[str, int]
                if family.name in KERNELS and not given["tiles"]:
                    tiles = usual_tiles(family.name, shape) | sizes
                else:
                    words = machine.fast_words(shape.dtype)
                    tiles = choose_tiles(
                        family, shape, words, given["tiles"] or "best", sizes
                    ).sizes
                yield family.build(shape, **tiles)


def calls_of(schedule: Schedule, chosen: "Profile") -> list["KernelCall"]:
    """Return the launches of our kernels that run a schedule on a device, none if none does."""
    from iosim.device.case import RESERVED_BYTES, KernelCall
    from iosim.gpu.plan import KERNELS, Limits, launches

    if schedule.name not in KERNELS:
        return []
    machine = chosen.machine
    limits = Limits(machine.shared_bytes_per_block, machine.registers_per_sm, warpgroups=True)
    return [
        KernelCall(
            launch.variant.kernel,
            launch.grid,
            launch.variant.threads,
            launch.variant.registers,
            launch.variant.shared_bytes + RESERVED_BYTES,
        )
        for launch in launches(schedule, limits=limits)
    ]


def _say(records: list[dict[str, Any]]) -> None:
    """Write the notes of each record to standard error."""
    for i, record in enumerate(records):
        for note in record["notes"]:
            click.echo(f"note: record {i}: {note}", err=True)
