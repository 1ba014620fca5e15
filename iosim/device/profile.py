"""Profiles of devices: the L2 behind the SMs and how blocks run, each number with its source."""

import functools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources

from iosim.errors import IosimError
from iosim.machine import Machine, machine


@dataclass(frozen=True)
class Profile:
    """What the L2 model has to know of a device beyond `Machine`.

    `sm_bytes_per_second` is the most that L2 was seen to deliver to all SMs.
    `l2_partitions` hold `l2_bytes` together, with `l2_ways` lines of `line_bytes` a set. An SM has
    room for `threads_per_sm` threads in at most `blocks_per_sm` blocks, and gives each warp
    registers in multiples of `register_unit`.
    `side_runs` are the SMs that read through one partition after another, in the order that blocks
    come to them.
    `fitted` are the parameters that no document states, with `fit` saying how they were found.
    `sources` maps every other field to what states it.
    """

    machine: Machine
    sm_bytes_per_second: float
    l2_partitions: int
    l2_ways: int
    line_bytes: int
    threads_per_sm: int
    blocks_per_sm: int
    register_unit: int
    side_runs: tuple[int, ...]
    fitted: Mapping[str, float] = field(hash=False)
    fit: Mapping[str, str] = field(hash=False, repr=False)
    sources: Mapping[str, str] = field(hash=False, repr=False)

    def blocks_at_once(self, threads: int, registers: int, shared_bytes: int) -> int:
        """Return how many blocks of threads one SM has room for.

        `registers` are those of one thread, `shared_bytes` the shared memory of a block as the
        profiler reports it, with the KiB that the system takes. Raises IosimError for a block that
        fits in no SM.

        >>> profile("H200").blocks_at_once(128, 255, 66560)
        2
        """
        warps = math.ceil(threads / 32)
        unit = self.register_unit
        per_warp = math.ceil(registers * 32 / unit) * unit
        room = min(
            self.blocks_per_sm,
            self.threads_per_sm // (32 * warps),
            self.machine.registers_per_sm // (per_warp * warps),
            self.machine.shared_bytes_per_sm // max(1, shared_bytes),
        )
        if room < 1:
            raise IosimError(
                f"a block of {threads} threads with {registers} registers each and {shared_bytes} "
                f"bytes of shared memory does not fit in an SM of {self.machine.name}"
            )
        return room


@functools.cache
def _profiles() -> dict[str, Profile]:
    text = resources.files("iosim.data").joinpath("devices.json").read_text(encoding="utf-8")
    entries = json.loads(text)["devices"]
    return {
        entry["machine"]: Profile(**{**entry, "machine": machine(entry["machine"])})
        for entry in entries
    }


def profile_names() -> list[str]:
    """Return the names of the devices whose L2 is described.

    >>> profile_names()
    ['H200']
    """
    return list(_profiles())


def profile(name: str) -> Profile:
    """Return the profile of the device called `name`; spelled as for `machine`.

    Raises IosimError for a device that is not known, or whose L2 is not described.

    >>> profile("h200").l2_partitions
    2
    """
    known = machine(name).name
    if known not in _profiles():
        have = ", ".join(profile_names())
        raise IosimError(f"the L2 of {known} is not described; there are profiles of {have}")
    return _profiles()[known]
