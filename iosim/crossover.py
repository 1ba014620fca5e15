"""Where one schedule begins to move less than another as fast memory grows: exactly, by counts."""

from collections.abc import Callable
from functools import cache

from iosim.reading.count import total_words
from iosim.schedule.registry import Family
from iosim.shape import AttentionShape
from iosim.tiles import choose_tiles

Words = Callable[[int], int]


def best_words(family: Family, shape: AttentionShape) -> Words:
    """Return the function from M to the words that a schedule's best legal tile moves.

    It never rises with M: what fits in less fits in more. Raises IosimError where no tile fits.

    >>> from iosim.schedule import family
    >>> best_words(family("flash2"), AttentionShape(65536, 65536, 64))(65536)
    1115750400
    """

    @cache
    def words(memory: int) -> int:
        return total_words(family.build(shape, **choose_tiles(family, shape, memory).sizes))

    return words


def order_changes(first: Words, second: Words, low: int, high: int) -> tuple[int, ...]:
    """Return every M in low < M <= high at which `first` becomes less than `second`, or ceases to.

    Both must not rise with M. So an interval at whose low end the one is below the other's value at
    the high end holds no change; every other one is halved.

    >>> order_changes(lambda m: 100 - m, lambda m: 100 - m // 10 * 10, 5, 25)
    (10, 11, 20, 21)
    """
    changes = []
    waiting = [(low, high)]
    while waiting:
        start, end = waiting.pop()
        if start == end or first(start) < second(end) or second(start) <= first(end):
            continue
        if end - start == 1:
            if (first(start) < second(start)) != (first(end) < second(end)):
                changes.append(end)
            continue
        middle = (start + end) // 2
        waiting += [(start, middle), (middle, end)]
    return tuple(sorted(changes))
