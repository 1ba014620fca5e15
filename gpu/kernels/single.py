"""Q K^T and P V of a warp in float32: three mma.sync m16n8k8 in TF32 for each product.

x = high + low with 11 bits each, and x y = high high + high low + low high: what is left out is
2^-22 of it (3xTF32, as CUTLASS calls it).
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from types import SimpleNamespace
from typing import Any

from iosim.gpu.kernels.half import EIGHT
from iosim.gpu.kernels.tile import ZERO
from iosim.gpu.variant import CHUNK, Variant

# Of a float32's 23 bits TF32 keeps the upper 10.
HALF_UNIT = 0x1000
KEPT = -0x2000


def products(lane: Any, v: Variant) -> SimpleNamespace:
    """Return the two matrix products on tiles in shared memory, for a warp (see `half`).

    The query tile lies in shared memory twice, its high parts before its low parts.
    """
    device, lane_number = lane.device, lane.lane_number
    ldmatrix, mma = lane.ldmatrix, lane.mma_tf32
    load, as_float, as_int = lane.load_shared_float, lane.as_float, lane.as_int
    store_shared_int = lane.store_shared_int
    thread, threads = lane.thread, v.threads
    cuda, int32 = lane.cuda, lane.int32
    m_tiles, s_tiles, o_tiles = v.m_tiles, v.step // 8, v.width // 8
    k_steps = v.width // 8
    pitch, shift, bits = v.layout
    width, rows = v.width, v.rows
    low_part = v.rows * v.layout.pitch
    a_size = 4 * m_tiles

    def upper(x):
        """Return x rounded to 11 bits, halves away from zero: cvt.rna.tf32 in two instructions."""
        return (as_int(x) + HALF_UNIT) & KEPT

    upper = device(upper)

    def rest(x, high):
        """Return what that has left: 12 bits, of which the tensor core cuts off the last.

        Rounding would leave out as much, one unit of x's last bit.
        """
        return as_int(x - as_float(high))

    rest = device(rest)

    def split_queries(q_at):
        """Split the query tile in place, by all threads of the block."""
        for at in range(thread(), rows * width, threads):
            row = at // width
            word = at - row * width
            chunk = (word >> 2) ^ ((row >> shift) & bits)
            place = q_at + row * pitch + chunk * CHUNK + (word & 3) * 4
            x = load(place)
            high = upper(x)
            store_shared_int(place, high)
            store_shared_int(place + low_part, rest(x, high))

    def take_queries(q_at, q):
        """Do nothing: the fragments stay in shared memory."""

    def add(s, x, a, i, b0, b1):
        """s[x:] += a b for matrix tile i."""
        d = mma(
            a[4 * i],
            a[4 * i + 1],
            a[4 * i + 2],
            a[4 * i + 3],
            b0,
            b1,
            s[x],
            s[x + 1],
            s[x + 2],
            s[x + 3],
        )
        s[x] = d[0]
        s[x + 1] = d[1]
        s[x + 2] = d[2]
        s[x + 3] = d[3]

    add = device(add)

    def eight_columns(s, high, low, q_rows, k_rows, q_side, k_side, turn, kk):
        """S += Q K^T over eight columns of Q and K, the kk-th of a line of 128 bytes."""
        q_column = ((2 * kk + q_side) ^ turn) * CHUNK
        k_column = ((2 * kk + k_side) ^ turn) * CHUNK
        for i in range(m_tiles):
            f = ldmatrix(q_rows + i * 16 * pitch + q_column)
            r = ldmatrix(q_rows + i * 16 * pitch + q_column + low_part)
            for x in range(4):
                high[4 * i + x] = f[x]
                low[4 * i + x] = r[x]
        for j in range(s_tiles // 2):
            b = ldmatrix(k_rows + j * 16 * pitch + k_column)
            for half in range(2):
                x0 = as_float(b[2 * half])
                x1 = as_float(b[2 * half + 1])
                h0 = upper(x0)
                h1 = upper(x1)
                l0 = rest(x0, h0)
                l1 = rest(x1, h1)
                for i in range(m_tiles):
                    x = (i * s_tiles + 2 * j + half) * 4
                    add(s, x, low, i, h0, h1)
                    add(s, x, high, i, l0, l1)
                    add(s, x, high, i, h0, h1)

    eight_columns = device(eight_columns)

    def scores(s, q, q_at, k_at):
        """S = Q K^T for the step's keys.

        The compiler does not unroll these loops; with one line of four steps written out, the
        places within a line are found once.
        """
        n = lane_number()
        q_rows = q_at + (n & 15) * pitch
        k_rows = k_at + ((n & 7) + ((n >> 4) << 3)) * pitch
        q_side = n >> 4
        k_side = (n >> 3) & 1
        turn = (n >> shift) & bits
        high = cuda.local.array(a_size, int32)
        low = cuda.local.array(a_size, int32)
        for x in range(m_tiles * s_tiles * 4):
            s[x] = ZERO
        for _ in range(k_steps // 4):
            eight_columns(s, high, low, q_rows, k_rows, q_side, k_side, turn, 0)
            eight_columns(s, high, low, q_rows, k_rows, q_side, k_side, turn, 1)
            eight_columns(s, high, low, q_rows, k_rows, q_side, k_side, turn, 2)
            eight_columns(s, high, low, q_rows, k_rows, q_side, k_side, turn, 3)
            q_rows += EIGHT
            k_rows += EIGHT
        for kk in range(k_steps % 4):
            eight_columns(s, high, low, q_rows, k_rows, q_side, k_side, turn, kk)

    def accumulate(o, s, v_at):
        """O = O + P V for the step's keys.

        The instruction sums over 8 keys in any order: its columns t and t + 4 of P are the lane's
        own 2t and 2t + 1, and the rows of V are taken in the same order.
        """
        n = lane_number()
        g = n // 4
        t = n % 4
        # Rows 2t and 2t + 1 of eight; column g of eight is word g % 4 of chunk g / 4.
        first = v_at + 2 * t * pitch + (g & 3) * 4
        even_turn = ((2 * t) >> shift) & bits
        odd_turn = ((2 * t + 1) >> shift) & bits
        high = cuda.local.array(a_size, int32)
        low = cuda.local.array(a_size, int32)
        for kk in range(s_tiles):
            for i in range(m_tiles):
                x = (i * s_tiles + kk) * 4
                for y in range(4):
                    p = s[x + (y & 1) * 2 + (y >> 1)]
                    high[4 * i + y] = upper(p)
                    low[4 * i + y] = rest(p, high[4 * i + y])
            for j in range(o_tiles):
                at = first + kk * 8 * pitch + (j >> 2) * EIGHT
                chunk = 2 * (j & 3) + (g >> 2)
                x0 = load(at + (chunk ^ even_turn) * CHUNK)
                x1 = load(at + pitch + (chunk ^ odd_turn) * CHUNK)
                h0 = upper(x0)
                h1 = upper(x1)
                l0 = rest(x0, h0)
                l1 = rest(x1, h1)
                for i in range(m_tiles):
                    x = (i * o_tiles + j) * 4
                    add(o, x, low, i, h0, h1)
                    add(o, x, high, i, l0, l1)
                    add(o, x, high, i, h0, h1)

    return SimpleNamespace(
        split_queries=device(split_queries),
        take_queries=device(take_queries),
        scores=device(scores),
        accumulate=device(accumulate),
    )
