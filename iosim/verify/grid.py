"""The grid of executions: attention shapes with their tiles, and inputs that are hard to get right.

Everything is small, so that many cases run in seconds; what goes wrong in attention goes wrong at
the edges: ragged tiles, more queries than keys, rows that see nothing, maxima that change.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from iosim.errors import IosimError, UnsupportedError
from iosim.precision import Array
from iosim.random_bits import RandomState, dropout_factors
from iosim.schedule.masks import BlockMask, Butterfly, Documents, LocalGlobal, Random, Window
from iosim.schedule.registry import Family, Given, forward_of
from iosim.schedule.relation import relation_of
from iosim.schedule.tree import Schedule
from iosim.shape import AttentionShape, Mask

DTYPES = ("float16", "bfloat16", "float32", "float64")
TWO_DTYPES = ("bfloat16", "float32")

Inputs = tuple[Array, Array, Array]

RANDOM = RandomState(seed=0x1234_5678_9ABC_DEF0, offset=3)
"""What cases with dropout draw their bits from."""


@dataclass(frozen=True)
class Case:
    """A shape, its tiles of B_r queries and B_c keys, and the name of the inputs."""

    shape: AttentionShape
    br: int
    bc: int
    data: str = "normal"
    settings: Given = field(default_factory=dict)

    def build(self, family: Family, dtype: str) -> Schedule:
        """Return the schedule for this case in a dtype, with those of the sizes that it has.

        On several devices it is for as many as there can be, at most 4.
        """
        tiles = {"br": self.br, "bc": self.bc}
        shape = replace(self.shape, dtype=dtype)
        sizes = {name: tiles[name] for name in family.tiles}
        sizes |= {name: size for name, size in self.settings.items() if name in family.settings}
        return family.build(shape, **with_ranks(family, shape, sizes, 4))

    def fits(self, family: Family) -> bool:
        """Return whether the schedule has a form for this case: not every one has dropout."""
        if not self.shape.dropout:
            return True
        try:
            for each in (family, forward_of(family)):
                self.build(each, self.shape.dtype)
        except UnsupportedError:
            return False
        return True

    @property
    def of_words(self) -> bool:
        """Whether a mask, dropout or settings choose which words are read."""
        return bool(self.shape.mask is not None or self.shape.dropout or self.settings)

    def inputs(self) -> Inputs:
        """Return q, k and v in float64, the same every time."""
        return INPUTS[self.data](self.shape, np.random.default_rng(1))

    def output_gradient(self) -> Array:
        """Return dO in float64, the same every time."""
        shape = self.shape
        size = (shape.batch, shape.heads, shape.n_q, shape.value_dim)
        return np.random.default_rng(3).standard_normal(size)

    def visible(self) -> Array | None:
        """Return which queries see which keys; None when all see all."""
        mask = relation_of(self.shape)
        if mask is None:
            return None
        return mask.visible(slice(0, self.shape.n_q), slice(0, self.shape.n_k))

    def factors(self) -> Array | None:
        """Return what dropout multiplies each probability with; None without dropout."""
        s = self.shape
        if not s.dropout:
            return None
        return dropout_factors(RANDOM, s.dropout, (s.batch, s.heads, s.n_q, s.n_k))

    def __str__(self) -> str:
        """Return the case in a few words."""
        s = self.shape
        words = [f"{s.n_q} x {s.n_k}", f"d {s.head_dim}"]
        if s.value_dim != s.head_dim:
            words.append(f"d_v {s.value_dim}")
        if s.heads > 1:
            words.append(f"{s.batch * s.heads} heads" + f"/{s.batch * s.kv_heads} kv")
        if s.causal:
            words.append("causal" if s.align == "bottom-right" else "causal top-left")
        if s.mask is not None:
            words.append(str(s.mask))
        words.append(f"tiles {self.br} x {self.bc}")
        words += [f"{name.replace('_', ' ')} {size}" for name, size in self.settings.items()]
        if s.dropout:
            words.insert(-1, f"dropout {s.dropout:g}")
        return ", ".join([*words, *([] if self.data == "normal" else [self.data])])


def chosen(grid: Iterable[Case], family: Family, dtype: str, thorough: bool) -> list[Case]:
    """Return the cases of a grid in which a schedule is executed in a dtype.

    Masks, dropout and settings say which words are read in which order, whatever their dtype. So
    one narrow and one wide dtype are enough for such cases, and schedules without the settings
    leave out those that are about them, but in a `thorough` grid.
    """
    able = (case for case in grid if case.fits(family))
    if thorough:
        return list(able)
    return [
        case
        for case in able
        if (dtype in TWO_DTYPES or not case.of_words)
        and (not case.settings or case.settings.keys() & set(family.settings))
    ]


def with_ranks(family: Family, shape: AttentionShape, sizes: Given, most: int) -> Given:
    """Return sizes with the most ranks, up to so many, that can divide a shape, if it has ranks."""
    if "ranks" not in family.settings:
        return dict(sizes)
    for ranks in range(most, 1, -1):
        with contextlib.suppress(IosimError):
            family.build(shape, **sizes, ranks=ranks)
            return {**sizes, "ranks": ranks}
    return {**sizes, "ranks": 1}


def _shape(n_q: int, n_k: int, head_dim: int = 16, **more: object) -> AttentionShape:
    return AttentionShape(n_q, n_k, head_dim, **more)  # type: ignore[arg-type]


def cases(thorough: bool = False) -> Iterator[Case]:
    """Yield the grid; a thorough one adds larger and many random cases."""
    yield Case(_shape(32, 32), 8, 8)
    yield Case(_shape(37, 29), 8, 5)
    yield Case(_shape(1, 1), 1, 1)
    yield Case(_shape(12, 12, 8), 1, 1)
    yield Case(_shape(20, 20), 64, 64)
    yield Case(_shape(1, 50), 4, 16)
    yield Case(_shape(7, 50), 3, 16)
    yield Case(_shape(50, 7), 16, 3)
    yield Case(_shape(19, 23, 12, value_dim=20), 6, 9)
    yield Case(_shape(13, 17, 8, heads=6, kv_heads=2), 5, 7)
    yield Case(_shape(15, 18, 8, batch=2, heads=2, kv_heads=1, causal=True), 4, 5)
    yield Case(_shape(33, 33, causal=True), 8, 8)
    yield Case(_shape(31, 31, causal=True), 5, 11)
    yield Case(_shape(13, 40, causal=True), 4, 7)
    yield Case(_shape(40, 13, causal=True), 7, 4)  # 27 rows see nothing
    yield Case(_shape(13, 40, causal=True, align="top-left"), 4, 7)
    yield Case(_shape(40, 13, causal=True, align="top-left"), 7, 4)
    for data in INPUTS:
        if data != "normal":
            yield Case(_shape(24, 40, causal=True), 9, 7, data)
    yield Case(_shape(33, 33, mask=Window(5, 0)), 8, 8)
    yield Case(_shape(24, 40, mask=Window(3, 6)), 7, 5)
    yield Case(_shape(30, 30, mask=LocalGlobal(2, 2, 3)), 7, 4)
    yield Case(_shape(32, 32, causal=True, mask=Documents((5, 1, 17, 9))), 6, 5)
    yield Case(_shape(40, 40, mask=Butterfly(5)), 10, 4)
    yield Case(_shape(36, 28, mask=Random(0.2, 4, seed=4)), 8, 6)  # 12 rows see nothing
    yield Case(_shape(29, 31, causal=True, mask=Random(0.5, 7)), 6, 9)
    yield Case(_shape(64, 96, 64), 32, 48)
    # Settings of schedules for decoding; another schedule takes the case without them.
    yield Case(_shape(1, 61, heads=4, kv_heads=2), 1, 7, settings={"splits": 5})
    yield Case(_shape(2, 40, 8, heads=6, kv_heads=2), 1, 3, settings={"splits": 50, "pack": 2})
    paged = {"splits": 3, "page_size": 8}
    yield Case(_shape(5, 45, 8, batch=2, heads=4, kv_heads=1, causal=True), 3, 5, settings=paged)
    # Rows of a ring as other devices hold them.
    yield Case(_shape(33, 45, 8, causal=True), 4, 5, settings={"layout": "zigzag"})
    yield Case(_shape(36, 32, causal=True, dropout=0.2), 3, 3, settings={"layout": "striped"})
    yield Case(_shape(37, 29, dropout=0.1), 8, 5)
    yield Case(_shape(19, 23, 8, heads=4, kv_heads=2, causal=True, dropout=0.5), 6, 9)
    yield Case(_shape(24, 40, dropout=0.25), 9, 7, "cancelling values")
    if thorough:
        yield from _more_cases()


def _more_cases() -> Iterator[Case]:
    for data in INPUTS:
        yield Case(_shape(70, 90), 16, 11, data)
        yield Case(_shape(60, 40, causal=True), 13, 1, data)
    yield Case(_shape(128, 160, 64), 64, 32)
    yield Case(_shape(50, 61, 8, heads=8, kv_heads=4, causal=True), 7, 5)
    yield Case(_shape(61, 50, 8, heads=4, batch=2), 8, 8)
    yield Case(_shape(512, 700, 64, causal=True), 128, 64)
    yield Case(_shape(333, 1000, 32, heads=4, kv_heads=2), 100, 77)
    rng, more = np.random.default_rng(2), np.random.default_rng(3)
    for _ in range(100):
        splits, pack, page_size = (int(more.integers(1, top)) for top in (20, 4, 25))
        settings = {"splits": splits, "pack": pack}
        settings |= {"page_size": page_size} if more.integers(2) else {}
        n_q, n_k, d, d_v, br, bc = (int(rng.integers(1, top)) for top in (50, 50, 20, 20, 25, 25))
        kv_heads, group, batch = (int(rng.integers(1, top)) for top in (3, 4, 3))
        yield Case(
            _shape(
                n_q,
                n_k,
                d,
                value_dim=d_v,
                batch=batch,
                heads=kv_heads * group,
                kv_heads=kv_heads,
                causal=bool(rng.integers(2)),
                align="top-left" if rng.integers(3) == 0 else "bottom-right",
                dropout=float(rng.choice([0.0, 0.1, 0.9])),
                mask=_some_mask(n_q, n_k, rng),
            ),
            br,
            bc,
            str(rng.choice(list(INPUTS))),
            settings,
        )


def _some_mask(n_q: int, n_k: int, rng: np.random.Generator) -> Mask | None:
    """Return none half of the time, or a mask of any family."""
    a, b, block = int(rng.integers(10)), int(rng.integers(10)), int(rng.integers(1, 20))
    rows, columns = -(-n_q // block), -(-n_k // (block + a))
    masks = (
        Window(a, b),
        LocalGlobal(a, b, block),
        Butterfly(block),
        Random(0.3, block, a),
        BlockMask.of(rng.random((rows, columns)) < 0.5, block, block + a),
    )
    return masks[int(rng.integers(len(masks)))] if rng.integers(2) else None


def _sizes(shape: AttentionShape) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return the shapes of q, k and v."""
    keys = (shape.batch, shape.kv_heads, shape.n_k)
    queries = (shape.batch, shape.heads, shape.n_q)
    return (*queries, shape.head_dim), (*keys, shape.head_dim), (*keys, shape.value_dim)


Maker = Callable[[AttentionShape, np.random.Generator], Inputs]
INPUTS: dict[str, Maker] = {}


def _inputs(name: str) -> Callable[[Maker], Maker]:
    """Register a maker of inputs under a name that says what is hard about them."""

    def register(make: Maker) -> Maker:
        INPUTS[name] = make
        return make

    return register


@_inputs("normal")
def _normal(shape: AttentionShape, rng: np.random.Generator) -> Inputs:
    q, k, v = (rng.standard_normal(size) for size in _sizes(shape))
    return q, k, v


@_inputs("equal scores")
def _equal(shape: AttentionShape, rng: np.random.Generator) -> Inputs:
    q, k, v = _normal(shape, rng)
    return q, np.broadcast_to(k[..., :1, :], k.shape), v


@_inputs("scores in the hundreds")
def _huge(shape: AttentionShape, rng: np.random.Generator) -> Inputs:
    """Without the subtracted maximum, exp overflows float32 from 89 on; weights underflow."""
    q, k, v = _normal(shape, rng)
    return 16 * q, 16 * k, v


@_inputs("tiny scores")
def _tiny(shape: AttentionShape, rng: np.random.Generator) -> Inputs:
    """Keys are subnormal numbers in float16."""
    q, k, v = _normal(shape, rng)
    return q, 1e-6 * k, v


@_inputs("rising scores")
def _rising(shape: AttentionShape, rng: np.random.Generator) -> Inputs:
    """Every key beats the ones before it, so every tile rescales what was summed."""
    q, k, v = _normal(shape, rng)
    steps = np.linspace(-6, 6, shape.n_k)[:, None]
    return np.abs(q) + 0.5, np.broadcast_to(steps, k.shape), v


@_inputs("falling scores")
def _falling(shape: AttentionShape, rng: np.random.Generator) -> Inputs:
    q, k, v = _rising(shape, rng)
    return q, k[..., ::-1, :], v


@_inputs("cancelling values")
def _cancelling(shape: AttentionShape, rng: np.random.Generator) -> Inputs:
    """Large values of both signs add up to little."""
    q, k, v = _normal(shape, rng)
    signs = np.where(np.arange(shape.n_k) % 2, 1.0, -1.0)[:, None]
    return 0.01 * q, k, 500 * signs + v


@_inputs("a query of NaN")
def _nan(shape: AttentionShape, rng: np.random.Generator) -> Inputs:
    """The last query of each head is NaN: so is its row, and no other."""
    q, k, v = _normal(shape, rng)
    q[..., -1, 0] = np.nan
    return q, k, v
