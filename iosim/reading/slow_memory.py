"""Slow memory: what a schedule keeps there, in words and bytes: inputs, outputs and the extra.

Every tensor that moves has a place of its own for all of the batch and all heads at once, as an
execution gives it. Nothing is counted as reusing the place of something dead: an implementation
that writes P over S, or takes one head after the other, needs less.
"""

from dataclasses import dataclass
from math import prod
from typing import Any

from iosim.schedule.tree import Move, Schedule, Tensor, nodes
from iosim.units import ITEM_BYTES


@dataclass(frozen=True)
class SlowMemory:
    """Words and bytes in slow memory, over batch and heads; bytes by each tensor's own item size.

    `extra` are the tensors that are neither inputs nor outputs (S, P, statistics, partial results),
    `kept` those outputs that hold at most one number a row (LSE, the random state) and are kept for
    a backward pass; they are part of the outputs. `extra_tensors` maps each extra tensor to its
    words.
    """

    input_bytes: int
    output_bytes: int
    kept_words: int
    kept_bytes: int
    extra_words: int
    extra_bytes: int
    extra_tensors: dict[str, int]

    @property
    def total_bytes(self) -> int:
        """Bytes of inputs, outputs and extra together."""
        return self.input_bytes + self.output_bytes + self.extra_bytes

    def to_dict(self) -> dict[str, Any]:
        """Return the sizes with units in their names."""
        return {
            "slow_input_bytes": self.input_bytes,
            "slow_output_bytes": self.output_bytes,
            "kept_slow_words": self.kept_words,
            "kept_slow_bytes": self.kept_bytes,
            "extra_slow_words": self.extra_words,
            "extra_slow_bytes": self.extra_bytes,
            "slow_bytes": self.total_bytes,
        }


def slow_memory(schedule: Schedule) -> SlowMemory:
    """Return what a schedule keeps in slow memory, read off the tensors that it moves.

    >>> from iosim.schedule import family
    >>> from iosim.shape import AttentionShape
    >>> shape = AttentionShape(1024, 1024, 64)
    >>> standard = slow_memory(family("standard").build(shape))
    >>> standard.extra_tensors, standard.extra_bytes
    ({'S': 1048576, 'P': 1048576}, 4194304)
    >>> flash2 = slow_memory(family("flash2").build(shape, br=64, bc=64))
    >>> flash2.extra_words, flash2.kept_words, flash2.kept_bytes
    (0, 1024, 4096)
    """
    moved = {
        node.tensor.name: node.tensor
        for node, _ in nodes(schedule.body)
        if isinstance(node, Move) and node.kind in ("load", "store", "add")
    }
    extra = {name: _words(tensor) for name, tensor in moved.items() if tensor.place == "slow"}
    kept = [tensor for tensor in moved.values() if tensor.place == "output" and _narrow(tensor)]
    return SlowMemory(
        input_bytes=sum(_bytes(t) for t in moved.values() if t.place == "input"),
        output_bytes=sum(_bytes(t) for t in moved.values() if t.place == "output"),
        kept_words=sum(map(_words, kept)),
        kept_bytes=sum(map(_bytes, kept)),
        extra_words=sum(extra.values()),
        extra_bytes=sum(_bytes(moved[name]) for name in extra),
        extra_tensors=extra,
    )


def _words(tensor: Tensor) -> int:
    return prod(dim.n for dim in tensor.axes)


def _bytes(tensor: Tensor) -> int:
    return _words(tensor) * ITEM_BYTES[tensor.dtype]


def _narrow(tensor: Tensor) -> bool:
    """Return whether a tensor has one number a row: a statistic, not a matrix."""
    return not (tensor.has("dim") or tensor.has("value"))
