"""Kernel variants: everything that is a constant while a kernel runs, and the memory it takes."""

from dataclasses import dataclass
from typing import NamedTuple

from iosim.units import ITEM_BYTES

WARP = 32
PANEL = 128  # bytes of a row in the panels that warpgroup products read
CHUNK = 16  # bytes that one asynchronous copy moves
HALF = ("float16", "bfloat16")


class Layout(NamedTuple):
    """Rows `pitch` bytes apart; chunk c of row r lies at c ^ ((r >> shift) & mask).

    Eight rows in turn then have a chunk in eight different banks, and the two chunks of a 32-byte
    sector stay side by side: a copy that parts them fetches the sector twice (measured).
    """

    pitch: int
    shift: int
    mask: int


def layout(row_bytes: int) -> Layout:
    """Return the layout of rows of so many bytes, a multiple of 32.

    >>> layout(128), layout(64)
    (Layout(pitch=128, shift=0, mask=7), Layout(pitch=96, shift=2, mask=1))
    """
    if row_bytes % 128 == 0:
        return Layout(row_bytes, 0, 7)
    return Layout(32 * (row_bytes // 32 | 1), 2, 1)  # an odd number of sectors


@dataclass(frozen=True)
class Variant:
    """One kernel for one dtype, head dimension and pair of tiles; sizes in rows or words.

    `br` and `bc` are the tile plan's, whatever they are; `m_tiles` is the number of 16-row matrix
    tiles a warp owns, `step` the keys whose scores are in registers at a time, `stages` the K/V
    tiles in shared memory, `min_blocks` the blocks a multiprocessor should hold. `aligned` says
    that rows begin at multiples of 16 bytes; other arrays are copied word by word. `warpgroup`:
    four warps share their matrix products (wgmma, compute capability 9.0). `heads_first`: in the
    grid of flash2 the heads of a tile follow each other, not the tiles of a head. `ascending`: the
    tiles of a head are in rising order under a causal mask, too; else the longest come first.

    >>> v = Variant("flash2", "float16", head_dim=64, br=128, bc=64, m_tiles=2, step=64)
    >>> v.threads, v.shared_bytes
    (128, 49152)
    """

    kernel: str
    dtype: str
    head_dim: int
    br: int
    bc: int
    m_tiles: int = 1
    step: int = 64
    stages: int = 2
    causal: bool = False
    order: str = "forward"
    aligned: bool = True
    min_blocks: int = 1
    q_in_registers: bool = True
    warpgroup: bool = False
    heads_first: bool = False
    ascending: bool = False

    @property
    def half(self) -> bool:
        """Whether words have 16 bits."""
        return self.dtype in HALF

    @property
    def item(self) -> int:
        """Bytes of a word of Q, K, V and O."""
        return ITEM_BYTES[self.dtype]

    @property
    def depth(self) -> int:
        """Words of a row that one matrix instruction consumes."""
        return 16 if self.half else 8

    @property
    def width(self) -> int:
        """Words of a row in shared memory: head_dim up to a whole number of instructions."""
        return -(-self.head_dim // self.depth) * self.depth

    @property
    def chunks(self) -> int:
        """16-byte chunks of a row in slow memory."""
        return self.head_dim * self.item // CHUNK

    @property
    def layout(self) -> Layout:
        """How a tile of Q, K, V or O lies in shared memory; in panels for warpgroups."""
        if self.warpgroup:
            return layout(PANEL)
        return layout(self.width * self.item)

    @property
    def warps(self) -> int:
        """Warps of a block, each with 16 m_tiles rows of queries."""
        unit = 4 if self.warpgroup else 1
        return -(-self.br // (16 * unit * self.m_tiles)) * unit

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.warps * WARP

    @property
    def rows(self) -> int:
        """Rows of a query tile in shared memory: br up to whole warps."""
        return self.warps * 16 * self.m_tiles

    @property
    def keys(self) -> int:
        """Rows of a key tile in shared memory: bc up to whole steps."""
        return -(-self.bc // self.step) * self.step

    @property
    def q_bytes(self) -> int:
        """Bytes of the query tile: float32 keeps each word as two numbers of 11 bits."""
        return self.rows * self.row_bytes * (1 if self.half else 2)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of Q, K or V in shared memory, padding included."""
        return self.width * self.item if self.warpgroup else self.layout.pitch

    @property
    def kv_bytes(self) -> int:
        """Bytes of one tile of K or of V."""
        return self.keys * self.row_bytes

    @property
    def score_layout(self) -> Layout:
        """How a tile of S or P lies in shared memory."""
        return layout(self.keys * self.item)

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory of a block."""
        scores = self.rows * self.score_layout.pitch
        if self.kernel == "standard_scores":
            return self.q_bytes + max(self.kv_bytes, 0) + scores
        if self.kernel == "standard_output":
            return self.stages * (scores + self.kv_bytes) + self.rows * self.layout.pitch
        if self.kernel == "standard_softmax":
            return 0
        if self.kernel == "flash1":
            return self.q_bytes + self.rows * self.layout.pitch + 2 * self.kv_bytes
        return self.q_bytes + 2 * self.stages * self.kv_bytes

    @property
    def registers(self) -> int:
        """About how many registers a thread needs: accumulators, scores, operands, the rest."""
        output = self.m_tiles * self.width // 2
        scores = self.m_tiles * self.step // 2
        if self.warpgroup:
            return output + scores + self.step // 4 + (40 if self.width <= 192 else 88)
        queries = self.m_tiles * self.width // 4 if self.half and self.q_in_registers else 16
        # flash1 also moves O and the statistics in and out; in float32 the 96 cover that.
        moves = 48 if self.kernel == "flash1" and self.half else 0
        return output + scores + queries + (48 if self.half else 96) + moves
