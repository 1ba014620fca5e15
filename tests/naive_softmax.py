"""Slow, obvious twins: the state of one row key by key in Python floats, and plain tile loops."""

import math
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext

import numpy as np

from iosim.precision import precision
from iosim.softmax import (
    finish,
    log_sum_exp,
    merge,
    new_maximum,
    normalise,
    of_block,
    of_finished,
    rescale,
    stable_exp,
)


def row_state(scores, values):
    """(m, l, o) of one row: scores a list of floats, values a list of lists; no NaN, no +inf."""
    m = max(scores, default=-math.inf)
    if m == -math.inf:
        return m, 0.0, [0.0] * len(values[0])
    p = [0.0 if s == -math.inf else math.exp(s - m) for s in scores]
    return (
        m,
        math.fsum(p),
        [
            math.fsum(w * v[c] for w, v in zip(p, values, strict=True))
            for c in range(len(values[0]))
        ],
    )


def row_merge(a, b):
    """The merge of two row states, one number at a time."""
    (m_a, l_a, o_a), (m_b, l_b, o_b) = a, b
    if m_a == -math.inf:
        return b
    if m_b == -math.inf:
        return a
    m = max(m_a, m_b)
    f, g = math.exp(m_a - m), math.exp(m_b - m)
    return m, f * l_a + g * l_b, [f * x + g * y for x, y in zip(o_a, o_b, strict=True)]


def row_finish(state):
    """(O, LSE) of one row state."""
    m, l, o = state
    return ([x / l for x in o], m + math.log(l)) if l else ([0.0] * len(o), -math.inf)


def decimal_attention(q, k, v, scale):
    """(O, LSE) of one head to 50 digits, as nested lists of Decimal; no mask."""
    with localcontext(Context(prec=60)):
        q, k, v = ([[Decimal(float(x)) for x in row] for row in a] for a in (q, k, v))
        outputs, lses = [], []
        for row in q:
            weights = [
                (Decimal(scale) * sum(x * y for x, y in zip(row, key, strict=True))).exp()
                for key in k
            ]
            total = sum(weights)
            outputs.append(
                [
                    sum(w * x for w, x in zip(weights, column, strict=True)) / total
                    for column in zip(*v, strict=True)
                ]
            )
            lses.append(total.ln())
        return outputs, lses


def plain_attention(q, k, v, visible, scale):
    """(O, LSE) of one head in Python floats, without a maximum: for scores of ordinary size."""
    outputs, lses = [], []
    for i, row in enumerate(q):
        weights = [
            math.exp(scale * math.fsum(x * y for x, y in zip(row, key, strict=True)))
            if visible[i][j]
            else 0.0
            for j, key in enumerate(k)
        ]
        total = math.fsum(weights)
        outputs.append(
            [
                math.fsum(w * x for w, x in zip(weights, column, strict=True)) / (total or 1.0)
                for column in zip(*v, strict=True)
            ]
        )
        lses.append(math.log(total) if total else -math.inf)
    return outputs, lses


@dataclass(frozen=True)
class Tiled:
    """Attention of one head by a loop over key tiles, in a dtype; ``cuts`` are the tiles' ends."""

    dtype: str
    cuts: tuple[int, ...]
    order: tuple[int, ...] | None = None

    def tiles(self, q, k, v, visible, scale):
        form = precision(self.dtype)
        q, k, v = (form.round(np.asarray(x)).astype(form.accumulator) for x in (q, k, v))
        factor = form.accumulator.type(1 / math.sqrt(q.shape[-1]) if scale is None else scale)
        edges = list(zip((0, *self.cuts[:-1]), self.cuts, strict=True))
        for t in self.order or range(len(edges)):
            tile = slice(*edges[t])
            with np.errstate(all="ignore"):
                s = factor * (q @ k[tile].T)
            if visible is not None:
                s = np.where(visible[:, tile], s, form.accumulator.type(-np.inf))
            yield s, v[tile]

    def flash2(self, q, k, v, visible=None, scale=None):
        form = precision(self.dtype)
        m = np.full(len(q), -np.inf, form.accumulator)
        l = np.zeros(len(q), form.accumulator)
        o = np.zeros((len(q), v.shape[-1]), form.accumulator)
        for s, v_j in self.tiles(q, k, v, visible, scale):
            m_new = new_maximum(s, m)
            p, factor = stable_exp(s, m_new), rescale(m, m_new)
            with np.errstate(all="ignore"):
                l = factor * l + p.sum(axis=-1)
                o = factor[:, None] * o + form.round(p) @ v_j
            m = m_new
        return form.round(normalise(o, l)), log_sum_exp(m, l)

    def flash1(self, q, k, v, visible=None, scale=None):
        form = precision(self.dtype)
        m = np.full(len(q), -np.inf, form.accumulator)
        l = np.zeros(len(q), form.accumulator)
        o = np.zeros((len(q), v.shape[-1]), form.accumulator)
        for s, v_j in self.tiles(q, k, v, visible, scale):
            m_tile = new_maximum(s)
            p, m_new = stable_exp(s, m_tile), np.maximum(m, m_tile)
            f, g = rescale(m, m_new), rescale(m_tile, m_new)
            l_new = f * l + g * p.sum(axis=-1)
            o = normalise((l * f)[:, None] * o + g[:, None] * (form.round(p) @ v_j), l_new)
            o, m, l = form.round(o), m_new, l_new
        return o, log_sum_exp(m, l)

    def split(self, q, k, v, visible=None, scale=None):
        """Each tile on its own, normalised; then all (O, LSE) merged, last first."""
        form = precision(self.dtype)
        parts = [
            of_finished(*finish(of_block(s, v_j, form)))
            for s, v_j in self.tiles(q, k, v, visible, scale)
        ]
        state = parts.pop()
        while parts:
            state = merge(parts.pop(), state)
        O, lse = finish(state)
        return form.round(O), lse

    def tiled_standard(self, q, k, v, visible=None, scale=None):
        """S and P stored in the dtype; m and l tile by tile; P from them in a second pass."""
        form = precision(self.dtype)
        m = np.full(len(q), -np.inf, form.accumulator)
        l = np.zeros(len(q), form.accumulator)
        stored = [(form.round(s), v_j) for s, v_j in self.tiles(q, k, v, visible, scale)]
        for s, _ in stored:
            m_new = new_maximum(s, m)
            l = rescale(m, m_new) * l + stable_exp(s, m_new).sum(axis=-1)
            m = m_new
        o = np.zeros((len(q), v.shape[-1]), form.accumulator)
        for s, v_j in stored:
            o += form.round(normalise(stable_exp(s, m), l)) @ v_j
        return form.round(o), log_sum_exp(m, l)
