"""Machines: the sizes and rates of devices, each with the document it comes from."""

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources

from iosim import units
from iosim.errors import IosimError


@dataclass(frozen=True)
class Machine:
    """A device: fast memory of one block of threads, the levels behind it, and peak rates.

    Capacities are what the vendor prints; a GB of `hbm_bytes` is 1000^3 bytes, caches and shared
    memory are powers of 1024. `peak_flops` maps a dtype to FLOP/s: dense tensor-core rates with
    float32 accumulation for float16 and bfloat16, plain FMA rates for float32 and float64; a
    dtype that the device cannot multiply is absent. `sources` maps every other field to the
    document that states it.
    """

    name: str
    sms: int
    shared_bytes_per_block: int
    shared_bytes_per_sm: int
    registers_per_sm: int
    l2_bytes: int
    hbm_bytes: int
    hbm_bytes_per_second: int
    peak_flops: Mapping[str, int] = field(hash=False)
    sources: Mapping[str, str] = field(hash=False, repr=False)

    def fast_words(self, dtype: str) -> int:
        """Return M in words of `dtype`: the shared memory that one block of threads may have.

        Raises `IosimError` for an unknown dtype.

        >>> machine("A100").fast_words("float16")
        83456
        """
        return self.shared_bytes_per_block // units.item_bytes(dtype)

    def flops_per_second(self, dtype: str) -> int:
        """Return the peak FLOP/s in `dtype`.

        Raises `IosimError` for an unknown dtype and for one that the device does not have.

        >>> machine("A100").flops_per_second("float16")
        312000000000000
        """
        units.item_bytes(dtype)
        if dtype not in self.peak_flops:
            raise IosimError(f"{self.name} has no {dtype}; it has {', '.join(self.peak_flops)}")
        return self.peak_flops[dtype]


@functools.cache
def _presets() -> dict[str, Machine]:
    text = resources.files("iosim.data").joinpath("machines.json").read_text(encoding="utf-8")
    return {_key(entry["name"]): Machine(**entry) for entry in json.loads(text)["machines"]}


def _key(name: str) -> str:
    """Return `name` without what people spell differently: case, spaces, dashes."""
    return "".join(letter for letter in name.casefold() if letter not in " -_")


def machine_names() -> list[str]:
    """Return the names of the machines that `machine` knows.

    >>> machine_names()
    ['V100', 'A100', 'H100', 'H200', 'RTX 3060 Ti', 'RTX 4090']
    """
    return [preset.name for preset in _presets().values()]


def machine(name: str) -> Machine:
    """Return the machine called `name`; case, spaces, dashes and underscores do not matter.

    Raises `IosimError` with the closest name for one that is not known.

    >>> machine("rtx-3060ti").name
    'RTX 3060 Ti'
    """
    presets = _presets()
    if _key(name) not in presets:
        raise IosimError(units.unknown("device", name, machine_names()))
    return presets[_key(name)]
