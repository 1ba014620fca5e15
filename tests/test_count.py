"""The closed-form count against a whole run, block by block."""

from dataclasses import replace

import naive
import strategies
from hypothesis import given
from hypothesis import strategies as st

from iosim.reading.count import count, total_words
from iosim.reading.traffic import Traffic, Words
from iosim.schedule import families, family
from iosim.shape import AttentionShape

DIRECTIONS = ("read", "write", "add", "interconnect")
WAYS = ("read_words", "write_words", "add_words", "send_words", "receive_words", "flops")


def by_direction(words: dict[str, Words]) -> dict[tuple[str, str], int]:
    """Words by (name, direction), those of no words left out, as `naive.Run` has them."""
    return {
        (name, direction): moved
        for name, entry in words.items()
        for direction in DIRECTIONS
        if (moved := getattr(entry, direction))
    }


def assert_same(traffic: Traffic, run: naive.Run) -> None:
    """Word for word, byte for byte, FLOP for FLOP."""
    assert by_direction(traffic.tensors) == {k: v for k, v in run.tensors.items() if v}
    assert by_direction(traffic.lines) == {k: v for k, v in run.lines.items() if v}
    assert traffic.read_bytes == run.bytes["read"]
    assert traffic.write_bytes == run.bytes["write"]
    assert traffic.add_bytes == run.bytes["add"]
    assert (traffic.peak_words, traffic.peak_bytes) == (run.peak_words, run.peak_bytes)
    assert traffic.interconnect_bytes == run.bytes["interconnect"]
    assert traffic.flops == run.flops
    shares = {
        (rank, way.removesuffix("_words")): amount
        for rank, share in enumerate(traffic.ranks)
        for way in WAYS
        if (amount := getattr(share, way))
    }
    assert shares == {at: amount for at, amount in run.shares.items() if amount}


@given(strategies.cases())
def test_count_is_a_whole_run(case: strategies.Case) -> None:
    schedule = case.schedule
    assert_same(count(schedule), naive.Run(schedule))


@given(strategies.cases(rows=40, width=2, heads=False))
def test_count_is_a_whole_run_of_more_blocks(case: strategies.Case) -> None:
    schedule = case.schedule
    assert_same(count(schedule), naive.Run(schedule))


@given(strategies.cases(heads=False), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3))
def test_batch_and_heads_multiply(
    case: strategies.Case, batch: int, kv_heads: int, group: int
) -> None:
    """One head is the unit: nothing is shared, but for K, V, dK, dV in a backward pass.

    Where heads may be packed into a tile, each is here in a tile of its own.
    """
    group = 1 if case.name in strategies.BACKWARD else group
    alone = {"pack": 1} if "pack" in case.tiles else {}
    many = replace(case.shape, batch=batch, heads=kv_heads * group, kv_heads=kv_heads)
    one = count(case.schedule)
    all_of_them = count(families()[case.name].build(many, **(case.tiles | alone)))
    times = batch * kv_heads * group
    for direction in ("read_words", "write_words", "total_words", "read_bytes", "total_bytes"):
        assert getattr(all_of_them, direction) == times * getattr(one, direction)
    assert all_of_them.flops == times * one.flops
    assert all_of_them.peak_words == one.peak_words


@given(strategies.cases())
def test_the_sums_of_a_traffic_agree(case: strategies.Case) -> None:
    traffic = count(case.schedule)
    assert traffic.total_words == traffic.read_words + traffic.write_words + traffic.add_words
    assert traffic.total_bytes == traffic.read_bytes + traffic.write_bytes + traffic.add_bytes
    assert traffic.total_words == total_words(case.schedule)
    assert traffic.total_words == sum(words.total for words in traffic.lines.values())
    told = traffic.to_dict()
    for name in ("read_words", "total_words", "read_bytes", "peak_words", "peak_bytes", "flops"):
        assert told[name] == getattr(traffic, name)
    for name, words in told["tensors"].items():
        found = traffic.tensors[name]
        added = {"add_words": found.add} if found.add else {}
        sent = {"interconnect_words": found.interconnect} if found.interconnect else {}
        assert words == {"read_words": found.read, "write_words": found.write, **added, **sent}


@given(st.integers(1, 10**9), st.integers(1, 10**9), st.integers(1, 512))
def test_single_rows_under_a_causal_mask_at_any_length(n_q: int, n_k: int, d: int) -> None:
    """1 x 1 tiles and n_k >= n_q: row r meets r + 1 + n_k - n_q keys. A sum of whole numbers."""
    n_q, n_k = min(n_q, n_k), max(n_q, n_k)
    shape = AttentionShape(n_q, n_k, d, causal=True)
    pairs = n_q * (n_k - n_q) + n_q * (n_q + 1) // 2
    flash2 = count(family("flash2").build(shape, br=1, bc=1))
    assert flash2.read_words == n_q * d + pairs * 2 * d
    assert flash2.write_words == n_q * (d + 1)
    flash1 = count(family("flash1").build(shape, br=1, bc=1))
    assert flash1.read_words == n_k * 2 * d + pairs * (2 * d + 2)
    assert flash1.write_words == n_q * (d + 2) + pairs * (d + 2)


def test_a_billion_rows_are_exact_to_the_last_word() -> None:
    n = 10**9
    traffic = count(family("flash2").build(AttentionShape(n, n, 64, causal=True), br=1, bc=1))
    assert traffic.read_words == 64 * n + 128 * (n * (n + 1) // 2)
    assert traffic.read_words == 64_000_000_128_000_000_000
    assert traffic.write_words == 65 * n
    assert traffic.peak_words == 4 * 64 + 3


@given(strategies.cases(names=("standard", "standard_tiled"), causal=True))
def test_standard_attention_skips_nothing_under_a_mask(case: strategies.Case) -> None:
    whole = families()[case.name].build(replace(case.shape, causal=False), **case.tiles)
    assert count(case.schedule) == count(whole)
