"""A sliding window: each query sees the keys near its own place."""

from dataclasses import dataclass
from typing import ClassVar

from iosim.errors import IosimError
from iosim.schedule.masks.staircase import Staircase, ramp
from iosim.shape import AttentionShape


@dataclass(frozen=True)
class Window:
    """Query i sees the keys from `left` before its own to `right` after it, its own included.

    Its own key is i + n_k - n_q, or i where the shape is aligned top-left. A causal shape has no
    keys after it. Raises IosimError for an extent below 0.

    >>> shape = AttentionShape(6, 6, 8, mask=Window(2, 0))
    >>> str(shape.mask), shape.mask.relation(shape).visible(slice(4, 5), slice(0, 6)).tolist()
    ('window:2,0', [[False, False, True, True, True, False]])
    """

    left: int
    right: int
    grain: ClassVar = (1, 1)

    def __post_init__(self) -> None:
        """Refuse extents that are none."""
        for name, extent in (("left", self.left), ("right", self.right)):
            if extent < 0:
                raise IosimError(f"the {name} extent of a window is {extent}; give at least 0")

    def relation(self, shape: AttentionShape) -> Staircase:
        """Return which keys the queries of a shape see."""
        offset = shape.causal_offset
        right = 0 if shape.causal else self.right
        return Staircase(
            lo=ramp(shape.n_q, offset - self.left, shape.n_k),
            hi=ramp(shape.n_q, offset + right + 1, shape.n_k),
        )

    def __str__(self) -> str:
        """Return the mask as --mask takes it."""
        return f"window:{self.left},{self.right}"
