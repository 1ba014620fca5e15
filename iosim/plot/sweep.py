"""The data of the figures: traffic counted along a sweep of N, d or M, with bounds and theory.

Nothing here knows matplotlib, and nothing here is stored: every number comes from a schedule that
is built, counted and checked when it is asked for. All traffic is in words, over batch and heads.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from iosim.bounds import all_pairs, lower_bounds, regime
from iosim.errors import IosimError
from iosim.plot.steps import log_steps
from iosim.reading.check import Checked, check
from iosim.reading.count import total_words
from iosim.schedule.registry import Family, family
from iosim.shape import AttentionShape
from iosim.tiles import choose_tiles, full_tile_peak
from iosim.units import format_count

LEADING = {
    ("flash1", "paper"): 12,
    ("flash1", "best"): 6,
    ("flash2", "paper"): 8,
    ("flash2", "best"): 4,
    ("flash1_backward", "best"): 20,
    ("flash2_backward", "best"): 12,
}
"""c in c N^2 d^2 / M, the leading term of a schedule's traffic under a tile rule (d_v = d)."""

LISTED = {"standard": (4, 1), "standard_backward": (7, 2)}
"""(a, b) in a n_q n_k + b (n_q + n_k) (d + d_v), the words of a listing whatever M, one head."""


@dataclass(frozen=True)
class Case:
    """One position of a sweep: the shape, and M in words."""

    shape: AttentionShape
    words: int


@dataclass(frozen=True)
class Choice:
    """A schedule and the rule for its tiles: what one curve shows."""

    family: Family
    rule: str = "best"

    @property
    def label(self) -> str:
        """The name that a legend shows."""
        if not self.family.tiles:
            return self.family.name
        kind = {"paper": "the paper's tiles", "largest": "largest square tiles"}
        return f"{self.family.name}, {kind.get(self.rule, f'{self.rule} tiles')}"


@dataclass(frozen=True)
class Point:
    """A counted schedule: words moved, tile sizes in rows, what `check` found, whether it fits."""

    words: int
    sizes: Mapping[str, int]
    checked: Checked
    fits: bool


@dataclass(frozen=True)
class Curve:
    """The traffic of one choice along a sweep; positions where no tile fits are left out."""

    choice: Choice
    xs: tuple[int, ...]
    points: tuple[Point, ...]

    @property
    def words(self) -> tuple[int, ...]:
        """Words moved at each position."""
        return tuple(point.words for point in self.points)

    @property
    def fits(self) -> tuple[bool, ...]:
        """Whether the schedule fits in M, by position."""
        return tuple(point.fits for point in self.points)


@dataclass(frozen=True)
class BoundCurve:
    """A lower bound in words where it holds and is above 0, and the schedules it holds for.

    `schedules` is empty for a bound on every schedule.
    """

    name: str
    xs: tuple[int, ...]
    words: tuple[int, ...]
    schedules: tuple[str, ...]


@dataclass(frozen=True)
class Theory:
    """What theory says of one choice's traffic, in words, over the range in which it says it.

    That is `constant` N^2 d^2 / M, or without one the words of a listing of LISTED.
    """

    choice: Choice
    constant: int | None
    xs: tuple[int, ...]
    words: tuple[float, ...]


@dataclass(frozen=True)
class Regime:
    """A stretch of the sweep, both ends included, in which M lies in one regime."""

    first: int
    last: int
    name: str


@dataclass(frozen=True)
class Sweep:
    """Traffic against one quantity: 'length' (N), 'dim' (d) or 'memory' (M)."""

    what: str
    xs: tuple[int, ...]
    case: Callable[[int], Case]
    curves: tuple[Curve, ...]
    bounds: tuple[BoundCurve, ...]
    theory: tuple[Theory, ...]
    regimes: tuple[Regime, ...]

    @property
    def choices(self) -> tuple[Choice, ...]:
        """What the curves show, in their order."""
        return tuple(curve.choice for curve in self.curves)


def choose(names: Sequence[str], rule: str | None = None) -> tuple[Choice, ...]:
    """Return the choices for schedules by name: all under one rule, or those with a theory line.

    Without a rule a schedule is shown under 'best', and `flash1` under its paper's rule as well.

    >>> [choice.label for choice in choose(["flash1", "flash2"])]
    ["flash1, the paper's tiles", 'flash1, best tiles', 'flash2, best tiles']
    """
    found = []
    for each in map(family, dict.fromkeys(names)):
        if rule is None and each.name == "flash1":
            found.append(Choice(each, "paper"))
        found.append(Choice(each, rule or "best"))
    return tuple(found)


def against_length(
    shape: AttentionShape, words: int, lengths: Sequence[int], choices: Sequence[Choice]
) -> Sweep:
    """Return the traffic against N = n_q = n_k, in rows, with M words.

    Raises IosimError when a curve has no position at which a tile fits.

    >>> swept = against_length(AttentionShape(1, 1, 64), 51_200, [4096], choose(["flash2"]))
    >>> swept.curves[0].words
    (6295552,)
    """
    return _sweep("length", lengths, lambda n: Case(replace(shape, n_q=n, n_k=n), words), choices)


def against_dim(
    shape: AttentionShape, words: int, dims: Sequence[int], choices: Sequence[Choice]
) -> Sweep:
    """Return the traffic against d, the words of a row of Q, K, V and O, with M words.

    Raises IosimError when a curve has no position at which a tile fits.
    """
    return _sweep(
        "dim", dims, lambda d: Case(replace(shape, head_dim=d, value_dim=d), words), choices
    )


def against_memory(
    shape: AttentionShape, memories: Sequence[int], choices: Sequence[Choice]
) -> Sweep:
    """Return the traffic against M, in words.

    Raises IosimError when a curve has no position at which a tile fits.
    """
    return _sweep("memory", memories, lambda words: Case(shape, words), choices)


def _sweep(
    what: str, xs: Sequence[int], case: Callable[[int], Case], choices: Sequence[Choice]
) -> Sweep:
    xs = tuple(sorted(set(xs)))
    curves = tuple(_curve(choice, xs, case) for choice in choices)
    dense = sorted({*xs, *log_steps(xs[0], xs[-1], per_octave=24)})
    return Sweep(
        what=what,
        xs=xs,
        case=case,
        curves=curves,
        bounds=_bounds(dense, case, curves),
        theory=tuple(t for c in choices if (t := _theory(c, dense, case)) is not None),
        regimes=_regimes(xs, case),
    )


def measure(choice: Choice, case: Case) -> Point | None:
    """Return the counted schedule of a choice, or None where not even its smallest tile fits.

    The paper's rule is followed whether or not its tile fits, and so is a schedule without tiles.
    """
    tiles = choice.family.tiles
    if tiles and choice.rule != "paper":
        smallest = choice.family.build(case.shape, **dict.fromkeys(tiles, 1))
        if full_tile_peak(smallest) > case.words:
            return None
    return count_choice(choice, case)


def count_choice(choice: Choice, case: Case) -> Point:
    """Return the counted schedule of a choice; raises IosimError where no tile fits."""
    sizes = choose_tiles(choice.family, case.shape, case.words, choice.rule).sizes
    built = choice.family.build(case.shape, **sizes)
    checked = check(built)
    return Point(total_words(built), sizes, checked, checked.peak_words <= case.words)


def _curve(choice: Choice, xs: Sequence[int], case: Callable[[int], Case]) -> Curve:
    measured = [(x, point) for x in xs if (point := measure(choice, case(x)))]
    if not measured:
        raise IosimError(
            f"no tile of {choice.family.name} fits in the {format_count(case(xs[-1]).words)} words "
            "of fast memory anywhere in the figure; give more with --sram"
        )
    return Curve(choice, tuple(x for x, _ in measured), tuple(p for _, p in measured))


def _bounds(
    dense: Sequence[int], case: Callable[[int], Case], curves: Sequence[Curve]
) -> tuple[BoundCurve, ...]:
    """Return the bounds that are above 0 at two positions or more and the largest somewhere.

    A bound on every schedule of the figure's pass holds everywhere, and is taken at positions so
    near to each other that the lines between them show nothing that is not so. Another holds where
    a schedule of the figure fits and `check` found in it what the bound asks for. In a figure of
    both passes no bound is on every schedule.
    """
    words: dict[str, dict[int, int]] = {}
    held: dict[str, dict[str, None]] = {}
    families = {curve.choice.family.name: curve.choice.family for curve in curves}
    passes = {each.direction for each in families.values()}
    for x in dense:
        for direction in passes:
            for bound in lower_bounds(case(x).shape, case(x).words, direction=direction):
                if bound.holds:
                    words.setdefault(bound.name, {})[x] = bound.words
                    if len(passes) > 1:
                        of = (n for n, each in families.items() if each.direction == direction)
                        held.setdefault(bound.name, dict.fromkeys(of))
    universal = set(words)
    for curve in curves:
        for x, point in zip(curve.xs, curve.points, strict=True):
            for bound in lower_bounds(case(x).shape, case(x).words, point.checked):
                if point.fits and bound.holds and bound.name not in universal:
                    # One that depends on the schedule is shown as what it is for all of them.
                    said_before = words.setdefault(bound.name, {})
                    said_before[x] = min(bound.words, said_before.get(x, bound.words))
                    held.setdefault(bound.name, {})[curve.choice.family.name] = None
    found = []
    for name, values in words.items():
        said = {x: values[x] for x in sorted(values) if values[x] > 0}  # 0 says nothing
        if len(said) > 1:
            whom = tuple(held.get(name, ()))
            found.append(BoundCurve(name, tuple(said), tuple(said.values()), whom))
    return tuple(bound for bound in found if _leads(bound, found))


def _leads(bound: BoundCurve, every: Sequence[BoundCurve]) -> bool:
    """Return whether a bound is the largest one somewhere, for one of the schedules it is on.

    The others would only crowd the figure: `iosim bound` lists them all.
    """
    for whom in bound.schedules or (None,):
        rivals = [o for o in every if not o.schedules or whom in o.schedules]
        words = [dict(zip(o.xs, o.words, strict=True)) for o in rivals]
        for x, own in zip(bound.xs, bound.words, strict=True):
            if own == max(each.get(x, 0) for each in words):
                return True
    return False


def scale(case: Case) -> float:
    """Return N^2 d^2 / M, in words over batch and heads: the unit of the theorem's constants.

    Under a mask N^2 is the number of visible pairs, and d^2 is ((d + d_v) / 2)^2.
    """
    shape = case.shape
    pairs = all_pairs(shape)
    return pairs * (shape.head_dim + shape.value_dim) ** 2 / (4 * case.words)


def _theory(choice: Choice, dense: Sequence[int], case: Callable[[int], Case]) -> Theory | None:
    """Return the line of theory for a choice, where there is one and it falls in the sweep.

    The leading terms are about d^2 <= M <= N d; the words of a listing are exact for every M.
    """
    constant = LEADING.get((choice.family.name, choice.rule))
    said: dict[int, float] = {}
    for x, each in ((x, case(x)) for x in dense):
        if choice.family.name in LISTED:
            said[x] = listed_words(choice.family.name, each.shape)
        elif constant is not None and regime(each.shape, each.words) == "d^2 <= M <= N d":
            said[x] = constant * scale(each)
    return Theory(choice, constant, tuple(said), tuple(said.values())) if len(said) > 1 else None


def listed_words(name: str, shape: AttentionShape) -> int:
    """Return the words that the listing of a schedule of LISTED moves, whatever M."""
    squares, operands = LISTED[name]
    width = shape.head_dim + shape.value_dim
    head = operands * (shape.n_q + shape.n_k) * width + squares * shape.n_q * shape.n_k
    return shape.batch * shape.heads * head


def _regimes(xs: Sequence[int], case: Callable[[int], Case]) -> tuple[Regime, ...]:
    """Return the stretches between the first and the last position, with exact ends."""

    def at(x: int) -> str:
        each = case(x)
        return regime(each.shape, each.words)

    found = []
    first, last = xs[0], xs[-1]
    while first <= last:
        after = _change(first, last, at)
        found.append(Regime(first, after - 1, at(first)))
        first = after
    return tuple(found)


def _change(first: int, last: int, name: Callable[[int], object]) -> int:
    """Return the first position after `first` with another name, or the one after `last`.

    Each regime is one stretch, as M / d^2 and M / (N d) change one way along a sweep. By hand, as
    `bisect` does not take more than 2^63 positions.
    """
    start, same, other = name(first), first, last + 1
    while other - same > 1:
        middle = (same + other) // 2
        if name(middle) == start:
            same = middle
        else:
            other = middle
    return other


@dataclass(frozen=True)
class Crossover:
    """Where the order of two schedules' traffic changes: at `x` the other one moves less.

    `fewer` is the schedule that moves less from `x` on, `words` what it moves there.
    """

    x: int
    words: int
    fewer: str
    more: str


def crossover(sweep: Sweep, first: str, second: str) -> Crossover | None:
    """Return where two schedules of a sweep, by name and under 'best', first change their order.

    It is found by bisection between the neighbouring positions that show the change; None where
    there is none.
    """
    best = {c.choice.family.name: c for c in sweep.curves if c.choice.rule == "best"}
    if first not in best or second not in best:
        return None

    def first_is_less(x: int) -> bool:
        case = sweep.case(x)
        here, there = (count_choice(best[name].choice, case).words for name in (first, second))
        return here < there

    one, two = (dict(zip(best[n].xs, best[n].words, strict=True)) for n in (first, second))
    common = [x for x in one if x in two]
    order = [one[x] < two[x] for x in common]
    change = next((i for i in range(1, len(order)) if order[i] != order[i - 1]), None)
    if change is None:
        return None
    x = _change(common[change - 1], common[change], first_is_less)
    fewer, more = (first, second) if order[change] else (second, first)
    return Crossover(x, count_choice(best[fewer].choice, sweep.case(x)).words, fewer, more)
