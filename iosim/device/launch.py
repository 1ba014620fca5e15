"""What a kernel's grid does, as L2 sees it: who loads which rows, in which order, how many at once.

An attention kernel gives each block of threads one tile of rows that it keeps (the *owner*: queries
in a forward kernel, keys in a backward one) and walks the rows of the other side (the *stream*: K
and V, or Q and dO). Nothing else about the kernel matters to a cache. Sizes are rows and bytes.
"""

import math
from dataclasses import dataclass

from iosim.errors import IosimError

#: Owner tiles of a head follow each other in the grid, or the heads of a tile do.
ORDERS = ("blocks-first", "heads-first")


@dataclass(frozen=True)
class Launch:
    """A grid of blocks of threads, each with owner tiles to work on and a stream to walk for each.

    `heads` counts query heads over the whole batch. `owner_group` heads share one owner tensor
    (backward with grouped heads reads the K and V of one key head for several query heads),
    `stream_group` heads share one stream (forward with grouped heads). Rows are read whole:
    `stream_row_bytes` is one row of all `stream_tensors` together. `stream_add_bytes` are added in
    float32 to each streamed row that is visited (dQ). LSE and D of a row count as bytes of the row.

    With `causal`, row i of the queries sees the keys up to i + `causal_offset`. `owner_is_query`
    says whether that cuts the end of the stream (forward) or its beginning (backward).

    Without `persistent` the grid has one block for each tile; else that many blocks take one tile
    after another: the next one that nobody has, or with `static` the tiles b, b + persistent, ...

    Registers that do not fit: a block stores `step_store_bytes` at each block of its stream, and
    reads them from where it does not need L2; it stores `tile_store_bytes` at the start of a tile
    and reads `tile_load_bytes` of them at its end. They lie in a place of the block's own.

    `order` and `tiles_descending` say in which order the tiles
    stand in the grid: owner tiles of a head one after another ("blocks-first"), or all heads of a
    tile ("heads-first"). `splits` cut each stream into as many parts, each with a block of its own.

    Where several blocks share an SM, the one that started last takes `younger_time` for a row, and
    one that is alone takes `alone_time`, both in units of what the one that started first takes;
    each row adds `drift_rows` rows^2 of variance to a block's time. None is what the device's
    profile says.
    """

    heads: int
    owner_rows: int
    owner_block: int
    owner_row_read_bytes: int
    owner_row_write_bytes: int
    stream_rows: int
    stream_block: int
    stream_row_bytes: int
    blocks_per_sm: int
    stream_tensors: int = 2
    owner_group: int = 1
    stream_group: int = 1
    stream_add_bytes: int = 0
    causal: bool = False
    causal_offset: int = 0
    owner_is_query: bool = True
    stream_descending: bool = False
    persistent: int | None = None
    static: bool = False
    step_store_bytes: int = 0
    tile_store_bytes: int = 0
    tile_load_bytes: int = 0
    order: str = "blocks-first"
    tiles_descending: bool = False
    splits: int = 1
    alone_time: float | None = None
    younger_time: float | None = None
    drift_rows: float | None = None

    def __post_init__(self) -> None:
        """Raise IosimError for a grid that cannot be."""
        for name in ("heads", "owner_rows", "owner_block", "stream_rows", "stream_block", "splits"):
            if getattr(self, name) < 1:
                raise IosimError(f"{name} is {getattr(self, name)}; it must be at least 1")
        for name in ("owner_group", "stream_group"):
            if getattr(self, name) < 1 or self.heads % getattr(self, name):
                raise IosimError(
                    f"{name} {getattr(self, name)} does not divide the {self.heads} heads"
                )
        if self.blocks_per_sm < 1:
            raise IosimError(f"blocks_per_sm is {self.blocks_per_sm}; it must be at least 1")
        if self.persistent is not None and self.persistent < 1:
            raise IosimError(f"persistent is {self.persistent} blocks; it must be at least 1")
        if self.tile_load_bytes > self.tile_store_bytes:
            raise IosimError(
                f"tile_load_bytes is {self.tile_load_bytes}; a block loads no more than the "
                f"{self.tile_store_bytes} bytes that it stored"
            )
        if self.order not in ORDERS:
            raise IosimError(f"order '{self.order}' is not one of {', '.join(ORDERS)}")

    @property
    def owner_tiles(self) -> int:
        """Owner tiles of one head."""
        return math.ceil(self.owner_rows / self.owner_block)

    @property
    def stream_blocks(self) -> int:
        """Blocks of the whole stream of one head."""
        return math.ceil(self.stream_rows / self.stream_block)

    @property
    def tiles(self) -> int:
        """Owner tiles of all heads and splits: what is dispatched."""
        return self.heads * self.owner_tiles * self.splits

    def stream_range(self, tile: int) -> tuple[int, int]:
        """Return the streamed rows [start, stop) that owner tile `tile` of a head visits.

        >>> forward = Launch(1, 256, 128, 128, 128, 256, 64, 256, 1, causal=True)
        >>> forward.stream_range(0), forward.stream_range(1)
        ((0, 128), (0, 256))
        """
        if not self.causal:
            return 0, self.stream_rows
        first = tile * self.owner_block
        last = min(first + self.owner_block, self.owner_rows)
        if self.owner_is_query:
            return 0, max(0, min(self.stream_rows, last + self.causal_offset))
        return min(self.stream_rows, max(0, first - self.causal_offset)), self.stream_rows

    @property
    def visited_rows(self) -> int:
        """Rows of one head's stream that any of its tiles visits."""
        ranges = [self.stream_range(tile) for tile in range(self.owner_tiles)]
        return max(stop for _, stop in ranges) - min(start for start, _ in ranges)

    @property
    def added_bytes(self) -> int:
        """Bytes of the rows that are added to (dQ), each once."""
        return self.heads * self.visited_rows * self.stream_add_bytes

    @property
    def compulsory_read_bytes(self) -> int:
        """Bytes that must come from HBM into an empty L2: every row that is visited, once.

        Rows that are added to (dQ) are read, too: L2 adds to what HBM holds.
        """
        owners = self.heads // self.owner_group * self.owner_rows * self.owner_row_read_bytes
        streamed = self.heads // self.stream_group * self.visited_rows * self.stream_row_bytes
        return owners + streamed + self.added_bytes

    @property
    def stored_bytes(self) -> int:
        """Bytes that the blocks store in L2, additions (dQ) not among them."""
        return self.heads * self.splits * self.owner_rows * self.owner_row_write_bytes
