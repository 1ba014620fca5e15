"""The number formats of attention: what is stored, what is accumulated in, and their roundoffs.

float16 and bfloat16 mean: operands rounded, float32 accumulation and statistics, P rounded before
PV, O rounded at the end. float32 and float64 are stored and accumulated in alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from iosim.errors import IosimError

Array = npt.NDArray[Any]

NAMES = ("float16", "bfloat16", "float32", "float64")


@dataclass(frozen=True)
class Precision:
    """One number format by name, with the NumPy dtypes that store it and accumulate it.

    ``roundoff`` u is half the distance from 1 to the next number: rounding x errs by at most
    ``u |x|``, or by ``underflow`` where x is below the smallest normal number.
    """

    name: str
    storage: np.dtype[Any]
    accumulator: np.dtype[Any]
    roundoff: float
    accumulator_roundoff: float
    underflow: float
    tiny: float  # smallest normal number of the accumulator
    largest: float
    accumulator_largest: float

    def round(self, x: Array) -> Array:
        """``x`` rounded to this format, held in the accumulator's dtype; same shape as ``x``.

        Numbers beyond the largest become infinite, without a warning.

        >>> precision("bfloat16").round(np.array([1.0, 1.001], np.float32))
        array([1., 1.], dtype=float32)
        """
        if x.dtype == self.accumulator and self.storage == self.accumulator:
            return x
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return x.astype(self.storage).astype(self.accumulator)


INTEGERS = ("uint8", "uint64", "int32", "int64")
"""Item types that are no numbers of attention: mask bytes, random states and page tables."""


def stored_in(name: str) -> np.dtype[Any]:
    """Return the NumPy dtype of an item in slow memory, of a float or an integer type."""
    return np.dtype(name) if name in INTEGERS else precision(name).storage


def held_in(name: str) -> np.dtype[Any]:
    """Return the NumPy dtype in which a tile is held and computed in."""
    return np.dtype(name) if name in INTEGERS else precision(name).accumulator


@cache
def precision(name: str) -> Precision:
    """The format called ``name``: float16, bfloat16, float32 or float64; else an `IosimError`.

    >>> precision("float16").roundoff == 2.0**-11
    True
    """
    if name not in NAMES:
        raise IosimError(f"dtype must be one of {', '.join(NAMES)}, not {name!r}")
    # ml_dtypes supplies bfloat16 and a finfo that knows it; NumPy has neither.
    import ml_dtypes

    storage = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
    accumulator = np.dtype(np.float64 if name == "float64" else np.float32)
    info: Any = ml_dtypes.finfo(storage)  # type: ignore[no-untyped-call]
    accumulated: Any = ml_dtypes.finfo(accumulator)  # type: ignore[no-untyped-call]
    return Precision(
        name=name,
        storage=storage,
        accumulator=accumulator,
        roundoff=float(info.eps) / 2,
        accumulator_roundoff=float(accumulated.eps) / 2,
        underflow=float(info.smallest_subnormal) / 2,
        tiny=float(accumulated.smallest_normal),
        largest=float(info.max),
        accumulator_largest=float(accumulated.max),
    )
