"""How far attention executed in a dtype may lie from the reference: derived bounds and checks.

Two forms. The worst case is a theorem: it holds for any tiling, any order of the keys and any order
of summation, and is what `iosim verify` uses. The probable form is a model: if roundings err
independently and without bias, it holds with a stated probability. docs/tolerance.md derives both,
and the comments in the modules name its steps.

>>> flash2 = Execution("float16", head_dim=64, n_keys=1024, tiles=8)
>>> f"{forward_error(flash2, score_magnitude=8, value_magnitude=4):.4f}"
'0.0044'
"""

from iosim.tolerance.compare import Comparison, agrees, two_times_rule
from iosim.tolerance.elementwise import elementwise_error
from iosim.tolerance.execution import EXP_ROUNDOFFS, LOG_ROUNDOFFS, Execution
from iosim.tolerance.gradients import BackwardExecution, gradient_error
from iosim.tolerance.probable import confidence_factor, failure_probability
from iosim.tolerance.worst import forward_error, lse_error, score_magnitude

__all__ = [
    "EXP_ROUNDOFFS",
    "LOG_ROUNDOFFS",
    "BackwardExecution",
    "Comparison",
    "Execution",
    "agrees",
    "confidence_factor",
    "elementwise_error",
    "failure_probability",
    "forward_error",
    "gradient_error",
    "lse_error",
    "score_magnitude",
    "two_times_rule",
]
