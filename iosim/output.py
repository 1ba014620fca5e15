"""Results on their way out: records as a table, JSON or CSV, and files that are whole or absent."""

import contextlib
import csv
import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from iosim import units
from iosim.errors import IosimError

SCHEMA = 1
"""The number of the JSON form: it grows when a key changes its meaning or goes."""

Record = Mapping[str, object]


def render(records: Sequence[Record], form: str, columns: Sequence[str] | None = None) -> str:
    """Return `records` as text in the form 'table', 'json' or 'csv'.

    `columns` chooses and orders the keys of a table; JSON and CSV always hold everything. Raises
    `IosimError` for another form.

    >>> print(render([{"n_q": 8192, "read_words": 272629760}], "table"), end="")
      n_q  read (words)
    8 192   272 629 760
    """
    forms: dict[str, Callable[[], str]] = {
        "table": lambda: table(records, columns),
        "json": lambda: to_json(records),
        "csv": lambda: to_csv(records),
    }
    if form not in forms:
        raise IosimError(units.unknown("--format", form, forms))
    return forms[form]()


def to_json(records: Sequence[Record]) -> str:
    """Return the JSON document of `records`, with the number of its schema.

    >>> print(to_json([]), end="")
    {
      "schema": 1,
      "records": []
    }
    """
    return json.dumps({"schema": SCHEMA, "records": records}, indent=2, allow_nan=False) + "\n"


def to_csv(records: Sequence[Record]) -> str:
    """Return `records` as CSV; what is nested gets a dotted column, what is absent stays empty.

    >>> print(to_csv([{"n_q": 8, "tensors": {"Q": {"read_words": 64}}}]), end="")
    n_q,tensors.Q.read_words
    8,64
    """
    rows = [dict(_flatten(record)) for record in records]
    text = io.StringIO()
    writer = csv.DictWriter(text, _all_keys(rows), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _csv_cell(value) for key, value in row.items()} for row in rows)
    return text.getvalue()


def _flatten(record: Record, prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in record.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _all_keys(rows: Sequence[Record]) -> list[str]:
    """Return the keys of all `rows`, in the order in which they are first met."""
    return list(dict.fromkeys(key for row in rows for key in row))


def _csv_cell(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else value


def table(records: Sequence[Record], columns: Sequence[str] | None = None) -> str:
    """Return `records` as an aligned table for people: units in the headings, digits in groups.

    Without `columns`, all keys but nested ones are shown, in their order. Numbers stand to the
    right, text to the left, and what is absent is a dash.
    """
    if columns is None:
        nested = {
            key for row in records for key, value in row.items() if isinstance(value, Mapping)
        }
        columns = [key for key in _all_keys(records) if key not in nested]
    values = [[record.get(key) for record in records] for key in columns]
    cells = [[_cell(value) for value in column] for column in values]
    lines = [[heading(key), *column] for key, column in zip(columns, cells, strict=True)]
    aligned = [
        _align(column, to_the_right=all(_is_number(value) for value in values[i]))
        for i, column in enumerate(lines)
    ]
    return "".join("  ".join(row).rstrip() + "\n" for row in zip(*aligned, strict=True))


def heading(key: str) -> str:
    """Return the heading of a column: the key's unit, if it ends in one, in brackets.

    >>> heading("read_words"), heading("n_q")
    ('read (words)', 'n_q')
    """
    name, _, unit = key.rpartition("_")
    return f"{name} ({unit})" if name and unit in ("words", "bytes", "flops", "seconds") else key


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return units.format_count(value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _align(column: Sequence[str], *, to_the_right: bool) -> list[str]:
    width = max(map(len, column))
    return [cell.rjust(width) if to_the_right else cell.ljust(width) for cell in column]


def write_text(path: str | Path | None, text: str) -> None:
    """Write `text` to the file `path`, or to standard output when it is None or '-'.

    Raises `IosimError` for a path that cannot be written.
    """
    if path is None or str(path) == "-":
        sys.stdout.write(text)
        return
    with replacing(path) as beside:
        beside.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def replacing(path: str | Path, option: str = "--output") -> Iterator[Path]:
    """Lend a path beside `path`, of its suffix; what is written there takes its place at the end.

    So a file is there whole or not at all: when the block fails, nothing is left and an older
    file stays. A device or a pipe is written as it is. Raises `IosimError`, naming `option`, for
    a path that cannot be written, also when the block fails to write.
    """
    path = check_writable(path, option)
    if path.exists() and not path.is_file():
        with _explained(path, option):
            yield path
        return
    target = Path(os.path.realpath(path))  # a link stays a link
    beside = target.with_name(f".{target.stem}.{os.getpid()}{target.suffix}")
    try:
        with _explained(path, option):
            yield beside
            beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)


def check_writable(path: str | Path, option: str = "--output") -> Path:
    """Return `path` if a file can be put there as far as one can tell without trying.

    Raises `IosimError`, naming `option`: a command asks before its work and not after it.
    """
    if not str(path):
        raise _unwritable(path, option, "the name is empty")
    path = Path(path)
    with _explained(path, option):  # even to ask can fail, as for a name that is too long
        if path.is_dir():
            raise _unwritable(path, option, "it is a folder")
        if not path.parent.is_dir():
            raise _unwritable(path, option, f"there is no folder '{path.parent}'")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise _unwritable(path, option, "it is not yours to write")
    return path


@contextlib.contextmanager
def _explained(path: Path, option: str) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:  # the reader has gone: nothing is wrong with the path
        raise
    except OSError as error:
        raise _unwritable(path, option, error.strerror or str(error)) from error


def _unwritable(path: str | Path, option: str, reason: str) -> IosimError:
    return IosimError(
        f"{option} '{path}' cannot be written ({reason}); give a file in a folder that exists"
    )
