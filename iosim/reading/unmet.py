"""Words that a schedule loads for blocks that a mask lets meet nothing: of empty columns, say."""

from math import prod

from iosim.reading.extent import factors
from iosim.schedule.nested import seen
from iosim.schedule.tree import For, Move, Schedule, nodes


def unmet_words(schedule: Schedule) -> dict[str, int]:
    """Return the words loaded, by line, in iterations that visit no block of the loop inside.

    They are those of loads that stand beside a loop with a relation, in the loop that it is
    related to. Lines without such words are left out.

    >>> import numpy as np
    >>> from iosim.schedule import family
    >>> from iosim.schedule.masks import BlockMask
    >>> from iosim.shape import AttentionShape
    >>> shape = AttentionShape(8, 8, 4, mask=BlockMask.of([[1, 0], [1, 0]], 4))  # keys 4 to 7
    >>> unmet_words(family("flash1").build(shape, br=4, bc=4))
    {'load K_j, V_j': 32}
    """
    found: dict[str, int] = {}
    for inner, loops in nodes(schedule.body):
        if not isinstance(inner, For) or inner.relation is None or not loops:
            continue
        outer, relation = loops[-1], inner.relation
        if outer.dim.name not in (relation.query, relation.key) or outer.dim.parent:
            continue
        dims = {loop.dim.name: loop.dim for loop in (outer, inner)}
        met = seen(relation, dims[relation.query], dims[relation.key])
        unmet = outer.dim.n - met[outer.dim.name == relation.key]
        for node in outer.body:
            if isinstance(node, Move) and node.kind == "load" and node.tensor.has(outer.dim.name):
                words = prod(factor.value for factor in factors(node.tensor.axes, loops))
                if unmet:  # words are in proportion to the rows of the axis
                    found[node.line] = found.get(node.line, 0) + words * unmet // outer.dim.n
    return found
