"""The arrays that stand for slow memory while a schedule executes, and the words moved by them."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from iosim.errors import IosimError, ScheduleError
from iosim.precision import INTEGERS, Precision, held_in, stored_in
from iosim.reading.pages import Pages, page_places
from iosim.reading.residency import where
from iosim.reading.walk import Ranges, tile_name
from iosim.schedule.ranks import Ranks
from iosim.schedule.tree import Dim, Move, Schedule, Tensor, nodes

Array = NDArray[Any]


class SlowArrays:
    """The arrays in slow memory, each with which of its words have been written.

    On several devices each rank has such a memory of its own. Of an input it has the words of its
    shard, and what it is sent.
    """

    def __init__(
        self,
        schedule: Schedule,
        inputs: Mapping[str, Array],
        form: Precision,
        page_table: ArrayLike | None,
        rank: int = 0,
    ) -> None:
        """Set the arrays of all tensors that move aside, and fill those of the inputs."""
        self.moved = 0
        self.outputs: set[str] = set()
        self._passing: dict[str, Ranges] = {}  # what came from the rank before, in a ring
        self.kept: list[str] = []
        self._tensors: dict[str, Tensor] = {}
        self._arrays: dict[str, Array] = {}
        self._written: dict[str, NDArray[np.bool_]] = {}
        self._pages: dict[str, Pages] = {}
        tables = {
            node.tensor.table.name: node.tensor.table
            for node, _ in nodes(schedule.body)
            if isinstance(node, Move) and node.tensor.table is not None
        }
        for name, table in tables.items():
            self._arrays[name] = page_places(table, page_table)
        if page_table is not None and not tables:
            raise IosimError(f"page_table is given, but {schedule.name} has no page table")
        for node, loops in nodes(schedule.body):
            if not isinstance(node, Move) or node.tensor.name in self._arrays:
                continue
            tensor = node.tensor
            self._tensors[tensor.name] = tensor
            full = tuple(dim.n for dim in tensor.axes)
            storage = stored_in(tensor.dtype)
            if tensor.place == "input":
                with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                    array = inputs[tensor.name].astype(storage, copy=False)
                array = array.reshape(full)
                if schedule.ranks is not None:
                    array = in_places(tensor, array, schedule.ranks)
                if tensor.table is not None:
                    self._pages[tensor.name] = pages = Pages.of(tensor, tensor.table, loops)
                    array = pages.scattered(array, self._arrays[tensor.table.name])
                self._arrays[tensor.name] = array
                if schedule.ranks is not None:
                    self._keep(tensor, schedule.ranks.shard(tensor, rank))
            elif tensor.place == "output" or (
                tensor.place == "slow" and node.kind in ("load", "store", "add")
            ):
                self._arrays[tensor.name] = np.zeros(full, storage)
                self._written[tensor.name] = np.zeros(full, np.bool_)
                if tensor.place == "output":
                    self.outputs.add(tensor.name)
                else:
                    self.kept.append(tensor.name)

    def load(self, move: Move, ranges: Ranges, place: Array | None = None) -> Array:
        """Return a copy of a tile in the dtype it is held in, of a page in that place."""
        at = _index(move.tensor.axes, ranges)
        if place is not None:
            at = self._pages[move.tensor.name].index(at, int(place))
        written = self._written.get(move.tensor.name)
        if written is not None and not written[at].all():
            raise ScheduleError(
                f"{where(move)}: load of {tile_name(move.tensor, ranges)}, some words of which "
                + ("nobody has sent" if move.tensor.place == "input" else "nothing has written")
            )
        tile = np.asarray(self._arrays[move.tensor.name][at])
        self.moved = tile.size
        return tile.astype(held_in(move.tensor.held))

    def _keep(self, tensor: Tensor, shard: Ranges) -> None:
        """Forget all words of an input but those of a shard."""
        at = slices_of(shard)
        whole = self._arrays[tensor.name]
        self._arrays[tensor.name] = np.full_like(whole, np.nan)
        self._arrays[tensor.name][at] = whole[at]
        self._written[tensor.name] = np.zeros(whole.shape, np.bool_)
        self._written[tensor.name][at] = True

    def holds(self, tensor: Tensor, ranges: Ranges) -> bool:
        """Return whether all words of a tile are here."""
        return bool(self._written[tensor.name][slices_of(ranges)].all())

    def words_of(self, name: str, ranges: Ranges) -> Array:
        """Return a copy of a tile as it lies here, with all of its axes."""
        return np.array(self._arrays[name][slices_of(ranges)])

    def receive(self, move: Move, ranges: Ranges, tile: Array) -> None:
        """Put a tile here that another rank sent; with a shift, in place of the one before."""
        name = move.tensor.name
        if move.kind == "shift":
            before = self._passing.get(name)
            if before is not None:
                self._written[name][slices_of(before)] = False
                self._arrays[name][slices_of(before)] = np.nan
            self._passing[name] = ranges
        self._arrays[name][slices_of(ranges)] = tile
        self._written[name][slices_of(ranges)] = True

    def room(self, tensor: Tensor, ranges: Ranges) -> Array:
        """Return a tile of NaN or, of integers, the largest: an early reader will see it."""
        shape = [
            stop - first
            for (first, stop), dim in zip(ranges, tensor.axes, strict=True)
            if not dim.indexed
        ]
        self.moved = 0
        held = held_in(tensor.held)
        return np.full(shape, np.iinfo(held).max if tensor.held in INTEGERS else np.nan, held)

    def store(self, move: Move, ranges: Ranges, tile: Array) -> None:
        """Copy a tile out, rounded to its item type in slow memory; add it for an `add`."""
        at = _index(move.tensor.axes, ranges)
        array = self._arrays[move.tensor.name]
        written = self._written[move.tensor.name]
        if move.kind == "add":
            if not written[at].all():
                raise ScheduleError(
                    f"{where(move)}: add to {tile_name(move.tensor, ranges)}, "
                    "some words of which nothing has written"
                )
            array[at] += tile.astype(array.dtype)
        else:
            array[at] = tile.astype(array.dtype)
        written[at] = True
        self.moved = tile.size

    def array(self, name: str, leading: int) -> Array:
        """Return a tensor with the leading axes (batch, heads) that the inputs had."""
        return self._arrays[name].reshape(leading_shape(self._tensors[name], leading))


def in_places(tensor: Tensor, array: Array, ranks: Ranks) -> Array:
    """Return a whole tensor with its rows in the places that the layouts of the ranks say."""
    for axis, dim in enumerate(tensor.axes):
        if dim.name in ranks.layouts:
            array = np.take(array, ranks.layouts[dim.name].rows(0, dim.n), axis)
    return array


def in_sequence(tensor: Tensor, array: Array, ranks: Ranks) -> Array:
    """Return a whole tensor with its rows in the order of the sequence again."""
    for axis, dim in enumerate(tensor.axes):
        if dim.name in ranks.layouts:
            array = np.take(array, np.argsort(ranks.layouts[dim.name].rows(0, dim.n)), axis)
    return array


def slices_of(ranges: Ranges) -> tuple[slice, ...]:
    """Return the NumPy index of a tile with all of its axes."""
    return tuple(slice(first, stop) for first, stop in ranges)


def _index(axes: tuple[Dim, ...], ranges: Ranges) -> tuple[int | slice, ...]:
    """Return the NumPy index of a tile: an integer along indexed axes, a slice along others."""
    return tuple(
        first if dim.indexed else slice(first, stop)
        for dim, (first, stop) in zip(axes, ranges, strict=True)
    )


def leading_shape(tensor: Tensor, leading: int = 2) -> tuple[int, ...]:
    """Return the shape (batch, heads, rows[, width]) of a tensor: its heads are one axis.

    The last `leading` of (batch, heads) stay; a tensor without these axes has its own shape.
    """
    sizes = [dim.n for dim in tensor.axes]
    heads = sum(dim.name in ("batch", "kv_head", "group") for dim in tensor.axes)
    if not heads:
        return tuple(sizes)
    return (sizes[0], math.prod(sizes[1:heads]))[2 - leading :] + tuple(sizes[heads:])
