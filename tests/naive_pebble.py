"""The pebble game by brute force: every move from every raw configuration, cheapest first.

No configuration is left out and none is identified with another: words are bits, each accumulator
word has the set of keys it absorbed in fast and in slow memory. Loads merge, stores replace, scores
may be dropped and formed again, and every move of data is of single words. This is the game of the
fused bound's model, in which a pair may be absorbed twice.
"""

from collections.abc import Iterator
from heapq import heappop, heappush

from iosim.proofs.pebble_moves import ALLOWED, Instance, Word

Sets = tuple[frozenset[int], ...]
# Resident words, contents of on-chip words in fast memory, and in slow memory (None: never saved).
Raw = tuple[frozenset[Word], Sets, tuple[frozenset[int] | None, ...]]


def optimum(instance: Instance) -> int:
    """Return the least number of words loaded and stored."""
    shape, allowed = instance.shape, ALLOWED[instance.game]
    inputs = [w for i in range(shape.n_q) for w in instance.row("q", i)]
    inputs += [w for j in range(shape.n_k) for kind in "kv" for w in instance.row(kind, j)]
    made = [w for i in range(shape.n_q) for w in instance.row("a", i)]
    if "score" in allowed:
        made += [("s", i, j) for i, j in instance.pairs]
    at = {word: number for number, word in enumerate(made)}
    wanted = [
        (at[w], frozenset(instance.keys_of(i)))
        for i in range(shape.n_q)
        for w in instance.row("a", i)
    ]
    needs = {
        "proc": lambda i, j: [w for r in "qkva" for w in instance.row(r, i if r in "qa" else j)],
        "score": lambda i, j: [*instance.row("q", i), *instance.row("k", j), ("s", i, j)],
        "absorb": lambda i, j: [*instance.row("a", i), *instance.row("v", j), ("s", i, j)],
    }

    def following(state: Raw) -> Iterator[tuple[int, Raw]]:
        fast, content, saved = state
        room = len(fast) < instance.words
        for word in inputs:
            if word in fast:
                yield 0, (fast - {word}, content, saved)
            elif room:
                yield 1, (fast | {word}, content, saved)
        for word in made:
            n = at[word]
            if word in fast:
                yield 0, (fast - {word}, put(content, n, frozenset()), saved)
                yield 1, (fast, content, (*saved[:n], content[n], *saved[n + 1 :]))
                if "add" in allowed:
                    both = content[n] | (saved[n] or frozenset())
                    yield 1, (fast, content, (*saved[:n], both, *saved[n + 1 :]))
            elif room:
                yield 0, (fast | {word}, content, saved)
            old = saved[n]
            if old is not None and (word in fast or room):
                yield 1, (fast | {word}, put(content, n, content[n] | old), saved)
        for kind in allowed - {"add"}:
            for i, j in instance.pairs:
                if not fast.issuperset(needs[kind](i, j)):
                    continue
                if kind == "score":
                    yield 0, (fast, put(content, at["s", i, j], frozenset({j})), saved)
                elif kind == "proc" or content[at["s", i, j]]:
                    after = content
                    for word in instance.row("a", i):
                        after = put(after, at[word], content[at[word]] | {j})
                    yield 0, (fast, after, saved)

    start: Raw = (frozenset(), (frozenset(),) * len(made), (None,) * len(made))
    best = {start: 0}
    heap = [(0, 0, start)]
    ties = 0
    while heap:
        words, _, state = heappop(heap)
        if words > best[state]:
            continue
        if all(state[2][n] == keys for n, keys in wanted):
            return words
        for cost, after in following(state):
            if words + cost < best.get(after, words + cost + 1):
                best[after] = words + cost
                ties += 1
                heappush(heap, (words + cost, ties, after))
    raise AssertionError("no execution exists")


def put(content: Sets, n: int, keys: frozenset[int]) -> Sets:
    return (*content[:n], keys, *content[n + 1 :])
