"""The red-blue pebble game of attention: its instances, its moves, and a checker that replays them.

The moves are those of the fused lower bound's model (one word each): load, new, store, drop, and
the computations. The checker is stricter than that model where real arithmetic is: a pair absorbed
twice by one accumulator is an error, since a softmax sum would count it twice.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from iosim.errors import CapacityError, IosimError, ScheduleError
from iosim.schedule.relation import relation_of
from iosim.schedule.tree import Dim
from iosim.shape import AttentionShape
from iosim.units import unknown

Game = Literal["fused", "reducing", "unfused", "either"]
GAMES: tuple[Game, ...] = ("fused", "reducing", "unfused", "either")

# q, k, v, a rows and s scores: ("q", i, c), ("k", j, c), ("v", j, c), ("a", i, c), ("s", i, j).
Word = tuple[str, int, int]
Pair = tuple[int, int]

# Which computations a game allows; `add` joins a fast accumulator to its saved copy for one word.
ALLOWED: dict[Game, frozenset[str]] = {
    "fused": frozenset({"proc"}),
    "reducing": frozenset({"proc", "add"}),
    "unfused": frozenset({"score", "absorb"}),
    "either": frozenset({"proc", "score", "absorb"}),
}


@dataclass(frozen=True)
class Instance:
    """One head of attention and a fast memory of `words` words, as a game.

    In a `fused` game a pair (i, j) is processed at a moment when the whole rows q_i, k_j, v_j and
    the accumulator a_i are in fast memory; the score takes no room. A `reducing` game adds one
    move: `add`, a store that joins what was saved. In an `unfused` game q_i meets k_j at one
    moment, which fills the word s_ij, and a_i absorbs s_ij with v_j at that or another moment;
    s_ij is a word like any other. `either` allows both, so that only a score that is kept takes
    room. The accumulator of a row is d_v words; m and l are not counted.

    Raises IosimError for several heads, an unknown game, or a query that sees no key.
    """

    shape: AttentionShape
    words: int
    game: Game = "fused"

    def __post_init__(self) -> None:
        """Refuse what the game has no rules for."""
        shape = self.shape
        if shape.batch != 1 or shape.heads != 1:
            raise IosimError(
                f"a pebble game is about one head, but batch is {shape.batch} and "
                f"heads is {shape.heads}"
            )
        if self.game not in GAMES:
            raise IosimError(unknown("game", self.game, GAMES))
        if not all(self.keys_of(i) for i in range(shape.n_q)):
            raise IosimError(
                f"with n_q = {shape.n_q}, n_k = {shape.n_k} and this mask some query sees no key, "
                "but each query of a pebble game must see one"
            )

    def keys_of(self, i: int) -> Sequence[int]:
        """Return the keys that query i sees."""
        shape = self.shape
        mask = relation_of(shape)
        if mask is None:
            return range(shape.n_k)
        return mask.key_range(Dim("query", shape.n_q, 1), Dim("key", shape.n_k, 1), i)

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The pairs (query, key) that the mask lets meet."""
        return tuple((i, j) for i in range(self.shape.n_q) for j in self.keys_of(i))

    def row(self, kind: str, index: int) -> tuple[Word, ...]:
        """Return the words of row `index` of 'q', 'k', 'v' or 'a'."""
        width = self.shape.head_dim if kind in ("q", "k") else self.shape.value_dim
        return tuple((kind, index, c) for c in range(width))


@dataclass(frozen=True)
class Move:
    """One move: what is done ('load', 'new', 'store', 'add', 'drop' or a computation), to what.

    `target` is a word for a move of data, and the pair (i, j) for 'proc', 'score' and 'absorb'.
    """

    kind: str
    target: Word | Pair

    def __str__(self) -> str:
        """Return the move as text: load k1,0 or proc 0,1."""
        return f"{self.kind} {_name(self.target)}"


def _name(target: Word | Pair) -> str:
    """Return a word as k1,0 and a pair as 1,0."""
    *kind, i, j = target
    return f"{''.join(map(str, kind))}{i},{j}"


@dataclass(frozen=True)
class Replay:
    """What an execution moved, in words (adds are stores), and its peak residency."""

    loads: int
    stores: int
    peak_words: int

    @property
    def traffic(self) -> int:
        """Words loaded and stored."""
        return self.loads + self.stores


def replay(instance: Instance, moves: Iterable[Move]) -> Replay:
    """Play the moves by the rules of the instance and return what they moved, in words.

    Raises CapacityError where more than M words are in fast memory, and ScheduleError for a move
    that the rules or the game do not allow, a pair absorbed twice, or a row of O that does not
    end in slow memory with all its keys.

    >>> one = Instance(AttentionShape(1, 1, 1), words=4)
    >>> inputs = [Move("load", (kind, 0, 0)) for kind in "qkv"]
    >>> a = ("a", 0, 0)
    >>> replay(one, [*inputs, Move("new", a), Move("proc", (0, 0)), Move("store", a)])
    Replay(loads=3, stores=1, peak_words=4)
    """
    board = _Board(instance)
    for number, move in enumerate(moves, 1):
        board.play(move, f"move {number}, {move}")
    board.finish()
    return Replay(board.loads, board.stores, board.peak)


class _Board:
    """Fast and slow memory: for each word that is made on chip, which keys it has absorbed."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.visible = frozenset(instance.pairs)
        self.fast: dict[Word, frozenset[int]] = {}
        self.saved: dict[Word, frozenset[int]] = {}
        self.loads = self.stores = self.peak = 0

    def play(self, move: Move, where: str) -> None:
        if len(move.target) == 3:
            self._move(move.kind, move.target, where)
        else:
            self._compute(move.kind, move.target, where)
        self.peak = max(self.peak, len(self.fast))
        if len(self.fast) > self.instance.words:
            raise CapacityError(
                f"{where}: {len(self.fast)} words in fast memory, but M is "
                f"{self.instance.words} words"
            )

    def _move(self, kind: str, word: Word, where: str) -> None:
        made_on_chip = word[0] in ("a", "s")
        if kind == "load":
            if made_on_chip and word not in self.saved:
                raise ScheduleError(f"{where}: it was never stored")
            self.loads += 1
            self.fast[word] = self._join(
                self.fast.get(word, frozenset()), self.saved.get(word, frozenset()), where
            )
        elif kind == "new":
            if word in self.fast or not made_on_chip:
                raise ScheduleError(f"{where}: it is resident already, or an input")
            self.fast[word] = frozenset()
        elif kind in ("store", "add"):
            if word not in self.fast or not made_on_chip:
                raise ScheduleError(f"{where}: it is not resident, or an input")
            self.stores += 1
            if kind == "store":
                self.saved[word] = self.fast[word]
            elif "add" not in ALLOWED[self.instance.game]:
                raise ScheduleError(f"{where}: not a move of the {self.instance.game} game")
            else:
                before = self.saved.get(word, frozenset())
                self.saved[word] = self._join(self.fast[word], before, where)
        elif kind == "drop" and word in self.fast:
            del self.fast[word]
        else:
            raise ScheduleError(f"{where}: no such move, or the word is not resident")

    def _compute(self, kind: str, pair: Pair, where: str) -> None:
        i, j = pair
        if kind not in ALLOWED[self.instance.game] or pair not in self.visible:
            raise ScheduleError(f"{where}: not a move of this {self.instance.game} game")
        rows = {"proc": "qkva", "score": "qk", "absorb": "va"}[kind]
        needs = [w for r in rows for w in self.instance.row(r, i if r in "qa" else j)]
        score: Word = ("s", i, j)
        if kind != "proc":
            needs.append(score)
        for word in needs:
            if word not in self.fast:
                raise ScheduleError(f"{where}: {_name(word)} is not in fast memory")
        if kind == "score":
            self.fast[score] = frozenset({j})
            return
        if kind == "absorb" and not self.fast[score]:
            raise ScheduleError(f"{where}: its score was never formed")
        for word in self.instance.row("a", i):
            self.fast[word] = self._join(self.fast[word], frozenset({j}), where)

    def _join(self, one: frozenset[int], other: frozenset[int], where: str) -> frozenset[int]:
        if one & other:
            raise ScheduleError(f"{where}: key {min(one & other)} would be counted twice")
        return one | other

    def finish(self) -> None:
        for i in range(self.instance.shape.n_q):
            keys = frozenset(self.instance.keys_of(i))
            for word in self.instance.row("a", i):
                if self.saved.get(word) != keys:
                    raise ScheduleError(f"row {i} of O does not end in slow memory with all keys")
