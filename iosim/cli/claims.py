"""`iosim claims`: published claims about attention's IO, each recomputed."""

import json
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from iosim.cli import options
from iosim.output import table, to_csv, write_text

if TYPE_CHECKING:
    from iosim.proofs.claims import Result

WIDTH = 100


@click.command()
@click.option("--id", "ids", multiple=True, metavar="ID", help="Only this claim; repeat for more.")
@click.option(
    "--details", is_flag=True, help="Print source, assumptions, how recomputed and finding."
)
@options.results
@click.pass_context
def claims(
    ctx: click.Context, ids: tuple[str, ...], details: bool, form: str, output: Path | None
) -> None:
    """Recompute published claims and compare the verdicts.

    Each claim of the ledger is recomputed by a call into iosim and judged by the digits printed:
    reproduced, reproduced with stated assumptions, refuted, or out of range. The exit code is 1
    when a verdict differs from the one on record.
    """
    from iosim.proofs.claims import choose, read_ledger, run

    results = list(run(choose(read_ledger(), ids)))
    if form == "json":
        from iosim.proofs.claims.ledger import document

        text = json.dumps(document(results), indent=2, allow_nan=False) + "\n"
    elif form == "csv":
        text = to_csv(list(_rows(results)))
    elif details:
        text = "\n".join("".join(f"{line}\n" for line in _details(each)) for each in results)
    else:
        text = table([_short(each) for each in results]) + f"\n{_summary(results)}\n"
    write_text(output, text)
    for each in results:
        if not each.as_recorded:
            click.echo(
                f"{each.claim.id}: found to be {each.verdict}, but recorded as "
                f"{each.claim.verdict}",
                err=True,
            )
    if not all(each.as_recorded for each in results):
        ctx.exit(1)


def _short(result: "Result") -> dict[str, object]:
    claim, reading = result.claim, result.reading
    return {
        "id": claim.id,
        "claim": claim.title,
        "published": "; ".join(str(each) for each in claim.published),
        "recomputed": "; ".join(
            dict.fromkeys(
                each.shown(reading.numbers[each.quantity], reading.sizes)
                for each in claim.published
            )
        ),
        "verdict": result.verdict,
    }


def _summary(results: Sequence["Result"]) -> str:
    from iosim.proofs.claims.ledger import VERDICTS

    found = [each.verdict for each in results]
    counts = ", ".join(f"{found.count(each)} {each}" for each in VERDICTS if each in found)
    same = sum(each.as_recorded for each in results)
    return f"{len(results)} claims: {counts}; {same} as recorded"


def _details(result: "Result") -> Iterator[str]:
    from iosim.proofs.claims.ledger import how

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
        yield from textwrap.wrap(
            f"{name}: {text}", WIDTH, initial_indent="  ", subsequent_indent="    "
        )


def _readings(result: "Result") -> Iterator[str]:
    for reading in result.recomputed.readings:
        numbers = "; ".join(
            f"{each.quantity}: {each} published, "
            f"{each.shown(reading.numbers[each.quantity], reading.sizes)} recomputed"
            for each in result.claim.published
        )
        kind = "with the assumptions" if reading.assumed else "as stated"
        yield f"{kind}, {reading.about}. {numbers}."


def _rows(results: Sequence["Result"]) -> Iterator[dict[str, object]]:
    """Yield a row for each published number, with the reading that the verdict rests on."""
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
