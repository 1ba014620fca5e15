"""What the rounding error of an execution depends on, and how many roundings a term meets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from iosim.errors import IosimError
from iosim.precision import Array, Precision, precision

Numbers = Any  # a float, or an array of them

EXP_ROUNDOFFS = 6
"""NumPy's exp errs by less than 3 ulps, which is 6 unit roundoffs (measured: 3.5 in float32)."""
LOG_ROUNDOFFS = 8
"""NumPy's log errs by less than 4 ulps, which is 8 unit roundoffs."""


@dataclass(frozen=True)
class Execution:
    """What an execution of attention does, as far as its rounding error depends on it.

    ``tiles`` is the number of key tiles that a query row meets, ``largest_tile`` the keys in the
    largest of them (``ceil(n_keys / tiles)`` unless given). ``splits`` > 1: that many partial
    results (O and LSE, float32) are merged at the end; the other counts are then those of a split,
    except ``n_keys``. ``split_keys``: the keys of a split, where the keys are split in their order
    into runs of so many (the last may be shorter). ``stored_scores``: S and P are stored in the
    dtype, as standard attention does; with ``tiles`` > 1, m and l were found in so many pieces of a
    row and P comes from them in a later pass. ``stored_output_per_tile``: O is normalised and
    stored in the dtype after every tile, as in FlashAttention-1. ``dropout``: P is multiplied with
    0 or 1 / (1 - dropout) before P V, and stored once more where it is stored at all.

    float16 and bfloat16 mean operands given in that dtype, float32 accumulation, l summed from P
    before P is rounded for P V, and O rounded at the end. Raises `IosimError` for an unknown dtype
    a count below 1, or a dropout out of [0, 1).
    """

    dtype: str
    head_dim: int
    n_keys: int
    tiles: int = 1
    largest_tile: int | None = None
    splits: int = 1
    split_keys: int | None = None
    stored_scores: bool = False
    stored_output_per_tile: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        precision(self.dtype)
        if not 0 <= self.dropout < 1:
            raise IosimError(f"dropout must be in [0, 1), not {self.dropout}")
        for name in ("head_dim", "n_keys", "tiles", "largest_tile", "splits", "split_keys"):
            count = getattr(self, name)
            if count is not None and count < 1:
                raise IosimError(f"{name} must be at least 1, not {count}")

    @property
    def summed(self) -> int:
        """The most keys that one sum adds up."""
        return self.largest_tile or -(-self.n_keys // self.tiles)

    @property
    def exponentials(self) -> int:
        """The exponentials whose product is the weight of one key, at most."""
        return self.tiles + self.stored_output_per_tile + self.splits - 1

    @property
    def late_roundings(self) -> int:
        """The roundings of a term of o after the sum of its tile, at most."""
        steps = 6 if self.stored_output_per_tile else 2
        merges = 2 * self.splits if self.splits > 1 else 0
        # 1 / (1 - p) is rounded, and so is the product with it.
        return steps * self.tiles + merges + 2 * (self.dropout > 0)

    @property
    def largest_factor(self) -> float:
        """The most that dropout multiplies a probability with, and so what a value may weigh."""
        return 1 / (1 - self.dropout)

    @property
    def stored_probabilities(self) -> int:
        """How often a probability is rounded to the dtype on its way to P V."""
        return 1 + (self.dropout > 0 and self.stored_scores)

    @property
    def separate_statistics(self) -> bool:
        """Whether l was summed from other exponentials than o, in a pass of its own."""
        return self.stored_scores and self.tiles > 1


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of attention as the float64 reference has them, for a bound on each element.

    ``output`` (..., rows, d_v), ``lse`` (..., rows), weights ``p`` that sum to 1, scores ``s`` and
    ``A`` = |scale| sum_t |q_it| |k_jt| (..., rows, keys), with p = s = A = 0 where a key is not
    visible, ``q`` (..., rows, d) with the scale in it, ``k`` (..., keys, d) and ``v`` (..., keys,
    d_v). ``doubt`` (..., rows, 1) bounds the relative error of p. ``factors`` (..., rows, keys) is
    what dropout multiplies p with before it meets v, 1 without dropout.
    """

    output: Array
    lse: Array
    p: Array
    s: Array
    A: Array
    q: Array
    k: Array
    v: Array
    doubt: Array
    factors: Array

    @property
    def worst_A(self) -> Array:
        """The largest A of each row, (..., rows, 1)."""
        return np.asarray(self.A.max(axis=-1, keepdims=True, initial=0.0))

    @property
    def seen(self) -> Array:
        """Whether a row sees any key."""
        return np.asarray(self.p.max(axis=-1, initial=0.0) != 0)


def of_reference(execution: Execution) -> Execution:
    """What `reference.attention` does: float64, all keys in one tile."""
    return Execution("float64", execution.head_dim, execution.n_keys, dropout=execution.dropout)


def gamma(n: int, u: float) -> float:
    """gamma_n = n u / (1 - n u): n roundings in a row (Higham 2002, Lemma 3.1)."""
    return n * u / (1 - n * u) if n * u < 1 else math.inf


def exp_error(u: float) -> float:
    """The error of one exponential, in the logarithm."""
    return EXP_ROUNDOFFS * u * (1 + 8 * u)


def sums(execution: Execution) -> tuple[float, float]:
    """Step 4: relative errors of the sums o, with its normalisation, and l."""
    u = precision(execution.dtype).accumulator_roundoff
    steps = 2 * execution.tiles + (2 * execution.splits if execution.splits > 1 else 0)
    return (
        gamma(execution.summed + execution.late_roundings + 2, u),
        gamma(execution.summed + steps + 1, u),
    )


def stored_roundoff(form: Precision) -> tuple[float, float]:
    """The roundoff w and least error eta of storing in a dtype; 0 where nothing is rounded."""
    return (form.roundoff, form.underflow) if form.storage != form.accumulator else (0.0, 0.0)
