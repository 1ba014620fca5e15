"""Sums over block masks in which both axes are cut within cuts, for many parts of them at once.

The blocks of a class meet the same runs of keys, but where the diagonal of a causal mask crosses an
entry: there they come in one after the other, a ramp (see `Cut.ramp`).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from iosim.schedule.cuts import Cut, Numbers, number_type, spread
from iosim.schedule.relation import PairSums, Part
from iosim.schedule.tree import Dim

if TYPE_CHECKING:
    from iosim.schedule.masks.blocks import Blocks


def sums_in(mask: "Blocks", query: Dim, key: Dim, parts: Sequence[Part]) -> list[PairSums]:
    """Return the sums over the visited pairs of blocks in each part.

    The keys of parts with the same queries must not overlap.
    """
    kind = number_type(query, key)
    queries, keys = Cut.of(query), Cut.of(key)
    order = sorted(range(len(parts)), key=lambda i: parts[i])
    rows = sorted({rows for rows, _ in parts})
    group = {each: i for i, each in enumerate(rows)}
    windows: Numbers = np.array([(group[parts[i][0]], *parts[i][1]) for i in order], dtype=kind)

    # Classes of queries, anew for each of the different queries that parts have.
    firsts, blocks = mask.classes(queries, mask.query, {row for ends in rows for row in ends})
    begin, end = np.array(rows, dtype=kind).T
    of, at = spread(
        np.searchsorted(firsts, queries.done(begin)), np.searchsorted(firsts, queries.begun(end))
    )
    firsts, blocks = firsts[at].astype(kind), blocks[at].astype(kind)
    first = queries.edge(firsts)
    size = queries.edge(firsts + 1) - first

    # The columns that each class sees, cut to the keys of each part.
    which, column, row = mask.touched(first, first + size * blocks, mask.query)
    start, stop = mask.span(column, mask.key, key.n)
    each, part = _overlaps(windows, key.n, of[which], start, stop)
    which, row = which[each], row[each]
    start = np.maximum(start[each], windows[part, 1])
    stop = np.minimum(stop[each], windows[part, 2])

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
    own = size[which]
    at = np.array(order)[part]
    for sums, values in zip(total, (met, own * met, met_rows, own * met_rows), strict=True):
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
