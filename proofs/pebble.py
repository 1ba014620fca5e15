"""Exact optima of small pebble games of attention, each with an execution that attains it.

The search finds a cheapest path over reduced configurations; the path is written out as moves,
which `replay` checks by the rules of the game, knowing nothing of the search.
"""

from dataclasses import dataclass

from iosim.errors import IosimError
from iosim.proofs.pebble_fused import FusedPositions
from iosim.proofs.pebble_moves import Instance, Move, Pair, Word
from iosim.proofs.pebble_search import Positions, Step, shortest
from iosim.proofs.pebble_unfused import UnfusedPositions

# Rows a computation needs whole, and whether it needs a word for its score.
OPERANDS = {"proc": ("qkva", False), "score": ("qk", True), "absorb": ("va", True)}


@dataclass(frozen=True)
class Solution:
    """The least traffic of an instance in words, and moves that attain it.

    `expanded` and `reached` count configurations, up to the names of queries and keys.
    """

    instance: Instance
    words: int
    moves: tuple[Move, ...]
    expanded: int
    reached: int


def solve(instance: Instance, limit: int = 1_000_000) -> Solution:
    """Return the least traffic of an instance in words, exactly, and an execution that attains it.

    For `fused` and `reducing` games the optimum is over all executions, word by word; for
    `unfused` and `either` over those that move whole rows (all of them when d = d_v = 1). Raises
    IosimError where M does not hold what one pair needs, or where more than `limit`
    configurations would be expanded (the message tells the bound reached).

    >>> from iosim.shape import AttentionShape
    >>> solve(Instance(AttentionShape(3, 3, 1), words=6)).words
    16
    """
    shape = instance.shape
    width = shape.head_dim + shape.value_dim
    unfused = instance.game in ("unfused", "either")
    least = width + 1 if unfused else 2 * width
    if instance.words < least:
        raise IosimError(
            f"M is {instance.words} words, but the {instance.game} game needs at least {least} "
            f"with head_dim {shape.head_dim} and value_dim {shape.value_dim}"
        )
    game: Positions = UnfusedPositions(instance) if unfused else FusedPositions(instance)
    path = shortest(game, limit)
    writer = _Writer(instance)
    for step in path.steps:
        writer.write(step)
    return Solution(instance, path.words, tuple(writer.moves), path.expanded, path.reached)


class _Writer:
    """Writes steps out as moves; it only keeps what is resident, formed, absorbed and saved."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.moves: list[Move] = []
        self.fast: set[Word] = set()
        self.saved: set[Word] = set()
        self.left = set(instance.pairs)
        self.unformed = set(instance.pairs)
        self.reduces = instance.game == "reducing"

    def write(self, step: Step) -> None:
        for (kind, index, column), given in step.evicted:
            held = self._held(kind, index, column)
            # A fused game counts the words of a key together: the last of v_j go first.
            for word in held[len(held) - given :] if kind != "s" and self._by_word() else held:
                self._evict(word)
        rows, with_score = OPERANDS[step.kind]
        pair = (step.i, step.j)
        for row in rows:
            for word in self.instance.row(row, step.i if row in "qa" else step.j):
                self._bring(word)
        if with_score:
            self._bring(("s", step.i, step.j))
        self._compute(step.kind, pair)
        self._settle()

    def _by_word(self) -> bool:
        return self.instance.game in ("fused", "reducing")

    def _held(self, kind: str, index: int, column: int) -> list[Word]:
        """Return the resident words of a row; of k_j and v_j together where words count."""
        if kind == "s":
            return [("s", index, column)]
        kinds = "kv" if kind == "k" and self._by_word() else kind
        return [w for row in kinds for w in self.instance.row(row, index) if w in self.fast]

    def _move(self, kind: str, target: Word | Pair) -> None:
        self.moves.append(Move(kind, target))

    def _evict(self, word: Word) -> None:
        if word[0] in ("a", "s"):
            add = self.reduces and word in self.saved
            self._move("add" if add else "store", word)
            self.saved.add(word)
        self._drop(word)

    def _drop(self, word: Word) -> None:
        self._move("drop", word)
        self.fast.remove(word)

    def _bring(self, word: Word) -> None:
        if word not in self.fast:
            fresh = word[0] in ("a", "s") and (self.reduces or word not in self.saved)
            self._move("new" if fresh else "load", word)
            self.fast.add(word)

    def _whole(self, kind: str, index: int) -> bool:
        return self.fast.issuperset(self.instance.row(kind, index))

    def _compute(self, kind: str, pair: Pair) -> None:
        self._move(kind, pair)
        self.unformed.discard(pair)
        if kind != "score":
            self.left.remove(pair)
        if kind == "absorb":
            self._drop(("s", *pair))

    def _settle(self) -> None:
        """Do what else can be done, store the rows that are finished, drop what no pair needs."""
        for i, j in sorted(self.left):
            if not (self._whole("a", i) and self._whole("v", j)):
                continue
            if ("s", i, j) in self.fast:
                self._compute("absorb", (i, j))
            elif (
                self.instance.game != "unfused"
                and (i, j) in self.unformed
                and self._whole("q", i)
                and self._whole("k", j)
            ):
                self._compute("proc", (i, j))
        needed = {("q", i) for i, _ in self.unformed} | {("k", j) for _, j in self.unformed}
        needed |= {("a", i) for i, _ in self.left} | {("v", j) for _, j in self.left}
        for word in sorted(self.fast):
            if word[0] == "s" or word[:2] in needed:
                continue
            if word[0] == "a":
                self._evict(word)
            else:
                self._drop(word)
