"""Policies by name: which engine simulates which policy, fully associative or in sets."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from iosim.cache.result import CacheConfig, CacheResult, CurveResult
from iosim.errors import IosimError

#: Lines of a set-associative cache, which takes memory for all of them at once.
MOST_IN_SETS = 1 << 28


@dataclass(frozen=True, eq=False)
class Batch:
    """Some accesses on their way into the engines.

    `lines` int64 line numbers, `ids` int32 (one for each line number, see LineIndex), `size`
    above every id so far, `writes` uint8 with 1 for a write.  `writes` is None, and the loops
    are the lean ones, as long as there was no write in this batch or any before it.
    """

    lines: NDArray[np.int64]
    writes: NDArray[np.uint8] | None
    ids: NDArray[np.int32]
    size: int


class Engine(Protocol):
    """Consumes batches; may be asked for its results at any time."""

    @property
    def distinct(self) -> int:
        """Distinct lines seen so far."""
        ...

    def feed(self, batch: Batch) -> None:
        """Simulate the accesses of one batch."""
        ...

    def results(self, partial: bool = False) -> Sequence[CacheResult | CurveResult]:
        """Counts so far; `partial` marks them as those of an interrupted run."""
        ...


#: Builds the engines for some caches: one engine each, or one for all of them.
Factory = Callable[[Sequence[CacheConfig]], Sequence[Engine]]
_FULLY: dict[str, Factory] = {}
_IN_SETS: dict[str, Factory] = {}
_CURVES: dict[str, Callable[[CacheConfig], Engine]] = {}


def fully_associative(name: str) -> Callable[[Any], Any]:
    """Register the decorated class or factory as the fully associative engine of a policy."""
    return _registering(_FULLY, name)


def in_sets(name: str) -> Callable[[Any], Any]:
    """Register the decorated class or factory as the set-associative engine of a policy."""
    return _registering(_IN_SETS, name)


def curve(name: str) -> Callable[[Any], Any]:
    """Register the decorated class as the engine of a policy's whole miss curve."""
    return _registering(_CURVES, name)


def _registering(registry: dict[str, Any], name: str) -> Callable[[Any], Any]:
    def register(factory: Any) -> Any:
        registry[name] = factory
        return factory

    return register


def _load() -> None:
    """Import the modules whose decorators fill the registries."""
    from iosim.cache import fifo, lru, lru_curve, opt, opt_curve, sets  # noqa: F401


def policies() -> tuple[str, ...]:
    """Names of all policies, fully associative or in sets.

    >>> policies()
    ('fifo', 'lru', 'opt', 'plru')
    """
    _load()
    return tuple(sorted(_FULLY.keys() | _IN_SETS.keys()))


def make_engines(policy: str, configs: Sequence[CacheConfig]) -> Sequence[Engine]:
    """Build engines for one policy; all `configs` agree in whether `ways` is given.

    Raises IosimError for an unknown policy or a cache that cannot be.
    """
    _load()
    for config in configs:
        check_config(policy, config)
    ways = configs[0].ways is not None
    registry = _IN_SETS if ways else _FULLY
    if policy not in registry:
        known = ", ".join(sorted(registry))
        kind = "set-associative" if ways else "fully associative"
        raise IosimError(f"policy {policy!r} has no {kind} engine; those that have: {known}")
    return registry[policy](configs)


def make_curve(policy: str, config: CacheConfig) -> Engine:
    """Build the engine of a whole miss curve.  Raises IosimError when the policy has none."""
    _load()
    if policy not in _CURVES:
        known = ", ".join(sorted(_CURVES))
        raise IosimError(f"policy {policy!r} has no miss curve; those that have: {known}")
    if config.ways is not None:
        raise IosimError(
            f"a miss curve is for fully associative caches, not for {config.ways} ways; "
            "give capacities for sets"
        )
    if not (config.write_allocate and config.write_back) or config.bypass:
        raise IosimError(
            "a miss curve is for write-allocate and write-back caches without bypass; "
            "give capacities for other rules"
        )
    return _CURVES[policy](config)


def check_config(policy: str, config: CacheConfig) -> None:
    """Raise IosimError, in one sentence, for a cache that cannot be."""
    if config.capacity_lines < 1:
        raise IosimError(
            f"capacity {config.capacity_lines} lines cannot hold anything; give at least 1 line"
        )
    if config.line_bytes is not None and config.line_bytes < 1:
        raise IosimError(f"line size {config.line_bytes} bytes is not positive; give at least 1")
    ways = config.ways
    if ways is not None:
        if ways < 1 or config.capacity_lines % ways:
            raise IosimError(
                f"{ways} ways do not divide a capacity of {config.capacity_lines} lines; "
                "give a divisor of the capacity"
            )
        if config.capacity_lines > MOST_IN_SETS:
            raise IosimError(
                f"capacity {config.capacity_lines} lines is too large for sets; "
                f"give at most {MOST_IN_SETS}, or no ways"
            )
        if policy == "plru" and (ways & (ways - 1) or ways > 64):
            raise IosimError(
                f"{ways} ways do not make a tree for policy 'plru'; give a power of 2 up to 64"
            )
    if config.bypass and policy != "opt":
        raise IosimError(f"bypass is not for policy {policy!r}; it is a rule of 'opt' only")
