"""Predict: the bytes that a kernel moves at every level of a device, without having seen any.

Between L2 and the SMs the bytes are those of the tile plan (`moves`), between HBM and L2 those of a
simulated L2 (`hbm`). What is not known is None, and a note says why.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from iosim.device import backward, forward, unfused  # noqa: F401  they register their roles
from iosim.device.case import Case, KernelCall
from iosim.device.hbm import HbmTraffic, simulate
from iosim.device.kernels import Known, recognise, stranger
from iosim.device.moves import ROLES, Moves, Setting
from iosim.device.profile import Profile
from iosim.errors import IosimError
from iosim.shape import KERNEL_RECORD, AttentionShape

TILED = ("forward", "split_forward", "backward")  # roles that need B_r and B_c
LEVELS = ("sm_fill", "l2_tex_read", "dram_read", "dram_write_min", "dram_write_max")


@dataclass(frozen=True)
class Prediction:
    """Bytes of one kernel by level, None where they are not known; `notes` say what is assumed.

    `known` and `role` are what the kernel was recognised as, `tiles` its sizes in rows. `sm_fill`
    and `sm_drain` are between L2 and the SMs, `added` what is summed up in L2, `l2_tex_read` the
    bytes of L2's lookups, `dram_*` between HBM and L2, `compulsory_*` each input and output once.
    `seconds` is the roofline time, set by the level `limited_by`. `reads` and `writes` split the
    bytes of the SMs by tensor.
    """

    kernel: str
    known: str | None = None
    role: str | None = None
    tiles: Mapping[str, int] = field(default_factory=dict, hash=False)
    sm_fill: int | None = None
    sm_drain: int | None = None
    added: int | None = None
    l2_tex_read: int | None = None
    dram_read: int | None = None
    dram_write_min: int | None = None
    dram_write_max: int | None = None
    compulsory_read: int | None = None
    compulsory_write: int | None = None
    flops: int | None = None
    limited_by: str | None = None
    seconds: float | None = None
    reads: Mapping[str, int] = field(default_factory=dict, hash=False)
    writes: Mapping[str, int] = field(default_factory=dict, hash=False)
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the record of a kernel: plain numbers, all of them bytes unless named."""
        return {
            "kernel": self.kernel,
            "known_as": self.known,
            "role": self.role,
            "tiles": dict(self.tiles),
            **{name: getattr(self, name) for name in LEVELS},
            "sm_drain": self.sm_drain,
            "l2_tex_red": self.added,
            "compulsory_read": self.compulsory_read,
            "compulsory_write": self.compulsory_write,
            "flops": self.flops,
            "limited_by": self.limited_by,
            "roofline_seconds": self.seconds,
            "reads": dict(self.reads),
            "writes": dict(self.writes),
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class CasePrediction:
    """One attention call: its case, a prediction for each kernel, and which one is the main."""

    case: Case
    kernels: tuple[Prediction, ...]
    main: int

    def to_dict(self) -> dict[str, Any]:
        """Return the record of a case: its shape, the main kernel, and all kernels."""
        return {
            "op": self.case.operation,
            "backend": self.case.backend,
            **self.case.shape.to_dict(KERNEL_RECORD),
            **self.kernels[self.main].to_dict(),
            "kernels": [kernel.to_dict() for kernel in self.kernels],
        }


def predict_case(case: Case, profile: Profile) -> CasePrediction:
    """Return what each kernel of a case moves on a device, caches cold before each.

    The main kernel is the one that takes longest as recorded, else by its roofline time.
    """
    before: list[tuple[Known, Moves]] = []
    predictions = []
    for call in case.kernels:
        prediction, known, moves = predict_kernel(
            call, Setting(case.shape, profile, tuple(before)), aligned=case.aligned
        )
        predictions.append(prediction)
        if known is not None and moves is not None:
            before.append((known, moves))
    main = case.main
    if main is None:
        times = [prediction.seconds or 0.0 for prediction in predictions]
        main = times.index(max(times))
    return CasePrediction(case, tuple(predictions), main)


def predict_kernel(
    call: KernelCall, setting: Setting, *, aligned: bool = True
) -> tuple[Prediction, Known | None, Moves | None]:
    """Return the prediction for one launch, what it was recognised as, and its moves.

    Without `aligned`, a causal mask starts where this kernel's library lets it start. Nothing is
    raised for a kernel that is not known, or of which too little is known: a note says so.
    """
    known = recognise(call.name)
    if known is None:
        return Prediction(call.name, notes=(stranger(call.name),)), None, None
    found = Prediction(call.name, known.facts.name, known.role)
    notes: tuple[str, ...] = ()
    shape = setting.shape
    if shape.causal and not aligned and shape.n_q != shape.n_k:
        setting = replace(setting, shape=replace(shape, align=known.facts.causal_align))
        notes = (f"the causal mask is taken to start {known.facts.causal_align}",)
    wrong = _unfit(known, call, shape)
    if wrong is not None:
        return replace(found, notes=(*notes, f"{wrong}: nothing is predicted")), known, None
    try:
        moves = moves_of(known, call, setting)
        levels = of_moves(moves, setting.shape, setting.profile)
    except IosimError as error:
        return replace(found, notes=(*notes, f"{error}: nothing is predicted")), known, None
    return replace(found, **levels, notes=(*notes, *moves.notes)), known, moves


def moves_of(known: Known, call: KernelCall, setting: Setting) -> Moves:
    """Return what a known kernel moves between L2 and the SMs.

    Raises IosimError where too little is known of it in its place.

    >>> from iosim.device.profile import profile
    >>> call = KernelCall("cunn_SoftMaxForwardReg<c10::Half, float>", grid=64, block=1024)
    >>> setting = Setting(AttentionShape(64, 128, 64), profile("H200"))
    >>> moves_of(recognise(call.name), call, setting).reads
    {'S': 16384}
    """
    return ROLES[known.role](known, call, setting)


def _unfit(known: Known, call: KernelCall, shape: AttentionShape) -> str | None:
    """Return why a kernel cannot be what the shape says, or None."""
    if shape.mask is not None:
        return f"which tiles the kernel visits under the mask {shape.mask} is not known"
    if known.width is not None and known.width < shape.head_dim:
        return f"the kernel is compiled for d {known.width}, but the case has d {shape.head_dim}"
    if known.dtype is not None and known.dtype != shape.dtype:
        return f"the kernel is compiled for {known.dtype}, but the case has {shape.dtype}"
    if known.flags.get("local"):
        return "which tiles the kernel visits in its window of keys is not known"
    if known.role in TILED and not {"br", "bc"} <= known.tiles.keys():
        return f"the tiles of the kernel at d {known.width} are not known"
    threads = known.facts.threads
    if threads is not None and threads != call.block:
        return f"its tiles are known for blocks of {threads} threads, but these have {call.block}"
    return None


def of_moves(moves: Moves, shape: AttentionShape, profile: Profile) -> dict[str, Any]:
    """Return the fields of a prediction that follow from what a kernel moves at the SMs."""
    hbm = hbm_traffic(moves, profile)
    times = {
        "SM": max(moves.read_bytes, moves.write_bytes) / profile.sm_bytes_per_second,
        "HBM": (hbm.dram_read + hbm.dram_write_min) / profile.machine.hbm_bytes_per_second,
    }
    if moves.flops:
        times["compute"] = moves.flops / profile.machine.flops_per_second(shape.dtype)
    limit = max(times, key=lambda level: times[level])
    return {
        "tiles": moves.tiles,
        "sm_fill": moves.read_bytes,
        "sm_drain": moves.write_bytes,
        "added": moves.add_bytes,
        "l2_tex_read": moves.read_bytes - moves.merged,
        "dram_read": hbm.dram_read,
        "dram_write_min": hbm.dram_write_min,
        "dram_write_max": hbm.dram_write_max,
        "compulsory_read": moves.compulsory_read,
        "compulsory_write": moves.compulsory_write,
        "flops": moves.flops,
        "limited_by": limit,
        "seconds": times[limit],
        "reads": moves.reads,
        "writes": {**moves.writes, **moves.adds},
    }


def hbm_traffic(moves: Moves, profile: Profile) -> HbmTraffic:
    """Return the bytes between HBM and L2: simulated, or once each for a kernel that streams."""
    if moves.launch is not None:
        return simulate(moves.launch, profile)
    stored = sum(moves.writes.values())
    kept = profile.machine.l2_bytes
    return HbmTraffic(moves.compulsory_read, max(0, stored - kept), stored, moves.read_bytes)
