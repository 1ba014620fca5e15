"""Decoding and serving: splits and their merge, heads packed into a tile, pages of keys."""

import json
from pathlib import Path
from typing import Any

import naive
import numpy as np
import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st
from test_execute import assert_attention, operands, seeds

from iosim import reference, tolerance
from iosim.bounds import compulsory_words
from iosim.errors import IosimError, ScheduleError
from iosim.plot import decoding
from iosim.precision import precision
from iosim.reading.check import check
from iosim.reading.count import count, total_words
from iosim.reading.execute import execute
from iosim.reading.formula import formula
from iosim.schedule import Schedule, family, load, problem
from iosim.schedule.paging import over_keys
from iosim.shape import AttentionShape
from iosim.verify.exactness import rounding_of

SERVING = ("flash2_packed", "split_kv")
sizes = st.integers(1, 12)


def built(name: str, shape: AttentionShape, **tiles: int) -> Schedule:
    return family(name).build(shape, **tiles)


def non_empty(n_k: int, splits: int) -> int:
    """s, from the definition: the blocks of ceil(n_k / splits) keys that hold a key."""
    rows = -(-n_k // splits)
    return len({key // rows for key in range(n_k)})


# Flash-decoding by hand, for one tile of queries: reads 2 n_k d + s n_q d, then s n_q (d + 1) to
# merge; writes s n_q (d + 1), then n_q (d + 1). With n_q = 1 or a few, and any number of splits.
@given(st.integers(1, 4), st.integers(1, 60), sizes, sizes, st.integers(1, 70), sizes)
def test_split_kv_moves_what_flash_decoding_moves(
    n_q: int, n_k: int, d: int, d_v: int, splits: int, bc: int
) -> None:
    shape = AttentionShape(n_q, n_k, d, value_dim=d_v)
    schedule = built("split_kv", shape, br=n_q, bc=bc, splits=splits)
    s = non_empty(n_k, splits)
    counted = count(schedule)
    assert counted.read_words == n_k * (d + d_v) + s * n_q * d + s * n_q * (d_v + 1)
    assert counted.write_words == s * n_q * (d_v + 1) + n_q * (d_v + 1)
    assert counted.tensors["O_part"].write == counted.tensors["O_part"].read == s * n_q * d_v
    found = formula(schedule)
    assert (found.value("read"), found.value("write")) == (counted.read_words, counted.write_words)


def test_the_formula_is_printed_as_the_literature_has_it() -> None:
    found = formula(built("split_kv", AttentionShape(4, 1000, 64), br=4, bc=100, splits=7))
    assert str(found.words("read")) == "2 T_r n_k d + 2 s n_q d + s n_q"
    assert str(found.words("write")) == "n_q (s d + s + d + 1)"
    assert found.values["s"] == 7


@given(st.integers(1, 3), st.integers(1, 30), st.integers(1, 8), sizes)
def test_more_splits_than_keys_are_as_many_as_keys(n_q: int, n_k: int, more: int, bc: int) -> None:
    shape = AttentionShape(n_q, n_k, 3, dtype="float64")
    as_many = built("split_kv", shape, br=n_q, bc=bc, splits=n_k)
    beyond = built("split_kv", shape, br=n_q, bc=bc, splits=n_k + more)
    assert count(beyond) == count(as_many)
    assert count(beyond).tensors["LSE_part"].write == n_k * n_q
    inputs = operands(shape, 1)
    assert (execute(beyond, *inputs).O == execute(as_many, *inputs).O).all()


@given(strategies.cases(names=("split_kv",), rows=16))
def test_splits_that_nobody_sees_are_skipped(case: strategies.Case) -> None:
    """Under a mask s counts, for each tile of queries, the splits that some row of it sees."""
    shape, tiles = case.shape, case.tiles
    split = -(-shape.n_k // tiles["splits"])
    if "page_size" in tiles:
        split = -(-split // tiles["page_size"]) * tiles["page_size"]
    rows = naive.sums_of(naive.visible_of(shape), tiles["br"], split)[1]
    written = count(case.schedule).tensors["LSE_part"].write
    assert written == shape.batch * shape.heads * rows


@given(strategies.shapes(rows=20), sizes, sizes, st.integers(1, 6), st.integers(1, 25))
def test_packing_divides_the_traffic_of_k_and_v_by_the_heads_in_a_tile(
    shape: AttentionShape, br: int, bc: int, pack: int, splits: int
) -> None:
    """K and V cost ceil(g / pack) sweeps in place of g; Q, O and the statistics cost the same."""
    for name, more in (("flash2_packed", {}), ("split_kv", {"splits": splits})):
        alone = count(built(name, shape, br=br, bc=bc, pack=1, **more))
        packed = count(built(name, shape, br=br, bc=bc, pack=pack, **more))
        for tensor, words in packed.tensors.items():
            if tensor in ("K", "V"):
                assert words.read * shape.group == alone.tensors[tensor].read * -(
                    -shape.group // pack
                )
            else:
                assert words == alone.tensors[tensor]
        whole = count(built(name, shape, br=br, bc=bc, **more))
        assert whole == count(built(name, shape, br=br, bc=bc, pack=shape.group, **more))


@given(strategies.shapes(rows=20), sizes, sizes)
def test_one_head_in_a_tile_is_flash2(shape: AttentionShape, br: int, bc: int) -> None:
    packed = count(built("flash2_packed", shape, br=br, bc=bc, pack=1))
    flash2 = count(built("flash2", shape, br=br, bc=bc))
    assert packed == flash2


@given(
    strategies.shapes(rows=20, masked=False), sizes, sizes, st.integers(1, 24), st.integers(1, 3)
)
def test_pages_add_the_reads_of_the_page_table_and_nothing_else(
    shape: AttentionShape, br: int, bc: int, page_size: int, pack: int
) -> None:
    """Tiles end with pages, which moves no other words of K and V; an entry is one int32."""
    paged = count(built("flash2_packed", shape, br=br, bc=bc, pack=pack, page_size=page_size))
    plain = count(built("flash2_packed", shape, br=br, bc=page_size, pack=pack))
    pairs = naive.sums_of(naive.visible_of(shape), br, page_size)[0]
    entries = shape.batch * shape.kv_heads * -(-shape.group // pack) * pairs
    assert paged.tensors["page_table"].read == entries
    assert paged.items["page_table"] == 4
    if (
        not shape.causal and shape.mask is None
    ):  # under a mask a small tile may end before its page does
        assert paged.total_words == plain.total_words + entries


@given(
    strategies.cases(names=SERVING, rows=14).filter(lambda case: "page_size" in case.tiles),
    seeds,
    st.data(),
)
def test_where_the_pages_lie_makes_no_difference(
    case: strategies.Case, seed: int, data: st.DataObject
) -> None:
    """To the last bit, though what lies beside the pages is NaN; the last page is partly filled."""
    pages = case.shape.batch * -(-case.shape.n_k // case.tiles["page_size"])
    places = data.draw(st.permutations(range(pages + 3)))[:pages]
    inputs = operands(case.shape, seed)
    table = np.array(places).reshape(case.shape.batch, -1)
    scattered = execute(case.schedule, *inputs, page_table=table)
    in_a_row = execute(case.schedule, *inputs)
    assert (scattered.O == in_a_row.O).all()
    assert scattered.traffic == in_a_row.traffic == count(case.schedule)
    assert_attention(scattered, case, inputs)


def test_a_page_table_is_followed() -> None:
    """Two pages exchanged in the table alone: the pool as it was gives another result."""
    shape = AttentionShape(1, 6, 2, dtype="float64", causal=False)
    schedule = built("flash2_packed", shape, br=1, bc=2, page_size=3)
    q, k, v = operands(shape, 3)
    right = execute(schedule, q, k, v, page_table=[[1, 0]])
    wrong = execute(schedule, q, k, np.roll(v, 3, axis=-2), page_table=[[1, 0]])
    assert np.allclose(right.O, reference.attention(q, k, v)[0])
    assert not np.allclose(wrong.O, right.O)


@given(strategies.cases(names=SERVING, rows=20, dtypes=("float16", "float32")), seeds)
def test_the_rounding_of_a_schedule_is_read_off_its_tree(case: strategies.Case, seed: int) -> None:
    """What verify derives the tolerance from is what the splits and tiles are."""
    from test_execute import model

    assert rounding_of(case.schedule) == model(case)


def test_the_tolerance_tells_partial_results_of_half_precision() -> None:
    """Merged from O of the splits rounded to bfloat16, the result is 8 times beyond it."""
    shape = AttentionShape(1, 1024, 64, dtype="float32")
    schedule = built("split_kv", shape, br=1, bc=64, splits=8)
    q, k, v = operands(shape, 5)
    expected, _ = reference.attention(q, k, v)
    allowed, _ = tolerance.elementwise_error(rounding_of(schedule), q, k, v)
    assert tolerance.agrees(execute(schedule, q, k, v).O, expected, allowed)
    cuts = [slice(first, first + 128) for first in range(0, shape.n_k, 128)]
    parts = [reference.attention(q, k[..., cut, :], v[..., cut, :]) for cut in cuts]
    lse = np.array([part[1] for part in parts])
    weights = np.exp(lse - np.logaddexp.reduce(lse, axis=0))[..., None]
    rounded = [precision("bfloat16").round(part[0].astype(np.float32)) for part in parts]
    assert not tolerance.agrees((weights * np.array(rounded)).sum(axis=0), expected, allowed)


@pytest.mark.parametrize("name", SERVING)
@pytest.mark.parametrize("n_q", [1, 4])
def test_decoding_nearly_attains_what_is_compulsory(name: str, n_q: int) -> None:
    """One token of a model with 32 heads on 8 of keys, 64k keys: within 1 % of the least there is.

    K and V are read once and are 99.9 % of the words; flash2 reads them 4 times, once a head.
    """
    shape = AttentionShape(n_q, 65536, 128, heads=32, kv_heads=8, causal=True)
    least = sum(compulsory_words(shape))
    more = {"splits": 8} if name == "split_kv" else {}
    for page_size in ({}, {"page_size": 16}):
        moved = total_words(built(name, shape, br=n_q, bc=64, **more, **page_size))
        assert least <= moved <= 1.01 * least
    unpacked = total_words(built("flash2", shape, br=n_q, bc=64))
    assert unpacked == pytest.approx(4 * least, rel=0.01)


def test_a_prefix_in_the_cache_is_a_shape_that_there_was() -> None:
    """512 new tokens behind 7680 cached ones: n_q < n_k, causal, bottom-right, in pages.

    K and V of the prefix are read by every tile of queries, those of the new tokens by the later
    ones; a prefill of all 8192 that computes the prefix again would move many times as much.
    """
    new, prefix, d, br, page = 512, 7680, 64, 128, 16
    cached = AttentionShape(new, prefix + new, d, causal=True)
    counted = count(built("flash2_packed", cached, br=br, bc=64, page_size=page))
    seen = [prefix + (i + 1) * br for i in range(new // br)]
    assert counted.tensors["K"].read == sum(seen) * d
    assert counted.tensors["page_table"].read == sum(seen) // page
    whole = AttentionShape(prefix + new, prefix + new, d, causal=True)
    again = count(built("flash2_packed", whole, br=br, bc=64, page_size=page))
    assert again.total_words > 8 * counted.total_words


def test_counting_ten_million_keys_takes_no_longer_than_sixteen() -> None:
    """The steps that count takes, counted as lines run and not as time, do not grow with N."""
    import sys

    def steps(n: int, **more: int) -> int:
        shape = AttentionShape(4, n, 128, heads=32, kv_heads=8, causal=True)
        lines = 0

        def tracer(*_: Any) -> Any:
            nonlocal lines
            lines += 1
            return tracer

        sys.settrace(tracer)
        try:
            count(built("split_kv", shape, br=4, bc=64, **more))
        finally:
            sys.settrace(None)
        return lines

    for more in ({"splits": 8}, {"splits": 8, "page_size": 16}):
        assert steps(10**7, **more) < 1.5 * steps(4096, **more)


# What is wrong use, and what it says.
@pytest.mark.parametrize("name", SERVING)
@pytest.mark.parametrize("setting", ["pack", "page_size", "splits"])
@pytest.mark.parametrize("value", [0, -3, 2.5, True])
def test_a_setting_below_one_is_refused(name: str, setting: str, value: Any) -> None:
    if setting not in family(name).settings:
        return
    with pytest.raises(IosimError, match=f"tile size {setting} is {value!r}, but it must be"):
        built(name, AttentionShape(2, 8, 4, heads=2, kv_heads=1), br=1, bc=2, **{setting: value})


PAGED = built("flash2_packed", AttentionShape(1, 6, 2, batch=2), br=1, bc=2, page_size=3)
TABLES = {
    "too few": ([[0, 1]], "page_table holds 2 of int64, but the schedule needs 2 x 2 whole numb"),
    "no whole numbers": ([[0.0, 1.0], [2.0, 3.0]], "page_table holds 4 of float64"),
    "a place twice": ([[0, 1], [1, 2]], "page_table names a place twice or below 0"),
    "a place below 0": ([[0, 1], [-1, 2]], "page_table names a place twice or below 0"),
}


def run_with(table: Any, schedule: Schedule = PAGED) -> None:
    execute(schedule, *operands(schedule.shape, 0), page_table=table)


def unpaged() -> None:
    run_with([[0]], built("flash2", AttentionShape(1, 6, 2), br=1, bc=2))


def outside() -> None:
    p = problem(AttentionShape(1, 6, 2), 1, 2)
    pages, *_ = over_keys(p, 3)
    k = next(n.tensor for n in pages.body[1].body if n.tensor.name == "K")  # type: ignore[union-attr]
    body = p.per_head((*load("load the table", k.table), *load("load K", k)))  # type: ignore[list-item]
    run_with(None, Schedule("x", p.shape, body))


REFUSED = {
    "a table without pages": (unpaged, IosimError, "page_table is given, but flash2 has no page"),
    "pages outside of their loop": (outside, ScheduleError, "load of K, which lies in pages, outs"),
    **{
        why: (lambda table=table: run_with(table), IosimError, says)
        for why, (table, says) in TABLES.items()
    },
}


@pytest.mark.parametrize("why", REFUSED)
def test_wrong_page_tables_are_refused(why: str) -> None:
    run, kind, says = REFUSED[why]
    with pytest.raises(kind, match=says):
        run()


def test_a_page_is_not_loaded_without_its_entry() -> None:
    import trees

    def without_table(node: Any) -> tuple[Any, ...]:
        return () if getattr(getattr(node, "tensor", None), "name", "") == "page_table" else (node,)

    with pytest.raises(ScheduleError, match=r"load uses page_table\[\], which is not resident"):
        check(trees.edited(PAGED, without_table))


# Bytes that hardware counters saw: PyTorch's FlashAttention-2 splits the keys by itself where
# n_q = 1. Grid = heads x non-empty splits; splits are whole tiles of 128 (d = 128) or 256 keys.
MEASURED = Path(__file__).parents[1] / "docs" / "data" / "h200_torch_attention.json"


def measured() -> list[dict[str, Any]]:
    cases = json.loads(MEASURED.read_text(encoding="utf-8"))["cases"]
    return [case for case in cases if "splitkv" in case["kernels"][0]["kernel"]]


@pytest.mark.parametrize("case", measured(), ids=lambda case: f"n_k {case['n_k']}")
def test_bytes_measured_on_an_h200(case: dict[str, Any]) -> None:
    """What both kernels read, and what the merge writes, agrees to the last byte.

    LSE comes in sectors of 32 bytes: each block of the merge reads one for each split and writes
    one, which with 4 rows a block (d = 128) is twice LSE. The split kernel writes 18 % and 35 %
    more than its partial results: about three sectors a block beyond O, of which one is LSE, and
    two we cannot explain.
    """
    heads, d, n_k = case["heads"], case["head_dim"], case["n_k"]
    split_kernel, merge_kernel = case["kernels"]
    s, left = divmod(split_kernel["grid"], heads)
    assert left == 0
    shape = AttentionShape(case["n_q"], n_k, d, heads=heads, dtype=case["dtype"])
    counted = count(built("split_kv", shape, br=1, bc=128, splits=s))
    lines = counted.lines
    partial = counted.tensors["O_part"].write * 4 + counted.tensors["LSE_part"].write * 4
    assert lines["write O_i and LSE_i of the split"].write * 4 == partial
    assert counted.tensors["LSE_part"].write == s * heads
    # The split kernel's reads: K and V once, Q once for each split.
    inputs = 2 * sum(counted.tensors[name].read for name in "QKV")
    assert split_kernel["sm_fill"] == inputs
    # The merge's reads and writes: O, and LSE in sectors.
    sectors = 32 * merge_kernel["grid"]
    assert merge_kernel["sm_fill"] == counted.tensors["O_part"].read * 4 + s * sectors
    assert merge_kernel["sm_drain"] == counted.tensors["O"].write * 2 + sectors
    assert counted.tensors["LSE"].write * 4 in (sectors, sectors // 2)
    # The split kernel's writes: more than the partial results, by less than 4 sectors a block.
    assert 0 < split_kernel["sm_drain"] - partial < 4 * 32 * split_kernel["grid"]


def test_the_figure_shows_what_is_counted() -> None:
    found = decoding.against_splits(decoding.SHAPE, 2, (1, 4))
    for s, words in zip((1, 4), found.words, strict=True):
        assert words == total_words(built("split_kv", found.shape, br=1, bc=7, splits=s, pack=2))
    figure = decoding.draw_decoding()
    left, right = figure.axes
    labels = [line.get_label() for line in left.get_lines()]
    assert labels == ["4 heads in a tile", "2 heads in a tile", "1 head in a tile", "compulsory"]
    level = left.get_lines()[-1].get_ydata()
    assert set(level) == {sum(compulsory_words(decoding.SHAPE))}
    assert [line.get_label() for line in right.get_lines()] == [
        "$n_k$ = 4k", "$n_k$ = 64k", "$n_k$ = 1M",
    ]  # fmt: skip
    assert all(ax.get_xlabel() and ax.get_ylabel() for ax in figure.axes)
