"""What recomputations share: shapes, schedules at a memory, matmul FLOPs, exponents, units."""

from math import log2, prod

from iosim.proofs.claims.quantity import Number
from iosim.reading.extent import factors, union
from iosim.report import Simulation, simulate
from iosim.schedule import Schedule, family
from iosim.schedule.operations import find_operation
from iosim.schedule.tree import Compute, nodes
from iosim.shape import AttentionShape


def square(
    n: int, d: int, dtype: str = "float16", *, heads: int = 1, causal: bool = False
) -> AttentionShape:
    """Return the shape of n queries and n keys of d words."""
    return AttentionShape(n, n, d, heads=heads, dtype=dtype, causal=causal)


def at(name: str, shape: AttentionShape, words: int, rule: str = "best") -> Simulation:
    """Return what a schedule moves at M words, with the tiles of a rule."""
    return simulate(family(name), shape, sram_words=words, rule=rule)


def moved(name: str, shape: AttentionShape, words: int, rule: str = "best") -> int:
    """Return the words that a schedule moves at M words, with the tiles of a rule."""
    return at(name, shape, words, rule).traffic.total_words


def listing(shape: AttentionShape) -> Simulation:
    """Return standard attention as listed: every operand of a matmul moves once, whatever M."""
    return simulate(family("standard"), shape)


def matmul_flops(schedule: Schedule) -> int:
    """Return the FLOPs of a schedule's matrix products alone, a multiply and an add as two.

    >>> matmul_flops(family("flash2").build(square(8, 4), br=2, bc=2)) == 4 * 8 * 8 * 4
    True
    """
    flops = 0
    for node, loops in nodes(schedule.body):
        if not isinstance(node, Compute) or not find_operation(node).matmul:
            continue
        operands = (*node.outputs, *node.inputs)
        coefficient, which = find_operation(node).flops[0]  # the product stands first
        axes = union(operands[i] for i in which)
        flops += coefficient * prod(factor.value for factor in factors(axes, loops))
    return flops


def exponent(first: float, second: float, doublings: float = 1) -> Number:
    """Return the power with which something grew from first to second over so many doublings."""
    return Number(log2(second / first) / doublings, "exponent")


def times(value: float) -> Number:
    """Return a ratio."""
    return Number(value, "times")


def words(value: float) -> Number:
    """Return a number of words."""
    return Number(value, "words")


def octets(value: float) -> Number:
    """Return a number of bytes."""
    return Number(value, "bytes")
