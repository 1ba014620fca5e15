"""Q K^T and P V of a warp in float16 or bfloat16: mma.sync m16n8k16, operands by ldmatrix."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from types import SimpleNamespace
from typing import Any

from iosim.gpu.kernels.tile import ZERO
from iosim.gpu.variant import CHUNK, Variant

# Chunk c of a row lies at c ^ turn with turn < 8. Written as its eight and the place within it, the
# addresses of all columns share a few registers.
EIGHT = 8 * CHUNK


def products(lane: Any, v: Variant) -> SimpleNamespace:
    """Return the two matrix products on tiles in shared memory, for a warp.

    Addresses are those of a tile's first row; `q` holds the fragments of Q where registers do.
    """
    device, lane_number = lane.device, lane.lane_number
    ldmatrix, transposed = lane.ldmatrix, lane.ldmatrix_transposed
    bfloat16 = v.dtype == "bfloat16"
    mma = lane.mma_bfloat16 if bfloat16 else lane.mma_float16
    pack = lane.pack_bfloat16 if bfloat16 else lane.pack_float16
    cuda, int32 = lane.cuda, lane.int32
    m_tiles, s_tiles, o_tiles = v.m_tiles, v.step // 8, v.width // 8
    k_steps = v.width // 16
    pitch, shift, bits = v.layout
    in_registers = v.q_in_registers
    a_size = 4 * m_tiles

    def query_place(kk):
        """Lane's row of the 16 x 16 tile kk: rows 0-7 and 8-15, then the same of columns 8-15."""
        n = lane_number()
        return (n & 15) * pitch + (
            ((2 * (kk & 3) + (n >> 4)) ^ ((n >> shift) & bits)) * CHUNK + (kk >> 2) * EIGHT
        )

    query_place = device(query_place)

    def take_queries(q_at, q):
        """Read the warp's rows of Q into fragments."""
        if in_registers:
            for i in range(m_tiles):
                for kk in range(k_steps):
                    a = ldmatrix(q_at + i * 16 * pitch + query_place(kk))
                    for x in range(4):
                        q[(i * k_steps + kk) * 4 + x] = a[x]

    def scores(s, q, q_at, k_at):
        """S = Q K^T for the step's keys."""
        n = lane_number()
        # Keys 0-7 of columns 0-7 and of columns 8-15, then keys 8-15 of both.
        key = (n & 7) + ((n >> 4) << 3)
        rows = k_at + key * pitch
        part = (n >> 3) & 1
        turn = (n >> shift) & bits
        a = cuda.local.array(a_size, int32)
        for x in range(m_tiles * s_tiles * 4):
            s[x] = ZERO
        for kk in range(k_steps):
            for i in range(m_tiles):
                if in_registers:
                    for x in range(4):
                        a[4 * i + x] = q[(i * k_steps + kk) * 4 + x]
                else:
                    f = ldmatrix(q_at + i * 16 * pitch + query_place(kk))
                    for x in range(4):
                        a[4 * i + x] = f[x]
            column = ((2 * (kk & 3) + part) ^ turn) * CHUNK + (kk >> 2) * EIGHT
            for j in range(s_tiles // 2):
                b = ldmatrix(rows + j * 16 * pitch + column)
                for i in range(m_tiles):
                    for half in range(2):
                        x = (i * s_tiles + 2 * j + half) * 4
                        d = mma(
                            a[4 * i],
                            a[4 * i + 1],
                            a[4 * i + 2],
                            a[4 * i + 3],
                            b[2 * half],
                            b[2 * half + 1],
                            s[x],
                            s[x + 1],
                            s[x + 2],
                            s[x + 3],
                        )
                        s[x] = d[0]
                        s[x + 1] = d[1]
                        s[x + 2] = d[2]
                        s[x + 3] = d[3]

    def accumulate(o, s, v_at):
        """O = O + P V for the step's keys; P is rounded to 16 bits here."""
        n = lane_number()
        rows = v_at + (n & 15) * pitch
        part = n >> 4
        turn = (n >> shift) & bits
        a = cuda.local.array(a_size, int32)
        for kk in range(s_tiles // 2):
            for i in range(m_tiles):
                x = (i * s_tiles + 2 * kk) * 4
                for y in range(4):
                    a[4 * i + y] = pack(s[x + 2 * y], s[x + 2 * y + 1])
            for j in range(o_tiles // 2):
                column = ((2 * (j & 3) + part) ^ turn) * CHUNK + (j >> 2) * EIGHT
                b = transposed(rows + kk * 16 * pitch + column)
                for i in range(m_tiles):
                    for half in range(2):
                        x = (i * o_tiles + 2 * j + half) * 4
                        d = mma(
                            a[4 * i],
                            a[4 * i + 1],
                            a[4 * i + 2],
                            a[4 * i + 3],
                            b[2 * half],
                            b[2 * half + 1],
                            o[x],
                            o[x + 1],
                            o[x + 2],
                            o[x + 3],
                        )
                        o[x] = d[0]
                        o[x + 1] = d[1]
                        o[x + 2] = d[2]
                        o[x + 3] = d[3]

    return SimpleNamespace(
        take_queries=device(take_queries), scores=device(scores), accumulate=device(accumulate)
    )
