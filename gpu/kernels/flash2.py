"""FlashAttention-2: a block per tile of queries; O, l, m stay in registers, K and V stream by."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from iosim.gpu.kernels import half, single, warpgroup
from iosim.gpu.kernels.tile import NEGATIVE_INFINITY, ZERO, copier, padder, rows_of_output, softmax
from iosim.gpu.variant import Variant, layout
from iosim.schedule.relation import causal_key_stop

LN2 = np.float32(math.log(2))
NO_LIMIT = 1 << 30


def flash2(lane: Any, v: Variant) -> Callable[..., None]:
    """Return the kernel; its grid is one block per (batch, head, query tile).

    Addresses in bytes, strides in bytes by (batch, head, row); O and LSE are contiguous over
    (batch, head, row). `offset`: query r sees the keys up to r + offset. `scale` counts in bits.
    """
    block, blocks, lane_number, thread = lane.block, lane.blocks, lane.lane_number, lane.thread
    barrier, warp_barrier = lane.barrier, lane.warp_barrier
    commit_copies, wait_for_copies = lane.commit_copies, lane.wait_for_copies
    shared_base, store_float, logarithm = lane.shared_base, lane.store_float, lane.logarithm
    cuda, float32, int32 = lane.cuda, lane.float32, lane.int32
    small = lane.int32
    row_bytes = v.head_dim * v.item
    copy_queries = copier(lane, v, v.rows, row_bytes, v.layout)
    copy_keys = copier(lane, v, v.keys, row_bytes, v.layout)
    clear = padder(lane, v)
    steps = softmax(lane, v)
    mask, absorb, row_sums, normalise = steps.mask, steps.absorb, steps.row_sums, steps.normalise
    matrix = (warpgroup if v.warpgroup else half if v.half else single).products(lane, v)
    scores, accumulate, take_queries = matrix.scores, matrix.accumulate, matrix.take_queries
    split = not v.half
    split_queries = take_queries if v.half else matrix.split_queries
    plain = layout(v.width * v.item)
    output = rows_of_output(lane, v, v.width // 8, plain)
    grouped, fence_products = v.warpgroup, lane.fence_products
    # The rows that skip a masked step together: a warp's, or a warpgroup's.
    unit_rows = 64 if v.warpgroup else 16 * v.m_tiles
    o_pitch = plain.pitch
    put, write = output.put, output.write
    key_stop = lane.device(causal_key_stop)

    br, bc, step, words, item = v.br, v.bc, v.step, v.head_dim, v.item
    steps_per_tile = v.keys // v.step
    m_tiles, warp_rows = v.m_tiles, 16 * v.m_tiles
    causal, padded = v.causal, v.width != v.head_dim
    heads_first, longest_first = v.heads_first, v.causal and not v.ascending
    alternate, backwards = v.order == "snake", v.order == "reverse"
    double = v.stages == 2
    pitch, q_bytes, kv_bytes = v.layout.pitch, v.q_bytes, v.kv_bytes
    tile_rows, all_kv_rows = v.rows, 2 * v.stages * v.keys
    q_rows = tile_rows if v.half else 2 * tile_rows
    statistics = 2 * v.m_tiles
    s_size, o_size = m_tiles * v.step // 2, m_tiles * v.width // 2
    q_size = m_tiles * v.width // 4 if v.half and v.q_in_registers else 1

    def kernel(
        Q, K, V, O, LSE, q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
        n_q, n_k, heads, group, offset, tiles, scale,
    ):  # fmt: skip
        if heads_first:
            all_heads = blocks() // tiles
            i = block() // all_heads
            number = block() - i * all_heads
        else:
            number = block() // tiles
            i = block() - number * tiles
        if longest_first:
            i = tiles - 1 - i
        batch = number // heads
        head = number - batch * heads
        first = i * br
        rows = min(br, n_q - first)
        q_from = Q + batch * q_batch + head * q_head + first * q_row
        k_from = K + batch * k_batch + head // group * k_head
        v_from = V + batch * v_batch + head // group * v_head
        count = (n_k + bc - 1) // bc
        if causal:
            count = key_stop(i, br, bc, n_q, n_k, offset)
        reverse = backwards or (alternate and i % 2 == 1)

        q_at = shared_base()
        kv_at = q_at + q_bytes
        if padded:
            clear(q_at, q_rows)
            clear(kv_at, all_kv_rows)
        copy_queries(q_at, q_from, q_row, rows)
        if double and count > 0:
            j = count - 1 if reverse else 0
            copy_keys(kv_at, k_from + j * bc * k_row, k_row, min(bc, n_k - j * bc))
            copy_keys(kv_at + kv_bytes, v_from + j * bc * v_row, v_row, min(bc, n_k - j * bc))
        commit_copies()

        s = cuda.local.array(s_size, float32)
        o = cuda.local.array(o_size, float32)
        q = cuda.local.array(q_size, int32)
        m = cuda.local.array(statistics, float32)
        l = cuda.local.array(statistics, float32)
        for x in range(o_size):
            o[x] = ZERO
        for x in range(2 * m_tiles):
            m[x] = NEGATIVE_INFINITY
            l[x] = ZERO
        warp_row = thread() // 32 * warp_rows
        g = lane_number() // 4
        column = lane_number() % 4 * 2
        q_warp = q_at + warp_row * pitch

        wait_for_copies()
        if grouped:
            fence_products()
        barrier()
        if split:
            split_queries(q_at)
            barrier()
        take_queries(q_warp, q)

        for turn in range(count):
            j = count - 1 - turn if reverse else turn
            at = kv_at
            if double:
                at = kv_at + (turn & 1) * 2 * kv_bytes
                wait_for_copies()
                if grouped:
                    fence_products()
                barrier()
                if turn + 1 < count:
                    following = j - 1 if reverse else j + 1
                    to = kv_at + (1 - (turn & 1)) * 2 * kv_bytes
                    k0 = following * bc
                    copy_keys(to, k_from + k0 * k_row, k_row, min(bc, n_k - k0))
                    copy_keys(to + kv_bytes, v_from + k0 * v_row, v_row, min(bc, n_k - k0))
                    commit_copies()
            else:
                barrier()
                k0 = j * bc
                copy_keys(at, k_from + k0 * k_row, k_row, min(bc, n_k - k0))
                copy_keys(at + kv_bytes, v_from + k0 * v_row, v_row, min(bc, n_k - k0))
                commit_copies()
                wait_for_copies()
                if grouped:
                    fence_products()
                barrier()
            end = min((j + 1) * bc, n_k)
            for part in range(steps_per_tile):
                key = j * bc + part * step
                # What the warp's first row still sees, counted from this step's first key.
                diagonal = first + warp_row + offset - key
                needed = key < end
                if causal:
                    last = first + warp_row // unit_rows * unit_rows + unit_rows - 1
                    needed = needed and last + offset >= key
                if needed:
                    scores(s, q, q_warp, at + part * step * pitch)
                    partial = key + step > end
                    if causal:
                        partial = partial or diagonal + 1 < step
                    if partial:
                        reach = NO_LIMIT
                        if causal:
                            reach = diagonal - column
                        mask(s, small(end - key - column), small(reach), small(g))
                    absorb(s, o, m, l, scale)
                    accumulate(o, s, at + kv_bytes + part * step * pitch)

        row_sums(l)
        normalise(o, l)
        if grouped:
            barrier()  # O takes the place of other warps' Q
        o_warp = q_at + warp_row * o_pitch
        put(o_warp, 0, o)
        warp_barrier()
        valid = rows - warp_row
        row = number * n_q + first + warp_row
        write(o_warp, O + row * words * item, words * item, valid, words)
        if column == 0:
            for x in range(2 * m_tiles):
                local_row = x // 2 * 16 + x % 2 * 8 + g
                if local_row < valid:
                    lse = NEGATIVE_INFINITY
                    if l[x] != ZERO:
                        lse = m[x] * LN2 + logarithm(l[x])
                    store_float(LSE + (row + local_row) * 4, lse)

    return kernel
