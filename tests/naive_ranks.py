"""Slow, obvious twins of the schedules of several devices: p ranks that post arrays to each other.

Nothing here imports iosim. q is (heads, n_q, d), k and v are (kv_heads, n_k, ...), `seen` a matrix
of booleans; whatever crosses between two ranks goes through `Post`, which counts its words.
"""

import numpy as np


class Post:
    """The interconnect: words sent and received, by rank."""

    def __init__(self, ranks):
        self.sent = [0] * ranks
        self.received = [0] * ranks

    def send(self, source, target, *arrays):
        words = sum(array.size for array in arrays)
        self.sent[source] += words
        self.received[target] += words
        return tuple(array.copy() for array in arrays)


def cut(n, ranks):
    """The rows of each rank: ceil(n / p), and what is left for the last."""
    block = -(-n // ranks)
    return [slice(first, min(first + block, n)) for first in range(0, n, block)]


def dealt(n, ranks, layout):
    """The rows of each rank, one by one, in the order in which it holds them."""
    shards = [list(range(n))[rows] for rows in cut(n, ranks)]
    if layout == "zigzag":  # half a shard from either end of what is left, the rest to the last
        left = list(range(n))
        for rank, block in enumerate(map(len, shards[:-1])):
            back = block // 2
            shards[rank] = left[: block - back] + left[len(left) - back :]
            left = left[block - back : len(left) - back]
        shards[-1] = left
    elif layout == "striped":
        shards = [[row for row in range(n) if row % ranks == rank] for rank in range(ranks)]
    return shards


def partial(q, k, v, seen):
    """Maximum, sum and unnormalised output of each query over these keys, query by query."""
    heads, n_q, d = q.shape
    group = heads // k.shape[0]
    m = np.full((heads, n_q), -np.inf)
    l = np.zeros((heads, n_q))
    a = np.zeros((heads, n_q, v.shape[2]))
    for head in range(heads):
        for i in range(n_q):
            keys = [j for j in range(k.shape[1]) if seen[i][j]]
            scores = [q[head, i] @ k[head // group, j] / np.sqrt(d) for j in keys]
            if scores:
                m[head, i] = max(scores)
                weights = [np.exp(score - m[head, i]) for score in scores]
                l[head, i] = sum(weights)
                a[head, i] = sum(
                    w * v[head // group, j] for w, j in zip(weights, keys, strict=True)
                )
    return m, l, a


def merge(one, other):
    """The state of two disjoint sets of keys."""
    m = np.maximum(one[0], other[0])
    finite = np.where(m == -np.inf, 0, m)
    f, g = np.exp(one[0] - finite), np.exp(other[0] - finite)
    return m, f * one[1] + g * other[1], f[..., None] * one[2] + g[..., None] * other[2]


def finish(state):
    _, l, a = state
    return a / np.where(l == 0, 1, l)[..., None]


def ring(q, k, v, seen, ranks, layout):
    """Each rank keeps its queries; keys and values go round, from each rank to the next."""
    post = Post(ranks)
    rows, columns = dealt(q.shape[1], ranks, layout), dealt(k.shape[1], ranks, layout)
    held = [(r, k[:, columns[r]], v[:, columns[r]]) for r in range(ranks)]
    states = [None] * ranks
    for step in range(ranks):
        for r in range(ranks):
            owner, keys, values = held[r]
            found = partial(q[:, rows[r]], keys, values, seen[np.ix_(rows[r], columns[owner])])
            states[r] = found if step == 0 else merge(states[r], found)
        if step < ranks - 1:
            moved = [None] * ranks
            for r in range(ranks):
                owner, keys, values = held[r]
                moved[(r + 1) % ranks] = (owner, *post.send(r, (r + 1) % ranks, keys, values))
            held = moved
    output = np.empty((*q.shape[:2], v.shape[2]))
    for own, state in zip(rows, states, strict=True):
        output[:, own] = finish(state)
    return output, post


def ulysses(q, k, v, seen, ranks):
    """From rows of all heads to all rows of some heads and back, both by an all-to-all."""
    post = Post(ranks)
    rows, columns = cut(q.shape[1], ranks), cut(k.shape[1], ranks)
    heads, kv_heads = cut(q.shape[0], ranks), cut(k.shape[0], ranks)

    def gathered(array, own_rows, own_heads, r):
        pieces = []
        for s in range(ranks):
            piece = array[own_heads[r], own_rows[s]]
            pieces.append(piece if s == r else post.send(s, r, piece)[0])
        return np.concatenate(pieces, axis=1)

    outputs = []
    for r in range(ranks):
        mine = gathered(q, rows, heads, r)
        keys, values = gathered(k, columns, kv_heads, r), gathered(v, columns, kv_heads, r)
        outputs.append(finish(partial(mine, keys, values, seen)))
    result = np.zeros((*q.shape[:2], v.shape[2]))
    for r in range(ranks):
        for s in range(ranks):
            piece = outputs[r][:, rows[s]]
            result[heads[r], rows[s]] = piece if s == r else post.send(r, s, piece)[0]
    return result, post


def tree_decoding(q, k, v, seen, ranks):
    """Every rank has all queries and its keys; states merge pairwise, at distance 1, 2, 4, ..."""
    post = Post(ranks)
    columns = cut(k.shape[1], ranks)
    states = [partial(q, k[:, c], v[:, c], seen[:, c]) for c in columns]
    distance = 1
    while distance < ranks:
        states = [
            merge(states[r], post.send(r ^ distance, r, *states[r ^ distance]))
            for r in range(ranks)
        ]
        distance *= 2
    outputs = [finish(state) for state in states]
    assert all(np.array_equal(outputs[0], other) for other in outputs)
    return outputs[0], post
