"""Packed sequences: documents one after the other, each of which sees itself only."""

from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar

from iosim.errors import IosimError
from iosim.schedule.masks.staircase import Staircase, Steps, ramp
from iosim.shape import AttentionShape


@dataclass(frozen=True)
class Documents:
    """Documents of these lengths, in rows; a query sees the keys of its own document.

    In a causal shape it sees those up to its own. Raises IosimError for a length below 1, and for
    a shape whose queries or keys are not as many as the rows of the documents.

    >>> shape = AttentionShape(5, 5, 8, mask=Documents((2, 3)))
    >>> shape.mask.relation(shape).visible(slice(1, 3), slice(0, 5)).tolist()
    [[True, True, False, False, False], [False, False, True, True, True]]
    """

    lengths: tuple[int, ...]
    grain: ClassVar = (1, 1)

    def __post_init__(self) -> None:
        """Refuse documents of no rows."""
        for length in self.lengths:
            if length < 1:
                raise IosimError(f"a document has {length} rows; give at least 1 for each")
        if not self.lengths:
            raise IosimError("there is no document; give the length of at least one")

    def relation(self, shape: AttentionShape) -> Staircase:
        """Return which keys the queries of a shape see."""
        rows = sum(self.lengths)
        if (shape.n_q, shape.n_k) != (rows, rows):
            raise IosimError(
                f"the documents have {rows} rows together, but the shape has {shape.n_q} queries "
                f"and {shape.n_k} keys; all three must be the same"
            )
        ends = list(accumulate(self.lengths))
        starts = [0, *ends[:-1]]
        return Staircase(
            lo=Steps.of([(start, start, 0) for start in starts], rows),
            hi=ramp(rows, 1, rows)
            if shape.causal
            else Steps.of([(s, e, 0) for s, e in zip(starts, ends, strict=True)], rows),
        )

    def __str__(self) -> str:
        """Return the mask as --mask takes it."""
        return f"documents:{','.join(map(str, self.lengths))}"
