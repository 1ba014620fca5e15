"""What one known kernel moves between L2 and the SMs, in bytes; what the roles have in common.

Loads and stores of the attention kernels themselves are `count` of a schedule with the kernel's
tiles; what a kernel does beside its schedule (ragged tiles that are loaded whole, a counter that
hands out tiles) is added under a name of its own. The roles register themselves here.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from iosim.device.case import KernelCall
from iosim.device.kernels import Known
from iosim.device.launch import Launch
from iosim.device.profile import Profile
from iosim.reading.count import count
from iosim.schedule.attention import problem
from iosim.schedule.relation import PairSums
from iosim.schedule.tree import Schedule
from iosim.shape import AttentionShape

FLOAT = 4  # bytes of a float32: statistics, partial results, dQ while it is summed up
SECTOR = 32  # bytes that the SMs read and write at least


@dataclass(frozen=True)
class Moves:
    """Bytes between L2 and the SMs by tensor or by name, and what stands behind them.

    `adds` are float32 sums into L2 (dQ). `compulsory_read` and `compulsory_write` are bytes: every
    input and output once. `flops` are those of the matrix products, on whole tiles that a mask
    does not hide. `launch` is the grid as L2 sees it, None for a kernel that only streams. `merged`
    are bytes that SMs get without a lookup of their own in L2, an estimate.
    """

    reads: Mapping[str, int]
    writes: Mapping[str, int]
    compulsory_read: int
    compulsory_write: int
    adds: Mapping[str, int] = field(default_factory=dict)
    flops: int = 0
    launch: Launch | None = None
    merged: int = 0
    tiles: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def read_bytes(self) -> int:
        """Bytes from L2 into the SMs."""
        return sum(self.reads.values())

    @property
    def write_bytes(self) -> int:
        """Bytes from the SMs to L2, additions among them."""
        return sum(self.writes.values()) + self.add_bytes

    @property
    def add_bytes(self) -> int:
        """Bytes that are added in L2."""
        return sum(self.adds.values())


@dataclass(frozen=True)
class Setting:
    """Where a kernel runs: for which shape, on which device, after which kernels of its call."""

    shape: AttentionShape
    profile: Profile
    before: tuple[tuple[Known, Moves], ...] = ()

    def last(self, *roles: str) -> tuple[Known, Moves] | None:
        """Return the last kernel before this one that has one of these roles, and its moves."""
        found = [each for each in self.before if each[0].role in roles]
        return found[-1] if found else None


Role = Callable[[Known, KernelCall, Setting], Moves]
ROLES: dict[str, Role] = {}


def role(name: str) -> Callable[[Role], Role]:
    """Register what kernels of one role move."""

    def register(function: Role) -> Role:
        ROLES[name] = function
        return function

    return register


def visited(shape: AttentionShape, br: int, bc: int) -> PairSums:
    """Return sums over the pairs of tiles that a kernel visits in one head.

    >>> visited(AttentionShape(256, 256, 64, causal=True), 128, 128).pairs
    3
    """
    p = problem(shape, br, bc)
    if p.mask is not None:
        return p.mask.sums(p.query, p.key)
    query, key = p.query, p.key
    return PairSums(
        query.blocks * key.blocks, query.n * key.blocks, key.n * query.blocks, query.n * key.n
    )


def of_schedule(schedule: Schedule) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """Return the bytes that a schedule reads, writes and adds, by tensor."""
    traffic = count(schedule)
    reads, writes, adds = (
        {
            name: getattr(words, what) * traffic.items[name]
            for name, words in traffic.tensors.items()
            if getattr(words, what)
        }
        for what in ("read", "write", "add")
    )
    return reads, writes, adds


def blocks_per_sm(call: KernelCall, profile: Profile) -> tuple[int, tuple[str, ...]]:
    """Return how many blocks of a launch share an SM, and a note where that is not known."""
    if call.registers is None or call.shared_bytes is None:
        return 1, ("registers and shared memory are not known; one block an SM is assumed",)
    return profile.blocks_at_once(call.block, call.registers, call.shared_bytes), ()


def tickets(known: Known, tiles: int, blocks: int) -> dict[str, int]:
    """Return the bytes of a counter that hands out tiles, read and written alike."""
    each = known.facts.ticket_bytes
    return {"tile counter": each * (tiles + blocks)} if each else {}


def expect_grid(call: KernelCall, blocks: int, plan: str) -> tuple[str, ...]:
    """Return a note where a launch has another number of blocks than its tile plan says."""
    if call.grid == blocks:
        return ()
    return (f"the grid has {call.grid} blocks where {plan} makes {blocks}",)


def ragged(shape: AttentionShape, br: int, bc: int, pairs: PairSums) -> dict[str, int]:
    """Return the bytes by which whole tiles of Q, K and V exceed their rows, in a forward pass."""
    tiles = math.ceil(shape.n_q / br)
    rows = (tiles * br - shape.n_q) * shape.head_dim
    rows += (pairs.pairs * bc - pairs.key_rows) * (shape.head_dim + shape.value_dim)
    extra = shape.batch * shape.heads * rows * shape.item_bytes
    return {"ragged tiles": extra} if extra else {}


def stream(
    reads: Mapping[str, int], writes: Mapping[str, int], notes: tuple[str, ...] = ()
) -> Moves:
    """Return the moves of a kernel that reads and writes each byte once."""
    return Moves(
        reads=reads,
        writes=writes,
        compulsory_read=sum(reads.values()),
        compulsory_write=sum(writes.values()),
        notes=notes,
    )
