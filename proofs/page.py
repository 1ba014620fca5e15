"""The theorems as a page: what `docs/proofs.md` shows in the place of its markers."""

import re

from iosim.proofs.beyond import BEYOND
from iosim.proofs.statement import FOLDER
from iosim.proofs.theorem import Theorem
from iosim.proofs.theorems import A_TO_E

MARKERS = {"<!-- theorems a to e -->": A_TO_E, "<!-- theorems beyond -->": BEYOND}


def fill(text: str) -> str:
    """Return a page with the records in the place of its markers."""
    for marker, records in MARKERS.items():
        text = text.replace(marker, "\n".join(section(record) for record in records))
    return text


def section(record: Theorem) -> str:
    """Return Markdown for one theorem: its words, then its text as Coq has it.

    >>> from iosim.proofs.theorems import theorem
    >>> print(section(theorem("c-flash2-best-tight")).splitlines()[0])
    ### `flash2_best_tight`
    """
    facts = [f"Hypotheses: {record.hypotheses}."]
    if record.constants:
        facts.append(f"Constants: {', '.join(str(constant) for constant in record.constants)}.")
    facts.append(f"Source: {record.source}{' (new, as far as we know)' if record.new else ''}.")
    if record.bounds:
        facts.append(f"Behind `iosim bound`: {', '.join(record.bounds)}.")
    if record.checks:
        facts.append(f"Behind `iosim verify`: {'; '.join(record.checks)}.")
    if record.also:
        facts.append(f"With it: {', '.join(f'`{name}`' for name in record.also)}.")
    lines = "\n".join(f"- {fact}" for fact in facts)
    return (
        f"### `{record.name}`\n\n{record.statement} In `proofs/coq/{record.file}`:\n\n"
        f"```coq\n{_source(record)}\n```\n\n{lines}\n"
    )


def _source(record: Theorem) -> str:
    """Return the statement with the line breaks of its file."""
    words = [re.escape(word) for word in f"{record.name} {record.coq.text}".split()]
    text = (FOLDER / record.file).read_text(encoding="utf-8")
    match = re.search(r"\w+\s+" + r"\s*".join(words) + r"\.", text)
    return match[0] if match else f"{record.name} {record.coq.text}."
