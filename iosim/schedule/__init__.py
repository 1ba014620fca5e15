"""A schedule as data: axes, tensors, loops, moves and tile computations.

What a schedule of one's own needs is importable from here.
"""

from iosim.schedule.attention import Problem, problem
from iosim.schedule.attention_backward import BackwardProblem, backward_problem
from iosim.schedule.registry import (
    Family,
    backward_of,
    families,
    family,
    forward_of,
    schedule,
)
from iosim.schedule.relation import Causal, Relation
from iosim.schedule.tree import (
    Compute,
    Dim,
    For,
    Move,
    Remark,
    Schedule,
    Tensor,
    add,
    free,
    load,
    new,
    store,
)

__all__ = [
    "BackwardProblem",
    "Causal",
    "Compute",
    "Dim",
    "Family",
    "For",
    "Move",
    "Problem",
    "Relation",
    "Remark",
    "Schedule",
    "Tensor",
    "add",
    "backward_of",
    "backward_problem",
    "families",
    "family",
    "forward_of",
    "free",
    "load",
    "new",
    "problem",
    "schedule",
    "store",
]
