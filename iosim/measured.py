"""Measurements of real hardware as data: a recording, its checks, the fitted law and the figure.

A recording is a JSON file of `iosim gpu measure`: bytes that hardware counters saw between the
levels of a GPU, beside the schedule that ran. Nothing here needs a GPU.
"""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from iosim.errors import IosimError
from iosim.reading.count import count
from iosim.reading.traffic import Traffic
from iosim.schedule.registry import family
from iosim.schedule.tree import Schedule
from iosim.shape import AttentionShape

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SCHEMA = 1
OURS = "h200_sweep.json"

# How far the bytes between L2 and the multiprocessors may be from the count, as a share of it.
# Asynchronous copies bypass L1, so that flash2 reads exactly what its schedule says. The other
# kernels also use plain loads, whose 32-byte sectors may hold words that nobody asked for.
AGREEMENT = {"flash2": 1e-5, "flash1": 1e-2, "standard_tiled": 1e-2}


@dataclass(frozen=True)
class Row:
    """One schedule on one device: the bytes that counters saw, None where one was not read.

    `sm` is between L2 and the multiprocessors, `l2` at L2's lookups, `hbm` between L2 and memory;
    `spill_bytes` are stores and loads of registers that did not fit. `allocated_bytes` are the
    shared memory and registers that a block really has; `seconds` one run, caches cold.
    """

    schedule: str
    shape: AttentionShape
    tiles: dict[str, int]
    sm_read_bytes: int | None = None
    sm_write_bytes: int | None = None
    copy_bytes: int | None = None
    l2_read_bytes: int | None = None
    l2_write_bytes: int | None = None
    hbm_read_bytes: int | None = None
    hbm_write_bytes: int | None = None
    spill_bytes: int | None = None
    seconds: float | None = None
    allocated_bytes: int | None = None
    kernels: tuple[dict[str, Any], ...] = ()

    def build(self) -> Schedule:
        """Return the schedule that ran."""
        return family(self.schedule).build(self.shape, **self.tiles)

    def counted(self) -> Traffic:
        """Return what the schedule moves by `count`, afresh and not as the file says."""
        return count(self.build())

    @property
    def memory_words(self) -> int:
        """M, the words that the tiles hold: 2 B_r d (Q and O), for flash1 2 B_c d (K and V)."""
        rows = self.tiles["bc" if self.schedule == "flash1" else "br"]
        return 2 * rows * self.shape.head_dim

    def to_dict(self) -> dict[str, Any]:
        """Return the record of a JSON file: units in the names, plain numbers."""
        counted = self.counted()
        return {
            "schedule": self.schedule,
            **self.shape.to_dict(ROW_SHAPE),
            **self.tiles,
            "memory_words": self.memory_words,
            "allocated_bytes": self.allocated_bytes,
            "counted_read_bytes": counted.read_bytes,
            "counted_write_bytes": counted.write_bytes,
            **{name: getattr(self, name) for name in MEASURED},
            "kernels": list(self.kernels),
        }


MEASURED = (
    "sm_read_bytes",
    "sm_write_bytes",
    "copy_bytes",
    "l2_read_bytes",
    "l2_write_bytes",
    "hbm_read_bytes",
    "hbm_write_bytes",
    "spill_bytes",
    "seconds",
)
ROW_SHAPE = ("n_q", "n_k", "head_dim", "batch", "heads", "kv_heads", "causal", "align", "dtype")


@dataclass(frozen=True)
class Recording:
    """Rows measured on one device on one day, with what is needed to judge them."""

    device: str
    driver: str
    date: str
    versions: dict[str, str]
    counters: dict[str, str]
    rows: tuple[Row, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON document."""
        return {
            "schema": SCHEMA,
            "device": self.device,
            "driver": self.driver,
            "date": self.date,
            "versions": self.versions,
            "counters": self.counters,
            "records": [row.to_dict() for row in self.rows],
        }


def load(path: str | Path | None = None) -> Recording:
    """Read a recording; None is the sweep on an H200 that comes with iosim.

    Raises IosimError for a file that cannot be read, is no recording or has another schema.
    """
    source = files("iosim.recordings") / OURS if path is None else Path(path)
    try:
        document = json.loads(source.read_text(encoding="utf-8"))
    except OSError as error:
        raise IosimError(f"'{path}' cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise IosimError(f"'{path}' is not JSON ({error})") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise IosimError(f"'{path}' is no recording of schema {SCHEMA}; write one with gpu measure")
    try:
        return Recording(
            rows=tuple(_row(record) for record in document["records"]),
            **{key: document[key] for key in ("device", "driver", "date", "versions", "counters")},
        )
    except (KeyError, TypeError) as error:
        raise IosimError(f"'{path}' is no recording: {error} is missing or wrong") from error


def _row(record: dict[str, Any]) -> Row:
    return Row(
        schedule=record["schedule"],
        shape=AttentionShape(**{key: record[key] for key in ROW_SHAPE}),
        tiles={key: record[key] for key in ("br", "bc")},
        allocated_bytes=record["allocated_bytes"],
        kernels=tuple(record["kernels"]),
        **{key: record[key] for key in MEASURED},
    )


@dataclass(frozen=True)
class Statement:
    """One statement about the `subject` of a recording, whether it holds, and the numbers."""

    subject: str
    text: str
    holds: bool
    detail: str


def statements(recording: Recording) -> list[Statement]:
    """Return what a recording is held to: bytes against `count`, spills, the fitted exponents."""
    found: list[Statement] = []
    for name, tolerance in AGREEMENT.items():
        rows = [row for row in recording.rows if row.schedule == name]
        for what in ("read", "write"):
            measured = [row for row in rows if getattr(row, f"sm_{what}_bytes") is not None]
            if not measured:
                continue
            worst, where = max(
                ((abs(difference(row, what)), row) for row in measured), key=lambda pair: pair[0]
            )
            found.append(
                Statement(
                    name,
                    f"L2-to-SM bytes {what} equal the count within {tolerance:g}",
                    worst <= tolerance,
                    f"{len(measured)} rows, worst {worst:.1e} ({_label(where)})",
                )
            )
    copied = [row for row in recording.rows if row.schedule == "flash2" and row.copy_bytes]
    for whole, tolerance, text in (
        (True, 0.0, "exactly"),
        (False, 1e-4, "within 1e-4, where some threads of a block copy nothing"),
    ):
        rows = [row for row in copied if _whole_rounds(row) == whole]
        if rows:
            worst, where = max(
                ((abs((row.copy_bytes or 0) / row.counted().read_bytes - 1), row) for row in rows),
                key=lambda pair: pair[0],
            )
            found.append(
                Statement(
                    "flash2",
                    f"bytes of asynchronous copies equal the count {text}",
                    worst <= tolerance,
                    f"{len(rows)} rows, worst {worst:.1e} ({_label(where)})",
                )
            )
    spilled = [row for row in recording.rows if row.spill_bytes]
    known = [row for row in recording.rows if row.spill_bytes is not None]
    if known:
        found.append(
            Statement(
                "all schedules",
                "no registers are spilled",
                not spilled,
                f"{len(known)} rows, {len(spilled)} spill"
                + "".join(f" ({_label(row)})" for row in spilled[:1]),
            )
        )
    law = [row for row in recording.rows if in_law(row)]
    if len(law) >= 4:
        fitted = fit(law)
        apart = [
            abs(one - other)
            for one, other in zip((fitted.n, fitted.d, fitted.memory), (2, 2, -1), strict=True)
        ]
        found.append(
            Statement(
                "flash2, N >= 8k",
                "bytes = C N^2 d^2 / M, exponents within 0.02",
                max(apart) <= 0.02,
                f"{len(law)} rows, {fitted}",
            )
        )
    return found


def _whole_rounds(row: Row) -> bool:
    """Return whether B_r fills the warps, and their threads are a power of two.

    Where they are not, the counter that is attributed to the copy instruction misses a few warps'
    copies now and then, while the bytes that arrive stay exact (measured).
    """
    (kernel,) = row.kernels
    threads: int = kernel["threads"]
    rows: int = threads // 32 * 16 * kernel["m_tiles"]
    return row.tiles["br"] == rows and threads & (threads - 1) == 0


def difference(row: Row, what: str) -> float:
    """Return (measured - counted) / counted for the L2-to-SM bytes 'read' or 'write'."""
    counted: int = getattr(row.counted(), f"{what}_bytes")
    return float((getattr(row, f"sm_{what}_bytes") - counted) / counted)


def in_law(row: Row) -> bool:
    """Return whether the theorem's law should fit a row: flash2, no mask, N >= 8k, 16 bits."""
    shape = row.shape
    return (
        row.schedule == "flash2"
        and not shape.causal
        and shape.n_q == shape.n_k >= 8192
        and shape.item_bytes == 2
        and row.sm_read_bytes is not None
    )


@dataclass(frozen=True)
class Law:
    """bytes = C N^n d^d M^memory for one head, M in words, and the largest relative residual."""

    constant: float
    n: float
    d: float
    memory: float
    residual: float

    def __str__(self) -> str:
        """Return the law as a formula."""
        return (
            f"bytes = {self.constant:.3g} N^{self.n:.4f} d^{self.d:.4f} M^{self.memory:.4f}, "
            f"residual at most {self.residual:.1%}"
        )


def fit(rows: Sequence[Row]) -> Law:
    """Fit bytes read between L2 and SM, a head, to C N^a d^b M^g by least squares of logarithms.

    Raises IosimError where the rows do not determine the exponents.
    """
    table = np.array(
        [[1.0, *np.log([row.shape.n_q, row.shape.head_dim, row.memory_words])] for row in rows]
    )
    if len(rows) < 4 or np.linalg.matrix_rank(table) < 4:
        raise IosimError("a fit needs rows with several lengths, head dimensions and tile sizes")
    values = np.log([(row.sm_read_bytes or math.nan) / _heads(row) for row in rows])
    solved = np.linalg.lstsq(table, values, rcond=None)[0]
    residual = float(np.abs(np.expm1(values - table @ solved)).max())
    c, n, d, memory = (float(x) for x in solved)
    return Law(math.exp(c), n, d, memory, residual)


def _heads(row: Row) -> int:
    return row.shape.batch * row.shape.heads


def _label(row: Row) -> str:
    shape = row.shape
    causal = " causal" if shape.causal else ""
    return (
        f"N {shape.n_q}, d {shape.head_dim}, {shape.dtype}{causal}, "
        f"{row.tiles['br']} x {row.tiles['bc']}"
    )


def draw(rows: Iterable[Row], ax: "Axes") -> None:
    """Draw simulated against measured L2-to-SM bytes, one mark for each row, on `ax`."""
    by_schedule: dict[str, list[tuple[int, int]]] = {}
    for row in rows:
        if row.sm_read_bytes is not None and row.sm_write_bytes is not None:
            by_schedule.setdefault(row.schedule, []).append(
                (row.counted().total_bytes, row.sm_read_bytes + row.sm_write_bytes)
            )
    if not by_schedule:
        raise IosimError("the recording has no bytes between L2 and the multiprocessors")
    everything = [x for pairs in by_schedule.values() for pair in pairs for x in pair]
    ends = [min(everything), max(everything)]
    ax.plot(ends, ends, color="0.6", linewidth=1, label="equal")
    for (name, pairs), marker in zip(sorted(by_schedule.items()), "osd^v", strict=False):
        ax.plot(
            [x for x, _ in pairs], [y for _, y in pairs], marker, markersize=4,
            markerfacecolor="none", label=name,
        )  # fmt: skip
    ax.set(
        xscale="log",
        yscale="log",
        xlabel="simulated bytes between L2 and SM",
        ylabel="measured bytes between L2 and SM",
    )
    ax.legend()
