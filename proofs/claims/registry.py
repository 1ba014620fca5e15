"""The registry of recomputations: a name, and the function that calls the library."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from iosim.proofs.claims.quantity import Number

NONE: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True)
class Reading:
    """One way to read a claim: the numbers by quantity, and what it takes the claim to say.

    A reading "as stated" adds nothing; one that is `assumed` needs the assumptions that the claim's
    record lists. `sizes` gives a unit another size: {"MB": 1024**2}.
    """

    about: str
    numbers: Mapping[str, Number]
    assumed: bool = False
    sizes: Mapping[str, int] = field(default_factory=lambda: NONE)


@dataclass(frozen=True)
class Condition:
    """What must hold for a claim to be one that counts can judge; its text holds the numbers."""

    text: str
    met: bool


@dataclass(frozen=True)
class Recomputed:
    """What a recomputation found: readings, conditions, and facts that the finding quotes."""

    readings: tuple[Reading, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()


Recomputation = Callable[..., Recomputed]
RECOMPUTATIONS: dict[str, Recomputation] = {}

# Each module registers its functions when it is imported.
MODULES = ("figure2", "counts", "ratios", "capacity", "theorems", "sparse", "devices", "numerics")


def recomputation(function: Recomputation) -> Recomputation:
    """Register a function under its name; its docstring says how it recomputes a claim."""
    RECOMPUTATIONS[function.__name__] = function
    return function


def recomputations() -> dict[str, Recomputation]:
    """Return all recomputations by name."""
    for module in MODULES:
        importlib.import_module(f"iosim.proofs.claims.recompute_{module}")
    return dict(RECOMPUTATIONS)
