"""A schedule as a program of integers, for the compiled generator of its trace.

Tensors lie row-major, one after another, in one address space.  What never visits slow memory in
this schedule is scratch: it has addresses of its own, the same ones for each tile in turn.
"""

from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np
from numpy.typing import NDArray

from iosim.errors import IosimError
from iosim.reading.walk import Position, kept_axes, section, visited_blocks
from iosim.schedule.relation import ranges_of
from iosim.schedule.tree import Compute, For, Move, Node, Schedule, Tensor, nodes
from iosim.units import ITEM_BYTES

ENTER: Final = 0  # a loop: set it to its first block, or jump behind its end
REPEAT: Final = 1  # the end of a loop: take the next block and jump back
READ: Final = 2
WRITE: Final = 3
HALT: Final = 4

# Columns of the table of loops.
BODY: Final = 0  # where the loop's body begins
BEHIND: Final = 1  # where the program goes on after the loop
BLOCK_ROWS: Final = 2
ORDER: Final = 3  # FORWARD, REVERSE or SNAKE
OUTER: Final = 4  # the loop around it, -1 for none
PARENT: Final = 5  # the loop whose blocks it cuts further, -1 for none
AXIS: Final = 6  # rows of the axis
RANGES: Final = 7  # where its ranges of blocks begin in the table of ranges, -1 for no relation
STRIDES: Final = 8  # (loop, ranges from one of its blocks to the next) for those the ranges hang on
MOST_RELATED: Final = 6  # loops over the two axes of a relation, the one with the relation left out
LOOP_SIZE: Final = STRIDES + 2 * MOST_RELATED
FORWARD: Final = 0
REVERSE: Final = 1
SNAKE: Final = 2
ORDERS = {"forward": FORWARD, "reverse": REVERSE, "snake": SNAKE}

# Columns of the table of axes of operands.
LOOP: Final = 0  # the loop that walks the axis, -1 when the tile has all of it
NUMBERED: Final = 1  # rows of the loop's blocks, when the axis numbers these; else 0
ROWS: Final = 2  # rows of the axis
ROOM: Final = 3  # rows that the layout has for it: fewer for scratch
STRIDE: Final = 4  # units of address from row to row
RELATIVE: Final = 5  # 1 when addresses count from the tile's own first row

MOST_AXES: Final = 8  # of an operand


@dataclass(frozen=True, eq=False)
class Program:
    """A schedule as integers: instructions (kind, argument), tables of loops, ranges and operands.

    `ranges` holds, for each block of a loop that another is related to, the first row and the row
    after the last of the ranges of blocks that the other visits then, and these ranges themselves.
    `operands` holds (first axis, axes, address) of each; addresses are in bytes, or in words when
    each word is a line of its own.  `lines` is the size of the address space.
    """

    code: NDArray[np.int64]
    loops: NDArray[np.int64]
    ranges: NDArray[np.int64]
    operands: NDArray[np.int64]
    axes: NDArray[np.int64]
    line_units: int
    lines: int
    tensors: dict[str, tuple[int, int]]


def compile_trace(schedule: Schedule, line_bytes: int | None = None) -> Program:
    """Turn a schedule into the integers that the generator runs."""
    if line_bytes is not None and line_bytes < 1:
        raise IosimError(f"line size {line_bytes} bytes is not positive; give at least 1")
    if schedule.ranks is not None:
        raise IosimError(
            f"{schedule.name} runs on several devices, which share no cache and have no addresses "
            "in common, so that it has no trace; give a schedule of one device"
        )
    return _Builder(schedule, line_bytes).program()


class _Builder:
    """Lays the tensors out and turns the tree into instructions."""

    def __init__(self, schedule: Schedule, line_bytes: int | None) -> None:
        self.schedule = schedule
        self.line_bytes = line_bytes
        self.code: list[tuple[int, int]] = []
        self.loops: list[list[int]] = []
        self.dims: dict[int, For] = {}  # the loops by number
        self.parents: dict[int, int] = {}
        self.ranges: list[tuple[int, int]] = []
        self.operands: list[tuple[int, int, int]] = []
        self.axes: list[tuple[int, ...]] = []
        self.line_units = line_bytes or 1
        self.room: dict[str, list[int]] = {}
        self.relative: dict[str, list[bool]] = {}
        self.placed: dict[str, tuple[int, int]] = {}  # name: first unit and size
        self._lay_out()

    def program(self) -> Program:
        self._instructions(self.schedule.body, {}, -1)
        self.code.append((HALT, 0))
        end = max((start + size for start, size in self.placed.values()), default=0)
        return Program(
            code=np.array(self.code, dtype=np.int64),
            loops=np.array(self.loops, dtype=np.int64).reshape(-1, LOOP_SIZE),
            ranges=np.array(self.ranges, dtype=np.int64).reshape(-1, 2),
            operands=np.array(self.operands, dtype=np.int64).reshape(-1, 3),
            axes=np.array(self.axes, dtype=np.int64).reshape(-1, RELATIVE + 1),
            line_units=self.line_units,
            lines=-(-end // self.line_units),
            tensors=dict(self.placed),
        )

    def _lay_out(self) -> None:
        """Give every tensor its place: those that visit slow memory first, then scratch."""
        tensors: dict[str, Tensor] = {}
        slow: set[str] = set()
        for node, loops in nodes(self.schedule.body):
            if isinstance(node, Move):
                if node.kind in ("load", "store", "add"):
                    slow.add(node.tensor.name)
                    tensors.setdefault(node.tensor.name, node.tensor)
            elif isinstance(node, Compute):
                for tensor in (*node.inputs, *node.outputs):
                    tensors.setdefault(tensor.name, tensor)
                    self._note_extents(tensor, loops)
        kept = kept_axes(self.schedule)
        for name, tensor in tensors.items():
            own = [name in slow or dim.name in kept for dim in tensor.axes]
            self.relative[name] = [not absolute for absolute in own]
            tile = self.room.get(name, [dim.n for dim in tensor.axes])
            self.room[name] = [
                dim.n if absolute else rows
                for dim, absolute, rows in zip(tensor.axes, own, tile, strict=True)
            ]
        at = 0
        for tensor in sorted(tensors.values(), key=lambda tensor: tensor.name not in slow):
            size = self._item(tensor, tensor.name in slow)
            for rows in self.room[tensor.name]:
                size *= rows
            self.placed[tensor.name] = (at, size)
            at += -(-size // self.line_units) * self.line_units
        self.slow = slow

    def _note_extents(self, tensor: Tensor, loops: tuple[For, ...]) -> None:
        """Remember the largest tile of a tensor that a computation uses."""
        around = {loop.dim.name: min(cut.block for cut in loop.dim.cuts) for loop in loops}
        around |= {loop.dim.index: 1 for loop in loops}
        rows = [min(around.get(dim.name, dim.n), dim.n) for dim in tensor.axes]
        before = self.room.get(tensor.name, rows)
        self.room[tensor.name] = [max(pair) for pair in zip(before, rows, strict=True)]

    def _item(self, tensor: Tensor, slow: bool) -> int:
        """Units of one word."""
        if self.line_bytes is None:
            return 1
        return ITEM_BYTES[tensor.dtype if slow else tensor.held]

    def _instructions(self, body: tuple[Node, ...], around: dict[str, int], outer: int) -> None:
        for node in body:
            if isinstance(node, Compute):
                for kind, operands in ((READ, node.inputs), (WRITE, node.outputs)):
                    for tensor in operands:
                        self.code.append((kind, self._operand(tensor, around)))
            elif isinstance(node, For):
                self._loop(node, around, outer)

    def _loop(self, loop: For, around: dict[str, int], outer: int) -> None:
        number = len(self.loops)
        dim = loop.dim
        parent = -1 if dim.parent is None else around[dim.name]
        entry = [0, 0, dim.block, ORDERS[loop.order], outer, parent, dim.n, -1]
        entry += [-1, 0] * MOST_RELATED
        self.loops.append(entry)
        self.dims[number] = loop
        self.parents[number] = parent
        if loop.relation is not None:
            pair = {loop.relation.query, loop.relation.key}
            entry[RANGES] = len(self.ranges)
            names = sorted(pair & set(around))
            related = [at for name in names for at in self._chain(around[name])]
            self._tabulate(loop, related, entry)
        self.code.append((ENTER, number))
        entry[BODY] = len(self.code)
        inside = {**around, dim.name: number} | ({dim.index: number} if dim.index else {})
        self._instructions(loop.body, inside, number)
        self.code.append((REPEAT, number))
        entry[BEHIND] = len(self.code)

    def _chain(self, number: int) -> list[int]:
        """Return a loop and those whose blocks it cuts further, outermost first."""
        return [*self._chain(self.parents[number]), number] if number >= 0 else []

    def _tabulate(self, loop: For, related: list[int], entry: list[int]) -> None:
        """Enter the blocks that a loop visits, for each position of the loops these hang on.

        That is one row for each position, of where its ranges of blocks stand, and then all ranges.
        """
        if len(related) > MOST_RELATED:
            raise IosimError(
                f"the loop over {loop.dim.name!r} is related to {len(related)} loops; "
                f"a trace takes {MOST_RELATED}"
            )
        dims = [self.dims[number].dim for number in related]
        most = [dim.blocks_in(min((c.block for c in dim.cuts[:-1]), default=dim.n)) for dim in dims]
        stride = 1
        for place in range(len(related) - 1, -1, -1):
            entry[STRIDES + 2 * place], entry[STRIDES + 2 * place + 1] = related[place], stride
            stride *= most[place]
        rows: list[tuple[int, int]] = []
        found: list[tuple[int, int]] = []
        behind = len(self.ranges) + stride
        for blocks in product(*map(range, most)):
            position: Position = {}
            for dim, i in zip(dims, blocks, strict=True):
                position[dim.name] = (dim, i, dim.range(i, section(dim, position)))
            there = all(first < stop for _, _, (first, stop) in position.values())
            visited = ranges_of(visited_blocks(loop, position)) if there else ()
            first = behind + len(found)
            rows.append((first, first + len(visited)))
            found += [(each.start, each.stop) for each in visited]
        self.ranges += rows + found

    def _operand(self, tensor: Tensor, around: dict[str, int]) -> int:
        """Enter an operand where the loops `around` it stand; return its number."""
        if len(tensor.axes) > MOST_AXES:
            raise IosimError(
                f"tensor {tensor.name!r} has {len(tensor.axes)} axes; a trace takes {MOST_AXES}"
            )
        room = self.room[tensor.name]
        first = len(self.axes)
        stride = self._item(tensor, tensor.name in self.slow)
        entries = []
        for place in range(len(tensor.axes) - 1, -1, -1):
            dim = tensor.axes[place]
            loop = around.get(dim.name, -1)
            walks = self.dims[loop].dim if loop >= 0 else dim
            numbered = walks.block if walks.name != dim.name else 0
            relative = int(self.relative[tensor.name][place])
            entries.append((loop, numbered, dim.n, room[place], stride, relative))
            stride *= room[place]
        entries = entries or [(-1, 0, 1, 1, stride, 0)]  # a single word
        self.axes += reversed(entries)
        self.operands.append((first, len(entries), self.placed[tensor.name][0]))
        return len(self.operands) - 1
