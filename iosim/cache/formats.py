"""Trace files in several formats, read as streams of blocks."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iosim import units
from iosim.cache import parsing
from iosim.cache.opening import CHUNK, chunks
from iosim.cache.stream import BLOCK, Block, to_lines
from iosim.errors import IosimError


@dataclass(frozen=True)
class Format:
    """A text format: `parse` fills arrays from whole lines, `row` says what a line has to be."""

    name: str
    parse: Callable[..., tuple[int, int]]
    row: str
    has_header: bool = False


FORMATS = {
    form.name: form
    for form in (
        Format("ids", parsing.parse_ids, "a number, decimal or 0x hexadecimal"),
        Format("din", parsing.parse_din, "a label 0, 1 or 2 and a hexadecimal address"),
        Format("lackey", parsing.parse_lackey, "I, L, S or M and then address,size"),
        Format("csv", parsing.parse_csv, "what the header says: an address, a size, an op", True),
    )
}
#: Names that a header may use for the columns that matter.
COLUMNS = (
    ("address", "addr", "line", "id", "obj_id", "object", "key", "lba"),
    ("size", "bytes", "length"),
    ("op", "operation", "kind", "type", "access", "rw", "write"),
)
#: Characters of a malformed line that a message quotes at most.
SHOWN = 80

SUFFIXES = {".din": "din", ".csv": "csv", ".lackey": "lackey"}


@dataclass(frozen=True, eq=False)
class OpenTrace:
    """A trace file whose format is known: its text, from the beginning, can be read once."""

    name: str
    form: str
    pieces: Iterator[bytes]


def open_trace(path: str | Path, form: str | None = None) -> OpenTrace:
    """Open a trace file; '-' is standard input.  Gzip and zstd are recognised.

    `form` is ids, din, lackey or csv; without it the suffix and the first line decide.  Raises
    IosimError for another format and for a file that cannot be read.
    """
    if form is not None and form not in FORMATS:
        raise IosimError(units.unknown("trace format", form, FORMATS))
    pieces = chunks(path)
    text = next(pieces, b"")
    while form is None:
        more = next(pieces, b"")
        form = _sniffed(path, text if more else text + b"\n")
        if not more:
            form = form or "ids"  # nothing but comments: an empty trace in any format
        text += more
    name = "standard input" if str(path) == "-" else str(path)
    return OpenTrace(name, form, chain([text], pieces))


def read_trace(
    source: str | Path | OpenTrace,
    form: str | None = None,
    line_bytes: int = 1,
    ignore_sizes: bool = False,
    instructions: bool = False,
) -> Iterator[Block]:
    """Stream a trace file as line numbers of `line_bytes` bytes.

    `source` and `form` are as in `open_trace`, or an open trace.  `ignore_sizes` counts every
    access in its first line only, and `instructions` counts instruction fetches as reads; both
    are off.  Raises IosimError for a file that cannot be read, for a malformed line (with file,
    line number and text) and for a trace without accesses.
    """
    opened = source if isinstance(source, OpenTrace) else open_trace(source, form)
    found = FORMATS[opened.form]
    name = opened.name
    accesses = 0
    number = 0  # lines read
    columns = np.array([0, -1, -1])
    for text in _whole_lines(opened.pieces, name):
        if number == 0 and found.has_header:
            header, _, text = text.partition(b"\n")
            columns = _columns(header, name)
            number = 1
        for addresses, sizes, writes in _parsed(text, found, columns, instructions, name, number):
            accesses += addresses.size
            yield to_lines(
                addresses,
                None if ignore_sizes else sizes,
                writes if writes.any() else None,
                line_bytes,
            )
        number += text.count(b"\n")
    if accesses == 0:
        raise IosimError(f"trace '{name}' is empty; give a trace of at least one access")


Arrays = tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.uint8]]


def _parsed(
    text: bytes, form: Format, columns: Any, instructions: bool, name: str, number: int
) -> Iterator[Arrays]:
    """Parse whole lines into arrays of at most a block."""
    most = 2 * (text.count(b"\n") + 1)  # an M of lackey is two accesses
    addresses = np.zeros(most, dtype=np.uint64)
    sizes = np.zeros(most, dtype=np.int64)
    writes = np.zeros(most, dtype=np.uint8)
    count, bad = form.parse(
        np.frombuffer(text, dtype=np.uint8), columns, instructions, addresses, sizes, writes
    )
    for start in range(0, count, BLOCK):
        part = slice(start, min(start + BLOCK, count))
        yield addresses[part], sizes[part], writes[part]
    if bad >= 0:
        number += text.count(b"\n", 0, bad) + 1
        raise _malformed(name, number, text[bad : text.index(b"\n", bad)], form.row)


def _malformed(name: str, number: int, line: bytes, row: str) -> IosimError:
    shown = repr(line.strip()[:SHOWN])[1:]  # escaped: the line may be of a binary file
    shown = shown if len(shown) <= SHOWN else shown[: SHOWN - 4] + "..." + shown[0]
    return IosimError(f"trace '{name}', line {number}: {shown} is malformed; it should be {row}")


def _whole_lines(pieces: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Cut chunks at the ends of lines; the last line gets a newline if it has none."""
    rest = b""
    for piece in pieces:
        head, newline, tail = piece.rpartition(b"\n")
        if newline:
            yield rest + head + newline
            rest = tail
        else:
            rest += piece
        if len(rest) > CHUNK:
            raise IosimError(
                f"trace '{name}' has a line of more than {CHUNK} bytes; give a text file"
            )
    if rest:
        yield rest + b"\n"


def _sniffed(path: str | Path, text: bytes) -> str | None:
    """Tell the format from the suffix, or else from the first whole line that says something."""
    for suffix in reversed(Path(path).suffixes):
        if suffix in SUFFIXES:
            return SUFFIXES[suffix]
    for line in text.split(b"\n")[:-1]:
        words = line.split()
        if not words or words[0].startswith((b"#", b"==")):
            continue
        if b"," in line:
            return "lackey" if words[0] in (b"I", b"L", b"S", b"M") else "csv"
        if len(words) == 1:
            return "ids"
        return "lackey" if words[0].isalpha() else "din"
    return None


def _columns(header: bytes, name: str) -> NDArray[np.int64]:
    """Places of address, size and op in a header."""
    names = [field.strip().lower() for field in header.decode("utf-8", "replace").split(",")]
    places = [next((names.index(word) for word in words if word in names), -1) for words in COLUMNS]
    if places[0] < 0:
        shown = ",".join(names)[:80]
        raise IosimError(
            f"trace '{name}', line 1: '{shown}' names no column 'address'; the first line of a "
            "CSV trace names its columns: address and, if there are any, size and op"
        )
    return np.array(places)
