"""The tile computations of a backward pass: gradients of O = softmax(scale Q K^T) V.

With dP = dO V^T and D = rowsum(dO * O), dS = P * (dP - D), dV = P^T dO, dQ = scale dS K and
dK = scale dS^T Q. P and dS are rounded to the dtype of the operands before they enter a matmul.
P is 0 where a query may not see a key, so that a row which sees nothing has gradients of zero.
"""

import numpy as np

from iosim.schedule.operations import Array, Tile, operation


@operation("D <- dO O", (2, (1,)))
def row_dots(tile: Tile, outputs: list[Array], inputs: list[Array]) -> None:
    """D = rowsum(dO * O), which is also rowsum(P * dP)."""
    (d,), (do, o) = outputs, inputs
    (do * o).sum(axis=-1, out=d)


@operation("dV <- P dO dV", (2, (1, 2)), role="dV")
def value_gradient(tile: Tile, outputs: list[Array], inputs: list[Array]) -> None:
    """dV = dV + P^T dO."""
    (dv,), (p, do, _) = outputs, inputs
    dv += tile.rounded(p).swapaxes(-1, -2) @ do


@operation("dP <- dO V", (2, (1, 2)), role="dP")
def probability_gradient(tile: Tile, outputs: list[Array], inputs: list[Array]) -> None:
    """dP = dO V^T, of every pair, hidden ones too."""
    (dp,), (do, v) = outputs, inputs
    np.matmul(do, v.swapaxes(-1, -2), out=dp)


@operation("dS <- P dP D", (2, (0,)))
def score_gradient(tile: Tile, outputs: list[Array], inputs: list[Array]) -> None:
    """dS = P * (dP - D); dS may take the place of dP."""
    (ds,), (p, dp, d) = outputs, inputs
    ds[...] = dp - d[..., None]
    ds *= p


@operation("dS <- P dP", (4, (0,)))
def softmax_gradient(tile: Tile, outputs: list[Array], inputs: list[Array]) -> None:
    """dS = P * (dP - rowsum(P * dP)), for whole rows."""
    (ds,), (p, dp) = outputs, inputs
    ds[...] = dp - (p * dp).sum(axis=-1, keepdims=True)
    ds *= p


@operation("dQ <- dS K dQ", (2, (1, 2)), (1, (0,)), role="dQ")
def query_gradient(tile: Tile, outputs: list[Array], inputs: list[Array]) -> None:
    """dQ = dQ + scale dS K."""
    (dq,), (ds, k, _) = outputs, inputs
    more = tile.rounded(ds) @ k
    more *= more.dtype.type(tile.scale)
    dq += more


@operation("dK <- dS Q dK", (2, (1, 2)), (1, (0,)), role="dK")
def key_gradient(tile: Tile, outputs: list[Array], inputs: list[Array]) -> None:
    """dK = dK + scale dS^T Q."""
    (dk,), (ds, q, _) = outputs, inputs
    more = tile.rounded(ds).swapaxes(-1, -2) @ q
    more *= more.dtype.type(tile.scale)
    dk += more


@operation("dQ <- sum")
def copy(tile: Tile, outputs: list[Array], inputs: list[Array]) -> None:
    """Copy a tile; storing the copy rounds it to the item type of its tensor."""
    outputs[0][...] = inputs[0]
