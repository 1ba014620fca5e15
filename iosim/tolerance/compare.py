"""Comparing results: within a tolerance, or by the field's own rule. NaN never passes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from iosim.errors import IosimError
from iosim.precision import Array


def two_times_rule(error: float, standard_error: float) -> bool:
    """The field's own check: error <= 2 x the error of standard attention in the dtype + 1e-5.

    False where either is NaN (Dao-AILab/flash-attention, tests/test_flash_attn.py).

    >>> two_times_rule(2e-3, 1e-3), two_times_rule(float("nan"), float("nan"))
    (True, False)
    """
    return bool(error <= 2 * standard_error + 1e-5)


@dataclass(frozen=True)
class Comparison:
    """The outcome of `agrees`: true where it is fine; ``reason`` says what is wrong, if anything.

    ``max_error`` is the largest |actual - expected|, ``max_ratio`` the largest such error over its
    tolerance; NaN where a NaN stood. ``index`` is where the worst element is.
    """

    fine: bool
    max_error: float
    max_ratio: float
    index: tuple[int, ...]
    reason: str = ""

    def __bool__(self) -> bool:
        return self.fine


def agrees(
    actual: Array, expected: Array, tolerance: Array | float, nan_where: Array | None = None
) -> Comparison:
    """Whether |actual - expected| <= tolerance everywhere; equal infinities agree, NaN never does.

    ``nan_where`` (broadcast to the shape) marks the elements where NaN is asked for: there both
    sides must be NaN, everywhere else neither. An infinite tolerance promises nothing and fails.
    Raises `IosimError` where the shapes differ.

    >>> bool(agrees(np.array([1.0, -np.inf]), np.array([1.25, -np.inf]), 0.25))
    True
    >>> agrees(np.array([1.0, np.nan]), np.array([1.0, np.nan]), 0.25).reason
    'NaN where none was asked for, at (1,): actual nan, expected nan'
    """
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    if actual.shape != expected.shape:
        raise IosimError(
            f"actual has shape {actual.shape} and expected {expected.shape}: they must be the same"
        )
    if not actual.size:
        return Comparison(True, 0.0, 0.0, ())
    allowed = np.broadcast_to(np.asarray(tolerance, np.float64), actual.shape)
    asked = np.broadcast_to(False if nan_where is None else nan_where, actual.shape)
    with np.errstate(all="ignore"):
        error = np.where(actual == expected, 0.0, abs(actual - expected))
        # Where NaN is asked for, the tolerance (NaN itself, perhaps) has no say.
        error, allowed = np.where(asked, 0.0, error), np.where(asked, 0.0, allowed)
        ratio = np.where(error == 0, 0.0, error / allowed)

    def outcome(reason: str, wrong: Array) -> Comparison:
        flat = int(np.argmax(wrong))
        index = tuple(int(i) for i in np.unravel_index(flat, actual.shape))
        if reason:
            reason += f", at {index}: actual {actual[index]}, expected {expected[index]}"
        return Comparison(not reason, float(error.max()), float(ratio.max()), index, reason)

    missing = asked & ~(np.isnan(actual) & np.isnan(expected))
    if missing.any():
        return outcome("no NaN where one was asked for", missing)
    unasked = ~asked & (np.isnan(actual) | np.isnan(expected))
    if unasked.any():
        return outcome("NaN where none was asked for", unasked)
    if not np.isfinite(allowed).all():
        return outcome("the tolerance is not finite", ~np.isfinite(allowed))
    # Not error > allowed: a comparison with NaN must fail, never pass.
    beyond = ~(error <= allowed)
    return outcome("error beyond the tolerance" if beyond.any() else "", ratio)
