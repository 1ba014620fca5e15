"""Numbers that were known before the program: by hand, from papers, from an H200's counters.

Counts are of float16 with float32 statistics unless said. The measurements are hardware counters of
FlashAttention-2 and cuDNN on an H200 (docs/data/h200_torch_attention.json, whose header explains
each).
"""

import json
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iosim import bounds
from iosim.errors import CapacityError
from iosim.reading.check import check
from iosim.reading.count import count
from iosim.reading.traffic import Traffic
from iosim.schedule import family
from iosim.shape import AttentionShape
from iosim.tiles import choose_tiles

MEASURED = Path(__file__).parents[1] / "docs" / "data" / "h200_torch_attention.json"


def counted(
    name: str, n: int, d: int, *, heads: int = 1, causal: bool = False, **t: int
) -> Traffic:
    shape = AttentionShape(n, n, d, heads=heads, causal=causal, dtype="float16")
    return count(family(name).build(shape, **t))


def test_flash2_of_4096_rows_and_8_heads() -> None:
    traffic = counted("flash2", 4096, 64, heads=8, br=128, bc=128)
    assert (traffic.read_bytes, traffic.write_bytes) == (272_629_760, 4_325_376)


@pytest.mark.parametrize(
    ("n", "heads", "causal", "read_bytes"),
    [
        (5000, 3, False, 155_520_000),
        (65536, 1, False, 8_598_323_200),
        (8192, 8, True, 553_648_128),
    ],
)
def test_bytes_read_by_flash2(n: int, heads: int, causal: bool, read_bytes: int) -> None:
    traffic = counted("flash2", n, 64, heads=heads, causal=causal, br=128, bc=128)
    assert traffic.read_bytes == read_bytes


def test_each_pass_over_s_and_p_of_standard_attention() -> None:
    traffic = counted("standard", 8192, 64, heads=8)
    passes = [
        words * traffic.items[name]
        for name in "SP"
        for words in (traffic.tensors[name].read, traffic.tensors[name].write)
    ]
    assert passes == [1_073_741_824] * 4
    assert traffic.total_words == 8 * (4 * 8192**2 + 4 * 8192 * 64)


@given(st.integers(1, 3000), st.integers(1, 128), st.integers(1, 10**6))
def test_flash1_at_any_memory(n: int, d: int, words: int) -> None:
    """2Nd + T_c N (2d + 2) words read and N (d + 2) + T_c N (d + 2) written."""
    shape = AttentionShape(n, n, d)
    sizes = choose_tiles(family("flash1"), shape, words, "paper").sizes
    t_c = -(-n // min(-(-words // (4 * d)), n))
    traffic = count(family("flash1").build(shape, **sizes))
    assert traffic.read_words == 2 * n * d + t_c * n * (2 * d + 2)
    assert traffic.write_words == n * (d + 2) + t_c * n * (d + 2)


def paper_tile_fits(d: int, words: int) -> bool:
    """Whether Algorithm 1 with its printed tile sizes runs in M words, at a long sequence."""
    shape = AttentionShape(2**20, 2**20, d)
    sizes = choose_tiles(family("flash1"), shape, words, "paper").sizes
    try:
        check(family("flash1").build(shape, **sizes), capacity=words)
    except CapacityError:
        return False
    return True


@pytest.mark.parametrize(("d", "threshold"), [(64, 33_856), (128, 133_248)])
def test_from_where_on_the_papers_tiles_fit(d: int, threshold: int) -> None:
    """B_c = ceil(M / 4d) changes at multiples of 4d: the least M of a size is its worst."""
    assert paper_tile_fits(d, threshold)
    assert not paper_tile_fits(d, threshold - 1)
    # With B_c rows the words needed do not change until M exceeds 4 d B_c.
    first = threshold // (4 * d) + 1
    smallest_of_each = [4 * d * rows + 1 for rows in (*range(first, first + 50), 1000, 10**4)]
    assert all(paper_tile_fits(d, words) for words in smallest_of_each)
    largest_of_each = [4 * d * rows for rows in range(1, first)]
    fits = [paper_tile_fits(d, words) for words in largest_of_each]
    assert 0 < sum(fits) < 0.2 * len(fits), "a few smaller memories do"


@pytest.mark.parametrize(
    ("item_bytes", "d", "words", "fits"),
    [(2, 64, 46_720, True), (2, 128, 61_400, False), (4, 64, 27_520, False)],
)
def test_the_papers_tiles_in_100_kib(item_bytes: int, d: int, words: int, fits: bool) -> None:
    memory = 100 * 1024 // item_bytes
    shape = AttentionShape(2**16, 2**16, d)
    sizes = choose_tiles(family("flash1"), shape, memory, "paper").sizes
    assert check(family("flash1").build(shape, **sizes)).peak_words == words
    assert (words <= memory) == fits == paper_tile_fits(d, memory)


def test_a_tile_plan_in_words_and_in_bytes() -> None:
    """128 x 128 at d = 64: 49 408 words, 148 480 bytes with float32 accumulators."""
    schedule = family("flash2").build(AttentionShape(4096, 4096, 64), br=128, bc=128)
    checked = check(schedule)
    assert (checked.peak_words, checked.peak_bytes) == (49_408, 148_480)


N = 65536
LONG = AttentionShape(N, N, 64)


def to_figures(value: int, figures: int) -> float:
    return float(f"{value:.{figures - 1}e}")


def test_a_long_sequence() -> None:
    """N = M = 65536, d = 64: Alg. 1 3.30e9, the best legal flash2 1.116e9, the bounds below."""
    flash2 = choose_tiles(family("flash2"), LONG, N)
    assert flash2.sizes["br"] == 499
    schedule = family("flash2").build(LONG, **flash2.sizes)
    checked = check(schedule, capacity=N)
    total = count(schedule).total_words
    assert to_figures(total, 4) == 1.116e9
    named = {b.name: b.words for b in bounds.lower_bounds(LONG, N, checked)}
    assert to_figures(named["fused"], 4) == 1.074e9
    assert to_figures(named["general"], 3) == 2.68e8
    assert named["fused"] <= total
    paper = choose_tiles(family("flash1"), LONG, N, "paper").sizes
    assert to_figures(count(family("flash1").build(LONG, **paper)).total_words, 3) == 3.30e9


def test_a_small_memory() -> None:
    """N 1024, d 64, M 1024: Alg. 1 as printed does not fit, and the best tiles move less."""
    shape, words = AttentionShape(1024, 1024, 64), 1024
    best = {
        name: count(
            family(name).build(shape, **choose_tiles(family(name), shape, words).sizes)
        ).total_words
        for name in ("flash1", "flash2")
    }
    assert to_figures(best["flash1"], 3) == 34.5e6
    assert to_figures(best["flash2"], 3) == 22.5e6
    paper = family("flash1").build(
        shape, **choose_tiles(family("flash1"), shape, 1024, "paper").sizes
    )
    assert to_figures(count(paper).total_words, 4) == 51.58e6
    assert check(paper).peak_words == 1048


def test_the_fused_bound_that_square_tiling_goes_below() -> None:
    shape = AttentionShape(1024, 1024, 64)
    assert to_figures(bounds.fused(shape, 256).words, 2) == 6.7e7


def test_the_tile_of_figure_2_does_not_fit() -> None:
    """FA1, Fig. 2: T_c = 2 at N 1024 means B_c = 512, 106 624 words against 192 KiB of float16."""
    schedule = family("flash1").build(AttentionShape(1024, 1024, 64), br=64, bc=512)
    assert check(schedule).peak_words == 106_624 > 192 * 1024 // 2


FIGURE_2 = AttentionShape(1024, 1024, 64, batch=64, heads=16, dtype="float16")


def test_standard_attention_of_figure_2() -> None:
    """FA1, Fig. 2: 40.3 GB. By hand (18 N^2 + 12 N d) words a head, and N bytes of padding mask.

    Algorithms 0 and 3 are 11 N^2 + 12 N d; the mask pass is 2 N^2; dropout reads and writes N^2 and
    has N^2 bytes, half as many words, in either direction.
    """
    n, d, heads = 1024, 64, 16 * 64
    drops = replace(FIGURE_2, dropout=0.1)
    for names, shape, words, bytes_ in (
        (("standard", "standard_backward"), FIGURE_2, 11 * n * n + 12 * n * d, 0),
        (("standard_passes", "standard_backward"), FIGURE_2, 13 * n * n + 12 * n * d, n),
        (("standard", "standard_backward"), drops, 15 * n * n + 12 * n * d, 2 * n * n),
        (("standard_passes", "standard_backward"), drops, 17 * n * n + 12 * n * d, 2 * n * n + n),
    ):
        traffic = [count(family(name).build(shape)) for name in names]
        assert sum(each.total_bytes for each in traffic) == heads * (2 * words + bytes_)
    total = sum(each.total_bytes for each in traffic)
    assert to_figures(total, 3) == 40.3e9
    assert total - heads * n == 2 * heads * (18 * n * n + 12 * n * d)


def test_flash_attention_of_figure_2() -> None:
    """FA1, Fig. 2: 4.4 GB. Two passes forward and four backward, dropout and mask on chip."""
    n, d, heads = 1024, 64, 16 * 64
    shape = replace(FIGURE_2, dropout=0.1)
    forward = count(family("flash1").build(shape, br=64, bc=512))
    backward = count(family("flash1_backward").build(shape, br=64, bc=256))
    # 2-byte words of matrices and 4-byte words of l, m, by hand from Algorithms 1 and 4.
    first = 2 * (2 * n * d + 2 * 3 * n * d + n * d) + 4 * (2 * 4 * n + 2 * n)
    second = 2 * (4 * n * d + 4 * 5 * n * d + 3 * n * d) + 4 * (4 * 2 * n)
    assert forward.total_bytes == heads * first + 16  # and the random state
    assert backward.total_bytes == heads * second + 16
    assert to_figures(forward.total_bytes + backward.total_bytes, 3) == 4.91e9
    initialised = heads * (2 * (n * d + 3 * n * d) + 4 * 2 * n)
    assert to_figures(forward.total_bytes + backward.total_bytes - initialised, 3) == 4.36e9


def test_thirty_two_times_less_is_ten_or_sixteen_times() -> None:
    """N 16384, d 64, M 128 Ki words: the bare terms N^2 against N^2 d^2 / M give 32."""
    shape, words = AttentionShape(16384, 16384, 64), 128 * 1024
    standard = count(family("standard").build(shape)).total_words
    ratios = [
        standard
        / count(
            family(name).build(shape, **choose_tiles(family(name), shape, words, "paper").sizes)
        ).total_words
        for name in ("flash1", "flash2")
    ]
    assert [round(ratio, 1) for ratio in ratios] == [10.2, 15.6]


def leading(name: str, shape: AttentionShape, words: int, rule: str) -> float:
    sizes = choose_tiles(family(name), shape, words, rule).sizes
    total = count(family(name).build(shape, **sizes)).total_words
    return total * words / (shape.n_q * shape.n_k * shape.head_dim**2)


def test_leading_constants() -> None:
    """12 for Alg. 1 as printed, 6 at its best, 8 for flash2 mirrored, 4 at its best.

    Lower-order terms: 2 of 2d words of a row are statistics (1/d), S beside a row (1/2d at best),
    Q, K, V, O once (d / B): all below 2 % at d = 256, M = 2^24, N = 2^24.
    """
    shape = AttentionShape(2**24, 2**24, 256)
    found = [
        leading("flash1", shape, 2**24, "paper"),
        leading("flash1", shape, 2**24, "best"),
        leading("flash2", shape, 2**24, "paper"),
        leading("flash2", shape, 2**24, "best"),
    ]
    assert found == pytest.approx([12, 6, 8, 4], rel=0.02)


def cases(backend: str) -> list[dict[str, Any]]:
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))
    return [c for c in measured["cases"] if c["op"] == "fwd" and c["backend"] == backend]


def excess(case: dict[str, Any]) -> tuple[float, float]:
    """Measured bytes from L2 into the SMs over those counted: as a ratio, and per query block."""
    kernel = case["kernels"][0]
    split = "splitkv" in kernel["kernel"]
    shape = AttentionShape(
        case["n_q"],
        case["n_k"],
        case["head_dim"],
        heads=case["heads"],
        kv_heads=case["kv_heads"],
        causal=case["causal"],
        dtype=case["dtype"],
    )
    br = 64 if split else 128
    bc = 128 if case["head_dim"] == 64 else 64
    if case["backend"] == "CUDNN_ATTENTION":
        bc = 128
    read = count(family("flash2").build(shape, br=br, bc=bc)).read_bytes
    blocks = case["heads"] * -(-case["n_q"] // br)
    return kernel["sm_fill"] / read - 1, (kernel["sm_fill"] - read) / blocks


@pytest.mark.parametrize("backend", ["FLASH_ATTENTION", "CUDNN_ATTENTION"])
def test_bytes_measured_on_an_h200_are_those_counted(backend: str) -> None:
    """Never less; within 1e-4 for n_q = n_k >= 8192, else within 4e-3.

    FlashAttention-2 spills registers and reads a few bytes of them back; cuDNN loads ragged tiles
    whole and reads about 33 bytes more per query block.
    """
    found = {json.dumps(case): excess(case)[0] for case in cases(backend)}
    assert len(found) >= 25
    for text, ratio in found.items():
        case = json.loads(text)
        large = case["n_q"] == case["n_k"] >= 8192
        assert 0 <= ratio <= (1e-4 if large else 4e-3), (ratio, text[:150])
    assert median(found.values()) <= 5e-6


def test_some_measurements_agree_to_the_last_byte() -> None:
    exact = [case for case in cases("FLASH_ATTENTION") if excess(case)[1] == 0]
    assert len(exact) >= 5
    assert {case["causal"] for case in exact} == {True, False}
    assert {case["head_dim"] for case in exact} == {64, 128}


def test_another_tile_would_not_agree_with_the_measurement() -> None:
    """The comparison tells tiles apart: 64 or 256 rows of Q would be off by tens of percent."""
    case = next(c for c in cases("FLASH_ATTENTION") if c["n_q"] == 32768 and not c["causal"])
    shape = AttentionShape(case["n_q"], case["n_k"], case["head_dim"], heads=case["heads"])
    for br in (64, 112, 256):
        read = count(family("flash2").build(shape, br=br, bc=64)).read_bytes
        assert abs(case["kernels"][0]["sm_fill"] / read - 1) > 0.1


def test_the_mask_and_the_grouped_heads_are_seen_in_the_measurement() -> None:
    causal = next(c for c in cases("FLASH_ATTENTION") if c["n_q"] == 262144)
    grouped = next(c for c in cases("FLASH_ATTENTION") if c["kv_heads"] != c["heads"])
    assert causal["causal"]
    assert abs(excess({**causal, "causal": False})[0]) > 0.4
    assert (grouped["heads"], grouped["kv_heads"]) == (32, 8)
    assert 0 <= excess(grouped)[0] < 1e-4


def test_writes_of_cudnn_are_o() -> None:
    """cuDNN spills nothing and writes no LSE in inference: the SMs send O, within 1 %."""
    for case in cases("CUDNN_ATTENTION"):
        if case["n_q"] >= 8192:
            shape = AttentionShape(case["n_q"], case["n_k"], case["head_dim"], heads=case["heads"])
            written = count(family("flash2").build(shape, br=128, bc=128)).write_bytes
            without_lse = written - shape.heads * shape.n_q * 4
            assert case["kernels"][0]["sm_drain"] == pytest.approx(without_lse, rel=0.01)
