"""Results as objects: what a schedule moves for a shape and a memory, beside the lower bound."""

from dataclasses import dataclass
from typing import Any

from iosim.bounds import Bound, compulsory_words, lower_bound
from iosim.bounds_backward import backward_compulsory_words
from iosim.errors import IosimError
from iosim.interconnect import queries_stay
from iosim.longest import longest
from iosim.reading.check import Checked, check
from iosim.reading.count import count
from iosim.reading.gradients import recomputed_flops
from iosim.reading.slow_memory import SlowMemory, slow_memory
from iosim.reading.steps import critical_path
from iosim.reading.traffic import Traffic
from iosim.reading.walk import Position, section, tile_name, tile_ranges, tile_words
from iosim.schedule.registry import Family, Given
from iosim.schedule.tree import For, Move, Schedule, nodes
from iosim.shape import AttentionShape
from iosim.tiles import Tiles, choose_tiles


@dataclass(frozen=True)
class Candidate:
    """A schedule that was weighed against others: its words where it fits, or why it does not."""

    schedule: str
    total_words: int | None
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the candidate for a record."""
        return {
            "fits": self.total_words is not None,
            "total_words": self.total_words,
            "reason": self.reason or None,
        }


@dataclass(frozen=True)
class Simulation:
    """The traffic of one schedule for one shape, and how far it is from the lower bound.

    `sram_words` is M in words, None where no memory was stated; then `fits` and `bound` are None.
    `bound` is the largest lower bound that may be claimed, None where the schedule does not fit,
    since such a schedule may well go below it. `hbm_bytes` is the size of slow memory, None where
    none was stated, and `longest` the longest sequence it holds (see `iosim.longest`). `among` are
    the schedules from which this one was chosen, itself included; empty where it was named. On
    several devices traffic and bound are of all of them together, and `interconnect` bounds the
    words that pass between them, where such a bound may be claimed.
    """

    schedule: Schedule
    tiles: Tiles
    traffic: Traffic
    checked: Checked
    sram_words: int | None
    fits: bool | None
    bound: Bound | None
    hbm_bytes: int | None = None
    longest: int | None = None
    among: tuple[Candidate, ...] = ()
    interconnect: Bound | None = None

    @property
    def slow_memory(self) -> SlowMemory:
        """What the schedule keeps in slow memory, in words and bytes."""
        return slow_memory(self.schedule)

    @property
    def gap(self) -> float | None:
        """Traffic over the lower bound, both in words."""
        return None if self.bound is None else self.traffic.total_words / self.bound.words

    @property
    def sizes(self) -> dict[str, Any]:
        """The tile sizes, in rows, and the settings, with those that the schedule chose itself."""
        return {**self.tiles.sizes, **self.schedule.tiles}

    @property
    def compulsory_words(self) -> int:
        """The words that must be moved whatever the schedule and the memory."""
        if self.checked.backward:
            return sum(backward_compulsory_words(self.schedule.shape, self.checked.gradients))
        return sum(compulsory_words(self.schedule.shape))

    @property
    def recomputed_flops(self) -> int | None:
        """The FLOPs of a backward pass that form again what was formed before."""
        return recomputed_flops(self.schedule) if self.checked.backward else None

    def to_dict(self) -> dict[str, Any]:
        """Return the record that `iosim simulate` writes: units in the names, plain numbers."""
        sizes = self.sizes
        others = {name: size for name, size in sizes.items() if name not in ("br", "bc")}
        counts = self.traffic.to_dict()
        if not counts["add_words"]:
            del counts["add_words"], counts["add_bytes"]
        tensors = counts.pop("tensors")
        return {
            "schedule": self.schedule.name,
            "pass": "backward" if self.checked.backward else "forward",
            **self.schedule.shape.to_dict(),
            "sram_words": self.sram_words,
            "tile_rule": self.tiles.rule,
            "br": sizes.get("br"),
            "bc": sizes.get("bc"),
            **others,
            **counts,
            **self._of_ranks(),
            "fits": self.fits,
            "fused": self.checked.fused,
            "recomputed_flops": self.recomputed_flops,
            "compulsory_words": self.compulsory_words,
            "bound": None if self.bound is None else self.bound.name,
            "lower_bound_words": None if self.bound is None else self.bound.words,
            "gap": self.gap,
            **self.slow_memory.to_dict(),
            "hbm_bytes": self.hbm_bytes,
            "longest_seq_len": self.longest,
            "tensors": tensors,
            **self._chosen(),
        }

    def _of_ranks(self) -> dict[str, Any]:
        """Return what a record says of several devices: sums over all, and the most of one."""
        shares, traffic = self.traffic.ranks, self.traffic
        if not shares:
            return {}
        flops = max(share.flops for share in shares)
        bound = self.interconnect
        return {
            "ranks": len(shares),
            "interconnect_words": traffic.interconnect_words,
            "interconnect_bytes": traffic.interconnect_bytes,
            "interconnect_send_words": max(share.send_words for share in shares),
            "interconnect_receive_words": max(share.receive_words for share in shares),
            "interconnect_bound_words": None if bound is None else bound.words,
            "rank_total_words": max(share.total_words for share in shares),
            "rank_flops": flops,
            "rank_balance": traffic.flops / (len(shares) * flops),
            "critical_path_flops": critical_path(self.schedule),
        }

    def _chosen(self) -> dict[str, Any]:
        if not self.among:
            return {}
        return {"chosen": True, "chosen_among": {c.schedule: c.to_dict() for c in self.among}}


def simulate(
    family: Family,
    shape: AttentionShape,
    *,
    sram_words: int | None = None,
    rule: str = "best",
    given: Given | None = None,
    hbm_bytes: int | None = None,
) -> Simulation:
    """Return what a schedule moves for a shape and a fast memory of `sram_words` words.

    `given` tile sizes (rows, by name) stay as they are, the others follow `rule` (see
    `choose_tiles`). With `hbm_bytes`, the longest sequence is found too. Raises IosimError where a
    given tile alone is larger than the memory, where no tile fits, or where neither tile sizes nor
    a memory are stated.

    >>> from iosim.schedule import family
    >>> shape = AttentionShape(8192, 8192, 64, heads=8, causal=True)
    >>> found = simulate(family("flash2"), shape, given={"br": 128, "bc": 128})
    >>> found.traffic.read_bytes, found.gap
    (553648128, None)
    """
    tiles = choose_tiles(family, shape, sram_words, rule, given)
    schedule = family.build(shape, **tiles.sizes)
    if sram_words is not None and given:
        _refuse_large_tile(schedule, sram_words, given)
    checked = check(schedule)
    fits = None if sram_words is None else checked.peak_words <= sram_words
    bound = None
    if sram_words is not None and fits:
        bound = lower_bound(shape, sram_words, checked)
    most = None  # on several devices each has a slow memory of its own
    if hbm_bytes is not None and schedule.ranks is None:
        most = longest(family, shape, tiles.sizes, hbm_bytes)
    between = queries_stay(schedule)
    return Simulation(
        schedule,
        tiles,
        count(schedule),
        checked,
        sram_words,
        fits,
        bound,
        hbm_bytes,
        most,
        interconnect=between if between is not None and between.holds else None,
    )


def _refuse_large_tile(schedule: Schedule, words: int, given: Given) -> None:
    """Raise IosimError if one tile of a cut axis is larger than the whole fast memory."""
    for node, loops in nodes(schedule.body):
        position = _first_blocks(loops)
        if not isinstance(node, Move) or not any(
            loop.dim.block in given.values() and node.tensor.has(loop.dim.name) for loop in loops
        ):
            continue
        ranges = tile_ranges(node.tensor, position)
        if tile_words(ranges) > words:
            options = " ".join(f"--{name} {size}" for name, size in given.items())
            raise IosimError(
                f"{options}: tile {tile_name(node.tensor, ranges)} alone needs "
                f"{tile_words(ranges)} words, but M is {words}; give smaller tiles or more memory"
            )


def _first_blocks(loops: tuple[For, ...]) -> Position:
    """Return the position in the first block of each loop."""
    position: Position = {}
    for dim in (loop.dim for loop in loops):
        position[dim.name] = (dim, 0, dim.range(0, section(dim, position)))
        if dim.index:
            position[dim.index] = (dim.numbers(), 0, (0, 1))
    return position
