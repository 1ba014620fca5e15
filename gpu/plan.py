"""From a schedule to launches: which kernels, with which constants, over which grid.

The tile sizes, the order of the keys and the mask are the schedule's own, so that the plan that was
counted is the plan that runs. What is chosen here moves no word: warps, steps, stages.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from iosim.device.case import RESERVED_BYTES
from iosim.errors import IosimError
from iosim.gpu.kernels.flash1 import flash1
from iosim.gpu.kernels.flash2 import flash2
from iosim.gpu.kernels.standard import output, scores, softmax
from iosim.gpu.variant import Variant
from iosim.schedule.registry import family
from iosim.schedule.tree import For, Node, Schedule
from iosim.shape import AttentionShape

Factory = Callable[[Any, Variant], Callable[..., None]]

DTYPES = ("float16", "bfloat16", "float32")
KERNELS: Mapping[str, tuple[Factory, ...]] = {
    "flash2": (flash2,),
    "flash1": (flash1,),
    "standard_tiled": (scores, softmax, output),
}
FACTORIES: Mapping[str, Factory] = {
    "flash2": flash2,
    "flash1": flash1,
    "standard_scores": scores,
    "standard_softmax": softmax,
    "standard_output": output,
}
PARTS = ("standard_scores", "standard_softmax", "standard_output")
MOST_ROWS = 1 << 30  # rows are counted in 32 bits within a tile
MOST_THREADS = 1024
MOST_REGISTERS = 255
GRID_ORDERS = ("heads_first", "ascending")
LOG2_E = math.log2(math.e)


@dataclass(frozen=True)
class Limits:
    """What a device gives a block: shared memory in bytes, and registers of 32 bits."""

    shared_bytes: int = 232448  # H100 and H200; an A100 has 166 912
    registers: int = 65536
    warpgroups: bool = False  # wgmma: compute capability 9.0 only


@dataclass(frozen=True)
class Launch:
    """One kernel over a grid; `arguments` are names of buffers, in order, then numbers."""

    factory: Factory
    variant: Variant
    grid: int
    buffers: tuple[str, ...]
    numbers: tuple[Any, ...]

    @property
    def kinds(self) -> tuple[Any, ...]:
        """The numba types of the arguments: addresses and counts in 64 bits, scales in 32."""
        from numba.cuda import types

        floats = [isinstance(number, np.floating) for number in self.numbers]
        return (types.int64,) * len(self.buffers) + tuple(
            types.float32 if single else types.int64 for single in floats
        )


@dataclass(frozen=True)
class Layout:
    """Strides in bytes of Q, K and V over (batch, head, row), and whether chunks are aligned."""

    strides: tuple[tuple[int, int, int], ...]
    aligned: bool

    @classmethod
    def contiguous(cls, shape: AttentionShape) -> "Layout":
        """Return the layout of contiguous arrays of a shape."""
        row = shape.head_dim * shape.item_bytes
        return cls(
            tuple(
                (heads * n * row, n * row, row)
                for heads, n in (
                    (shape.heads, shape.n_q),
                    (shape.kv_heads, shape.n_k),
                    (shape.kv_heads, shape.n_k),
                )
            ),
            True,
        )


def workspace(schedule: Schedule) -> dict[str, tuple[tuple[int, ...], str]]:
    """Return what a schedule writes, outputs and scratch: name -> (shape, dtype)."""
    shape = schedule.shape
    rows = (shape.batch, shape.heads, shape.n_q)
    found: dict[str, tuple[tuple[int, ...], str]] = {}
    found["O"] = (*rows, shape.head_dim), shape.dtype
    if schedule.name == "flash2":
        found["LSE"] = rows, "float32"
    elif schedule.name == "flash1":
        found["m"] = found["l"] = rows, "float32"
    else:
        found["S"] = found["P"] = (*rows, shape.n_k), shape.dtype
    return found


def launches(
    schedule: Schedule,
    layout: Layout | None = None,
    scale: float | None = None,
    limits: Limits | None = None,
    tuned: Mapping[str, Any] | None = None,
) -> list[Launch]:
    """Return the launches that run a schedule on arrays laid out so; `scale` is 1 / sqrt(d).

    Raises IosimError for a schedule, shape or dtype that no kernel takes, and for tiles that need
    more shared memory or registers than the device gives a block.

    >>> shape = AttentionShape(1000, 1000, 64, heads=2)
    >>> (launch,) = launches(family("flash2").build(shape, br=128, bc=64))
    >>> launch.grid, launch.variant.threads
    (16, 128)
    """
    _refuse(schedule)
    shape, limits = schedule.shape, limits or Limits()
    layout = layout or Layout.contiguous(shape)
    if scale is None:
        scale = 1 / math.sqrt(shape.head_dim)
    if not (math.isfinite(scale) and scale > 0):
        raise IosimError(f"scale is {scale}, but the kernels take a positive number")
    strides = [step for steps in layout.strides for step in steps]
    size = (shape.n_q, shape.n_k, shape.heads, shape.group)
    heads, tiles = shape.batch * shape.heads, -(-shape.n_q // schedule.tiles["br"])
    bits = np.float32(scale * LOG2_E)
    if schedule.name == "flash2":
        v = choose(schedule, "flash2", layout.aligned, limits, tuned)
        numbers = (*strides, *size, shape.causal_offset, tiles, bits)
        return [Launch(flash2, v, heads * tiles, ("Q", "K", "V", "O", "LSE"), numbers)]
    if schedule.name == "flash1":
        v = choose(schedule, "flash1", layout.aligned, limits, tuned)
        numbers = (*strides, *size, shape.causal_offset, bits)
        return [Launch(flash1, v, heads, ("Q", "K", "V", "O", "m", "l"), numbers)]
    parts = [choose(schedule, part, layout.aligned, limits, tuned) for part in PARTS]
    key_tiles = -(-shape.n_k // schedule.tiles["bc"])
    rows = heads * shape.n_q
    return [
        Launch(
            scores,
            parts[0],
            heads * tiles * key_tiles,
            ("Q", "K", "S"),
            (*strides[:6], *size, shape.causal_offset, np.float32(scale)),
        ),
        Launch(
            softmax,
            parts[1],
            -(-rows // parts[1].warps),
            ("S", "P"),
            (rows, shape.n_k, np.float32(LOG2_E)),
        ),
        Launch(output, parts[2], heads * tiles, ("P", "V", "O"), (*strides[6:], *size)),
    ]


def _refuse(schedule: Schedule) -> None:
    """Raise IosimError for a schedule that is not one of those that have kernels."""
    shape = schedule.shape
    if schedule.name not in KERNELS:
        hint = " (its tiled form is standard_tiled)" if schedule.name == "standard" else ""
        raise IosimError(
            f"schedule {schedule.name!r} has no GPU kernel{hint}; those that have one are "
            f"{', '.join(KERNELS)}"
        )
    if shape.mask is not None:
        raise IosimError(f"mask {shape.mask} has no GPU kernel; those there are take --causal only")
    if shape.dropout:
        raise IosimError(f"dropout is {shape.dropout:g}, but the kernels have none; leave it out")
    plain = family(schedule.name).build(shape, **schedule.tiles)
    if _forward(schedule.body) != plain.body or schedule.mask != plain.mask:
        raise IosimError(
            f"schedule {schedule.name!r} differs from the one of that name that the kernel runs; "
            "only the order of its key loop may"
        )
    if schedule.name != "flash2" and key_order(schedule) != "forward":
        raise IosimError(f"the kernel of {schedule.name!r} takes its keys in forward order only")
    if shape.dtype not in DTYPES:
        raise IosimError(f"dtype {shape.dtype!r} has no GPU kernel; give {', '.join(DTYPES)}")
    if shape.value_dim != shape.head_dim:
        raise IosimError(
            f"value_dim is {shape.value_dim}, but the kernels need it equal to head_dim "
            f"{shape.head_dim}"
        )
    if shape.head_dim % 8 or not 16 <= shape.head_dim <= 256:
        raise IosimError(
            f"head_dim is {shape.head_dim}, but the kernels take 16 to 256 in steps of 8"
        )
    if schedule.name == "standard_tiled" and schedule.tiles["bc"] < shape.head_dim:
        raise IosimError(
            f"bc is {schedule.tiles['bc']}, but the kernel of standard_tiled holds whole rows of "
            f"O: give at least head_dim, {shape.head_dim}"
        )
    if max(shape.n_q, shape.n_k) > MOST_ROWS:
        raise IosimError(f"n_q and n_k may be at most {MOST_ROWS} on the GPU")


def usual_tiles(name: str, shape: AttentionShape) -> dict[str, int]:
    """Return the tiles that are fastest on an H200 (measured), for a schedule with kernels.

    >>> usual_tiles("flash2", AttentionShape(8192, 8192, 128))
    {'br': 128, 'bc': 128}
    """
    wide = shape.head_dim > 64
    if name == "standard_tiled":
        if shape.item_bytes == 4:
            return {"br": 32 if wide else 64, "bc": max(64, shape.head_dim)}
        return {"br": 64 if shape.head_dim > 128 else 128, "bc": max(128, shape.head_dim)}
    if name == "flash1":
        if shape.item_bytes == 4 and wide:
            return {"br": 32, "bc": 32}
        return {"br": 64, "bc": 128 if shape.item_bytes == 2 and not wide else 64}
    if shape.item_bytes == 4 and shape.head_dim > 128:
        return {"br": 32, "bc": 16}
    if shape.item_bytes == 4:
        return {"br": 128, "bc": 32}
    if shape.head_dim > 128:
        return {"br": 64, "bc": 64}
    return {"br": 128 if wide else 64, "bc": 128}


def key_order(schedule: Schedule) -> str:
    """Return the order in which the schedule's innermost loop over keys runs."""
    return [loop.order for loop in _loops(schedule.body) if loop.dim.name == "key"][-1]


def _loops(body: tuple[Node, ...]) -> Iterator[For]:
    for node in body:
        if isinstance(node, For):
            yield node
            yield from _loops(node.body)


def _forward(body: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return the tree with its key loops in forward order."""
    return tuple(
        replace(
            node,
            body=_forward(node.body),
            order="forward" if node.dim.name == "key" else node.order,
        )
        if isinstance(node, For)
        else node
        for node in body
    )


def choose(
    schedule: Schedule,
    kernel: str,
    aligned: bool,
    limits: Limits,
    tuned: Mapping[str, Any] | None = None,
) -> Variant:
    """Return the variant that runs a schedule's tiles: the first that the device has room for.

    `tuned` sets m_tiles, step, stages, min_blocks or q_in_registers by hand; `heads_first` and
    `ascending` in it are the order of flash2's grid and leave the choice of the rest.
    """
    shape, tiles = schedule.shape, schedule.tiles
    plain = Variant(
        kernel,
        shape.dtype,
        head_dim=shape.head_dim,
        br=tiles["br"],
        bc=tiles["bc"],
        causal=shape.causal,
        order=key_order(schedule) if kernel == "flash2" else "forward",
        aligned=aligned,
    )
    if kernel == "standard_softmax":
        return replace(plain, br=64, m_tiles=1, step=16, stages=1)
    tuned = dict(tuned or {})
    orders: dict[str, Any] = {name: True for name in GRID_ORDERS if tuned.pop(name, False)}
    if orders and kernel != "flash2":
        raise IosimError(
            f"the grid of {kernel} has one order only; {next(iter(orders))} is for flash2"
        )
    plain = replace(plain, **orders)
    if tuned:
        by_hand: Variant = replace(plain, **tuned)
        return by_hand
    found: list[Variant] = [
        *(_warpgroup_candidates(plain, limits) if limits.warpgroups else ()),
        *_candidates(plain),
    ]
    for variant in found:
        if (
            variant.shared_bytes <= limits.shared_bytes
            and variant.threads <= MOST_THREADS
            and variant.registers <= MOST_REGISTERS
            and variant.registers * variant.threads <= limits.registers
        ):
            return variant
    least = min(found, key=lambda variant: variant.shared_bytes)
    what = f"{tiles['br']} x {tiles['bc']} tiles of {kernel} in {shape.dtype} with head_dim "
    if least.shared_bytes > limits.shared_bytes:
        raise IosimError(
            f"{what}{shape.head_dim} need {least.shared_bytes} bytes of shared memory, but the "
            f"device gives a block {limits.shared_bytes}; give smaller tiles"
        )
    raise IosimError(
        f"{what}{shape.head_dim} need more registers or threads than the device gives a block; "
        "give a smaller --br"
    )


def _warpgroup_candidates(plain: Variant, limits: Limits) -> Iterator[Variant]:
    """Yield the variants whose products are a warpgroup's, the fastest first.

    Of the steps of 64 keys or more, those with most warps on a multiprocessor come first, as warps
    hide each other's waits, then the longest (measured on an H200).
    """
    # At 256 the accumulators leave too few registers for the rest.
    fits = plain.half and plain.aligned and plain.head_dim in (64, 128, 192)
    if plain.kernel != "flash2" or not fits or plain.br < 64:
        return
    found = []
    for step in _steps(plain, 128):
        variant = replace(plain, step=step, q_in_registers=False, warpgroup=True)
        blocks = min(
            limits.shared_bytes // (variant.shared_bytes + RESERVED_BYTES),
            limits.registers // (variant.registers * variant.threads),
        )
        if blocks:
            found.append(replace(variant, min_blocks=blocks))
    yield from sorted(found, key=lambda v: (v.step < 64, -v.min_blocks * v.warps, -v.step))


def _steps(plain: Variant, most: int) -> list[int]:
    """Return the steps, longest first, that do not pad a tile of keys by half of it; 16 always."""

    def padding(step: int) -> int:
        return -(-plain.bc // step) * step - plain.bc

    steps = [step for step in (128, 64, 32) if step <= most and 2 * padding(step) < plain.bc]
    return [*steps, 16]


def _candidates(plain: Variant) -> Iterator[Variant]:
    """Yield variants of one tile plan, the fastest first as measured on an H200."""
    most = 128 if plain.half else 32 if plain.kernel == "standard_output" else 64
    steps = _steps(plain, most)
    one_stage = plain.kernel.startswith("standard") or plain.kernel == "flash1"
    m_tiles = (2, 1) if plain.br > 64 >= plain.head_dim else (1, 2)
    for stages in (1,) if one_stage else (2, 1):
        for tiles in m_tiles:
            for step in steps:
                yield replace(
                    plain,
                    m_tiles=tiles,
                    step=step,
                    stages=stages,
                    q_in_registers=plain.half and plain.head_dim <= 64 * (2 // tiles),
                )
