"""Reading and writing of counts, sweeps and memory sizes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iosim import units
from iosim.errors import IosimError
from iosim.units import MemorySize

counts = st.integers(1, 10**15)
item_sizes = st.sampled_from(sorted(set(units.ITEM_BYTES.values())))
names = st.text(st.characters(codec="ascii", categories=["Ll", "Nd"]), min_size=3, max_size=12)


@given(counts)
def test_count_round_trips_plain_and_grouped(n: int) -> None:
    assert units.parse_count(str(n)) == n
    assert units.parse_count(f"{n:_}") == n
    assert units.parse_count(units.format_count(n).replace(" ", "_")) == n


@given(st.integers(1, 10**6), st.sampled_from([("k", 1024), ("K", 1024), ("m", 1024**2)]))
def test_k_and_m_are_binary_in_counts(n: int, unit: tuple[str, int]) -> None:
    letter, factor = unit
    assert units.parse_count(f"{n}{letter}") == n * factor


@pytest.mark.parametrize(
    "text", ["", "k", "8q", "8 k", "1.5k", "-3", "1__0", "_1", "1e6", "8kk", "٣", "8K\u200b"]
)
def test_other_counts_are_refused_with_the_text_quoted(text: str) -> None:
    with pytest.raises(IosimError, match="is not a count") as caught:
        units.parse_count(text)
    assert f"'{text}'" in str(caught.value)


def test_count_below_the_minimum_names_the_minimum() -> None:
    with pytest.raises(IosimError, match=r"'0' is too small; the least is 1$"):
        units.parse_count("0")
    assert units.parse_count("0", minimum=0) == 0


@pytest.mark.parametrize("parse", [units.parse_count, units.parse_sweep])
def test_the_largest_count_is_the_length_of_the_longest_range(parse: Any) -> None:
    assert len(range(units.parse_count(str(units.MAX_COUNT)))) == units.MAX_COUNT
    for text in (str(units.MAX_COUNT + 1), f"{units.MAX_COUNT}k", "9" * 5000):
        with pytest.raises(IosimError, match=r"is too large; the most is 9223372036854775807$"):
            parse(text)


@given(st.lists(counts, min_size=1, max_size=20))
def test_sweep_of_single_values_round_trips(values: list[int]) -> None:
    assert units.parse_sweep(",".join(map(str, values))) == tuple(values)


@given(st.integers(1, 10**6), st.integers(0, 500), st.integers(1, 1000), st.integers(0, 10**6))
def test_additive_range_is_pythons_range(first: int, n: int, step: int, beyond: int) -> None:
    last = first + n * step + beyond % step
    expected = tuple(range(first, last + 1, step))
    assert units.parse_sweep(f"{first}..{last}:+{step}") == expected
    assert len(expected) == n + 1


@given(st.integers(1, 1000), st.integers(0, 12), st.integers(2, 9), st.integers(0, 10**6))
def test_geometric_range_multiplies_up_to_the_last(
    first: int, n: int, factor: int, beyond: int
) -> None:
    last = first * factor**n
    last += beyond % (last * (factor - 1))
    values = units.parse_sweep(f"{first}..{last}:x{factor}")
    assert values == tuple(first * factor**i for i in range(n + 1))


def test_ranges_of_the_documentation() -> None:
    assert units.parse_sweep("1k..64k:x2") == tuple(1024 * 2**i for i in range(7))
    assert units.parse_sweep("1..9:+2") == (1, 3, 5, 7, 9)
    assert units.parse_sweep("0..4:x2", minimum=0) == (0, 1, 2, 4)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("1k..64k", "is not a range; write first..last:x2"),
        ("1k...64k:x2", "is not a range"),
        ("..4:x2", "is not a range"),
        ("1..2..3:x2", "is not a range"),
        ("8..4:x2", "runs downwards"),
        ("1..8:x1", "'1' is too small; the least is 2"),
        ("1..8:+0", "'0' is too small"),
        ("1,,2", "'' is not a count"),
        ("1..1000m:+1", "lists more than 10000 values"),
        ("1..10000:+1,5", "lists more than 10000 values"),
    ],
)
def test_other_sweeps_are_refused(text: str, complaint: str) -> None:
    with pytest.raises(IosimError, match=complaint.replace("..", r"\.\.")):
        units.parse_sweep(text)


@given(st.builds(MemorySize, counts, st.sampled_from(["words", "bytes"])))
def test_memory_size_round_trips_through_its_text(size: MemorySize) -> None:
    assert units.parse_memory_size(str(size)) == size


@given(st.integers(1, 10**9), st.sampled_from("kmg"), st.booleans())
def test_decimal_and_binary_prefixes(n: int, prefix: str, upper: bool) -> None:
    power = "kmg".index(prefix) + 1
    decimal, binary = f"{n}{prefix}B", f"{n}{prefix}iB"
    if upper:
        decimal, binary = decimal.upper(), binary.upper()
    assert units.parse_memory_size(decimal) == MemorySize(n * 1000**power, "bytes")
    assert units.parse_memory_size(binary) == MemorySize(n * 1024**power, "bytes")


def test_memory_sizes_of_the_documentation() -> None:
    assert units.parse_memory_size("25600w") == MemorySize(25600, "words")
    assert units.parse_memory_size("64kw") == MemorySize(65536, "words")
    assert units.parse_memory_size("1.5 KiB") == MemorySize(1536, "bytes")
    assert units.parse_memory_size("100KiB").words(units.ITEM_BYTES["float32"]) == 25600
    assert units.parse_memory_size("192KB").amount == 192_000


@given(counts, item_sizes)
def test_words_of_bytes_are_those_that_fit_whole(amount: int, item: int) -> None:
    words = MemorySize(amount, "bytes").words(item)
    assert words * item <= amount < (words + 1) * item
    assert MemorySize(amount, "words").words(item) == amount


@pytest.mark.parametrize("text", ["25600", "100k", "1_000"])
def test_memory_without_unit_says_what_to_write(text: str) -> None:
    with pytest.raises(IosimError, match=r"has no unit; write 25600w for words or 100KiB"):
        units.parse_memory_size(text)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is not a memory size"),
        ("100KiBs", "is not a memory size"),
        ("100kbit", "is not a memory size"),
        ("-1KiB", "is not a memory size"),
        ("1.5w", "is not a number of words"),
        ("w", "is not a number of words"),
        ("0.3KiB", "is not a whole number of bytes"),
        ("0KiB", "holds nothing"),
        ("0w", "holds nothing"),
        ("9223372036854775808w", "too large; the most is"),
        ("9000000000GiB", "too large; the most is"),
        ("9" * 5000 + "w", "too large; the most is"),
        ("9" * 5000 + ".5KiB", "too large; the most is"),
    ],
)
def test_other_memory_sizes_are_refused(text: str, complaint: str) -> None:
    with pytest.raises(IosimError, match=complaint) as caught:
        units.parse_memory_size(text)
    assert f"'{text}'" in str(caught.value)


@given(st.integers(-(10**18), 10**18))
def test_format_bytes_keeps_the_exact_number(n: int) -> None:
    exact = units.format_bytes(n).split("(")[-1].removesuffix(")").removesuffix(" B")
    assert int(exact.replace(" ", "")) == n


@pytest.mark.parametrize(
    ("n", "text"),
    [
        (0, "0 B"),
        (1023, "1 023 B"),
        (1024, "1 KiB (1 024 B)"),
        (1024**2 - 1, "1024 KiB (1 048 575 B)"),
        (62914560, "60 MiB (62 914 560 B)"),
        (-2048, "-2 KiB (-2 048 B)"),
    ],
)
def test_format_bytes_by_example(n: int, text: str) -> None:
    assert units.format_bytes(n) == text


@given(st.lists(names, min_size=1, unique=True), st.data())
def test_a_name_is_closest_to_itself_in_any_case(known: list[str], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(known))
    assert units.closest(name.upper(), known) == name


def test_unknown_names_the_kind_the_value_and_the_known() -> None:
    with pytest.raises(IosimError, match=r"^unknown dtype 'fp16'; did you mean 'float16'\? known:"):
        units.item_bytes("fp16")
    assert units.unknown("device", "zzz", ["A100"]) == "unknown device 'zzz'; known: A100"


@given(st.floats(0, 1, exclude_max=True))
def test_a_probability_is_read_as_it_is_written(p: float) -> None:
    assert units.parse_probability(repr(p)) == p


@pytest.mark.parametrize("text", ["1", "-0.1", "nan", "inf", "10%", "", "0,1"])
def test_what_is_no_probability_below_one_is_refused(text: str) -> None:
    with pytest.raises(IosimError, match=r"is not a number from 0 up to, but not including, 1"):
        units.parse_probability(text)


def test_the_types_of_operands_have_sizes_and_those_of_masks_are_none() -> None:
    assert [units.item_bytes(dtype) for dtype in units.DTYPES] == [2, 2, 4, 8]
    with pytest.raises(IosimError, match="unknown dtype 'uint8'"):
        units.item_bytes("uint8")
