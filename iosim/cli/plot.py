"""``iosim plot``: one figure into a file."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from iosim import units
from iosim.cli import options, recordings
from iosim.errors import IosimError
from iosim.machine import Machine
from iosim.measured import load
from iosim.model_config import ModelHeads
from iosim.output import check_writable, replacing
from iosim.plot import figures
from iosim.shape import AttentionShape, Mask

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SWEPT = {
    "length": "--seq-len",
    "dim": "--head-dim",
    "memory": "--sram",
    "backward": "--sram",
    "small_memory": "--sram",
    "slow_memory": "--seq-len",
}
"""The option that takes several values, by the figure."""

STDOUT = Path("-")


def _output(ctx: click.Context, param: click.Parameter, text: str | None) -> Path:
    if text == "-":
        return STDOUT
    path = Path(f"{ctx.params['what']}.svg" if text is None else text)
    if text != "":
        figures.form_of(path)
    return check_writable(path if text is None else text)


@click.command()
@click.argument(
    "what", metavar="WHAT", type=click.Choice([*figures.FIGURES, "measured"]), is_eager=True
)
@options.schedule
@options.seq_len
@options.head_dim
@options.heads
@options.kv_heads
@options.model
@options.dtype
@options.causal
@options.mask
@options.memory
@options.tiles
@click.option(
    "--measured",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="For the figure 'measured': a recording of gpu measure, not a run or the recording that "
    "comes with iosim.",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    callback=_output,
    help="A file ending in .svg, .png or .pdf, or - for SVG on standard output.  "
    "[default: WHAT.svg]",
)
def plot(
    what: str,
    schedule: Sequence[str] | None,
    seq_len: Sequence[int] | None,
    head_dim: Sequence[int] | None,
    heads: int | None,
    kv_heads: int | None,
    model: ModelHeads | None,
    dtype: str,
    causal: bool,
    mask: Mask | None,
    sram: Sequence[units.MemorySize] | None,
    device: Machine | None,
    tiles: str | None,
    measured: Path | None,
    output: Path,
) -> None:
    """Draw traffic against length, dimension, memory or tile size.

    WHAT is length (N), dim (d), memory (M), backward (M, for backward passes), small_memory (M
    around d^2), slow_memory (bytes kept there, against N), tiles (B_r and B_c), cache (LRU and OPT
    caches of every size beside the explicit scratchpad; --seq-len 256 by default), rounding
    (errors, not traffic) or measured (bytes that a GPU moves, against the count: of the recording
    given, else of a run on the GPU that is here, else of a recording that comes with iosim). The
    option that the figure is against takes a list or a range: --seq-len 1k..64k:x2, --head-dim
    32,64,128 or --sram 16KiB,64KiB,1MiB; the others take one value. The defaults are --seq-len 4k,
    --head-dim 64, one head and --sram 100KiB. In a figure against memory, --device marks a device.

    The figure goes to the file of -o, or to WHAT.svg in this folder; its path is printed.
    """
    if measured is not None and what != "measured":
        raise IosimError(
            f"--measured {str(measured)!r} is for the figure 'measured', not {what!r}; write "
            "iosim plot measured --measured FILE"
        )
    if what == "measured":
        if measured is None:
            dims = head_dim or (None if model else recordings.HEAD_DIMS)
            found = recordings.here_or_kept(
                schedule or recordings.SCHEDULES,
                seq_len or recordings.LENGTHS,
                options.resolve_heads(dims, heads, kv_heads, model),
                dtype,
                causal,
            )
        else:
            found = load(measured)
        _write(figures.draw_measured(found), output)
        return
    for option, given in (("--seq-len", seq_len), ("--head-dim", head_dim), ("--sram", sram)):
        _check_number(what, option, given)
    dims = tuple(head_dim or (figures.DIMS if what == "dim" else ()))
    if not dims and model is None:
        dims = (figures.SHAPE.head_dim,)
    stated = options.resolve_heads(dims or None, heads, kv_heads, model)
    length = seq_len[0] if seq_len else figures.default_request(what).shape.n_q
    marks = device if SWEPT.get(what) == "--sram" else None
    words = options.resolve_sram_words(sram, None if marks else device, dtype)
    shape = AttentionShape(
        n_q=length,
        n_k=length,
        head_dim=stated.head_dims[0],
        heads=stated.heads,
        kv_heads=stated.kv_heads,
        dtype=dtype,
        causal=causal,
        mask=mask,
    )
    drawn = figures.FIGURES[what](
        figures.Request(
            shape=shape,
            words=words[0] if words else _usual_words(what, shape),
            lengths=seq_len or figures.default_request(what).lengths,
            dims=dims,
            memories=words if words and SWEPT.get(what) == "--sram" else (),
            schedules=schedule or (),
            rule=tiles,
            marked={marks.name: marks.fast_words(dtype)} if marks else {},
            device=device.name if device else figures.Request.device,
        )
    )
    _write(drawn, output)


def _write(drawn: "Figure", output: Path) -> None:
    if output == STDOUT:
        figures.save(drawn, sys.stdout.buffer, "svg")
        return
    with replacing(output) as beside:
        figures.save(drawn, beside, figures.form_of(output))
    click.echo(output)


def _usual_words(what: str, shape: AttentionShape) -> int:
    return figures.CACHE_WORDS if what == "cache" else figures.SRAM.words(shape.item_bytes)


def _check_number(what: str, option: str, given: Sequence[object] | None) -> None:
    """Raise IosimError for several values of what stays fixed, or one of what is swept."""
    swept = SWEPT.get(what) == option
    if given is not None and swept and len(set(given)) < 2:
        raise IosimError(
            f"{option} {given[0]} is one value, but a figure against {what} needs several; "
            "give a list with commas"
        )
    if given is not None and not swept and len(given) > 1:
        raise IosimError(
            f"{option} has {len(given)} values, but a figure of {what} takes one; give one"
        )
