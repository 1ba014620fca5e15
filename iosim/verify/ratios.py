"""Ratios: what fusing saves for the shapes of real models on real devices."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from iosim.machine import Machine, machine
from iosim.report import simulate
from iosim.schedule.registry import Family
from iosim.shape import KERNEL_RECORD, AttentionShape
from iosim.verify.registry import Scope, verification
from iosim.verify.result import Check, verdict


@dataclass(frozen=True)
class Workload:
    """The attention of one layer of a model, by name, with the source of its shape."""

    name: str
    shape: AttentionShape
    source: str


WORKLOADS = (
    Workload(
        "GPT-2 medium, N 1024",
        AttentionShape(1024, 1024, 64, heads=16, causal=True),
        "Radford et al. 2019, Table 2, and its config.json: 16 heads of 1024 / 16 words",
    ),
    Workload(
        "Llama-3-8B, N 8192",
        AttentionShape(8192, 8192, 128, heads=32, kv_heads=8, causal=True, dtype="bfloat16"),
        "Llama team 2024, arXiv 2407.21783, Table 3; the context of Llama 3",
    ),
    Workload(
        "Llama-3.1-8B, N 128k",
        AttentionShape(131072, 131072, 128, heads=32, kv_heads=8, causal=True, dtype="bfloat16"),
        "Llama team 2024, arXiv 2407.21783, Table 3; the context of Llama 3.1",
    ),
    Workload(
        "Llama-3-8B, decoding",
        AttentionShape(1, 8192, 128, heads=32, kv_heads=8, causal=True, dtype="bfloat16"),
        "one new token after 8191 others",
    ),
    Workload(
        "FA1 Figure 2, N 1024",
        AttentionShape(1024, 1024, 64, heads=16, batch=64),
        "Dao et al. 2022, arXiv 2205.14135, Figure 2 (left), forward pass alone",
    ),
)
DEVICES = ("A100", "H100")


@verification
def ratios(scope: Scope) -> Iterator[Check]:
    """What fusing saves one layer of a real model, with M the shared memory of a block.

    Standard attention is the listing: each operand moves once whatever M, and a causal mask skips
    nothing. Flash takes its best legal tile.
    """
    if not {"standard", "flash1", "flash2"} <= scope.schedules.keys():
        return
    for workload in WORKLOADS:
        for name in DEVICES:
            scope.progress(f"ratios: {workload.name}, {name}")
            yield _row(workload, machine(name), scope.schedules)


def _row(workload: Workload, device: Machine, schedules: Mapping[str, Family]) -> Check:
    shape = workload.shape
    words = device.fast_words(shape.dtype)
    # The listing holds K whole, which no block of threads can: it is counted, not run.
    standard = simulate(schedules["standard"], shape).traffic
    first, second = (simulate(schedules[n], shape, sram_words=words) for n in ("flash1", "flash2"))
    bytes_ = [t.total_bytes for t in (standard, first.traffic, second.traffic)]
    assert second.bound is not None
    by_one, by_two = bytes_[0] / bytes_[1], bytes_[0] / bytes_[2]
    # A word of traffic is at least a word of Q, so that a bound in words is one in bytes too.
    most = bytes_[0] / (second.bound.words * shape.item_bytes)
    fine = 1 < by_two <= most
    detail = (
        f"standard {_short(bytes_[0])}, flash2 {_short(bytes_[2])}: {by_two:.3g} times less "
        f"(flash1: {by_one:.3g}; at most {most:.3g} by the {second.bound.name} bound)"
    )
    numbers = {
        "source": workload.source,
        "device": device.name,
        "sram_words": words,
        **shape.to_dict(KERNEL_RECORD),
        "standard_bytes": bytes_[0],
        "flash1_bytes": bytes_[1],
        "flash2_bytes": bytes_[2],
        "flash1_tiles": dict(first.tiles.sizes),
        "flash2_tiles": dict(second.tiles.sizes),
        "standard_over_flash1": by_one,
        "standard_over_flash2": by_two,
        "most_by_the_bound": most,
    }
    return Check("ratios", f"{workload.name}, {device.name}", verdict(fine), detail, numbers)


def _short(n: int) -> str:
    """Return bytes with three digits: 1.95 GB, powers of 1000."""
    power = min((len(str(n)) - 1) // 3, 4)
    return f"{n / 1000**power:.3g} {('B', 'KB', 'MB', 'GB', 'TB')[power]}"
