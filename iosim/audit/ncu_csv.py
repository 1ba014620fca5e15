"""Nsight Compute's CSV pages: kernels with their metrics, in base units whatever was printed.

Two pages are read. The raw page has a column for each metric and a row of units under the header;
the details page has a row for each metric with a unit of its own. Numbers may have commas between
thousands. What a program printed may stand before and between the lines, several pages may follow
one another, and the last line may have been cut.
"""

import csv
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from iosim.errors import IosimError

FIRST = "Kernel Name"
_PREFIXES = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_SMALL = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0}
_SECONDS = re.compile(r"(n|u|m|)(?:s|sec|second)s?")
_COUNTED = re.compile(r"(K|M|G|T|P|)(byte|sector|inst|thread|register|block|request|cycle|warp)s?")
_NUMBER = re.compile(r"[+-]?(?:\d+(?:,\d{3})*|\d+)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_DIMENSIONS = re.compile(r"\(?\s*(\d+)\s*[,x ]\s*(\d+)\s*[,x ]\s*(\d+)\s*\)?")
NOTHING = ("", "n/a", "nan", "N/A")


class Quantity(NamedTuple):
    """A number in its base unit: bytes, seconds, or things counted."""

    number: float
    unit: str


@dataclass(frozen=True)
class ProfiledKernel:
    """One row of a page: the kernel's name, its grid and block, and what stood in its columns.

    `cells` maps a metric to its text and unit, as printed.
    """

    name: str
    grid: tuple[int, int, int] | None
    block: tuple[int, int, int] | None
    capability: str | None
    cells: dict[str, tuple[str, str]] = field(hash=False)

    def quantity(self, metric: str) -> Quantity | None:
        """Return a metric in its base unit, None where it was not measured.

        Raises IosimError, naming the metric, for what is no number or has an unknown unit.
        """
        text, unit = self.cells.get(metric, ("", ""))
        if text.strip() in NOTHING:
            return None
        try:
            return quantity(text, unit)
        except IosimError as error:
            raise IosimError(f"{metric} of kernel '{self.name[:60]}': {error}") from error


def quantity(text: str, unit: str) -> Quantity:
    """Return what a cell and its unit say, in the base unit.

    ncu's prefixes are powers of 1000. A unit "per block" or "per thread" counts the same things.
    Raises IosimError for text that is no number and for a unit that is not known.

    >>> quantity("1,024", "byte"), quantity("1.5", "Mbyte"), quantity("3", "usecond").unit
    (Quantity(number=1024.0, unit='byte'), Quantity(number=1500000.0, unit='byte'), 'second')
    """
    stated = text.strip()
    if not _NUMBER.fullmatch(stated):
        raise IosimError(f"'{text}' is not a number; a page of ncu has numbers such as 1,024.5")
    number = float(stated.replace(",", ""))
    if not 0 <= number < math.inf:
        raise IosimError(f"'{text}' is out of the range of any counter")
    name = unit.strip().partition("/")[0]
    if name in ("", "%"):
        return Quantity(number, name)
    seconds = _SECONDS.fullmatch(name)
    if seconds:
        return Quantity(number * _SMALL[seconds[1]], "second")
    counted = _COUNTED.fullmatch(name)
    if counted:
        return Quantity(number * _PREFIXES[counted[1]], counted[2])
    raise IosimError(f"unit '{unit}' is not known; profile with ncu --print-units base")


def read_page(text: str, where: str) -> list[ProfiledKernel]:
    """Return the kernels of a raw or details page, in the order in which they ran.

    Raises IosimError, naming `where`, for text without a header of ncu, and for a page on which no
    kernel stands.

    >>> page = '"ID","Kernel Name","dram__bytes_read.sum"\\n"","","Kbyte"\\n"0","k","2"\\n'
    >>> read_page(page, "here")[0].quantity("dram__bytes_read.sum").number
    2000.0
    """
    pages = list(_pages(text))
    if not pages:
        raise IosimError(
            f'{where} is no CSV of Nsight Compute: no line begins with "ID" and has a column '
            f'"{FIRST}"; write one with ncu --csv --page raw --print-units base'
        )
    found = []
    for header, rows in pages:
        read = _read_details if "Metric Name" in header else _read_raw
        found += read(header, rows)
    if not found:
        raise IosimError(f"{where} has no kernel in it: ncu profiled none")
    return found


def _pages(text: str) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Yield each header with the rows after it; other lines are a program's own.

    Each line is read by itself, so that a quote that somebody left open spoils no other line. A row
    that was cut off is filled up with empty cells, if it says which kernel it is about.
    """
    header: list[str] = []
    rows: list[list[str]] = []
    mark = ""
    for line in text.replace("\ufeff", "").split("\n"):
        row = _cells(line.strip())
        if row and row[0] == "ID" and FIRST in row:
            if header:
                yield header, rows
            header, rows, mark = row, [], line.strip()[0]
        elif not header or (mark == '"' and not line.lstrip().startswith('"')):
            continue
        elif len(row) == len(header):
            rows.append(row)
        elif header.index(FIRST) < len(row) < len(header) and row[0].isdigit():
            whole = row if line.rstrip().endswith('"') else row[:-1]
            rows.append([*whole, *[""] * (len(header) - len(whole))])
    if header:
        yield header, rows


def _cells(line: str) -> list[str]:
    """Return the cells of a line of CSV, none for a line that is none, without one left open."""
    try:
        row = next(csv.reader([line]), [])
    except csv.Error:
        return []
    return row[:-1] if line.count('"') % 2 else row


def _read_raw(header: list[str], rows: list[list[str]]) -> list[ProfiledKernel]:
    units = dict.fromkeys(header, "")
    if rows and not rows[0][header.index(FIRST)].strip():
        units = dict(zip(header, rows[0], strict=True))
        rows = rows[1:]
    return [
        _kernel(row, {name: (text, units[name]) for name, text in row.items()})
        for row in (dict(zip(header, row, strict=True)) for row in rows)
    ]


def _read_details(header: list[str], rows: list[list[str]]) -> list[ProfiledKernel]:
    """Gather the rows of one kernel: those of one ID, name and process."""
    gathered: dict[tuple[str, ...], tuple[dict[str, str], dict[str, tuple[str, str]]]] = {}
    for values in rows:
        row = dict(zip(header, values, strict=True))
        key = tuple(row.get(name, "") for name in ("Process ID", "ID", FIRST))
        _, cells = gathered.setdefault(key, (row, {}))
        if row["Metric Name"]:
            cells[row["Metric Name"]] = row.get("Metric Value", ""), row.get("Metric Unit", "")
    return [_kernel(row, cells) for row, cells in gathered.values()]


def _kernel(row: dict[str, str], cells: dict[str, tuple[str, str]]) -> ProfiledKernel:
    return ProfiledKernel(
        name=row[FIRST],
        grid=_dimensions(row.get("Grid Size", "")),
        block=_dimensions(row.get("Block Size", "")),
        capability=row.get("CC") or None,
        cells=cells,
    )


def _dimensions(text: str) -> tuple[int, int, int] | None:
    found = _DIMENSIONS.fullmatch(text.strip())
    return None if found is None else (int(found[1]), int(found[2]), int(found[3]))
