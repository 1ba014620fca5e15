"""The shape of an attention problem: how many queries, keys and heads, how wide, in which dtype."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from iosim.errors import IosimError
from iosim.units import DTYPES, ITEM_BYTES, unknown

if TYPE_CHECKING:
    from iosim.schedule.relation import Relation

Alignment = Literal["bottom-right", "top-left"]
ALIGNMENTS: tuple[Alignment, ...] = ("bottom-right", "top-left")

# Softmax statistics (m, l, LSE) are float32 whatever Q is, except beside float64,
# where a float32 statistic would limit the result to seven digits.
STATISTIC_DTYPES = {
    "float16": "float32",
    "bfloat16": "float32",
    "float32": "float32",
    "float64": "float64",
}

# The keys of a record that say of which shape it is; those of a record about kernels on a device.
RECORD = ("n_q", "n_k", "head_dim", "value_dim", "batch", "heads", "kv_heads", "causal", "align",
          "mask", "dropout", "dtype")  # fmt: skip
KERNEL_RECORD = ("n_q", "n_k", "head_dim", "batch", "heads", "kv_heads", "causal", "dtype")


class Mask(Protocol):
    """Which keys a query may see, stated for every shape; `str` is the text that --mask takes.

    `grain` is how many queries and keys the blocks have that it is made of, 1 and 1 for rows.
    """

    @property
    def grain(self) -> tuple[int, int]:
        """Queries and keys of a block of the mask."""

    def relation(self, shape: "AttentionShape") -> "Relation":
        """Return the pairs that meet in a shape; IosimError where the shape cannot have them."""


@dataclass(frozen=True)
class AttentionShape:
    """O = softmax(Q K^T / sqrt(d)) V for `batch` x `heads` heads; sizes count rows or words.

    `head_dim` is the width of Q and K, `value_dim` (default `head_dim`) of V and O; `kv_heads`
    (default `heads`) divides `heads`. A causal mask is aligned bottom-right (query i sees the keys
    up to i + n_k - n_q) or top-left (up to i). `mask` is one of `iosim.schedule.masks`; with
    `causal` too, a query sees the keys that both let it see. Each softmax probability is dropped
    with probability `dropout`, and divided by 1 - dropout where it is kept.

    Raises IosimError for a size below 1, heads that are no multiple of kv_heads, an unknown dtype,
    a mask that is not for a shape of these lengths, and a dropout that is not in [0, 1).

    >>> AttentionShape(n_q=1024, n_k=1024, head_dim=64, heads=16, dtype="float16").item_bytes
    2
    >>> AttentionShape(n_q=2, n_k=5, head_dim=64, causal=True).causal_offset
    3
    """

    n_q: int
    n_k: int
    head_dim: int
    value_dim: int = 0
    batch: int = 1
    heads: int = 1
    kv_heads: int = 0
    dtype: str = "float16"
    causal: bool = False
    align: Alignment = "bottom-right"
    mask: Mask | None = None
    dropout: float = 0.0

    def __post_init__(self) -> None:
        """Fill in the defaults that depend on other fields, and refuse what cannot be."""
        if self.value_dim == 0:
            object.__setattr__(self, "value_dim", self.head_dim)
        if self.kv_heads == 0:
            object.__setattr__(self, "kv_heads", self.heads)
        for name in ("n_q", "n_k", "head_dim", "value_dim", "batch", "heads", "kv_heads"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise IosimError(
                    f"{name} is {value!r}, but it must be a whole number of at least 1"
                )
        if self.heads % self.kv_heads:
            raise IosimError(
                f"heads is {self.heads} and kv_heads is {self.kv_heads}, "
                "but heads must be a multiple of kv_heads"
            )
        if self.dtype not in DTYPES:
            raise IosimError(unknown("dtype", self.dtype, DTYPES))
        if self.align not in ALIGNMENTS:
            raise IosimError(unknown("align", self.align, ALIGNMENTS))
        if self.mask is not None:
            self.mask.relation(self)  # refuses a shape that it is not for
        if not isinstance(self.dropout, int | float) or not 0 <= self.dropout < 1:
            raise IosimError(
                f"dropout is {self.dropout!r}, but it must be a probability from 0 up to, but not "
                "including, 1"
            )

    @property
    def group(self) -> int:
        """Query heads that share one key-value head."""
        return self.heads // self.kv_heads

    @property
    def item_bytes(self) -> int:
        """Bytes of one word of Q, K, V and O."""
        return ITEM_BYTES[self.dtype]

    @property
    def statistic_dtype(self) -> str:
        """The dtype of m, l and LSE."""
        return STATISTIC_DTYPES[self.dtype]

    @property
    def accumulator_dtype(self) -> str:
        """The dtype in which sums are formed on chip: float32, or float64 beside float64."""
        return STATISTIC_DTYPES[self.dtype]

    @property
    def causal_offset(self) -> int:
        """The key of query i is i + causal_offset: the last that it sees when causal."""
        return self.n_k - self.n_q if self.align == "bottom-right" else 0

    def to_dict(self, names: Sequence[str] = RECORD) -> dict[str, Any]:
        """Return the part of a record that says of which shape it is: plain values, in this order.

        Rows and words as in the fields; the mask is the text that --mask takes.

        >>> AttentionShape(8, 16, 64, causal=True).to_dict(("n_q", "n_k", "causal", "mask"))
        {'n_q': 8, 'n_k': 16, 'causal': True, 'mask': None}
        """
        values = {name: getattr(self, name) for name in names}
        if values.get("mask") is not None:
            values["mask"] = str(self.mask)
        return values
