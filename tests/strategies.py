"""Hypothesis strategies: small shapes with every feature, tile sizes, built schedules."""

from dataclasses import dataclass
from itertools import pairwise

import trees
from hypothesis import strategies as st

from iosim.errors import IosimError
from iosim.schedule import families
from iosim.schedule.masks import BlockMask, Butterfly, Documents, LocalGlobal, Random, Window
from iosim.shape import AttentionShape

NAMES = tuple(families())
FORWARD = tuple(families("forward"))
BACKWARD = tuple(families("backward"))
ONE_DEVICE = tuple(n for n, known in families().items() if "ranks" not in known.settings)
NESTED = ("flash2_packed", "split_kv")  # which may cut the keys within splits and pages
LAYOUTS = ("contiguous", "zigzag", "striped")  # of a ring
DTYPES = ("float16", "bfloat16", "float32", "float64")


@st.composite
def masks(draw, n_q, n_k):
    """A mask of any family, fit for so many queries and keys; at most 10 x 10 blocks."""

    def block(n):
        return draw(st.integers(-(-n // 10), n + 2))

    def matrix():
        rows, columns = block(n_q), block(n_k)
        height, width = -(-n_q // rows), -(-n_k // columns)
        row = st.lists(st.booleans(), min_size=width, max_size=width)
        return BlockMask.of(
            draw(st.lists(row, min_size=height, max_size=height)), rows, columns, "drawn"
        )

    def documents():
        ends = draw(st.sets(st.integers(1, n_q), max_size=8)) | {n_q}
        return Documents(tuple(b - a for a, b in pairwise([0, *sorted(ends)])))

    extents = st.integers(0, n_k)
    makers = {
        Window: lambda: Window(draw(extents), draw(extents)),
        LocalGlobal: lambda: LocalGlobal(draw(extents), draw(extents), draw(st.integers(1, n_q))),
        **({Documents: documents} if n_q == n_k else {}),
        Butterfly: lambda: Butterfly(max(block(n_q), block(n_k))),
        Random: lambda: Random(
            draw(st.sampled_from([0, 0.1, 0.3, 0.7, 1])),
            max(block(n_q), block(n_k)),
            draw(st.integers(0, 3)),
        ),
        BlockMask: matrix,
    }
    return makers[draw(st.sampled_from(list(makers)))]()


@st.composite
def shapes(
    draw, rows=9, width=3, dtypes=DTYPES, causal=None, heads=True, masked=None, dropout=(0.0,)
):
    """Ragged, n_q != n_k, batch, grouped heads, d_v != d, with a mask of any family or without.

    `causal` says whether the shape is causal; then it has no other mask. `masked` says whether it
    has one beside that. It has no dropout unless probabilities are given.
    """
    kv_heads = draw(st.integers(1, 2)) if heads else 1
    if masked is None:
        masked = causal is None and draw(st.booleans())
    causal = draw(st.booleans()) if causal is None else causal
    n_q = draw(st.integers(1, rows))
    n_k = n_q if masked and draw(st.booleans()) else draw(st.integers(1, rows))
    return AttentionShape(
        n_q=n_q,
        n_k=n_k,
        head_dim=draw(st.integers(1, width)),
        value_dim=draw(st.integers(1, width)),
        batch=draw(st.integers(1, 2)) if heads else 1,
        heads=kv_heads * draw(st.integers(1, 2)) if heads else 1,
        kv_heads=kv_heads,
        dtype=draw(st.sampled_from(dtypes)),
        causal=causal,
        align=draw(st.sampled_from(["bottom-right", "top-left"])),
        mask=draw(masks(n_q, n_k)) if masked else None,
        dropout=draw(st.sampled_from(dropout)),
    )


@st.composite
def tiles(draw, family, shape):
    """Sizes for each of a schedule's tiles, now and then larger than the axis.

    Settings are given too, but for the pages of a cache, which half of the time lies in one piece.
    There are at most some fifty splits and pages, which under a mask cost a sum each.
    """
    rows = {"br": shape.n_q, "bc": shape.n_k}
    rows |= {"splits": min(shape.n_k, 50), "page_size": shape.n_k, "pack": shape.group}
    least = {"page_size": -(-shape.n_k // 50)}
    names = [*family.tiles, *family.settings]
    if "page_size" in names and draw(st.booleans()):
        names.remove("page_size")
    sizes = {
        name: draw(st.integers(least.get(name, 1), rows[name] + 2))
        for name in names
        if name in rows
    }
    if "layout" in names:
        able = [layout for layout in LAYOUTS if rank_counts(family, shape, layout=layout)]
        sizes["layout"] = draw(st.sampled_from(able))
    if "ranks" in names:
        laid = {name: sizes[name] for name in ("layout",) if name in sizes}
        sizes["ranks"] = draw(st.sampled_from(rank_counts(family, shape, **laid)))
    return sizes


def rank_counts(family, shape, most=5, **settings):
    """The numbers of ranks for which a schedule can be built with some other settings."""
    return [ranks for ranks in range(1, most + 1) if _builds(family, shape, ranks, settings)]


def _builds(family, shape, ranks, settings):
    try:
        family.build(shape, **dict.fromkeys(family.tiles, 1), ranks=ranks, **settings)
    except IosimError:
        return False
    return True


@dataclass(frozen=True)
class Case:
    """A schedule's name, a shape and tile sizes: what a failing example prints."""

    name: str
    shape: AttentionShape
    tiles: dict[str, int | str]

    @property
    def schedule(self):
        return families()[self.name].build(self.shape, **self.tiles)


@st.composite
def cases(draw, names=NAMES, **of_shape):
    """A built-in schedule for some shape with some tiles."""
    name = draw(st.sampled_from(names))
    if name in NESTED and of_shape.get("rows", 0) > 1000 and "masked" not in of_shape:
        of_shape["masked"] = False  # their check walks every tile under such a mask
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
