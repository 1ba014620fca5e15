"""Open trace files: plain, gzip or zstd, told apart by their first bytes."""

import gzip
import io
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from iosim.errors import IosimError

GZIP = b"\x1f\x8b"
ZSTD = b"\x28\xb5\x2f\xfd"
#: Bytes of text handed on at a time.
CHUNK = 1 << 20


def chunks(path: str | Path) -> Iterator[bytes]:
    """Yield the decompressed bytes of a file ('-' is standard input) piece by piece.

    Raises IosimError, naming the file, when it cannot be read, is damaged or cut short.
    """
    name = "standard input" if str(path) == "-" else str(path)
    try:
        file = sys.stdin.buffer if str(path) == "-" else Path(path).open("rb")  # noqa: SIM115
    except OSError as error:
        raise IosimError(
            f"trace '{name}' cannot be read ({error.strerror}); give a file that can"
        ) from None
    try:
        yield from _guarded(cast(BinaryIO, file), name)
    finally:
        if str(path) != "-":
            file.close()


def _guarded(file: BinaryIO, name: str) -> Iterator[bytes]:
    try:
        yield from _decompressed(file, name)
    except EOFError:
        raise _cut_short(name) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise IosimError(f"trace '{name}' is damaged ({error}); give a whole gzip file") from None
    except OSError as error:
        raise IosimError(
            f"trace '{name}' cannot be read ({error.strerror or error}); give a file that can"
        ) from None


def _cut_short(name: str) -> IosimError:
    return IosimError(f"trace '{name}' ends before its compressed data does; give the whole file")


def _decompressed(file: BinaryIO, name: str) -> Iterator[bytes]:
    buffered = file if hasattr(file, "peek") else io.BufferedReader(cast(io.RawIOBase, file))
    start = cast(Any, buffered).peek(4)[:4]
    if start.startswith(GZIP):
        with gzip.GzipFile(fileobj=buffered) as text:
            yield from iter(lambda: text.read(CHUNK), b"")
    elif start == ZSTD:
        yield from _zstd(buffered, name)
    else:
        yield from iter(lambda: buffered.read(CHUNK), b"")


def _zstd(file: BinaryIO, name: str) -> Iterator[bytes]:
    """Decompress all frames of a zstd file."""
    try:
        import zstandard
    except ImportError:
        raise IosimError(
            f"trace '{name}' is compressed with zstd, which needs a package that is not "
            "installed; run: pip install 'iosim[zstd]'"
        ) from None
    decompressor = None
    try:
        for packed in iter(lambda: file.read(CHUNK), b""):
            rest = packed
            while rest:
                if decompressor is None:
                    decompressor = zstandard.ZstdDecompressor().decompressobj()
                text = decompressor.decompress(rest)
                rest = decompressor.unused_data if decompressor.eof else b""
                if decompressor.eof:
                    decompressor = None
                if text:
                    yield text
    except zstandard.ZstdError as error:
        raise IosimError(f"trace '{name}' is damaged ({error}); give a whole zstd file") from None
    if decompressor is not None:
        raise _cut_short(name)
