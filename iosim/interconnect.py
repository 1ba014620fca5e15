"""Between devices: the least that has to be sent, and the block that hides its transfer."""

from collections.abc import Sequence
from fractions import Fraction

from iosim.bounds import Bound
from iosim.errors import IosimError
from iosim.schedule.operations import find_operation
from iosim.schedule.ranks import EXCHANGES, Ranks
from iosim.schedule.relation import ranges_of
from iosim.schedule.tree import Compute, Move, Schedule, nodes


def queries_stay(schedule: Schedule) -> Bound | None:
    """Where queries stay on their ranks, each rank has to receive the keys they see and it lacks.

    Words over the interconnect, of K and V, over all ranks; None for a schedule of one device.
    Hypotheses, read off the tree: Q and the keys are divided among the ranks, and rows of K and V
    are all that is ever sent. Then rank r forms the scores of its queries and adds up their
    outputs itself, so that every row of K and V that one of them sees must come to it, once at
    least. Nothing is claimed for a schedule that sends queries or results instead.

    >>> from iosim.schedule import family
    >>> from iosim.shape import AttentionShape
    >>> ring = family("ring").build(AttentionShape(1024, 1024, 64), br=64, bc=64, ranks=4)
    >>> queries_stay(ring).words == 3 * 1024 * 2 * 64
    True
    """
    ranks = schedule.ranks
    if ranks is None:
        return None
    found = [node for node, _ in nodes(schedule.body)]
    computes = [node for node in found if isinstance(node, Compute)]
    operands = {find_operation(node).role: node.inputs for node in computes}
    q, k = (tensor.name for tensor in operands["scores"][:2])
    v = operands["accumulate"][1].name
    sent = {
        (n.source or n.tensor).name for n in found if isinstance(n, Move) and n.kind in EXCHANGES
    }
    holds = bool(sent) and sent <= {k, v} and {q, k, v} <= set(ranks.holds)
    return Bound(
        name="queries_stay",
        words=_rows_lacking(schedule, ranks, q, k) if holds else 0,
        holds=holds,
        reason="between devices: rows of K and V are all that is sent"
        if holds
        else "between devices: claimed where rows of K and V are all that is sent",
        leading="(p - 1) n_k (d + d_v)",
        source="derived here: a rank receives what its queries see and it lacks",
    )


def _rows_lacking(schedule: Schedule, ranks: Ranks, q: str, k: str) -> int:
    """Return the words of K and V that the queries of each rank see and the rank does not hold."""
    shape = schedule.shape
    queries, keys = ranks.holds[q], ranks.holds[k]
    mine, single = queries.cut(queries.block), keys.cut(1)
    rows = 0
    for rank in range(ranks.count):
        seen: Sequence[int] = range(keys.n)
        if schedule.mask is not None:
            seen = schedule.mask.key_range(mine, single, rank)
        rows += len(seen) - _inside(seen, *keys.range(rank))
    return shape.batch * shape.kv_heads * rows * (shape.head_dim + shape.value_dim)


def _inside(rows: Sequence[int], first: int, stop: int) -> int:
    """Return how many of the rows, which rise, lie in a range."""
    return sum(max(min(r.stop, stop) - max(r.start, first), 0) for r in ranges_of(rows))


def overlap_rows(
    flops_per_second: float, bytes_per_second: float, item_bytes: int = 2, group: int = 1
) -> Fraction:
    """Return the least block of ring attention that hides its transfer, in rows of a shard.

    A block of c queries and c keys takes 4 g d c^2 FLOPs, for g query heads of one head of keys and
    values, while 2 c d words arrive: 4 g d c^2 / F >= 2 c d e / B where c >= e F / (2 g B), with F
    in FLOP/s, B in bytes/s one way and e bytes a word. With two bytes and one head that is F / B
    (Liu et al. 2023, arXiv 2310.01889, section 3).

    Raises IosimError for a rate or a size that is not positive.

    >>> float(overlap_rows(312e12, 12.5e9))
    24960.0
    """
    for name, value in (
        ("flops_per_second", flops_per_second),
        ("bytes_per_second", bytes_per_second),
        ("item_bytes", item_bytes),
        ("group", group),
    ):
        if not value > 0:
            raise IosimError(f"{name} is {value}, but it must be more than 0")
    return Fraction(flops_per_second) * item_bytes / (2 * group * Fraction(bytes_per_second))
