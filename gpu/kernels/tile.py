"""What the kernels share: copies of tiles, the online softmax of a warp's rows, rows of output.

A warp owns 16 rows of queries for each of its `m_tiles`. In a 16 x 8 accumulator lane l holds rows
g = l / 4 and g + 8, columns 2t and 2t + 1 with t = l % 4, so that
`s[(i * n_tiles + n) * 4 + 2 h + e]` is row 16 i + 8 h + g and column 8 n + 2 t + e.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from types import SimpleNamespace
from typing import Any

import numpy as np

from iosim.gpu.variant import CHUNK, PANEL, WARP, Layout, Variant

ZERO = np.float32(0)
ONE = np.float32(1)
UNROLLED_COPIES = 8
NEGATIVE_INFINITY = np.float32(-np.inf)


def copying_threads(threads: int, total: int) -> int:
    """Return how many of a block's threads copy `total` chunks: all, or so many that none idles.

    The counter of bytes copied is exact only where every thread that copies does in every round
    (measured).

    >>> copying_threads(384, 1536), copying_threads(384, 512), copying_threads(96, 100)
    (384, 256, 96)
    """
    powers = [1 << i for i in range(5, 11) if 1 << i <= threads]
    return next((n for n in (threads, *reversed(powers)) if total and total % n == 0), threads)


def copier(lane: Any, v: Variant, tile_rows: int, row_bytes: int, form: Layout) -> Any:
    """Return copy(destination, address, stride, rows): a tile from global to shared memory.

    `rows` rows of `row_bytes` bytes, `stride` bytes apart, by all threads of the block; the rest of
    the `tile_rows` rows becomes zero. The last bytes of a row need not fill a chunk.
    """
    thread, copy_async = lane.thread, lane.copy_async
    load_2, store_shared_2 = lane.load_2, lane.store_shared_2
    load_4, store_shared_int = lane.load_4, lane.store_shared_int
    item = v.item
    pitch, shift, bits = form
    panel = tile_rows * PANEL if v.warpgroup else 0
    chunks = row_bytes // CHUNK
    total = tile_rows * chunks
    block_threads = v.threads
    threads = copying_threads(block_threads, total)
    rounds = -(-total // threads)
    even = total % threads == 0
    regular = chunks and threads % chunks == 0
    jump = threads // chunks if regular else 0

    def place(row, chunk):
        if panel:
            return (chunk >> 3) * panel + row * PANEL + ((chunk & 7) ^ (row & 7)) * CHUNK
        return row * pitch + (chunk ^ ((row >> shift) & bits)) * CHUNK

    place = lane.device(place)

    def copy_regular(destination, address, stride, rows):
        first = thread() // chunks
        chunk = thread() % chunks
        source = address + first * stride + chunk * CHUNK
        for i in range(rounds):
            row = first + i * jump
            size = CHUNK if row < rows else 0
            if even or row < tile_rows:
                to = destination + place(row, chunk)
                copy_async(to, source, size)
            source += jump * stride

    def copy_rolled(destination, address, stride, rows):
        """Do as copy_regular in a loop that is not unrolled, whose addresses take no registers."""
        first = thread() // chunks
        chunk = thread() % chunks
        source = address + first * stride + chunk * CHUNK
        for row in range(first, tile_rows, jump):
            copy_async(destination + place(row, chunk), source, CHUNK if row < rows else 0)
            source += jump * stride

    def copy_any(destination, address, stride, rows):
        for i in range(rounds):
            at = thread() + i * threads
            row = at // chunks
            chunk = at - row * chunks
            size = CHUNK if row < rows else 0
            if even or at < total:
                to = destination + place(row, chunk)
                copy_async(to, address + row * stride + chunk * CHUNK, size)

    words = row_bytes // item
    per_chunk = CHUNK // item

    def copy_words(destination, address, stride, rows):
        for i in range((tile_rows * words + block_threads - 1) // block_threads):
            at = thread() + i * block_threads
            row = at // words
            word = at - row * words
            if row < tile_rows:
                to = destination + place(row, word // per_chunk) + word % per_chunk * item
                value = 0
                if row < rows:
                    if item == 2:
                        value = load_2(address + row * stride + word * item)
                    else:
                        value = load_4(address + row * stride + word * item)
                if item == 2:
                    store_shared_2(to, value)
                else:
                    store_shared_int(to, value)

    if not v.aligned or row_bytes % CHUNK:
        return lane.device(copy_words)
    copy_all = copy_any
    if regular:
        copy_all = copy_regular if rounds <= UNROLLED_COPIES else copy_rolled
    copy_all = lane.device(copy_all)
    if threads == block_threads:
        return copy_all

    def copy_some(destination, address, stride, rows):
        if thread() < threads:
            copy_all(destination, address, stride, rows)

    return lane.device(copy_some)


def padder(lane: Any, v: Variant) -> Any:
    """Return clear(base, rows): zeros in the chunks beyond head_dim of rows of a tile."""
    thread, store_shared_int = lane.thread, lane.store_shared_int
    threads, item = v.threads, v.item
    pitch, shift, bits = v.layout
    first, width = v.head_dim, v.width
    per_chunk = CHUNK // item

    def clear(base, rows):
        for row in range(thread(), rows, threads):
            for word in range(first, width, 4 // item):
                chunk = (word // per_chunk) ^ ((row >> shift) & bits)
                at = base + row * pitch + chunk * CHUNK + word % per_chunk * item
                store_shared_int(at, 0)

    return lane.device(clear)


def softmax(lane: Any, v: Variant) -> SimpleNamespace:
    """Return the steps of the online softmax on a warp's registers."""
    exp2, maximum, product = lane.exp2, lane.maximum, lane.product
    from_lane_xor = lane.from_lane_xor
    m_tiles, s_tiles, o_tiles = v.m_tiles, v.step // 8, v.width // 8

    def mask(s, stop, diagonal, row):
        """Hide the columns from `stop` on, and in row r (of 16 m_tiles) those above diagonal + r.

        `row` is the first row of this lane; stop and diagonal count from the lane's first column.
        """
        for i in range(m_tiles):
            for h in range(2):
                limit = min(stop, diagonal + row + (16 * i + 8 * h) + 1)
                for n in range(s_tiles):
                    for e in range(2):
                        at = (i * s_tiles + n) * 4 + 2 * h + e
                        if 8 * n + e >= limit:
                            s[at] = NEGATIVE_INFINITY

    def absorb(s, o, m, l, scale):
        """S becomes P = 2^(scale S - m); the state (m, l, O) takes the new maximum.

        m counts in bits. Only -inf minus -inf is guarded: NaN and +inf reach their row. l is this
        lane's share of the row's sum.
        """
        for i in range(m_tiles):
            for h in range(2):
                high = s[i * s_tiles * 4 + 2 * h]
                for n in range(s_tiles):
                    at = (i * s_tiles + n) * 4 + 2 * h
                    high = maximum(high, maximum(s[at], s[at + 1]))
                high = maximum(high, from_lane_xor(high, 1))
                high = maximum(high, from_lane_xor(high, 2))
                old = m[2 * i + h]
                grown = maximum(old, product(high, scale))
                safe = grown
                if grown == NEGATIVE_INFINITY:
                    safe = ZERO
                shrink = exp2(old - safe)
                total = ZERO
                for n in range(s_tiles):
                    at = (i * s_tiles + n) * 4 + 2 * h
                    # The rounded product of the largest score is m itself, so that it weighs 1
                    # however large it is; fused, what rounding took from m would be its exponent.
                    s[at] = exp2(product(s[at], scale) - safe)
                    s[at + 1] = exp2(product(s[at + 1], scale) - safe)
                    total += s[at] + s[at + 1]
                m[2 * i + h] = grown
                l[2 * i + h] = l[2 * i + h] * shrink + total
                for n in range(o_tiles):
                    at = (i * o_tiles + n) * 4 + 2 * h
                    o[at] *= shrink
                    o[at + 1] *= shrink

    def row_sums(l):
        """Add up the shares of the four lanes of each row."""
        for i in range(2 * m_tiles):
            l[i] += from_lane_xor(l[i], 1)
            l[i] += from_lane_xor(l[i], 2)

    def normalise(o, l):
        """O = O / l, zero for a row that has seen no key."""
        for i in range(m_tiles):
            for h in range(2):
                inverse = ZERO
                if l[2 * i + h] != ZERO:
                    inverse = ONE / l[2 * i + h]
                for n in range(o_tiles):
                    at = (i * o_tiles + n) * 4 + 2 * h
                    o[at] *= inverse
                    o[at + 1] *= inverse

    def unnormalise(o, l):
        """O = O l: back from averages to sums."""
        for i in range(m_tiles):
            for h in range(2):
                for n in range(o_tiles):
                    at = (i * o_tiles + n) * 4 + 2 * h
                    o[at] *= l[2 * i + h]
                    o[at + 1] *= l[2 * i + h]

    device = lane.device
    return SimpleNamespace(
        unnormalise=device(unnormalise),
        mask=device(mask),
        absorb=device(absorb),
        row_sums=device(row_sums),
        normalise=device(normalise),
    )


def rows_of_output(lane: Any, v: Variant, n_tiles: int, form: Layout) -> SimpleNamespace:
    """Return how fragments of n_tiles x 8 columns go to shared memory and rows go to global memory.

    `at` is the warp's first row in shared memory.
    """
    half, item, m_tiles = v.half, v.item, v.m_tiles
    pitch, shift, bits = form
    lane_number = lane.lane_number
    pack = lane.pack_bfloat16 if v.dtype == "bfloat16" else lane.pack_float16
    unpack = lane.unpack_bfloat16 if v.dtype == "bfloat16" else lane.unpack_float16
    store_shared_int, store_shared_float = lane.store_shared_int, lane.store_shared_float
    load_shared_int, load_shared_float = lane.load_shared_int, lane.load_shared_float
    load_shared_16, store_16 = lane.load_shared_16, lane.store_16
    store_2, store_4 = lane.store_2, lane.store_4
    per_chunk = CHUNK // item
    warp_rows = 16 * m_tiles

    def place(row, column):
        chunk = (column // per_chunk) ^ ((row >> shift) & bits)
        return row * pitch + chunk * CHUNK + column % per_chunk * item

    place = lane.device(place)

    def put(at, first, s):
        """Round a warp's fragments and write them to its rows of shared memory, from a column."""
        g = lane_number() // 4
        column = first + lane_number() % 4 * 2
        for i in range(m_tiles):
            for h in range(2):
                for n in range(n_tiles):
                    to = at + place(16 * i + 8 * h + g, column + 8 * n)
                    x = (i * n_tiles + n) * 4 + 2 * h
                    if half:
                        store_shared_int(to, pack(s[x], s[x + 1]))
                    else:
                        store_shared_float(to, s[x])
                        store_shared_float(to + 4, s[x + 1])

    def take(at, first, s):
        """Read a warp's rows of shared memory into fragments, from a column."""
        g = lane_number() // 4
        column = first + lane_number() % 4 * 2
        for i in range(m_tiles):
            for h in range(2):
                for n in range(n_tiles):
                    source = at + place(16 * i + 8 * h + g, column + 8 * n)
                    x = (i * n_tiles + n) * 4 + 2 * h
                    if half:
                        pair = unpack(load_shared_int(source))
                        s[x] = pair[0]
                        s[x + 1] = pair[1]
                    else:
                        s[x] = load_shared_float(source)
                        s[x + 1] = load_shared_float(source + 4)

    def write(at, address, stride, rows, words):
        """Write `rows` rows of `words` words from shared to global memory, 16 bytes a lane."""
        chunks = words * item // CHUNK
        for i in range(lane_number(), warp_rows * chunks, WARP):
            row = i // chunks
            chunk = i - row * chunks
            if row < rows:
                x = load_shared_16(at + row * pitch + (chunk ^ ((row >> shift) & bits)) * CHUNK)
                store_16(address + row * stride + chunk * CHUNK, x[0], x[1], x[2], x[3])

    def write_words(at, address, stride, rows, words):
        """Do as `write` does where rows do not begin at multiples of 16 bytes, word by word."""
        for i in range(lane_number(), warp_rows * words, WARP):
            row = i // words
            word = i - row * words
            if row < rows:
                chunk = (word // per_chunk) ^ ((row >> shift) & bits)
                source = at + row * pitch + chunk * CHUNK + word % per_chunk * item
                if half:
                    # Shared memory is read in 4 bytes; the word is one half of them.
                    pair = load_shared_int(source - word % 2 * 2)
                    store_2(address + row * stride + word * item, pair >> (word % 2 * 16) & 0xFFFF)
                else:
                    store_4(address + row * stride + word * item, load_shared_int(source))

    device = lane.device
    return SimpleNamespace(
        put=device(put), take=device(take), write=device(write), write_words=device(write_words)
    )
