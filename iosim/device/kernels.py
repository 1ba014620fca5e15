"""Known kernels of other libraries: by which name each goes, and what is known of its tiles.

The facts are in iosim/data/kernels.json, each with its source. A kernel that is not there is
unknown: nothing is guessed about it.
"""

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from iosim.shape import Alignment

_CASTS = re.compile(r"\((?:unsigned )?(?:int|bool|long|char)\)")
_DTYPES = (
    ("bfloat16", re.compile(r"bfloat16|_bf16_|BFloat16|nvjet_(?:sm\d+_)?tst_")),
    ("float16", re.compile(r"half_t|_f16_|\bHalf\b|nvjet_(?:sm\d+_)?hsh_")),
    ("float32", re.compile(r"_f32_|<float,")),
)
# What stands between the traits of a kernel of FlashAttention-2 and its arguments.
_FLAGS = re.compile(r">((?:\s*,\s*(?:true|false|[01]))+)\s*>\s*(?:\(|$)")


@dataclass(frozen=True)
class Facts:
    """What is known of one kernel; a field that is not stated has the value that says nothing.

    `role` names what it does in an attention call. `tiles` are B_r and B_c in rows, also by the
    head dimension that it is compiled for (`tiles_by_width`: B_r, B_c). `keys` is the direction of
    its inner loop. `persistent` blocks take one tile after another, `whole_tiles` counts the last,
    ragged tile as a whole one, `whole_queries` fills a tile of queries with rows of the next heads,
    `ticket_bytes` are read and written for each tile handed out. `rows_by_width` are rows a block
    of a merge. `dot_writes` is how often a sector of D is stored, `clears_dq`
    whether dQ is set to zero, `partial_sectors` whether stores of parts of sectors raise the bytes
    by an amount that nobody knows before, `spills` whether registers come back through L2;
    `spill_bytes_by_width` are the bytes of a block that it stores at each step, stores at a tile's
    start and loads at its end; `pace_by_width` are the times of a row for a block alone on its SM
    and for the youngest of several, where the oldest takes 1, `drift_by_width` the variance in
    rows^2 that each row adds to a block's time.
    `in_step`, `in_step_causal` and `merged_share` say how many requests merge before L2
    (`merging`). `grid` says what x, y and z of the grid count, `grid_unsplit` what they count where
    the flag `split` is not set. `flags` are the names of the true-or-false arguments at the end of
    a whole name. `threads` is the block that the tiles hold for, `swaps_groups` whether one query
    with grouped heads runs as a group of queries, `writes_lse` whether a forward kernel stores LSE,
    `causal_align` the corner where a causal mask starts if nobody states it.
    `sources` maps every stated field to what states it.
    """

    name: str
    pattern: str
    role: str
    sources: Mapping[str, str] = field(hash=False, repr=False)
    tiles: Mapping[str, int] = field(default_factory=dict, hash=False)
    tiles_by_width: Mapping[str, tuple[int, int]] = field(default_factory=dict, hash=False)
    rows_by_width: Mapping[str, int] = field(default_factory=dict, hash=False)
    grid: tuple[str, ...] = ()
    grid_unsplit: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    in_step: Mapping[str, float] = field(default_factory=dict, hash=False)
    in_step_causal: Mapping[str, float] = field(default_factory=dict, hash=False)
    merged_share: Mapping[str, float] = field(default_factory=dict, hash=False)
    threads: int | None = None
    keys: str = "ascending"
    persistent: bool = False
    whole_tiles: bool = False
    whole_queries: bool = False
    ticket_bytes: int = 0
    writes_lse: bool = False
    swaps_groups: bool = False
    dot_writes: int = 1
    clears_dq: bool = False
    partial_sectors: bool = False
    spills: bool = False
    spill_bytes_by_width: Mapping[str, tuple[int, int, int]] = field(
        default_factory=dict, hash=False
    )
    pace_by_width: Mapping[str, tuple[float, float]] = field(default_factory=dict, hash=False)
    drift_by_width: Mapping[str, float] = field(default_factory=dict, hash=False)
    causal_align: Alignment = "bottom-right"


@dataclass(frozen=True)
class Known:
    """A kernel that was recognised by its name, and the numbers that stand in the name.

    `tiles` are rows (br, bc; m, n for a matrix product), `width` the head dimension that it is
    compiled for; `dtype` is None where the name does not say. `flags` are those that it says.
    """

    facts: Facts
    tiles: Mapping[str, int] = field(hash=False)
    width: int | None
    dtype: str | None
    flags: Mapping[str, bool] = field(hash=False)

    @property
    def causal(self) -> bool | None:
        """Whether it masks, None where the name does not say."""
        return self.flags.get("causal")

    @property
    def grid(self) -> tuple[str, ...]:
        """What x, y and z of the grid count, () where that is not known."""
        return self.facts.grid if self.flags.get("split", True) else self.facts.grid_unsplit

    @property
    def role(self) -> str:
        """What the kernel does in an attention call."""
        return self.facts.role


@functools.cache
def facts() -> tuple[Facts, ...]:
    """Return what is known of all kernels, in the order of the data file."""
    text = resources.files("iosim.data").joinpath("kernels.json").read_text(encoding="utf-8")
    entries: list[dict[str, Any]] = json.loads(text)["kernels"]
    for entry in entries:
        entry |= {key: tuple(value) for key, value in entry.items() if isinstance(value, list)}
    return tuple(Facts(**entry) for entry in entries)


@functools.cache
def _patterns() -> tuple[tuple[re.Pattern[str], Facts], ...]:
    return tuple((re.compile(known.pattern), known) for known in facts())


def stranger(name: str) -> str:
    """Return the note for a kernel that nobody described.

    >>> stranger("_ZN5iosim3gpu7kernels6flash26flash2...")[:40]
    'a kernel of iosim, whose name does not s'
    """
    if "iosim::gpu::kernels" in name or "_ZN5iosim3gpu7kernels" in name:
        return "a kernel of iosim, whose name does not say its tiles; iosim gpu measure knows them"
    return "nobody described a kernel of this name (kernels.json): nothing is predicted"


def recognise(name: str) -> Known | None:
    """Return what is known of the kernel of this name, None for one that nobody described.

    Casts that profilers print in template arguments, as in `(int)64`, do not matter.

    >>> known = recognise("flash_fwd_kernel<Flash_fwd_kernel_traits<(int)64, (int)128, (int)128,")
    >>> known.facts.name, dict(known.tiles), known.width
    ('FlashAttention-2 forward', {'br': 128, 'bc': 128}, 64)
    >>> recognise("my_own_attention_kernel") is None
    True
    """
    plain = _CASTS.sub("", name)
    for pattern, known in _patterns():
        found = pattern.search(plain)
        if found:
            numbers = {key: int(text) for key, text in found.groupdict().items() if text}
            width = numbers.pop("width", None)
            table = known.tiles_by_width.get(str(width), ())
            tiles = {**dict(zip(("br", "bc"), table, strict=False)), **known.tiles, **numbers}
            return Known(known, tiles, width, _dtype(plain), _flags(plain, known))
    return None


def _dtype(name: str) -> str | None:
    return next((dtype for dtype, pattern in _DTYPES if pattern.search(name)), None)


def _flags(name: str, known: Facts) -> dict[str, bool]:
    """Return the flags of a kernel of FlashAttention-2, where the name is whole.

    Versions differ in what follows the causal flag: of a name with more or fewer flags no more than
    that one is believed.
    """
    found = _FLAGS.search(name)
    if found is None or not known.flags:
        return {}
    values = [text.strip() in ("true", "1") for text in found[1].split(",")[1:]]
    names = known.flags
    if len(values) != len(names):
        names = names[: names.index("causal") + 1]
    return dict(zip(names, values, strict=False))
