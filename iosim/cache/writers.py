"""Write a stream as a trace file that other tools read."""

import contextlib
import gzip
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from iosim import units
from iosim.cache.stream import Block, Stream
from iosim.errors import IosimError
from iosim.output import replacing

Rows = Callable[[Block, int], Iterator[str]]


def _addresses(block: Block, line_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield (address in bytes, 1 for a write) of each access."""
    writes = [0] * block.lines.size if block.writes is None else block.writes.tolist()
    for line, write in zip(block.lines.tolist(), writes, strict=True):
        yield (line % 2**64) * line_bytes, write


def _ids(block: Block, _line_bytes: int) -> Iterator[str]:
    return (f"{line % 2**64}\n" for line in block.lines.tolist())


def _din(block: Block, line_bytes: int) -> Iterator[str]:
    return (f"{write} {address:x}\n" for address, write in _addresses(block, line_bytes))


def _lackey(block: Block, line_bytes: int) -> Iterator[str]:
    return (
        f" {'LS'[write]} {address:08x},{line_bytes}\n"
        for address, write in _addresses(block, line_bytes)
    )


def _csv(block: Block, line_bytes: int) -> Iterator[str]:
    return (
        f"{address},{line_bytes},{'rw'[write]}\n"
        for address, write in _addresses(block, line_bytes)
    )


#: The rows of each format, and what stands before them.
WRITERS: dict[str, tuple[Rows, str]] = {
    "ids": (_ids, ""),
    "din": (_din, ""),
    "lackey": (_lackey, ""),
    "csv": (_csv, "address,size,op\n"),
}


def write_trace(path: str | Path, stream: Stream, form: str = "lackey", line_bytes: int = 1) -> int:
    """Write every access of `stream` and return how many there were.

    `form` is ids (line numbers; it cannot tell writes), din, lackey or csv (byte addresses of
    whole lines of `line_bytes` bytes).  A path that ends in .gz or .zst is compressed.  The file
    is there whole or not at all.  Raises IosimError for another format and for a path that
    cannot be written.
    """
    if form not in WRITERS:
        raise IosimError(units.unknown("trace format", form, WRITERS))
    rows, header = WRITERS[form]
    accesses = 0
    with replacing(path, "--export") as beside, _packed(beside) as file:
        file.write(header.encode())
        for block in stream:
            file.write("".join(rows(block, line_bytes)).encode())
            accesses += block.lines.size
    return accesses


@contextlib.contextmanager
def _packed(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing through the compressor that its suffix names."""
    with path.open("wb") as raw:
        if path.suffix == ".gz":
            with gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0) as file:
                yield cast(BinaryIO, file)
        elif path.suffix == ".zst":
            with _zstd_writer(raw) as file:
                yield file
        else:
            yield raw


def _zstd_writer(raw: Any) -> Any:
    try:
        import zstandard
    except ImportError:
        raise IosimError(
            "writing a trace as .zst needs a package that is not installed; "
            "run: pip install 'iosim[zstd]'"
        ) from None
    return zstandard.ZstdCompressor(write_checksum=True).stream_writer(raw, closefd=False)
