"""A window, and a few tokens at the beginning that see all and are seen by all."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from iosim.errors import IosimError
from iosim.schedule.cuts import Cut
from iosim.schedule.masks.staircase import Staircase, Steps, ramp, samples
from iosim.schedule.masks.window import Window
from iosim.schedule.relation import PairSums, Part, Rows, joined
from iosim.schedule.tree import Dim
from iosim.shape import AttentionShape


@dataclass(frozen=True)
class LocalGlobal:
    """A window of `left` and `right` keys, and `tokens` first rows that see and are seen by all.

    The pattern of Longformer (Beltagy et al. 2020, arXiv 2004.05150) with its global tokens in
    front; in a causal shape, a window with attention sinks. Raises IosimError for an extent below
    0 and for no token.

    >>> shape = AttentionShape(5, 5, 8, mask=LocalGlobal(1, 1, tokens=1))
    >>> shape.mask.relation(shape).visible(slice(3, 4), slice(0, 5)).tolist()
    [[True, False, True, True, True]]
    """

    left: int
    right: int
    tokens: int
    grain: ClassVar = (1, 1)

    def __post_init__(self) -> None:
        """Refuse extents that are none, and a window without global tokens."""
        Window(self.left, self.right)
        if self.tokens < 1:
            raise IosimError(f"a mask has {self.tokens} global tokens; give at least 1")

    def relation(self, shape: AttentionShape) -> "Parts":
        """Return which keys the queries of a shape see."""
        right = 0 if shape.causal else self.right
        tokens = self.tokens, self.tokens
        return Parts(self.left, right, *tokens, shape.causal_offset, shape.causal)

    def __str__(self) -> str:
        """Return the mask as --mask takes it."""
        return f"local+global:{self.left},{self.right},global={self.tokens}"


@dataclass(frozen=True)
class Parts:
    """The pairs of `LocalGlobal`, as staircases of blocks that do not overlap."""

    left: int
    right: int
    global_queries: int
    global_keys: int
    offset: int
    causal: bool
    query: str = "query"
    key: str = "key"

    def _parts(self, query: Dim, key: Dim) -> tuple[Staircase, ...]:
        """Return the blocks of global keys, and of the rest those of global queries and others."""
        n_q, n_k = query.n, key.n
        rows = _block_end(query, self.global_queries)
        columns = _block_end(key, self.global_keys)
        diagonal = ramp(n_q, self.offset + 1, n_k)
        all_keys = diagonal if self.causal else Steps.of([(0, n_k, 0)], n_q)
        nothing = Steps.of([(0, 0, 0)], n_q)
        rest = all_keys.clip(columns, n_k)
        low = ramp(n_q, self.offset - self.left, n_k).clip(columns, n_k)
        high = ramp(n_q, self.offset + self.right + 1, n_k).clip(columns, n_k)
        names = (self.query, self.key)
        return (
            Staircase(nothing, all_keys.clip(0, columns), *names),
            Staircase(nothing.clip(columns, n_k).until(rows), rest.until(rows), *names),
            Staircase(low.since(rows), high.since(rows), *names),
        )

    def key_range(self, query: Dim, key: Dim, i: int) -> Sequence[int]:
        """Return the key blocks that query block i meets."""
        return joined(part.key_range(query, key, i) for part in self._parts(query, key))

    def query_range(self, query: Dim, key: Dim, j: int) -> Sequence[int]:
        """Return the query blocks that key block j meets."""
        return joined(part.query_range(query, key, j) for part in self._parts(query, key))

    def sums(self, query: Dim, key: Dim) -> PairSums:
        """Return the sums over all visited block pairs."""
        return sum((part.sums(query, key) for part in self._parts(query, key)), PairSums())

    def sums_in(self, query: Dim, key: Dim, parts: Sequence[Part]) -> list[PairSums]:
        """Return the sums over the visited pairs of blocks in each part."""
        found = [part.sums_in(query, key, parts) for part in self._parts(query, key)]
        return [sum(each, PairSums()) for each in zip(*found, strict=True)]

    def samples(self, query: Dim, key: Dim) -> tuple[list[int], list[int]]:
        """Return query blocks and key blocks among which each kind of block is found."""
        parts = self._parts(query, key)
        other = [part.transposed(key.n) for part in parts]
        return samples(parts, query, key), samples(other, key, query)

    def visible(self, queries: slice, keys: slice) -> np.ndarray | None:
        """Return which queries see which keys as booleans; None when all see all."""
        rows = np.arange(queries.start, queries.stop)[:, None]
        columns = np.arange(keys.start, keys.stop)[None, :]
        own = rows + self.offset
        near = (columns >= own - self.left) & (columns <= own + self.right)
        found = near | (columns < self.global_keys) | (rows < self.global_queries)
        if self.causal:
            found &= columns <= own
        return None if found.all() else found

    def within(self, queries: Rows, keys: Rows) -> "Parts":
        """Return the relation of these query rows to these key rows."""
        return replace(
            self,
            global_queries=max(self.global_queries - queries[0], 0),
            global_keys=max(self.global_keys - keys[0], 0),
            offset=self.offset + queries[0] - keys[0],
        )


def _block_end(dim: Dim, rows: int) -> int:
    """Return where the block ends that the last of the first so many rows is in."""
    cut = Cut.of(dim)
    return int(cut.edge(cut.begun(np.array(min(rows, dim.n)))))
