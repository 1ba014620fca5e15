"""FlashAttention-1 in the paper's order: keys outside, queries inside, O and statistics in HBM.

One block walks a whole head, since every step reads what the step before has written.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from collections.abc import Callable
from typing import Any

from iosim.gpu.kernels import half, single
from iosim.gpu.kernels.flash2 import NO_LIMIT
from iosim.gpu.kernels.tile import NEGATIVE_INFINITY, ZERO, copier, padder, rows_of_output, softmax
from iosim.gpu.variant import Variant
from iosim.schedule.relation import causal_query_start


def flash1(lane: Any, v: Variant) -> Callable[..., None]:
    """Return the kernel; its grid is one block per (batch, head).

    Arguments as for `flash2`, with M and L, the statistics in slow memory by (batch, head, row), in
    place of LSE. m counts in bits there.
    """
    block, lane_number, thread = lane.block, lane.lane_number, lane.thread
    barrier, warp_barrier = lane.barrier, lane.warp_barrier
    commit_copies, wait_for_copies = lane.commit_copies, lane.wait_for_copies
    shared_base, load_float, store_float = lane.shared_base, lane.load_float, lane.store_float
    store_16, maximum, from_lane_xor = lane.store_16, lane.maximum, lane.from_lane_xor
    cuda, float32, int32 = lane.cuda, lane.float32, lane.int32
    small = lane.int32
    row_bytes = v.head_dim * v.item
    copy_queries = copier(lane, v, v.rows, row_bytes, v.layout)
    copy_keys = copier(lane, v, v.keys, row_bytes, v.layout)
    clear = padder(lane, v)
    steps = softmax(lane, v)
    mask, absorb, row_sums, normalise = steps.mask, steps.absorb, steps.row_sums, steps.normalise
    unnormalise = steps.unnormalise
    matrix = (half if v.half else single).products(lane, v)
    scores, accumulate, take_queries = matrix.scores, matrix.accumulate, matrix.take_queries
    split = not v.half
    split_queries = take_queries if v.half else matrix.split_queries
    output = rows_of_output(lane, v, v.width // 8, v.layout)
    put, take, write = output.put, output.take, output.write
    query_start = lane.device(causal_query_start)

    br, bc, step, words, item = v.br, v.bc, v.step, v.head_dim, v.item
    steps_per_tile, threads = v.keys // v.step, v.threads
    m_tiles, warp_rows = v.m_tiles, 16 * v.m_tiles
    causal, padded = v.causal, v.width != v.head_dim
    pitch, q_bytes, kv_bytes = v.layout.pitch, v.q_bytes, v.kv_bytes
    o_bytes, tile_rows, key_rows = v.rows * v.layout.pitch, v.rows, v.keys
    q_rows = tile_rows if v.half else 2 * tile_rows
    statistics = 2 * v.m_tiles
    s_size, o_size = m_tiles * v.step // 2, m_tiles * v.width // 2
    q_size = m_tiles * v.width // 4 if v.half and v.q_in_registers else 1

    def kernel(
        Q, K, V, O, M, L, q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
        n_q, n_k, heads, group, offset, scale,
    ):  # fmt: skip
        number = block()
        batch = number // heads
        head = number - batch * heads
        q_from = Q + batch * q_batch + head * q_head
        k_from = K + batch * k_batch + head // group * k_head
        v_from = V + batch * v_batch + head // group * v_head
        o_row = words * item
        o_from = O + number * n_q * o_row
        m_from = M + number * n_q * 4
        l_from = L + number * n_q * 4

        for x in range(thread(), n_q * o_row // 16, threads):
            store_16(o_from + x * 16, 0, 0, 0, 0)
        for x in range(thread(), n_q, threads):
            store_float(m_from + x * 4, NEGATIVE_INFINITY)
            store_float(l_from + x * 4, ZERO)

        q_at = shared_base()
        o_at = q_at + q_bytes
        kv_at = o_at + o_bytes
        if padded:
            clear(q_at, q_rows)
            clear(o_at, tile_rows + 2 * key_rows)
        s = cuda.local.array(s_size, float32)
        o = cuda.local.array(o_size, float32)
        q = cuda.local.array(q_size, int32)
        m = cuda.local.array(statistics, float32)
        l = cuda.local.array(statistics, float32)
        warp_row = thread() // 32 * warp_rows
        g = lane_number() // 4
        column = lane_number() % 4 * 2

        query_tiles = (n_q + br - 1) // br
        for j in range((n_k + bc - 1) // bc):
            k0 = j * bc
            end = min(k0 + bc, n_k)
            barrier()  # all are done with the tile of keys before
            copy_keys(kv_at, k_from + k0 * k_row, k_row, end - k0)
            copy_keys(kv_at + kv_bytes, v_from + k0 * v_row, v_row, end - k0)
            commit_copies()
            start = 0
            if causal:
                start = query_start(j, br, bc, n_q, n_k, offset)
            for i in range(start, query_tiles):
                first = i * br
                rows = min(br, n_q - first)
                copy_queries(q_at, q_from + first * q_row, q_row, rows)
                copy_queries(o_at, o_from + first * o_row, o_row, rows)
                commit_copies()
                for x in range(statistics):
                    row = warp_row + x // 2 * 16 + x % 2 * 8 + g
                    m[x] = NEGATIVE_INFINITY
                    l[x] = ZERO
                    if row < rows and column == 0:
                        m[x] = load_float(m_from + (first + row) * 4)
                        l[x] = load_float(l_from + (first + row) * 4)
                for x in range(statistics):
                    m[x] = maximum(m[x], from_lane_xor(m[x], 1))
                    m[x] = maximum(m[x], from_lane_xor(m[x], 2))
                row_sums(l)
                wait_for_copies()
                barrier()
                if split:
                    split_queries(q_at)
                    barrier()
                take_queries(q_at + warp_row * pitch, q)
                take(o_at + warp_row * pitch, 0, o)
                unnormalise(o, l)
                if column != 0:  # from here on l is this lane's share of the sum
                    for x in range(statistics):
                        l[x] = ZERO
                for part in range(steps_per_tile):
                    key = k0 + part * step
                    if key < end:
                        scores(s, q, q_at + warp_row * pitch, kv_at + part * step * pitch)
                        diagonal = first + warp_row + offset - key
                        partial = key + step > end
                        reach = NO_LIMIT
                        if causal:
                            partial = partial or diagonal + 1 < step
                            reach = diagonal - column
                        if partial:
                            mask(s, small(end - key - column), small(reach), small(g))
                        absorb(s, o, m, l, scale)
                        accumulate(o, s, kv_at + kv_bytes + part * step * pitch)
                row_sums(l)
                normalise(o, l)
                put(o_at + warp_row * pitch, 0, o)
                warp_barrier()
                valid = rows - warp_row
                write(o_at + warp_row * pitch, o_from + (first + warp_row) * o_row, o_row,
                      valid, words)  # fmt: skip
                if column == 0:
                    for x in range(statistics):
                        row = x // 2 * 16 + x % 2 * 8 + g
                        if row < valid:
                            store_float(m_from + (first + warp_row + row) * 4, m[x])
                            store_float(l_from + (first + warp_row + row) * 4, l[x])
                barrier()
            wait_for_copies()  # of keys that no query has met

    return kernel
