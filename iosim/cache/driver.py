"""Drive engines over a stream: many caches in one pass, whole curves, and clean interruption."""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType

import numpy as np

from iosim.cache.index import LineIndex
from iosim.cache.registry import Batch, Engine, make_curve, make_engines
from iosim.cache.result import CacheConfig, CacheResult, CurveResult
from iosim.cache.stream import Stream
from iosim.errors import IosimError

#: Called now and then with the number of accesses so far.
Progress = Callable[[int], None]


def simulate(
    stream: Stream,
    policies: Sequence[str],
    capacities: Sequence[int],
    config: CacheConfig | None = None,
    progress: Progress | None = None,
) -> list[CacheResult]:
    """Simulate every policy at every capacity (in lines) in one pass over `stream`.

    `config` gives the other rules of the caches; its own capacity is not used.  Results come
    policy by policy, in the order of `capacities`.  After an interrupt (Ctrl-C) they hold what
    was counted so far and are marked partial.  Raises IosimError for a cache that cannot be and
    for a stream without accesses.

    >>> from iosim.cache.stream import from_arrays
    >>> belady = [1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5]
    >>> [r.misses for r in simulate(from_arrays(belady), ["fifo"], [3, 4])]
    [9, 10]
    """
    rules = config or CacheConfig(1)
    if not policies or not capacities:
        raise IosimError("no policy or no capacity is given; give at least one of each")
    configs = [replace(rules, capacity_lines=int(capacity)) for capacity in capacities]
    engines = [engine for policy in policies for engine in make_engines(policy, configs)]
    complete = drive(stream, engines, progress)
    found = [result for engine in engines for result in engine.results(partial=not complete)]
    return [result for result in found if isinstance(result, CacheResult)]


def simulate_curves(
    stream: Stream,
    policies: Sequence[str],
    config: CacheConfig | None = None,
    progress: Progress | None = None,
) -> list[CurveResult]:
    """Compute the misses at all capacities for every policy ("lru", "opt") in one pass.

    As `simulate` otherwise.

    >>> from iosim.cache.stream import from_arrays
    >>> [r.misses.tolist() for r in simulate_curves(from_arrays([1, 2, 1, 3, 2]), ["lru", "opt"])]
    [[5, 5, 4, 3], [5, 5, 3, 3]]
    """
    engines = [make_curve(policy, config or CacheConfig(1)) for policy in policies]
    complete = drive(stream, engines, progress)
    found = [result for engine in engines for result in engine.results(partial=not complete)]
    return [result for result in found if isinstance(result, CurveResult)]


def drive(stream: Stream, engines: Sequence[Engine], progress: Progress | None = None) -> bool:
    """Feed a stream to engines; return False when an interrupt came before its end."""
    index = LineIndex()
    accesses = 0
    any_write = False
    blocks = iter(stream)
    with _interruptible() as interrupt:
        while True:
            try:
                with interrupt.may_raise():
                    block = next(blocks, None)
            except KeyboardInterrupt:
                return False
            if block is None:
                break
            distinct = engines[0].distinct if engines else 0
            ids = index.ids(block.lines, distinct)
            writes = block.writes
            if writes is None and any_write:
                writes = np.zeros(ids.size, dtype=np.uint8)
            any_write = writes is not None
            batch = Batch(block.lines, writes, ids, index.size)
            for engine in engines:
                engine.feed(batch)
            accesses += ids.size
            if progress is not None:
                progress(accesses)
            if interrupt.came:
                return False
    if accesses == 0:
        raise IosimError("the trace is empty; give a trace of at least one access")
    return True


class _Interrupt:
    """Whether Ctrl-C came; it may only raise while waiting for input, never within a batch."""

    def __init__(self) -> None:
        self.came = False
        self._waiting = False

    def handle(self, _signal: int, _frame: FrameType | None) -> None:
        self.came = True
        if self._waiting:
            raise KeyboardInterrupt

    @contextmanager
    def may_raise(self) -> Iterator[None]:
        self._waiting = True
        try:
            yield
        finally:
            self._waiting = False


@contextmanager
def _interruptible() -> Iterator[_Interrupt]:
    """Take over SIGINT for the time of a run (in the main thread; elsewhere it never comes)."""
    interrupt = _Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    before = signal.signal(signal.SIGINT, interrupt.handle)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)
