"""`iosim claims`: published claims about attention's IO, each recomputed."""

import json
from pathlib import Path

import click

from iosim.cli import options
from iosim.output import table, to_csv, write_text


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
    from iosim.proofs.claims import choose, document, read_ledger, run, show

    results = list(run(choose(read_ledger(), ids)))
    if form == "json":
        text = json.dumps(document(results), indent=2, allow_nan=False) + "\n"
    elif form == "csv":
        text = to_csv(list(show.rows(results)))
    elif details:
        text = "\n".join("".join(f"{line}\n" for line in show.details(each)) for each in results)
    else:
        text = table([show.short(each) for each in results]) + f"\n{show.summary(results)}\n"
    write_text(output, text)
    for each in results:
        if not each.as_recorded:
            click.echo(
                f"{each.claim.id}: found to be {each.verdict}, "
                f"but recorded as {each.claim.verdict}",
                err=True,
            )
    if not all(each.as_recorded for each in results):
        ctx.exit(1)
