"""A published number, a recomputed number, and when the two agree."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from types import MappingProxyType
from typing import NamedTuple

from iosim.errors import IosimError
from iosim.units import format_count, unknown

UNITS: Mapping[str, tuple[str, int]] = MappingProxyType(
    {
        "words": ("words", 1),
        "bytes": ("bytes", 1),
        "KB": ("bytes", 1000),
        "MB": ("bytes", 1000**2),
        "GB": ("bytes", 1000**3),
        "FLOPs": ("FLOPs", 1),
        "GFLOPs": ("FLOPs", 1000**3),
        "FLOP/byte": ("FLOP/byte", 1),
        "rows": ("rows", 1),
        "times": ("times", 1),
        "% of M": ("% of M", 1),
        "sizes of M": ("sizes of M", 1),
        "exponent": ("exponent", 1),
        "abs. error": ("abs. error", 1),
        "words/score": ("words/score", 1),
        "FLOPs/(N^2 d)": ("FLOPs/(N^2 d)", 1),
    }
)
"""Each unit that a claim may be published in: what it measures, and how many of those it is."""

RELATIONS = ("equals", "at least", "at most", "order of")


class Number(NamedTuple):
    """A recomputed number in the base unit of its kind: words, bytes, FLOPs, rows, times ..."""

    value: float | Fraction
    unit: str


@dataclass(frozen=True)
class Published:
    """One number of a claim, as printed: "40.3" keeps its three digits.

    `relation` says what the claim is about the quantity: that it "equals" the value to the digits
    printed, is "at least" or "at most" the value, or is of its "order of" magnitude. `within`
    replaces half a unit of the last digit where the value is exact, such as an exponent.
    Raises IosimError for an unknown unit or relation, or a value that is no number.
    """

    quantity: str
    value: str
    unit: str
    relation: str = "equals"
    within: str = ""

    def __post_init__(self) -> None:
        """Refuse what cannot be compared with anything."""
        if self.unit not in UNITS:
            raise IosimError(unknown("unit", self.unit, UNITS))
        if self.relation not in RELATIONS:
            raise IosimError(unknown("relation", self.relation, RELATIONS))
        for text in (self.value, self.within or "0"):
            try:
                finite = Decimal(text).is_finite()
            except InvalidOperation:
                finite = False
            if not finite:
                raise IosimError(f"{self.quantity}: '{text}' is not a number; write 40.3 or 3.30e9")

    @property
    def tolerance(self) -> Fraction:
        """Half a unit of the last digit printed, in the unit printed; or `within`.

        >>> Published("traffic", "40.3", "GB").tolerance
        Fraction(1, 20)
        """
        if self.within:
            return Fraction(self.within)
        exponent = Decimal(self.value).as_tuple().exponent
        assert isinstance(exponent, int)
        return Fraction(10) ** exponent / 2

    def in_unit(self, number: Number, sizes: Mapping[str, int] | None = None) -> Fraction:
        """Return a recomputed number in the unit printed; `sizes` replaces how large a unit is.

        Raises IosimError where the number measures something else: words are never bytes.

        >>> float(Published("traffic", "40.3", "GB").in_unit(Number(40_265_318_400, "bytes")))
        40.2653184
        """
        kind, size = UNITS[self.unit]
        if number.unit != kind:
            raise IosimError(
                f"{self.quantity} is published in {self.unit}, but recomputed in {number.unit}"
            )
        return Fraction(number.value) / (sizes or {}).get(self.unit, size)

    def agrees(self, number: Number, sizes: Mapping[str, int] | None = None) -> bool:
        """Return whether a recomputed number bears out what is printed.

        Equality is to half a unit of the last digit printed. Bounds allow nothing. An order of
        magnitude is within a factor of ten.

        >>> Published("traffic", "40.3", "GB").agrees(Number(40_265_318_400, "bytes"))
        True
        >>> Published("traffic", "40.4", "GB").agrees(Number(40_265_318_400, "bytes"))
        False
        """
        printed, found = Fraction(self.value), self.in_unit(number, sizes)
        if self.relation == "at least":
            return found >= printed
        if self.relation == "at most":
            return found <= printed
        if self.relation == "order of":
            return found > 0 and abs(math.log10(found / printed)) < 1
        return abs(found - printed) <= self.tolerance

    def printed(self) -> tuple[str, str]:
        """Return the number as a table shows it, and its unit: ('<= 64', 'words'), ('N^2', '')."""
        sign = {"equals": "", "at least": ">= ", "at most": "<= ", "order of": "about "}
        printed = Fraction(self.value)
        whole = printed.denominator == 1 and abs(printed) < 10**8
        text = format_count(int(printed)) if whole else self.value
        if self.unit == "exponent":
            return f"{sign[self.relation]}{self.quantity}^{text}", ""
        return sign[self.relation] + text, self.unit

    def shown(self, number: Number, sizes: Mapping[str, int] | None = None) -> tuple[str, str]:
        """Return a recomputed number, with a digit more than is printed, and its unit."""
        found = self.in_unit(number, sizes)
        if self.unit == "exponent":
            return f"{self.quantity}^{float(found):.2f}", ""
        unit = BINARY[self.unit] if sizes and self.unit in sizes else self.unit
        if found.denominator == 1 and abs(found) < 10**8:
            return format_count(int(found)), unit
        digits = max(len(Decimal(self.value).as_tuple().digits) + 1, 3)
        return f"{float(found):.{digits}g}".replace("e-0", "e-").replace("e+0", "e"), unit


BINARY = MappingProxyType({"KB": "KiB", "MB": "MiB", "GB": "GiB"})
"""What a unit is called where it is read as a power of 1024."""
