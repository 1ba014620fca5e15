"""Caches managed by a policy: engines, miss curves and trace formats.

>>> from iosim.cache import from_arrays, simulate
>>> [result.misses for result in simulate(from_arrays([0, 1, 0]), ["lru", "opt"], [1])]
[3, 3]
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "CacheConfig": "result",
    "CacheResult": "result",
    "CurveResult": "result",
    "Block": "stream",
    "from_arrays": "stream",
    "to_lines": "stream",
    "simulate": "driver",
    "simulate_curves": "driver",
    "policies": "registry",
    "read_trace": "formats",
    "write_trace": "writers",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: numba takes its time."""
    if name in _HOMES:
        return getattr(import_module(f"iosim.cache.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'iosim.cache' has no attribute {name!r}")
