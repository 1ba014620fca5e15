"""Counter-based random numbers, and from them the bits that dropout keeps.

Philox 4x32-10 (Salmon, Moraes, Dror and Shaw, Parallel random numbers: as easy as 1, 2, 3, SC 2011)
turns a counter of 128 bits and a key of 64 into 128 random bits, without a state. So the bit of an
element depends on its place alone, and whoever computes a tile, in whatever order, computes the
bits that the whole has there.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iosim.errors import IosimError

Places = slice | npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]  # words of 32 bits, each in 64, so that products fit

ROUNDS = 10
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)

MOST_SEEDS = 2**64
MOST_OFFSETS = 2**32


@dataclass(frozen=True)
class RandomState:
    """What a pass keeps to draw its bits again: `seed` of 64 bits, `offset` of 32.

    The offset tells apart the calls (layers, training steps) that share a seed. Raises IosimError
    for numbers that are not whole or out of range.
    """

    seed: int = 0
    offset: int = 0

    def __post_init__(self) -> None:
        """Refuse what has more bits than there is room for."""
        for name, end in (("seed", MOST_SEEDS), ("offset", MOST_OFFSETS)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < end:
                raise IosimError(
                    f"{name} is {value!r}, but it must be a whole number from 0 to {end - 1}"
                )


def philox(counter: Sequence[npt.ArrayLike], key: Sequence[int]) -> tuple[Words, ...]:
    """Return Philox 4x32-10 of counters (4 words of 32 bits, arrays that broadcast) and a key of 2.

    The four words of the result have the shape to which the counter's words broadcast.

    >>> " ".join(f"{int(word):08x}" for word in philox((0, 0, 0, 0), (0, 0)))
    '6627e8d5 e169c58d bc57ac4c 9b00dbd8'
    """
    c = [np.asarray(word, np.uint64) for word in counter]
    k = list(key)
    for _ in range(ROUNDS):
        a, b = c[0] * _MULTIPLIERS[0], c[2] * _MULTIPLIERS[1]
        c = [
            (b >> _HALF) ^ c[1] ^ np.uint64(k[0]),
            b & _LOW,
            (a >> _HALF) ^ c[3] ^ np.uint64(k[1]),
            a & _LOW,
        ]
        k = [(word + step) % 2**32 for word, step in zip(k, _KEY_STEPS, strict=True)]
    shape = np.broadcast_shapes(*(word.shape for word in c))
    return tuple(np.broadcast_to(word, shape) for word in c)


def random_words(
    state: RandomState, heads: npt.ArrayLike, rows: Places, columns: Places
) -> npt.NDArray[np.uint32]:
    """Return a random word of 32 bits for each (head, row, column): (*heads.shape, rows, columns).

    Rows and columns are a slice or an array of numbers. `heads` numbers heads over batch entries,
    batch x heads + head. The counter is (column // 4, row, head, offset) and the key the seed; the
    column's word is the (column mod 4)-th of the four.

    >>> whole = random_words(RandomState(7), [0, 1], slice(0, 5), slice(0, 9))
    >>> tile = random_words(RandomState(7), [1], slice(2, 4), slice(3, 8))
    >>> bool((whole[1:, 2:4, 3:8] == tile).all())
    True
    """
    head = np.asarray(heads, np.uint64)[..., None, None]
    row, column = _numbers(rows)[:, None], _numbers(columns)
    group, at = np.unique(column // 4, return_inverse=True)
    key = (state.seed % 2**32, state.seed >> 32)
    words = np.stack(philox((group, row, head, state.offset), key), axis=-1)
    return np.asarray(words[..., at, column % 4].astype(np.uint32))


def _numbers(places: Places) -> npt.NDArray[np.int64]:
    return np.arange(places.start, places.stop) if isinstance(places, slice) else places


def kept(
    state: RandomState, dropout: float, heads: npt.ArrayLike, rows: Places, columns: Places
) -> npt.NDArray[np.bool_]:
    """Return which elements dropout keeps, each with probability 1 - floor(dropout 2^32) / 2^32.

    >>> kept(RandomState(1), 0.5, [0], slice(0, 2), slice(0, 6)).astype(int).tolist()
    [[[1, 1, 1, 1, 1, 1], [1, 0, 0, 0, 1, 1]]]
    """
    return random_words(state, heads, rows, columns) >= np.uint32(int(dropout * 2**32))


def dropout_factors(
    state: RandomState, dropout: float, sizes: tuple[int, int, int, int]
) -> npt.NDArray[np.float64]:
    """Return 1 / (1 - dropout) where kept, else 0, in the sizes (batch, heads, n_q, n_k).

    >>> dropout_factors(RandomState(1), 0.5, (1, 1, 2, 4)).tolist()
    [[[[2.0, 2.0, 2.0, 2.0], [2.0, 0.0, 0.0, 0.0]]]]
    """
    batch, heads, rows, columns = sizes
    number = np.arange(batch * heads).reshape(batch, heads)
    return kept(state, dropout, number, slice(0, rows), slice(0, columns)) / (1 - dropout)
