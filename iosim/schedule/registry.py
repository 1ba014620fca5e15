"""The registry of schedules: a name, the function that builds the tree, and its tile rule."""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from iosim.errors import IosimError
from iosim.schedule.tree import Schedule
from iosim.shape import AttentionShape
from iosim.units import unknown

PaperRule = Callable[[AttentionShape, int], dict[str, int]]


@dataclass(frozen=True)
class Family:
    """A schedule for every shape: `build(shape, **tiles)`, its tile sizes' names, its source.

    `paper` is the tile rule of its source, from a shape and M in words, where it has one.
    """

    name: str
    build: Callable[..., Schedule]
    tiles: tuple[str, ...]
    summary: str
    source: str = ""
    paper: PaperRule | None = None


FAMILIES: dict[str, Family] = {}

# Each module registers its schedules when it is imported.
BUILT_IN = ("standard", "standard_tiled", "flash1", "flash2")


def schedule(
    name: str, *, source: str, paper: PaperRule | None = None
) -> Callable[[Callable[..., Schedule]], Callable[..., Schedule]]:
    """Register a function `build(shape, tile sizes ...)` as the schedule of that name.

    The names of its parameters after the shape are the names of its tile sizes; the first line of
    its docstring is the summary.
    """

    def register(build: Callable[..., Schedule]) -> Callable[..., Schedule]:
        FAMILIES[name] = _family(name, build, source, paper)
        return build

    return register


def _family(
    name: str, build: Callable[..., Schedule], source: str = "", paper: PaperRule | None = None
) -> Family:
    tiles = tuple(inspect.signature(build).parameters)[1:]
    summary = (inspect.getdoc(build) or name).partition("\n")[0]
    return Family(name, build, tiles, summary, source, paper)


def families() -> dict[str, Family]:
    """Return the built-in schedules by name."""
    for name in BUILT_IN:
        importlib.import_module(f"iosim.schedule.{name}")
    return {name: FAMILIES[name] for name in BUILT_IN}


def family(name: str) -> Family:
    """Return the schedule of that name, or for 'path/to/file.py:name' that function of the file.

    Raises IosimError for an unknown name (with the closest one), a file that cannot be read or
    run, or a function that is not there.

    >>> family("flash2").tiles
    ('br', 'bc')
    """
    path, colon, function = name.rpartition(":")
    if colon and path.endswith(".py"):
        return _family(function, _function_of_file(Path(path), function))
    known = families()
    if name not in known:
        raise IosimError(
            f"{unknown('schedule', name, known)}, or path/to/file.py:name for one of your own"
        )
    return known[name]


def _function_of_file(path: Path, function: str) -> Callable[..., Schedule]:
    if not path.is_file():
        raise IosimError(f"schedule file {str(path)!r} does not exist")
    spec = importlib.util.spec_from_file_location(f"iosim_user_schedule_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise IosimError(f"schedule file {str(path)!r} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module  # dataclasses in the file look their module up
    try:
        spec.loader.exec_module(module)
    except IosimError:
        raise
    except Exception as error:
        raise IosimError(
            f"schedule file {str(path)!r} cannot be run: {type(error).__name__}: {error}"
        ) from error
    build = getattr(module, function, None)
    if not callable(build):
        names = {n for n, v in vars(module).items() if inspect.isfunction(v)}
        raise IosimError(f"{unknown('function', function, names)} in {str(path)!r}")
    built: Callable[..., Schedule] = build
    return built
