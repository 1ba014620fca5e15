"""The schedule as data: blocked axes, tensors, and a tree of loops, moves and tile computations.

A schedule says nothing about a machine. It names what is loaded, stored and computed, in which
order, tile by tile; the readings in `iosim.reading` say what that costs or does.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

from iosim.errors import IosimError, ScheduleError
from iosim.shape import AttentionShape
from iosim.units import ITEM_BYTES, unknown

if TYPE_CHECKING:
    from iosim.schedule.ranks import Ranks
    from iosim.schedule.relation import Relation

Order = Literal["forward", "reverse", "snake"]
Kind = Literal["load", "store", "add", "new", "free", "receive", "send", "shift"]
Place = Literal["input", "output", "slow", "fast"]


def _one_of(what: str, name: str, names: Collection[str]) -> None:
    if name not in names:
        raise IosimError(unknown(what, name, names))


@dataclass(frozen=True)
class Dim:
    """An axis of `n` rows, cut into blocks of `block` rows; the last block may be ragged.

    Two Dims of one name are two ways to cut the same axis. An `indexed` axis (batch, head) is
    walked one element at a time, and a tile has no extent along it. `symbol` and `count` are what
    formulas call n and the number of blocks.

    With a `parent`, another cut of the same axis, it cuts each block of the parent anew: key tiles
    within a split, a page, a rank's share. Its loop lies inside the parent's, counts blocks from
    the first of the current one, and its last block in each may be ragged. `index` names an axis
    that numbers the blocks, for tensors that have one entry for each (see `numbers`); a parent's
    blocks then hold whole ones.

    >>> rows = Dim("query", 10, 4, symbol="n_q", count="T_r")
    >>> rows.blocks, rows.rows(2), rows.range(2)
    (3, 2, (8, 10))
    >>> pairs = rows.within(Dim("query", 10, 5, index="half"))
    >>> pairs.blocks, pairs.range(1, (5, 10)), pairs.parent.numbers().n
    (4, (9, 10), 2)
    """

    name: str
    n: int
    block: int = 0
    symbol: str = ""
    count: str = ""
    indexed: bool = False
    parent: "Dim | None" = None
    index: str = ""

    def __post_init__(self) -> None:
        """Fill in the defaults: one block, and symbols made from the name."""
        if self.block == 0:
            object.__setattr__(self, "block", self.n)
        if self.n < 1 or self.block < 1:
            raise IosimError(
                f"axis {self.name!r} has {self.n} rows in blocks of {self.block}, "
                "but both must be whole numbers of at least 1"
            )
        if self.parent is not None and (self.parent.name, self.parent.n) != (self.name, self.n):
            raise IosimError(
                f"axis {self.name!r} of {self.n} rows has the parent {self.parent.name!r} of "
                f"{self.parent.n} rows, but a parent is another cut of the same axis"
            )
        if self.index and any(dim.block % self.block for dim in self.cuts):
            raise IosimError(
                f"axis {self.name!r} numbers blocks of {self.block} rows along {self.index!r}, "
                "but a block of its parent does not hold whole ones"
            )
        if not self.symbol:
            object.__setattr__(self, "symbol", f"n_{self.name}")
        if not self.count:
            object.__setattr__(self, "count", f"T_{self.name}")

    @property
    def blocks(self) -> int:
        """The number of blocks, T = ceil(n / block); with a parent, of all its blocks together."""
        if self.parent is None:
            return -(-self.n // self.block)
        sizes = [dim.block for dim in self.cuts]
        return _blocks(self.n, sizes)

    @property
    def cuts(self) -> tuple["Dim", ...]:
        """The cuts of the axis that lie around this one, outermost first, and this one."""
        return (self,) if self.parent is None else (*self.parent.cuts, self)

    def blocks_in(self, rows: int) -> int:
        """Return the number of blocks in so many rows: those of one block of the parent."""
        return -(-rows // self.block)

    def range(self, i: int, within: tuple[int, int] | None = None) -> tuple[int, int]:
        """Return the first row of block i and the row after its last.

        `within` are the rows of the parent's current block, in which i counts from 0.
        """
        first, stop = (0, self.n) if within is None else within
        return first + i * self.block, min(first + (i + 1) * self.block, stop)

    def rows(self, i: int) -> int:
        """Return the rows of block i of an axis without a parent."""
        return min((i + 1) * self.block, self.n) - i * self.block

    def cut(self, block: int, count: str = "") -> "Dim":
        """Return the same axis cut into other blocks, of no parent."""
        return replace(self, block=block, count=count or self.count, parent=None, index="")

    def within(self, parent: "Dim") -> "Dim":
        """Return this cut made within each block of another."""
        return replace(self, parent=parent)

    def numbers(self) -> "Dim":
        """Return the axis that has one entry for each block: partial results have it."""
        if not self.index:
            raise IosimError(f"the blocks of axis {self.name!r} have no numbers; give it an index")
        return Dim(self.index, self.blocks, 1, self.count, self.count, indexed=True)


def _blocks(rows: int, sizes: list[int]) -> int:
    """Return the blocks of the last size within blocks of the sizes before, outermost first."""
    size, *inner = sizes
    if not inner:
        return -(-rows // size)
    return (rows // size) * _blocks(size, inner) + (_blocks(rows % size, inner) if rows else 0)


@dataclass(frozen=True)
class Tensor:
    """A named array with rows along `axes`.

    `place` says where it lives: an input starts in slow memory, an output must end there, a slow
    one is a scratch tensor in slow memory, a fast one exists only in fast memory. `dtype` is its
    item type in slow memory, `held` (default `dtype`) in fast memory, where sums may be wider.
    A `table` says where in slow memory the tensor's pages lie: its current entry, along the axis
    that numbers them, has to be in fast memory when a tile of a page is loaded.
    """

    name: str
    axes: tuple[Dim, ...]
    dtype: str
    place: Place = "fast"
    held: str = ""
    table: "Tensor | None" = None

    def __post_init__(self) -> None:
        """Fill in the default item type in fast memory, and refuse what is unknown."""
        if not self.held:
            object.__setattr__(self, "held", self.dtype)
        _one_of("place of a tensor", self.place, get_args(Place))
        for dtype in (self.dtype, self.held):
            _one_of("dtype", dtype, ITEM_BYTES)

    def has(self, axis: str) -> bool:
        """Return whether the tensor has rows along the axis of that name."""
        return axis in self._names

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(dim.name for dim in self.axes)

    @cached_property
    def whole(self) -> tuple[tuple[str, tuple[int, int]], ...]:
        """The name of each axis and all of its rows, (first, past the last)."""
        return tuple((dim.name, (0, dim.n)) for dim in self.axes)


@dataclass(frozen=True)
class Move:
    """Move the current tile of a tensor: load, store, add (reduce into slow memory), new or free.

    `new` makes room without traffic, `free` gives it back. An `add` is a read-modify-write by the
    memory system: its words are counted once, under their own heading.

    On several devices (`Schedule.ranks`) three more kinds copy the tile from the slow memory of one
    rank into that of another: `receive` takes it from the rank that the loop related to the ranks
    is at, `send` gives it to that rank, and `shift` takes it from the rank before, in a ring,
    in the place of the tile that was taken so before. `source` is what the other rank gives, where
    that is another tensor.
    """

    kind: Kind
    tensor: Tensor
    line: str = ""
    source: Tensor | None = None

    def __post_init__(self) -> None:
        """Refuse an unknown kind."""
        _one_of("kind of move", self.kind, get_args(Kind))


@dataclass(frozen=True)
class Compute:
    """Apply a registered operation to resident tiles, writing its outputs in place."""

    operation: str
    outputs: tuple[Tensor, ...]
    inputs: tuple[Tensor, ...]
    line: str = ""


@dataclass(frozen=True)
class Remark:
    """A line of the listing that neither moves nor computes anything."""

    line: str


@dataclass(frozen=True)
class For:
    """Repeat the body for each block of `dim`; with a relation, for the blocks that it names.

    A relation links this axis to that of an enclosing loop (which may be any level above). A loop
    over a Dim with a parent stands inside that over the parent. `parallel` says that the iterations
    are independent of each other.
    """

    dim: Dim
    body: tuple["Node", ...]
    relation: "Relation | None" = None
    order: Order = "forward"
    parallel: bool = False
    line: str = ""

    def __post_init__(self) -> None:
        """Refuse an unknown order."""
        _one_of("order of a loop", self.order, get_args(Order))


Node = For | Move | Compute | Remark


@dataclass(frozen=True)
class Schedule:
    """A named tree for one attention shape; `tiles` are the sizes, in rows, and the settings of it.

    `ranks` says what each of several devices runs and holds; None means that there is one.
    """

    name: str
    shape: AttentionShape
    body: tuple[Node, ...] = field(repr=False)  # `print` shows it as a listing
    mask: "Relation | None" = None
    tiles: dict[str, Any] = field(default_factory=dict)
    ranks: "Ranks | None" = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Refuse a tree that no reading could make sense of."""
        from iosim.schedule.ranks import check_tree
        from iosim.schedule.structure import check_structure

        if not isinstance(self.name, str):
            raise ScheduleError(f"the name of a schedule must be text, not {self.name!r}")
        if not isinstance(self.shape, AttentionShape):
            raise ScheduleError(
                f"the shape of {self.name} is {self.shape!r}; pass on the shape that was given"
            )
        check_structure(self.body)
        check_tree(self)
        if self.shape.dropout:
            from iosim.schedule.dropout import check_dropout

            check_dropout(self.name, self.shape, self.body)

    def __str__(self) -> str:
        """Return the numbered listing."""
        from iosim.schedule.listing import listing

        return "\n".join(
            f"{line.number:3d}  {'  ' * line.depth}{line.text}" for line in listing(self)
        )


def nodes(
    body: tuple[Node, ...], loops: tuple[For, ...] = ()
) -> Iterator[tuple[Node, tuple[For, ...]]]:
    """Yield every node of a tree once, with the loops around it, outermost first."""
    for node in body:
        yield node, loops
        if isinstance(node, For):
            yield from nodes(node.body, (*loops, node))


def load(line: str, *tensors: Tensor) -> tuple[Move, ...]:
    """Return the loads of the tensors' current tiles, on one line of the listing."""
    return tuple(Move("load", tensor, line) for tensor in tensors)


def store(line: str, *tensors: Tensor) -> tuple[Move, ...]:
    """Return the stores of the tensors' current tiles, on one line of the listing."""
    return tuple(Move("store", tensor, line) for tensor in tensors)


def add(line: str, *tensors: Tensor) -> tuple[Move, ...]:
    """Return the additions of the tensors' current tiles into slow memory, on one line."""
    return tuple(Move("add", tensor, line) for tensor in tensors)


def exchange(kind: Kind, line: str, *tensors: Tensor) -> tuple[Move, ...]:
    """Return moves of the tensors' current tiles between devices: receive, send or shift."""
    return tuple(Move(kind, tensor, line) for tensor in tensors)


def new(*tensors: Tensor) -> tuple[Move, ...]:
    """Return room for the tensors' current tiles, without traffic."""
    return tuple(Move("new", tensor) for tensor in tensors)


def free(*tensors: Tensor) -> tuple[Move, ...]:
    """Return the release of the tensors' current tiles."""
    return tuple(Move("free", tensor) for tensor in tensors)
