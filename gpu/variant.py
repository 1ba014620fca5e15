"""Kernel variants: everything that is a constant while a kernel runs, and the memory it takes."""

from dataclasses import dataclass

from iosim.units import ITEM_BYTES

WARP = 32
CHUNK = 16  # bytes that one asynchronous copy moves
HALF = ("float16", "bfloat16")


@dataclass(frozen=True)
class Variant:
    """One kernel for one dtype, head dimension and pair of tiles; sizes in rows or words.

    `br` and `bc` are the tile plan's, whatever they are; `m_tiles` is the number of 16-row matrix
    tiles a warp owns, `step` the keys whose scores are in registers at a time, `stages` the K/V
    tiles in shared memory, `min_blocks` the blocks a multiprocessor should hold. `aligned` says
    that rows begin at multiples of 16 bytes; other arrays are copied word by word.

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
    def swizzle(self) -> int:
        """Bits of a row's number that are XORed into a chunk's; 0 where rows are padded instead."""
        return 7 if self.width * self.item // CHUNK % 8 == 0 and self.half else 0

    @property
    def pitch(self) -> int:
        """Bytes from one row of a tile to the next in shared memory, free of bank conflicts."""
        return self.width * self.item + (0 if self.swizzle else CHUNK)

    @property
    def warps(self) -> int:
        """Warps of a block, each with 16 m_tiles rows of queries."""
        return -(-self.br // (16 * self.m_tiles))

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
        return self.rows * self.pitch * (1 if self.half else 2)

    @property
    def kv_bytes(self) -> int:
        """Bytes of one tile of K or of V."""
        return self.keys * self.pitch

    @property
    def score_pitch(self) -> int:
        """Bytes from one row of a tile of S or P to the next in shared memory."""
        return self.keys * self.item + CHUNK

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory of a block."""
        scores = self.rows * self.score_pitch
        if self.kernel == "standard_scores":
            return self.q_bytes + max(self.kv_bytes, 0) + scores
        if self.kernel == "standard_output":
            return self.stages * (scores + self.kv_bytes) + self.rows * self.pitch
        if self.kernel == "standard_softmax":
            return 0
        if self.kernel == "flash1":
            return self.q_bytes + self.rows * self.pitch + 2 * self.kv_bytes
        return self.q_bytes + 2 * self.stages * self.kv_bytes

    @property
    def registers(self) -> int:
        """About how many registers a thread needs: accumulators, scores, operands, the rest."""
        output = self.m_tiles * self.width // 2
        scores = self.m_tiles * self.step // 2
        queries = self.m_tiles * self.width // 4 if self.half and self.q_in_registers else 16
        return output + scores + queries + (48 if self.half else 96)
