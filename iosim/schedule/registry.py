"""The registry of schedules: a name, the function that builds the tree, and its tile rule."""

import contextlib
import functools
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from iosim.errors import IosimError
from iosim.schedule.tree import Schedule
from iosim.shape import AttentionShape
from iosim.units import unknown

Given = Mapping[str, Any]
"""What a schedule is built with, by name: tile sizes in rows, and settings, some of them text."""

PaperRule = Callable[[AttentionShape, int], dict[str, int]]


@dataclass(frozen=True)
class Family:
    """A schedule for every shape: `build(shape, **tiles)`, its tile sizes' names, its source.

    `settings` are further sizes or names, which have a default: no rule chooses them. `paper` is
    the tile rule of its source, from a shape and M in words, where it has one. A backward schedule
    names in `forward` that of the forward pass which leaves what it reads; a forward schedule that
    leaves the same as another names that one in `like`.
    """

    name: str
    build: Callable[..., Schedule]
    tiles: tuple[str, ...]
    summary: str
    source: str = ""
    paper: PaperRule | None = None
    forward: str = ""
    like: str = ""
    settings: tuple[str, ...] = ()

    @property
    def direction(self) -> str:
        """The pass it is a schedule of: "forward" or "backward"."""
        return "backward" if self.forward else "forward"


FAMILIES: dict[str, Family] = {}

# Each module registers its schedules when it is imported.
BUILT_IN = (
    "standard",
    "standard_passes",
    "standard_tiled",
    "square_tiling",
    "flash1",
    "flash2",
    "flash2_packed",
    "split_kv",
    "standard_backward",
    "flash1_backward",
    "flash2_backward",
    "flash2_backward_q",
    "flash2_packed",
    "split_kv",
    "ring",
    "ulysses",
    "tree_decoding",
)


def schedule(
    name: str, *, source: str, paper: PaperRule | None = None, forward: str = "", like: str = ""
) -> Callable[[Callable[..., Schedule]], Callable[..., Schedule]]:
    """Register a function `build(shape, tile sizes ...)` as the schedule of that name.

    The names of its parameters after the shape are the names of its tile sizes, or of settings
    where they have a default; the first line of its docstring is the summary. A backward schedule
    names its `forward` one. Raises IosimError for the name of a built-in schedule.
    """

    def register(build: Callable[..., Schedule]) -> Callable[..., Schedule]:
        if name in BUILT_IN and not build.__module__.startswith("iosim."):
            raise IosimError(f"schedule {name!r} is built in; give yours another name")
        FAMILIES[name] = _family(name, build, source, paper, forward, like)
        return build

    return register


def _family(
    name: str,
    build: Callable[..., Schedule],
    source: str = "",
    paper: PaperRule | None = None,
    forward: str = "",
    like: str = "",
) -> Family:
    parameters = [*inspect.signature(build).parameters.values()][1:]
    tiles = tuple(each.name for each in parameters if each.default is each.empty)
    settings = tuple(each.name for each in parameters if each.name not in tiles)
    summary = (inspect.getdoc(build) or name).partition("\n")[0]
    return Family(name, build, tiles, summary, source, paper, forward, like, settings)


def families(of: str = "") -> dict[str, Family]:
    """Return the built-in schedules by name; `of` "forward" or "backward" those of one pass.

    >>> list(families("backward"))[:2]
    ['standard_backward', 'flash1_backward']
    """
    for name in BUILT_IN:
        importlib.import_module(f"iosim.schedule.{name}")
    return {name: FAMILIES[name] for name in BUILT_IN if of in ("", FAMILIES[name].direction)}


def family(name: str) -> Family:
    """Return the schedule of that name, or for 'path/to/file.py:name' that function of the file.

    Raises IosimError for an unknown name (with the closest one), a file that cannot be read or
    run, or a function that is not there.

    >>> family("flash2").tiles
    ('br', 'bc')
    """
    path, colon, function = name.rpartition(":")
    if colon and path.endswith(".py"):
        return _family_of_file(Path(path), function)
    known = families()
    if name not in known:
        raise IosimError(
            f"{unknown('schedule', name, known)}, or path/to/file.py:name for one of your own"
        )
    return known[name]


def forward_of(chosen: Family) -> Family:
    """Return the forward schedule that a schedule belongs to: itself, if it is one.

    >>> forward_of(family("flash2_backward")).name
    'flash2'
    """
    if not chosen.forward:
        return chosen
    return FAMILIES.get(chosen.forward) or family(chosen.forward)


def backward_of(chosen: Family) -> Family:
    """Return the backward schedule of a schedule: itself, or the first one that belongs to it.

    Raises IosimError for a forward schedule without one.

    >>> backward_of(family("flash2")).name
    'flash2_backward'
    """
    if chosen.forward:
        return chosen
    known = families("backward") | FAMILIES
    for each in known.values():
        if each.forward in (chosen.name, chosen.like or chosen.name):
            return each
    have = ", ".join(dict.fromkeys(each.forward for each in known.values() if each.forward))
    raise IosimError(f"schedule {chosen.name!r} has no backward pass; these have one: {have}")


def _family_of_file(path: Path, function: str) -> Family:
    module = _run(path)
    build = getattr(module, function, None)
    if not inspect.isfunction(build):
        own = [
            name
            for name, value in vars(module).items()
            if inspect.isfunction(value) and value.__module__ == module.__name__
        ]
        if not own:
            raise IosimError(f"schedule file {str(path)!r} has no function {function!r}, nor any")
        raise IosimError(f"{unknown('function', function, own)} in {str(path)!r}")
    named = [
        parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        for parameter in inspect.signature(build).parameters.values()
    ]
    if not named or not all(named):
        raise IosimError(
            f"function {function!r} in {str(path)!r} must take a shape and then tile sizes by name"
        )

    @functools.wraps(build)
    def guarded(*shape: AttentionShape, **tiles: int) -> Schedule:
        try:
            with contextlib.redirect_stdout(sys.stderr):  # what is printed is no data of ours
                built = build(*shape, **tiles)
        except (IosimError, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise IosimError(
                f"function {function!r} in {str(path)!r} cannot build a schedule: {_told(error)}"
            ) from error
        if not isinstance(built, Schedule):
            raise IosimError(
                f"function {function!r} in {str(path)!r} returns a {type(built).__name__}, "
                "but it must return a Schedule"
            )
        return built

    registered = [known for known in FAMILIES.values() if known.build is build]
    known = registered[0] if registered else _family(function, build)
    return replace(known, build=guarded)


def _run(path: Path) -> ModuleType:
    """Run a file as a module of its own and return it."""
    try:
        there = path.is_file()
    except OSError:  # a name that is too long
        there = False
    if not there:
        raise IosimError(f"schedule file {str(path)!r} does not exist or is not a file")
    spec = importlib.util.spec_from_file_location(f"iosim_user_schedule_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise IosimError(f"schedule file {str(path)!r} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module  # dataclasses in the file look their module up
    try:
        with contextlib.redirect_stdout(sys.stderr):
            spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[module.__name__]
        if isinstance(error, IosimError | KeyboardInterrupt):
            raise
        raise IosimError(f"schedule file {str(path)!r} cannot be run: {_told(error)}") from error
    return module


def _told(error: BaseException) -> str:
    """Return an error of somebody else's code as the end of a sentence."""
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
