"""What the figures say in words and formulas; N is n_q = n_k and d is d_v unless they differ."""

from collections.abc import Sequence

from iosim.shape import AttentionShape
from iosim.units import format_bytes, format_count


def pairs_text(shape: AttentionShape) -> str:
    """Return how a formula writes the number of pairs that the mask lets meet.

    >>> pairs_text(AttentionShape(64, 64, 8)), pairs_text(AttentionShape(64, 64, 8, causal=True))
    ('N²', ' (visible pairs) ')
    """
    if shape.causal or shape.mask is not None:
        return " (visible pairs) "
    return "N²" if shape.n_q == shape.n_k else " n_q n_k "


def unit_text(shape: AttentionShape) -> str:
    """Return the formula of what the theorem's constants multiply.

    >>> unit_text(AttentionShape(64, 64, 8))
    'N²d²/M'
    """
    square = "d²" if shape.head_dim == shape.value_dim else "((d + d_v)/2)²"
    return f"{pairs_text(shape)}{square}/M"


def theory_text(
    constant: int | None, shape: AttentionShape, listed: tuple[int, int] = (4, 1)
) -> str:
    """Return the formula of a theory line: c N^2 d^2 / M, or the words `listed` (see LISTED).

    >>> theory_text(4, AttentionShape(64, 64, 8)), theory_text(None, AttentionShape(64, 64, 8))
    ('4N²d²/M', '4N² + 4Nd')
    """
    if constant is not None:
        return f"{constant}{unit_text(shape)}"
    squares, operands = listed
    if shape.head_dim == shape.value_dim and shape.n_q == shape.n_k:
        return f"{squares}N² + {4 * operands}Nd"
    return f"{squares} n_q n_k + {operands if operands > 1 else ''}(n_q + n_k)(d + d_v)"


def bound_text(name: str, schedules: Sequence[str], shape: AttentionShape) -> str:
    """Return what a legend says of a bound: its formula, and the schedules that it holds for."""
    pairs = pairs_text(shape)
    same = shape.head_dim == shape.value_dim
    formulas = {
        "compulsory": "Q, K, V in and O out, once",
        "general": f"{pairs.lstrip()}d² / max(M, 2d²) − M",
        "fused": f"4{pairs}d² / (M − 1)" if same else f"{pairs.lstrip()}(d + d_v)² / (M − 1)",
        "whole_rows": f"2{pairs}d² / (M − 1)" if same else f"{pairs.lstrip()}(d² + d_v²) / (M − 1)",
        "whole_rows_large_memory": f"(4{pairs}d² − cM) / (M + c − 1), c = 2d²"
        if same
        else f"({pairs.lstrip()}(d + d_v)² − cM) / (M + c − 1), c = 2 d d_v",
        "general_large_memory": f"({pairs.lstrip()}(c + {'2d' if same else 'd + d_v'}) − cM)"
        f" / (M + c − 1), c = {'3d²' if same else 'd² + 2 d d_v'} − d",
        "small_memory": f"{pairs.lstrip()}d / √(5M) − M, for M ≤ d²",
        "two_matmuls": f"2 (2{pairs}d / √M − 2M)",
        "backward_compulsory": "Q, K, V, dO in and dQ, dK, dV out, once",
        "backward_general": f"{pairs.lstrip()}{'d²' if same else 'd_v²'} / max(M, "
        f"{'2d²' if same else '2d_v²'}) − M",
        "backward_fused": f"12{pairs}d² / (M − 1)"
        if same
        else f"2{pairs}(d + d_v)(2d + d_v) / (M − 1)",
        "backward_fused_again": f"10{pairs}d² / (M − 1)"
        if same
        else f"{pairs.lstrip()}(d + d_v)(3d + 2d_v) / (M − 1)",
        "backward_fused_made": f"14{pairs}d² / (M − 1) − words made"
        if same
        else f"{pairs.lstrip()}(d + d_v)(5d + 2d_v) / (M − 1) − words made",
    }
    title = name.replace("_", " ")
    if not schedules:
        whom = {
            "general": "any schedule that sums d products a score",
            "small_memory": "any schedule that sums d products a score",
            "backward_general": "any backward schedule that sums the products of each dP",
            "backward_compulsory": "any backward schedule",
        }.get(name.removesuffix("_large_memory"), "any schedule")
    else:
        whom = ", ".join(schedules)
    return f"{title}: {formulas[name]}\nfor {whom}" if name in formulas else f"{title}\nfor {whom}"


def memory_text(words: int, shape: AttentionShape) -> str:
    """Return M in words, and in bytes of the shape's dtype."""
    bytes_ = format_bytes(words * shape.item_bytes).partition(" (")[0]
    return f"M = {format_count(words)} words ({bytes_} of {shape.dtype})"


def shape_text(shape: AttentionShape, *, without: str = "") -> str:
    """Return what a title says of a shape, without the quantity that the figure sweeps."""
    parts = []
    if without != "length":
        same = shape.n_q == shape.n_k
        lengths = f"N = {shape.n_q}" if same else f"n_q = {shape.n_q}, n_k = {shape.n_k}"
        parts.append(lengths)
    if without != "dim":
        same = shape.head_dim == shape.value_dim
        parts.append(f"d = {shape.head_dim}" + ("" if same else f", d_v = {shape.value_dim}"))
    if shape.batch > 1:
        parts.append(f"batch {shape.batch}")
    if shape.heads > 1:
        shared = f" ({shape.kv_heads} of K and V)" if shape.kv_heads != shape.heads else ""
        parts.append(f"{shape.heads} heads{shared}")
    else:
        parts.append("one head")
    if shape.causal:
        parts.append("causal")
    if shape.mask is not None:
        parts.append(str(shape.mask))
    return ", ".join(parts)
