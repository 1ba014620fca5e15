"""Many launches in few rows: those of one kernel for one shape together, shares of the whole."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from iosim.audit.audit import AuditedKernel
from iosim.audit.counters import Counters
from iosim.device.predict import Prediction

MOST_NAMED = 3  # kernels that a row about all of them names


def gather(audited: Iterable[AuditedKernel]) -> list[AuditedKernel]:
    """Return one entry for all launches of a kernel for a shape, where they were first met.

    Bytes and seconds are sums; `place` says how many launches there are and where the first stood.
    """
    groups: dict[Any, list[AuditedKernel]] = {}
    for kernel in audited:
        key: Any = (kernel.name, kernel.shape, kernel.notes)
        if kernel.seen is None:
            key = (kernel.place, None)
        groups.setdefault(key, []).append(kernel)
    return [_together(kernels) for kernels in groups.values()]


def _together(kernels: Sequence[AuditedKernel]) -> AuditedKernel:
    first = kernels[0]
    if len(kernels) == 1:
        return first
    made = None if first.made is None else _times(first.made, len(kernels))
    seen = _sum([kernel.seen for kernel in kernels if kernel.seen is not None])
    return replace(first, place=f"{first.place} ({len(kernels)} times)", seen=seen, made=made)


def _sum(counters: Sequence[Counters]) -> Counters:
    """Return the sums; None where one of them was not measured."""
    totals: dict[str, Any] = {}
    for each in fields(Counters):
        values = [getattr(one, each.name) for one in counters]
        totals[each.name] = None if None in values else sum(values)
    return Counters(**totals)


def _times(made: Prediction, times: int) -> Prediction:
    """Return the prediction for so many launches, each with cold caches."""
    scaled: dict[str, Any] = {}
    for each in fields(Prediction):
        value = getattr(made, each.name)
        if each.name in ("reads", "writes"):
            scaled[each.name] = {name: size * times for name, size in value.items()}
        elif isinstance(value, int | float):
            scaled[each.name] = value * times
    return replace(made, **scaled)


@dataclass(frozen=True)
class LevelTotal:
    """Bytes of all kernels at one level, and the kernels with the largest shares, as a sentence."""

    level: str
    measured_bytes: int
    shares: str


def totals(audited: Sequence[AuditedKernel]) -> Iterator[LevelTotal]:
    """Yield the bytes of each level over all kernels, from the SMs outwards."""
    by_level: dict[str, dict[str, int]] = {}
    for kernel in audited:
        for each in kernel.differences:
            kernels = by_level.setdefault(each.level, {})
            kernels[kernel.label] = kernels.get(kernel.label, 0) + each.measured_bytes
    for level, kernels in by_level.items():
        total = sum(kernels.values())
        largest = sorted(kernels.items(), key=lambda item: -item[1])[:MOST_NAMED]
        named = [f"{name} {size / total:.1%}" for name, size in largest if size]
        yield LevelTotal(level, total, ", ".join(named))
