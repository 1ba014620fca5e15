"""Run a schedule's kernels on the emulator: results and byte counts without a GPU."""

import datetime
import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iosim.gpu.emulator import Lanes, Memory
from iosim.gpu.plan import Layout, launches, workspace
from iosim.gpu.profiled import random_arrays
from iosim.measured import Recording, Row
from iosim.precision import precision
from iosim.schedule.tree import Schedule

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Emulation:
    """What the kernels wrote, by name, and the bytes that they read and wrote of each array."""

    arrays: dict[str, Array]
    read_bytes: dict[str, int]
    write_bytes: dict[str, int]

    @property
    def O(self) -> Array:
        """The attention output (batch, heads, n_q, d)."""
        return self.arrays["O"]


def emulate(
    schedule: Schedule, q: Array, k: Array, v: Array, *, scale: float | None = None, **tuned: Any
) -> Emulation:
    """Run a schedule's kernels on q (batch, heads, n_q, d), k and v (batch, kv_heads, n_k, d).

    The arrays are C-contiguous and of the shape's dtype. Outputs start as NaN. Raises IosimError as
    `launches` does, and for an access outside an array.
    """
    memory = Memory()
    layout = Layout.contiguous(schedule.shape)
    if tuned.pop("unaligned", False):
        layout = Layout(layout.strides, aligned=False)
    arrays: dict[str, Array] = {}
    addresses = {
        name: memory.add(name, array) for name, array in zip("QKV", (q, k, v), strict=True)
    }
    for name, (shape, dtype) in workspace(schedule).items():
        arrays[name] = np.full(shape, np.nan, precision(dtype).storage)
        addresses[name] = memory.add(name, arrays[name])
    for launch in launches(schedule, layout, scale, tuned=tuned or None):
        lanes = Lanes(memory, launch.variant.threads, launch.variant.shared_bytes)
        kernel = launch.factory(lanes, launch.variant)
        given = tuple(addresses[name] for name in launch.buffers)
        lanes.run(kernel, launch.grid, (*given, *launch.numbers))
    return Emulation(arrays, memory.read, memory.written)


def recording(schedules: Sequence[Schedule], seed: int = 0, **tuned: Any) -> Recording:
    """Run schedules on the emulator and return the bytes as a recording, without times."""
    rows = []
    for schedule in schedules:
        done = emulate(schedule, *random_arrays(schedule.shape, seed), **tuned)
        rows.append(
            Row(
                schedule=schedule.name,
                shape=schedule.shape,
                tiles=dict(schedule.tiles),
                sm_read_bytes=sum(done.read_bytes.values()),
                sm_write_bytes=sum(done.write_bytes.values()),
            )
        )
    return Recording(
        device="emulator",
        driver="none",
        date=datetime.date.today().isoformat(),
        versions={"iosim": importlib.metadata.version("iosim")},
        counters={},
        rows=tuple(rows),
    )
