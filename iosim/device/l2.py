"""Blocks of threads that walk their tiles at once, and the L2 that all their accesses meet in.

One event is one block of threads taking its next step: loading Q, visiting the next rows of its
stream, or storing its results. The block that is furthest behind in time goes next. Only one line
in `sample` is followed, in as small a part of the sets, and every count is of such lines.

The cache: SMs are divided between `parts` partitions, and every line has a home among them, chosen
by its address. An SM looks up in its own partition; a line that is missing there is fetched from
its home, and if that misses, too, from HBM. It stays in both. Stores and additions go to the home.
Within a set, the line that was not used for the longest time makes room (LRU).

Blocks that share an SM do not share it evenly: the one that has been there longest goes first.

All compiled code that is stored on disk is in this file: numba drops it only if this file changes.
"""

import math
from typing import Any, Final, NamedTuple

import numpy as np

from iosim.cache.jit import compiled, inlined

#: Places in the array of counts, all in sampled lines but STEPS and TIME (in streamed rows).
READ: Final = 0
WRITTEN: Final = 1
LOOKED: Final = 2
COPIED: Final = 3
FIRST: Final = 4  # read from HBM, never touched before
STEPS: Final = 5
TIME: Final = 6
COUNTS: Final = 7

NEVER: Final = 1 << 62  # the birth of a block that has ended

#: A place of a set that holds no line; a line is kept as 2 x its number, + 1 if it is dirty.
EMPTY: Final = -2

LOAD: Final = 0
STORE: Final = 1
ADD: Final = 2


class Cache(NamedTuple):
    """One L2 as the sample sees it: sizes in sampled lines, `stray` a share of 2^20."""

    parts: int
    sets: int
    ways: int
    unit_bytes: int
    page_units: int
    stray: int


class Grid(NamedTuple):
    """A launch in numbers; see `iosim.device.launch.Launch`. Places are bytes from address 0."""

    heads: int
    tiles: int
    owner_rows: int
    owner_block: int
    owner_row_read: int
    owner_row_write: int
    owner_group: int
    stream_rows: int
    step_rows: int
    stream_row: int
    stream_tensors: int
    stream_group: int
    stream_add: int
    step_store: int
    tile_store: int
    tile_load: int
    causal: bool
    offset: int
    owner_is_query: bool
    keys_descending: bool
    static: bool
    persistent: bool
    heads_first: bool
    tiles_descending: bool
    splits: int
    slots: int
    sms: int
    per_sm: int
    at_owner: int
    at_output: int
    at_stream: int
    stream_bytes: int
    at_add: int
    at_step_store: int
    at_tile_store: int


class Pace(NamedTuple):
    """How blocks run: times are in streamed rows, a block that shares its SM needs one for each.

    Of the blocks that share an SM the one that started first takes a time of 1 for a row, the one
    that started last `younger`; a block alone on its SM takes `alone`. `start_rows` is what
    starting and ending a tile takes; `drift` the variance in rows^2 that each row adds to a
    block's time.
    """

    alone: float
    younger: float
    start_rows: float
    drift: float
    seed: int


@inlined
def scramble(x: Any) -> Any:
    """Return 64 bits that depend on every bit of x (the finaliser of splitmix64)."""
    x = np.uint64(x) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@inlined
def chance(seed: Any, tile: Any, step: Any) -> Any:
    """Return a number of mean 0 and variance 1 fixed by its arguments: 4 numbers' sum."""
    bits = scramble(
        np.uint64(seed) * np.uint64(0x9E3779B1)
        + np.uint64(tile + 1) * np.uint64(0x100000001B3)
        + np.uint64(step) * np.uint64(0x85EBCA77C2B2AE63)
    )
    total: Any = 0
    for shift in range(0, 64, 16):
        total += np.int64((bits >> np.uint64(shift)) & np.uint64(0xFFFF))
    return (total - 131070.0) * 2.642937e-5  # 1 / the deviation of four uniforms below 2^16


@inlined
def set_of(unit: Any, cache: Cache) -> Any:
    """Return the set of a sampled line: pages lie evenly over the sets, each with its own start.

    The share `stray` of the lines is placed at random.
    """
    bits = scramble(unit)
    if np.int64(bits & np.uint64(0xFFFFF)) < cache.stray:
        return np.int64((bits >> np.uint64(20)) % np.uint64(cache.sets))
    start = scramble(unit // cache.page_units + (1 << 40)) >> np.uint64(20)
    return np.int64((np.uint64(unit) + start) % np.uint64(cache.sets))


@inlined
def home_of(unit: int, cache: Cache) -> int:
    """Return the home of a sampled line: where others fetch it from, and where it is stored."""
    return (unit + unit // cache.sets) % cache.parts


@compiled
def touch(lines: Any, line: int, dirty: int) -> Any:
    """Make `line` the latest of its set; return -1 if it was there, else 1 if a dirty line went.

    `lines` is one set, latest first.
    """
    first = lines[0]
    if first >> 1 == line:
        lines[0] = first | dirty
        return -1
    for way in range(1, lines.size):
        here = lines[way]
        if here >> 1 == line:
            for later in range(way, 0, -1):
                lines[later] = lines[later - 1]
            lines[0] = here | dirty
            return -1
    last = lines[lines.size - 1]
    for later in range(lines.size - 1, 0, -1):
        lines[later] = lines[later - 1]
    lines[0] = line << 1 | dirty
    return last & 1


@compiled
def access(
    tags: Any, seen: Any, cache: Cache, counts: Any, start: int, size: int, part: int, kind: int
) -> None:
    """Access the sampled lines of `size` bytes from address `start`."""
    first = (start + cache.unit_bytes - 1) // cache.unit_bytes
    stop = (start + size + cache.unit_bytes - 1) // cache.unit_bytes
    fetched = 0
    for unit in range(first, stop):
        before = fetched
        place = set_of(unit, cache)
        home = home_of(unit, cache)
        if kind == LOAD:
            counts[LOOKED] += 1
            evicted = touch(tags[part, place], unit, 0)
            if evicted >= 0:
                counts[WRITTEN] += evicted
                there = 0
                if home != part:
                    there = touch(tags[home, place], unit, 0)
                if there < 0:
                    counts[COPIED] += 1
                else:
                    counts[WRITTEN] += there
                    fetched += 1
        else:
            evicted = touch(tags[home, place], unit, 1)
            if evicted >= 0:
                counts[WRITTEN] += evicted
                if kind == ADD:
                    fetched += 1
        if not seen[unit]:
            seen[unit] = 1
            counts[FIRST] += fetched - before
    counts[READ] += fetched


@inlined
def tile_of(number: int, grid: Grid) -> Any:
    """Return (head, owner tile, split) of a place in the grid."""
    if grid.heads_first:
        head, rest = number % grid.heads, number // grid.heads
        split, tile = rest % grid.splits, rest // grid.splits
    else:
        tile, rest = number % grid.tiles, number // grid.tiles
        split, head = rest % grid.splits, rest // grid.splits
    if grid.tiles_descending:
        tile = grid.tiles - 1 - tile
    return head, tile, split


@inlined
def rows_of(tile: int, split: int, grid: Grid) -> Any:
    """Return the streamed rows [start, stop) of a tile and split, from a whole step on."""
    start, stop = 0, grid.stream_rows
    if grid.causal:
        first = tile * grid.owner_block
        last = min(first + grid.owner_block, grid.owner_rows)
        if grid.owner_is_query:
            stop = max(0, min(stop, last + grid.offset))
        else:
            start = min(stop, max(0, first - grid.offset))
    if grid.splits > 1:
        steps = (grid.stream_rows + grid.step_rows - 1) // grid.step_rows
        part = (steps + grid.splits - 1) // grid.splits * grid.step_rows
        start, stop = max(start, split * part), min(stop, (split + 1) * part)
    if start >= stop:
        return 0, 0
    return start // grid.step_rows * grid.step_rows, stop


@inlined
def pace_of(slot: int, born: Any, resident: int, grid: Grid, pace: Pace) -> float:
    """Return the time of a row for a block among those that are `resident` on its SM."""
    older = 0
    for other in range(slot % grid.sms, born.size, grid.sms):
        older += born[other] < born[slot]
    free = grid.per_sm - resident
    shared: float = 1.0 - (1.0 - pace.alone) * free / (grid.per_sm - 1)
    return shared * (1.0 + (pace.younger - 1.0) * older / (grid.per_sm - 1))


@compiled
def run(
    tags: Any, seen: Any, sides: Any, cache: Cache, grid: Grid, pace: Pace, counts: Any
) -> None:
    """Run a grid to its end; add to `counts` (int64, COUNTS places) and leave the cache as it is.

    `tags` is int64 (parts, sets, ways), EMPTY where no line is; `seen` uint8, 1 for each sampled
    line ever touched; `sides` int64, the partition of each SM. Blocks are dispatched in the
    order of the grid, to SM 0, 1, ... for the first on each, then the second; who is done takes
    the next tile. Ties in time go to the lower slot.
    """
    total = grid.heads * grid.tiles * grid.splits
    slots = min(grid.slots, total)
    when = np.zeros(slots)  # a heap: when[k] <= when of its children, ties by slot
    who = np.arange(slots)
    number = np.full(slots, -1, dtype=np.int64)
    taken = np.zeros(slots, dtype=np.int64)
    position = np.zeros(slots, dtype=np.int64)
    resident = np.zeros(grid.sms, dtype=np.int64)
    born = np.arange(slots)  # who came first; the blocks of a persistent grid stay who they are
    for slot in range(slots):
        resident[slot % grid.sms] += 1
    following = slots
    running = slots
    deviation = math.sqrt(pace.drift)
    row = grid.stream_row // grid.stream_tensors
    while running > 0:
        now, slot = when[0], who[0]
        sm = slot % grid.sms
        part = sides[sm]
        wait = 0.0
        if number[slot] < 0:
            following_tile = following
            if grid.static:
                following_tile = slot + taken[slot] * slots
            elif taken[slot] == 0:
                following_tile = slot
            else:
                following += 1
            taken[slot] += 1
            if following_tile >= total:
                resident[sm] -= 1
                born[slot] = NEVER
                counts[TIME] = max(counts[TIME], np.int64(now))
                running -= 1
                when[0], who[0] = when[running], who[running]
            else:
                number[slot] = following_tile
                position[slot] = 0
                if not grid.persistent:
                    born[slot] = following_tile
                head, tile, split = tile_of(following_tile, grid)
                first = tile * grid.owner_block
                rows = min(grid.owner_block, grid.owner_rows - first)
                at = (head // grid.owner_group * grid.owner_rows + first) * grid.owner_row_read
                size = rows * grid.owner_row_read
                access(tags, seen, cache, counts, grid.at_owner + at, size, part, LOAD)
                at = grid.at_tile_store + slot * grid.tile_store
                access(tags, seen, cache, counts, at, grid.tile_store, part, STORE)
                wait = pace.start_rows
                when[0] = now + wait
        else:
            head, tile, split = tile_of(number[slot], grid)
            start, stop = rows_of(tile, split, grid)
            steps = (stop - start + grid.step_rows - 1) // grid.step_rows
            if position[slot] < steps:
                step = position[slot]
                if grid.keys_descending:
                    step = steps - 1 - step
                first = start + step * grid.step_rows
                rows = min(grid.step_rows, stop - first)
                at = grid.at_stream + (head // grid.stream_group * grid.stream_rows + first) * row
                for _ in range(grid.stream_tensors):
                    access(tags, seen, cache, counts, at, rows * row, part, LOAD)
                    at += grid.stream_bytes
                if grid.stream_add:
                    at = grid.at_add + (head * grid.stream_rows + first) * grid.stream_add
                    access(tags, seen, cache, counts, at, rows * grid.stream_add, part, ADD)
                if grid.step_store:
                    at = grid.at_step_store + slot * grid.step_store
                    access(tags, seen, cache, counts, at, grid.step_store, part, STORE)
                position[slot] += 1
                counts[STEPS] += 1
                wait = rows + math.sqrt(rows) * deviation * chance(
                    pace.seed, number[slot], position[slot]
                )
                wait = max(wait, 0.1 * rows)
                if grid.per_sm > 1:
                    wait *= pace_of(slot, born, resident[sm], grid, pace)
            if position[slot] >= steps:
                first = tile * grid.owner_block
                rows = min(grid.owner_block, grid.owner_rows - first)
                at = (head * grid.splits + split) * grid.owner_rows + first
                at = grid.at_output + at * grid.owner_row_write
                access(tags, seen, cache, counts, at, rows * grid.owner_row_write, part, STORE)
                at = grid.at_tile_store + slot * grid.tile_store
                access(tags, seen, cache, counts, at, grid.tile_load, part, LOAD)
                number[slot] = -1
            when[0] = now + wait
        sink(when, who, running)


@compiled
def sink(when: Any, who: Any, size: int) -> None:
    """Let the first of a heap of `size` go down to its place: earlier times up, ties by slot."""
    if size == 0:
        return
    time, slot = when[0], who[0]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        other = child + 1
        if other < size and (
            when[other] < when[child] or (when[other] == when[child] and who[other] < who[child])
        ):
            child = other
        if when[child] < time or (when[child] == time and who[child] < slot):
            when[place], who[place] = when[child], who[child]
            place = child
        else:
            break
    when[place], who[place] = time, slot
