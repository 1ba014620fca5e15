"""From a launch to the shape of its attention call: what name and grid say, what has to be given.

Whatever is not said by either is assumed, and every assumption is put into words.
"""

import math
from dataclasses import dataclass, fields, replace

from iosim.device.case import KernelCall
from iosim.device.kernels import Known
from iosim.errors import IosimError
from iosim.shape import AttentionShape

OTHERS = "the lengths given make another grid, and are taken to be of other kernels"


@dataclass(frozen=True)
class Given:
    """What the user states of a shape; None is left to name and grid."""

    n_q: int | None = None
    n_k: int | None = None
    head_dim: int | None = None
    batch: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    dtype: str | None = None
    causal: bool | None = None

    @property
    def nothing(self) -> bool:
        """Whether nothing is stated."""
        return all(getattr(self, each.name) is None for each in fields(self))


@dataclass(frozen=True)
class Inferred:
    """A shape and the sentences that say what of it was assumed; None if it cannot be told."""

    shape: AttentionShape | None
    assumed: tuple[str, ...]


def infer(known: Known, call: KernelCall, given: Given) -> Inferred:
    """Return the shape of the call that a kernel belongs to.

    Lengths that make another grid are taken to be of other kernels of the same program.

    >>> from iosim.device.kernels import recognise
    >>> name = "flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, 0, 0, cutlass::half_t,"
    >>> call = KernelCall(name, grid=512, block=128, dims=(64, 1, 8))
    >>> found = infer(recognise(name), call, Given())
    >>> found.shape.n_q, found.shape.heads, found.assumed[0]
    (8192, 8, 'n_q is taken as 8192, the most that 64 tiles hold (--seq-len states it)')
    """
    axes = _axes(known, call)
    if _of_others(known, axes, given):
        found = infer(known, call, replace(given, n_q=None, n_k=None))
        return replace(found, assumed=(OTHERS, *found.assumed))
    said = _rows(known, axes)
    assumed: list[str] = []

    def settle(name: str, option: str, *found: tuple[int | None, str]) -> int | None:
        """Return what is given, else the first that is found, with its sentence."""
        stated: int | None = getattr(given, name)
        if stated is not None:
            return stated
        for value, why in found:
            if value is not None:
                if why:
                    assumed.append(f"{name} is taken as {value}, {why} ({option} states it)")
                return value
        return None

    most = f"the most that {axes.get('query tiles', axes.get('key tiles', 0))} tiles hold"
    queries = said if "query tiles" in axes else None
    keys = said if "key tiles" in axes else None
    # Keys are split where queries are few: their number is in neither, and not that of the queries.
    split = known.facts.role in ("split_forward", "split_merge")
    if split:
        n_q, n_k = given.n_q, given.n_k
    else:
        n_q = settle("n_q", "--seq-len", (queries, most), (given.n_k or keys, "as many as keys"))
        n_k = settle("n_k", "--kv-len", (keys, most), (n_q, "as many as queries"))
    batch = settle(
        "batch", "--batch", (axes.get("batch"), ""), _batch(known, axes, given), (1, "one sequence")
    )
    heads = settle("heads", "--heads", (axes.get("heads"), ""), _heads(axes, batch))
    kv_heads = settle(
        "kv_heads", "--kv-heads", _swapped(known, axes, n_q, heads, batch),
        (heads, "as many as heads"),
    )  # fmt: skip
    width = settle("head_dim", "--head-dim", (known.width, "what the kernel is compiled for"))
    dtype = given.dtype or known.dtype
    if dtype is None:
        dtype = "float16"
        assumed.append("dtype is taken as float16 (--dtype states it)")
    causal = given.causal if given.causal is not None else known.causal
    if causal is None:
        causal = False
        assumed.append("no causal mask is assumed (--causal states one)")
    needed = {"--seq-len": n_q, "--heads": heads, "--head-dim": width}
    if split:
        needed["--kv-len"] = n_k
    missing = [option for option, value in needed.items() if value is None]
    if missing or n_q is None or n_k is None or heads is None or width is None:
        return Inferred(None, (f"the shape is not known; give {', '.join(missing)}",))
    try:
        shape = AttentionShape(
            n_q, n_k, width, batch=batch or 1, heads=heads, kv_heads=kv_heads or heads,
            dtype=dtype, causal=causal,
        )  # fmt: skip
    except IosimError as error:
        return Inferred(None, (f"the shape is not known: {error}",))
    return Inferred(shape, tuple(assumed))


def _axes(known: Known, call: KernelCall) -> dict[str, int]:
    """Return what x, y and z of the grid count, where that is known."""
    if call.dims is None:
        return {}
    return dict(zip(known.grid, call.dims, strict=False))


def _rows(known: Known, axes: dict[str, int]) -> int | None:
    """Return the most rows that the grid's tiles hold, of queries or of keys."""
    for axis, tile in (("query tiles", "br"), ("key tiles", "bc")):
        if axis in axes and tile in known.tiles:
            return axes[axis] * known.tiles[tile]
    return None


def _of_others(known: Known, axes: dict[str, int], given: Given) -> bool:
    """Return whether a length that is given makes another number of tiles than the grid has."""
    lengths = (("query tiles", "br", given.n_q), ("key tiles", "bc", given.n_k))
    return any(
        rows is not None
        and axis in axes
        and tile in known.tiles
        and math.ceil(rows / known.tiles[tile]) != axes[axis]
        for axis, tile, rows in lengths
    )


def _batch(known: Known, axes: dict[str, int], given: Given) -> tuple[int | None, str]:
    """Return the sequences where the grid counts the heads of them all, and heads are given."""
    together = axes.get("batch and heads")
    swapped = known.facts.swaps_groups and given.n_q == 1 and given.kv_heads is not None
    heads = given.kv_heads if swapped else given.heads
    if together is None or not heads or together % heads or together == heads:
        return None, ""
    return together // heads, f"as the grid counts {together} heads"


def _heads(axes: dict[str, int], batch: int | None) -> tuple[int | None, str]:
    """Return the heads of one sequence where the grid counts those of the whole batch."""
    together = axes.get("batch and heads")
    if together is None or not batch or together % batch:
        return None, ""
    return together // batch, ""


def _swapped(
    known: Known, axes: dict[str, int], n_q: int | None, heads: int | None, batch: int | None
) -> tuple[int | None, str]:
    """Return the key heads that the grid counts where a group of heads runs as queries of one."""
    counted = axes.get("heads") or _heads(axes, batch)[0]
    if not known.facts.swaps_groups or n_q != 1 or not counted or not heads or heads % counted:
        return None, ""
    return counted, "as the grid counts them for one query"
