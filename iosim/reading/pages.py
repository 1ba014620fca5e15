"""Pages of a tensor scattered over slow memory, as a page table says, for execution."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from iosim.errors import IosimError, ScheduleError
from iosim.schedule.tree import For, Tensor

Array = NDArray[Any]
Index = tuple[int | slice, ...]


def page_places(table: Tensor, places: ArrayLike | None) -> Array:
    """Return a page table: the place of each page in the pool, all in a row unless given.

    Raises IosimError for a table that has not one place of its own for each page.
    """
    full = tuple(dim.n for dim in table.axes)
    if places is None:
        return np.arange(np.prod(full), dtype=table.dtype).reshape(full)
    array = np.asarray(places)
    if not np.issubdtype(array.dtype, np.integer) or array.size != np.prod(full):
        raise IosimError(
            f"page_table holds {array.size} of {array.dtype}, but the schedule needs "
            f"{' x '.join(map(str, full))} whole numbers"
        )
    if array.min() < 0 or np.unique(array).size < array.size:
        raise IosimError("page_table names a place twice or below 0, but pages lie apart")
    return array.reshape(full).astype(table.dtype)


@dataclass(frozen=True)
class Pages:
    """How one tensor lies in pages: the axes that its table has too, and the axis in pages.

    The pool has the tensor's other axes, and places times `rows` rows along the axis in pages.
    """

    shared: tuple[int, ...]
    axis: int
    rows: int

    @classmethod
    def of(cls, tensor: Tensor, table: Tensor, loops: tuple[For, ...]) -> "Pages":
        """Return how a tensor lies, from the loop around its load that walks its pages."""
        walked = [loop.dim for loop in loops if loop.dim.index and table.has(loop.dim.index)]
        if not walked or not tensor.has(walked[-1].name):
            raise ScheduleError(
                f"load of {tensor.name}, which lies in pages, outside of a loop over its pages"
            )
        names = [dim.name for dim in tensor.axes]
        shared = tuple(i for i, name in enumerate(names) if table.has(name))
        return cls(shared, names.index(walked[-1].name), walked[-1].block)

    def scattered(self, array: Array, table: Array) -> Array:
        """Return the pool that holds the pages of a tensor in their places, NaN between them."""
        moved = np.moveaxis(array, self.shared, range(len(self.shared)))
        lead, rest = moved.shape[: len(self.shared)], list(moved.shape[len(self.shared) :])
        axis = self.axis - sum(i < self.axis for i in self.shared)
        n, rest[axis] = rest[axis], (int(table.max()) + 1) * self.rows
        pool = np.full(rest, np.nan, array.dtype)
        for which in np.ndindex(*lead):
            for page, place in enumerate(table[which]):
                first = page * self.rows
                rows = min(self.rows, n - first)
                source, target = slice(first, first + rows), int(place) * self.rows
                before = (slice(None),) * axis
                pool[(*before, slice(target, target + rows))] = moved[which][(*before, source)]
        return pool

    def index(self, at: Index, place: int) -> Index:
        """Return where in the pool a tile of a page lies, from where it lies in the tensor."""
        rows = at[self.axis]
        assert isinstance(rows, slice)
        shift = place * self.rows - rows.start // self.rows * self.rows
        moved = slice(rows.start + shift, rows.stop + shift)
        return tuple(
            moved if i == self.axis else each for i, each in enumerate(at) if i not in self.shared
        )
