"""Results as people read them: a row of a table, a page of sentences, rows of CSV."""

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence

from iosim.proofs.claims.ledger import VERDICTS, Result, how

WIDTH = 100


def short(result: Result) -> dict[str, object]:
    """Return the row of a result in a table."""
    claim, reading = result.claim, result.reading
    return {
        "id": claim.id,
        "claim": claim.title,
        "published": _joined(each.printed() for each in claim.published),
        "recomputed": _joined(
            each.shown(reading.numbers[each.quantity], reading.sizes) for each in claim.published
        ),
        "verdict": result.verdict,
    }


def _joined(numbers: Iterable[tuple[str, str]]) -> str:
    """Return numbers in a row, each once, a unit once for neighbours that share it.

    >>> _joined([("2.68e8", "words"), ("1.116e9", "words"), ("499", "rows"), ("N^2", "")])
    '2.68e8, 1.116e9 words, 499 rows, N^2'
    """
    once = list(dict.fromkeys(numbers))
    following = [unit for _, unit in once[1:]] + [""]
    return ", ".join(
        number if unit == after else f"{number} {unit}"
        for (number, unit), after in zip(once, following, strict=True)
    )


def summary(results: Sequence[Result]) -> str:
    """Return how many claims there are of each verdict, and how many as recorded."""
    found = [each.verdict for each in results]
    counts = ", ".join(f"{found.count(each)} {each}" for each in VERDICTS if each in found)
    same = sum(each.as_recorded for each in results)
    return f"{len(results)} claims: {counts}; {same} as recorded"


def details(result: Result) -> Iterator[str]:
    """Yield the lines that explain a result in sentences."""
    claim = result.claim
    yield f"{claim.id}: {claim.title}"
    inputs = ", ".join(f"{name} {value}" for name, value in claim.inputs.items())
    parts = [
        ("Source", claim.source + "."),
        ("It says", claim.says),
        *(("Assumed", each) for each in claim.assumptions),
        ("Recomputed by", f"{claim.recompute} ({inputs}). {how(claim)}"),
        *(("Reading", line) for line in _readings(result)),
        *(
            ("Condition", f"{each.text}: {'met' if each.met else 'not met'}.")
            for each in result.recomputed.conditions
        ),
        ("Verdict", result.verdict + ("." if result.as_recorded else ", not as recorded.")),
        ("Finding", result.finding),
    ]
    for name, text in parts:
        held = re.sub(r"(?<=\d) (?=\d{3})", "\xa0", f"{name}: {text}")  # 33 856 stays together
        for line in textwrap.wrap(held, WIDTH, initial_indent="  ", subsequent_indent="    "):
            yield line.replace("\xa0", " ")


def _readings(result: Result) -> Iterator[str]:
    for reading in result.recomputed.readings:
        numbers = "; ".join(
            f"{each.quantity}: {_joined([each.printed()])} published, "
            f"{_joined([each.shown(reading.numbers[each.quantity], reading.sizes)])} recomputed"
            for each in result.claim.published
        )
        kind = "with the assumptions" if reading.assumed else "as stated"
        yield f"{kind}, {reading.about}. {numbers}."


def rows(results: Iterable[Result]) -> Iterator[dict[str, object]]:
    """Yield a flat record for each published number, with the reading the verdict rests on."""
    for result in results:
        claim, reading = result.claim, result.reading
        for each in claim.published:
            number = reading.numbers[each.quantity]
            yield {
                "id": claim.id,
                "title": claim.title,
                "quantity": each.quantity,
                "relation": each.relation,
                "published": each.value,
                "recomputed": float(each.in_unit(number, reading.sizes)),
                "unit": each.unit,
                "agrees": each.agrees(number, reading.sizes),
                "verdict": result.verdict,
                "recorded_verdict": claim.verdict,
                "source": claim.source,
                "says": claim.says,
                "assumptions": " ".join(claim.assumptions),
                "recompute": claim.recompute,
                "finding": result.finding,
            }
