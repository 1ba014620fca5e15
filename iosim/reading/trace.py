"""Trace: the lines that a schedule touches when a cache, and not the schedule, manages fast memory.

Every computation touches its operands tile by tile: its inputs are read, then its outputs
written, row-major.  Each contiguous run of words touches every line it covers once.  Moves touch
nothing: a cache loads by itself.  Where the words lie is told in `iosim.reading.trace_program`.

Compiled code runs the program of the schedule and fills a buffer at a time; nothing is stored,
whatever the length of the trace.
"""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from iosim.cache.jit import compiled, compiled_afresh
from iosim.cache.lru import Lru, lru_loop
from iosim.cache.result import CacheConfig, CacheResult
from iosim.cache.stream import BLOCK, Block
from iosim.reading.trace_program import (
    AXIS,
    BEHIND,
    BLOCK_ROWS,
    BODY,
    ENTER,
    LOOP,
    MOST_AXES,
    MOST_RELATED,
    NUMBERED,
    ORDER,
    OUTER,
    PARENT,
    RANGES,
    READ,
    RELATIVE,
    REPEAT,
    REVERSE,
    ROOM,
    ROWS,
    SNAKE,
    STRIDE,
    STRIDES,
    WRITE,
    Program,
    compile_trace,
)
from iosim.schedule.tree import Schedule

# Places in the state of a run.
AT: Final = 0  # the next instruction
RUN: Final = 1  # the next contiguous run of the current operand
RUNS: Final = 2
OUTER_AXES: Final = 3  # axes of the operand that are not contiguous
RUN_UNITS: Final = 4
START: Final = 5  # address of the tile
LINE: Final = 6  # next line of the current run
LAST: Final = 7
IS_WRITE: Final = 8
OPERAND: Final = 9
FIRST_EXTENT: Final = 16  # the tile's rows along each axis
STATE_SIZE: Final = FIRST_EXTENT + MOST_AXES  # behind it, for each loop, its current block and:
STOP: Final = 1  # the block after the last of the range at hand
STEP: Final = 2
FIRST_ROW: Final = 3  # of the current block
BLOCK_STOP: Final = 4  # the row after its last
NEXT: Final = 5  # the next range in the table
END: Final = 6  # the one after the last
PER_LOOP: Final = 7

#: Accesses that the fused loop runs at a time.
SLICE = 1 << 22
CHUNK: Final = 4096  # lines handed from the generator to the cache at a time


@compiled
def _section(loops: Any, state: Any, loop: int) -> tuple[int, int]:
    """First row that a loop cuts and the row after the last, where the run stands."""
    parent = loops[loop, PARENT]
    if parent < 0:
        return 0, loops[loop, AXIS]
    own = STATE_SIZE + PER_LOOP * parent
    return state[own + FIRST_ROW], state[own + BLOCK_STOP]


@compiled
def _set_rows(loops: Any, state: Any, loop: int) -> None:
    """Note the rows of the current block of a loop."""
    own = STATE_SIZE + PER_LOOP * loop
    first, stop = _section(loops, state, loop)
    first += state[own] * loops[loop, BLOCK_ROWS]
    state[own + FIRST_ROW] = first
    state[own + BLOCK_STOP] = min(first + loops[loop, BLOCK_ROWS], stop)


@compiled
def _next_range(loops: Any, ranges: Any, state: Any, loop: int) -> bool:
    """Set a loop to the beginning of its next range of blocks; False where there is none."""
    own = STATE_SIZE + PER_LOOP * loop
    row, step = state[own + NEXT], state[own + STEP]
    if row == state[own + END]:
        return False
    if step > 0:
        state[own], state[own + STOP] = ranges[row, 0], ranges[row, 1]
    else:
        state[own], state[own + STOP] = ranges[row, 1] - 1, ranges[row, 0] - 1
    state[own + NEXT] = row + step
    _set_rows(loops, state, loop)
    return True


@compiled
def _enter(loops: Any, ranges: Any, state: Any, loop: int) -> bool:
    """Set a loop to the first block that it visits; False where it visits none."""
    own = STATE_SIZE + PER_LOOP * loop
    outer = loops[loop, OUTER]
    back = loops[loop, ORDER] == REVERSE or (
        loops[loop, ORDER] == SNAKE and outer >= 0 and state[STATE_SIZE + PER_LOOP * outer] % 2 == 1
    )
    state[own + STEP] = -1 if back else 1
    state[own + NEXT], state[own + END] = 0, 0
    place = loops[loop, RANGES]
    if place < 0:
        first, stop = _section(loops, state, loop)
        blocks = -((first - stop) // loops[loop, BLOCK_ROWS])
        state[own], state[own + STOP] = (blocks - 1, -1) if back else (0, blocks)
        _set_rows(loops, state, loop)
        return True
    for k in range(MOST_RELATED):
        related = loops[loop, STRIDES + 2 * k]
        if related < 0:
            break
        place += state[STATE_SIZE + PER_LOOP * related] * loops[loop, STRIDES + 2 * k + 1]
    first, stop = ranges[place, 0], ranges[place, 1]
    state[own + NEXT], state[own + END] = (stop - 1, first - 1) if back else (first, stop)
    return _next_range(loops, ranges, state, loop)


@compiled
def _open_operand(operands: Any, axes: Any, state: Any, operand: int, write: int) -> None:
    """Set the state to the runs of the current tile of an operand."""
    first, count = operands[operand, 0], operands[operand, 1]
    start = operands[operand, 2]
    for place in range(count):
        axis = first + place
        rows = axes[axis, ROWS]
        loop = axes[axis, LOOP]
        if loop >= 0:
            own = STATE_SIZE + PER_LOOP * loop
            row = state[own + FIRST_ROW]
            rows = state[own + BLOCK_STOP] - row
            if axes[axis, NUMBERED] > 0:
                row, rows = row // axes[axis, NUMBERED], 1
            if axes[axis, RELATIVE] == 0:
                start += row * axes[axis, STRIDE]
        state[FIRST_EXTENT + place] = rows
    outer = count - 1
    units = state[FIRST_EXTENT + outer] * axes[first + outer, STRIDE]
    while outer > 0 and state[FIRST_EXTENT + outer] == axes[first + outer, ROOM]:
        outer -= 1
        units = state[FIRST_EXTENT + outer] * axes[first + outer, STRIDE]
    runs = 1
    for place in range(outer):
        runs *= state[FIRST_EXTENT + place]
    state[RUN], state[RUNS], state[OUTER_AXES] = 0, runs, outer
    state[RUN_UNITS], state[START], state[IS_WRITE] = units, start, write
    state[OPERAND] = operand


@compiled
def _next_run(
    code: Any, loops: Any, ranges: Any, operands: Any, axes: Any, state: Any, line_units: int
) -> bool:
    """Set LINE and LAST to the next contiguous run; False at the end of the program."""
    while state[RUN] == state[RUNS]:
        at = state[AT]
        kind, argument = code[at, 0], code[at, 1]
        if kind in (READ, WRITE):
            _open_operand(operands, axes, state, argument, kind - READ)
            state[AT] = at + 1
        elif kind == ENTER:
            some = _enter(loops, ranges, state, argument)
            state[AT] = at + 1 if some else loops[argument, BEHIND]
        elif kind == REPEAT:
            own = STATE_SIZE + PER_LOOP * argument
            state[own] += state[own + STEP]
            more = state[own] != state[own + STOP]
            if more:
                _set_rows(loops, state, argument)
            else:
                more = _next_range(loops, ranges, state, argument)
            state[AT] = loops[argument, BODY] if more else at + 1
        else:
            return False
    run = state[RUN]
    state[RUN] = run + 1
    address = state[START]
    operand = state[OPERAND]
    for place in range(state[OUTER_AXES] - 1, -1, -1):
        rows = state[FIRST_EXTENT + place]
        address += (run % rows) * axes[operands[operand, 0] + place, STRIDE]
        run //= rows
    state[LINE] = address // line_units
    state[LAST] = (address + state[RUN_UNITS] - 1) // line_units
    return True


@compiled
def _fill(
    code: Any,
    loops: Any,
    ranges: Any,
    operands: Any,
    axes: Any,
    state: Any,
    line_units: int,
    lines: Any,
    writes: Any,
) -> int:
    """Write the next accesses into `lines` and `writes` (or None); return how many there are."""
    filled = 0
    while True:
        line = state[LINE]
        count = min(state[LAST] - line + 1, lines.size - filled)
        for k in range(count):
            lines[filled + k] = line + k
        if writes is not None:
            flag = state[IS_WRITE]
            for k in range(count):
                writes[filled + k] = flag
        filled += int(count)
        state[LINE] = line + count
        if filled == lines.size:
            return filled
        if not _next_run(code, loops, ranges, operands, axes, state, line_units):
            return filled


@compiled_afresh
def _fill_and_count(
    code: Any,
    loops: Any,
    ranges: Any,
    operands: Any,
    axes: Any,
    state: Any,
    line_units: int,
    ids: Any,
    writes: Any,
    last: Any,
    ring: Any,
    counters: Any,
    capacity: int,
    allocate: bool,
    back: bool,
    most: int,
) -> int:
    """Generator and LRU in one: run up to `most` accesses, a chunk in a core's cache at a time."""
    done = 0
    while done < most:
        count = _fill(code, loops, ranges, operands, axes, state, line_units, ids, writes)
        if count == 0:
            break
        marks = None if writes is None else writes[:count]
        lru_loop(ids[:count], marks, last, ring, counters, capacity, allocate, back, None)
        done += count
    return done


def trace(schedule: Schedule, line_bytes: int | None = None) -> Iterator[Block]:
    """Stream the accesses of a schedule as line numbers, for `iosim.cache`.

    With `line_bytes`, addresses are bytes and every tensor begins on a line; slow tensors take
    their item size in slow memory, scratch that in fast memory.  Without it every word is a line
    of its own.  Raises IosimError for a line size that is not positive.

    >>> from iosim.schedule import family
    >>> from iosim.shape import AttentionShape
    >>> flash2 = family("flash2").build(AttentionShape(4, 4, 2), br=2, bc=2)
    >>> sum(block.lines.size for block in trace(flash2))
    312
    """
    program = compile_trace(schedule, line_bytes)
    state = _start(program)
    while True:
        lines = np.empty(BLOCK, dtype=np.int64)
        writes = np.empty(BLOCK, dtype=np.uint8)
        count = _fill(*_tables(program, state), lines, writes)
        if count == 0:
            return
        yield Block(lines[:count], writes[:count])


def lru_of_schedule(
    schedule: Schedule,
    config: CacheConfig,
    line_bytes: int | None = None,
    reads_only: bool = False,
) -> CacheResult:
    """Count a fully associative LRU cache over a schedule: generator and cache in one loop.

    The result is that of `simulate` over `trace`, sooner.  `reads_only` takes every access for a
    read, which is enough for misses.
    """
    program = compile_trace(schedule, line_bytes)
    state = _start(program)
    engine = Lru(config)
    ids = np.empty(CHUNK, dtype=np.int32)
    writes = None if reads_only else np.empty(CHUNK, dtype=np.uint8)
    done = SLICE
    while done >= SLICE:
        tables = engine.tables(program.lines, SLICE + CHUNK)
        done = _fill_and_count(
            *_tables(program, state),
            ids,
            writes,
            *tables,
            config.capacity_lines,
            config.write_allocate,
            config.write_back,
            SLICE,
        )
    return engine.results()[0]


def _tables(program: Program, state: Any) -> tuple[Any, Any, Any, Any, Any, Any, int]:
    return (
        program.code,
        program.loops,
        program.ranges,
        program.operands,
        program.axes,
        state,
        program.line_units,
    )


def _start(program: Program) -> Any:
    """Return the state of a run that has not begun."""
    state = np.zeros(STATE_SIZE + PER_LOOP * len(program.loops), dtype=np.int64)
    state[LINE] = 1  # past LAST: there is no current run
    return state
