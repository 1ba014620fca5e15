"""Sums over staircases in which both axes are cut within cuts, for many parts of them at once.

A part is some queries and some keys, each of which whole blocks fill. The blocks that a query block
meets lie between the two ends of its run, so that sums over them are sums of blocks begun before
one end less blocks done before the other: floor sums, piece by piece and section by section.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from iosim.schedule.cuts import Cut, Numbers, number_type, spread
from iosim.schedule.relation import PairSums, Part
from iosim.schedule.tree import Dim

if TYPE_CHECKING:
    from iosim.schedule.masks.staircase import Staircase, Steps


def sums_in(mask: "Staircase", query: Dim, key: Dim, parts: Sequence[Part]) -> list[PairSums]:
    """Return the sums over the visited pairs of blocks in each part."""
    kind = number_type(query, key)
    queries, keys = Cut.of(query), Cut.of(key)
    ends: Numbers = np.array([(*rows, *columns) for rows, columns in parts], dtype=kind).reshape(
        -1, 4
    )
    seen, (first, stop) = _rows_that_see(mask, key, ends)
    low, high = ends[seen, 2:].T
    begin, end = queries.done(first), queries.done(stop - 1) + 1  # the blocks of these rows

    # Section by section: whole blocks, and at its end perhaps one that is ragged.
    sections = queries.sections
    which, section = spread(*(sections.done(rows) + i for i, rows in enumerate((first, stop - 1))))
    start, past = sections.edge(section), sections.edge(section + 1)
    before, whole = queries.begun(start), (past - start) // queries.block
    a, b = (np.clip(blocks[which] - before, 0, whole) for blocks in (begin, end))
    low, high = low[which], high[which]
    row = start + a * queries.block
    bounds = (low, high, keys)
    last = _whole(mask.hi, row + queries.block - 1, queries.block, b - a, bounds, up=True)
    less = _whole(mask.lo, row, queries.block, b - a, bounds, up=False)
    found: Numbers = np.array([x - y for x, y in zip(last, less, strict=True)], dtype=kind)
    found = np.concatenate([found, found * queries.block])
    rows = past - start - whole * queries.block
    at = np.flatnonzero(
        (rows > 0) & (before + whole < end[which]) & (before + whole >= begin[which])
    )
    reach = np.clip(mask.hi.at(past[at] - 1), low[at], high[at])
    since = np.clip(mask.lo.at(past[at] - rows[at]), low[at], high[at])
    reach, since = keys.begun(reach), keys.done(since)
    ragged: Numbers = np.array([reach - since, keys.edge(reach) - keys.edge(since)], dtype=kind)
    found[:, at] += np.concatenate([ragged, ragged * rows[at]])

    total: Numbers = np.zeros((4, len(parts)), dtype=kind)
    for each, values in zip(total, found, strict=True):
        np.add.at(each, np.flatnonzero(seen)[which], values)
    return [
        PairSums(pairs, query_rows, key_rows, products)
        for pairs, key_rows, query_rows, products in total.T.tolist()
    ]


def _rows_that_see(
    mask: "Staircase", key: Dim, ends: Numbers
) -> tuple[Numbers, tuple[Numbers, Numbers]]:
    """Return which parts have queries that see a key of theirs, and the first and last of these."""
    turned = mask.transposed(key.n)  # its lo and hi are the first rows whose ends lie above a key
    first = np.maximum(np.maximum(ends[:, 0], mask.lo.first), turned.lo.at(ends[:, 2]))
    stop = np.minimum(np.minimum(ends[:, 1], mask.lo.stop), turned.hi.at(ends[:, 3] - 1))
    seen = first < stop
    return seen, (first[seen], stop[seen])


def _whole(
    steps: "Steps",
    row: Numbers,
    block: int,
    count: Numbers,
    bounds: tuple[Numbers, Numbers, Cut],
    *,
    up: bool,
) -> tuple[Numbers, Numbers]:
    """Return the blocks and rows of keys up to the values at row, row + block, ... (see `ramp`).

    Values are kept within the first two of the `bounds`.
    """
    low, high, keys = bounds
    first, value, slope = np.array(steps.pieces, dtype=row.dtype).reshape(-1, 3).T
    after = np.append(first[1:], np.array([steps.stop], dtype=row.dtype))

    def piece(rows: Numbers) -> Numbers:
        return np.searchsorted(first, rows, side="right") - 1

    begin, end = piece(row), piece(row + np.maximum(count - 1, 0) * block) + 1
    which, at = spread(begin, end)
    row, count, low, high = row[which], count[which], low[which], high[which]
    a, b = (np.clip(-((row - edge[at]) // block), 0, count) for edge in (first, after))
    count = b - a
    start = value[at] + slope[at] * (row + a * block - first[at])
    # Of rising values there are those below the bounds, those above, and those between.
    rising = slope[at] > 0
    under = np.where(rising, np.clip(-((start - low) // block), 0, count), 0)
    over = np.where(rising, np.clip(-((start - high) // block), under, count), 0)
    flat = np.clip(start, low, high)
    edges = tuple(_up_to(keys, rows, up) for rows in (low, high, flat))
    times = (under, np.where(rising, count - over, 0), np.where(rising, 0, count))
    sums = [
        np.sum([n * each[i] for n, each in zip(times, edges, strict=True)], axis=0) for i in (0, 1)
    ]
    steep = np.flatnonzero(over > under)
    if steep.size:
        rows = start[steep] + under[steep] * block
        more = keys.ramp(rows, block, (over - under)[steep], up=up)
        for each, values in zip(sums, more, strict=True):
            each[steep] += values
    begins = np.cumsum(end - begin) - (end - begin)
    blocks, rows = (np.add.reduceat(each, begins.astype(np.int64)) for each in sums)
    return blocks, rows


def _up_to(keys: Cut, rows: Numbers, up: bool) -> tuple[Numbers, Numbers]:
    blocks = keys.begun(rows) if up else keys.done(rows)
    return blocks, keys.edge(blocks)
