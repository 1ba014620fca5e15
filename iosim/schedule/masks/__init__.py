"""The masks by family: what a shape's `mask` may be.

Each tells by `relation(shape)` which blocks of queries and keys meet; `str` is what --mask takes.
"""

from iosim.schedule.masks.documents import Documents
from iosim.schedule.masks.local_global import LocalGlobal
from iosim.schedule.masks.parsing import FORMS, parse_mask
from iosim.schedule.masks.patterns import BlockMask, Butterfly, Random
from iosim.schedule.masks.window import Window

__all__ = [
    "FORMS",
    "BlockMask",
    "Butterfly",
    "Documents",
    "LocalGlobal",
    "Random",
    "Window",
    "parse_mask",
]
