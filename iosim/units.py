"""Words and bytes: reading sizes and lengths that people write, and writing numbers for people.

In lengths and counts ``k`` is 1024 and ``m`` is 1024^2. In memory sizes KB, MB and GB are powers
of 1000, KiB, MiB and GiB powers of 1024, and ``w`` counts words.
"""

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Literal

from iosim.errors import IosimError

ITEM_BYTES: Mapping[str, int] = MappingProxyType(
    {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "uint8": 1, "int32": 4, "uint64": 8}
)
"""Bytes of one word of each item type: of numbers, mask bytes, page tables and random states."""

DTYPES = ("float16", "bfloat16", "float32", "float64")
"""The types that Q, K, V and O may have."""

MAX_SWEEP = 10_000
"""Values that one sweep may have: more is a slip in the step, not a wish."""

MAX_COUNT = 2**63 - 1
"""The most that a count or a memory size may be: ranges of blocks are no longer than that."""

_COUNT = re.compile(r"(\d+(?:_\d+)*)([km]?)", re.ASCII)
_COUNT_UNITS = {"": 1, "k": 1024, "m": 1024**2}
_RANGE = re.compile(r"(?P<first>[^.:]+)\.\.(?P<last>[^.:]+):(?P<kind>[x+])(?P<step>[^.:]+)")
_BYTES = re.compile(r"(\d+(?:_\d+)*(?:\.\d+)?) ?([kmg]i?)?b", re.ASCII)
_BYTE_UNITS = {
    None: 1,
    "k": 1000,
    "m": 1000**2,
    "g": 1000**3,
    "ki": 1024,
    "mi": 1024**2,
    "gi": 1024**3,
}


def item_bytes(dtype: str) -> int:
    """Return the bytes of one word of Q, K, V and O in `dtype`.

    Raises `IosimError` for a dtype that is not in `DTYPES`.

    >>> item_bytes("bfloat16")
    2
    """
    if dtype not in DTYPES:
        raise IosimError(unknown("dtype", dtype, DTYPES))
    return ITEM_BYTES[dtype]


def closest(name: str, names: Iterable[str]) -> str | None:
    """Return the one of `names` that is spelt most like `name`, or None if none is near.

    >>> closest("flash3", ["flash2", "standard"])
    'flash2'
    """
    spelt = {each.casefold(): each for each in names}
    near = difflib.get_close_matches(name.casefold(), spelt, n=1, cutoff=0.5)
    return spelt[near[0]] if near else None


def unknown(kind: str, name: str, names: Iterable[str]) -> str:
    """Return the sentence that says that `name` is none of `names`, with the closest one.

    >>> unknown("device", "H20", ["A100", "H200"])
    "unknown device 'H20'; did you mean 'H200'? known: A100, H200"
    """
    names = list(names)
    near = closest(name, names)
    hint = f" did you mean '{near}'?" if near else ""
    return f"unknown {kind} '{name}';{hint} known: {', '.join(names)}"


def parse_count(text: str, *, minimum: int = 1) -> int:
    """Return the count or length that `text` states; k is 1024 and m is 1024^2.

    Raises `IosimError` for text of another form and for a count below `minimum`.

    >>> parse_count("8k"), parse_count("1m"), parse_count("1_000_000")
    (8192, 1048576, 1000000)
    """
    match = _COUNT.fullmatch(text.strip().lower())
    if not match:
        raise IosimError(f"'{text}' is not a count; write a whole number such as 1000 or 8k (8192)")
    count = int(_readable(match[1], text)) * _COUNT_UNITS[match[2]]
    if count > MAX_COUNT:
        raise _too_large(text)
    if count < minimum:
        raise IosimError(f"'{text}' is too small; the least is {minimum}")
    return count


def _readable(digits: str, text: str) -> str:
    """Return the digits, unless they are more than Python would read."""
    if len(digits) > 1000:
        raise _too_large(text)
    return digits


def _too_large(text: str) -> IosimError:
    return IosimError(f"'{text}' is too large; the most is {MAX_COUNT}")


def parse_probability(text: str) -> float:
    """Return the probability that `text` states, from 0 up to but not including 1.

    Raises `IosimError` for text that is no number and for one out of that range.

    >>> parse_probability("0.1")
    0.1
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < 1:
        raise IosimError(f"'{text}' is not a number from 0 up to, but not including, 1; write 0.1")
    return value


def parse_sweep(text: str, *, minimum: int = 1) -> tuple[int, ...]:
    """Return the counts that `text` lists: single ones and ranges, in the order written.

    ``first..last:xF`` multiplies by F and ``first..last:+S`` adds S; `last` is included when the
    steps meet it. Raises `IosimError` for text of another form, and for more than `MAX_SWEEP`
    values.

    >>> parse_sweep("1k,2k,4k")
    (1024, 2048, 4096)
    >>> parse_sweep("1..9:+2,1k..4k:x2")
    (1, 3, 5, 7, 9, 1024, 2048, 4096)
    """
    values: list[int] = []
    for part in text.split(","):
        values.extend(
            _parse_range(part, minimum) if ".." in part else [parse_count(part, minimum=minimum)]
        )
        if len(values) > MAX_SWEEP:
            raise IosimError(f"'{text}' lists more than {MAX_SWEEP} values; take a larger step")
    return tuple(values)


def _parse_range(text: str, minimum: int) -> list[int]:
    match = _RANGE.fullmatch(text.strip().lower())
    if not match:
        raise IosimError(f"'{text}' is not a range; write first..last:x2 or first..last:+128")
    first = parse_count(match["first"], minimum=minimum)
    last = parse_count(match["last"], minimum=minimum)
    if first > last:
        raise IosimError(f"'{text}' runs downwards; write the smaller end first")
    if match["kind"] == "+":
        steps = range(first, last + 1, parse_count(match["step"]))
        return list(steps[: MAX_SWEEP + 1])
    factor = parse_count(match["step"], minimum=2)
    values = []
    value = first
    while value <= last:
        values.append(value)
        value = max(value * factor, 1)  # a range from 0 goes on with 1
    return values


@dataclass(frozen=True)
class MemorySize:
    """A size of fast memory as it was stated: in words, or in bytes of no particular dtype."""

    amount: int
    unit: Literal["words", "bytes"]

    def words(self, item_bytes: int) -> int:
        """Return how many whole words of `item_bytes` bytes fit: part of a word holds nothing.

        >>> MemorySize(100 * 1024, "bytes").words(4)
        25600
        """
        return self.amount if self.unit == "words" else self.amount // item_bytes

    def __str__(self) -> str:
        return f"{self.amount}w" if self.unit == "words" else f"{self.amount}B"


def parse_memory_size(text: str) -> MemorySize:
    """Return the memory size that `text` states in words (w) or in bytes (B, KB, KiB, ...).

    KB is 1000 bytes and KiB is 1024. Raises `IosimError` for a number without a unit, for part of
    a byte, and for a size of nothing.

    >>> parse_memory_size("25600w")
    MemorySize(amount=25600, unit='words')
    >>> parse_memory_size("100KiB").amount, parse_memory_size("192KB").amount
    (102400, 192000)
    """
    stated = text.strip().lower()
    if stated.endswith("w"):
        amount, unit = _parse_words(stated[:-1].rstrip(), text), "words"
    else:
        amount, unit = _parse_bytes(stated, text), "bytes"
    if amount < 1:
        raise IosimError(f"'{text}' holds nothing; the least size is 1w")
    return MemorySize(amount, "words" if unit == "words" else "bytes")


def _parse_words(stated: str, text: str) -> int:
    if not _COUNT.fullmatch(stated):
        raise IosimError(f"'{text}' is not a number of words; write 25600w or 100KiB")
    try:
        return parse_count(stated, minimum=0)
    except IosimError:
        raise _too_large(text) from None


def _parse_bytes(stated: str, text: str) -> int:
    match = _BYTES.fullmatch(stated)
    if not match:
        if _COUNT.fullmatch(stated):
            raise IosimError(f"'{text}' has no unit; write 25600w for words or 100KiB for bytes")
        raise IosimError(f"'{text}' is not a memory size; write 25600w or 100KiB")
    amount = Fraction(_readable(match[1], text)) * _BYTE_UNITS[match[2]]
    if amount > MAX_COUNT:
        raise _too_large(text)
    if amount.denominator != 1:
        raise IosimError(f"'{text}' is not a whole number of bytes; write 25600w or 100KiB")
    return amount.numerator


def format_count(n: int) -> str:
    """Return `n` exactly, its digits in groups of three.

    >>> format_count(272629760)
    '272 629 760'
    """
    return f"{n:,}".replace(",", " ")


def format_bytes(n: int) -> str:
    """Return `n` bytes in the largest binary unit that fits, with the exact number beside it.

    >>> format_bytes(148480)
    '145 KiB (148 480 B)'
    >>> format_bytes(512)
    '512 B'
    """
    exact = f"{format_count(n)} B"
    power = min((abs(n).bit_length() - 1) // 10, 5)
    if power < 1:
        return exact
    return f"{n / 1024**power:.4g} {('KiB', 'MiB', 'GiB', 'TiB', 'PiB')[power - 1]} ({exact})"
