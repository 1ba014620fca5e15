"""Configurations of the fused game, word by word, reduced to those that an optimum can need.

Each reduction keeps an optimal execution; docs/small-instances.md gives the reasons, and the tests
compare with a search without any of them.
"""

from collections.abc import Iterator

from iosim.proofs.pebble_moves import Instance
from iosim.proofs.pebble_search import Canonical, Label, Row, State, Step, evictions, used_words


class FusedPositions:
    """Fused games: the pairs left, and how many words of each row are resident.

    A row is (bits of the keys it still has to meet, absorbed anything, words of q_i, words of
    a_i); a key is the number of resident words of k_j and v_j together, since a pair needs them
    all and each costs one load. An accumulator pays when it enters: for its store, and for its
    load if it was saved before (not in a reducing game, where the store adds).
    """

    def __init__(self, instance: Instance) -> None:
        """Take the sizes from an instance of a fused or reducing game."""
        self.instance = instance
        self.d, self.d_v = instance.shape.head_dim, instance.shape.value_dim
        self.width = self.d + self.d_v
        self.words = instance.words
        self.again = 1 if instance.game == "reducing" else 2
        self.canonical = Canonical(instance.shape.n_k, bits=1)

    def start(self) -> State:
        """Return the configuration with nothing resident and every visible pair to do."""
        shape = self.instance.shape
        codes = (sum(1 << j for j in self.instance.keys_of(i)) for i in range(shape.n_q))
        return tuple((code, 0, 0, 0) for code in codes), (0,) * shape.n_k

    def done(self, state: State) -> bool:
        """Return whether every pair is done."""
        return not any(row[0] for row in state[0])

    def floor(self, state: State) -> int:
        """Return the words that still have to enter: whatever a pair left needs and lacks."""
        rows, keys = state
        words = left = 0
        for row in rows:
            if row[0]:
                left |= row[0]
                words += self._row_cost(row)
        return words + sum(self.width - c for j, c in enumerate(keys) if left >> j & 1)

    def _row_cost(self, row: Row) -> int:
        _, touched, q, a = row
        return self.d - q + (self.d_v - a) * (self.again if touched else 1)

    def steps(self, state: State) -> Iterator[tuple[int, State, Step]]:
        """Yield the steps that do a pair next, with each way to make room for what it lacks."""
        rows, keys = state
        items = self._resident(rows, keys)
        used = used_words(items)
        for i, row in enumerate(rows):
            lacks = self.width - row[2] - row[3]
            for j, held in enumerate(keys):
                if not row[0] >> j & 1:
                    continue
                cost = self._row_cost(row) + self.width - held
                need = used + lacks + self.width - held - self.words
                own = {("q", i, 0), ("a", i, 0), ("k", j, 0)}
                others = [item for item in items if item[0] not in own]
                for way in evictions(others, need):
                    yield cost, self._after(state, i, j, way), Step("proc", i, j, way)

    def _resident(
        self, rows: tuple[Row, ...], keys: tuple[int, ...]
    ) -> list[tuple[Label, int, int]]:
        items: list[tuple[Label, int, int]] = []
        for i, (_, _, q, a) in enumerate(rows):
            items += [(("q", i, 0), q, 1)] if q else []
            items += [(("a", i, 0), a, 1)] if a else []
        return items + [(("k", j, 0), c, 1) for j, c in enumerate(keys) if c]

    def _after(self, state: State, i: int, j: int, way: tuple[tuple[Label, int], ...]) -> State:
        """Return the configuration once the pair and all others that can be are done."""
        rows, keys = list(state[0]), list(state[1])
        for (kind, index, _), given in way:
            if kind == "k":
                keys[index] -= given
            else:
                code, touched, q, a = rows[index]
                drop_q = given if kind == "q" else 0
                rows[index] = code, touched, q - drop_q, a - given + drop_q
        rows[i] = (*rows[i][:2], self.d, self.d_v)
        keys[j] = self.width
        whole = sum(1 << key for key, c in enumerate(keys) if c == self.width)
        left = 0
        for index, (code, touched, q, a) in enumerate(rows):
            if q == self.d and a == self.d_v and code & whole:
                code, touched = code & ~whole, 1
            # What no pair needs any more leaves at once: a finished row is stored and dropped.
            rows[index] = (code, touched, q, a) if code else (0, 0, 0, 0)
            left |= code
        return tuple(rows), tuple(c if left >> key & 1 else 0 for key, c in enumerate(keys))
