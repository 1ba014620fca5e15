"""What schedules keep in slow memory, and the longest sequence that it holds."""

import json
from dataclasses import replace
from math import isqrt

import numpy as np
import pytest
import strategies
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from iosim.cli import main
from iosim.longest import longest
from iosim.machine import machine
from iosim.precision import precision
from iosim.reading import execute as execution
from iosim.reading.slow_arrays import SlowArrays
from iosim.reading.slow_memory import SlowMemory, slow_memory
from iosim.schedule import families, family
from iosim.schedule.masks import Documents, Window
from iosim.schedule.tree import Move, nodes
from iosim.shape import AttentionShape

SHAPE = AttentionShape(1024, 1024, 64)


def of(name: str, shape: AttentionShape, size: int = 16) -> SlowMemory:
    known = family(name)
    return slow_memory(known.build(shape, **dict.fromkeys(known.tiles, size)))


@given(strategies.cases(rows=20, width=6, dropout=(0.0, 0.5)))
def test_it_is_what_an_execution_sets_aside(case: strategies.Case) -> None:
    """Every array that `execute` keeps in slow memory, in words and in bytes of its dtype.

    Without pages, whose last one an execution sets aside whole.
    """
    tiles = {name: size for name, size in case.tiles.items() if name != "page_size"}
    schedule = replace(case, tiles=tiles).schedule
    inputs = {
        name: np.zeros([dim.n for dim in tensor.axes])
        for name, tensor in execution.inputs_of(schedule).items()
    }
    arrays = SlowArrays(schedule, inputs, precision(case.shape.dtype), None)._arrays
    places = {
        node.tensor.name: node.tensor.place
        for node, _ in nodes(schedule.body)
        if isinstance(node, Move)
    }
    found = slow_memory(schedule)
    size = dict.fromkeys(("input", "output", "slow"), 0)
    for name, array in arrays.items():
        size[places[name]] += array.nbytes
    assert (found.input_bytes, found.output_bytes, found.extra_bytes) == tuple(size.values())
    assert found.total_bytes == sum(array.nbytes for array in arrays.values())
    extra = {name: a.size for name, a in arrays.items() if places[name] == "slow"}
    assert found.extra_tensors == extra
    assert found.extra_words == sum(extra.values())
    narrow = {name for name in ("LSE", "seed", "offset") if places.get(name) == "output"}
    assert found.kept_bytes == sum(arrays[name].nbytes for name in narrow)


@given(
    strategies.shapes(rows=10**6, width=256, masked=False),
    st.integers(1, 200),
    st.sampled_from(
        ["standard", "standard_passes", "standard_tiled", "square_tiling", "flash1", "flash2"]
    ),
)
def test_the_extra_by_hand(shape: AttentionShape, size: int, name: str) -> None:
    """S and P are N^2 of the shape's dtype, statistics N of float32, whatever the tiles."""
    heads = shape.batch * shape.heads
    pairs, rows = heads * shape.n_q * shape.n_k, heads * shape.n_q
    statistic = 8 if shape.dtype == "float64" else 4
    expected = {
        "standard": (2 * pairs, 0),
        "standard_passes": (2 * pairs, 0),
        "standard_tiled": (2 * pairs, 0),
        "square_tiling": (pairs, 2 * rows),
        "flash1": (0, 2 * rows),
        "flash2": (0, 0),
    }
    found = of(name, shape, size)
    scores, statistics = expected[name]
    assert found.extra_words == scores + statistics
    assert found.extra_bytes == scores * shape.item_bytes + statistics * statistic
    assert found.kept_words == (rows if name == "flash2" else 0)


@given(
    st.sampled_from(list(families())),
    strategies.shapes(rows=50, width=20, masked=False),
    st.integers(1, 10**13),
    st.booleans(),
)
def test_the_longest_fits_and_one_row_more_does_not(
    name: str, shape: AttentionShape, capacity: int, square: bool
) -> None:
    if square:
        shape = replace(shape, n_k=shape.n_q)
    known = family(name)
    sizes = dict.fromkeys(known.tiles, 7)
    rows = longest(known, shape, sizes, capacity)
    assert rows is not None

    def total(n: int) -> int:
        both = {"n_q": n, "n_k": n} if shape.n_q == shape.n_k else {"n_k": n}
        return slow_memory(known.build(replace(shape, **both), **sizes)).total_bytes

    assert rows == 0 or total(rows) <= capacity
    assert total(rows + 1) > capacity


def test_an_h200_by_hand() -> None:
    """4 N^2 + 8 N d bytes of float16 against 141 GB; with FlashAttention-2 8 N d + 4 N."""
    capacity = machine("H200").hbm_bytes
    n = isqrt(capacity // 4)
    while 4 * n * n + 8 * n * 64 > capacity:
        n -= 1
    assert longest(family("standard"), SHAPE, {}, capacity) == n == 187_685
    tiles = {"br": 64, "bc": 64}
    assert longest(family("flash2"), SHAPE, tiles, capacity) == capacity // (8 * 64 + 4)


def test_too_little_for_one_row_is_a_length_of_nothing() -> None:
    assert longest(family("standard"), SHAPE, {}, 511) == 0
    assert longest(family("standard"), SHAPE, {}, 512 + 4) == 1


def test_what_cannot_be_longer_has_no_longest() -> None:
    fixed = replace(family("standard"), build=fixed_rows)
    assert longest(fixed, SHAPE, {}, 10**9) is None


def test_a_mask_for_so_many_rows_has_no_longest() -> None:
    documents = replace(SHAPE, mask=Documents((1000, 24)))
    assert longest(family("standard"), documents, {}, 10**9) is None
    window = replace(SHAPE, mask=Window(8, 8))
    assert longest(family("standard"), window, {}, 10**9) == 15_747


def fixed_rows(shape: AttentionShape) -> object:
    from iosim.errors import IosimError

    if shape.n_k != 1024:
        raise IosimError("the mask is for 1024 keys")
    return family("standard").build(shape)


# On the command line


def run(*arguments: str) -> Result:
    return CliRunner().invoke(
        main, ["simulate", "--seq-len", "1k", "--head-dim", "64", *arguments]
    )  # fmt: skip


def test_records_hold_the_extra_with_and_without_a_size_of_slow_memory() -> None:
    for options, length in (((), None), (("--hbm", "80GB"), 141_357), (("--hbm", "1KB"), 1)):
        result = run("--schedule", "standard", "--format", "json", *options)
        (record,) = json.loads(result.stdout)["records"]
        assert record["extra_slow_words"] == 2 * 1024**2
        assert record["extra_slow_bytes"] == 4 * 1024**2
        assert record["slow_input_bytes"] == 3 * 1024 * 64 * 2
        assert record["slow_bytes"] == 4 * 1024**2 + 4 * 1024 * 64 * 2
        assert record["longest_seq_len"] == length


def test_a_second_table_needs_a_size_of_slow_memory() -> None:
    given = ("--schedule", "flash2", "--sram", "100KiB")
    assert "slow memory" not in run(*given).stdout
    assert "slow memory of 80 000 000 000 bytes\n" in run(*given, "--hbm", "80GB").stdout
    device = run("--schedule", "flash2", "--device", "H200").stdout
    assert "slow memory of 141 000 000 000 bytes\n" in device
    assert "longest_seq_len" in device
    both = run("--schedule", "flash2", "--device", "H200", "--hbm", "1GB").stdout
    assert "slow memory of 1 000 000 000 bytes\n" in both


@pytest.mark.parametrize(
    ("size", "named"),
    [
        ("100w", ["'100w' counts words", "80GB"]),
        ("80", ["'80' has no unit"]),
        ("0GB", ["'0GB' holds nothing"]),
        ("much", ["'much' is not a memory size"]),
    ],
)
def test_a_size_that_is_none_is_one_sentence(size: str, named: list[str]) -> None:
    result = run("--hbm", size)
    assert (result.exit_code, result.stdout) == (2, "")
    assert len(result.stderr.splitlines()) == 1
    for text in (*named, "--hbm"):
        assert text in result.stderr
