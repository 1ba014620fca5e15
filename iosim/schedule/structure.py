"""What every tree must be, whatever it computes: rules that each reading relies on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from iosim.errors import ScheduleError
from iosim.schedule.tree import Compute, Dim, For, Move, Node, Remark, Tensor

if TYPE_CHECKING:
    from iosim.schedule.relation import Relation


def check_structure(body: tuple[Node, ...]) -> None:
    """Raise ScheduleError for a tree that no reading could make sense of.

    That is a body that holds anything but nodes, a loop inside another over the same axis (unless
    it cuts the other's blocks), a relation to an axis that is not looped over outside, or two
    things of one name.
    """
    _Structure().visit(body, "the schedule", (), ())


class _Structure:
    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self.tensors: dict[str, tuple[object, ...]] = {}
        self.seen: set[int] = set()  # the identities of tensors, most of which stand in many nodes

    def visit(
        self, body: Any, owner: str, axes: tuple[Dim, ...], related: tuple[Relation, ...]
    ) -> None:
        if not isinstance(body, tuple):
            raise ScheduleError(
                f"the body of {owner} is a {type(body).__name__}, but it must be a tuple of nodes; "
                "a single node needs a comma after it"
            )
        for node in body:
            if isinstance(node, For):
                self._loop(node, axes, related)
            elif isinstance(node, Move):
                self._tensor(node.tensor)
            elif isinstance(node, Compute):
                for operands in (node.outputs, node.inputs):
                    self._operands(node, operands)
            elif not isinstance(node, Remark):
                raise ScheduleError(
                    f"the body of {owner} holds a {type(node).__name__}, which is not a node; "
                    "load, store, new and free need a * before them"
                )

    def _loop(self, loop: For, axes: tuple[Dim, ...], related: tuple[Relation, ...]) -> None:
        dim, name = loop.dim, loop.dim.name
        self._axis(name, dim.n)
        self._nesting(dim, axes)
        if dim.index:
            self._axis(dim.index, dim.blocks)
        if loop.relation is not None:
            related = self._relation(dim, loop.relation, axes, related)
        elif dim.parent is not None and any(name in (r.query, r.key) for r in related):
            raise ScheduleError(
                f"the loop over {name!r} cuts blocks that a relation has chosen, "
                "but has no relation itself; give it the same one"
            )
        self.visit(loop.body, f"the loop over {name!r}", (*axes, dim), related)

    def _nesting(self, dim: Dim, axes: tuple[Dim, ...]) -> None:
        name = dim.name
        names = {each for outer in axes for each in (outer.name, outer.index) if each}
        if dim.parent is None and name in names:
            raise ScheduleError(
                f"a loop over {name!r} lies inside another loop over {name!r}; "
                "in one nest each axis may be looped over once, but for a cut within its parent"
            )
        around = [outer for outer in axes if outer.name == name]
        if dim.parent is not None and around[-1:] != [dim.parent]:
            raise ScheduleError(
                f"the loop over {name!r} cuts blocks of {dim.parent.block} rows further, "
                "but the next loop around it over this axis is not over those blocks"
            )
        if dim.index and dim.index in names:
            raise ScheduleError(
                f"the loop over {name!r} numbers its blocks along {dim.index!r}, "
                "which is looped over outside"
            )

    def _relation(
        self, dim: Dim, relation: Relation, axes: tuple[Dim, ...], related: tuple[Relation, ...]
    ) -> tuple[Relation, ...]:
        name = dim.name
        pair = (relation.query, relation.key)
        own = dim.index if dim.index in pair else name
        if own not in pair:
            raise ScheduleError(
                f"the loop over {name!r} has a relation of {pair[0]!r} to {pair[1]!r}, "
                "which is for a loop over one of these"
            )
        other = pair[pair.index(own) - 1]
        if all(other not in (outer.name, outer.index) for outer in axes):
            raise ScheduleError(
                f"the loop over {name!r} is related to {other!r}, "
                f"but no loop over {other!r} is around it"
            )
        if any(set(pair) & {r.query, r.key} and r != relation for r in related):
            raise ScheduleError(
                f"the loop over {name!r} relates {pair[0]!r} to {pair[1]!r}, one of which is in a "
                "relation already; in one nest each axis may be in one relation"
            )
        return (*related, relation)

    def _operands(self, node: Compute, operands: Any) -> None:
        if not isinstance(operands, tuple) or not all(isinstance(t, Tensor) for t in operands):
            raise ScheduleError(
                f"the outputs and inputs of {node.operation} must be tuples of tensors, "
                f"not {_shown(operands)}; a single tensor needs a comma after it"
            )
        for tensor in operands:
            self._tensor(tensor)

    def _tensor(self, tensor: Tensor) -> None:
        if id(tensor) in self.seen:
            return
        self.seen.add(id(tensor))
        for dim in tensor.axes:
            self._axis(dim.name, dim.n)
        if tensor.table is not None:
            self._tensor(tensor.table)
        # How the axes are cut does not matter: the loops decide.
        made = (tuple(d.name for d in tensor.axes), tensor.dtype, tensor.place, tensor.held)
        if self.tensors.setdefault(tensor.name, made) != made:
            raise ScheduleError(
                f"tensor {tensor.name!r} stands for two different ones in one schedule; "
                "give each a name of its own"
            )

    def _axis(self, name: str, n: int) -> None:
        rows = self.rows.setdefault(name, n)
        if rows != n:
            raise ScheduleError(
                f"axis {name!r} has {rows} rows in one place and {n} in another; "
                "axes of one name must be of one length"
            )


def _shown(value: Any) -> str:
    """Return a value as an error shows it: of a tensor the name, as its axes fill lines."""
    return f"the tensor {value.name}" if isinstance(value, Tensor) else repr(value)
