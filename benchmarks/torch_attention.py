"""Counters of torch's attention kernels on a GPU: python benchmarks/torch_attention.py OUTPUT.

A second argument such as 2/3 takes the second of three parts; a third, a number, takes the shapes
that are drawn by lot with that seed instead of the list. `merge FILE FILE ... OUTPUT` joins parts.

Every shape is launched under Nsight Compute, with the caches flushed before each pass; the JSON has
the form of docs/data/h200_torch_attention.json. The shapes of the list are launched once, and every
third of them is marked `held_out`, by its place in a shuffled list. Those drawn by lot are all held
out, and launched five times (twice from 300 000 rows on): reads of HBM differ from one launch to
the next, so a counter is the median, and `dram_read_runs` has what each launch read.
"""

import datetime
import json
import math
import random
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from iosim.audit.counters import METRICS, REGISTERS, TIME
from iosim.audit.ncu_csv import ProfiledKernel, read_page
from iosim.device.moves import SECTOR
from iosim.errors import IosimError
from iosim.gpu import ncu

# What ncu calls each, and how many bytes (nanoseconds) one of it is: what an audit looks at and two
# more, in the order of the file.
TABLE = {
    **METRICS,
    "l2_tex_miss": ("lts__t_sectors_srcunit_tex_lookup_miss.sum", SECTOR),
    "time_ns": (TIME, 1),
}
NAMES = ("dram_read", "dram_write", "l2_tex_read", "l2_tex_write", "l2_tex_red", "l2_tex_miss",
         "sm_fill", "sm_drain", "local_store", "local_load", "time_ns")  # fmt: skip
COUNTERS = {name: TABLE[name] for name in NAMES}
NANOSECONDS = {"second": 1e9}  # a page's times are read in seconds
HOURS = 4  # that all cases may take under ncu
RESOURCES = {
    "grid": "launch__grid_size",
    "block": "launch__block_size",
    "registers": REGISTERS,
    "waves_per_sm": "launch__waves_per_multiprocessor",
}
SHARED = ("launch__shared_mem_per_block_static", "launch__shared_mem_per_block_dynamic",
          "launch__shared_mem_per_block_driver")  # fmt: skip

# n_q, n_k, head_dim, heads, kv_heads, causal
FORWARD = [
    # one head, no mask: K and V from far below to far above the L2
    (24576, 24576, 64, 1, 1, False),
    (65536, 65536, 64, 1, 1, False),
    (90112, 90112, 64, 1, 1, False),
    (114688, 114688, 64, 1, 1, False),
    (131072, 131072, 64, 1, 1, False),
    (160000, 160000, 64, 1, 1, False),
    (262144, 262144, 64, 1, 1, False),
    (524288, 524288, 64, 1, 1, False),
    (45056, 45056, 128, 1, 1, False),
    (61440, 61440, 128, 1, 1, False),
    (98304, 98304, 128, 1, 1, False),
    (114688, 114688, 128, 1, 1, False),
    (163840, 163840, 128, 1, 1, False),
    (262144, 262144, 128, 1, 1, False),
    (524288, 524288, 128, 1, 1, False),
    # one head, causal
    (65536, 65536, 64, 1, 1, True),
    (114688, 114688, 64, 1, 1, True),
    (163840, 163840, 64, 1, 1, True),
    (196608, 196608, 64, 1, 1, True),
    (262144, 262144, 64, 1, 1, True),
    (524288, 524288, 64, 1, 1, True),
    (49152, 49152, 128, 1, 1, True),
    (65536, 65536, 128, 1, 1, True),
    (81920, 81920, 128, 1, 1, True),
    (98304, 98304, 128, 1, 1, True),
    (114688, 114688, 128, 1, 1, True),
    (163840, 163840, 128, 1, 1, True),
    (524288, 524288, 128, 1, 1, True),
    # several heads
    (16384, 16384, 64, 16, 16, False),
    (12288, 12288, 128, 16, 16, False),
    (2048, 2048, 64, 128, 128, False),
    (5000, 5000, 64, 7, 7, True),
    (10007, 10007, 128, 3, 3, False),
    (24576, 24576, 128, 4, 4, False),
    (65536, 65536, 128, 2, 2, False),
    (81920, 81920, 64, 3, 3, False),
    (40960, 40960, 64, 2, 2, True),
    (65536, 65536, 64, 4, 4, True),
    (65536, 65536, 128, 2, 2, True),
    (32768, 32768, 128, 8, 8, True),
    (32768, 32768, 64, 16, 16, True),
    (4096, 4096, 128, 32, 32, True),
    # grouped heads
    (16384, 16384, 128, 32, 8, True),
    (32768, 32768, 128, 16, 2, False),
    (65536, 65536, 64, 8, 1, False),
    (65536, 65536, 64, 8, 1, True),
    (4096, 4096, 64, 32, 4, False),
    # more keys than queries, and fewer
    (4096, 65536, 64, 4, 4, False),
    (16384, 131072, 64, 1, 1, False),
    (2048, 131072, 128, 2, 2, False),
    (65536, 4096, 64, 8, 8, False),
    (131072, 8192, 128, 1, 1, False),
    # decoding
    (1, 8192, 128, 64, 64, False),
    (1, 131072, 128, 8, 8, False),
    (16, 32768, 64, 32, 32, False),
    (1, 32768, 128, 32, 8, False),
]
# other widths and words
OTHERS = [
    ("FLASH_ATTENTION", (8192, 8192, 96, 8, 8, False), "float16"),
    ("FLASH_ATTENTION", (16384, 16384, 32, 16, 16, False), "float16"),
    ("FLASH_ATTENTION", (16384, 16384, 256, 4, 4, True), "float16"),
    ("FLASH_ATTENTION", (32768, 32768, 128, 4, 4, True), "bfloat16"),
    ("EFFICIENT_ATTENTION", (16384, 16384, 64, 2, 2, False), "float32"),
    ("EFFICIENT_ATTENTION", (16384, 16384, 128, 2, 2, True), "float32"),
]
BACKWARD = [
    (8192, 8192, 64, 16, 16, True),
    (16384, 16384, 128, 4, 4, True),
    (32768, 32768, 64, 4, 4, True),
    (4096, 4096, 128, 16, 16, True),
    (6000, 6000, 64, 5, 5, False),
    (65536, 65536, 64, 1, 1, False),
    (65536, 65536, 64, 1, 1, True),
    (65536, 65536, 128, 1, 1, False),
    (131072, 131072, 64, 1, 1, False),
    (131072, 131072, 64, 1, 1, True),
]
STANDARD = [(2048, 2048, 64, 16, 16, False), (8192, 8192, 128, 4, 4, False)]
FIELDS = ("n_q", "n_k", "head_dim", "heads", "kv_heads", "causal")
DRAWN = 44  # shapes drawn by lot, each for two libraries
LONG = 300_000  # rows from which a launch is repeated once only


def cases() -> list[dict]:
    """Return the shapes, every third of a shuffled list held out; twins of a shape share a side."""
    both = ("FLASH_ATTENTION", "CUDNN_ATTENTION")
    groups = [[("fwd", b, s, "float16") for b in both] for s in FORWARD]
    groups += [[("bwd", b, s, "float16") for b in both] for s in BACKWARD]
    groups += [[("fwd", b, s, dtype)] for b, s, dtype in OTHERS]
    groups += [[("std", "std", s, "float16")] for s in STANDARD]
    order = list(range(len(groups)))
    random.Random(2026).shuffle(order)
    held_out = set(order[::3])
    return [
        {"op": op, "backend": backend, **dict(zip(FIELDS, shape, strict=True)), "dtype": dtype,
         "held_out": i in held_out}
        for i, group in enumerate(groups)
        for op, backend, shape, dtype in group
    ]  # fmt: skip


def drawn(seed: int) -> list[dict]:
    """Return shapes drawn by lot, most where K and V lie around the size of an L2 and beyond.

    Lengths are drawn evenly on a logarithmic scale and rounded to 256 rows, mostly.
    """
    lot = random.Random(seed)

    def rows(low: int, high: int) -> int:
        n = math.exp(lot.uniform(math.log(low), math.log(high)))
        return round(n / 256) * 256 if lot.random() < 0.7 else round(n)

    found: list[dict] = []

    def add(op: str, *shape: object) -> None:
        found.extend(
            {"op": op, "backend": backend, **dict(zip(FIELDS, shape, strict=True)),
             "dtype": "float16", "held_out": True,
             "launches": 2 if max(shape[:2]) > LONG else 5}
            for backend in ("FLASH_ATTENTION", "CUDNN_ATTENTION")
        )  # fmt: skip

    for i in range(DRAWN):
        d = lot.choice((64, 128))
        words = 128 // d  # twice the rows at d 64 are as many bytes
        kind = i % 11
        if kind < 2:  # one head, no mask
            n = rows(32768 * words, 200_000 * words)
            add("fwd", n, n, d, 1, 1, False)
        elif kind < 5:  # one head, causal
            n = rows(32768 * words, 200_000 * words)
            add("fwd", n, n, d, 1, 1, True)
        elif kind < 7:  # several heads
            n, heads = rows(8192 * words, 65536 * words), lot.choice((2, 3, 4, 6, 8))
            add("fwd", n, n, d, heads, heads, kind == 6)
        elif kind == 7:  # grouped heads
            n, group = rows(8192 * words, 65536 * words), lot.choice((2, 4, 8))
            heads = group * lot.choice((1, 2))
            add("fwd", n, n, d, heads, heads // group, lot.random() < 0.5)
        elif kind == 8:  # more keys than queries, or fewer
            n_q, n_k = rows(2048, 65536), rows(32768 * words, 131_072 * words)
            if lot.random() < 0.3:
                n_q, n_k = n_k, n_q
            add("fwd", n_q, n_k, d, lot.choice((1, 2, 4)), 1, False)
            for case in found[-2:]:
                case["kv_heads"] = case["heads"]
        elif kind == 9:  # backward
            n, heads = rows(16384 * words, 65536 * words), lot.choice((1, 2, 4))
            add("bwd", n, n, d, heads, heads, lot.random() < 0.5)
        else:  # ordinary shapes
            n, heads = rows(1000, 16384), lot.choice((8, 16, 32))
            add("fwd", n, n, d, heads, heads, lot.random() < 0.5)
    return found


def call(case: dict) -> Callable[[], object]:
    """Return what is to be profiled of a case, on random arrays."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def random(heads: int, rows: int) -> torch.Tensor:
        shape = (1, heads, rows, case["head_dim"])
        dtype = getattr(torch, case["dtype"])
        return torch.randn(shape, device="cuda", dtype=dtype, requires_grad=case["op"] == "bwd")

    q = random(case["heads"], case["n_q"])
    k, v = (random(case["kv_heads"], case["n_k"]) for _ in range(2))
    if case["op"] == "std":
        return lambda: torch.softmax(q @ k.transpose(-1, -2), -1) @ v

    def attend() -> torch.Tensor:
        with sdpa_kernel(getattr(SDPBackend, case["backend"])):
            return torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=case["causal"], enable_gqa=case["heads"] != case["kv_heads"]
            )

    if case["op"] == "fwd":
        return attend
    out = attend()
    gradient = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True)


def launch(given: list[dict], answers: Path) -> None:
    """Launch each case between profiler marks and note what failed; runs under ncu."""
    import torch

    notes = []
    for case in given:
        note = ""
        try:
            profiled = call(case)
            for _ in range(case.get("launches", 1)):
                torch.cuda.synchronize()
                torch.cuda.profiler.start()
                profiled()
                torch.cuda.synchronize()
                torch.cuda.profiler.stop()
        except Exception as error:
            note = str(error).partition("\n")[0] or type(error).__name__
        torch.cuda.profiler.stop()
        profiled = None
        torch.cuda.empty_cache()
        notes.append(note)
        # ncu knows no cases: a running sum, which attention has none of, parts one from the next.
        mark = torch.zeros(7, device="cuda")
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        mark.cumsum(0)
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()
    answers.write_text(json.dumps({"notes": notes, "torch": torch.__version__}), encoding="utf-8")


def _is_mark(kernel: ProfiledKernel) -> bool:
    return "scan" in kernel.name.lower() or "cumsum" in kernel.name.lower()


def read(log: str, cases: int) -> list[list[dict]]:
    """Return the kernels of each case from ncu's raw page; a running sum may be several kernels."""
    profiled, found, mine = read_page(log, "the log of ncu"), [], []
    marks = sum(map(_is_mark, profiled))
    if marks % cases:
        raise SystemExit(f"{marks} kernels of marks do not go with {cases} cases")
    seen = 0
    for kernel in profiled:
        if not _is_mark(kernel):
            mine.append(_record(kernel))
            continue
        seen += 1
        if seen % (marks // cases) == 0:
            found.append(mine)
            mine = []
    return found


def medians(kernels: list[dict], launches: int) -> list[dict]:
    """Return the kernels of one launch, counters being the medians over so many launches."""
    each = len(kernels) // launches
    if launches == 1 or each * launches != len(kernels):
        return kernels
    found = []
    for place in range(each):
        runs = kernels[place::each]
        middle = {key: round(statistics.median(run[key] for run in runs)) for key in COUNTERS}
        reads = [run["dram_read"] for run in runs]
        found.append(runs[0] | middle | {"dram_read_runs": reads})
    return found


def _record(kernel: ProfiledKernel) -> dict:
    """Return what the file says of a kernel."""

    def number(metric: str) -> float:
        found = kernel.quantity(metric)
        if found is None:
            raise SystemExit(f"ncu read no {metric} of {kernel.name}")
        return found.number * NANOSECONDS.get(found.unit, 1)

    return {
        "kernel": kernel.name[:100],
        **{
            key: number(metric) if key == "waves_per_sm" else round(number(metric))
            for key, metric in RESOURCES.items()
        },
        "smem_bytes": round(sum(map(number, SHARED))),
        **{key: round(number(metric) * scale) for key, (metric, scale) in COUNTERS.items()},
    }


def write(path: Path, document: dict) -> None:
    """Write a recording, one case a line."""
    lines = ",\n  ".join(json.dumps(case) for case in document["cases"])
    head = json.dumps({k: v for k, v in document.items() if k != "cases"}, indent=1)
    text = f'{head.removesuffix("}").rstrip()},\n "cases": [\n  {lines}\n ]\n}}\n'
    path.write_text(text, encoding="utf-8")


def main() -> None:
    if sys.argv[1] == "--launch":
        launch(json.loads(Path(sys.argv[2]).read_text()), Path(sys.argv[3]))
        return
    if sys.argv[1] == "merge":
        *paths, output = sys.argv[2:]
        documents = [json.loads(Path(path).read_text()) for path in paths]
        records = [record for document in documents for record in document["cases"]]
        write(Path(output), documents[0] | {"cases": records})
        return
    part, parts = map(int, (sys.argv[2] if len(sys.argv) > 2 else "1/1").split("/"))
    by_lot = len(sys.argv) > 3
    given = (drawn(int(sys.argv[3])) if by_lot else cases())[part - 1 :: parts]
    with tempfile.TemporaryDirectory() as folder:
        asked, answers = Path(folder, "asked"), Path(folder, "answers")
        asked.write_text(json.dumps(given))
        metrics = [metric for metric, _ in COUNTERS.values()] + [*RESOURCES.values(), *SHARED]
        try:
            profiled = ncu.run(
                ncu.find(),
                (sys.executable, __file__, "--launch", str(asked), str(answers)),
                metrics,
                from_start=False,
                timeout_seconds=HOURS * 3600,
            )
        except IosimError as error:
            raise SystemExit(str(error)) from error
        Path(sys.argv[1] + ".csv").write_text(profiled.page)
        if profiled.returncode or not answers.is_file():
            raise SystemExit(ncu.explain(profiled.page + profiled.printed))
        done = json.loads(answers.read_text())
        kernels = read(profiled.page, len(given))
    records = []
    for case, mine, note in zip(given, kernels, done["notes"], strict=True):
        if note or not mine:
            print("not run:", case, note, file=sys.stderr)
        else:
            records.append(case | {"kernels": medians(mine, case.get("launches", 1))})
    document = {
        "about": "Hardware counters of PyTorch attention kernels on one NVIDIA H200, read with "
        f"Nsight Compute, {'the median of several launches' if by_lot else 'one launch each'}, "
        "cache flushed before each pass (cache-control all), "
        f"clocks not locked, {datetime.date.today().isoformat()}. torch {done['torch']}. Batch 1. "
        "All byte counts are per launch. Made by benchmarks/torch_attention.py. What a file "
        "was used for is on docs/hbm.md; `held_out` is what was planned when a shape was chosen.",
        "counters": {key: f"{scale} x {name}" for key, (name, scale) in COUNTERS.items()},
        "cases": records,
    }
    write(Path(sys.argv[1]), document)
    print(len(records), "of", len(given), "cases")


if __name__ == "__main__":
    main()
