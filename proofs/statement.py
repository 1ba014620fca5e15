r"""What a Coq file states: a theorem's text, and its arithmetic evaluated on numbers.

Only the fragment that the counting theorems use is understood: naturals with + - * /, comparisons,
/\, let, fun and the application of named functions. What a name means is given from outside, so
that the text of a theorem can be held against functions of Python.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iosim.errors import IosimError

FOLDER = Path(__file__).parent / "coq"

Environment = Mapping[str, Any]
Term = Callable[[Environment], Any]

# Names (Nat.min is one), numbers, operators; anything else is a token that no rule accepts.
_TOKEN = re.compile(r"[A-Za-z_][\w']*(?:\.[A-Za-z_][\w']*)*|\d+|<->|->|=>|:=|<=|/\\|\\/|\S")
_THEOREM = re.compile(
    r"^(?:Theorem|Corollary|Lemma|Example)\s+([\w']+)(.*?)\.(?=\s)", re.MULTILINE | re.DOTALL
)
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "<=": lambda a, b: a <= b,
    "<": lambda a, b: a < b,
    "=": lambda a, b: a == b,
}
_OPERATIONS: tuple[dict[str, Callable[[int, int], int]], ...] = (
    {"+": lambda a, b: a + b, "-": lambda a, b: max(a - b, 0)},
    {"*": lambda a, b: a * b, "/": lambda a, b: a // b if b else 0},
)


@dataclass(frozen=True)
class Statement:
    """A theorem of a Coq file: its name, its whole text, its premises and what it claims.

    `premises` and the conjuncts `claims` are parts of the text; a premise `let x := a` is a
    definition for what follows.
    """

    name: str
    text: str
    premises: tuple[str, ...]
    claims: tuple[str, ...]

    @property
    def ranges(self) -> tuple[str, ...]:
        """The premises that compare numbers."""
        return tuple(premise for premise in self.premises if is_arithmetic(premise))

    @property
    def numbers(self) -> tuple[str, ...]:
        """The claims that compare numbers."""
        return tuple(claim for claim in self.claims if is_arithmetic(claim))

    def applies(self, environment: Environment) -> bool:
        """Return whether numbers lie in the range of the theorem."""
        known = self.define(environment)
        return all(evaluate(premise, known) for premise in self.ranges)

    def holds(self, environment: Environment) -> bool:
        """Return whether what the theorem claims about numbers is true of these.

        Raises IosimError where it claims nothing about numbers.
        """
        if not self.numbers:
            raise IosimError(f"{self.name} claims nothing about numbers")
        known = self.define(environment)
        return all(evaluate(claim, known) for claim in self.numbers)

    def define(self, environment: Environment) -> Environment:
        """Return the environment with the definitions that the premises make."""
        known = dict(environment)
        for premise in self.premises:
            if premise.startswith("let "):
                name, value = split(premise.removeprefix("let "), ":=")
                known[name] = evaluate(value, known)
        return known


def statements(file: str) -> dict[str, Statement]:
    """Return the theorems, lemmas and examples of a file of proofs/coq by name.

    Raises IosimError for a file that is not there.

    >>> found = statements("Traffic.v")["flash2_traffic"]
    >>> found.ranges
    ('0 < br', '0 < bc')
    >>> sides(found.numbers[0])[1]
    '2 * nq * d + nq + cdiv nq br * (2 * nk * d)'
    """
    try:
        source = (FOLDER / file).read_text(encoding="utf-8")
    except OSError as error:
        raise IosimError(f"proofs/coq/{file} cannot be read: {error.strerror}") from error
    found = _THEOREM.findall(without_comments(source))
    return {name: _statement(name, " ".join(rest.split())) for name, rest in found}


def without_comments(source: str) -> str:
    """Return Coq source without its comments, which nest.

    >>> without_comments("a (* b (* c *) d *) e")
    'a  e'
    """
    depth, kept = 0, []
    for part in re.split(r"(\(\*|\*\))", source):
        if part == "(*":
            depth += 1
        elif part == "*)":
            depth -= 1
        elif not depth:
            kept.append(part)
    return "".join(kept)


def split(text: str, *separators: str, most: int | None = None) -> list[str]:
    r"""Return the parts of a text between separators that stand outside of brackets.

    >>> split("a (b, c), d", ",")
    ['a (b, c)', 'd']
    """
    depth, start = 0, 0
    parts: list[str] = []
    for token in _TOKEN.finditer(text):
        depth += (token[0] in "([{") - (token[0] in ")]}")
        if token[0] in separators and not depth and (most is None or len(parts) < most):
            parts.append(text[start : token.start()].strip())
            start = token.end()
    return [*parts, text[start:].strip()]


def sides(text: str) -> list[str]:
    """Return what a chain of comparisons compares.

    >>> sides("6 * N <= f N * M <= 40 * N")
    ['6 * N', 'f N * M', '40 * N']
    """
    return split(text, *_COMPARISONS)


def is_arithmetic(text: str) -> bool:
    """Return whether a text compares numbers.

    >>> is_arithmetic("8 * d + 4 <= M <= N * d"), is_arithmetic("valid M (init _) es")
    (True, False)
    """
    try:
        _Parser(text).parse()
    except IosimError:
        return False
    return len(sides(text)) > 1


def evaluate(text: str, environment: Environment) -> Any:
    r"""Return what a text is worth as Coq reads it: a - b is 0 where b > a, and a / 0 is 0.

    Raises IosimError for a text outside of the fragment or a name without a meaning.

    >>> evaluate("2 - 3 + 7 / 2 <= x /\\ x < f x", {"x": 4, "f": lambda x: x + 1})
    True
    """
    return _Parser(text).parse()(environment)


def _statement(name: str, text: str) -> Statement:
    _, body = split(text, ":", most=1)
    premises: list[str] = []
    while True:
        first = body.partition(" ")[0]
        if first in ("forall", "exists"):
            _, body = split(body, ",", most=1)
        elif first == "let":
            definition, body = split(body, "in", most=1)
            premises.append(definition)
        else:
            premise, *rest = split(body, "->", most=1)
            if not rest:
                whole = len(split(body, "<->", "\\/", "exists", "forall")) > 1
                claims = (body,) if whole else tuple(split(body, "/\\"))
                return Statement(name, text, tuple(premises), claims)
            premises.append(premise)
            (body,) = rest


class _Parser:
    """Recursive descent over the tokens of one text, to a function of the environment."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[str] = [*_TOKEN.findall(text), ""]
        self.at = 0

    @property
    def token(self) -> str:
        return self.tokens[self.at]

    def next(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1]

    def refuse(self) -> IosimError:
        return IosimError(f"{self.text!r} is no arithmetic that is understood, at {self.token!r}")

    def parse(self) -> Term:
        term = self.conjunction()
        if self.token:
            raise self.refuse()
        return term

    def conjunction(self) -> Term:
        terms = [self.comparison()]
        while self.token == "/\\":
            self.next()
            terms.append(self.comparison())
        return terms[0] if len(terms) == 1 else lambda known: all(term(known) for term in terms)

    def comparison(self) -> Term:
        terms, tests = [self.operation(0)], []
        while self.token in _COMPARISONS:
            tests.append(_COMPARISONS[self.next()])
            terms.append(self.operation(0))
        if not tests:
            return terms[0]

        def chain(known: Environment) -> bool:
            values = [term(known) for term in terms]
            return all(test(a, b) for test, a, b in zip(tests, values, values[1:], strict=False))

        return chain

    def operation(self, level: int) -> Term:
        if level == len(_OPERATIONS):
            return self.application()
        term = self.operation(level + 1)
        while self.token in _OPERATIONS[level]:
            function = _OPERATIONS[level][self.next()]
            term = _apply(_constant(function), [term, self.operation(level + 1)])
        return term

    def application(self) -> Term:
        head, arguments = self.atom(), []
        while self.token == "(" or self.token[:1].isalnum():
            arguments.append(self.atom())
        return _apply(head, arguments) if arguments else head

    def atom(self) -> Term:
        token = self.token
        if token == "(":
            self.next()
            term = self.function() if self.token == "fun" else self.conjunction()
            if self.token != ")":
                raise self.refuse()
            self.next()
            return term
        if token.isdecimal():
            return _constant(int(self.next()))
        if token[:1].isalpha() and token not in ("fun", "forall", "exists", "let", "in"):
            return _name(self.next())
        raise self.refuse()

    def function(self) -> Term:
        self.next()
        names = []
        while self.token != "=>":
            if not self.token[:1].isalpha():
                raise self.refuse()
            names.append(self.next())
        self.next()
        body = self.conjunction()
        return lambda known: (
            lambda *values: body({**known, **dict(zip(names, values, strict=True))})
        )


def _constant(value: Any) -> Term:
    return lambda known: value


def _name(name: str) -> Term:
    def meaning(known: Environment) -> Any:
        if name not in known:
            raise IosimError(f"{name} has no meaning here")
        return known[name]

    return meaning


def _apply(head: Term, arguments: Sequence[Term]) -> Term:
    return lambda known: head(known)(*(argument(known) for argument in arguments))
