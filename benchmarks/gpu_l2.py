"""What an L2 keeps and how blocks share a GPU, measured: python benchmarks/gpu_l2.py FILE.

Four experiments that the parameters of iosim/data/devices.json rest on (docs/l2-experiments.md):

- Walks: blocks, one on each multiprocessor, read a stream chunk by chunk in step, some behind the
  others. Nsight Compute counts what comes from HBM, caches flushed before each walk.
- Sides: how long each multiprocessor waits for each of some lines; two halves of the former are
  nearer to two halves of the latter.
- Dispatch: which multiprocessor each block of a grid gets.
- Pace: the time of FlashAttention-2 with 1, 2, ... blocks for each multiprocessor; needs torch, and
  is left out without it.

Needs a GPU that nobody else uses, Nsight Compute and permission to read counters; takes about 20 s.
"""

import datetime
import importlib.util
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from iosim.audit.counters import METRICS
from iosim.audit.ncu_csv import read_page
from iosim.errors import IosimError
from iosim.gpu import ncu, ptx

MIB = 1 << 20
CHUNK = 256 << 10  # bytes
STREAM_MIB = 160  # of a walk with lags
THREADS = 512
COUNTER = METRICS["dram_read"][0]
SECONDS = 600  # that all walks may take under ncu

LINES, APART = 512, 5 * 4096  # whose latency is measured, and bytes from one to the next
HEAD_DIMS, KEYS, BLOCKS, REPEATS = (64, 128), (16384, 32768), range(1, 7), 6


def walks(sms: int) -> list[dict[str, Any]]:
    """Return the walks for so many multiprocessors.

    `mib` is the size that a walk is about: of the circle, of the lag, or of the window that the
    multiprocessors are spread over. A stream has so many `chunks`; `lags` has some for each block.
    """
    lot, found = random.Random(0), []

    def walk(name: str, mib: int, lags_mib: Sequence[float], passes: int = 1) -> None:
        found.append(
            {
                "name": name,
                "mib": mib,
                "chunks": (mib if passes > 1 else STREAM_MIB) * MIB // CHUNK,
                "passes": passes,
                "up_and_down": name == "up and down",
                "lags": [round(lag * MIB / CHUNK) for lag in lags_mib],
            }
        )

    for size in (16, 24, 26, 28, 30, 32, 34, 36, 38, 40, 48, 64):
        for passes in (2, 4):
            walk("cyclic", size, [0] * sms, passes)
    for size in (32, 40, 48, 56, 60, 64, 68):
        walk("cyclic, one block", size, [0], 3)
    for size in (28, 32, 36, 40, 48, 64):
        walk("up and down", size, [0] * sms, 4)
    half = set(lot.sample(range(sms), sms // 2))
    for lag in (8, 12, 14, 16, 20, 24, 28, 32, 36, 40, 48, 64):
        walk("half behind", lag, [0 if block in half else lag for block in range(sms)])
    for lag in (8, 12, 16, 24, 28, 32, 40, 48, 56, 64):
        walk("one behind", lag, [0] * (sms - 1) + [lag])
        walk("one ahead", lag, [0] + [lag] * (sms - 1))
        walk("two blocks", lag, [0, lag])
    thirds = [lot.randrange(3) for _ in range(sms)]
    for lag in (8, 12, 14, 16, 20, 24, 28):
        walk("thirds behind", lag, [lag * third for third in thirds])
    places = lot.sample(range(sms), sms)
    for window in (8, 16, 24, 28, 30, 32, 36, 48, 64, 96):
        walk("spread", window, [window * place / sms for place in places])
    return found


def walk_kernel() -> Any:
    """Return the kernel of a walk, by block.

    Takes the addresses of stream, lags (int32), counter (uint32, 0), places (int32, gets the
    multiprocessor of each block) and one spare word; then bytes of a chunk, chunks, passes, whether
    it goes up and down, the largest lag and the threads of a block. All blocks must run at once.
    """
    thread, block, blocks, barrier = ptx.thread, ptx.block, ptx.blocks, ptx.barrier
    load_4, load_16, store_4 = ptx.load_4, ptx.load_16, ptx.store_4
    arrive, arrived, multiprocessor = ptx.add_release, ptx.load_acquire, ptx.multiprocessor

    def walk(
        stream, lags, counter, places, spare, size, chunks, passes, up_and_down, last, threads
    ):
        if thread() == 0:
            store_4(places + 4 * block(), multiprocessor())
        lag = load_4(lags + 4 * block())
        total = chunks * passes
        waiting_for = 0
        words = 0
        for step in range(total + last):
            gone = step - lag
            if gone >= 0 and gone < total:
                chunk = gone % chunks
                if up_and_down and gone // chunks % 2 == 1:
                    chunk = chunks - 1 - chunk
                start = stream + chunk * size
                for at in range(16 * thread(), size, 16 * threads):
                    a, b, c, d = load_16(start + at)
                    words ^= a ^ b ^ c ^ d
            barrier()
            waiting_for += blocks()
            if thread() == 0:
                arrive(counter, 1)
                while arrived(counter) < waiting_for:
                    pass
            barrier()
        if words == 123456789:  # so that nobody can leave out the loads
            store_4(spare, 1)

    return walk


def latency_kernel() -> Any:
    """Return the kernel that times loads of single lines from one multiprocessor.

    Takes the addresses of buffer, cycles (int32, gets one for each line), places (as for a walk)
    and a spare word; then the number of lines, the bytes between them and the multiprocessor.
    """
    thread, block, clock = ptx.thread, ptx.block, ptx.clock
    load_4, store_4, multiprocessor = ptx.load_4, ptx.store_4, ptx.multiprocessor

    def latency(buffer, cycles, places, spare, lines, apart, which):
        if thread() == 0:
            here = multiprocessor()
            store_4(places + 4 * block(), here)
            if here == which:
                for again in range(2):  # the first time they may come from HBM
                    for line in range(lines):
                        before = clock()
                        if load_4(buffer + line * apart) == 123456789:  # waits for the word
                            store_4(spare, again)
                        store_4(cycles + 4 * line, clock() - before)

    return latency


def kinds(addresses: int, numbers: int) -> tuple[Any, ...]:
    """Return the types of a kernel's arguments."""
    from numba.cuda import types

    return (types.int64,) * (addresses + numbers)


# Arguments of the kernels: addresses, then numbers.
WALK = (walk_kernel, 5, 6, THREADS)
LATENCY = (latency_kernel, 4, 3, 32)


def compiled(kernel: tuple[Any, ...], capability: tuple[Any, ...]) -> Any:
    """Return the machine code of WALK or LATENCY; needs no GPU."""
    from iosim.gpu.compiler import assemble

    make, addresses, numbers, threads = kernel
    return assemble(make(), kinds(addresses, numbers), capability, threads)


def loaded(kernel: tuple[Any, ...]) -> Any:
    """Return WALK or LATENCY on the current device."""
    from iosim.gpu.launch import Loaded, capability

    variant = SimpleNamespace(kernel=kernel[0].__name__, threads=kernel[3], shared_bytes=0)
    return Loaded(compiled(kernel, capability()), variant)


def address(array: Any) -> int:
    return int(array.__cuda_array_interface__["data"][0])


def multiprocessors() -> int:
    from iosim.gpu.launch import context

    return int(context().device.MULTIPROCESSOR_COUNT)


def launch_walks(answers: Path) -> None:
    """Launch each walk between profiler marks; write where its blocks ran. Runs under ncu."""
    from numba import cuda

    sms = multiprocessors()
    given = walks(sms)
    kernel = loaded(WALK)
    stream = cuda.device_array(max(walk["chunks"] for walk in given) * CHUNK, np.uint8)
    # A counter for each walk, in lines of its own, so that nothing has to be cleared in between.
    counters = cuda.to_device(np.zeros((len(given), 64), np.uint32))
    spare = cuda.to_device(np.zeros(1, np.int32))
    found = []
    for number, walk in enumerate(given):
        if len(walk["lags"]) > sms:
            raise SystemExit(f"{len(walk['lags'])} blocks do not run at once on {sms} SMs")
        last = max(walk["lags"])
        lags = cuda.to_device(np.array(walk["lags"], np.int32))
        places = cuda.to_device(np.full(len(walk["lags"]), -1, np.int32))
        cuda.synchronize()
        cuda.profile_start()
        kernel.launch(
            len(walk["lags"]),
            [*map(address, (stream, lags, counters[number], places, spare))],
            (CHUNK, walk["chunks"], walk["passes"], walk["up_and_down"], last, THREADS),
        )
        cuda.synchronize()
        cuda.profile_stop()
        found.append(places.copy_to_host().tolist())
    answers.write_text(json.dumps(found), encoding="utf-8")


def measure_walks() -> list[dict[str, Any]]:
    """Return the walks with `hbm_read_bytes` and the multiprocessor of each block (`places`)."""
    with tempfile.TemporaryDirectory() as folder:
        answers = Path(folder, "answers")
        profiled = ncu.run(
            ncu.find(),
            (sys.executable, __file__, "--launch", str(answers)),
            [COUNTER],
            from_start=False,
            timeout_seconds=SECONDS,
        )
        if profiled.returncode or not answers.is_file():
            raise SystemExit(ncu.explain(profiled.page + profiled.printed))
        places = json.loads(answers.read_text(encoding="utf-8"))
    kernels = read_page(profiled.page, "the log of ncu")
    found = []
    for walk, mine, kernel in zip(walks(multiprocessors()), places, kernels, strict=True):
        read = kernel.quantity(COUNTER)
        if read is None:
            raise SystemExit(f"ncu read no {COUNTER} of {walk['name']}")
        found.append(walk | {"hbm_read_bytes": round(read.number), "places": mine})
    return found


def measure_latencies() -> tuple[Any, list[list[int]]]:
    """Return the cycles of each multiprocessor and line, and where blocks went at two launches."""
    from numba import cuda

    sms = multiprocessors()
    kernel = loaded(LATENCY)
    buffer = cuda.to_device(np.zeros(LINES * APART, np.uint8))
    spare = cuda.to_device(np.zeros(1, np.int32))
    cycles = cuda.to_device(np.zeros((sms, LINES), np.int32))
    places = cuda.to_device(np.zeros((sms, sms), np.int32))
    for which in range(sms):
        arrays = map(address, (buffer, cycles[which], places[which], spare))
        kernel.launch(sms, [*arrays], (LINES, APART, which))
        cuda.synchronize()
    orders = places.copy_to_host()
    if any(len(set(order)) < sms for order in orders.tolist()):
        raise SystemExit("a multiprocessor got two blocks or none: something else uses the GPU")
    return cycles.copy_to_host(), orders[:2].tolist()


def halves(cycles: Any) -> tuple[list[int], list[int]]:
    """Return the side (0 or 1) of each multiprocessor and of each line; multiprocessor 0 is on 0.

    `cycles` is (multiprocessors, lines). The first pair of singular vectors of what remains when
    the mean of each row and of each column is taken off parts both; a line is on the side of those
    that are near to it.

    >>> halves(np.array([[282, 314, 280], [313, 281, 312]]))
    ([0, 1], [0, 1, 0])
    """
    rest = cycles - cycles.mean(axis=0)
    rest = rest - rest.mean(axis=1, keepdims=True)
    of_sms, _, of_lines = np.linalg.svd(rest, full_matrices=False)
    sms, lines = of_sms[:, 0] > 0, of_lines[0] < 0
    if sms[0]:
        sms, lines = ~sms, ~lines
    return sms.astype(int).tolist(), lines.astype(int).tolist()


def sides(cycles: Any) -> dict[str, Any]:
    """Return what the JSON says of latencies: the side of each multiprocessor, medians by side.

    `median_cycles` has for each multiprocessor the lines of its own side, then those of the other.
    """
    of_sms, of_lines = halves(cycles)
    lines = np.array(of_lines)
    medians = [
        [float(np.median(mine[lines == side])), float(np.median(mine[lines != side]))]
        for side, mine in zip(of_sms, cycles, strict=True)
    ]
    return {"side_of_sm": of_sms, "lines": [of_lines.count(0), of_lines.count(1)],
            "median_cycles": medians}  # fmt: skip


def time_pace() -> dict[str, Any]:
    """Return the seconds of FlashAttention-2 by blocks a multiprocessor."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    found = []
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    for d in HEAD_DIMS:
        for n_k in KEYS:
            for blocks in BLOCKS:
                rows = 128 * blocks * sms  # of which a block has 128
                q, k, v = (torch.randn(1, 1, n, d, device="cuda", dtype=torch.float16)
                           for n in (rows, n_k, n_k))  # fmt: skip
                seconds = []
                with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                    for _ in range(2 + REPEATS):
                        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                        torch.cuda._sleep(2_000_000)  # until all that follows has been queued
                        start.record()
                        torch.nn.functional.scaled_dot_product_attention(q, k, v)
                        stop.record()
                        torch.cuda.synchronize()
                        seconds.append(round(start.elapsed_time(stop) * 1e-3, 9))
                found.append({"head_dim": d, "n_k": n_k, "blocks": blocks,
                              "seconds": sorted(seconds[2:])})  # fmt: skip
    return {"torch": torch.__version__, "times": found}


def measure_pace() -> dict[str, Any] | None:
    """Return what `time_pace` does in a process of its own, None where torch is not installed.

    torch has a compiler's libraries of its own, which may not be those of this process.
    """
    if importlib.util.find_spec("torch") is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        answers = Path(folder, "answers")
        subprocess.run([sys.executable, __file__, "--pace", str(answers)], check=True)
        found: dict[str, Any] = json.loads(answers.read_text(encoding="utf-8"))
    return found


def write(path: Path, document: dict[str, Any]) -> None:
    """Write a recording: a walk, a pace or an order on a line of its own."""

    def dump(value: Any, depth: int) -> str:
        if isinstance(value, dict) and depth < 2:
            ends, inner = "{}", [f"{json.dumps(k)}: {dump(v, depth + 1)}" for k, v in value.items()]
        elif isinstance(value, list) and isinstance(value[0], dict | list):
            ends, inner = "[]", [json.dumps(each) for each in value]
        else:
            return json.dumps(value)
        lines = [" " * (depth + 1) + line for line in inner]
        return f"{ends[0]}\n" + ",\n".join(lines) + f"\n{' ' * depth}{ends[1]}"

    path.write_text(dump(document, 0) + "\n", encoding="utf-8")


def main() -> None:
    if sys.argv[1] == "--launch":
        launch_walks(Path(sys.argv[2]))
        return
    if sys.argv[1] == "--pace":
        Path(sys.argv[2]).write_text(json.dumps(time_pace()), encoding="utf-8")
        return
    from iosim.gpu.launch import context
    from iosim.gpu.measure import driver_version, versions

    try:
        device = context().device
        cycles, orders = measure_latencies()
        found = sides(cycles)
        pace = measure_pace()
        walked = measure_walks()
    except IosimError as error:
        raise SystemExit(str(error)) from error
    for walk in walked:
        walk["sides"] = [found["side_of_sm"][sm] for sm in walk.pop("places")]
    name = device.name.decode() if isinstance(device.name, bytes) else str(device.name)
    document = {
        "schema": 1,
        "about": f"Walks, latencies, dispatch and pace on one {name}, made by "
        "benchmarks/gpu_l2.py: one launch of each walk under Nsight Compute, caches flushed before "
        "it, clocks not locked.",
        "device": name,
        "driver": driver_version(),
        "date": datetime.date.today().isoformat(),
        "versions": versions() | {"ncu": ncu.version(ncu.find())},
        "counters": {"hbm_read_bytes": COUNTER},
        "chunk_bytes": CHUNK,
        "walks": walked,
        "latency": found,
        "dispatch": orders,
        **({"pace": pace} if pace else {}),
    }
    write(Path(sys.argv[1]), document)
    print(f"{len(walked)} walks, sides {found['side_of_sm'].count(0)} and "
          f"{found['side_of_sm'].count(1)}, {'with' if pace else 'without'} pace")  # fmt: skip


if __name__ == "__main__":
    main()
