"""Masks as people write them: family:values, or a file with a matrix of blocks."""

from collections.abc import Callable
from pathlib import Path

from iosim.errors import IosimError
from iosim.schedule.masks.documents import Documents
from iosim.schedule.masks.local_global import LocalGlobal
from iosim.schedule.masks.patterns import BlockMask, Butterfly, Random
from iosim.schedule.masks.window import Window
from iosim.shape import Mask
from iosim.units import closest, parse_count

FORMS = {
    "window": "window:256 or window:256,0",
    "local+global": "local+global:256,global=4",
    "documents": "documents:100,300,50",
    "butterfly": "butterfly:128",
    "random": "random:0.25,block=128,seed=0",
}
"""How each family of masks is written."""


def parse_mask(text: str) -> Mask:
    """Return the mask that `text` states; a file of blocks is read.

    Raises IosimError for text of another form, for values that are none, and for a file that
    cannot be read or holds no matrix.

    >>> parse_mask("window:1k,0"), parse_mask("random:0.25,block=128")
    (Window(left=1024, right=0), Random(density=0.25, block=128, seed=0))
    """
    name, colon, values = text.partition(":")
    if ".npy" in text:
        return _file(text)
    if not colon or name not in FORMS:
        near = closest(name, FORMS)
        forms = FORMS[near] if near else ", ".join([*FORMS.values(), "file.npy,block=128"])
        raise IosimError(f"'{text}' is not a mask; write {forms}")
    plain, named = _split(name, values)
    return _MAKERS[name](plain, named)


def _split(name: str, values: str) -> tuple[list[str], dict[str, str]]:
    plain: list[str] = []
    named: dict[str, str] = {}
    for part in values.split(","):
        key, equals, value = part.partition("=")
        if not equals and not named:
            plain.append(part)
        elif equals and key not in named:
            named[key] = value
        else:
            raise _not_of_form(name, values)
    return plain, named


def _not_of_form(name: str, values: str) -> IosimError:
    return IosimError(f"'{name}:{values}' is not a mask; write {FORMS[name]}")


def _window(plain: list[str], named: dict[str, str]) -> Mask:
    if named or len(plain) > 2:
        raise _not_of_form("window", _text(plain, named))
    return Window(*_extents(plain))


def _extents(plain: list[str]) -> tuple[int, int]:
    extents = [parse_count(part, minimum=0) for part in plain]
    return extents[0], extents[-1]


def _local_global(plain: list[str], named: dict[str, str]) -> Mask:
    if named.keys() != {"global"} or len(plain) not in (1, 2):
        raise _not_of_form("local+global", _text(plain, named))
    return LocalGlobal(*_extents(plain), parse_count(named["global"]))


def _documents(plain: list[str], named: dict[str, str]) -> Mask:
    if named:
        raise _not_of_form("documents", _text(plain, named))
    return Documents(tuple(parse_count(part) for part in plain))


def _butterfly(plain: list[str], named: dict[str, str]) -> Mask:
    if named or len(plain) != 1:
        raise _not_of_form("butterfly", _text(plain, named))
    return Butterfly(parse_count(plain[0]))


def _random(plain: list[str], named: dict[str, str]) -> Mask:
    if not {"block"} <= named.keys() <= {"block", "seed"} or len(plain) != 1:
        raise _not_of_form("random", _text(plain, named))
    try:
        density = float(plain[0])
    except ValueError:
        raise IosimError(f"'{plain[0]}' is not a density; give a number from 0 to 1") from None
    seed = parse_count(named.get("seed", "0"), minimum=0)
    return Random(density, parse_count(named["block"]), seed)


def _text(plain: list[str], named: dict[str, str]) -> str:
    return ",".join([*plain, *(f"{key}={value}" for key, value in named.items())])


_MAKERS: dict[str, Callable[[list[str], dict[str, str]], Mask]] = {
    "window": _window,
    "local+global": _local_global,
    "documents": _documents,
    "butterfly": _butterfly,
    "random": _random,
}


def _file(text: str) -> Mask:
    """Return the block mask of file.npy,block=B or file.npy,block=BxC."""
    path, comma, size = text.rpartition(",block=")
    if not comma:
        raise IosimError(f"mask '{text}' has no block size; write {text},block=128")
    rows, cross, columns = size.partition("x")
    block = parse_count(rows), parse_count(columns if cross else rows)
    return BlockMask.of(_matrix(Path(path)), *block, name=path)


def _matrix(path: Path) -> object:
    import numpy as np

    try:
        return np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise IosimError(f"mask file {str(path)!r} does not exist") from None
    except (OSError, ValueError, EOFError) as error:
        told = str(error).partition("\n")[0] or type(error).__name__
        raise IosimError(
            f"mask file {str(path)!r} cannot be read as a NumPy matrix: {told}"
        ) from None
