"""Slow, obvious twins of the core: whole trees walked block by block, sums as double loops.

Nothing here imports `iosim.reading`, `iosim.bounds` or `iosim.tiles`, and masks are worked out
element by element: causal, query r sees key c when c <= r + offset.
"""

from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, chain, product
from math import isqrt, prod

import naive_ranks

from iosim.schedule import Compute, For, Move, Schedule
from iosim.schedule.masks import BlockMask, Butterfly, Documents, LocalGlobal, Random, Window
from iosim.shape import AttentionShape

ITEM_BYTES = {
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
    "int32": 4,
    "uint8": 1,
    "uint64": 8,
}
DIRECTIONS = {"load": "read", "store": "write", "add": "add"}
EXCHANGES = ("receive", "send", "shift")


# Which blocks of another axis rank r of p visits, by the name of the relation, in order.
VISITS = {
    "Own": lambda r, p: [r],
    "Others": lambda r, p: [(r - k) % p for k in range(1, p)],
    "Butterfly": lambda r, p: [
        s for s in sorted(range(p), key=lambda s: r ^ s) if (r ^ s).bit_count() == 1
    ],
}


def offset(shape):
    """How far to the right of query i's own index it sees; None without a mask."""
    if not shape.causal:
        return None
    return shape.n_k - shape.n_q if shape.align == "bottom-right" else 0


def sees(r, c, off):
    return off is None or c <= r + off


def visible_matrix(n_q, n_k, off):
    return [[sees(r, c, off) for c in range(n_k)] for r in range(n_q)]


def mask_sees(shape, r, c):
    """Whether the shape's mask, the causal one aside, lets query r see key c."""
    mask = shape.mask
    own = r + (shape.n_k - shape.n_q if shape.align == "bottom-right" else 0)
    match mask:
        case None:
            return True
        case Window():
            return own - mask.left <= c <= own + mask.right
        case LocalGlobal():
            near = own - mask.left <= c <= own + mask.right
            return near or r < mask.tokens or c < mask.tokens
        case Documents():
            ends = list(accumulate(mask.lengths))
            return sum(r >= end for end in ends) == sum(c >= end for end in ends)
        case Butterfly():
            return (r // mask.block ^ c // mask.block) in (0, *(2**k for k in range(64)))
        case Random():
            return bool(
                mask.relation(replace(shape, causal=False)).cells.array[
                    r // mask.block, c // mask.block
                ]
            )
        case BlockMask():
            return bool(mask.matrix.array[r // mask.rows, c // mask.columns])
    raise AssertionError(mask)


def visible_of(shape):
    """Which query sees which key of a shape, entry by entry."""
    off = offset(shape)
    return [
        [sees(r, c, off) and mask_sees(shape, r, c) for c in range(shape.n_k)]
        for r in range(shape.n_q)
    ]


def visible_pairs(shape):
    return sum(map(sum, visible_of(shape)))


def cut(n, block):
    """The blocks of an axis as (first, past the last)."""
    return [(first, min(first + block, n)) for first in range(0, n, block)]


def block_mask(n_q, n_k, br, bc, off):
    """Which query block meets which key block: any visible pair of rows will do."""
    return met_blocks(visible_matrix(n_q, n_k, off), br, bc)


def met_blocks(seen, br, bc):
    """Which query block meets which key block, of a matrix of what each query sees."""
    n_q, n_k = len(seen), len(seen[0])
    return [
        [any(seen[r][c] for r in range(*rows) for c in range(*columns)) for columns in cut(n_k, bc)]
        for rows in cut(n_q, br)
    ]


def pair_sums(n_q, n_k, br, bc, off):
    """(pairs, query rows, key rows, products) over the block pairs that meet."""
    return sums_of(visible_matrix(n_q, n_k, off), br, bc)


def sums_of(seen, br, bc):
    """The same sums, of a matrix of what each query sees."""
    n_q, n_k = len(seen), len(seen[0])
    sums = [0, 0, 0, 0]
    for row, (r0, r1) in zip(met_blocks(seen, br, bc), cut(n_q, br), strict=True):
        for met, (c0, c1) in zip(row, cut(n_k, bc), strict=True):
            if met:
                for i, more in enumerate((1, r1 - r0, c1 - c0, (r1 - r0) * (c1 - c0))):
                    sums[i] += more
    return tuple(sums)


def floor_sum(n, m, a, b):
    return sum((a * i + b) // m for i in range(n))


# FLOPs from the sizes of the output and input tiles, each a dict from axis to rows.
def _size(tile):
    return prod(tile.values())


def _matmul(out, a, b):
    """Two FLOPs for each combination of the axes of a and b."""
    return 2 * prod({**a, **b}.values())


FLOPS = {
    "scores": lambda o, i: _matmul(o[0], i[0], i[1]) + _size(o[0]),
    "unmasked_scores": lambda o, i: _matmul(o[0], i[0], i[1]) + _size(o[0]),
    "apply_mask": lambda o, i: 0,
    "start_random": lambda o, i: 0,
    "draw_kept": lambda o, i: 0,
    "drop_by": lambda o, i: _size(o[0]),
    "drop": lambda o, i: _size(o[0]),
    "add_scores": lambda o, i: _matmul(o[0], i[0], i[1]),
    "finish_scores": lambda o, i: _size(o[0]),
    "round_scores": lambda o, i: 0,
    "bare_exponentials": lambda o, i: _size(o[0]),
    "clear": lambda o, i: 0,
    "start_state": lambda o, i: 0,
    "start_statistics": lambda o, i: 0,
    "rescale_statistics": lambda o, i: _size(i[0]) + 4 * _size(o[0]),
    "rescale_state": lambda o, i: _size(i[0]) + _size(o[0]) + 4 * _size(o[1]),
    "exponentiate": lambda o, i: 2 * _size(o[0]),
    "add_row_sums": lambda o, i: _size(i[0]),
    "add_exponential_sums": lambda o, i: 3 * _size(i[0]),
    "accumulate": lambda o, i: _matmul(o[0], i[0], i[1]),
    "normalise": lambda o, i: _size(o[0]),
    "unnormalise": lambda o, i: _size(o[0]),
    "merge_finished": lambda o, i: 3 * _size(o[0]) + 6 * _size(o[1]),
    "log_sum_exp": lambda o, i: 2 * _size(o[0]),
    "finish_state": lambda o, i: _size(o[0]),
    "merge_states": lambda o, i: 3 * _size(o[0]) + 8 * _size(o[1]),
    "row_softmax": lambda o, i: 5 * _size(o[0]),
    "tile_softmax": lambda o, i: 3 * _size(o[0]),
    "row_dots": lambda o, i: 2 * _size(i[0]),
    "value_gradient": lambda o, i: _matmul(o[0], i[0], i[1]),
    "probability_gradient": lambda o, i: _matmul(o[0], i[0], i[1]),
    "score_gradient": lambda o, i: 2 * _size(o[0]),
    "softmax_gradient": lambda o, i: 4 * _size(o[0]),
    "query_gradient": lambda o, i: _matmul(o[0], i[0], i[1]) + _size(o[0]),
    "key_gradient": lambda o, i: _matmul(o[0], i[0], i[1]) + _size(o[0]),
    "copy": lambda o, i: 0,
}


class Run:
    """A whole run of a schedule, block by block: what moved, what was held, what was computed.

    `tensors` and `lines` map (name or text, direction) to words. On several devices, `shares` maps
    (rank, way) to words, or FLOPs, where a way is a direction, "send", "receive" or "flops", and
    `steps` maps (rank, step) to FLOPs: a step begins with each block in which something is sent.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.seen = visible_of(schedule.shape)
        if schedule.tiles.get("layout", "contiguous") != "contiguous":
            dealt = schedule.tiles["ranks"], schedule.tiles["layout"]
            rows, columns = (
                [*chain(*naive_ranks.dealt(n, *dealt))] for n in (len(self.seen), len(self.seen[0]))
            )
            self.seen = [[self.seen[r][c] for c in columns] for r in rows]
        self.tensors: dict[tuple[str, str], int] = {}
        self.lines: dict[tuple[str, str], int] = {}
        self.bytes: dict[str, int] = {"read": 0, "write": 0, "add": 0, "interconnect": 0}
        self.shares: dict[tuple[int, str], int] = {}
        self.step, self.steps = 0, {}
        self.count = 1 if schedule.ranks is None else schedule.ranks.count
        self.held: dict[tuple, tuple[int, int]] = {}
        self.peak_words = self.peak_bytes = self.flops = 0
        self.meetings: list[tuple[tuple[int, int], tuple[int, int]]] = []
        self._run(schedule.body, {})
        self.left = sorted(key[0] for key in self.held)

    def _run(self, body, where):
        for node in body:
            if isinstance(node, For):
                linked = type(node.relation).__name__ in VISITS and sends(node.body)
                for rows in self._blocks(node, where):
                    self.step = 0 if node.dim.index == "rank" else self.step + linked
                    at = {node.dim.name: rows}
                    if node.dim.index:
                        number = rows[0] // node.dim.block
                        at[node.dim.index] = (number, number + 1)
                    self._run(node.body, {**where, **at})
            elif isinstance(node, Move):
                self._move(node, where)
            elif isinstance(node, Compute):
                sizes = [
                    [self._sizes(t, where) for t in tensors]
                    for tensors in (node.outputs, node.inputs)
                ]
                flops = FLOPS[node.operation](*sizes)
                self.flops += flops
                self._share(where, "flops", flops)
                if "rank" in where:
                    at = where["rank"][0], self.step
                    self.steps[at] = self.steps.get(at, 0) + flops

    def _blocks(self, loop, where):
        """The blocks that a loop visits: all, or those of the rows that its parent stands at."""
        first, stop = (0, loop.dim.n) if loop.dim.parent is None else where[loop.dim.name]
        blocks = [(first + a, first + b) for a, b in cut(stop - first, loop.dim.block)]
        if loop.relation is None:
            return blocks
        visits = VISITS.get(type(loop.relation).__name__)
        if visits:
            (rank, _), count = where["rank"], len(blocks)
            self.related = loop.dim.index or loop.dim.name
            return [blocks[s] for s in visits(rank, count)]
        if loop.dim.name == "key":
            r0, r1 = where["query"]
            return [
                (c0, c1)
                for c0, c1 in blocks
                if any(self.seen[r][c] for r in range(r0, r1) for c in range(c0, c1))
            ]
        c0, c1 = where["key"]
        return [
            (r0, r1)
            for r0, r1 in blocks
            if any(self.seen[r][c] for r in range(r0, r1) for c in range(c0, c1))
        ]

    def _ranges(self, tensor, where):
        return tuple(where.get(dim.name, (0, dim.n)) for dim in tensor.axes)

    def _sizes(self, tensor, where):
        ranges = self._ranges(tensor, where)
        return {
            dim.name: stop - first for dim, (first, stop) in zip(tensor.axes, ranges, strict=True)
        }

    def _share(self, where, way, amount):
        if "rank" in where:
            at = where["rank"][0], way
            self.shares[at] = self.shares.get(at, 0) + amount

    def _move(self, move, where):
        tensor = move.tensor
        words = _size(self._sizes(tensor, where))
        key = (tensor.name, self._ranges(tensor, where))
        if move.kind in ("load", "new"):
            assert key not in self.held
            self.held[key] = words, words * ITEM_BYTES[tensor.held]
            self.peak_words = max(self.peak_words, sum(w for w, _ in self.held.values()))
            self.peak_bytes = max(self.peak_bytes, sum(b for _, b in self.held.values()))
        elif move.kind == "free":
            del self.held[key]
        direction = "interconnect" if move.kind in EXCHANGES else DIRECTIONS.get(move.kind)
        if move.kind in EXCHANGES:
            rank, other = where["rank"][0], where[self.related][0]
            if move.kind == "shift":
                other = (rank - 1) % self.count
            ends = ("send", "receive") if move.kind == "send" else ("receive", "send")
            for at, way in zip((rank, other), ends, strict=True):
                self.shares[at, way] = self.shares.get((at, way), 0) + words
        elif direction:
            self._share(where, direction, words)
        if direction:
            for table, at in ((self.tensors, tensor.name), (self.lines, move.line)):
                table[at, direction] = table.get((at, direction), 0) + words
            self.bytes[direction] += words * ITEM_BYTES[tensor.dtype]


def sends(body):
    """Whether something passes between devices in a body."""
    return any(
        sends(node.body) if isinstance(node, For) else getattr(node, "kind", "") in EXCHANGES
        for node in body
    )


# Bounds, in exact arithmetic, from what their statements say.
def compulsory(shape: AttentionShape):
    seen = visible_of(shape)
    queries = sum(any(row) for row in seen)
    keys = sum(any(column) for column in zip(*seen, strict=True))
    read = shape.batch * (
        shape.heads * queries * shape.head_dim
        + shape.kv_heads * keys * (shape.head_dim + shape.value_dim)
    )
    return read, shape.batch * shape.heads * shape.n_q * shape.value_dim


def backward_compulsory(shape: AttentionShape):
    seen = visible_of(shape)
    queries = sum(any(row) for row in seen) * shape.heads
    keys = sum(any(column) for column in zip(*seen, strict=True)) * shape.kv_heads
    width = shape.head_dim + shape.value_dim
    written = shape.heads * shape.n_q * shape.head_dim + shape.kv_heads * shape.n_k * width
    return shape.batch * (queries + keys) * width, shape.batch * written


def backward_general(shape, words):
    """The general bound for the product dP = dO V^T, in place of S = Q K^T."""
    return general(replace(shape, head_dim=shape.value_dim), words)


def backward_fused(shape, words, per_pair, made=0):
    """Meetings of a query-side and a key-side word, of which each moved word has M - 1.

    Of a pair there are (q, dO, dq) x (k, v, dk, dv) meetings, each counted `per_pair(s, t)` times,
    where s and t say whether its words are sums.
    """
    d, d_v = shape.head_dim, shape.value_dim
    query, key = [(d + d_v, 0), (d, 1)], [(d + d_v, 0), (d + d_v, 1)]
    meetings = sum(a * b * per_pair(s, t) for a, s in query for b, t in key)
    pairs = shape.batch * shape.heads * visible_pairs(shape)
    return Fraction(pairs * meetings, words - 1) - made


def general(shape, words):
    """Q >= pairs d^2 / max(M, 2 d^2) - M as a Fraction, at least 0."""
    pairs = shape.batch * shape.heads * visible_pairs(shape)
    d2 = shape.head_dim**2
    return max(Fraction(pairs * d2, max(words, 2 * d2)) - words, Fraction(0))


def fused(shape, words):
    """pairs (d + d_v)^2 / (M - 1) as a Fraction."""
    pairs = shape.batch * shape.heads * visible_pairs(shape)
    return Fraction(pairs * (shape.head_dim + shape.value_dim) ** 2, words - 1)


def whole_rows(shape, words):
    """pairs (d^2 + d_v^2) / (M - 1) as a Fraction."""
    pairs = shape.batch * shape.heads * visible_pairs(shape)
    return Fraction(pairs * (shape.head_dim**2 + shape.value_dim**2), words - 1)


def whole_rows_large_memory(shape, words):
    """Of a pair, 2 d d_v meetings may be paid by a kept score instead."""
    d, d_v = shape.head_dim, shape.value_dim
    pairs = shape.batch * shape.heads * visible_pairs(shape)
    kept = 2 * d * d_v
    return Fraction(pairs * (d * d + d_v * d_v + kept) - kept * words, max(words - 1 + kept, 1))


def general_large_memory(shape, words):
    """Of a pair, d + d_v meetings remain when its score is kept, d^2 + 2 d d_v + d_v if not."""
    d, d_v = shape.head_dim, shape.value_dim
    pairs = shape.batch * shape.heads * visible_pairs(shape)
    full = d * d + 2 * d * d_v + d_v
    kept = full - (d + d_v)
    return Fraction(pairs * full - kept * words, max(words - 1 + kept, 1))


def small_memory_at_least(shape, words, value):
    """Whether the bound is the least t with (m n d)^2 <= 5 M (t + M)^2, for each key-value head."""
    products = (shape.group * shape.n_q * shape.n_k * shape.head_dim) ** 2
    heads = shape.batch * shape.kv_heads
    least = value // heads
    enough = 5 * words * (least + words) ** 2 >= products
    return value % heads == 0 and enough and (
        least == 0 or 5 * words * (least - 1 + words) ** 2 < products
    )  # fmt: skip


def two_matmuls_at_least(shape, words, value):
    """Whether the bound value <= the sum of 2 m n k / sqrt(M) - 2M, and within a word each of it.

    Compared without a square root: x <= 2 m n k / sqrt(M) where x^2 M <= (2 m n k)^2.
    """
    m, n = shape.group * shape.n_q, shape.n_k
    total = 0
    for k in (shape.head_dim, shape.value_dim):
        x = 0
        if (2 * m * n * k) ** 2 > (2 * words) ** 2 * words:
            x = isqrt((2 * m * n * k) ** 2 // words)
            while x * x * words > (2 * m * n * k) ** 2:
                x -= 1
            x -= 2 * words
        total += max(x, 0)
    return value == shape.batch * shape.kv_heads * total


def run_words(schedule):
    return sum(Run(schedule).tensors.values())


def rows_cut(family, shape):
    """The longest axis that each tile size cuts; unfused ones cut columns of V by B_c too."""
    unfused = family.name in ("standard_tiled", "square_tiling")
    columns = shape.value_dim if unfused else 1
    return {"br": shape.n_q, "bc": max(shape.n_k, columns)}


def best_words(family, shape, words):
    """The least words that any tile sizes move which fit M, by trying all; None if none fits."""
    limits = rows_cut(family, shape)
    best = None
    for sizes in product(*(range(1, limits[name] + 1) for name in family.tiles)):
        run = Run(family.build(shape, **dict(zip(family.tiles, sizes, strict=True))))
        if run.peak_words <= words:
            moved = sum(run.tensors.values())
            best = moved if best is None else min(best, moved)
    return best


def largest_square(family, shape, words):
    """The largest tile of equal sizes that fits M, by trying all; None if none fits."""
    fitting = [
        size
        for size in range(1, max(rows_cut(family, shape).values()) + 1)
        if Run(family.build(shape, **dict.fromkeys(family.tiles, size))).peak_words <= words
    ]
    return max(fitting, default=None)
