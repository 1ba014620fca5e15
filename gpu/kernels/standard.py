"""Standard attention as three kernels that write S and P to slow memory (`standard_tiled`)."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from collections.abc import Callable
from typing import Any

from iosim.gpu.kernels import half, single
from iosim.gpu.kernels.flash2 import NO_LIMIT
from iosim.gpu.kernels.tile import NEGATIVE_INFINITY, ONE, ZERO, copier, padder, rows_of_output
from iosim.gpu.kernels.tile import softmax as online_softmax
from iosim.gpu.variant import CHUNK, WARP, Variant


def scores(lane: Any, v: Variant) -> Callable[..., None]:
    """Return pass 1, S = scale Q K^T with -inf where a query may not see a key.

    Its grid is one block per (batch, head, query tile, key tile); `S` is contiguous by (batch,
    head, row) and `scale` is plain.
    """
    block, lane_number, thread = lane.block, lane.lane_number, lane.thread
    barrier, warp_barrier = lane.barrier, lane.warp_barrier
    commit_copies, wait_for_copies = lane.commit_copies, lane.wait_for_copies
    shared_base, product = lane.shared_base, lane.product
    cuda, float32, int32, small = lane.cuda, lane.float32, lane.int32, lane.int32
    row_bytes = v.head_dim * v.item
    copy_queries = copier(lane, v, v.rows, row_bytes, v.layout)
    copy_keys = copier(lane, v, v.keys, row_bytes, v.layout)
    clear, mask = padder(lane, v), online_softmax(lane, v).mask
    matrix = (half if v.half else single).products(lane, v)
    multiply, take_queries = matrix.scores, matrix.take_queries
    split = not v.half
    split_queries = take_queries if v.half else matrix.split_queries
    output = rows_of_output(lane, v, v.step // 8, v.score_layout)
    put, write, write_words = output.put, output.write, output.write_words
    br, bc, step, item = v.br, v.bc, v.step, v.item
    steps_per_tile, warp_rows = v.keys // v.step, 16 * v.m_tiles
    causal, padded = v.causal, v.width != v.head_dim
    pitch, q_bytes, kv_bytes, score_pitch = (
        v.layout.pitch,
        v.q_bytes,
        v.kv_bytes,
        v.score_layout.pitch,
    )
    q_rows, key_rows = v.rows * (1 if v.half else 2), v.keys
    s_size = v.m_tiles * v.step // 2
    q_size = v.m_tiles * v.width // 4 if v.half and v.q_in_registers else 1

    def kernel(
        Q, K, S, q_batch, q_head, q_row, k_batch, k_head, k_row,
        n_q, n_k, heads, group, offset, scale,
    ):  # fmt: skip
        query_tiles = (n_q + br - 1) // br
        key_tiles = (n_k + bc - 1) // bc
        tile = block() // key_tiles
        j = block() - tile * key_tiles
        number = tile // query_tiles
        i = tile - number * query_tiles
        batch = number // heads
        head = number - batch * heads
        first = i * br
        k0 = j * bc
        rows = min(br, n_q - first)
        columns = min(bc, n_k - k0)
        q_at = shared_base()
        k_at = q_at + q_bytes
        if padded:
            clear(q_at, q_rows)
            clear(k_at, key_rows)
        copy_queries(q_at, Q + batch * q_batch + head * q_head + first * q_row, q_row, rows)
        copy_keys(k_at, K + batch * k_batch + head // group * k_head + k0 * k_row, k_row, columns)
        commit_copies()
        wait_for_copies()
        barrier()
        if split:
            split_queries(q_at)
            barrier()
        s = cuda.local.array(s_size, float32)
        q = cuda.local.array(q_size, int32)
        warp_row = thread() // 32 * warp_rows
        g = lane_number() // 4
        column = lane_number() % 4 * 2
        take_queries(q_at + warp_row * pitch, q)
        s_at = k_at + kv_bytes + warp_row * score_pitch
        for part in range(steps_per_tile):
            key = k0 + part * step
            multiply(s, q, q_at + warp_row * pitch, k_at + part * step * pitch)
            for x in range(s_size):
                s[x] = product(s[x], scale)
            diagonal = first + warp_row + offset - key
            if causal and diagonal + 1 < step:
                mask(s, NO_LIMIT, small(diagonal - column), small(g))
            put(s_at, part * step, s)
        warp_barrier()
        to = S + ((number * n_q + first + warp_row) * n_k + k0) * item
        if n_k * item % 16 == 0 and bc * item % 16 == 0:
            write(s_at, to, n_k * item, rows - warp_row, columns)
        else:
            write_words(s_at, to, n_k * item, rows - warp_row, columns)

    return kernel


def softmax(lane: Any, v: Variant) -> Callable[..., None]:
    """Return pass 2, P = softmax(S): a warp for each row, which reads it twice.

    Its grid is one block for each `threads` / 32 rows of all `rows` (batch x heads x n_q).
    """
    block, lane_number, thread = lane.block, lane.lane_number, lane.thread
    exp2, maximum, product = lane.exp2, lane.maximum, lane.product
    from_lane_xor = lane.from_lane_xor
    half_words, item, warps = v.half, v.item, v.warps
    pack = lane.pack_bfloat16 if v.dtype == "bfloat16" else lane.pack_float16
    unpack = lane.unpack_bfloat16 if v.dtype == "bfloat16" else lane.unpack_float16
    as_float, as_int = lane.as_float, lane.as_int
    load_16, store_16, load_2, store_2 = lane.load_16, lane.store_16, lane.load_2, lane.store_2
    load_float, store_float = lane.load_float, lane.store_float
    cuda, float32, int32 = lane.cuda, lane.float32, lane.int32
    per_chunk = CHUNK // v.item

    def read(address, x):
        """Read 16 bytes as floats."""
        four = load_16(address)
        for y in range(4):
            if half_words:
                pair = unpack(four[y])
                x[2 * y] = pair[0]
                x[2 * y + 1] = pair[1]
            else:
                x[y] = as_float(four[y])

    read = lane.device(read)

    def read_word(address):
        if half_words:
            return unpack(load_2(address))[0]
        return load_float(address)

    read_word = lane.device(read_word)

    def kernel(S, P, rows, n_k, log2_e):
        row = block() * warps + thread() // WARP
        if row >= rows:
            return
        lane_id = lane_number()
        source = S + row * n_k * item
        to = P + row * n_k * item
        wide = 0
        if n_k * item % 16 == 0:
            wide = n_k // per_chunk
        x = cuda.local.array(per_chunk, float32)
        y = cuda.local.array(4, int32)
        m = NEGATIVE_INFINITY
        l = ZERO
        for c in range(lane_id, wide, WARP):
            read(source + c * 16, x)
            grown = m
            for z in range(per_chunk):
                grown = maximum(grown, product(x[z], log2_e))
            safe = grown
            if grown == NEGATIVE_INFINITY:
                safe = ZERO
            l *= exp2(m - safe)
            for z in range(per_chunk):
                l += exp2(product(x[z], log2_e) - safe)
            m = grown
        for c in range(wide * per_chunk + lane_id, n_k, WARP):
            word = product(read_word(source + c * item), log2_e)
            grown = maximum(m, word)
            safe = grown
            if grown == NEGATIVE_INFINITY:
                safe = ZERO
            l = l * exp2(m - safe) + exp2(word - safe)
            m = grown
        for b in range(5):
            other = from_lane_xor(m, 1 << b)
            other_l = from_lane_xor(l, 1 << b)
            grown = maximum(m, other)
            safe = grown
            if grown == NEGATIVE_INFINITY:
                safe = ZERO
            l = l * exp2(m - safe) + other_l * exp2(other - safe)
            m = grown
        safe = m
        if m == NEGATIVE_INFINITY:
            safe = ZERO
        inverse = ZERO
        if l != ZERO:
            inverse = ONE / l
        for c in range(lane_id, wide, WARP):
            read(source + c * 16, x)
            for z in range(per_chunk):
                x[z] = exp2(product(x[z], log2_e) - safe) * inverse
            for z in range(4):
                if half_words:
                    y[z] = pack(x[2 * z], x[2 * z + 1])
                else:
                    y[z] = as_int(x[z])
            store_16(to + c * 16, y[0], y[1], y[2], y[3])
        for c in range(wide * per_chunk + lane_id, n_k, WARP):
            p = exp2(product(read_word(source + c * item), log2_e) - safe) * inverse
            if half_words:
                store_2(to + c * item, pack(p, ZERO) & 0xFFFF)
            else:
                store_float(to + c * item, p)

    return kernel


def output(lane: Any, v: Variant) -> Callable[..., None]:
    """Return pass 3, O = P V; its grid is one block per (batch, head, query tile)."""
    block, thread = lane.block, lane.thread
    barrier, warp_barrier = lane.barrier, lane.warp_barrier
    commit_copies, wait_for_copies = lane.commit_copies, lane.wait_for_copies
    shared_base, cuda, float32 = lane.shared_base, lane.cuda, lane.float32
    row_bytes = v.head_dim * v.item
    copy_values = copier(lane, v, v.keys, row_bytes, v.layout)
    copy_scores = copier(lane, v, v.rows, v.bc * v.item, v.score_layout)
    copy_ragged = lane_words(lane, v)
    matrix = (half if v.half else single).products(lane, v)
    accumulate = matrix.accumulate
    take = rows_of_output(lane, v, v.step // 8, v.score_layout).take
    rows_out = rows_of_output(lane, v, v.width // 8, v.layout)
    put, write = rows_out.put, rows_out.write
    clear = padder(lane, v)
    br, bc, step, words, item = v.br, v.bc, v.step, v.head_dim, v.item
    steps_per_tile, warp_rows = v.keys // v.step, 16 * v.m_tiles
    padded, key_rows, whole = v.width != v.head_dim, v.keys, v.bc == v.keys
    pitch, kv_bytes, score_pitch = v.layout.pitch, v.kv_bytes, v.score_layout.pitch
    score_bytes = v.rows * v.score_layout.pitch
    s_size, o_size = v.m_tiles * v.step // 2, v.m_tiles * v.width // 2

    def kernel(
        P, V, O, v_batch, v_head, v_row, n_q, n_k, heads, group,
    ):  # fmt: skip
        query_tiles = (n_q + br - 1) // br
        number = block() // query_tiles
        i = block() - number * query_tiles
        batch = number // heads
        head = number - batch * heads
        first = i * br
        rows = min(br, n_q - first)
        v_from = V + batch * v_batch + head // group * v_head
        p_from = P + (number * n_q + first) * n_k * item
        p_at = shared_base()
        v_at = p_at + score_bytes
        if padded:
            clear(v_at, key_rows)
        s = cuda.local.array(s_size, float32)
        o = cuda.local.array(o_size, float32)
        for x in range(o_size):
            o[x] = ZERO
        warp_row = thread() // 32 * warp_rows
        for j in range((n_k + bc - 1) // bc):
            k0 = j * bc
            columns = min(bc, n_k - k0)
            barrier()
            if columns == bc and whole and n_k * item % 16 == 0:
                copy_scores(p_at, p_from + k0 * item, n_k * item, rows)
            else:
                copy_ragged(p_at, p_from + k0 * item, n_k * item, rows, columns)
            copy_values(v_at, v_from + k0 * v_row, v_row, columns)
            commit_copies()
            wait_for_copies()
            barrier()
            for part in range(steps_per_tile):
                take(p_at + warp_row * score_pitch, part * step, s)
                accumulate(o, s, v_at + part * step * pitch)
        barrier()
        put(v_at + kv_bytes + warp_row * pitch, 0, o)
        warp_barrier()
        row = number * n_q + first + warp_row
        write(v_at + kv_bytes + warp_row * pitch, O + row * words * item, words * item,
              rows - warp_row, words)  # fmt: skip

    return kernel


def lane_words(lane: Any, v: Variant) -> Any:
    """Return copy(destination, address, stride, rows, columns): a tile of P, word by word."""
    thread, load_2, load_4 = lane.thread, lane.load_2, lane.load_4
    store_shared_2, store_shared_int = lane.store_shared_2, lane.store_shared_int
    threads, item, keys = v.threads, v.item, v.keys
    pitch, shift, bits = v.score_layout
    per_chunk = CHUNK // v.item
    total = v.rows * v.keys

    def copy(destination, address, stride, rows, columns):
        for at in range(thread(), total, threads):
            row = at // keys
            word = at - row * keys
            chunk = (word // per_chunk) ^ ((row >> shift) & bits)
            to = destination + row * pitch + chunk * CHUNK + word % per_chunk * item
            value = 0
            if row < rows and word < columns:
                if item == 2:
                    value = load_2(address + row * stride + word * item)
                else:
                    value = load_4(address + row * stride + word * item)
            if item == 2:
                store_shared_2(to, value)
            else:
                store_shared_int(to, value)

    return lane.device(copy)
