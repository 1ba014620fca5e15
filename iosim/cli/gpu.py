"""`iosim gpu`: the schedules as kernels: what is missing, run, measure, bench."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import click

from iosim.cli import options
from iosim.cli.cases import given_tiles, schedules, shapes
from iosim.errors import IosimError
from iosim.output import render, write_text
from iosim.schedule.tree import Schedule
from iosim.tiles import choose_tiles

RUN_COLUMNS = ("schedule", "n_q", "n_k", "head_dim", "dtype", "causal", "br", "bc", "largest_error",
               "tolerance", "standard_error", "agrees")  # fmt: skip
MEASURE_COLUMNS = ("schedule", "n_q", "head_dim", "dtype", "causal", "br", "bc",
                   "counted_read_bytes", "sm_read_bytes", "counted_write_bytes", "sm_write_bytes",
                   "l2_read_bytes", "hbm_read_bytes", "spill_bytes", "seconds")  # fmt: skip
BENCH_COLUMNS = ("kernel", "n_q", "n_k", "head_dim", "heads", "dtype", "causal", "seconds",
                 "tflops", "speed", "note")  # fmt: skip


@click.group()
def gpu() -> None:
    """Run schedules as GPU kernels, and count their bytes.

    Needs the extra iosim[gpu] and an NVIDIA GPU of compute capability 8.0 or later; doctor says
    what is missing.
    """


def _chosen(given: dict[str, Any], default: tuple[str, ...]) -> list[Schedule]:
    """Return the schedules that the options state, on the tiles given or the usual ones."""
    from iosim.gpu.plan import usual_tiles

    made = []
    for shape in shapes(given):
        for family in schedules(given, default):
            if not family.tiles:
                raise IosimError(
                    f"--schedule {family.name} has no tiles and so no kernel; its tiled form is "
                    "standard_tiled"
                )
            for sizes in given_tiles(given):
                words = None
                if given["device"] is not None:
                    words = given["device"].fast_words(shape.dtype)
                if given["tiles"]:
                    tiles = choose_tiles(family, shape, words, given["tiles"], sizes).sizes
                else:
                    tiles = usual_tiles(family.name, shape) | sizes
                made.append(family.build(shape, **tiles))
    return made


def _need_backend() -> None:
    if importlib.util.find_spec("numba_cuda") is None:
        raise IosimError(
            "the GPU backend is not installed; install it with pip install 'iosim[gpu]'"
        )


@gpu.command()
@options.results
@click.pass_context
def doctor(ctx: click.Context, form: str, output: Path | None) -> None:
    """Look at driver, device, compiler, ncu and counters; say what to do about what is missing.

    Exit code 1 where something is missing.
    """
    from iosim.gpu.doctor import examine

    findings = list(examine())
    write_text(output, render([finding.to_dict() for finding in findings], form))
    if not all(finding.fine for finding in findings):
        ctx.exit(1)


@gpu.command()
@options.schedule
@options.shape
@options.device
@options.tile_sizes
@options.results
@click.option("--seed", type=int, default=0, show_default=True, help="Of the random Q, K and V.")
@click.pass_context
def run(ctx: click.Context, /, form: str, output: Path | None, seed: int, **given: Any) -> None:
    """Run kernels on random arrays and compare O and LSE with float64.

    Tiles are the fastest ones unless given. Exit code 1 where a result is further off than its
    derived tolerance.
    """
    _need_backend()
    from iosim.gpu.exactness import compare

    records = [compare(schedule, seed) for schedule in _chosen(given, ("flash2",))]
    write_text(output, render(records, form, RUN_COLUMNS))
    if not all(record["agrees"] for record in records):
        ctx.exit(1)


@gpu.command()
@options.schedule
@options.shape
@options.device
@options.tile_sizes
@options.results
@click.option(
    "--emulate", is_flag=True, help="Count on the lane emulator instead: no GPU, small shapes."
)
@click.option(
    "--heads-first",
    is_flag=True,
    help="Launch the heads of a query tile one after another, not the tiles of a head (flash2).",
)
def measure(form: str, output: Path | None, emulate: bool, heads_first: bool, **given: Any) -> None:
    """Run kernels under Nsight Compute and set the counters beside the count.

    SM is between L2 and the multiprocessors, which the theorem is about; HBM depends on the L2 too.
    With --format json the output is a recording for iosim verify --measured.
    """
    chosen = _chosen(given, ("flash2",))
    for schedule in chosen:
        if heads_first and schedule.name != "flash2":
            raise IosimError(
                f"--heads-first is an order of flash2's grid, but --schedule has {schedule.name}; "
                "leave one of them out"
            )
    if emulate:
        from iosim.gpu.emulate import recording

        found = recording(chosen, heads_first=heads_first)
    else:
        _need_backend()
        from iosim.gpu.measure import measure as run_measured

        found = run_measured(chosen, tuned={"heads_first": heads_first})
    document = found.to_dict()
    if form == "json":
        write_text(output, json.dumps(document, indent=1, allow_nan=False) + "\n")
    else:
        for record in document["records"]:
            del record["kernels"]
        write_text(output, render(document["records"], form, MEASURE_COLUMNS))


@gpu.command()
@options.schedule
@options.shape
@options.device
@options.tile_sizes
@options.results
def bench(form: str, output: Path | None, **given: Any) -> None:
    """Time kernels, and torch's attention beside them where torch is installed, in one run.

    Medians; tflops count visible pairs only; speed is ours over the other's.
    """
    _need_backend()
    from iosim.gpu.bench import bench as run_bench

    records = [record for schedule in _chosen(given, ("flash2",)) for record in run_bench(schedule)]
    write_text(output, render(records, form, BENCH_COLUMNS))
