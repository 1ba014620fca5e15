"""How far attention executed in a dtype may lie from the reference: derived bounds and checks.

Two forms. The worst case is a theorem: it holds for any tiling, any order of the keys and any order
of summation, and is what `iosim verify` uses. The probable form is a model: if roundings err
independently and without bias, it holds with a stated probability. docs/tolerance.md derives both,
and the comments here name its steps.
"""

from iosim.tolerance.compare import Comparison, agrees, two_times_rule
from iosim.tolerance.elementwise import elementwise_error
from iosim.tolerance.execution import EXP_ROUNDOFFS, LOG_ROUNDOFFS, Execution
from iosim.tolerance.probable import confidence_factor, failure_probability
from iosim.tolerance.worst import forward_error, lse_error, score_magnitude

__all__ = [
    "EXP_ROUNDOFFS",
    "LOG_ROUNDOFFS",
    "Comparison",
    "Execution",
    "agrees",
    "confidence_factor",
    "elementwise_error",
    "failure_probability",
    "forward_error",
    "lse_error",
    "score_magnitude",
    "two_times_rule",
]
