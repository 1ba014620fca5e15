"""Formula: the traffic of a schedule as a readable closed form, derived from the tree.

A formula is a sum of products of symbols (n_q, n_k, d, T_r, T_c, ...), each with its value for the
shape at hand, so that it prints as algebra and evaluates to the count.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

from iosim.errors import ScheduleError
from iosim.reading.extent import factors, pair_meaning
from iosim.reading.traffic import COUNTED, DIRECTIONS
from iosim.schedule.tree import Move, Schedule, nodes

Symbols = tuple[str, ...]

# Ranks first, then batch and heads, then how often, then how many rows, then how wide.
_ORDER = (
    *("p", "p_o", "p_r", "b", "h_kv", "T_g", "g", "X", "T_r", "s", "T_p", "T_c", "T_d", "T_v"),
    *("n_q", "n_k", "d", "d_v"),
)


def _rank(symbol: str) -> tuple[int, str]:
    kind = "X" if pair_meaning(symbol) else symbol.removesuffix("_p")
    return (_ORDER.index(kind) if kind in _ORDER else len(_ORDER), symbol)


@dataclass(frozen=True)
class Polynomial:
    """A sum of terms: whole coefficients by the sorted symbols they multiply.

    >>> print(Polynomial({("T_c", "n_q"): 2, ("T_c", "n_q", "d"): 2}))
    T_c n_q (2 d + 2)
    """

    terms: Mapping[Symbols, int]

    def __add__(self, other: "Polynomial") -> "Polynomial":
        """Return the sum, terms of the same symbols merged."""
        terms = dict(self.terms)
        for symbols, coefficient in other.terms.items():
            terms[symbols] = terms.get(symbols, 0) + coefficient
        return Polynomial(terms)

    def value(self, values: Mapping[str, int]) -> int:
        """Return the value where each symbol has the value given."""
        return sum(c * prod(values[s] for s in symbols) for symbols, c in self.terms.items())

    def __str__(self) -> str:
        """Return the sum with its common symbols taken out in front; 0 for an empty one."""
        if not self.terms:
            return "0"
        common = _common(self.terms)
        inner = {_without(symbols, common): c for symbols, c in self.terms.items()}
        if common and len(inner) > 1:
            return f"{' '.join(common)} ({_sum(inner)})"
        return _sum(self.terms)


def _common(terms: Iterable[Symbols]) -> Symbols:
    common, *rest = (Counter(symbols) for symbols in terms)
    for other in rest:
        common &= other
    return tuple(sorted(common.elements(), key=_rank))


def _without(symbols: Symbols, taken: Symbols) -> Symbols:
    left = list(symbols)
    for symbol in taken:
        left.remove(symbol)
    return tuple(left)


def _sum(terms: Mapping[Symbols, int]) -> str:
    order = sorted(terms, key=lambda symbols: (-len(symbols), [_rank(s) for s in symbols]))
    return " + ".join(_term(terms[symbols], symbols) for symbols in order)


def _term(coefficient: int, symbols: Symbols) -> str:
    parts = list(symbols)
    if coefficient != 1 or not parts:
        parts.insert(0, str(coefficient))
    return " ".join(parts)


@dataclass(frozen=True)
class Entry:
    """The words that one line moves of one tensor in one direction.

    That is read, write, add, or interconnect: sent by one rank and received by another.
    """

    line: str
    tensor: str
    direction: str
    words: Polynomial


@dataclass(frozen=True)
class Formula:
    """The traffic of a schedule in words as polynomials, with the values of their symbols."""

    entries: tuple[Entry, ...]
    values: Mapping[str, int]

    def words(self, direction: str = "", *, tensor: str = "", line: str = "") -> Polynomial:
        """Return the words moved in one direction, of one tensor, on one line; of all by default.

        Words over the interconnect of several devices count where `direction` asks for them only.

        >>> from iosim.schedule import family
        >>> from iosim.shape import AttentionShape
        >>> flash1 = family("flash1").build(AttentionShape(1000, 1000, 64), br=64, bc=100)
        >>> print(formula(flash1).words("read", line="load Q_i, O_i, l_i, m_i"))
        T_c n_q (2 d + 2)
        """
        total = Polynomial({})
        for entry in self.entries:
            if (
                (
                    entry.direction in DIRECTIONS.values()
                    if not direction
                    else direction == entry.direction
                )
                and tensor in ("", entry.tensor)
                and line in ("", entry.line)
            ):
                total += entry.words
        return total

    def value(self, direction: str = "") -> int:
        """Return the words moved in one direction (all by default) as a number."""
        return self.words(direction).value(self.values)

    def legend(self) -> dict[str, int]:
        """Return the value of each symbol used, in the order in which formulas show them."""
        used = {s for entry in self.entries for symbols in entry.words.terms for s in symbols}
        return {symbol: self.values[symbol] for symbol in sorted(used, key=_rank)}


def formula(schedule: Schedule) -> Formula:
    """Return the closed form of a schedule's traffic in words, over batch and heads.

    Raises ScheduleError where one symbol would have two values.

    >>> from iosim.schedule import family
    >>> from iosim.shape import AttentionShape
    >>> found = formula(family("flash2").build(AttentionShape(1000, 1000, 64), br=128, bc=128))
    >>> print(found.words("read"), "=", found.value("read"))
    d (2 T_r n_k + n_q) = 1088000
    """
    moved: dict[tuple[str, str, str], Polynomial] = {}
    values: dict[str, int] = {}
    for node, loops in nodes(schedule.body):
        if not isinstance(node, Move) or node.kind not in COUNTED:
            continue
        found = factors(node.tensor.axes, loops)
        for factor in found:
            if values.setdefault(factor.symbol, factor.value) != factor.value:
                raise ScheduleError(
                    f"symbol {factor.symbol!r} stands for {values[factor.symbol]} and for "
                    f"{factor.value} in one schedule; give one of the axes a symbol of its own"
                )
        words = Polynomial({tuple(sorted((f.symbol for f in found), key=_rank)): 1})
        key = (node.line, node.tensor.name, COUNTED[node.kind])
        moved[key] = moved[key] + words if key in moved else words
    return Formula(tuple(Entry(*key, words) for key, words in moved.items()), values)
