"""Configurations of the games in which a score can be kept: whole rows and single scores.

Rows move whole, d words at a time, so that the optimum is one over row-granular executions; for
d = d_v = 1 that is no restriction. The reductions are those of the fused game.
"""

from collections.abc import Iterator

from iosim.errors import IosimError
from iosim.proofs.pebble_moves import Instance
from iosim.proofs.pebble_search import Canonical, Label, Row, State, Step, evictions, used_words

# Two bits a pair: no score yet, a score in fast memory, one in slow memory, absorbed.
NONE, FAST, SLOW, ABSORBED = 0, 1, 2, 3
K, V = 1, 2  # what of a key is resident, as bits


class UnfusedPositions:
    """Unfused games: the state of each score, and which rows are resident.

    A score pays for its store and its later load when it is given up; dropping one to form it
    again is never better than forming it later.
    """

    def __init__(self, instance: Instance) -> None:
        """Take the sizes from an instance of an unfused or either game; d_v must equal d."""
        shape = instance.shape
        if shape.head_dim != shape.value_dim:
            raise IosimError(
                f"value_dim is {shape.value_dim} and head_dim {shape.head_dim}, but the search of "
                f"the {instance.game} game moves rows of one width; make them equal"
            )
        self.instance = instance
        self.width = shape.head_dim
        self.words = instance.words
        self.fused_too = instance.game == "either"
        self.low = sum(1 << 2 * j for j in range(shape.n_k))
        self.canonical = Canonical(shape.n_k, bits=2)

    def start(self) -> State:
        """Return the configuration with nothing resident; a masked pair counts as absorbed."""
        shape = self.instance.shape
        codes = (
            sum(ABSORBED << 2 * j for j in range(shape.n_k) if j not in self.instance.keys_of(i))
            for i in range(shape.n_q)
        )
        return tuple((code, 0, 0, 0) for code in codes), (0,) * shape.n_k

    def _unformed(self, code: int) -> int:
        return ~(code | code >> 1) & self.low

    def _unabsorbed(self, code: int) -> int:
        return ~(code & code >> 1) & self.low

    def done(self, state: State) -> bool:
        """Return whether every pair is absorbed."""
        return not any(self._unabsorbed(row[0]) for row in state[0])

    def floor(self, state: State) -> int:
        """Return the words that still have to enter: whatever a pair left needs and lacks."""
        rows, keys = state
        need_k = need_v = lacks = 0
        for code, touched, q, a in rows:
            unformed, unabsorbed = self._unformed(code), self._unabsorbed(code)
            need_k |= unformed
            need_v |= unabsorbed
            lacks += bool(unformed and not q)
            lacks += (1 + touched) * bool(unabsorbed and not a)
        for j, held in enumerate(keys):
            lacks += bool(need_k >> 2 * j & 1 and not held & K)
            lacks += bool(need_v >> 2 * j & 1 and not held & V)
        return lacks * self.width

    def steps(self, state: State) -> Iterator[tuple[int, State, Step]]:
        """Yield the steps that form or absorb a score next, with each way to make room."""
        rows, keys = state
        items = self._resident(rows, keys)
        used = used_words(items)
        for i, row in enumerate(rows):
            for j, held in enumerate(keys):
                for kind in self._kinds(row[0] >> 2 * j & 3):
                    cost, room, own = self._needs(kind, i, j, row, held)
                    others = [item for item in items if item[0] not in own]
                    for way in evictions(others, used + room - self.words):
                        paid = cost + 2 * sum(label[0] == "s" for label, _ in way)
                        yield paid, self._after(state, kind, i, j, way), Step(kind, i, j, way)

    def _kinds(self, pair: int) -> tuple[str, ...]:
        if pair == NONE:
            return ("score", "proc") if self.fused_too else ("score",)
        return () if pair == ABSORBED else ("absorb",)

    def _needs(
        self, kind: str, i: int, j: int, row: Row, held: int
    ) -> tuple[int, int, frozenset[Label]]:
        """Return the words paid, the words of room, and what must stay for a computation."""
        code, touched, q, a = row
        own: set[Label] = set()
        rows = again = score = 0
        if kind != "absorb":
            own |= {("q", i, 0), ("k", j, 0)}
            rows += (not q) + (not held & K)
        if kind != "score":
            own |= {("a", i, 0), ("v", j, 0)}
            rows += (not a) + (not held & V)
            again = touched and not a
        if kind != "proc":
            own.add(("s", i, j))
            score = int(code >> 2 * j & 3 != FAST)
        return (rows + again) * self.width, rows * self.width + score, frozenset(own)

    def _resident(
        self, rows: tuple[Row, ...], keys: tuple[int, ...]
    ) -> list[tuple[Label, int, int]]:
        items: list[tuple[Label, int, int]] = []
        for i, (code, _, q, a) in enumerate(rows):
            items += [(("q", i, 0), 1, self.width)] if q else []
            items += [(("a", i, 0), 1, self.width)] if a else []
            items += [(("s", i, j), 1, 1) for j in range(len(keys)) if code >> 2 * j & 3 == FAST]
        for j, held in enumerate(keys):
            items += [(("k", j, 0), 1, self.width)] if held & K else []
            items += [(("v", j, 0), 1, self.width)] if held & V else []
        return items

    def _after(
        self, state: State, kind: str, i: int, j: int, way: tuple[tuple[Label, int], ...]
    ) -> State:
        """Return the configuration after a computation and all that can be absorbed then."""
        rows, keys = [list(row) for row in state[0]], list(state[1])
        for (gone, index, key), _ in way:
            if gone == "s":
                rows[index][0] ^= (FAST ^ SLOW) << 2 * key
            elif gone in ("q", "a"):
                rows[index]["qa".index(gone) + 2] = 0
            else:
                keys[index] &= ~(K if gone == "k" else V)
        if kind != "absorb":
            rows[i][2] = 1
            keys[j] |= K
        if kind != "score":
            rows[i][3] = 1
            keys[j] |= V
        if kind != "proc":
            rows[i][0] = rows[i][0] & ~(3 << 2 * j) | FAST << 2 * j
        return self._settled(rows, keys)

    def _settled(self, rows: list[list[int]], keys: list[int]) -> State:
        """Absorb what can be; what no pair needs any more leaves at once."""
        has_k = sum(1 << 2 * j for j, held in enumerate(keys) if held & K)
        has_v = sum(1 << 2 * j for j, held in enumerate(keys) if held & V)
        need_k = need_v = 0
        settled = []
        for code, touched, q, a in rows:
            if a:
                ready = code & ~(code >> 1) & has_v
                if self.fused_too and q:
                    ready |= self._unformed(code) & has_v & has_k
                code |= ready * ABSORBED
                touched = touched or int(ready > 0)
            unformed, unabsorbed = self._unformed(code), self._unabsorbed(code)
            need_k |= unformed
            need_v |= unabsorbed
            if unabsorbed:
                settled.append((code, touched, q if unformed else 0, a))
            else:
                settled.append((code, 0, 0, 0))
        for j in range(len(keys)):
            keys[j] &= (K if need_k >> 2 * j & 1 else 0) | (V if need_v >> 2 * j & 1 else 0)
        return tuple(settled), tuple(keys)
