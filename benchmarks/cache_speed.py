"""Speed of the cache engines beside libcachesim and pycachesim, in one run.

    pip install libcachesim pycachesim
    python benchmarks/cache_speed.py [--accesses 10000000] [--repeat 3] [--no-peers] [--cpu-time]

Prints one table: million accesses a second (the best of the repeats), what was asked, and the
ratio to libcachesim at the same trace and policy.  The peers are no dependencies of iosim; a peer
that is not installed is left out.  The misses of all tools are compared on the way.  All work is
on one thread: --cpu-time takes the time of the processor instead of the clock's, for a machine
that has other work too.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from iosim.cache import CacheConfig, CacheResult, from_arrays, simulate, simulate_curves
from iosim.reading.trace import lru_of_schedule
from iosim.schedule import family
from iosim.shape import AttentionShape

CAPACITY = 4096
IDS = 1_000_000
#: What the project asks of each engine, in million accesses a second, and as ratio to libcachesim.
ASKED = {
    "lru": {"attn": (300, 10), "zipf": (80, 3), "uniform": (50, 2)},
    "lru, dirty bits": {"attn": (120, None), "zipf": (70, None), "uniform": (70, None)},
    "opt": {"attn": (300, 4), "zipf": (60, 4), "uniform": (40, 4)},
    "lru curve": {"attn": (50, None), "zipf": (15, None), "uniform": (12, None)},
    "opt curve": {"attn": (3, None), "zipf": (1, None), "uniform": (0.7, None)},
    "generator and lru": {"standard": (400, None)},
    "generator and lru, dirty bits": {"standard": ("-", None)},
}
Trace = tuple[np.ndarray, np.ndarray]
Clock = Callable[[], float]


def attn(length: int = 2048) -> Trace:
    """Lines of S = Q K^T row by row: two lines a row of Q and K; S, 32 columns a line, written."""
    keys = 2 * length + np.arange(2 * length).reshape(-1, 64)
    lines, writes = [], []
    for row in range(length):
        scores = 4 * length + row * len(keys) + np.arange(len(keys))
        swept = np.column_stack([keys, scores])
        written = np.zeros(swept.shape, dtype=np.uint8)
        written[:, -1] = 1
        lines += [np.array([2 * row, 2 * row + 1]), swept.ravel()]
        writes += [np.zeros(2, dtype=np.uint8), written.ravel()]
    return np.concatenate(lines).astype(np.int64), np.concatenate(writes)


def zipf(accesses: int) -> Trace:
    """Ids drawn with probability 1 / rank, in no order; three in ten are writes."""
    random = np.random.default_rng(1)
    weights = np.cumsum(1 / np.arange(1, IDS + 1))
    ranks = np.searchsorted(weights / weights[-1], random.random(accesses))
    lines = random.permutation(IDS)[ranks].astype(np.int64)
    return lines, (random.random(accesses) < 0.3).astype(np.uint8)


def uniform(accesses: int) -> Trace:
    """Ids drawn evenly; three in ten are writes."""
    random = np.random.default_rng(2)
    return random.integers(0, IDS, accesses), (random.random(accesses) < 0.3).astype(np.uint8)


def seconds(work: Callable[[], int], repeat: int, clock: Clock) -> tuple[float, int]:
    """The best time of some runs, and the misses that they count."""
    best, misses = float("inf"), 0
    for _ in range(repeat):
        start = clock()
        misses = work()
        best = min(best, clock() - start)
    return best, misses


def ours(name: str, trace: Trace) -> Callable[[], int]:
    lines, writes = trace
    marks = writes if "dirty" in name else None
    policy = name.split()[0].strip(",")

    def run() -> int:
        if "curve" in name:
            return simulate_curves(from_arrays(lines), [policy])[0].at(CAPACITY).misses
        return simulate(from_arrays(lines, marks), [policy], [CAPACITY], CacheConfig(1))[0].misses

    return run


def fused(dirty: bool) -> tuple[Callable[[], int], int]:
    """Generator and cache in one compiled loop, on standard attention of 2048 rows (float16)."""
    shape = AttentionShape(2048, 2048, 64)
    schedule = family("standard").build(shape)

    def run() -> CacheResult:
        return lru_of_schedule(schedule, CacheConfig(CAPACITY), 64, reads_only=not dirty)

    return lambda: run().misses, run().accesses


def libcachesim_run(policy: str, file: Path, accesses: int) -> Callable[[], int] | None:
    """One run of libcachesim's own loop over its own binary format."""
    try:
        import libcachesim
    except ImportError:
        return None
    kind = {"lru": libcachesim.LRU, "opt": libcachesim.Belady}[policy]

    def run() -> int:
        reader = libcachesim.TraceReader(
            str(file), trace_type=libcachesim.TraceType.ORACLE_GENERAL_TRACE
        )
        return round(kind(cache_size=CAPACITY).process_trace(reader)[0] * accesses)

    return run


def pycachesim_run(lines: np.ndarray) -> Callable[[], int] | None:
    """One run of pycachesim, fully associative LRU with 64-byte lines."""
    try:
        from cachesim import Cache, CacheSimulator, MainMemory
    except ImportError:
        return None

    def run() -> int:
        memory = MainMemory()
        cache = Cache("L1", 1, CAPACITY, 64, "LRU")
        memory.load_to(cache)
        memory.store_from(cache)
        simulator = CacheSimulator(cache, memory)
        simulator.load((64 * lines).tolist(), length=1)
        return int(cache.stats()["MISS_count"])

    return run


def write_oracle_general(lines: np.ndarray, file: Path) -> None:
    """libCacheSim's binary format: time, id, size and next use of every request."""
    order = np.argsort(lines, kind="stable")
    same = lines[order][1:] == lines[order][:-1]
    record = np.zeros(
        lines.size, dtype=[("time", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")]
    )
    record["id"] = lines + 1
    record["size"] = 1
    record["next"] = -1
    record["next"][order[:-1][same]] = order[1:][same] + 1
    record.tofile(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--accesses", type=int, default=10_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--cpu-time", action="store_true")
    options = parser.parse_args()
    clock = time.process_time if options.cpu_time else time.perf_counter
    traces = {"attn": attn(), "zipf": zipf(options.accesses), "uniform": uniform(options.accesses)}
    print("| engine | trace | M accesses/s | asked | libcachesim | ratio | asked | misses |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    for name, asked in ASKED.items():
        for label, (least, least_ratio) in asked.items():
            if label == "standard":
                run, accesses = fused("dirty" in name)
                lines = np.zeros(0)
            else:
                lines, _ = traces[label]
                run, accesses = ours(name, traces[label]), lines.size
            run()  # compiles
            best, misses = seconds(run, options.repeat, clock)
            rate = accesses / best / 1e6
            peer = ratio = "-"
            if name in ("lru", "opt") and not options.no_peers:
                with tempfile.TemporaryDirectory() as folder:
                    file = Path(folder) / "trace.oracleGeneral.bin"
                    write_oracle_general(lines, file)
                    run_peer = libcachesim_run(name, file, lines.size)
                    if run_peer is not None:
                        peer_best, peer_misses = seconds(run_peer, options.repeat, clock)
                        assert peer_misses == misses, (name, label, peer_misses, misses)
                        peer = f"{lines.size / peer_best / 1e6:.1f}"
                        ratio = f"{peer_best / best:.1f}"
            print(
                f"| {name} | {label} | {rate:.1f} | {least} | {peer} | {ratio} | "
                f"{least_ratio or '-'} | {misses} |",
                flush=True,
            )
    if not options.no_peers:
        part = traces["zipf"][0][:100_000]
        run_peer = pycachesim_run(part)
        if run_peer is not None:
            best, misses = seconds(run_peer, 1, clock)
            (mine,) = simulate(from_arrays(part), ["lru"], [CAPACITY])
            assert misses == mine.misses, (misses, mine.misses)
            print(f"\npycachesim, fully associative LRU, zipf: {part.size / best / 1e6:.2f}")


if __name__ == "__main__":
    main()
