"""Audits: recordings and CSV pages as kernels with what was measured, predicted and assumed."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from iosim.audit.compare import Difference, differences
from iosim.audit.counters import (
    METRICS,
    Counters,
    call_of_page,
    counters_of_page,
    counters_of_record,
    counters_of_row,
)
from iosim.audit.infer import Given, Inferred, infer
from iosim.audit.ncu_csv import ProfiledKernel
from iosim.device.case import RESERVED_BYTES, KernelCall, case_of
from iosim.device.kernels import Known, recognise, stranger
from iosim.device.moves import Moves, Setting
from iosim.device.own import predict_schedule
from iosim.device.predict import Prediction, predict_case, predict_kernel
from iosim.device.profile import Profile
from iosim.errors import IosimError
from iosim.measured import Recording, Row
from iosim.shape import KERNEL_RECORD, AttentionShape

# Which kernel of the same call says the shape of one that stands around it, and on which side.
BESIDE = {
    "split_merge": ("split_forward", -1),
    "convert_dq": ("backward", -1),
    "backward_dot": ("backward", 1),
    "copy": ("backward", 1),
}
AFTER_OTHERS = ("split_merge", "gemm")  # what they move depends on kernels before them
REACH = 4  # launches from one kernel to another of the same call, at most


@dataclass(frozen=True)
class AuditedKernel:
    """One kernel: its `place` in the file, what was seen, predicted and assumed.

    `seen` is None where the row could not be read; `notes` then say why.
    """

    place: str
    name: str
    shape: AttentionShape | None
    seen: Counters | None
    made: Prediction | None
    notes: tuple[str, ...] = ()

    @property
    def differences(self) -> tuple[Difference, ...]:
        """What was measured beside what was predicted, by level."""
        if self.seen is None:
            return ()
        return differences(self.seen, self.made or Prediction(self.name))

    @property
    def label(self) -> str:
        """A short name: what the kernel is known as, or the beginning of its own name."""
        if self.made is not None and self.made.known is not None:
            return self.made.known
        return self.name[:40]

    def to_dict(self) -> dict[str, Any]:
        """Return the record of a kernel: shape, counters, prediction and differences."""
        shape = self.shape
        return {
            "place": self.place,
            "kernel": self.name,
            "known_as": None if self.made is None else self.made.known,
            **(dict.fromkeys(KERNEL_RECORD) if shape is None else shape.to_dict(KERNEL_RECORD)),
            "measured": None if self.seen is None else self.seen.to_dict(),
            "predicted": None if self.made is None else self.made.to_dict(),
            "differences": [each.to_dict() for each in self.differences],
            "notes": list(self.notes),
        }


def audit_page(
    kernels: Sequence[ProfiledKernel], given: Given, profile: Profile
) -> Iterator[AuditedKernel]:
    """Yield each kernel of a CSV page of ncu; what is wrong with one is a note of its own."""
    calls = [_call(kernel) for kernel in kernels]
    known = [None if isinstance(call, str) else recognise(call.name) for call in calls]
    shapes = [
        None if isinstance(call, str) or which is None else _shape(i, calls, known, given)
        for i, (call, which) in enumerate(zip(calls, known, strict=True))
    ]
    before: deque[tuple[int, Known, Moves]] = deque(maxlen=REACH)
    predicted: dict[tuple[KernelCall, AttentionShape], tuple[Prediction, Moves | None]] = {}
    for i, (kernel, call) in enumerate(zip(kernels, calls, strict=True)):
        place = str(i)
        if isinstance(call, str):
            yield AuditedKernel(place, kernel.name, None, None, None, (call,))
            continue
        seen, notes = _seen(kernel)
        found = shapes[i]
        which = known[i]
        if which is None or found is None or found.shape is None or _elsewhere(i, known):
            why = _why(call.name, which, found, _elsewhere(i, known))
            made = Prediction(call.name, None if which is None else which.facts.name, notes=why)
            yield AuditedKernel(place, call.name, None, seen, made, (*notes, *why))
            continue
        alike = (call, found.shape)
        if alike not in predicted or which.role in AFTER_OTHERS:
            near = tuple((which, moves) for at, which, moves in before if i - at <= REACH)
            setting = Setting(found.shape, profile, near)
            made, _, moves = predict_kernel(call, setting, aligned=False)
            predicted[alike] = made, moves
        made, moves = predicted[alike]
        if moves is not None:
            before.append((i, which, moves))
        yield AuditedKernel(
            place, call.name, found.shape, seen, made, (*notes, *found.assumed, *made.notes)
        )


def _call(kernel: ProfiledKernel) -> KernelCall | str:
    """Return the launch of a row, or why there is none in it."""
    try:
        return call_of_page(kernel)
    except IosimError as error:
        return str(error)


def _seen(kernel: ProfiledKernel) -> tuple[Counters | None, tuple[str, ...]]:
    """Return the counters of a row, and a note where they cannot be read or none is there."""
    try:
        seen = counters_of_page(kernel)
    except IosimError as error:
        return None, (str(error),)
    return seen, ("none of its counters was read",) if len(seen.missing) == len(METRICS) else ()


def _shape(
    i: int, calls: Sequence[KernelCall | str], known: Sequence[Known | None], given: Given
) -> Inferred:
    """Return the shape of the call that kernel i belongs to, from the kernel that says it."""
    which, call = known[i], calls[i]
    assert which is not None
    assert not isinstance(call, str)
    role, side = BESIDE.get(which.role, ("", 0))
    for step in range(1, REACH + 1) if side else ():
        at = i + side * step
        other = known[at] if 0 <= at < len(known) else None
        if other is not None and other.role == role:
            there = calls[at]
            assert not isinstance(there, str)
            found = infer(other, there, given)  # that kernel says what is assumed
            return found if found.shape is None else replace(found, assumed=())
    return infer(which, call, given)


def _elsewhere(i: int, known: Sequence[Known | None]) -> bool:
    """Return whether kernel i is a matrix product that stands beside no softmax."""
    which = known[i]
    if which is None or which.role != "gemm":
        return False
    near = (known[at] for at in (i - 1, i + 1) if 0 <= at < len(known))
    return not any(other is not None and other.role == "softmax" for other in near)


def _why(
    name: str, which: Known | None, found: Inferred | None, elsewhere: bool
) -> tuple[str, ...]:
    if which is None:
        return (stranger(name),)
    if elsewhere:
        return ("a matrix product with no softmax beside it: not part of an attention call",)
    return found.assumed if found is not None else ()


def audit_cases(
    cases: Sequence[Any], places: Sequence[int], profile: Profile
) -> Iterator[AuditedKernel]:
    """Yield each kernel of the cases at some places of a recording of attention calls.

    A case that is wrong is one entry, whose note says what is wrong.
    """
    for i in places:
        entry = cases[i]
        try:
            case = case_of(entry, f"case {i}")
            seen = [counters_of_record(call) for call in entry["kernels"]]
            predicted = predict_case(case, profile)
        except IosimError as error:
            yield AuditedKernel(str(i), f"case {i}", None, None, None, (str(error),))
            continue
        for j, (made, counters) in enumerate(zip(predicted.kernels, seen, strict=True)):
            place = f"{i}.{j}" if len(seen) > 1 else str(i)
            yield AuditedKernel(place, made.kernel, case.shape, counters, made, made.notes)


def audit_recording(
    recording: Recording, places: Sequence[int], profile: Profile
) -> Iterator[AuditedKernel]:
    """Yield rows of a recording of `iosim gpu measure`: all kernels of a schedule together."""
    for i in places:
        row = recording.rows[i]
        try:
            seen = counters_of_row(row)
            made = predict_schedule(row.build(), _calls_of_row(row), profile).total
        except IosimError as error:
            yield AuditedKernel(str(i), row.schedule, row.shape, None, None, (str(error),))
            continue
        made = replace(made, known=_row_label(row))
        yield AuditedKernel(str(i), row.schedule, row.shape, seen, made, made.notes)


def _row_label(row: Row) -> str:
    sizes = " x ".join(str(row.tiles[name]) for name in ("br", "bc") if name in row.tiles)
    return f"{row.schedule} {sizes}"


def _calls_of_row(row: Row) -> list[KernelCall]:
    """Return the launches of a row; how many blocks there were follows from the schedule."""
    blocks = row.shape.batch * row.shape.heads * -(-row.shape.n_q // row.tiles["br"])
    try:
        return [
            KernelCall(
                kernel["kernel"],
                blocks,
                kernel["threads"],
                kernel["registers"],
                kernel["shared_bytes"] + RESERVED_BYTES,
            )
            for kernel in row.kernels
        ]
    except (KeyError, TypeError) as error:
        raise IosimError(
            "a kernel of the recording needs a name, threads, registers and shared_bytes"
        ) from error
