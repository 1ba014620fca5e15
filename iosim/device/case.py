"""Cases: attention calls as a profiler sees them, without what it counted.

A file of cases is JSON: {"device": {"name": ...}, "cases": [...]}, where a case has a shape and a
list of kernels (docs/data/h200_torch_attention.json is one, and its header explains it). Counters
that stand beside a kernel are not read here: a prediction cannot see them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from iosim.errors import IosimError
from iosim.schedule.masks import parse_mask
from iosim.shape import AttentionShape

RESERVED_BYTES = 1024  # of shared memory, by the system for each block
OPERATIONS = ("fwd", "bwd", "std")
_SHAPE = ("n_q", "n_k", "head_dim", "heads", "kv_heads", "causal", "dtype")
_SHAPE_IF_GIVEN = ("batch", "value_dim", "align")


@dataclass(frozen=True)
class KernelCall:
    """One launch: the kernel's name, blocks of the grid, threads of a block, and their resources.

    `registers` are those of a thread, `shared_bytes` the shared memory of a block in bytes with
    what the system takes; None where they are not known. `dims` is the grid as (x, y, z) if known.
    """

    name: str
    grid: int
    block: int
    registers: int | None = None
    shared_bytes: int | None = None
    dims: tuple[int, int, int] | None = None


@dataclass(frozen=True)
class Case:
    """One attention call: its shape, what computed it, its kernels in order, and the main one.

    `operation` is fwd, bwd or std (Q K^T, softmax and P V as calls of their own). `main` is the
    place of the kernel that takes longest, None where no times were recorded.
    `aligned` says whether the case states the corner of a causal mask.
    """

    operation: str
    backend: str
    shape: AttentionShape
    kernels: tuple[KernelCall, ...]
    main: int | None = None
    aligned: bool = True


@dataclass(frozen=True)
class CaseFile:
    """Cases in the order of their file, and the device that the file names, if it names one."""

    device: str | None
    cases: tuple[Case, ...]


def read_document(path: str | Path) -> dict[str, Any]:
    """Return the JSON object in a file.

    Raises IosimError for a file that cannot be read or holds something else.
    """
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise IosimError(f"'{path}' cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise IosimError(f"'{path}' is not JSON ({error})") from error
    if not isinstance(document, dict):
        raise IosimError(f"'{path}' holds no JSON object; give a file with a list of cases")
    return document


def cases_of(document: Mapping[str, Any], where: str) -> CaseFile:
    """Return the cases of a document; `where` names it in errors.

    Raises IosimError, with the place of the case in the list, for one that is incomplete.
    """
    listed = document.get("cases")
    if not isinstance(listed, list) or not listed:
        raise IosimError(f"'{where}' has no list of cases; it needs a key \"cases\"")
    device = document.get("device")
    if isinstance(device, Mapping):
        device = device.get("name")
    if device is not None and not isinstance(device, str):
        raise IosimError(f"'{where}' names the device {device!r}; it must be text")
    cases = tuple(case_of(entry, f"'{where}', case {i}") for i, entry in enumerate(listed))
    return CaseFile(None if device is None else device.removeprefix("NVIDIA "), cases)


def case_of(entry: Any, where: str) -> Case:
    """Return one case; `where` names it in errors.

    >>> call = {"kernel": "k", "grid": 64, "block": 128, "registers": 255, "smem_bytes": 66560}
    >>> case = case_of({"op": "fwd", "n_q": 8192, "n_k": 8192, "head_dim": 128, "heads": 1,
    ...     "kv_heads": 1, "causal": True, "dtype": "float16", "kernels": [call]}, "here")
    >>> case.shape.n_q, case.kernels[0].registers
    (8192, 255)
    """
    entry = _mapping(entry, where)
    given = {name: _get(entry, name, where) for name in _SHAPE}
    given |= {name: entry[name] for name in _SHAPE_IF_GIVEN if entry.get(name) is not None}
    if not isinstance(given["causal"], bool):
        raise IosimError(f"{where}: causal is {given['causal']!r}; it must be true or false")
    for name in ("dtype", "align"):
        if not isinstance(given.get(name, ""), str):
            raise IosimError(f"{where}: {name} is {given[name]!r}; it must be text")
    try:
        if entry.get("mask"):
            given["mask"] = parse_mask(str(entry["mask"]))
        shape = AttentionShape(**given)
    except IosimError as error:
        raise IosimError(f"{where}: {error}") from error
    operation = _get(entry, "op", where)
    if operation not in OPERATIONS:
        raise IosimError(f"{where}: op is {operation!r}; it must be one of {', '.join(OPERATIONS)}")
    listed = _get(entry, "kernels", where)
    if not isinstance(listed, list) or not listed:
        raise IosimError(f"{where}: kernels is no list of launches")
    calls = [_mapping(call, f"{where}, kernel {i}") for i, call in enumerate(listed)]
    return Case(
        operation=operation,
        backend=str(entry.get("backend", "")),
        shape=shape,
        kernels=tuple(_call(call, f"{where}, kernel {i}") for i, call in enumerate(calls)),
        main=_longest(calls),
        aligned="align" in given,
    )


def _longest(calls: list[Mapping[str, Any]]) -> int | None:
    """Return the place of the kernel that takes longest; the only use of a measured number."""
    times = [call.get("time_ns") for call in calls]
    if not all(isinstance(time, int | float) and time > 0 for time in times):
        return 0 if len(calls) == 1 else None
    return max(range(len(times)), key=lambda i: cast(float, times[i]))


def _call(entry: Mapping[str, Any], where: str) -> KernelCall:
    name = _get(entry, "kernel", where)
    if not isinstance(name, str) or not name:
        raise IosimError(f"{where}: kernel is {name!r}; it must be the kernel's name")
    return KernelCall(
        name=name,
        grid=_number(entry, "grid", where, 1),
        block=_number(entry, "block", where, 1),
        registers=_number(entry, "registers", where, 1),
        shared_bytes=_number(entry, "smem_bytes", where, 0),
    )


def _number(entry: Mapping[str, Any], key: str, where: str, least: int) -> int:
    value = _get(entry, key, where)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise IosimError(f"{where}: {key} is {value!r}; it must be a whole number from {least}")
    return value


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise IosimError(f"{where} is no JSON object")
    return value


def _get(entry: Mapping[str, Any], name: str, where: str) -> Any:
    if name not in entry:
        raise IosimError(f"{where} has no {name}; every case and kernel needs one")
    return entry[name]
