"""The options that commands share: one spelling, one parser and one help text for each.

A command takes single options or whole families and receives their values as keyword arguments
of the same names (``--seq-len`` as ``seq_len``; ``--format`` as ``form``)::

    @click.command()
    @options.schedule
    @options.shape
    @options.memory
    @options.tile_sizes
    @options.results
    def simulate(schedule, seq_len, ..., form, output): ...
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import click

from iosim import units
from iosim.errors import IosimError
from iosim.machine import Machine, machine
from iosim.model_config import ModelHeads, read_model_heads
from iosim.output import check_writable
from iosim.shape import Mask

T = TypeVar("T")
AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])
Decorator = Callable[[AnyFunction], AnyFunction]


class Parsed(click.ParamType[T]):
    """A click type made of a function from text to a value; its `IosimError` is the message."""

    def __init__(self, name: str, parse: Callable[[str], T]) -> None:
        """Name the type as the help shows it, and take its parser."""
        self.name = name
        self.parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> T:
        """Return the value that the text `value` states; a value that is no text stays."""
        if not isinstance(value, str):
            return cast(T, value)
        try:
            return self.parse(value)
        except IosimError as error:
            self.fail(str(error), param, ctx)


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise IosimError(f"'{text}' has an empty name in it; write names with commas between them")
    return names


def _memory_sizes(text: str) -> tuple[units.MemorySize, ...]:
    return tuple(units.parse_memory_size(part) for part in text.split(","))


def _slow_bytes(text: str) -> int:
    size = units.parse_memory_size(text)
    if size.unit == "words":
        raise IosimError(
            f"'{text}' counts words, but the words of slow memory are not all of one size; "
            "write 80GB or 80GiB"
        )
    return size.amount


def _dtype(text: str) -> str:
    units.item_bytes(text)
    return text


def _mask(text: str) -> Mask:
    from iosim.schedule.masks import parse_mask  # NumPy is not for a help text

    return parse_mask(text)


def _output(ctx: click.Context, param: click.Parameter, text: str | None) -> Path | None:
    return None if text in (None, "-") else check_writable(text)


BEST = "best"
"""The value of --schedule that leaves the choice to the counts."""

COUNT = Parsed("count", units.parse_count)
PLACES = Parsed("places", lambda text: units.parse_sweep(text, minimum=0))
SWEEP = Parsed("counts", units.parse_sweep)
NAMES = Parsed("names", _names)
MEMORY_SIZES = Parsed("sizes", _memory_sizes)
DTYPE = Parsed("dtype", _dtype)
PROBABILITY = Parsed("probability", units.parse_probability)
MASK = Parsed("mask", _mask)
DEVICE = Parsed("device", machine)
MODEL = Parsed("file", read_model_heads)


def _family(*members: Decorator[Any]) -> Decorator[Any]:
    """Return one decorator for several options, which the help lists in this order."""

    def decorate(function: AnyFunction) -> AnyFunction:
        for member in reversed(members):
            function = member(function)
        return function

    return decorate


# The lines after \b are printed as they stand, 46 columns at most.
schedule = click.option(
    "--schedule",
    type=NAMES,
    help="""Schedules, several with commas.

    \b
    forward   standard, standard_passes,
              standard_tiled, square_tiling,
              flash1, flash2
    backward  standard_backward, flash1_backward,
              flash2_backward, flash2_backward_q
    decoding  flash2_packed, split_kv
    devices   ring, ulysses, tree_decoding
    your own  path/to/file.py:name
    best      in simulate, explain, bound, cache:
              the one of fewest words that fits
    """,
)
direction = click.option(
    "--pass",
    "direction",
    type=click.Choice(["forward", "backward"]),
    help="The pass of each schedule named: its forward or its backward one.  [default: that of "
    "the schedule]",
)
seq_len = click.option(
    "--seq-len", type=SWEEP, help="Queries: 8k, a list 1k,2k,4k or a range 1k..64k:x2."
)
kv_len = click.option("--kv-len", type=SWEEP, help="Keys, if not as many as queries.")
head_dim = click.option("--head-dim", type=SWEEP, help="Words of a row of Q and K: d.")
value_dim = click.option("--value-dim", type=COUNT, help="Words of a row of V, if not d.")
batch = click.option("--batch", type=COUNT, default=1, show_default=True, help="Sequences.")
heads = click.option("--heads", type=COUNT, help="Query heads of a sequence.  [default: 1]")
kv_heads = click.option("--kv-heads", type=COUNT, help="Key/value heads, if fewer than heads.")
model = click.option(
    "--model",
    type=MODEL,
    help="Take head-dim, heads and kv-heads of one layer from a model's config.json; windows and "
    "masks are not taken from it.",
)
dtype = click.option(
    "--dtype",
    type=DTYPE,
    default="float16",
    show_default=True,
    metavar=f"[{'|'.join(units.DTYPES)}]",
    help="The type of Q, K, V and O.",
)
causal = click.option(
    "--causal/--no-causal", default=False, show_default=True, help="Hide the keys after a query."
)
align = click.option(
    "--align",
    type=click.Choice(["bottom-right", "top-left"]),
    default="bottom-right",
    show_default=True,
    help="The corner in which a causal mask or a window starts, when there are more keys than "
    "queries.",
)
mask = click.option(
    "--mask",
    type=MASK,
    help="What a query may see: window:256 or window:256,0 (keys before, after), "
    "local+global:256,global=4, documents:100,300,50 (lengths), butterfly:128 (rows of a block), "
    "random:0.25,block=128,seed=0 (density), or a block mask mask.npy,block=128.",
)
dropout = click.option(
    "--dropout",
    type=PROBABILITY,
    default=0.0,
    show_default=True,
    help="The probability with which a softmax probability is dropped: 0.1.",
)
sram = click.option(
    "--sram", type=MEMORY_SIZES, help="Fast memory: 25600w (words), 100KiB, or a list of sizes."
)
device = click.option(
    "--device",
    type=DEVICE,
    help="Take the shared memory of one thread block of a GPU: V100, A100, H100, H200, "
    "'RTX 3060 Ti' or 'RTX 4090'.",
)
hbm = click.option(
    "--hbm",
    type=Parsed("size", _slow_bytes),
    help="Slow memory, 80GB: find the longest sequence that it holds.  [default: that of --device]",
)
br = click.option("--br", type=SWEEP, help="Rows of a tile of Q: B_r.")
bc = click.option("--bc", type=SWEEP, help="Rows of a tile of K and V: B_c.")
tiles = click.option(
    "--tiles",
    type=click.Choice(["paper", "largest", "best"]),
    help="The rule for tile sizes that are not given: the paper's, the largest square tile that "
    "fits, or the one of the least traffic.",
)
ranks = click.option("--ranks", type=SWEEP, help="Devices, for ring, ulysses and tree_decoding: p.")
layout = click.option(
    "--layout",
    type=NAMES,
    help="Which rows a device holds, for ring: contiguous, zigzag or striped.  [default: "
    "contiguous]",
)
splits = click.option(
    "--splits", type=SWEEP, help="Splits of the keys, for split_kv.  [default: 2]"
)
pack = click.option(
    "--pack",
    type=SWEEP,
    help="Query heads in a tile, for flash2_packed and split_kv.  [default: all of a key-value "
    "head]",
)
page_size = click.option(
    "--page-size", type=SWEEP, help="Rows of a page of K and V, for flash2_packed and split_kv."
)
form = click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    show_default=True,
    help="The form of the results.",
)
output = click.option(
    "-o", "--output", metavar="FILE", callback=_output, help="Write here, not to standard output."
)

shape = _family(
    *(seq_len, kv_len, head_dim, value_dim, batch, heads, kv_heads, model, dtype),
    *(causal, align, mask, dropout),
)
memory = _family(sram, device)
tile_sizes = _family(br, bc, splits, pack, page_size, ranks, layout, tiles)
results = _family(form, output)
simulation = _family(schedule, shape, memory, tile_sizes, results)


def resolve_places(chosen: Sequence[int] | None, how_many: int) -> Sequence[int]:
    """Return the places in a list that ``--case`` chooses, all of them without it.

    Raises `IosimError` for a place beyond the end.

    >>> resolve_places(None, 3), resolve_places((2, 0), 3)
    (range(0, 3), (2, 0))
    """
    for place in chosen or ():
        if place >= how_many:
            raise IosimError(f"--case {place} is not there; the last one is {how_many - 1}")
    return range(how_many) if chosen is None else chosen


class Heads(NamedTuple):
    """The values of ``--head-dim`` (one or more), ``--heads`` and ``--kv-heads``."""

    head_dims: tuple[int, ...]
    heads: int
    kv_heads: int


def resolve_heads(
    head_dim: Sequence[int] | None,
    heads: int | None,
    kv_heads: int | None,
    model: ModelHeads | None,
) -> Heads:
    """Return the heads that the options state; what is given on its own goes before the model.

    Raises `IosimError` when no head dimension is stated, and when the key/value heads do not
    divide the heads.

    >>> resolve_heads(None, None, None, ModelHeads("tiny", head_dim=64, heads=8, kv_heads=2))
    Heads(head_dims=(64,), heads=8, kv_heads=2)
    >>> resolve_heads([64, 128], 4, None, None)
    Heads(head_dims=(64, 128), heads=4, kv_heads=4)
    """
    if head_dim is None and model is None:
        raise IosimError("--head-dim is missing; write --head-dim 64 or --model config.json")
    head_dims = tuple(head_dim) if head_dim is not None else (model.head_dim,) if model else ()
    if kv_heads is None and heads is None and model:
        kv_heads = model.kv_heads
    if heads is None:
        heads = model.heads if model else 1
    if kv_heads is None:
        kv_heads = heads
    if heads % kv_heads:
        raise IosimError(f"--kv-heads {kv_heads} does not divide --heads {heads}; it must")
    return Heads(head_dims, heads, kv_heads)


def resolve_sram_words(
    sram: Sequence[units.MemorySize] | None, device: Machine | None, dtype: str
) -> tuple[int, ...] | None:
    """Return the sizes of fast memory, in words of `dtype`, that the options state; None if none.

    Raises `IosimError` when both options are given, and for a size below one word.

    >>> resolve_sram_words([units.parse_memory_size("100KiB")], None, "float32")
    (25600,)
    """
    if sram is None:
        return None if device is None else (device.fast_words(dtype),)
    if device is not None:
        raise IosimError(f"--sram and --device {device.name} both state the fast memory; give one")
    words = tuple(size.words(units.item_bytes(dtype)) for size in sram)
    if not all(words):
        raise IosimError(f"--sram {sram[words.index(0)]} holds no word of {dtype}; give more")
    return words


def resolve_hbm_bytes(hbm: int | None, device: Machine | None) -> int | None:
    """Return the bytes of slow memory that the options state, --hbm before --device; None if none.

    >>> resolve_hbm_bytes(None, machine("H200"))
    141000000000
    """
    return hbm if hbm is not None or device is None else device.hbm_bytes
