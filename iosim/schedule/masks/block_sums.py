"""Sums over block masks in which both axes are cut within cuts, for many parts of them at once.

The blocks of a class meet the same runs of keys, but where the diagonal of a causal mask crosses an
entry: there they come in one after the other, a ramp (see `Cut.ramp`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from iosim.schedule.cuts import Cut, Numbers, number_type, spread
from iosim.schedule.relation import PairSums, Part, Rows
from iosim.schedule.tree import Dim

if TYPE_CHECKING:
    from iosim.schedule.masks.blocks import Blocks


@dataclass(frozen=True, eq=False)
class _Classes:
    """Classes of query blocks and the columns that each sees.

    Of a class there is which of some rows it lies in, the first row and the rows of its first
    block, and how many it has; of a column of the matrix the class (`which`), the row of the matrix
    that lets the class see it, and the keys start .. stop - 1.
    """

    group: Numbers
    first: Numbers
    size: Numbers
    blocks: Numbers
    which: Numbers
    row: Numbers
    start: Numbers
    stop: Numbers


@lru_cache(maxsize=2)  # loops over tiles of the same queries ask one after the other
def _classes(
    mask: "Blocks", queries: Cut, n_k: int, rows: tuple[Rows, ...], kind: type
) -> _Classes:
    """Return the classes of query blocks in each of some rows, which whole blocks fill."""
    begin, end = np.array(rows, dtype=kind).T
    firsts, blocks = mask.classes(queries, mask.query, {row for ends in rows for row in ends})
    group, at = spread(
        np.searchsorted(firsts, queries.done(begin)), np.searchsorted(firsts, queries.begun(end))
    )
    firsts, blocks = firsts[at].astype(kind), blocks[at].astype(kind)
    first = queries.edge(firsts)
    size = queries.edge(firsts + 1) - first
    which, column, row = mask.touched(first, first + size * blocks, mask.query)
    return _Classes(group, first, size, blocks, which, row, *mask.span(column, mask.key, n_k))


def sums_in(mask: "Blocks", query: Dim, key: Dim, parts: Sequence[Part]) -> list[PairSums]:
    """Return the sums over the visited pairs of blocks in each part.

    The keys of parts with the same queries must not overlap.
    """
    kind = number_type(query, key)
    queries, keys = Cut.of(query), Cut.of(key)
    order = sorted(range(len(parts)), key=lambda i: parts[i])
    rows = tuple(sorted({rows for rows, _ in parts}))
    group = {each: i for i, each in enumerate(rows)}
    windows: Numbers = np.array([(group[parts[i][0]], *parts[i][1]) for i in order], dtype=kind)

    # The columns that each class of queries sees, cut to the keys of each part.
    own = _classes(mask, queries, key.n, rows, kind)
    each, part = _overlaps(windows, key.n, own.group[own.which], own.start, own.stop)
    which, row = own.which[each], own.row[each]
    start = np.maximum(own.start[each], windows[part, 1])
    stop = np.minimum(own.stop[each], windows[part, 2])
    first, size, blocks = own.first, own.size, own.blocks

    # Which of its blocks see some keys of a column, from the first on, and which see all of them.
    some: Numbers = np.zeros(len(which), dtype=kind)
    every = some
    reach = last = stop
    if mask.offset is not None:
        past = (row + 1) * mask.rows - mask.first_query
        reach = np.minimum(past, (first + size)[which]) + mask.offset  # of the first block
        last = reach + ((blocks - 1) * size)[which]
        every = np.clip(-((reach - stop) // size[which]), 0, blocks[which])
        some = np.clip((start - reach) // size[which] + 1, 0, every)
    seen = start < np.minimum(stop, last)
    which, part, start, stop, last, reach, some, every = (
        each[seen] for each in (which, part, start, stop, last, reach, some, every)
    )
    low, high = keys.done(start), keys.begun(np.minimum(stop, last))
    if len(which):
        again = (np.diff(which) == 0) & (np.diff(part) == 0)
        low[1:] = np.where(again, np.maximum(low[1:], high[:-1]), low[1:])
    whole = blocks[which] - every
    met = whole * (high - low)
    met_rows = whole * (keys.edge(high) - keys.edge(low))
    ramp = np.flatnonzero(every > some)
    if ramp.size:
        count = (every - some)[ramp]
        rises = reach[ramp] + some[ramp] * size[which[ramp]]
        more, more_rows = keys.ramp(rises, queries.block, count, up=True)
        met[ramp] += more - count * low[ramp]
        met_rows[ramp] += more_rows - count * keys.edge(low[ramp])

    total: Numbers = np.zeros((4, len(parts)), dtype=kind)
    tall = size[which]
    at = np.array(order)[part]
    for sums, values in zip(total, (met, tall * met, met_rows, tall * met_rows), strict=True):
        np.add.at(sums, at, values)
    return [PairSums(*sums) for sums in total.T.tolist()]


def _overlaps(
    windows: Numbers, n: int, group: Numbers, start: Numbers, stop: Numbers
) -> tuple[Numbers, Numbers]:
    """Return the pairs of rows start .. stop - 1 and windows of their group that overlap.

    A window is (group, first row, row after the last), of n rows; they rise.
    """
    of, begin, end = windows.T
    low = np.searchsorted(of * (n + 1) + end, group * (n + 1) + start, side="right")
    high = np.searchsorted(of * (n + 1) + begin, group * (n + 1) + stop, side="left")
    return spread(low, high)
