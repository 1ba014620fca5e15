"""Requests of several SMs for one line that reach L2 as one lookup: an estimate, not a law.

Blocks that started together walk the same stream. While they are in step, their requests for a line
merge before L2. They drift apart as a random walk does, so that the share of steps in which two of
them are still close falls with the square root of the number of steps:

    share = min(most, window / sqrt(steps)),   steps = stream blocks x rounds of tiles

with half the steps under a causal mask; a round is as many tiles as run at once.
The window is fitted for each kernel on the recorded cases (kernels.json, `in_step`); backward
kernels, which wait for each other's additions, keep a constant share (`merged_share`).
"""

import math
from collections.abc import Mapping

from iosim.device.kernels import Known
from iosim.device.launch import Launch

MOST = 0.62  # the largest share seen, of blocks that all run at once and for eight steps
OWN_WINDOW = 5.0  # of our flash2, median over docs/data/h200_sweep.json


def share(window: float, launch: Launch, sms: int) -> float:
    """Return the share (0 to 1) of the streamed bytes that L2 does not see; `window` as above.

    >>> launch = Launch(1, 32768, 128, 256, 256, 32768, 128, 512, 1)
    >>> round(share(8.0, launch, 132), 2)
    0.36
    """
    rounds = max(1.0, launch.tiles / (launch.blocks_per_sm * sms))
    steps = launch.stream_blocks * rounds * (0.5 if launch.causal else 1.0)
    return min(MOST, window / math.sqrt(steps))


def share_of(known: Known, launch: Launch, head_dim: int, sms: int) -> float:
    """Return the share (0 to 1) for a known kernel, 0 where nothing is known of it."""
    constant = known.facts.merged_share
    if constant:  # under a causal mask the tiles of keys begin at different queries
        return 0.0 if launch.causal else _at(constant, head_dim)
    windows = known.facts.in_step_causal if launch.causal else known.facts.in_step
    return share(_at(windows, head_dim), launch, sms) if windows else 0.0


def _at(by_width: Mapping[str, float], head_dim: int) -> float:
    """Return the value at the head dimension that is nearest to this one."""
    return by_width[min(by_width, key=lambda width: abs(int(width) - head_dim))]
