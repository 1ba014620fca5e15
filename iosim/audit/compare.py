"""Measured beside predicted, level by level, with a reason for each difference that has a name."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from iosim.audit.counters import Counters
from iosim.device.predict import Prediction
from iosim.units import format_count

SAME = 1e-4  # of the SMs' bytes: what short runs add by loads that no schedule has
LITTLE = 5e-3  # more than that is another shape, or something that has a name
PARTIAL = 0.7  # of the bytes stored: stores of parts of sectors were seen to add up to 0.6
NEAR = 0.02  # of HBM's bytes: page tables, constants and the code itself are read too
BESIDE = 65536  # bytes from HBM that every kernel reads beside its data: code, constants, tables
TENSORS = frozenset({"Q", "K", "V", "O", "S", "P", "LSE", "D", "dO", "dQ", "dK", "dV", "tensor"})


@dataclass(frozen=True)
class Difference:
    """Bytes of one kernel at one level: measured, predicted (None if unknown), and the reason."""

    level: str
    measured_bytes: int
    predicted_bytes: int | None
    reason: str

    @property
    def difference(self) -> float | None:
        """Return (measured - predicted) / predicted."""
        if not self.predicted_bytes:
            return None
        return self.measured_bytes / self.predicted_bytes - 1

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, in bytes."""
        return {
            "level": self.level,
            "measured_bytes": self.measured_bytes,
            "predicted_bytes": self.predicted_bytes,
            "difference": self.difference,
            "reason": self.reason,
        }


def differences(seen: Counters, made: Prediction) -> tuple[Difference, ...]:
    """Return one entry for each level that was measured, from the SMs outwards.

    >>> seen = Counters(sm_fill=1010, local_load=32)
    >>> differences(seen, Prediction("k", sm_fill=1000))[0].reason
    'registers that did not fit are read back: 32 bytes of local loads, part of them through L2'
    """
    return tuple(_levels(seen, made))


def _levels(seen: Counters, made: Prediction) -> Iterator[Difference]:
    if seen.sm_fill is not None:
        yield Difference("L2 to SM", seen.sm_fill, made.sm_fill, _sm_fill(seen, made))
    if seen.sm_drain is not None:
        yield Difference("SM to L2", seen.sm_drain, made.sm_drain, _sm_drain(seen, made))
    if seen.l2_tex_red is not None and (seen.l2_tex_red or made.added):
        yield Difference("added in L2", seen.l2_tex_red, made.added, _added(made))
    if seen.l2_tex_read is not None:
        yield Difference("L2 lookups", seen.l2_tex_read, made.l2_tex_read, _lookups(seen))
    if seen.dram_read is not None:
        yield Difference("HBM to L2", seen.dram_read, made.dram_read, _dram_read(seen, made))
    if seen.dram_write is not None:
        yield Difference("L2 to HBM", seen.dram_write, None, _dram_write(seen, made))


def _sm_fill(seen: Counters, made: Prediction) -> str:
    if made.sm_fill is None or seen.sm_fill is None:
        return "nothing is predicted"
    extra = seen.sm_fill - made.sm_fill
    if abs(extra) <= SAME * made.sm_fill:
        return "; ".join(["as its tiles say", *_beside(made.reads)])
    if extra < 0:
        return "fewer than its tiles say: another shape than the one assumed, or loads that hit L1"
    if seen.local_load and extra <= seen.local_load + LITTLE * made.sm_fill:
        return (
            f"registers that did not fit are read back: {format_count(seen.local_load)} bytes of "
            "local loads, part of them through L2"
        )
    if extra <= LITTLE * made.sm_fill:
        return "a little more than its tiles say: sectors read twice, or loads beside the tiles"
    return "more than its tiles say: another shape than the one assumed, or other loads"


def _beside(bytes_by_name: Any) -> list[str]:
    """Return what is moved beside the rows of tensors."""
    return [
        f"{name} {format_count(size)} bytes"
        for name, size in bytes_by_name.items()
        if name not in TENSORS
    ]


def _sm_drain(seen: Counters, made: Prediction) -> str:
    if made.sm_drain is None or seen.sm_drain is None:
        return "nothing is predicted"
    reasons = _beside(made.writes)
    if made.role in ("gemm", "softmax") and ("S" in made.writes or "P" in made.writes):
        name = "S" if "S" in made.writes else "P"
        reasons.append(f"{name} is materialised: {format_count(made.writes[name])} bytes")
    if "partial O" in made.writes:
        reasons.append("the splits store partial results in float32")
    extra = seen.sm_drain - made.sm_drain
    if seen.local_store:
        reasons.append(
            f"registers that did not fit are stored: {format_count(seen.local_store)} bytes"
        )
        extra -= seen.local_store
    if abs(extra) <= SAME * seen.sm_drain:
        return "; ".join(reasons or ["as its tiles say"])
    if extra > PARTIAL * made.sm_drain:
        where = "more than its tiles say, by another shape than the one assumed or other stores"
    else:
        where = "parts of sectors are stored" if extra > 0 else "fewer than its tiles say"
    return "; ".join([*reasons, f"{where}: {format_count(extra)} bytes"])


def _added(made: Prediction) -> str:
    if made.added is None:
        return "nothing is predicted"
    if made.added:
        return "dQ is added in float32, once for each tile of keys"
    return "more than its tiles say: sums that nobody described"


def _lookups(seen: Counters) -> str:
    if not seen.sm_fill or seen.l2_tex_read is None:
        return ""
    share = 1 - seen.l2_tex_read / seen.sm_fill
    if share < 0.001:
        return "each request of an SM is a lookup of its own"
    return f"requests of several SMs for one line merge: {share:.1%} of what the SMs got"


def _dram_read(seen: Counters, made: Prediction) -> str:
    if made.compulsory_read is None or seen.dram_read is None:
        return "nothing is predicted"
    again = seen.dram_read - made.compulsory_read
    if again <= max(NEAR * made.compulsory_read, BESIDE):
        inputs = [name for name in ("S", "P") if name in made.reads]
        if inputs:
            return f"each input once, {inputs[0]} among them, which another kernel materialised"
        return "each input once" if again > -NEAR * made.compulsory_read else "part was still in L2"
    times = seen.dram_read / max(1, made.compulsory_read)
    return (
        f"inputs once: {format_count(made.compulsory_read)} bytes; read again after misses in L2: "
        f"{format_count(again)} ({times:.2f} times in all)"
    )


def _dram_write(seen: Counters, made: Prediction) -> str:
    if made.dram_write_min is None or made.dram_write_max is None or seen.dram_write is None:
        return "nothing is predicted"
    low, high = made.dram_write_min, made.dram_write_max
    spread = f"the predicted {format_count(low)} to {format_count(high)} bytes"
    if low <= seen.dram_write <= high:
        return f"within {spread}; the rest is dirty in L2"
    if seen.dram_write < low:
        return f"fewer than {spread}"
    spills = seen.local_store and seen.local_store >= seen.dram_write - high
    return f"more than {spread}" + ("; stored registers leave L2 too" if spills else "")
