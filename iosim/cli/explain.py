"""`iosim explain`: a schedule's listing with the traffic of each line, formula and number."""

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import click

from iosim.cli import options
from iosim.cli.cases import SETTINGS, simulations
from iosim.output import render, write_text
from iosim.reading.extent import pair_meaning
from iosim.reading.formula import Formula, Polynomial, formula
from iosim.reading.steps import critical_path
from iosim.reading.unmet import unmet_words
from iosim.report import Simulation
from iosim.schedule.listing import Line, line_numbers, listing
from iosim.units import format_bytes, format_count


@click.command()
@options.direction
@options.simulation
def explain(direction: str | None, form: str, output: Path | None, **given: Any) -> None:
    """Print a schedule's listing with the traffic of each line.

    Each line that moves anything shows its words by tensor, as a formula and as a number, and its
    share of all words. Words cover batch and heads.
    """
    runs = list(simulations(given, ("flash1",), direction))
    if form == "table":
        text = "\n".join(_page(run) for run in runs)
    else:
        text = render([record for run in runs for record in _records(run)], form)
    write_text(output, text)


def _records(run: Simulation) -> Iterator[dict[str, Any]]:
    """Yield one record per line of the listing."""
    found = formula(run.schedule)
    head = run.to_dict()
    for line in _first_lines(run):
        read, write, add = (found.words(d, line=line.text) for d in ("read", "write", "add"))
        words = found.words(line=line.text).value(found.values)
        sent = found.words("interconnect", line=line.text)
        between = {
            "interconnect_formula": str(sent),
            "interconnect_words": sent.value(found.values),
        }
        yield {
            "schedule": run.schedule.name,
            "line": line.number,
            "depth": line.depth,
            "text": line.text,
            "read_formula": str(read),
            "write_formula": str(write),
            "read_words": read.value(found.values),
            "write_words": write.value(found.values),
            **_added(add, found),
            "share": words / run.traffic.total_words,
            **(between if run.schedule.ranks is not None else {}),
            **{key: head[key] for key in ("n_q", "n_k", "head_dim", "heads", "br", "bc")},
            **{key: head[key] for key in SETTINGS if key in head},
        }


def _added(add: Polynomial, found: Formula) -> dict[str, Any]:
    """Return the part of a record about words added in slow memory, if there are any."""
    if not add.terms:
        return {}
    return {"add_formula": str(add), "add_words": add.value(found.values)}


def _first_lines(run: Simulation) -> Iterator[Line]:
    """Yield the lines of the listing; of lines of one text the first, which has the words."""
    seen = set()
    for line in listing(run.schedule):
        if line.text not in seen:
            seen.add(line.text)
            yield line


def _page(run: Simulation) -> str:
    found = formula(run.schedule)
    parts = [_heading(run), ""]
    first = set(_first_lines(run))
    numbers = line_numbers(run.schedule)
    for line in listing(run.schedule):
        parts.append(f"{line.number:3d}  {'  ' * line.depth}{line.text}")
        moves = list(_moves(run, found, line))
        if moves and line not in first:
            moves = [f"{_indent(line)}counted at line {numbers[line.text]}, which reads the same"]
        parts += moves
    parts += ["", *_totals(run, found), "", "where", *_legend(found)]
    return "\n".join(parts) + "\n"


def _heading(run: Simulation) -> str:
    shape = run.schedule.shape
    sizes = ", ".join(f"{_TILE_NAMES.get(n, n)} = {s}" for n, s in run.sizes.items())
    mask = f", causal ({shape.align})" if shape.causal else ""
    if shape.mask is not None:
        mask += f", mask {shape.mask}"
    if shape.dropout:
        mask += f", dropout {shape.dropout:g}"
    return (
        f"{run.schedule.name}: n_q = {shape.n_q}, n_k = {shape.n_k}, d = {shape.head_dim}, "
        f"batch {shape.batch}, heads {shape.heads} (of keys and values {shape.kv_heads}), "
        f"{shape.dtype}{mask}{', ' if sizes else ''}{sizes}"
    )


_TILE_NAMES = {"br": "B_r", "bc": "B_c", "page_size": "page size", "ranks": "p"}
_VERBS = {"read": "reads", "write": "writes", "add": "adds to", "interconnect": "sends"}


def _indent(line: Line) -> str:
    return " " * (7 + 2 * line.depth)


def _moves(run: Simulation, found: Formula, line: Line) -> Iterator[str]:
    """Yield what a line moves: by tensor, and together where it is more than one."""
    entries = [entry for entry in found.entries if entry.line == line.text]
    indent = _indent(line)
    for entry in entries:
        words = entry.words.value(found.values)
        yield f"{indent}{_VERBS[entry.direction]} {entry.tensor}: {_equation(entry.words, words)}"
    for between in (True, False):
        some = [entry for entry in entries if (entry.direction == "interconnect") == between]
        if not some:
            continue
        together = sum((entry.words for entry in some), Polynomial({}))
        words = together.value(found.values)
        whole = run.traffic.interconnect_words if between else run.traffic.total_words
        share = f"{100 * words / whole:.1f} % of all words{' between devices' if between else ''}"
        if len(some) > 1:
            yield f"{indent}together {_equation(together, words)}, {share}"
        else:
            yield f"{indent}{share}"
        unmet = unmet_words(run.schedule).get(line.text, 0)
        if unmet:
            yield f"{indent}{format_count(unmet)} of these words are of tiles that the mask hides"


def _equation(formula: Polynomial, words: int) -> str:
    """Return a formula with its value; a number is its own formula."""
    value = f"{format_count(words)} {'word' if words == 1 else 'words'}"
    return value if str(formula) == str(words) else f"{formula} = {value}"


def _totals(run: Simulation, found: Formula) -> Iterator[str]:
    traffic = run.traffic
    for name, verb in (("read", "reads"), ("write", "writes"), ("add", "adds")):
        polynomial = found.words(name)
        if polynomial.terms:
            words, size = getattr(traffic, f"{name}_words"), getattr(traffic, f"{name}_bytes")
            yield f"{verb} {polynomial} = {format_count(words)} words, {format_bytes(size)}"
    yield f"in all {format_count(traffic.total_words)} words, {format_bytes(traffic.total_bytes)}"
    yield from _between_devices(run, found)
    peak = f"holds at most {format_count(traffic.peak_words)} words"
    if run.sram_words is not None:
        verdict = "fits" if run.fits else "does not fit"
        peak += f", which {verdict} in M = {format_count(run.sram_words)} words"
    yield peak
    if run.bound is not None:
        yield (
            f"lower bound ({run.bound.name}) {format_count(run.bound.words)} words: "
            f"{run.gap:.3f} times that"
        )


def _between_devices(run: Simulation, found: Formula) -> Iterator[str]:
    shares, traffic = run.traffic.ranks, run.traffic
    if not shares:
        return
    yield (
        f"sends between devices {found.words('interconnect')} = "
        f"{format_count(traffic.interconnect_words)} words, "
        f"{format_bytes(traffic.interconnect_bytes)}"
    )
    sent, received, moved = (
        format_count(max(getattr(share, f"{way}_words") for share in shares))
        for way in ("send", "receive", "total")
    )
    yield f"a device sends at most {sent} words, receives {received}, and reads and writes {moved}"
    words, flops = (
        format_count(round(Fraction(of_all, len(shares))))
        for of_all in (traffic.total_words, traffic.flops)
    )
    yield (
        f"a device computes at most {format_count(max(share.flops for share in shares))} FLOPs; "
        f"on average it reads and writes {words} words and computes {flops} FLOPs"
    )
    yield (
        "critical path: the busiest device of each step computes "
        f"{format_count(critical_path(run.schedule))} FLOPs in all"
    )
    if run.interconnect is not None:
        yield (
            f"lower bound between devices ({run.interconnect.name}) "
            f"{format_count(run.interconnect.words)} words"
        )


def _legend(found: Formula) -> Iterator[str]:
    for symbol, value in found.legend().items():
        base = symbol.removesuffix("_p")
        meaning = pair_meaning(symbol) or _SYMBOLS.get(base, "")
        meaning += ", on each rank" if base != symbol else ""
        yield f"  {symbol} = {format_count(value)}{'  ' if meaning else ''}{meaning}"


_SYMBOLS = {
    "p": "ranks",
    "p_o": "other ranks, p - 1",
    "p_r": "rounds of pairwise exchanges, log2 p",
    "b": "sequences in the batch",
    "h_kv": "heads of keys and values",
    "g": "query heads for each of them",
    "T_r": "tiles of queries, ceil(n_q / B_r)",
    "T_c": "tiles of keys, ceil(n_k / B_c)",
    "T_v": "tiles of value columns",
    "T_g": "tiles of query heads of a group, ceil(g / heads in a tile)",
    "T_p": "pages",
    "s": "splits that are not empty",
    "n_q": "queries",
    "n_k": "keys",
    "d": "words of a row",
    "d_v": "words of a row of V and O",
}
