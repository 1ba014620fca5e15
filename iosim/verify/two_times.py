"""What is beyond the 2x rule, and whether the tree says why.

The rule is the field's experience with normal inputs, and no theorem. Inputs made to be hard may
break it. With normal ones it takes a reason: the tree stores a tensor in a dtype narrower than it
is held in and reads it again, and the same tree without that rounding keeps the rule.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from iosim.schedule.tree import Compute, For, Move, Node, Schedule, Tensor, nodes
from iosim.verify.grid import Case


@dataclass
class Beyond:
    """The results of a row that are beyond the rule.

    `unexplained` are those of normal inputs that no rounding in slow memory explains, `narrow` the
    tensors whose rounding explains the others of normal inputs.
    """

    results: list[str] = field(default_factory=list)
    unexplained: list[str] = field(default_factory=list)
    narrow: set[str] = field(default_factory=set)

    def note(
        self,
        case: Case,
        results: Collection[str],
        schedule: Schedule,
        keeps: Callable[[Collection[str]], bool],
    ) -> None:
        """Note the results of a case beyond the rule, in words.

        `keeps(names)` says whether the rule is kept where the tensors of these names are stored
        wide.
        """
        self.results += results
        if not results or case.data != "normal":
            return
        names = {tensor.name for tensor in read_narrow(schedule)}
        if names and keeps(names):
            self.narrow |= names
        else:
            self.unexplained += results

    def __str__(self) -> str:
        """Return such a result, and what explains those of normal inputs."""
        if self.unexplained:
            return (
                f"{self.unexplained[0]}; {len(self.unexplained)} of them are of normal inputs, and "
                "no rounding in slow memory explains them"
            )
        if not self.narrow:
            return self.results[0]
        names = " and ".join(sorted(self.narrow))
        return f"{self.results[0]}; those of normal inputs keep it with {names} stored unrounded"


def read_narrow(schedule: Schedule) -> set[Tensor]:
    """Return the tensors that are loaded or added to where their item type is narrower than held.

    Matrices over queries and keys are left out: standard attention, which the rule compares with,
    rounds them too.

    >>> from iosim.schedule import family
    >>> from iosim.shape import AttentionShape
    >>> shape = AttentionShape(8, 8, 4)
    >>> [sorted(t.name for t in read_narrow(family(name).build(shape, br=2, bc=2)))
    ...     for name in ("flash1", "flash2", "flash1_backward", "flash2_backward")]
    [['O'], [], ['O', 'dQ'], ['O']]
    """
    return {
        node.tensor
        for node, _ in nodes(schedule.body)
        if isinstance(node, Move)
        and node.kind in ("load", "add")
        and node.tensor.dtype != node.tensor.held
        and not (node.tensor.has("query") and node.tensor.has("key"))
    }


def stored_wide(schedule: Schedule, names: Collection[str]) -> Schedule:
    """Return the schedule with the tensors of these names stored in the dtype they are held in.

    >>> from iosim.schedule import family
    >>> from iosim.shape import AttentionShape
    >>> flash1 = family("flash1").build(AttentionShape(8, 8, 4), br=2, bc=2)
    >>> read_narrow(stored_wide(flash1, {"O"}))
    set()
    """

    def wide(tensor: Tensor) -> Tensor:
        return replace(tensor, dtype=tensor.held) if tensor.name in names else tensor

    def changed(node: Node) -> Node:
        if isinstance(node, For):
            return replace(node, body=tuple(map(changed, node.body)))
        if isinstance(node, Move):
            return replace(node, tensor=wide(node.tensor))
        if isinstance(node, Compute):
            outputs, inputs = (tuple(map(wide, each)) for each in (node.outputs, node.inputs))
            return replace(node, outputs=outputs, inputs=inputs)
        return node

    return replace(schedule, body=tuple(map(changed, schedule.body)))
