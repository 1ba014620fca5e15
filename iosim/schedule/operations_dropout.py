"""The tile computations of dropout: P_d = P Z / (1 - p), with Z drawn from a random state.

Drawing bits is integer work and no FLOP; a product with Z / (1 - p) is one per word.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from iosim.random_bits import RandomState
from iosim.schedule.operations import Array, Tile, operation


@operation("seed offset <-")
def start_random(tile: Tile, outputs: list[Array], inputs: list[Array]) -> None:
    """Set the random state, the seed and offset that the caller states."""
    seed, offset = outputs
    seed[...], offset[...] = tile.random.seed, tile.random.offset


@operation("Z <- seed offset")
def draw_kept(tile: Tile, outputs: list[Array], inputs: list[Array]) -> None:
    """Z = 1 where dropout keeps an element and 0 where it drops it, from the random state."""
    outputs[0][...] = _kept(tile, inputs)


@operation("Y <- X Z", (1, (0,)), role="dropout")
def drop_by(tile: Tile, outputs: list[Array], inputs: list[Array]) -> None:
    """Y = X Z / (1 - p), where p is the probability to drop; Y may be X."""
    (y,), (x, z) = outputs, inputs
    np.multiply(x, _factors(tile, z, x), out=y)


@operation("Y <- X seed offset", (1, (0,)), role="dropout")
def drop(tile: Tile, outputs: list[Array], inputs: list[Array]) -> None:
    """Y = X Z / (1 - p) with Z drawn on the spot; Y may be X."""
    (y,), (x, *state) = outputs, inputs
    np.multiply(x, _factors(tile, _kept(tile, state), x), out=y)


def _kept(tile: Tile, state: list[Array]) -> NDArray[np.bool_]:
    seed, offset = state
    return tile.kept(RandomState(int(seed), int(offset)))


def _factors(tile: Tile, z: NDArray[Any], x: Array) -> Array:
    """Return 1 / (1 - p) where z is set and 0 elsewhere, in the dtype of x."""
    return np.asarray(z.astype(x.dtype) * x.dtype.type(1 / (1 - tile.dropout)))
