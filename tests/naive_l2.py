"""Slow, obvious twin of the simulated L2: blocks as generators, sets as lists, time in a heapq."""

import heapq
import math
from collections import Counter
from collections.abc import Iterator

from iosim.device.l2 import Cache, Grid, Pace
from iosim.device.walks import Walk

MASK = (1 << 64) - 1


def scramble(x: int) -> int:
    """The finaliser of splitmix64 (Steele, Lea, Flood 2014)."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def chance(seed: int, tile: int, step: int) -> float:
    bits = scramble(
        (seed * 0x9E3779B1 + (tile + 1) * 0x100000001B3 + step * 0x85EBCA77C2B2AE63) & MASK
    )
    return (sum((bits >> shift) & 0xFFFF for shift in (0, 16, 32, 48)) - 131070.0) * 2.642937e-5


class L2:
    """Sets of lines, latest first, each [line, whether it is dirty]."""

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        self.sets: dict[tuple[int, int], list[list[int]]] = {}
        self.counts: Counter[str] = Counter()
        self.seen: set[int] = set()

    def lines(self, part: int, unit: int) -> list[list[int]]:
        bits = scramble(unit)
        if bits % (1 << 20) < self.cache.stray:
            place = (bits >> 20) % self.cache.sets
        else:
            start = scramble(unit // self.cache.page_units + (1 << 40)) >> 20
            place = (unit + start) % self.cache.sets
        return self.sets.setdefault((part, place), [])

    def use(self, part: int, unit: int, *, dirty: int = 0) -> bool:
        """Whether the line was there; it is the latest afterwards."""
        lines = self.lines(part, unit)
        for entry in lines:
            if entry[0] == unit:
                lines.remove(entry)
                lines.insert(0, [unit, entry[1] | dirty])
                return True
        if len(lines) == self.cache.ways:
            self.counts["written"] += lines.pop()[1]
        lines.insert(0, [unit, dirty])
        return False

    def access(self, start: int, size: int, part: int, kind: str) -> None:
        for unit in range(-(-start // self.cache.unit_bytes), start + size):
            if unit * self.cache.unit_bytes >= start + size:
                break
            home = (unit + unit // self.cache.sets) % self.cache.parts
            missing = False
            if kind == "load":
                self.counts["looked"] += 1
                if not self.use(part, unit):
                    missing = part == home or not self.use(home, unit)
                    self.counts["copied"] += not missing
            else:
                there = self.use(home, unit, dirty=1)
                missing = kind == "add" and not there
            self.counts["read"] += missing
            self.counts["first"] += missing and unit not in self.seen
            self.seen.add(unit)


def block(l2: L2, grid: Grid, pace: Pace, slot: int, number: int, part: int) -> Iterator[float]:
    """One tile: yields how long each part of it takes, and makes its accesses on the way."""
    split = number // (grid.heads if grid.heads_first else grid.tiles) % grid.splits
    if grid.heads_first:
        head, tile = number % grid.heads, number // grid.heads // grid.splits
    else:
        head, tile = number // grid.tiles // grid.splits, number % grid.tiles
    if grid.tiles_descending:
        tile = grid.tiles - 1 - tile
    owners = range(grid.owner_rows)[tile * grid.owner_block :][: grid.owner_block]
    first = head // grid.owner_group * grid.owner_rows + owners[0]
    read = grid.owner_row_read
    l2.access(grid.at_owner + first * read, len(owners) * read, part, "load")
    l2.access(grid.at_tile_store + slot * grid.tile_store, grid.tile_store, part, "store")
    yield pace.start_rows
    rows = list(range(grid.stream_rows))
    if grid.causal and grid.owner_is_query:
        rows = [row for row in rows if row <= owners[-1] + grid.offset]
    elif grid.causal:
        rows = [row for row in rows if row + grid.offset >= owners[0]]
    blocks: dict[int, list[int]] = {}
    for row in rows:
        blocks.setdefault(row // grid.step_rows, []).append(row)
    if grid.splits > 1:
        whole = -(-grid.stream_rows // grid.step_rows)
        each = -(-whole // grid.splits)
        blocks = {j: b for j, b in blocks.items() if j // each == split}
    row_bytes = grid.stream_row // grid.stream_tensors
    visited = sorted(blocks, reverse=grid.keys_descending)
    for step, j in enumerate(visited):
        start = j * grid.step_rows  # a step is loaded from its first row on
        count = blocks[j][-1] + 1 - start
        base = head // grid.stream_group * grid.stream_rows + start
        for tensor in range(grid.stream_tensors):
            at = grid.at_stream + tensor * grid.stream_bytes + base * row_bytes
            l2.access(at, count * row_bytes, part, "load")
        at = grid.at_add + (head * grid.stream_rows + start) * grid.stream_add
        l2.access(at, count * grid.stream_add, part, "add")
        l2.access(grid.at_step_store + slot * grid.step_store, grid.step_store, part, "store")
        l2.counts["steps"] += 1
        wait = count + math.sqrt(count) * math.sqrt(pace.drift) * chance(
            pace.seed, number, step + 1
        )
        if step == len(visited) - 1:
            finish(l2, grid, slot, (head * grid.splits + split) * grid.owner_rows, owners, part)
        yield -max(wait, 0.1 * count)  # negative: a time that depends on who shares the SM
    if not visited:
        finish(l2, grid, slot, (head * grid.splits + split) * grid.owner_rows, owners, part)
        yield 0.0


def finish(l2: L2, grid: Grid, slot: int, base: int, owners: range, part: int) -> None:
    write = grid.owner_row_write
    l2.access(grid.at_output + (base + owners[0]) * write, len(owners) * write, part, "store")
    l2.access(grid.at_tile_store + slot * grid.tile_store, grid.tile_load, part, "load")


def run(cache: Cache, grid: Grid, pace: Pace, sides: list[int]) -> dict[str, int]:
    """Run a grid to its end and return what was counted, in sampled lines."""
    l2 = L2(cache)
    total = grid.heads * grid.tiles * grid.splits
    slots = min(grid.slots, total)
    waiting = list(range(slots, total))
    mine = {s: list(range(s, total, slots)) if grid.static else [s] for s in range(slots)}
    on_sm = {sm: list(range(sm, slots, grid.sms)) for sm in range(grid.sms)}  # oldest first
    working: dict[int, Iterator[float]] = {}
    heap = [(0.0, slot) for slot in range(slots)]
    while heap:
        now, slot = heapq.heappop(heap)
        sm = slot % grid.sms
        wait = next(working[slot], None) if slot in working else None
        if wait is None:
            if mine[slot]:
                number = mine[slot].pop(0)
            elif waiting and not grid.static:
                number = waiting.pop(0)
            else:
                on_sm[sm].remove(slot)
                continue
            if not grid.persistent:
                on_sm[sm].sort(key=slot.__eq__)  # now the youngest
            working[slot] = block(l2, grid, pace, slot, number, sides[sm])
            wait = next(working[slot])
        if wait < 0:
            wait = -wait
            if grid.per_sm > 1:
                others = grid.per_sm - 1
                wait *= 1.0 - (1.0 - pace.alone) * (grid.per_sm - len(on_sm[sm])) / others
                wait *= 1.0 + (pace.younger - 1.0) * on_sm[sm].index(slot) / others
        heapq.heappush(heap, (now + wait, slot))
    dirty = sum(entry[1] for lines in l2.sets.values() for entry in lines)
    return {name: l2.counts[name] for name in ("read", "written", "looked", "copied", "first")} | {
        "steps": l2.counts["steps"],
        "dirty": dirty,
    }


def walk_reads(l2: L2, walk: Walk, sides: tuple[int, ...]) -> int:
    """Walk, every block for itself, and return the sampled lines read from HBM."""
    blocks = sorted(zip(walk.lags, sides, strict=True))
    order = list(range(walk.chunks))
    visits = []
    for number in range(walk.passes):
        visits += order[::-1] if walk.up_and_down and number % 2 else order
    unit = l2.cache.unit_bytes
    for step in range(len(visits) + max(walk.lags)):
        for line in range(0, walk.chunk_bytes, unit):
            for lag, part in blocks:
                if lag <= step < lag + len(visits):
                    start = visits[step - lag] * walk.chunk_bytes + line
                    l2.access(start, min(unit, walk.chunk_bytes - line), part, "load")
    return l2.counts["read"]
