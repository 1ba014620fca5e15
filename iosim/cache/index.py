"""Line numbers to small ids, so that every engine indexes plain arrays.

Most traces touch a dense region: lines of a *window* get the id `line - base` at once.  Lines
outside it go through an open-addressing hash table and get ids after the window.  An id never
changes once given out.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from iosim.cache.jit import compiled
from iosim.errors import IosimError

#: Lines a window may always span; tables over it are zero pages until they are touched.
SMALL_WINDOW = 1 << 22
#: Beyond that, table entries a window may have for each distinct line.
SPREAD = 16
#: Ids stay below this so that an id and a dirty bit fit in an int32.
ID_LIMIT = 1 << 30


@compiled
def _window_ids(lines: Any, base: int, span: int, ids: Any) -> bool:
    """Write `line - base` for all lines; say whether all of them lie in the window."""
    outside = False
    limit = base + span
    low_base = base & 0x3FFFFFFF
    for k in range(lines.size):
        line = lines[k]
        outside |= (line < base) | (line >= limit)
        ids[k] = ((line & 0x3FFFFFFF) - low_base) & 0x3FFFFFFF
    return not outside


@compiled
def _slot(keys: Any, values: Any, line: int) -> int:
    """Position of `line` in the hash table, or of the empty place where it belongs."""
    mask = keys.size - 1
    # Two multiplications of 32-bit halves by 31-bit odd numbers: never above 63 bits.
    low = (line & 0xFFFFFFFF) * 0x5BD1E995
    high = ((line >> 32) & 0xFFFFFFFF) * 0x2545F491
    place = ((low >> 17) ^ (high >> 13) ^ low) & mask
    while values[place] >= 0 and keys[place] != line:
        place = (place + 1) & mask
    return int(place)


@compiled
def _hashed_ids(
    lines: Any, base: int, span: int, keys: Any, values: Any, known: int, ids: Any
) -> int:
    """Write the id of every line, giving new ones out in order; return how many are known."""
    for k in range(lines.size):
        line = int(lines[k])
        if base <= line < base + span:
            ids[k] = line - base
        else:
            place = _slot(keys, values, line)
            if values[place] < 0:
                keys[place] = line
                values[place] = span + known
                known += 1
            ids[k] = values[place]
    return known


@compiled
def _move(keys: Any, values: Any, new_keys: Any, new_values: Any) -> None:
    for k in range(keys.size):
        if values[k] >= 0:
            place = _slot(new_keys, new_values, int(keys[k]))
            new_keys[place] = keys[k]
            new_values[place] = values[k]


class LineIndex:
    """Gives each line number (int64) a small id that never changes.

    >>> index = LineIndex()
    >>> ids = index.ids(np.array([70, 71, 70, 1 << 40]))
    >>> bool(ids[0] == ids[2]), len(set(ids.tolist()))
    (True, 3)
    """

    def __init__(self) -> None:
        """Start without ids."""
        self._base = 0
        self._span = 0
        self._known = 0  # lines in the hash table
        self._keys = np.zeros(0, dtype=np.int64)
        self._values = np.zeros(0, dtype=np.int32)

    @property
    def size(self) -> int:
        """All ids given out are below this."""
        return self._span + self._known

    def ids(self, lines: NDArray[np.int64], distinct: int = 0) -> NDArray[np.int32]:
        """Return the ids of `lines`; `distinct` is how many lines are known to differ so far.

        Raises IosimError beyond 2^30 ids.
        """
        ids = np.empty(lines.size, dtype=np.int32)
        if lines.size == 0:
            return ids
        if self._span == 0:
            self._open_window(lines)
        if self._known == 0 and (
            _window_ids(lines, self._base, self._span, ids)
            or (self._widen(lines, distinct) and _window_ids(lines, self._base, self._span, ids))
        ):
            return ids
        self._make_room(lines.size)
        self._known = _hashed_ids(
            lines, self._base, self._span, self._keys, self._values, self._known, ids
        )
        if self.size > ID_LIMIT:
            raise IosimError(f"a trace has more than {ID_LIMIT} distinct lines; use longer lines")
        return ids

    def _open_window(self, lines: NDArray[np.int64]) -> None:
        low = int(lines.min())
        # A trace that starts near 0 most likely comes back to 0; base + span must not overflow.
        self._base = low if SMALL_WINDOW // 2 <= low < 1 << 62 else 0
        self._span = 1
        self._widen(lines, distinct=0)

    def _widen(self, lines: NDArray[np.int64], distinct: int) -> bool:
        """Widen the window to hold `lines` if its tables stay in proportion."""
        low, high = int(lines.min()), int(lines.max())
        span = high - self._base + 1
        if low < self._base or span > max(SMALL_WINDOW, min(SPREAD * distinct, ID_LIMIT // 2)):
            return False
        self._span = max(self._span, 1 << (span - 1).bit_length())
        return True

    def _make_room(self, new: int) -> None:
        """Keep the hash table at most half full, whatever the next `new` lines are."""
        size = self._keys.size
        if 2 * (self._known + new) <= size:
            return
        size = 1 << (2 * (self._known + new) - 1).bit_length()
        keys = np.zeros(size, dtype=np.int64)
        values = np.full(size, -1, dtype=np.int32)
        _move(self._keys, self._values, keys, values)
        self._keys, self._values = keys, values


def grown(table: Any, size: int) -> Any:
    """Return `table` with at least `size` entries, new ones 0; it grows by doubling."""
    if table.size >= size:
        return table
    larger = np.zeros(max(size, 2 * table.size), dtype=table.dtype)
    larger[: table.size] = table
    return larger
