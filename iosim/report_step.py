"""A training step as a result: what the forward and the backward pass move together."""

from dataclasses import dataclass
from typing import Any

from iosim.reading.count import total_words
from iosim.reading.traffic import Words
from iosim.report import Simulation
from iosim.schedule.registry import family

SUMS = ("read_words", "write_words", "total_words", "read_bytes", "write_bytes", "total_bytes")


@dataclass(frozen=True)
class Step:
    """A forward and a backward pass of one shape in one memory; every count is their sum.

    The lower bound is the sum of those of the passes: it holds for two passes that share nothing
    in fast memory.
    """

    forward: Simulation
    backward: Simulation

    @property
    def total_words(self) -> int:
        """Words that both passes move."""
        return self.forward.traffic.total_words + self.backward.traffic.total_words

    @property
    def lower_bound_words(self) -> int | None:
        """The sum of the passes' lower bounds, None where one of them has none."""
        if self.forward.bound is None or self.backward.bound is None:
            return None
        return self.forward.bound.words + self.backward.bound.words

    @property
    def saved_words(self) -> int:
        """The words that standard attention, which stores P and reads it, moves beyond these.

        Negative where it moves fewer.
        """
        shape = self.forward.schedule.shape
        names = ("standard", "standard_backward")
        return sum(total_words(family(name).build(shape)) for name in names) - self.total_words

    def to_dict(self) -> dict[str, Any]:
        """Return the record that `iosim simulate --pass both` writes after those of the passes."""
        passes = (self.forward, self.backward)
        bound = self.lower_bound_words
        counts = {
            name: sum(getattr(each.traffic, name) for each in passes)
            for name in (*SUMS, *(("add_words", "add_bytes") if self._adds else ()))
        }
        return {
            "schedule": " + ".join(each.schedule.name for each in passes),
            "pass": "both",
            **self.forward.schedule.shape.to_dict(),
            "sram_words": self.forward.sram_words,
            "tile_rule": self.forward.tiles.rule,
            "br": None,
            "bc": None,
            **counts,
            "peak_words": max(each.traffic.peak_words for each in passes),
            "peak_bytes": max(each.traffic.peak_bytes for each in passes),
            "flops": sum(each.traffic.flops for each in passes),
            "fits": None if self.forward.fits is None else all(each.fits for each in passes),
            "fused": all(each.checked.fused for each in passes),
            "recomputed_flops": self.backward.recomputed_flops,
            "saved_words": self.saved_words,
            "compulsory_words": sum(each.compulsory_words for each in passes),
            "bound": None
            if self.forward.bound is None or self.backward.bound is None
            else f"{self.forward.bound.name} + {self.backward.bound.name}",
            "lower_bound_words": bound,
            "gap": None if bound is None else self.total_words / bound,
            "tensors": self._tensors(),
        }

    @property
    def _adds(self) -> bool:
        return any(each.traffic.add_words for each in (self.forward, self.backward))

    def _tensors(self) -> dict[str, dict[str, int]]:
        """Return the words of each tensor in both passes."""
        found: dict[str, Words] = {}
        for each in (self.forward, self.backward):
            for name, words in each.traffic.tensors.items():
                before = found.get(name, Words())
                found[name] = Words(
                    before.read + words.read, before.write + words.write, before.add + words.add
                )
        return {name: words.to_dict() for name, words in found.items()}
