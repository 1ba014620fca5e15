"""The longest sequence that a slow memory holds, by bisection on the bytes a schedule keeps."""

from dataclasses import replace

from iosim.errors import IosimError
from iosim.reading.slow_memory import slow_memory
from iosim.schedule.registry import Family, Given
from iosim.shape import AttentionShape


def longest(family: Family, shape: AttentionShape, sizes: Given, capacity: int) -> int | None:
    """Return the most rows with which inputs, outputs and extra fit in `capacity` bytes.

    With n_q = n_k both grow; otherwise the keys do and the queries stay. The tile sizes are those
    given, in rows. 0 where not even one row fits, None where the shape cannot be longer or shorter
    (a mask that is stated row by row).

    >>> from iosim.schedule import family
    >>> shape = AttentionShape(1024, 1024, 64)
    >>> [longest(family(name), shape, {}, 141 * 10**9) for name in ("standard",)]
    [187685]
    """
    square = shape.n_q == shape.n_k

    def fits(rows: int) -> bool:
        longer = replace(shape, n_q=rows if square else shape.n_q, n_k=rows)
        return slow_memory(family.build(longer, **sizes)).total_bytes <= capacity

    try:
        if not fits(1):
            return 0
        most, over = 1, 2
        while fits(over):
            most, over = over, 2 * over
        while over - most > 1:
            middle = (most + over) // 2
            if fits(middle):
                most = middle
            else:
                over = middle
    except IosimError:
        return None
    return most
