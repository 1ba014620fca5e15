"""Hypothesis strategies: small shapes with every feature, tile sizes, built schedules."""

from dataclasses import dataclass

import trees
from hypothesis import strategies as st

from iosim.errors import IosimError
from iosim.schedule import families
from iosim.shape import AttentionShape

NAMES = tuple(families())
FORWARD = tuple(families("forward"))
BACKWARD = tuple(families("backward"))
DTYPES = ("float16", "bfloat16", "float32", "float64")


@st.composite
def shapes(draw, rows=9, width=3, dtypes=DTYPES, causal=None, heads=True):
    """Ragged, n_q != n_k, batch, grouped heads, d_v != d, no mask or causal of both alignments."""
    kv_heads = draw(st.integers(1, 2)) if heads else 1
    return AttentionShape(
        n_q=draw(st.integers(1, rows)),
        n_k=draw(st.integers(1, rows)),
        head_dim=draw(st.integers(1, width)),
        value_dim=draw(st.integers(1, width)),
        batch=draw(st.integers(1, 2)) if heads else 1,
        heads=kv_heads * draw(st.integers(1, 2)) if heads else 1,
        kv_heads=kv_heads,
        dtype=draw(st.sampled_from(dtypes)),
        causal=draw(st.booleans()) if causal is None else causal,
        align=draw(st.sampled_from(["bottom-right", "top-left"])),
    )


@st.composite
def tiles(draw, family, shape):
    """Sizes for each of a schedule's tiles, now and then larger than the axis.

    Settings are given too, but for the pages of a cache, which half of the time lies in one piece.
    """
    rows = {"br": shape.n_q, "bc": shape.n_k}
    rows |= {"splits": shape.n_k, "page_size": shape.n_k, "pack": shape.group}
    names = [*family.tiles, *family.settings]
    if "page_size" in names and draw(st.booleans()):
        names.remove("page_size")
    sizes = {name: draw(st.integers(1, rows[name] + 2)) for name in names if name in rows}
    if "ranks" in names:
        sizes["ranks"] = draw(st.sampled_from(rank_counts(family, shape)))
    return sizes


def rank_counts(family, shape, most=5):
    """The numbers of ranks for which a schedule can be built."""
    return [ranks for ranks in range(1, most + 1) if _builds(family, shape, ranks)]


def _builds(family, shape, ranks):
    try:
        family.build(shape, **dict.fromkeys(family.tiles, 1), ranks=ranks)
    except IosimError:
        return False
    return True


@dataclass(frozen=True)
class Case:
    """A schedule's name, a shape and tile sizes: what a failing example prints."""

    name: str
    shape: AttentionShape
    tiles: dict[str, int]

    @property
    def schedule(self):
        return families()[self.name].build(self.shape, **self.tiles)


@st.composite
def cases(draw, names=NAMES, **of_shape):
    """A built-in schedule for some shape with some tiles."""
    name = draw(st.sampled_from(names))
    shape = draw(shapes(**of_shape))
    return Case(name, shape, draw(tiles(families()[name], shape)))


@dataclass(frozen=True)
class Nested:
    """A tree of `trees.nested`: cuts within cuts on both axes."""

    shape: AttentionShape
    sizes: dict[str, int]

    @property
    def schedule(self):
        return trees.nested(self.shape, **self.sizes)


@st.composite
def nested(draw, **of_shape):
    """Tiles in pages in splits, none of which need to divide the next."""
    shape = draw(shapes(**of_shape))
    numbers = draw(st.sampled_from([1, 2]))
    page = draw(st.integers(1, shape.n_k + 1))
    sizes = {
        "br": draw(st.integers(1, shape.n_q + 1)),
        "bc": draw(st.integers(1, shape.n_k + 1)),
        "shard": draw(st.integers(1, shape.n_q + 1)),
        "split": page * draw(st.integers(1, 4)) if numbers == 2 else draw(st.integers(1, 20)),
        "page": page,
        "numbers": numbers,
    }
    return Nested(shape, sizes)
