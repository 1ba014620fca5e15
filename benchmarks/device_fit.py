"""Fit the L2 model of a device to measured HBM reads, and print how far it is from each case.

    python benchmarks/device_fit.py docs/data/h200_torch_attention.json [MORE.json ...]
    python benchmarks/device_fit.py FILE ... --held-out FILE --json docs/data/h200_hbm_errors.json
    python benchmarks/device_fit.py --scan drift_rows=0.2,0.4,0.8 FILE ...

Without `--scan` the profile is used as it is. The first form prints one line for each float16 or
bfloat16 case and the errors by family; `--json FILE` writes them, too. `--scan` varies one fitted
parameter and prints the errors for each value. How the parameters of the profile were found is
written beside them (iosim/data/devices.json, `fit`).
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from iosim.device.case import case_of
from iosim.device.hbm import simulate
from iosim.device.kernels import recognise
from iosim.device.launch import Launch
from iosim.device.moves import Setting
from iosim.device.predict import moves_of
from iosim.device.profile import Profile, profile

OFF = 0.15  # compulsory traffic is off by more than this share: the cases that need a model


@dataclass(frozen=True)
class Measured:
    """A case with a known launch: where it stands, its label and family, what was measured.

    `part` says what it was for: "given" before there was a model, "fitted" or "held out". `reads`
    are what single launches read, least and most.
    """

    place: str
    part: str
    label: str
    family: str
    launch: Launch
    read: int
    reads: tuple[int, int]
    write: int
    loads: int

    @property
    def kind(self) -> str:
        """What the figure of the documentation tells apart."""
        if self.launch.splits > 1:
            return "decoding"
        if not self.launch.owner_is_query:
            return "backward"
        return "causal" if self.launch.causal else "without a mask"

    @property
    def off(self) -> bool:
        """Whether the compulsory bytes are no good prediction."""
        return abs(self.read / self.launch.compulsory_read_bytes - 1) > OFF


def measured(path: Path, device: Profile, *, held_out: bool = False) -> Iterator[Measured]:
    """Yield the 16-bit attention cases of a file whose main kernel has a launch."""
    for i, entry in enumerate(json.loads(path.read_text(encoding="utf-8"))["cases"]):
        case = case_of(entry, f"case {i}")
        before: list[Any] = []
        found = None
        for place, call in enumerate(case.kernels):
            known = recognise(call.name)
            if known is None:
                continue
            moves = moves_of(known, call, Setting(case.shape, device, tuple(before)))
            before.append((known, moves))
            if place == (case.main or 0):
                found = moves.launch
        if found is None or case.shape.dtype == "float32":
            continue
        kernel = entry["kernels"][case.main or 0]
        runs = kernel.get("dram_read_runs", [kernel["dram_read"]])
        s = case.shape
        causal = " causal" if s.causal else ""
        heads = f"{s.heads}/{s.kv_heads} heads"
        backend = {"FLASH_ATTENTION": "FA2", "CUDNN_ATTENTION": "cuDNN"}.get(case.backend, "other")
        yield Measured(
            f"{path.stem} {i}",
            "held out" if held_out else "fitted" if "held_out" in entry else "given",
            f"{backend} {case.operation} {s.n_q} x {s.n_k}, d {s.head_dim}, {heads}{causal}",
            "decoding" if found.splits > 1 else f"{backend} {case.operation}{causal}",
            found,
            kernel["dram_read"],
            (min(runs), max(runs)),
            kernel["dram_write"],
            kernel["sm_fill"],
        )


def errors(cases: Sequence[Measured], device: Profile, *, show: bool = False) -> list[float]:
    """Return predicted / measured - 1 of the HBM reads of each case."""
    found = []
    for case in cases:
        began = time.perf_counter()
        moved = simulate(case.launch, device)
        error = moved.dram_read / case.read - 1
        found.append(error)
        if show:
            print(
                f"{case.place:>28} {case.label:52} {case.read / 1e6:10.1f} MB, compulsory x "
                f"{case.read / case.launch.compulsory_read_bytes:7.2f}, predicted "
                f"{moved.dram_read / 1e6:10.1f}, error {error:+7.1%}, "
                f"written {case.write / 1e6:6.1f} in {moved.dram_write_min / 1e6:6.1f}.."
                f"{moved.dram_write_max / 1e6:6.1f},"
                f" {time.perf_counter() - began:4.1f} s",
                flush=True,
            )
    return found


def summary(cases: Sequence[Measured], found: Sequence[float]) -> dict[str, dict[str, float]]:
    """Return the errors of all cases, of those where compulsory is off, and of each family."""
    groups = {"all": list(found)}
    groups["off"] = [e for case, e in zip(cases, found, strict=True) if case.off]
    for part in dict.fromkeys(case.part for case in cases):
        groups[part] = [e for c, e in zip(cases, found, strict=True) if c.part == part]
        groups[f"{part}, off"] = [
            e for c, e in zip(cases, found, strict=True) if c.part == part and c.off
        ]
    for family in sorted({case.family for case in cases}):
        groups[family] = [e for c, e in zip(cases, found, strict=True) if c.family == family]
        off = [e for c, e in zip(cases, found, strict=True) if c.family == family and c.off]
        if off:
            groups[f"{family}, off"] = off
    return {name: statistic(group) for name, group in groups.items() if group}


def statistic(group: Sequence[float]) -> dict[str, float]:
    """Return what an error table says of a group: the worst factor is at least 1."""
    sizes = [abs(e) for e in group]
    return {
        "cases": len(group),
        "median": statistics.median(sizes),
        "within_25_percent": sum(size <= 0.25 for size in sizes) / len(sizes),
        "worst_factor": max(max(1 + e, 1 / (1 + e)) for e in group),
    }


def show(table: dict[str, dict[str, float]]) -> None:
    """Print an error table."""
    for name, row in table.items():
        print(
            f"{name:24} {row['cases']:4} cases, median {row['median']:6.2%}, within 25 % "
            f"{row['within_25_percent']:4.0%}, worst factor {row['worst_factor']:.2f}"
        )


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--device", default="H200")
    parser.add_argument("--scan", help="NAME=VALUE,VALUE,... of a fitted parameter")
    parser.add_argument("--set", action="append", default=[], help="NAME=VALUE of one, first")
    parser.add_argument("--loads", type=float, default=1e15, help="skip cases with more bytes")
    parser.add_argument("--off", action="store_true", help="only where compulsory is off")
    parser.add_argument("--held-out", type=Path, action="append", default=[])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    device = profile(options.device)
    for text in options.set:
        name, value = text.split("=")
        device = replace(device, fitted={**device.fitted, name: float(value)})
    cases = [case for path in options.files for case in measured(path, device)]
    cases += [c for path in options.held_out for c in measured(path, device, held_out=True)]
    cases = [c for c in cases if c.loads <= options.loads and (c.off or not options.off)]
    if options.scan:
        name, values = options.scan.split("=")
        for value in values.split(","):
            print(f"{name} = {value}")
            varied = replace(device, fitted={**device.fitted, name: float(value)})
            show(summary(cases, errors(cases, varied)))
        return
    found = errors(cases, device, show=True)
    table = summary(cases, found)
    show(table)
    if options.json:
        record = {
            "about": "HBM reads of attention kernels in 16 bits as measured (caches flushed) and "
            "as predicted by the simulated L2; error is predicted / measured - 1. `given` cases "
            "came before the model, which was chosen with them and the `fitted` ones; those `held "
            "out` were looked at once, afterwards. `least` and `most` are what single launches "
            "read, `measured` their median. Written by benchmarks/device_fit.py.",
            "device": "NVIDIA H200",
            "date": time.strftime("%Y-%m-%d"),
            "fitted": dict(device.fitted),
            "summary": table,
            "cases": [
                {
                    "case": c.label,
                    "place": c.place,
                    "part": c.part,
                    "kind": c.kind,
                    "measured": c.read,
                    "least": c.reads[0],
                    "most": c.reads[1],
                    "compulsory": c.launch.compulsory_read_bytes,
                    "error": round(e, 4),
                }
                for c, e in zip(cases, found, strict=True)
            ],
        }
        options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
