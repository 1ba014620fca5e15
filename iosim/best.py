"""The best schedule: of all of one pass, that which moves the fewest words and fits."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from iosim.errors import IosimError
from iosim.report import Candidate, Simulation, simulate
from iosim.schedule.registry import Family, Given, families
from iosim.shape import AttentionShape
from iosim.units import format_count


def best(
    shape: AttentionShape,
    sram_words: int,
    *,
    given: Given | None = None,
    hbm_bytes: int | None = None,
    direction: str = "forward",
    schedules: Mapping[str, Family] | None = None,
) -> Simulation:
    """Return the run of the schedule that moves the fewest words in M = `sram_words` words.

    Every built-in schedule of the pass on one device takes its legal tile of least traffic (`given`
    sizes, in rows, stay); of two that move alike the first in the registry is taken. `among` in the
    result says what the others move, or why they do not fit. Raises IosimError where none fits.

    >>> best(AttentionShape(1024, 1024, 64), 1024).schedule.name
    'square_tiling'
    >>> best(AttentionShape(1024, 1024, 64), 8192).schedule.name
    'flash2'
    """
    known = families(direction) if schedules is None else schedules
    weighed = [
        _weigh(family, shape, sram_words, given or {}, hbm_bytes)
        for family in known.values()
        if "ranks" not in family.settings  # on several devices there is more to weigh than M
    ]
    among = tuple(each.candidate for each in weighed)
    runs = [each.run for each in weighed if each.run is not None]
    if not runs:
        reasons = "; ".join(f"{each.schedule}: {each.reason}" for each in among)
        raise IosimError(
            f"--schedule best finds no schedule that fits in M = {sram_words} "
            f"word{'' if sram_words == 1 else 's'}: {reasons}"
        )
    return replace(min(runs, key=lambda run: run.traffic.total_words), among=among)


def note(chosen: Simulation) -> str:
    """Return which schedule was chosen for what, and on lines of their own what the others move.

    >>> print(note(best(AttentionShape(1024, 1024, 64), 1024)))  # doctest: +ELLIPSIS
    best: square_tiling, 10 162 176 words (n_q = 1 024, n_k = 1 024, d = 64, M = 1 024 words)
      also fit: standard_tiled 13 041 664, flash2 22 545 408, ... flash1 34 519 040
      do not fit: standard (needs 66 624 words), ...
    """
    shape, name = chosen.schedule.shape, chosen.schedule.name
    assert chosen.sram_words is not None
    case = (
        f"n_q = {format_count(shape.n_q)}, n_k = {format_count(shape.n_k)}, "
        f"d = {shape.head_dim}, M = {format_count(chosen.sram_words)} words"
    )
    lines = [f"best: {name}, {format_count(chosen.traffic.total_words)} words ({case})"]
    fitting = sorted((c.total_words, c.schedule) for c in chosen.among if c.total_words is not None)
    others = [f"{other} {format_count(words)}" for words, other in fitting if other != name]
    if others:
        lines.append(f"  also fit: {', '.join(others)}")
    unfit = [f"{c.schedule} ({c.reason})" for c in chosen.among if c.total_words is None]
    if unfit:
        lines.append(f"  do not fit: {', '.join(unfit)}")
    return "\n".join(lines)


@dataclass(frozen=True)
class _Weighed:
    candidate: Candidate
    run: Simulation | None = None


def _weigh(
    family: Family,
    shape: AttentionShape,
    words: int,
    given: Given,
    hbm_bytes: int | None,
) -> _Weighed:
    """Return a schedule with its legal tile of least traffic, or why it takes no part."""
    try:
        run = simulate(family, shape, sram_words=words, given=given, hbm_bytes=hbm_bytes)
    except IosimError as error:
        return _Weighed(Candidate(family.name, None, _short(str(error), family.name)))
    if not run.fits:
        reason = f"needs {format_count(run.checked.peak_words)} words"
        return _Weighed(Candidate(family.name, None, reason))
    return _Weighed(Candidate(family.name, run.traffic.total_words), run)


def _short(error: str, name: str) -> str:
    """Return why a schedule does not take part, without the advice for one that was named."""
    reason, advice, _ = error.removeprefix(f"no tile of {name} fits: ").partition(", but M has ")
    return reason if advice else error.partition("; give ")[0]
