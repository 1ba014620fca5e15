"""Kernels of a backward pass: a block for each tile of keys, and what stands around it."""

import math
from dataclasses import dataclass, replace

from iosim.device.case import KernelCall
from iosim.device.kernels import Known
from iosim.device.launch import Launch
from iosim.device.merging import share_of
from iosim.device.moves import (
    FLOAT,
    Moves,
    Setting,
    blocks_per_sm,
    expect_grid,
    of_schedule,
    role,
    stream,
    tickets,
    visited,
)
from iosim.errors import IosimError
from iosim.schedule.registry import family
from iosim.shape import AttentionShape

ANY_TILE = 128  # what a pass over the rows moves does not depend on tiles
PARTIAL_SECTORS = "it stores parts of sectors, so that more bytes are stored, by how many varies"


@dataclass(frozen=True)
class Passes:
    """The bytes of `flash2_backward` by tensor, as its three kernels share them.

    Kernels treat every query head on its own: with grouped heads, each reads K and V again and
    stores dK and dV of its own.
    """

    reads: dict[str, int]
    writes: dict[str, int]
    adds: dict[str, int]

    @classmethod
    def of(cls, shape: AttentionShape, br: int, bc: int) -> "Passes":
        """Count the schedule with these tiles."""
        expanded = replace(shape, kv_heads=shape.heads)
        return cls(*of_schedule(family("flash2_backward").build(expanded, br=br, bc=bc)))

    @property
    def sums(self) -> str:
        """The name of dQ while it is summed up: its own where it needs no conversion."""
        return "dQ_sum" if "dQ_sum" in self.adds else "dQ"

    @property
    def main_reads(self) -> dict[str, int]:
        """What the main kernel reads: all but O and the dO beside it, which the dot reads."""
        main = {name: self.reads[name] for name in ("K", "V", "Q", "dO", "LSE", "D")}
        main["dO"] -= self.reads["O"]
        return main


@role("backward")
def backward(known: Known, call: KernelCall, setting: Setting) -> Moves:
    """A block for each tile of keys keeps K and V and walks Q and dO; dQ is added in float32."""
    shape, facts, item = setting.shape, known.facts, setting.shape.item_bytes
    br, bc = known.tiles["br"], known.tiles["bc"]
    passes = Passes.of(shape, br, bc)
    pairs = visited(shape, br, bc)
    heads = shape.batch * shape.heads
    tiles = heads * math.ceil(shape.n_k / bc)
    width = shape.head_dim + shape.value_dim
    reads, writes = passes.main_reads, {name: passes.writes[name] for name in ("dK", "dV")}
    beyond = heads * (pairs.pairs * br - pairs.query_rows)  # rows after the last in whole tiles
    if facts.whole_tiles and beyond:
        reads["ragged tiles"] = beyond * (width * item + 2 * FLOAT)
    adds = {"dQ": passes.adds[passes.sums]}
    if beyond:  # dQ is added in whole tiles, to rows that are there for it
        adds["dQ beyond its rows"] = beyond * shape.head_dim * FLOAT
    each = tickets(known, tiles, call.grid)
    at_once, notes = blocks_per_sm(call, setting.profile)
    if facts.persistent:
        blocks = min(tiles, at_once * setting.profile.machine.sms)
        notes += expect_grid(call, blocks, f"a persistent grid over tiles of {bc} keys")
    else:
        notes += expect_grid(call, tiles, f"a block for each {bc} keys")
    launch = Launch(
        heads=heads,
        owner_rows=shape.n_k,
        owner_block=bc,
        owner_row_read_bytes=width * item,
        owner_row_write_bytes=width * item,
        stream_rows=shape.n_q,
        stream_block=br,
        stream_row_bytes=width * item + 2 * FLOAT,
        blocks_per_sm=at_once,
        owner_group=shape.group,
        stream_add_bytes=shape.head_dim * FLOAT,
        causal=shape.causal,
        causal_offset=shape.causal_offset,
        owner_is_query=False,
        stream_descending=facts.keys == "descending",
        persistent=call.grid if facts.persistent else None,
    )
    share = share_of(known, launch, shape.head_dim, setting.profile.machine.sms)
    return Moves(
        reads=reads | each,
        writes=writes | each,
        adds=adds,
        # dQ is read where it is added to: it is an input, set to zero before.
        compulsory_read=heads * shape.n_q * (width * item + 2 * FLOAT + shape.head_dim * FLOAT)
        + shape.batch * shape.kv_heads * shape.n_k * width * item,
        compulsory_write=sum(writes.values()) + heads * shape.n_q * shape.head_dim * FLOAT,
        flops=2 * heads * pairs.products * (3 * shape.head_dim + 2 * shape.value_dim),
        launch=launch,
        merged=round(share * sum(reads[name] for name in ("Q", "dO", "LSE", "D"))),
        tiles={"br": br, "bc": bc},
        notes=notes,
    )


@role("backward_dot")
def backward_dot(known: Known, call: KernelCall, setting: Setting) -> Moves:
    """D = rowsum(dO * O), and dQ set to zero where it will be added to."""
    facts, passes = known.facts, Passes.of(setting.shape, ANY_TILE, ANY_TILE)
    writes = {"D": passes.writes["D"] * facts.dot_writes}
    if facts.clears_dq:
        writes["dQ in float32"] = passes.writes[passes.sums]
    reads = {"O": passes.reads["O"], "dO": passes.reads["O"]}
    return stream(reads, writes, (PARTIAL_SECTORS,) if facts.partial_sectors else ())


@role("convert_dq")
def convert_dq(known: Known, call: KernelCall, setting: Setting) -> Moves:
    """The float32 dQ, scaled and rounded."""
    passes = Passes.of(setting.shape, ANY_TILE, ANY_TILE)
    if passes.sums == "dQ":
        raise IosimError(f"dQ in {setting.shape.dtype} needs no conversion")
    return stream(
        {"dQ in float32": passes.reads[passes.sums]},
        {"dQ": passes.writes["dQ"]},
        (PARTIAL_SECTORS,) if known.facts.partial_sectors else (),
    )


@role("copy")
def copy(known: Known, call: KernelCall, setting: Setting) -> Moves:
    """A copy of one tensor: of Q's or K's size if the grid fits it, else of what the grid holds."""
    shape, each = setting.shape, known.tiles["threads"] * known.tiles["each"]
    sizes = (
        shape.batch * shape.heads * shape.n_q * shape.head_dim,
        shape.batch * shape.kv_heads * shape.n_k * shape.head_dim,
    )
    fitting = [words for words in sizes if math.ceil(words / each) == call.grid]
    words = fitting[0] if fitting else call.grid * each
    notes = () if fitting else ("what it copies is not known; its grid says how much at most",)
    size = {"tensor": words * shape.item_bytes}
    return stream(size, size, notes)
