"""The bytes between HBM and L2 for a launch, from a simulation of its blocks and of L2."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from iosim.device.launch import Launch
from iosim.device.profile import Profile

if TYPE_CHECKING:
    from iosim.device.l2 import Cache, Grid, Pace

SAMPLE = 64  # one line of so many is followed, in one set of so many
STEP_ROWS = 128  # streamed rows from one event of a block to the next
SEED = 0


@dataclass(frozen=True)
class HbmTraffic:
    """Bytes of one launch on one device, caches cold at its start.

    `dram_read` and `dram_write_*` are between HBM and L2: writes are a range, as lines that are
    dirty at the end of a kernel are written by whoever comes next. `l2_read` is what the SMs load,
    before requests of several SMs for one line merge.
    """

    dram_read: int
    dram_write_min: int
    dram_write_max: int
    l2_read: int


def simulate(launch: Launch, profile: Profile, *, seed: int = SEED) -> HbmTraffic:
    """Return the bytes that HBM moves for `launch` on the device of `profile`.

    Deterministic for a `seed`. Reads are the compulsory ones, exactly, and what the sampled lines
    were read again. Writes are at least the results that are no longer in L2 at the end, and at
    most all that was stored, spilled registers too, with `write_slack_bytes` if the kernel reads
    more than L2 holds: so many bytes of others were seen to be written.
    """
    from iosim.device import l2

    cache, grid, pace, size = plan(launch, profile, seed=seed)
    tags = np.full((cache.parts, cache.sets, cache.ways), l2.EMPTY, dtype=np.int64)
    seen = np.zeros(size // cache.unit_bytes + 1, dtype=np.uint8)
    counts = np.zeros(l2.COUNTS, dtype=np.int64)
    l2.run(tags, seen, sides(profile, seed), cache, grid, pace, counts)
    read, written, looked, first = (
        int(counts[place]) * cache.unit_bytes
        for place in (l2.READ, l2.WRITTEN, l2.LOOKED, l2.FIRST)
    )
    dirty = int((tags & 1).sum()) * cache.unit_bytes
    dram_read = launch.compulsory_read_bytes + read - first
    results = launch.stored_bytes + launch.added_bytes
    others = dram_read > profile.machine.l2_bytes
    return HbmTraffic(
        dram_read=dram_read,
        dram_write_min=max(0, min(written, results - dirty)),
        dram_write_max=max(written + dirty, results)
        + (int(profile.fitted["write_slack_bytes"]) if others else 0),
        l2_read=looked,
    )


def sides(profile: Profile, seed: int) -> "np.ndarray[Any, np.dtype[np.int64]]":
    """Return the partition that each SM reads through, SMs in the order that blocks come to them.

    Blocks go to all SMs of one GPC (cluster of SMs) before the next, and each launch begins with
    another: `seed` says with which run of GPCs on one side.
    """
    runs = profile.side_runs
    found = np.repeat(np.arange(len(runs)) % profile.l2_partitions, runs)
    return np.roll(found, -sum(runs[: seed % len(runs)]))


def cache_of(profile: Profile, sample: int = SAMPLE) -> "Cache":
    """Return the L2 of a device as a sample of one line in `sample` sees it."""
    from iosim.device.l2 import Cache

    fitted, line = profile.fitted, profile.line_bytes
    usable = fitted["usable_share"] * profile.machine.l2_bytes
    lines = usable / (profile.l2_partitions * line * profile.l2_ways * sample)
    return Cache(
        parts=profile.l2_partitions,
        sets=max(1, round(lines)),
        ways=profile.l2_ways,
        unit_bytes=line * sample,
        page_units=max(1, int(fitted["page_bytes"]) // (line * sample)),
        stray=round(fitted["stray_share"] * (1 << 20)),
    )


def plan(
    launch: Launch, profile: Profile, *, sample: int = SAMPLE, seed: int = SEED
) -> "tuple[Cache, Grid, Pace, int]":
    """Return a launch on a device as the numbers that `l2.run` takes, and the bytes of addresses.

    Tensors lie one after another, each from a new page on.
    """
    from iosim.device.l2 import Grid, Pace

    fitted, machine, page = profile.fitted, profile.machine, int(profile.fitted["page_bytes"])
    slots = machine.sms * launch.blocks_per_sm
    if launch.persistent is not None:
        slots = min(slots, launch.persistent)
    slots = min(slots, launch.tiles)
    owners = launch.heads // launch.owner_group * launch.owner_rows
    streams = launch.heads // launch.stream_group * launch.stream_rows
    sizes = {
        "owner": owners * launch.owner_row_read_bytes,
        "output": launch.stored_bytes,
        "stream": streams * launch.stream_row_bytes // launch.stream_tensors,
        "add": launch.heads * launch.stream_rows * launch.stream_add_bytes,
        "step": slots * launch.step_store_bytes,
        "tile": slots * launch.tile_store_bytes,
    }
    pages = {name: math.ceil(size / page) * page for name, size in sizes.items()}
    starts, end = {}, 0
    for name, size in pages.items():
        starts[name] = end
        end += size * (launch.stream_tensors if name == "stream" else 1)
    grid = Grid(
        heads=launch.heads,
        tiles=launch.owner_tiles,
        owner_rows=launch.owner_rows,
        owner_block=launch.owner_block,
        owner_row_read=launch.owner_row_read_bytes,
        owner_row_write=launch.owner_row_write_bytes,
        owner_group=launch.owner_group,
        stream_rows=launch.stream_rows,
        step_rows=STEP_ROWS if launch.splits == 1 else launch.stream_block,
        stream_row=launch.stream_row_bytes,
        stream_tensors=launch.stream_tensors,
        stream_group=launch.stream_group,
        stream_add=launch.stream_add_bytes,
        step_store=launch.step_store_bytes,
        tile_store=launch.tile_store_bytes,
        tile_load=launch.tile_load_bytes,
        causal=launch.causal,
        offset=launch.causal_offset,
        owner_is_query=launch.owner_is_query,
        keys_descending=launch.stream_descending,
        static=launch.static,
        persistent=launch.persistent is not None,
        heads_first=launch.order == "heads-first",
        tiles_descending=launch.tiles_descending,
        splits=launch.splits,
        slots=slots,
        sms=machine.sms,
        per_sm=math.ceil(slots / machine.sms),
        at_owner=starts["owner"],
        at_output=starts["output"],
        at_stream=starts["stream"],
        stream_bytes=pages["stream"],
        at_add=starts["add"],
        at_step_store=starts["step"],
        at_tile_store=starts["tile"],
    )
    pace = Pace(
        alone=fitted["alone_time"] if launch.alone_time is None else launch.alone_time,
        younger=fitted["younger_time"] if launch.younger_time is None else launch.younger_time,
        start_rows=fitted["start_rows"],
        drift=fitted["drift_rows"] if launch.drift_rows is None else launch.drift_rows,
        seed=seed,
    )
    return cache_of(profile, sample), grid, pace, end
