"""Shortest paths over the configurations of a pebble game: A*, configurations up to symmetry.

Both games share what is here: the search, the least form of a configuration under permutations of
queries and keys, and the ways to make room.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import chain, groupby, pairwise, permutations, product
from typing import NamedTuple, Protocol

from iosim.errors import IosimError

# A query: (code of its pairs, whether anything was absorbed, words of q_i, words of a_i resident).
Row = tuple[int, int, int, int]
# The queries, and for each key what is resident of it.
State = tuple[tuple[Row, ...], tuple[int, ...]]
# A resident row or score: ("q", i, 0), ("a", i, 0), ("k", j, 0), ("v", j, 0), ("s", i, j).
Label = tuple[str, int, int]


class Step(NamedTuple):
    """Make room (label, words or rows to give up), bring in what pair (i, j) lacks, and compute."""

    kind: str
    i: int
    j: int
    evicted: tuple[tuple[Label, int], ...]


class Positions(Protocol):
    """What the search must know of a game."""

    def start(self) -> State:
        """Return the configuration before the first move."""

    def steps(self, state: State) -> Iterator[tuple[int, State, Step]]:
        """Yield (words moved, next configuration, step) for each step worth taking."""

    def canonical(self, state: State) -> State:
        """Return the least configuration that differs by the names of queries and keys alone."""

    def floor(self, state: State) -> int:
        """Return words still to move at least; a step lowers it by at most the words it moves."""

    def done(self, state: State) -> bool:
        """Return whether every pair is done."""


@dataclass(frozen=True)
class Path:
    """A cheapest path: its words and its steps, and how many configurations it took to find."""

    words: int
    steps: tuple[Step, ...]
    expanded: int
    reached: int


def shortest(game: Positions, limit: int) -> Path:
    """Return a cheapest path from the start to a finished configuration.

    Raises IosimError when more than `limit` configurations would be expanded, or none finishes.
    """
    start = game.canonical(game.start())
    best: dict[State, tuple[int, State | None]] = {start: (0, None)}
    # Among equal estimates the deepest comes first, which saves most of the last layer.
    heap = [(game.floor(start), 0, start)]
    closed: set[State] = set()
    while heap:
        estimate, depth, state = heappop(heap)
        if state in closed:
            continue
        closed.add(state)
        words = -depth
        if game.done(state):
            return Path(words, _retrace(game, best, state), len(closed), len(best))
        if len(closed) > limit:
            raise IosimError(
                f"the search stopped after {limit} configurations, and only knows that the "
                f"optimum is at least {estimate} words; give a larger limit"
            )
        for cost, raw, _ in game.steps(state):
            after = game.canonical(raw)
            known = best.get(after)
            if known is None or words + cost < known[0]:
                best[after] = (words + cost, state)
                heappush(heap, (words + cost + game.floor(after), -words - cost, after))
    raise IosimError("no execution exists: the fast memory does not hold what one pair needs")


def _retrace(
    game: Positions, best: dict[State, tuple[int, State | None]], last: State
) -> tuple[Step, ...]:
    """Return the steps of a path with the names of its own start.

    The path is known up to names. Configurations of one least form have the same futures, so any
    step to the right form will do.
    """
    path = []
    at: State | None = last
    while at is not None:
        path.append(at)
        at = best[at][1]
    path.reverse()
    raw, steps = game.start(), []
    for before, after in pairwise(path):
        paid = best[after][0] - best[before][0]
        raw, step = next(
            (following, step)
            for cost, following, step in game.steps(raw)
            if cost == paid and game.canonical(following) == after
        )
        steps.append(step)
    return tuple(steps)


class Canonical:
    """The least form of a configuration, for pair codes of `bits` bits a key."""

    def __init__(self, n_k: int, bits: int) -> None:
        """Tabulate what each permutation of the keys does to a code."""
        self.n_k = n_k
        self.bits = bits
        self.mask = (1 << bits) - 1
        self.tables = {
            order: [self._permuted(code, order) for code in range(1 << n_k * bits)]
            for order in permutations(range(n_k))
        }
        self.known: dict[State, State] = {}

    def _permuted(self, code: int, order: tuple[int, ...]) -> int:
        at = self.bits
        return sum((code >> at * j & self.mask) << at * new for new, j in enumerate(order))

    def __call__(self, state: State) -> State:
        """Return the least form: rows sorted, keys in the order that makes the rows least.

        Only orders that sort the keys by what no permutation changes are tried.
        """
        found = self.known.get(state)
        if found is None:
            found = self.known[state] = self._least(*state)
        return found

    def _least(self, rows: tuple[Row, ...], keys: tuple[int, ...]) -> State:
        traits = [
            (keys[j], sorted((r[0] >> self.bits * j & self.mask, *r[1:]) for r in rows))
            for j in range(self.n_k)
        ]
        by_trait = sorted(range(self.n_k), key=traits.__getitem__)
        alike = [list(group) for _, group in groupby(by_trait, key=traits.__getitem__)]
        orders = product(*(permutations(group) for group in alike))
        tables = (self.tables[tuple(chain.from_iterable(order))] for order in orders)
        least = min(
            tuple(sorted([(table[code], t, q, a) for code, t, q, a in rows])) for table in tables
        )
        return least, tuple([keys[j] for j in by_trait])


def evictions(
    items: list[tuple[Label, int, int]], need: int
) -> Iterator[tuple[tuple[Label, int], ...]]:
    """Yield the ways to give up items so that `need` words get free, none of them needlessly.

    Items are (label, units, words a unit); a way is a tuple of (label, units given up). Holding
    more never hurts, so a way that could keep a unit back and still free enough is left out.

    >>> q, s = ("q", 0, 0), ("s", 0, 0)
    >>> list(evictions([(q, 1, 2), (s, 1, 1)], 2))
    [((('q', 0, 0), 1),)]
    """
    yield from _evictions(items, 0, need, (), need)


def _evictions(
    items: list[tuple[Label, int, int]],
    first: int,
    need: int,
    chosen: tuple[tuple[Label, int], ...],
    smallest: int,
) -> Iterator[tuple[tuple[Label, int], ...]]:
    if need <= 0:
        if not chosen or smallest > -need:
            yield chosen
        return
    for at in range(first, len(items)):
        label, units, words = items[at]
        for given in range(1, units + 1):
            if (given - 1) * words >= need:
                break
            yield from _evictions(
                items,
                at + 1,
                need - given * words,
                (*chosen, (label, given)),
                min(smallest, words) if chosen else words,
            )


def used_words(items: Iterable[tuple[Label, int, int]]) -> int:
    """Return the words that the items take together."""
    return sum(units * words for _, units, words in items)
