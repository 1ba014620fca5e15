"""The figure of several devices: what it draws is what `count` says."""

from math import log2

import pytest
from matplotlib.figure import Figure

from iosim.plot.devices import (
    LOOKS,
    PREFILL,
    SentCurve,
    against_keys,
    against_ranks,
    draw_balance,
    draw_devices,
    draw_sent,
    shares,
)
from iosim.shape import AttentionShape

SHAPE = AttentionShape(4096, 4096, 64, heads=8, kv_heads=2)


def test_a_ring_and_ulysses_send_what_the_formulas_say() -> None:
    """In bytes of float16, by one device: (p - 1) / p of K and V; of all four tensors over p."""
    curves = {curve.label: curve for curve in against_ranks(SHAPE)}
    assert len(curves) == 4
    for kv_heads in (8, 2):
        ring = curves[f"ring, 8 heads, K and V of {kv_heads}"]
        whole = 2 * 4096 * 2 * 64
        for p, sent in zip(ring.xs, ring.bytes, strict=True):
            assert sent == (p - 1) * kv_heads * whole // p
        ulysses = curves[f"ulysses, 8 heads, K and V of {kv_heads}"]
        assert max(ulysses.xs) == kv_heads
        for p, sent in zip(ulysses.xs, ulysses.bytes, strict=True):
            assert sent == (p - 1) * (8 + kv_heads) * whole // p**2


def test_ulysses_sends_less_from_two_ranks_more_than_heads_share_on() -> None:
    """n_q = n_k: the ring sends p / (g + 1) times as much; as the page says."""
    by_label = {
        curve.label: dict(zip(curve.xs, curve.bytes, strict=True))
        for curve in against_ranks(PREFILL)
    }
    for kv_heads, group in ((32, 1), (8, 4)):
        ring = by_label[f"ring, 32 heads, K and V of {kv_heads}"]
        for p, sent in by_label[f"ulysses, 32 heads, K and V of {kv_heads}"].items():
            assert ring[p] * (group + 1) == p * sent


def test_a_tree_sends_as_much_for_any_number_of_keys() -> None:
    ring, ulysses, tree = against_keys(SHAPE, ranks=2)
    assert set(tree.bytes) == {int(log2(2)) * 8 * 2 * (64 + 2) * 4}
    for curve in (ring, ulysses):
        assert curve.xs[-1] == 1024 * curve.xs[0]
        assert curve.bytes[-1] > 500 * curve.bytes[0]


def test_the_bars_are_the_work_of_the_ranks() -> None:
    ax = Figure().subplots()
    causal = AttentionShape(4096, 4096, 64, heads=8, causal=True)
    draw_balance(causal, ax, ranks=4)
    ring, zigzag, ulysses = ax.containers
    for bars, name, layout in (
        (ring, "ring", "contiguous"),
        (zigzag, "ring", "zigzag"),
        (ulysses, "ulysses", None),
    ):
        drawn = [bar.get_height() * 1e12 for bar in bars]
        assert drawn == pytest.approx([share.flops for share in shares(name, causal, 4, layout)])
    assert zigzag[0].get_facecolor() != ring[0].get_facecolor() == ring[0].get_edgecolor()
    flops = [share.flops for share in shares("ring", causal, 4)]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        f"ring: mean {sum(flops) / 4 / max(flops):.0%} of the most",
        "ring, zigzag: mean 100% of the most",
        "ulysses: mean 100% of the most",
    ]
    assert "TFLOP" in ax.get_ylabel()


def test_curves_of_one_schedule_share_a_colour_and_differ_in_their_markers() -> None:
    ax = Figure().subplots()
    curves = [SentCurve("ring", "one", (2, 4), (8, 16)), SentCurve("ring", "two", (2, 4), (4, 8))]
    draw_sent(curves, ax, "devices p")
    one, two = ax.get_lines()
    assert one.get_color() == two.get_color() == LOOKS["ring"].colour
    assert one.get_markerfacecolor() != two.get_markerfacecolor()
    assert list(one.get_ydata()) == [8, 16]
    assert "(bytes)" in ax.get_ylabel()


def test_the_figure_has_three_panels_with_units_and_legends() -> None:
    figure = draw_devices(AttentionShape(4096, 4096, 64, heads=8))
    assert len(figure.axes) == 3
    for ax in figure.axes:
        assert ax.get_xlabel()
        assert "(" in ax.get_ylabel()
        assert ax.get_legend() is not None
