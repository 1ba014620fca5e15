"""The bytes between HBM and L2 for a launch."""

from dataclasses import dataclass

from iosim.device.launch import Launch
from iosim.device.profile import Profile


@dataclass(frozen=True)
class HbmTraffic:
    """Bytes of one launch on one device, caches cold at its start.

    `dram_read` and `dram_write_*` are between HBM and L2: writes are a range, as lines that are
    dirty at the end of a kernel are written by whoever comes next. `l2_read` are the bytes of L2's
    lookups for reads after requests of several SMs for one line merged.
    """

    dram_read: int
    dram_write_min: int
    dram_write_max: int
    l2_read: int


def simulate(launch: Launch, profile: Profile) -> HbmTraffic:
    """Return the bytes that HBM moves for `launch` on the device of `profile`."""
    compulsory = launch.compulsory_read_bytes
    stored = launch.stored_bytes
    kept = profile.machine.l2_bytes
    return HbmTraffic(compulsory, max(0, stored - kept), stored, compulsory)
