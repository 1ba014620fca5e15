"""The ledger: records of claims, the run that recomputes them, and the verdict by rule.

The verdict is derived, never read: a claim is out of range where a condition for judging it by
counts does not hold; reproduced where a reading as stated agrees with every number published;
reproduced with stated assumptions where only a reading that assumes something does; refuted
otherwise.
"""

import string
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from inspect import getdoc
from typing import Any

from iosim.errors import IosimError
from iosim.output import SCHEMA
from iosim.proofs.claims.quantity import Published
from iosim.proofs.claims.registry import Reading, Recomputed, recomputations
from iosim.units import format_count, unknown

REPRODUCED = "reproduced"
ASSUMED = "reproduced with stated assumptions"
REFUTED = "refuted"
OUT_OF_RANGE = "out of range"
VERDICTS = (REPRODUCED, ASSUMED, REFUTED, OUT_OF_RANGE)


@dataclass(frozen=True)
class Claim:
    """A published claim, how it is recomputed, and the verdict on record.

    `recompute` names a function of the registry and `inputs` are its arguments: what the claim
    states of its shape, memory and device. `finding` quotes facts of the recomputation in braces.
    Raises IosimError for an empty field or an unknown verdict.
    """

    id: str
    title: str
    source: str
    says: str
    published: tuple[Published, ...]
    recompute: str
    inputs: Mapping[str, Any]
    assumptions: tuple[str, ...]
    verdict: str
    finding: str

    def __post_init__(self) -> None:
        """Refuse a record with a field left open."""
        for name in ("id", "title", "source", "says", "published", "recompute", "finding"):
            if not getattr(self, name):
                raise IosimError(f"claim '{self.id}' has no {name}; every record states it")
        if self.verdict not in VERDICTS:
            raise IosimError(f"claim '{self.id}': {unknown('verdict', self.verdict, VERDICTS)}")
        if self.verdict == ASSUMED and not self.assumptions:
            raise IosimError(f"claim '{self.id}' is {ASSUMED}, but it states none")


@dataclass(frozen=True)
class Result:
    """A claim with what was recomputed, the reading that the verdict rests on, and the verdict."""

    claim: Claim
    recomputed: Recomputed
    reading: Reading
    verdict: str

    @property
    def as_recorded(self) -> bool:
        """Whether the verdict is the one on record."""
        return self.verdict == self.claim.verdict

    @property
    def finding(self) -> str:
        """The finding, with the facts recomputed in their places."""
        return _Facts().vformat(self.claim.finding, (), self.recomputed.facts)


class _Facts(string.Formatter):
    """Format strings whose whole numbers show their digits in groups of three."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, int) and not format_spec:
            return format_count(value)
        return str(super().format_field(value, format_spec))


def load(text: str) -> tuple[Claim, ...]:
    """Return the claims of a ledger in TOML.

    Raises IosimError for text that is no TOML, a record that lacks a field or has one too many,
    and for two records of one id.
    """
    try:
        records = tomllib.loads(text).get("claims", [])
    except tomllib.TOMLDecodeError as error:
        raise IosimError(f"the ledger is not TOML ({error}); mend that line") from error
    claims = tuple(_claim(record) for record in records)
    ids = [claim.id for claim in claims]
    for each in ids:
        if ids.count(each) > 1:
            raise IosimError(f"claim '{each}' is in the ledger twice; give one another id")
    return claims


def _claim(record: Mapping[str, Any]) -> Claim:
    try:
        return Claim(
            **{
                **record,
                "published": tuple(Published(**each) for each in record.get("published", ())),
                "inputs": dict(record.get("inputs", {})),
                "assumptions": tuple(record.get("assumptions", ())),
            }
        )
    except TypeError as error:  # from the constructors: a field missing, or one that is unknown
        name = record.get("id", "without an id")
        raise IosimError(f"claim '{name}' has the wrong fields: {error}") from error


def read_ledger() -> tuple[Claim, ...]:
    """Return the claims of the ledger that comes with iosim."""
    path = resources.files("iosim.proofs.claims").joinpath("claims.toml")
    return load(path.read_text(encoding="utf-8"))


def choose(claims: Sequence[Claim], ids: Iterable[str]) -> tuple[Claim, ...]:
    """Return the claims of these ids in the order of the ledger; all of them for no id.

    Raises IosimError for an unknown id, with the closest one.
    """
    wanted = set(ids)
    known = [claim.id for claim in claims]
    for each in wanted:
        if each not in known:
            raise IosimError(unknown("claim", each, known))
    return tuple(claim for claim in claims if not wanted or claim.id in wanted)


def run(claims: Iterable[Claim]) -> Iterator[Result]:
    """Recompute each claim and yield its result.

    Raises IosimError for a function that is not in the registry (with the closest) and for a
    reading that leaves a published quantity out.
    """
    functions = recomputations()
    for claim in claims:
        if claim.recompute not in functions:
            raise IosimError(unknown("recomputation", claim.recompute, functions))
        recomputed = functions[claim.recompute](**claim.inputs)
        yield Result(claim, recomputed, *judge(claim, recomputed))


def judge(claim: Claim, recomputed: Recomputed) -> tuple[Reading, str]:
    """Return the reading that the verdict rests on and the verdict, by the rule of this module."""
    agreeing = [reading for reading in recomputed.readings if _agrees(claim, reading)]
    if not all(condition.met for condition in recomputed.conditions):
        return recomputed.readings[0], OUT_OF_RANGE
    if not agreeing:
        return recomputed.readings[0], REFUTED
    best = min(agreeing, key=lambda reading: reading.assumed)
    return best, ASSUMED if best.assumed else REPRODUCED


def _agrees(claim: Claim, reading: Reading) -> bool:
    for each in claim.published:
        if each.quantity not in reading.numbers:
            raise IosimError(
                f"claim '{claim.id}': {unknown('quantity', each.quantity, reading.numbers)}"
            )
    return all(
        each.agrees(reading.numbers[each.quantity], reading.sizes) for each in claim.published
    )


def how(claim: Claim) -> str:
    """Return how a claim is recomputed, as the function says it, on one line."""
    return " ".join((getdoc(recomputations()[claim.recompute]) or "").split())


def to_dict(result: Result) -> dict[str, Any]:
    """Return the record of a result for JSON, its numbers in the units of the claim."""
    claim = result.claim
    return {
        "id": claim.id,
        "title": claim.title,
        "source": claim.source,
        "says": claim.says,
        "recompute": claim.recompute,
        "how": how(claim),
        "inputs": dict(claim.inputs),
        "assumptions": list(claim.assumptions),
        "numbers": [
            {
                "quantity": each.quantity,
                "relation": each.relation,
                "published": float(each.value),
                "published_text": each.value,
                "unit": each.unit,
                "readings": [
                    {
                        "about": reading.about,
                        "assumed": reading.assumed,
                        "recomputed": float(
                            each.in_unit(reading.numbers[each.quantity], reading.sizes)
                        ),
                        "agrees": each.agrees(reading.numbers[each.quantity], reading.sizes),
                    }
                    for reading in result.recomputed.readings
                ],
            }
            for each in claim.published
        ],
        "conditions": [
            {"text": condition.text, "met": condition.met}
            for condition in result.recomputed.conditions
        ],
        "verdict": result.verdict,
        "recorded_verdict": claim.verdict,
        "as_recorded": result.as_recorded,
        "finding": result.finding,
    }


def document(results: Sequence[Result]) -> dict[str, Any]:
    """Return the JSON document of results, with the number of its schema."""
    return {"schema": SCHEMA, "records": [to_dict(result) for result in results]}
