"""The counters that an audit looks at: what a page of ncu or a recording holds of them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from iosim.audit.ncu_csv import ProfiledKernel
from iosim.device.case import KernelCall
from iosim.device.moves import SECTOR
from iosim.errors import IosimError
from iosim.measured import Row

# What ncu calls each, and how many bytes one of it is.
METRICS: Mapping[str, tuple[str, int]] = {
    "sm_fill": ("l1tex__m_xbar2l1tex_read_bytes.sum", 1),
    "sm_drain": ("l1tex__m_l1tex2xbar_write_bytes.sum", 1),
    "l2_tex_read": ("lts__t_sectors_srcunit_tex_op_read.sum", SECTOR),
    "l2_tex_write": ("lts__t_sectors_srcunit_tex_op_write.sum", SECTOR),
    "l2_tex_red": ("lts__t_sectors_srcunit_tex_op_red.sum", SECTOR),
    "dram_read": ("dram__bytes_read.sum", 1),
    "dram_write": ("dram__bytes_write.sum", 1),
    "local_store": ("l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum", SECTOR),
    "local_load": ("l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum", SECTOR),
}
# What a row of `iosim gpu measure` calls those that it has.
ROW = {
    "sm_fill": "sm_read_bytes",
    "sm_drain": "sm_write_bytes",
    "l2_tex_read": "l2_read_bytes",
    "l2_tex_write": "l2_write_bytes",
    "dram_read": "hbm_read_bytes",
    "dram_write": "hbm_write_bytes",
}
TIME = "gpu__time_duration.sum"
REGISTERS = "launch__registers_per_thread"
SHARED = ("launch__shared_mem_per_block", "launch__shared_mem_per_block_allocated")
ALL_METRICS = (*(metric for metric, _ in METRICS.values()), TIME, REGISTERS, *SHARED[:1])


@dataclass(frozen=True)
class Counters:
    """Bytes that counters saw for one kernel, by level, and its time; None for what is missing.

    `sm_fill` and `sm_drain` are between L2 and the SMs, `l2_tex_*` are the SMs' lookups in L2
    (`red` are additions), `dram_*` between HBM and L2.

    `local_store` and `local_load` are registers that did not fit and were stored and read back,
    as L1 sees them.
    """

    sm_fill: int | None = None
    sm_drain: int | None = None
    l2_tex_read: int | None = None
    l2_tex_write: int | None = None
    l2_tex_red: int | None = None
    dram_read: int | None = None
    dram_write: int | None = None
    local_store: int | None = None
    local_load: int | None = None
    seconds: float | None = None

    @property
    def missing(self) -> tuple[str, ...]:
        """The names of the counters that are not there."""
        return tuple(name for name in METRICS if getattr(self, name) is None)

    def to_dict(self) -> dict[str, Any]:
        """Return the bytes by counter, and the time."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


def counters_of_page(kernel: ProfiledKernel) -> Counters:
    """Return the counters of a row of ncu's CSV.

    Raises IosimError for a cell that is no number or has a unit of another kind.
    """
    found: dict[str, Any] = {}
    for name, (metric, size) in METRICS.items():
        unit = "byte" if size == 1 else "sector"
        value = _base(kernel, metric, unit)
        found[name] = None if value is None else round(value * size)
    return Counters(**found, seconds=_base(kernel, TIME, "second"))


def _base(kernel: ProfiledKernel, metric: str, unit: str) -> float | None:
    """Return a metric in the base unit `unit`; IosimError for another unit or no such count."""
    value = kernel.quantity(metric)
    if value is None:
        return None
    what = f"{metric} of kernel '{kernel.name[:60]}'"
    if value.unit not in (unit, ""):
        raise IosimError(f"{what} is in {value.unit}s, not in {unit}s")
    text, printed = kernel.cells[metric]
    if unit != "second" and printed in (unit, "") and value.number % 1:
        raise IosimError(
            f"{what} is {text}, which counts no {unit}s; if points part its thousands, profile "
            "again with LC_ALL=C"
        )
    return value.number


def call_of_page(kernel: ProfiledKernel) -> KernelCall:
    """Return the launch of a row of ncu's CSV.

    Raises IosimError where the row does not say how many blocks of how many threads ran.
    """
    sizes = []
    for what, given in (("grid", kernel.grid), ("block", kernel.block)):
        counted = kernel.quantity(f"launch__{what}_size")
        if given is not None:
            sizes.append(given[0] * given[1] * given[2])
        elif counted is not None:
            sizes.append(round(counted.number))
        else:
            raise IosimError(f"kernel '{kernel.name[:60]}' has no {what} size in the CSV")
        if sizes[-1] < 1:
            raise IosimError(f"kernel '{kernel.name[:60]}' has a {what} of size {sizes[-1]}")
    registers = kernel.quantity(REGISTERS)
    shared = next((q for name in SHARED if (q := kernel.quantity(name)) is not None), None)
    return KernelCall(
        name=kernel.name,
        grid=sizes[0],
        block=sizes[1],
        registers=None if registers is None else round(registers.number) or None,
        shared_bytes=None if shared is None else round(shared.number),
        dims=kernel.grid,
    )


def counters_of_record(record: Mapping[str, Any]) -> Counters:
    """Return the counters of a kernel in a recording of attention calls: its bytes and `time_ns`.

    Raises IosimError for bytes that are no whole number, and a time that is no number.
    """
    time = _stated("time_ns", record.get("time_ns"), whole=False)
    return Counters(
        **{name: _stated(name, record.get(name)) for name in METRICS},
        seconds=None if time is None else time * 1e-9,
    )


def counters_of_row(row: Row) -> Counters:
    """Return the counters of a row that `iosim gpu measure` recorded.

    Raises IosimError for bytes that are no whole number, and a time that is no number.
    """
    bytes_ = {name: _stated(key, getattr(row, key)) for name, key in ROW.items()}
    return Counters(**bytes_, seconds=_stated("seconds", row.seconds, whole=False))


def _stated(name: str, value: Any, *, whole: bool = True) -> Any:
    """Return a number of a recording, None for what was not measured."""
    if value is None:
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value < math.inf or (whole and value % 1):
        what = "whole number" if whole else "number"
        raise IosimError(f"{name} is {value!r} in the recording; it must be a {what} from 0 on")
    return int(value) if whole else value
