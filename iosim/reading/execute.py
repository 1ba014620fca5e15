"""Execute: run a schedule tile by tile with NumPy, touching nothing but resident tiles.

A schedule that executes is a valid one: every operand is taken from fast memory, every word comes
from and goes to slow memory through a move, and the words moved are those of the slices really
copied. They must equal `count`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from iosim.errors import IosimError, ScheduleError
from iosim.precision import Precision, precision
from iosim.random_bits import Places, RandomState, kept
from iosim.reading.lockstep import run_ranks
from iosim.reading.residency import FastMemory, Key, where
from iosim.reading.slow_arrays import SlowArrays, in_sequence, leading_shape, slices_of
from iosim.reading.traffic import DIRECTIONS, Share, Tally, Traffic, item_sizes
from iosim.reading.walk import Position, Ranges, tile_name, tile_ranges, walk
from iosim.schedule.operations import Operation, find_operation
from iosim.schedule.tree import Compute, Move, Schedule, Tensor, nodes
from iosim.shape import AttentionShape

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Execution:
    """The outputs by tensor name, in the shape (..., heads, rows[, width]), and the traffic made.

    `O` and `LSE` are the usual outputs; LSE is None where the schedule writes none. `kept` holds
    the other tensors that are left in slow memory (P, or l and m), in the same form: what a
    backward pass may read beside the outputs.
    """

    outputs: dict[str, Array]
    traffic: Traffic
    kept: dict[str, Array]

    @property
    def O(self) -> Array:
        """The attention output."""
        return self.outputs["O"]

    @property
    def LSE(self) -> Array | None:
        """The log-sum-exp of each row's scores, natural logarithm."""
        return self.outputs.get("LSE")


def execute(
    schedule: Schedule,
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    capacity: int | None = None,
    scale: float | None = None,
    random: RandomState | None = None,
    page_table: ArrayLike | None = None,
    **others: ArrayLike,
) -> Execution:
    """Run a schedule on q (batch, heads, n_q, d), k and v (batch, kv_heads, n_k, ...).

    A backward schedule takes its `others` inputs by the names of their tensors: dO (batch, heads,
    n_q, d_v) and what the forward pass left of O, LSE, m, l and P (see `iosim.training`). Leading
    axes of size 1 may be left out, and the outputs leave them out too. The arrays are
    rounded to the shape's dtype first. float16 and bfloat16 mean: operands rounded, float32
    accumulation, P rounded before P V; statistics are float32 (float64 beside float64). `capacity`
    is M in words, unlimited by default; `scale` is 1 / sqrt(d) by default; `random` (seed 0, offset
    0 by default) is what dropout draws its bits from. `page_table` (batch, pages) says in which
    place of a pool each page of k and v lies, for a schedule that has one (by default one after the
    other): the pages are scattered so, and read through the table's entries. Raises IosimError for
    arrays that do not have the shape, inputs that are missing or not asked for and places that are
    not of one page each, ScheduleError or CapacityError as `check` does, and ScheduleError for a
    read of words that nothing has written.

    >>> from iosim.schedule import family
    >>> shape = AttentionShape(n_q=5, n_k=7, head_dim=2, dtype="float64")
    >>> flash2 = family("flash2").build(shape, br=2, bc=3)
    >>> done = execute(flash2, np.zeros((5, 2)), np.zeros((7, 2)), np.ones((7, 2)))
    >>> done.O[0], done.traffic.read_words
    (array([1., 1.]), 94)
    """
    shape = schedule.shape
    form = precision(shape.dtype)
    arrays = {"Q": np.asarray(q), "K": np.asarray(k), "V": np.asarray(v)}
    leading = _leading_axes(arrays, shape)
    arrays |= _mask_bytes(schedule)
    arrays |= _other_inputs(schedule, others, leading)
    tally = Tally()
    factor = 1 / math.sqrt(shape.head_dim) if scale is None else scale
    context = _Context(schedule, form, factor, random or RandomState())
    operations = {
        id(node): find_operation(node)
        for node, _ in nodes(schedule.body)
        if isinstance(node, Compute)
    }
    devices = [
        _Device(
            SlowArrays(schedule, arrays, form, page_table, rank),
            FastMemory(capacity),
            tally,
            context,
            operations,
        )
        for rank in range(1 if schedule.ranks is None else schedule.ranks.count)
    ]
    for node, _ in nodes(schedule.body):
        if isinstance(node, Move):
            tally.note(node, 0)  # a mask may leave it out altogether
    with np.errstate(all="ignore"):  # infinities and NaN are carried to where they belong
        if schedule.ranks is None:
            for node, position in walk(schedule):
                devices[0].run(node, position)
        else:
            run_ranks(schedule, devices, tally)
    for device in devices:
        device.fast.finish(schedule, device.slow.outputs)
    return Execution(
        outputs={
            name: _output(schedule, name, devices, leading)
            for name in sorted(devices[0].slow.outputs)
        },
        kept={
            name: devices[0].slow.array(name, leading)
            for name in devices[0].slow.kept
            if schedule.ranks is None
        },
        traffic=Traffic(
            tensors=tally.tensors,
            lines=tally.lines,
            items=item_sizes(schedule),
            peak_words=max(device.fast.peak_words for device in devices),
            peak_bytes=max(device.fast.peak_bytes for device in devices),
            flops=sum(device.flops for device in devices),
            ranks=() if schedule.ranks is None else tuple(device.share for device in devices),
        ),
    )


def _leading_axes(arrays: Mapping[str, Array], shape: AttentionShape) -> int:
    """Return how many of (batch, heads) the arrays have, or raise IosimError."""
    rows = {"Q": shape.n_q, "K": shape.n_k, "V": shape.n_k}
    width = {"Q": shape.head_dim, "K": shape.head_dim, "V": shape.value_dim}
    heads = {"Q": shape.heads, "K": shape.kv_heads, "V": shape.kv_heads}
    leading = arrays["Q"].ndim - 2
    for name, array in arrays.items():
        full = (shape.batch, heads[name], rows[name], width[name])
        dropped = full[: max(2 - leading, 0)]
        if array.shape != full[len(dropped) :] or any(size != 1 for size in dropped):
            raise IosimError(f"{name} has shape {array.shape}, but the schedule is for {full}")
    return leading


def _mask_bytes(schedule: Schedule) -> dict[str, Array]:
    """Return the input "mask" where a schedule reads one: 1 where a query sees a key, else 0."""
    tensor = inputs_of(schedule).get("mask")
    if tensor is None:
        return {}
    found = np.ones([dim.n for dim in tensor.axes], np.uint8)
    if schedule.mask is not None:
        shape = schedule.shape
        visible = schedule.mask.visible(slice(0, shape.n_q), slice(0, shape.n_k))
        found[...] = 1 if visible is None else visible
    return {"mask": found}


def inputs_of(schedule: Schedule) -> dict[str, Tensor]:
    """Return the tensors that start in slow memory, by name.

    >>> from iosim.schedule import family
    >>> backward = family("flash2_backward").build(AttentionShape(5, 7, 2), br=2, bc=3)
    >>> sorted(inputs_of(backward))
    ['K', 'LSE', 'O', 'Q', 'V', 'dO']
    """
    moves = (node for node, _ in nodes(schedule.body) if isinstance(node, Move))
    return {move.tensor.name: move.tensor for move in moves if move.tensor.place == "input"}


def _other_inputs(
    schedule: Schedule, given: Mapping[str, ArrayLike], leading: int
) -> dict[str, Array]:
    """Return the inputs beside Q, K and V as arrays, or raise IosimError."""
    own = ("Q", "K", "V", "mask", "page_table")  # the mask is the schedule's
    wanted = {name: t for name, t in inputs_of(schedule).items() if name not in own}
    for name in given:
        if name not in wanted:
            asked = f"; it reads {', '.join(wanted)}" if wanted else " beside Q, K and V"
            raise IosimError(f"{schedule.name} reads no input {name!r}{asked}")
    arrays = {}
    for name, tensor in wanted.items():
        if name not in given:
            what = "the gradient of O" if name == "dO" else "which the forward pass leaves"
            raise IosimError(
                f"input {name!r} of {schedule.name} is missing; give {name}=..., {what}"
            )
        arrays[name] = np.asarray(given[name])
        full = leading_shape(tensor)
        if arrays[name].shape != leading_shape(tensor, leading):
            raise IosimError(
                f"{name} has shape {arrays[name].shape}, but the schedule is for {full}"
            )
    return arrays


class _Context:
    """What operations may ask about their tile (see `operations.Tile`)."""

    def __init__(
        self, schedule: Schedule, form: Precision, scale: float, random: RandomState
    ) -> None:
        self.scale = scale
        self.random = random
        self.dropout = schedule.shape.dropout
        self.position: Position = {}
        self._mask = schedule.mask
        self._shape = schedule.shape
        self._form = form
        self._layouts = {} if schedule.ranks is None else schedule.ranks.layouts
        self._n = {
            dim.name: dim.n
            for node, _ in nodes(schedule.body)
            if isinstance(node, Move)
            for dim in node.tensor.axes
        }

    def _rows(self, axis: str) -> slice:
        at = self.position.get(axis)
        return slice(0, self._n[axis]) if at is None else slice(*at[2])

    def _in_sequence(self, axis: str) -> Places:
        """Return the current rows, by the layout of several devices if there is one."""
        rows = self._rows(axis)
        if axis not in self._layouts:
            return rows
        return self._layouts[axis].rows(rows.start, rows.stop)

    def visible(self) -> NDArray[np.bool_] | None:
        if self._mask is None:
            return None
        return self._mask.visible(self._rows(self._mask.query), self._rows(self._mask.key))

    def kept(self, random: RandomState) -> NDArray[np.bool_]:
        shape = self._shape
        batch, kv_head, group = (
            np.arange(at.start, at.stop) for at in map(self._rows, ("batch", "kv_head", "group"))
        )
        head = kv_head[:, None] * shape.group + group
        heads = (batch[:, None] * shape.heads + head.ravel()).ravel()
        rows, columns = self._in_sequence("query"), self._in_sequence("key")
        found = kept(random, self.dropout, heads, rows, columns)
        return found[0] if len(heads) == 1 else found

    def rounded(self, array: Array) -> Array:
        return self._form.round(array)


class _Device:
    """One device: its two memories, and what it has moved and computed so far."""

    def __init__(
        self,
        slow: "SlowArrays",
        fast: FastMemory,
        tally: Tally,
        context: _Context,
        operations: Mapping[int, Operation],
    ) -> None:
        self.slow = slow
        self.fast = fast
        self.tally = tally
        self.context = context
        self.operations = operations
        self.tiles: dict[Key, Array] = {}
        self.flops = 0
        self.words = dict.fromkeys(("read", "write", "add", "send", "receive"), 0)

    def run(self, node: Move | Compute, position: Position) -> None:
        """Run one node where the loops around it stand."""
        if isinstance(node, Compute):
            operation = self.operations[id(node)]
            self.flops += _compute(node, operation, position, self.fast, self.tiles, self.context)
            return
        key = self.fast.move(node, position)
        if node.kind == "load":
            table, place = node.tensor.table, None
            if table is not None:
                place = self.tiles[self.fast.require(table, tile_ranges(table, position), node)]
            self.tiles[key] = self.slow.load(node, key[1], place)
        elif node.kind == "new":
            self.tiles[key] = self.slow.room(node.tensor, key[1])
        elif node.kind == "free":
            del self.tiles[key]
        else:
            self.slow.store(node, key[1], self.tiles[key])
        if node.kind in DIRECTIONS:
            self.words[DIRECTIONS[node.kind]] += self.slow.moved
        self.tally.note(node, self.slow.moved)

    def receive(self, move: Move, ranges: Ranges, tile: Array) -> None:
        """Put a tile into slow memory that another rank sent."""
        self.slow.receive(move, ranges, tile)
        self.fast.stored.add(move.tensor.name)

    @property
    def share(self) -> Share:
        """What this device moved, sent, received and computed."""
        return Share(**{f"{way}_words": n for way, n in self.words.items()}, flops=self.flops)


def _compute(
    node: Compute,
    operation: Operation,
    position: Position,
    fast: FastMemory,
    tiles: dict[Key, Array],
    context: _Context,
) -> int:
    """Run a computation on its resident tiles and return the FLOPs of the tiles it worked on."""
    operands = (*node.outputs, *node.inputs)
    keys = [fast.require(t, tile_ranges(t, position), node) for t in operands]
    context.position = position
    arrays = [tiles[key] for key in keys]
    try:
        operation.run(context, arrays[: len(node.outputs)], arrays[len(node.outputs) :])
    except ValueError as error:  # from NumPy, where shapes do not match
        names = ", ".join(tile_name(t, key[1]) for t, key in zip(operands, keys, strict=True))
        raise ScheduleError(
            f"{where(node)}: the sizes of {names} do not match in {node.operation}"
        ) from error
    flops = 0
    for coefficient, which in operation.flops:
        extent: dict[str, int] = {}
        for i in which:
            for dim, (first, stop) in zip(operands[i].axes, keys[i][1], strict=True):
                extent[dim.name] = stop - first
        flops += coefficient * math.prod(extent.values())
    return flops


def _output(schedule: Schedule, name: str, devices: Sequence[_Device], leading: int) -> Array:
    """Return an output, from all ranks, with the leading axes (batch, heads) of the inputs.

    Raises ScheduleError where a rank lacks words of its shard, or has other copies than the rest.
    """
    tensor = next(
        node.tensor
        for node, _ in nodes(schedule.body)
        if isinstance(node, Move) and node.tensor.name == name
    )
    everything = tuple((0, dim.n) for dim in tensor.axes)
    array = devices[0].slow.words_of(name, everything)
    for rank, device in enumerate(devices):
        ranges = everything if schedule.ranks is None else schedule.ranks.shard(tensor, rank)
        on = "" if schedule.ranks is None else f" on rank {rank}"
        if not device.slow.holds(tensor, ranges):
            raise ScheduleError(f"output {name!r} has words that nothing has written{on}")
        own = device.slow.words_of(name, ranges)
        if schedule.ranks is not None and name not in schedule.ranks.holds:
            if not np.array_equal(own, array, equal_nan=True):
                raise ScheduleError(f"output {name!r} is another{on} than on rank 0")
        else:
            array[slices_of(ranges)] = own
    if schedule.ranks is not None:
        array = in_sequence(tensor, array, schedule.ranks)
    return array.reshape(leading_shape(tensor, leading))
