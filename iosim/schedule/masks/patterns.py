"""Masks made of blocks: any matrix, a butterfly, or blocks at random."""

from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from iosim.errors import IosimError
from iosim.schedule.masks.blocks import Blocks, Cells, Indices
from iosim.shape import AttentionShape

MOST_BYTES = 2**28
"""Bytes that the entries of a mask may take while it is worked on."""


@dataclass(frozen=True)
class Matrix:
    """A boolean matrix of `height` x `width` entries, as packed bits.

    >>> Matrix.of(np.eye(3, dtype=bool)).entries()[1].tolist()
    [0, 1, 2]
    """

    height: int
    width: int
    bits: bytes = field(repr=False)

    @classmethod
    def of(cls, matrix: NDArray[np.bool_]) -> "Matrix":
        """Return a NumPy matrix as one that can be compared."""
        return cls(matrix.shape[0], matrix.shape[1], np.packbits(matrix).tobytes())

    @cached_property
    def array(self) -> NDArray[np.bool_]:
        """The matrix as a NumPy array."""
        size = self.height * self.width
        bits = np.unpackbits(np.frombuffer(self.bits, np.uint8), count=size)
        return bits.view(np.bool_).reshape(self.height, self.width)

    def at(self, rows: Indices, columns: Indices) -> NDArray[np.bool_]:
        """Return the entries at some rows and columns."""
        return np.asarray(self.array[rows, columns])

    def entries(self) -> tuple[Indices, Indices]:
        """Return the rows and the columns of the entries that are true."""
        rows, columns = np.nonzero(self.array)
        return rows, columns


@dataclass(frozen=True)
class BlockMask:
    """Any block mask: a matrix over blocks of `rows` queries and `columns` keys.

    The last blocks may be ragged. Raises IosimError for blocks below 1 row, and for a shape that
    is not covered by exactly that many blocks.

    >>> mask = BlockMask.of([[1, 0], [1, 1]], rows=2)
    >>> shape = AttentionShape(3, 4, 8, mask=mask)
    >>> shape.mask.relation(shape).visible(slice(1, 3), slice(1, 3)).tolist()
    [[True, False], [True, True]]
    """

    matrix: Matrix
    rows: int
    columns: int
    name: str = "matrix"

    def __post_init__(self) -> None:
        """Refuse blocks of no rows."""
        _check_block(self.rows)
        _check_block(self.columns)

    @classmethod
    def of(
        cls, matrix: object, rows: int, columns: int | None = None, name: str = "matrix"
    ) -> "BlockMask":
        """Return the mask of a matrix of booleans, or of numbers that are 0 where nothing is seen.

        `columns` is as many as `rows` if it is not given. Raises IosimError for anything that is
        not a matrix.
        """
        array = np.asarray(matrix)
        if array.ndim != 2 or not array.size or array.dtype.kind not in "biuf":
            raise IosimError(
                f"a block mask is a matrix of booleans, but {name} has shape {array.shape} "
                f"and dtype {array.dtype}"
            )
        _check_size(name, *array.shape)
        return cls(Matrix.of(array != 0), rows, rows if columns is None else columns, name)

    @property
    def grain(self) -> tuple[int, int]:
        """Queries and keys of a block of the mask."""
        return self.rows, self.columns

    def relation(self, shape: AttentionShape) -> Blocks:
        """Return which keys the queries of a shape see."""
        need = -(-shape.n_q // self.rows), -(-shape.n_k // self.columns)
        if need != (self.matrix.height, self.matrix.width):
            raise IosimError(
                f"the block mask {self.name} has {self.matrix.height} x {self.matrix.width} "
                f"blocks, but {shape.n_q} queries and {shape.n_k} keys in blocks of {self.rows} "
                f"and {self.columns} make {need[0]} x {need[1]}"
            )
        return _relation(self.matrix, self.rows, self.columns, shape)

    def __str__(self) -> str:
        """Return the mask as --mask takes it."""
        same = self.rows == self.columns
        return f"{self.name},block={self.rows}" + ("" if same else f"x{self.columns}")


@dataclass(frozen=True)
class Random:
    """Blocks at random: exactly round(density x blocks) of them, the same for the same seed.

    Blocks have `block` queries and keys. Raises IosimError for a density outside 0 .. 1.

    >>> shape = AttentionShape(64, 64, 8, mask=Random(0.25, block=8, seed=1))
    >>> len(shape.mask.relation(shape).cells.entries()[0])
    16
    """

    density: float
    block: int
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what is no density or no block."""
        _check_block(self.block)
        if not 0 <= self.density <= 1:
            raise IosimError(f"the density of a mask is {self.density}; give a number from 0 to 1")

    @property
    def grain(self) -> tuple[int, int]:
        """Queries and keys of a block of the mask."""
        return self.block, self.block

    def relation(self, shape: AttentionShape) -> Blocks:
        """Return which keys the queries of a shape see."""
        height, width = -(-shape.n_q // self.block), -(-shape.n_k // self.block)
        _check_size(str(self), height, width)
        cells = _random(self.density, self.seed, height, width)
        return _relation(cells, self.block, self.block, shape)

    def __str__(self) -> str:
        """Return the mask as --mask takes it."""
        return f"random:{self.density:g},block={self.block},seed={self.seed}"


@lru_cache(maxsize=4)
def _random(density: float, seed: int, height: int, width: int) -> Matrix:
    matrix = np.zeros(height * width, np.bool_)
    chosen = np.random.default_rng(seed).choice(
        matrix.size, round(density * matrix.size), replace=False, shuffle=False
    )
    matrix[chosen] = True
    return Matrix.of(matrix.reshape(height, width))


@dataclass(frozen=True)
class ButterflyCells:
    """Entry (i, j) is true where i xor j is 0 or a power of two.

    >>> ButterflyCells(4, 4).at(np.arange(4)[:, None], np.arange(4)).astype(int).tolist()
    [[1, 1, 1, 0], [1, 1, 0, 1], [1, 0, 1, 1], [0, 1, 1, 1]]
    """

    height: int
    width: int

    def at(self, rows: Indices, columns: Indices) -> NDArray[np.bool_]:
        """Return the entries at some rows and columns."""
        apart = rows ^ columns
        return np.asarray((apart & (apart - 1)) == 0)

    def entries(self) -> tuple[Indices, Indices]:
        """Return the rows and the columns of the entries that are true."""
        rows = np.arange(self.height)
        powers = [0, *(1 << k for k in range(max(self.height, self.width).bit_length()))]
        found = [(rows[inside], (rows ^ power)[inside]) for power in powers
                 for inside in [(rows ^ power) < self.width]]  # fmt: skip
        return np.concatenate([r for r, _ in found]), np.concatenate([c for _, c in found])


@dataclass(frozen=True)
class Butterfly:
    """The flat block butterfly: block i of queries sees block j of keys if i xor j is 0 or 2^k.

    About log2 of the blocks in each row (Chen et al. 2021, arXiv 2112.00029), as in the experiments
    of FlashAttention's paper. Blocks have `block` queries and keys.

    >>> str(Butterfly(128))
    'butterfly:128'
    """

    block: int

    def __post_init__(self) -> None:
        """Refuse blocks of no rows."""
        _check_block(self.block)

    @property
    def grain(self) -> tuple[int, int]:
        """Queries and keys of a block of the mask."""
        return self.block, self.block

    def relation(self, shape: AttentionShape) -> Blocks:
        """Return which keys the queries of a shape see."""
        height, width = -(-shape.n_q // self.block), -(-shape.n_k // self.block)
        entries = height * max(width, height).bit_length()
        _check_size(str(self), height, width, 16 * entries)
        cells = ButterflyCells(height, width)
        return _relation(cells, self.block, self.block, shape)

    def __str__(self) -> str:
        """Return the mask as --mask takes it."""
        return f"butterfly:{self.block}"


def _check_block(block: int) -> None:
    if block < 1:
        raise IosimError(f"a mask has blocks of {block} rows; give at least 1")


def _check_size(name: str, height: int, width: int, needed: int | None = None) -> None:
    """Refuse a matrix that needs too many bytes to work on, one for each entry by default."""
    if (height * width if needed is None else needed) > MOST_BYTES:
        raise IosimError(
            f"the mask {name} has {height} x {width} blocks, more than there is room for; take "
            "larger blocks"
        )


def _relation(cells: Cells, rows: int, columns: int, shape: AttentionShape) -> Blocks:
    offset = shape.causal_offset if shape.causal else None
    return Blocks(cells, rows, columns, offset=offset)
