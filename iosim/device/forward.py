"""Kernels of a forward pass: one block for each tile of queries, or several that share the keys."""

import math
from dataclasses import replace

from iosim.bounds import compulsory_words
from iosim.device.case import KernelCall
from iosim.device.kernels import Known
from iosim.device.launch import Launch
from iosim.device.merging import share_of
from iosim.device.moves import (
    FLOAT,
    SECTOR,
    Moves,
    Setting,
    blocks_per_sm,
    expect_grid,
    of_schedule,
    ragged,
    role,
    stream,
    tickets,
    visited,
)
from iosim.errors import IosimError
from iosim.schedule.registry import family
from iosim.shape import AttentionShape

STATISTICS = 2  # that cuDNN keeps of each row of a split


@role("forward")
def forward(known: Known, call: KernelCall, setting: Setting) -> Moves:
    """A block for each tile of queries walks K and V: `flash2`."""
    shape, profile = setting.shape, setting.profile
    facts, br, bc = known.facts, known.tiles["br"], known.tiles["bc"]
    reads, writes, _ = of_schedule(family("flash2").build(shape, br=br, bc=bc))
    if not facts.writes_lse:
        del writes["LSE"]
    pairs = visited(shape, br, bc)
    tiles = shape.batch * shape.heads * math.ceil(shape.n_q / br)
    each = tickets(known, tiles, call.grid)
    if facts.whole_tiles:
        reads |= ragged(shape, br, bc, pairs)
    at_once, notes = blocks_per_sm(call, profile)
    if facts.persistent:
        blocks = min(tiles, at_once * profile.machine.sms)
        notes += expect_grid(call, blocks, f"a persistent grid over tiles of {br} queries")
    else:
        notes += expect_grid(call, tiles, f"a block for each {br} queries")
    if facts.spills:
        notes += ("registers that it spills and reads again through L2 are not predicted",)
    launch = forward_launch(known, shape, br, bc, at_once, call.grid)
    share = share_of(known, launch, shape.head_dim, profile.machine.sms)
    read, write = compulsory_words(shape)
    lse = FLOAT * shape.batch * shape.heads * shape.n_q if facts.writes_lse else 0
    return Moves(
        reads=reads | each,
        writes=writes | each,
        compulsory_read=read * shape.item_bytes,
        compulsory_write=write * shape.item_bytes + lse,
        flops=product_flops(shape, br, bc),
        launch=launch,
        merged=round(share * (reads["K"] + reads["V"])),
        tiles={"br": br, "bc": bc},
        notes=notes,
    )


def product_flops(shape: AttentionShape, br: int, bc: int) -> int:
    """Return the FLOPs of Q K^T and P V on the tiles that a kernel visits."""
    width = shape.head_dim + shape.value_dim
    return 2 * shape.batch * shape.heads * visited(shape, br, bc).products * width


def forward_launch(
    known: Known, shape: AttentionShape, br: int, bc: int, at_once: int, grid: int, splits: int = 1
) -> Launch:
    """Return the grid of a forward kernel as L2 sees it."""
    facts, item = known.facts, shape.item_bytes
    launch = Launch(
        heads=shape.batch * shape.heads,
        owner_rows=shape.n_q,
        owner_block=br,
        owner_row_read_bytes=shape.head_dim * item,
        owner_row_write_bytes=shape.value_dim * (FLOAT if splits > 1 else item)
        + (FLOAT if facts.writes_lse else 0),
        stream_rows=shape.n_k,
        stream_block=bc,
        stream_row_bytes=(shape.head_dim + shape.value_dim) * item,
        blocks_per_sm=at_once,
        stream_group=shape.group,
        causal=shape.causal,
        causal_offset=shape.causal_offset,
        stream_descending=facts.keys == "descending",
        persistent=grid if facts.persistent else None,
        splits=splits,
    )
    alone, younger = facts.pace_by_width.get(str(known.width), (None, None))
    drift = facts.drift_by_width.get(str(known.width))
    launch = replace(launch, alone_time=alone, younger_time=younger, drift_rows=drift)
    bytes_of = facts.spill_bytes_by_width.get(str(known.width))
    if bytes_of is None or splits > 1:
        return launch
    step, start, end = bytes_of  # registers that do not fit
    return replace(launch, step_store_bytes=step, tile_store_bytes=start, tile_load_bytes=end)


@role("split_forward")
def split_forward(known: Known, call: KernelCall, setting: Setting) -> Moves:
    """Several blocks share the keys of a tile of queries; each stores a partial O in float32."""
    facts, br, bc = known.facts, known.tiles["br"], known.tiles["bc"]
    shape, splits, notes = split_shape(known, call, setting.shape, br)
    schedule = family("split_kv").build(shape, br=br, bc=bc, splits=splits, pack=1)
    counted, stored, _ = of_schedule(schedule)
    reads = {name: counted[name] for name in ("Q", "K", "V")}
    if facts.whole_queries:
        reads |= next_heads(shape, br, splits)
    at_once, more = blocks_per_sm(call, setting.profile)
    read, write = compulsory_words(shape)
    partial = {"O": write * shape.item_bytes, "LSE": stored["LSE"]}
    if splits > 1:
        sectors = shape.batch * shape.heads * splits * statistics_sectors(known, shape.n_q)
        partial = {"partial O": stored["O_part"], "partial statistics": sectors * SECTOR}
    return Moves(
        reads=reads,
        writes=partial,
        compulsory_read=read * shape.item_bytes,
        compulsory_write=sum(partial.values()),
        flops=product_flops(shape, br, bc),
        launch=forward_launch(known, shape, br, bc, at_once, call.grid, splits),
        tiles={"br": br, "bc": bc, "splits": splits},
        notes=notes + more,
    )


def next_heads(shape: AttentionShape, br: int, splits: int) -> dict[str, int]:
    """Return the bytes of Q that tiles of `br` rows read beyond their own head's rows.

    Rows of all heads lie one after another, and a tile reads on to the end of the tensor.

    >>> next_heads(AttentionShape(1, 16384, 128, heads=32), br=16, splits=8)
    {'rows of the next heads': 737280}
    """
    total = shape.batch * shape.heads * shape.n_q
    last = (shape.n_q - 1) // br * br  # the first row of a head's last tile
    beyond = sum(
        min(first + last + br, total) - (first + shape.n_q)
        for first in range(0, total, shape.n_q)
        if first + last + br > first + shape.n_q
    )
    size = splits * beyond * shape.head_dim * shape.item_bytes
    return {"rows of the next heads": size} if size else {}


def split_shape(
    known: Known, call: KernelCall, shape: AttentionShape, br: int
) -> tuple[AttentionShape, int, tuple[str, ...]]:
    """Return the shape as split-KV runs it, into how many parts the grid cuts the keys, notes."""
    if known.facts.swaps_groups and shape.n_q == 1 and shape.group > 1:
        shape = replace(shape, n_q=shape.group, heads=shape.kv_heads, causal=False)
    tiles = shape.batch * shape.heads * math.ceil(shape.n_q / br)
    splits, rest = divmod(call.grid, tiles)
    if rest or not splits:
        return shape, max(splits, 1), (
            f"the grid has {call.grid} blocks, no multiple of the {tiles} tiles of queries",
        )  # fmt: skip
    return shape, splits, ()


def statistics_sectors(known: Known, rows: int) -> int:
    """Return the sectors in which a block stores the statistics of so many rows.

    FlashAttention-2 stores LSE, cuDNN two statistics, each in sectors of its own.
    """
    return math.ceil(rows * FLOAT / SECTOR) * (1 if known.facts.writes_lse else STATISTICS)


@role("split_merge")
def split_merge(known: Known, call: KernelCall, setting: Setting) -> Moves:
    """Reads the partial results of all splits once and writes O."""
    found = setting.last("split_forward")
    if found is None:
        raise IosimError("it merges splits, but no kernel that makes them stands before it")
    split = found[1]
    shape, splits, facts = setting.shape, split.tiles["splits"], known.facts
    rows = shape.batch * shape.heads * shape.n_q
    reads = dict(split.writes)
    if splits > 1:  # a row has each of its statistics in a sector of its own
        reads["partial statistics"] = splits * rows * STATISTICS * SECTOR
    writes = {"O": rows * shape.value_dim * shape.item_bytes}
    if facts.rows_by_width:
        rows_each = facts.rows_by_width.get(str(known.width))
        if rows_each is None:
            raise IosimError(f"how many rows a block merges at d {known.width} is not known")
        sectors = math.ceil(rows_each * FLOAT / SECTOR) * SECTOR * call.grid
        reads["partial statistics"] = splits * sectors
        writes["LSE"] = sectors
    return stream(reads, writes)
