"""Lower bounds: no schedule, shape or memory goes below a bound that claims to hold for it."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from iosim import bounds
from iosim.reading.check import check
from iosim.reading.count import total_words
from iosim.schedule.masks import Butterfly, Documents, LocalGlobal, Random, Window
from iosim.schedule.registry import Family, families
from iosim.schedule.tree import Schedule
from iosim.shape import AttentionShape
from iosim.units import format_count
from iosim.verify.grid import with_ranks
from iosim.verify.registry import Scope, verification
from iosim.verify.result import Check, found, verdict


@verification
def lower_bounds(scope: Scope) -> Iterator[Check]:
    """No schedule moves less than a lower bound that may be claimed for it.

    M is the least that holds the schedule; the gap is traffic / bound.
    """
    passes = sorted({family.direction for family in scope.schedules.values()}, reverse=True)
    records = {name: _Record(name) for each in passes for name in bounds.bounds_of(each)}
    for name, family in scope.schedules.items():
        scope.progress(f"lower bounds: {name}")
        for schedule in schedules(family, scope.thorough):
            checked = check(schedule)
            words = checked.peak_words
            traffic = total_words(schedule)
            for bound in bounds.lower_bounds(schedule.shape, words, checked):
                if bound.holds:
                    records.setdefault(bound.name, _Record(bound.name)).note(
                        schedule, words, traffic, bound.words
                    )
    # Between them the built-in schedules may claim every bound; a few schedules need not.
    whole = families().keys() <= scope.schedules.keys()
    yield from (record.row(whole) for record in records.values())


def shapes(thorough: bool) -> Iterator[AttentionShape]:
    """Yield shapes for which bounds differ: long, short, lopsided, masked, grouped, narrow."""
    for d in (1, 4, 16, 64, 128) if not thorough else (1, 2, 3, 4, 8, 16, 32, 64, 80, 128, 256):
        yield AttentionShape(16, 16, d)
        yield AttentionShape(1024, 1024, d)
        yield AttentionShape(1000, 1000, d, causal=True)
    yield AttentionShape(65536, 65536, 64)
    yield AttentionShape(65536, 65536, 128, causal=True)
    yield AttentionShape(1, 8192, 64)
    yield AttentionShape(100, 3000, 32, value_dim=96)
    yield AttentionShape(3000, 100, 32, value_dim=8)
    yield AttentionShape(300, 1000, 64, causal=True)
    yield AttentionShape(1000, 300, 64, causal=True)
    yield AttentionShape(300, 1000, 64, causal=True, align="top-left")
    yield AttentionShape(512, 512, 64, batch=2, heads=8, kv_heads=2)
    yield AttentionShape(512, 512, 64, heads=8, kv_heads=1, causal=True)
    yield AttentionShape(1000, 1000, 64, mask=Window(100, 0))
    yield AttentionShape(1024, 1024, 64, mask=Random(0.1, 128))
    yield AttentionShape(300, 300, 16, mask=Documents((30, 200, 70)))
    if thorough:
        yield AttentionShape(1000, 3000, 64, mask=Window(256, 256))
        yield AttentionShape(2000, 2000, 32, causal=True, mask=LocalGlobal(128, 0, 4))
        yield AttentionShape(2048, 2048, 64, mask=Butterfly(64))
        yield AttentionShape(2048, 2048, 64, causal=True, mask=Butterfly(100))
        yield AttentionShape(1000, 1000, 16, causal=True, mask=Documents((1, 900, 99)))
        yield AttentionShape(4096, 4096, 64, mask=Random(0.01, 64, seed=1))
        for n_q in (1, 2, 3, 4, 7, 33):
            for n_k in (1, 2, 3, 5, 8, 40):
                for causal in (False, True):
                    yield AttentionShape(n_q, n_k, 3, value_dim=2, causal=causal)


def schedules(family: Family, thorough: bool) -> Iterator[Schedule]:
    """Yield a schedule for each shape and many tiles: narrow and wide, small and all there is."""
    for shape in shapes(thorough):
        sizes: tuple[int, ...] = (1, 2, 7, 32, 256, 1024) if thorough else (1, 7, 64, 512)
        if family.settings and not thorough:
            sizes = (1, 64, 512)  # one more size to choose, as 4 ranks: fewer of the others do
        if not family.tiles:
            yield family.build(shape)
        for br in sizes if family.tiles else ():
            for bc in sizes:
                if br <= 2 * shape.n_q and bc <= 2 * shape.n_k:
                    given = {"br": br, "bc": bc}
                    tiles = {name: given[name] for name in family.tiles}
                    yield family.build(shape, **with_ranks(family, shape, tiles, 4))


@dataclass
class _Record:
    """How one bound fared: how often it was claimed, where traffic came closest to it."""

    name: str
    claimed: int = 0
    gap: float = float("inf")
    at: dict[str, object] = field(default_factory=dict)
    below: list[str] = field(default_factory=list)

    def note(self, schedule: Schedule, words: int, traffic: int, bound: int) -> None:
        if bound < 1:
            return  # a vacuous bound says nothing
        self.claimed += 1
        if traffic / bound < self.gap:
            self.gap = traffic / bound
            self.at = {
                "schedule": schedule.name,
                "case": _case(schedule, words),
                "sram_words": words,
                "traffic_words": traffic,
                "bound_words": bound,
            }
        if traffic < bound:
            self.below.append(
                f"{schedule.name} moves {format_count(traffic)} words, below the "
                f"{format_count(bound)} of the bound ({_case(schedule, words)})"
            )

    def row(self, whole: bool) -> Check:
        """Return the row; a bound that no schedule was held against is no success.

        Where the schedules are not the `whole` of those built in, it is no failure either.
        """
        result = verdict(not self.below) if self.claimed else found(not whole)
        if self.below:
            detail = f"{len(self.below)} of {self.claimed} below, such as {self.below[0]}"
        elif not self.claimed:
            detail = "no schedule of the grid may claim it, so that nothing was checked"
        else:
            detail = (
                f"{format_count(self.claimed)} cases; smallest gap {self.gap:.4f} "
                f"({self.at['schedule']}, {self.at['case']})"
            )
        numbers: dict[str, object] = {
            "bound": self.name,
            "cases": self.claimed,
            "smallest_gap": self.gap,
            "below": len(self.below),
            **self.at,
        }
        return Check("lower_bounds", self.name, result, detail, numbers)


def _case(schedule: Schedule, words: int) -> str:
    shape = schedule.shape
    parts = [f"{shape.n_q} x {shape.n_k}", f"d {shape.head_dim}"]
    if shape.causal:
        parts.append("causal")
    if shape.mask is not None:
        parts.append(str(shape.mask))
    if schedule.tiles:
        parts.append("tiles " + " x ".join(str(size) for size in schedule.tiles.values()))
    if schedule.ranks is not None:
        parts.append(f"{schedule.ranks.count} ranks")
    return ", ".join([*parts, f"M {format_count(words)}"])
