"""Fragments of the tensor cores: what each lane's registers hold, from the PTX ISA manual."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
WARP = 32


def halves(x: Any) -> NDArray[np.uint16]:
    """Return registers of 32 bits as words of 16, the low half first."""
    return np.asarray(x, np.uint32).view(np.uint16)


def to_float(words: NDArray[np.uint16], dtype: str) -> NDArray[np.float32]:
    """Return words of 16 bits, float16 or bfloat16, as float32."""
    if dtype == "float16":
        return words.view(np.float16).astype(np.float32)
    return (words.astype(np.uint32) << 16).view(np.float32)


def unpacked(dtype: str, word: int) -> tuple[Any, ...]:
    """Return the two floats of a register."""
    return tuple(to_float(halves([word]), dtype))


def rounded(x: Any, dtype: str) -> int:
    """Return the 16 bits of a float32 rounded to nearest even."""
    if dtype == "float16":
        return int(np.float16(x).view(np.uint16))
    import ml_dtypes

    return int(np.asarray(x).astype(ml_dtypes.bfloat16).view(np.uint16))


def packed(dtype: str, low: Any, high: Any) -> int:
    """Return the register of two floats, each rounded to 16 bits."""
    return rounded(low, dtype) | rounded(high, dtype) << 16


def matrix_product(depth: int, decode: Callable[[Any], Any]) -> Callable[[list[Any]], Any]:
    """Return the work of an mma of 16 x 8 x depth on the lanes' (a0..a3, b0, b1, c0..c3)."""
    per = depth // 8  # words of A in one register

    def work(slots: list[Any]) -> NDArray[np.float32]:
        a, b = np.zeros((16, depth), np.float32), np.zeros((depth, 8), np.float32)
        c = np.zeros((16, 8), np.float32)
        for lane, values in enumerate(slots):
            g, t = divmod(lane, 4)
            for i in range(4):
                row, column = g + 8 * (i & 1), (i >> 1) * 4 * per + t * per
                a[row, column : column + per] = decode(values[i])
                c[g + 8 * (i >> 1), 2 * t + (i & 1)] = values[6 + i]
            for i in range(2):
                row = i * 4 * per + t * per
                b[row : row + per, g] = decode(values[4 + i])
        with np.errstate(all="ignore"):
            return np.asarray(a @ b + c, np.float32)

    return work


def matrices(shared: Bytes, transposed: bool) -> Callable[[list[Any]], Any]:
    """Return the work of ldmatrix on the lanes' addresses: (matrix, lane) -> register."""

    def work(slots: list[Any]) -> NDArray[np.uint32]:
        rows = np.stack([shared[at : at + 16] for at in slots]).view(np.uint16)
        four = rows.reshape(4, 8, 8)
        if transposed:
            four = np.ascontiguousarray(four.swapaxes(1, 2))
        # Lane l holds row l / 4, words 2 (l % 4) and the next.
        return four.reshape(4, WARP, 2).view(np.uint32)[..., 0]

    return work
