"""Bounds for each element of O and each row of LSE, in either form."""

from __future__ import annotations

import math

import numpy as np

from iosim import reference
from iosim.errors import IosimError
from iosim.precision import Array
from iosim.tolerance.execution import Execution, Rows, of_reference
from iosim.tolerance.probable import confidence_factor, probable_error
from iosim.tolerance.worst import log_sum_error, weight_error, worst_error

FORMS = ("worst", "probable")


def elementwise_error(
    execution: Execution,
    q: Array,
    k: Array,
    v: Array,
    visible: Array | None = None,
    scale: float | None = None,
    factors: Array | None = None,
    *,
    form: str = "worst",
    confidence: float = 0.999,
) -> tuple[Array, Array]:
    """How far each element of O and each row of LSE may lie from `reference.attention`'s.

    Arguments as in `reference.attention`, O(n_q n_k) float64 words a head. ``form`` "worst" is
    `forward_error` and `lse_error` with averages over a row in place of the largest score and
    value, about 10 times tighter. ``form`` "probable" is a model of rounding and no theorem about
    it: with independent roundings of mean zero, all elements of O and LSE together stay within
    these bounds with probability at least ``confidence`` (Higham and Mary 2019, SIAM J. Sci.
    Comput. 41(5); docs/tolerance.md). It takes keys to be summed in runs of neighbours, and looks
    at the keys one after the other, which takes time; it never exceeds the worst case. A row that
    sees no key has error 0. Raises `IosimError` for an unknown form, a confidence that is not
    between 0 and 1, or dropout without its factors.

    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 256, 16)).astype(np.float32)
    >>> execution = Execution("float32", head_dim=16, n_keys=256)
    >>> for form in ("worst", "probable"):
    ...     O_error, LSE_error = elementwise_error(execution, q, k, v, form=form)
    ...     print(f"{form}: {O_error.max():.1e}, {LSE_error.max():.1e}")
    worst: 3.2e-05, 4.2e-05
    probable: 4.1e-06, 7.3e-06
    """
    if form not in FORMS:
        raise IosimError(f"form must be one of {', '.join(FORMS)}, not {form!r}")
    if (factors is not None) != (execution.dropout > 0):
        raise IosimError(
            f"dropout is {execution.dropout}, and factors are "
            f"{'missing' if factors is None else 'given'}; state both or neither"
        )
    with np.errstate(all="ignore"):
        rows = reference_rows(execution, q, k, v, visible, scale, factors)
        exact = of_reference(execution)
        worst = [worst_error(one, rows) for one in (execution, exact)]
        O_error, lse = (a + b for a, b in zip(*worst, strict=True))
        if form == "probable":
            # A share of the failure probability for each element.
            factor = confidence_factor(confidence, rows.output.size + rows.lse.size)
            probable = probable_error(execution, rows, factor)
            O_error, lse = np.fmin(O_error, probable[0]), np.fmin(lse, probable[1])
    return O_error, lse


def reference_rows(
    execution: Execution,
    q: Array,
    k: Array,
    v: Array,
    visible: Array | None,
    scale: float | None,
    factors: Array | None,
) -> Rows:
    """Return the rows of attention as the float64 reference has them; arguments as above."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    output, lse = reference.attention(q, k, v, visible, scale, factors)
    k, v = reference.repeat_heads(q, k), reference.repeat_heads(q, v)
    seen = np.ones((), bool) if visible is None else visible
    s = factor * (q @ k.swapaxes(-1, -2))
    A = np.where(seen, abs(factor) * (abs(q) @ abs(k).swapaxes(-1, -2)), 0.0)
    p = np.where(seen, np.exp(s - np.where(np.isneginf(lse), 0.0, lse)[..., None]), 0.0)
    # p carries the reference's own error (step 9); so enlarged it bounds the true one.
    exact = of_reference(execution)
    worst = A.max(axis=-1, keepdims=True, initial=0.0)
    largest, h = weight_error(exact, worst, worst, worst)
    doubt = np.expm1(h + log_sum_error(exact, h, largest))
    return Rows(
        output,
        lse,
        p * (1 + doubt),
        np.where(seen, s, 0.0),
        A,
        factor * q,
        k,
        v,
        2 * doubt,
        np.ones(()) if factors is None else np.asarray(factors, np.float64),
    )
