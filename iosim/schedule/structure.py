"""What every tree must be, whatever it computes: rules that each reading relies on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from iosim.errors import ScheduleError
from iosim.schedule.tree import Compute, For, Move, Node, Remark, Tensor

if TYPE_CHECKING:
    from iosim.schedule.relation import Relation


def check_structure(body: tuple[Node, ...]) -> None:
    """Raise ScheduleError for a tree that no reading could make sense of.

    That is a body that holds anything but nodes, a loop inside another over the same axis, a
    relation to an axis that is not looped over outside, or two things of one name.
    """
    _Structure().visit(body, "the schedule", (), ())


class _Structure:
    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self.tensors: dict[str, tuple[object, ...]] = {}

    def visit(self, body: Any, owner: str, axes: tuple[str, ...], related: tuple[str, ...]) -> None:
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

    def _loop(self, loop: For, axes: tuple[str, ...], related: tuple[str, ...]) -> None:
        name = loop.dim.name
        self._axis(name, loop.dim.n)
        if name in axes:
            raise ScheduleError(
                f"a loop over {name!r} lies inside another loop over {name!r}; "
                "in one nest each axis may be looped over once"
            )
        if loop.relation is not None:
            related = self._relation(name, loop.relation, axes, related)
        self.visit(loop.body, f"the loop over {name!r}", (*axes, name), related)

    def _relation(
        self, name: str, relation: Relation, axes: tuple[str, ...], related: tuple[str, ...]
    ) -> tuple[str, ...]:
        pair = (relation.query, relation.key)
        if name not in pair:
            raise ScheduleError(
                f"the loop over {name!r} has a relation of {pair[0]!r} to {pair[1]!r}, "
                "which is for a loop over one of these"
            )
        other = pair[pair.index(name) - 1]
        if other not in axes:
            raise ScheduleError(
                f"the loop over {name!r} is related to {other!r}, "
                f"but no loop over {other!r} is around it"
            )
        if set(pair) & set(related):
            raise ScheduleError(
                f"the loop over {name!r} relates {pair[0]!r} to {pair[1]!r}, one of which is in a "
                "relation already; in one nest each axis may be in one relation"
            )
        return (*related, *pair)

    def _operands(self, node: Compute, operands: Any) -> None:
        if not isinstance(operands, tuple) or not all(isinstance(t, Tensor) for t in operands):
            raise ScheduleError(
                f"the outputs and inputs of {node.operation} must be tuples of tensors, "
                f"not {_shown(operands)}; a single tensor needs a comma after it"
            )
        for tensor in operands:
            self._tensor(tensor)

    def _tensor(self, tensor: Tensor) -> None:
        for dim in tensor.axes:
            self._axis(dim.name, dim.n)
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
