"""A schedule as kernels of our own: the counted plan is the plan that runs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from iosim.bounds import compulsory_words
from iosim.device.case import KernelCall
from iosim.device.forward import product_flops
from iosim.device.launch import Launch
from iosim.device.merging import OWN_WINDOW, share
from iosim.device.moves import FLOAT, Moves, blocks_per_sm, of_schedule
from iosim.device.predict import LEVELS, Prediction, of_moves
from iosim.device.profile import Profile
from iosim.schedule.tree import Schedule
from iosim.shape import KERNEL_RECORD, AttentionShape

# The tensors that each kernel of standard_tiled reads and writes.
PARTS = {
    "standard_scores": (("Q", "K"), ("S",)),
    "standard_softmax": (("S",), ("P",)),
    "standard_output": (("P", "V"), ("O",)),
}
NO_KERNEL = "no kernel of ours runs this schedule"
UNSIMULATED = "its L2 is not simulated: HBM is taken to move each input and output once"


@dataclass(frozen=True)
class SchedulePrediction:
    """A schedule on a device: a prediction for each kernel that runs it, and for all together."""

    schedule: Schedule
    total: Prediction
    kernels: tuple[Prediction, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the record: shape and tiles, bytes of all kernels together, and by kernel."""
        record = self.total.to_dict()
        for key in ("kernel", "known_as", "role", "tiles"):
            del record[key]
        return {
            "schedule": self.schedule.name,
            **self.schedule.shape.to_dict(KERNEL_RECORD),
            **self.schedule.tiles,
            **record,
            "kernels": [kernel.to_dict() for kernel in self.kernels],
        }


def predict_schedule(
    schedule: Schedule,
    calls: Sequence[KernelCall],
    profile: Profile,
    keys: str = "forward",
    why: str = "",
) -> SchedulePrediction:
    """Return what a schedule moves on a device when `calls` run it, its keys in the order `keys`.

    Without calls there is no kernel, `why` saying why: the bytes of the SMs are counted, those of
    HBM are None.

    >>> from iosim.device.profile import profile
    >>> from iosim.schedule import family
    >>> schedule = family("flash2").build(AttentionShape(8192, 8192, 64), br=128, bc=128)
    >>> call = KernelCall("flash2", grid=64, block=128, registers=200, shared_bytes=99328)
    >>> predict_schedule(schedule, [call], profile("H200")).total.sm_fill
    135266304
    """
    made = tuple(_kernel(schedule, call, profile, keys) for call in calls)
    if made:
        return SchedulePrediction(schedule, made[0] if len(made) == 1 else _together(made), made)
    reads, writes, adds = of_schedule(schedule)
    counted = Prediction(
        schedule.name,
        tiles=schedule.tiles,
        sm_fill=sum(reads.values()),
        sm_drain=sum(writes.values()) + sum(adds.values()),
        added=sum(adds.values()),
        reads=reads,
        writes={**writes, **adds},
        notes=(f"{why or NO_KERNEL}: of L2 and HBM nothing is predicted",),
    )
    return SchedulePrediction(schedule, counted, ())


def _kernel(schedule: Schedule, call: KernelCall, profile: Profile, keys: str) -> Prediction:
    moves = _part(schedule, call.name) if call.name in PARTS else _whole(schedule, call, profile)
    notes = moves.notes
    if moves.launch is not None and keys != "forward":
        moves = replace(moves, launch=replace(moves.launch, stream_descending=keys == "reverse"))
        if keys == "snake":
            notes += ("the snake order of the keys is taken as forward",)
    found = Prediction(call.name, notes=notes)
    return replace(found, **of_moves(moves, schedule.shape, profile))


def _whole(schedule: Schedule, call: KernelCall, profile: Profile) -> Moves:
    """Return the moves of a kernel that runs a whole schedule."""
    shape, tiles = schedule.shape, schedule.tiles
    reads, writes, adds = of_schedule(schedule)
    at_once, notes = blocks_per_sm(call, profile)
    read, write = compulsory_words(shape)
    rows = shape.batch * shape.heads * shape.n_q
    statistics = rows * FLOAT * len([name for name in writes if name in ("LSE", "l", "m")])
    launch, merged = None, 0
    if schedule.name == "flash2":
        launch = flash2_launch(shape, tiles["br"], tiles["bc"], at_once)
        in_step = share(OWN_WINDOW, launch, profile.machine.sms)
        merged = round(in_step * (reads["K"] + reads["V"]))
    else:
        notes = (UNSIMULATED,)
    return Moves(
        reads,
        writes,
        compulsory_read=read * shape.item_bytes,
        compulsory_write=write * shape.item_bytes + statistics,
        adds=adds,
        flops=product_flops(shape, tiles["br"], tiles["bc"]),
        launch=launch,
        merged=merged,
        tiles=tiles,
        notes=notes,
    )


def launch_of(schedule: Schedule, call: KernelCall, profile: Profile) -> Launch:
    """Return the grid of our flash2 as L2 sees it, for a schedule of that name."""
    tiles, (at_once, _) = schedule.tiles, blocks_per_sm(call, profile)
    return flash2_launch(schedule.shape, tiles["br"], tiles["bc"], at_once)


def flash2_launch(shape: AttentionShape, br: int, bc: int, at_once: int) -> Launch:
    """Return the grid of our flash2: under a causal mask the longest tiles of a head first."""
    item = shape.item_bytes
    return Launch(
        heads=shape.batch * shape.heads,
        owner_rows=shape.n_q,
        owner_block=br,
        owner_row_read_bytes=shape.head_dim * item,
        owner_row_write_bytes=shape.value_dim * item + FLOAT,
        stream_rows=shape.n_k,
        stream_block=bc,
        stream_row_bytes=(shape.head_dim + shape.value_dim) * item,
        blocks_per_sm=at_once,
        stream_group=shape.group,
        causal=shape.causal,
        causal_offset=shape.causal_offset,
        tiles_descending=shape.causal,
    )


def _part(schedule: Schedule, name: str) -> Moves:
    """Return the moves of one kernel of standard_tiled."""
    shape, (inputs, outputs) = schedule.shape, PARTS[name]
    reads, writes, _ = of_schedule(schedule)
    heads, keys = shape.batch * shape.heads, shape.batch * shape.kv_heads * shape.n_k
    words = {
        "Q": heads * shape.n_q * shape.head_dim,
        "K": keys * shape.head_dim,
        "V": keys * shape.value_dim,
        "O": heads * shape.n_q * shape.value_dim,
        "S": heads * shape.n_q * shape.n_k,
        "P": heads * shape.n_q * shape.n_k,
    }
    inner = {"standard_scores": shape.head_dim, "standard_output": shape.value_dim}
    return Moves(
        {tensor: reads[tensor] for tensor in inputs},
        {tensor: writes[tensor] for tensor in outputs},
        compulsory_read=sum(words[tensor] for tensor in inputs) * shape.item_bytes,
        compulsory_write=sum(words[tensor] for tensor in outputs) * shape.item_bytes,
        flops=2 * words["S"] * inner.get(name, 0),
        tiles=schedule.tiles,
        notes=(UNSIMULATED,),
    )


def _together(kernels: Sequence[Prediction]) -> Prediction:
    """Return the sum of kernels that run one after another."""
    names = (*LEVELS, "sm_drain", "added", "compulsory_read", "compulsory_write", "flops")
    totals = {name: sum(getattr(kernel, name) for kernel in kernels) for name in names}
    longest = max(kernels, key=lambda kernel: kernel.seconds or 0.0)
    return Prediction(
        " + ".join(kernel.kernel for kernel in kernels),
        tiles=kernels[0].tiles,
        **totals,
        limited_by=longest.limited_by,
        seconds=sum(kernel.seconds or 0.0 for kernel in kernels),
        notes=tuple(dict.fromkeys(note for kernel in kernels for note in kernel.notes)),
    )
