"""Speed of the spine: counting, whole commands, and execution beside NumPy's own attention.

    python benchmarks/spine_speed.py

Times are medians of one run on the machine at hand; the ratios are what to compare.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping

import numpy as np

from iosim.reading.count import count
from iosim.reading.execute import execute
from iosim.report import simulate
from iosim.schedule import families, family
from iosim.schedule.masks import Butterfly, Documents, LocalGlobal, Random, Window
from iosim.schedule.tree import Schedule
from iosim.shape import AttentionShape

N = 10_000_000
MASKS = (
    {},
    {"causal": True},
    {"mask": Window(4096, 4096)},
    {"causal": True, "mask": Window(4096, 0)},
    {"mask": LocalGlobal(4096, 4096, 64)},
    {"causal": True, "mask": LocalGlobal(4096, 4096, 64)},
    {"mask": Documents((N // 3, 1000, N - N // 3 - 1000))},
    {"causal": True, "mask": Documents((N // 1000,) * 1000)},
    {"mask": Butterfly(16384)},
    {"causal": True, "mask": Butterfly(16384)},
    {"mask": Random(0.01, 65536)},
    {"causal": True, "mask": Random(0.01, 65536)},
)
SETTINGS = {
    "flash2_packed": ({}, {"page_size": 256}),
    "split_kv": ({"splits": 7}, {"splits": 101, "page_size": 256}),
    "ring": ({"ranks": 8}, {"ranks": 33}),
    "ulysses": ({"ranks": 4},),
    "tree_decoding": ({"ranks": 8}, {"ranks": 64}),
}


def median_seconds(run: Callable[[], object], repeats: int) -> float:
    run()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def command(*arguments: str) -> Callable[[], object]:
    line = [sys.executable, "-c", "from iosim.cli import main; main()", *arguments]
    return lambda: subprocess.run(line, check=True, capture_output=True)


def standard_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """NumPy's own: three calls, in place where it can be."""
    s = q @ k.swapaxes(-1, -2)
    s *= np.float32(q.shape[-1] ** -0.5)
    s -= s.max(axis=-1, keepdims=True)
    np.exp(s, out=s)
    s /= s.sum(axis=-1, keepdims=True)
    return s @ v


def standard_backward(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, p: np.ndarray, dO: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """NumPy's own, from a stored P: four products, in place where it can be."""
    scale = np.float32(q.shape[-1] ** -0.5)
    ds = dO @ v.swapaxes(-1, -2)
    ds -= np.einsum("...ij,...ij->...i", p, ds)[..., None]
    ds *= p
    return scale * (ds @ k), scale * (ds.swapaxes(-1, -2) @ q), p.swapaxes(-1, -2) @ dO


def counting() -> None:
    n = 1_000_000_000
    shape = AttentionShape(n, n, 64, causal=True)
    for name, given in (("1 x 1 tiles", {"br": 1, "bc": 1}), ("best tiles for 100 KiB", None)):
        seconds = median_seconds(
            lambda given=given: simulate(family("flash2"), shape, sram_words=51200, given=given), 20
        )
        print(f"simulate, N = 1e9, causal, {name}: {1000 * seconds:.1f} ms (to meet: 50 ms)")

    print("count, N = 1e7, every schedule (to meet: 100 ms each):")
    for name in (*families("forward"), *families("backward")):
        for size in (128, 2):
            times = {}
            for seen in MASKS:
                for settings in SETTINGS.get(name, ({},)):
                    shape = AttentionShape(N, N, 64, heads=8, kv_heads=4, **seen)
                    sizes = dict.fromkeys(family(name).tiles, size)
                    schedule = family(name).build(shape, **sizes, **settings)
                    case = label(seen | settings)
                    # Sums are remembered: each is worked out anew, as for a new command.
                    times[case] = min(forgetful_seconds(schedule) for _ in range(3))
            worst = max(times, key=lambda case: times[case])
            over = [case or "no mask" for case, seconds in times.items() if seconds > 0.1]
            print(
                f"  {name}, tiles of {size}: {len(times)} cases, the slowest "
                f"{1000 * times[worst]:.0f} ms ({worst or 'no mask'})"
                + (f"; above: {'; '.join(over)}" if over else "")
            )

    shape = AttentionShape(N, N, 64, heads=8, kv_heads=4, causal=True)
    for settings in ({"ranks": 64, "layout": "zigzag"}, {"ranks": 64, "layout": "striped"}):
        schedule = family("ring").build(shape, br=128, bc=128, **settings)
        seconds = min(forgetful_seconds(schedule) for _ in range(3))
        print(f"  ring, causal, {label(settings)}: {1000 * seconds:.0f} ms")

    print("count, N = 1e7, several devices, tiles of 128, by mask (ms, to meet: 100):")
    devices = [
        (name, settings) for name in ("ring", "tree_decoding") for settings in SETTINGS[name]
    ]
    for seen in MASKS:
        shape = AttentionShape(N, N, 64, heads=8, kv_heads=4, **seen)
        found = []
        for name, settings in devices:
            schedule = family(name).build(shape, br=128, bc=128, **settings)
            seconds = min(forgetful_seconds(schedule) for _ in range(3))
            found.append(f"{name} on {settings['ranks']}: {1000 * seconds:.0f}")
        print(f"  {label(seen) or 'no mask'}: {', '.join(found)}")

    # Sections of an odd number of rows, as many as 2-key tiles in each: the most terms there are.
    shape = AttentionShape(N, N, 64, heads=8, kv_heads=4, causal=True)
    for name, settings in (
        ("split_kv", {"splits": 2236}),
        ("flash2_packed", {"page_size": 4473}),
    ):
        schedule = family(name).build(shape, br=2, bc=2, **settings)
        seconds = min(forgetful_seconds(schedule) for _ in range(3))
        print(f"  {name}, causal, tiles of 2 in odd sections: {1000 * seconds:.0f} ms")


def label(case: Mapping[str, object]) -> str:
    """Return a case in a few words; of many documents only how many there are."""
    words = []
    for name, value in case.items():
        text = f"{len(value.lengths)} documents" if isinstance(value, Documents) else str(value)
        words.append(name if value is True else text if name == "mask" else f"{name} {text}")
    return " ".join(words)


def forgetful_seconds(schedule: Schedule) -> float:
    """Return how long a count takes that remembers nothing of an earlier one."""
    for name, module in tuple(sys.modules.items()):
        if name.partition(".")[0] == "iosim":
            for value in vars(module).values():
                if hasattr(value, "cache_clear"):
                    value.cache_clear()
    start = time.perf_counter()
    count(schedule)
    return time.perf_counter() - start


def commands() -> None:
    case = ["--seq-len", "8k", "--head-dim", "64", "--sram", "100KiB"]
    for name, arguments, limit in (
        ("iosim --help", ["--help"], 0.3),
        ("iosim simulate, one case", ["simulate", "--schedule", "flash2", *case], 1.0),
    ):
        seconds = median_seconds(command(*arguments), 5)
        print(f"{name}: {seconds:.2f} s as a whole process (to meet: {limit} s)")


def execution() -> None:
    shape = AttentionShape(4096, 4096, 64, heads=8, dtype="float32")
    draw = np.random.default_rng(0).normal
    q, k, v = (draw(size=(8, 4096, 64)).astype(np.float32) for _ in range(3))
    ours = {
        "flash2 128 x 128": ("flash2", {"br": 128, "bc": 128}),
        "flash2 256 x 256": ("flash2", {"br": 256, "bc": 256}),
        "flash1 128 x 128": ("flash1", {"br": 128, "bc": 128}),
        "standard, row by row": ("standard", {}),
    }
    print("execute, N = 4096, d = 64, float32, 8 heads, beside NumPy's standard attention:")
    for label, (name, sizes) in ours.items():
        schedule = family(name).build(shape, **sizes)
        # In turns, so that a busy machine slows both alike.
        ratios = []
        for _ in range(5):
            theirs = median_seconds(lambda: standard_attention(q, k, v), 1)
            mine = median_seconds(lambda schedule=schedule: execute(schedule, q, k, v), 1)
            ratios.append(mine / theirs)
        print(f"  {label}: {statistics.median(ratios):.2f} x NumPy (to meet for flash2: 4)")


def backward_execution() -> None:
    shape = AttentionShape(2048, 2048, 64, heads=4, dtype="float32")
    draw = np.random.default_rng(0).normal
    q, k, v, dO = (draw(size=(4, 2048, 64)).astype(np.float32) for _ in range(4))
    forward = execute(family("flash2").build(shape, br=128, bc=128), q, k, v)
    kept = {"O": forward.O, "LSE": forward.LSE}
    s = q @ k.swapaxes(-1, -2) * np.float32(64**-0.5)
    p = np.exp(s - forward.LSE[..., None])
    print("execute, backward, N = 2048, d = 64, float32, 4 heads, beside NumPy's from a stored P:")
    for name in ("flash2_backward", "flash2_backward_q"):
        for size in (128, 256):
            schedule = family(name).build(shape, br=size, bc=size)
            ratios = []
            for _ in range(5):
                theirs = median_seconds(lambda: standard_backward(q, k, v, p, dO), 1)
                mine = median_seconds(
                    lambda schedule=schedule: execute(schedule, q, k, v, dO=dO, **kept), 1
                )
                ratios.append(mine / theirs)
            print(
                f"  {name} {size} x {size}: {statistics.median(ratios):.2f} x NumPy "
                "(to meet for flash2_backward: 5)"
            )


if __name__ == "__main__":
    counting()
    commands()
    execution()
    backward_execution()
