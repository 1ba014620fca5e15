"""Gradients the slow way: finite differences, and the chain rule element by element."""

from collections.abc import Callable
from math import exp

import numpy as np

Loss = Callable[[list[np.ndarray]], float]


def differences(loss: Loss, operands: list[np.ndarray], step: float) -> list[np.ndarray]:
    """Central differences of a loss after each element of each operand."""
    found = [np.zeros_like(x) for x in operands]
    for x, gradient in zip(operands, found, strict=True):
        for at in np.ndindex(x.shape):
            kept = x[at]
            x[at] = kept + step
            above = loss(operands)
            x[at] = kept - step
            gradient[at] = (above - loss(operands)) / (2 * step)
            x[at] = kept
    return found


def by_the_chain_rule(q, k, v, dO, sees, scale):
    """dQ, dK, dV of one head from d softmax(s)_j / d s_l = p_j ([j = l] - p_l), in Python floats.

    `sees(i, j)` says whether query i sees key j.
    """
    (n_q, d), (n_k, d_v) = q.shape, v.shape
    dQ, dK, dV = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    for i in range(n_q):
        keys = [j for j in range(n_k) if sees(i, j)]
        s = {j: scale * sum(q[i, t] * k[j, t] for t in range(d)) for j in keys}
        top = max(s.values(), default=0.0)
        total = sum(exp(x - top) for x in s.values())
        p = {j: exp(s[j] - top) / total for j in keys}
        for j in keys:
            for c in range(d_v):
                dV[j, c] += p[j] * dO[i, c]
            change = sum(
                dO[i, c] * v[other, c] * p[other] * ((other == j) - p[j])
                for other in keys
                for c in range(d_v)
            )
            for t in range(d):
                dQ[i, t] += change * scale * k[j, t]
                dK[j, t] += change * scale * q[i, t]
    return dQ, dK, dV
