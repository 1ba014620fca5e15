"""Masks as people write them and as shapes carry them: text, files, long axes, commands."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import naive
import numpy as np
import pytest
import strategies
from click.testing import CliRunner, Result
from hypothesis import assume, given
from hypothesis import strategies as st

from iosim import bounds
from iosim.cli import main
from iosim.errors import IosimError
from iosim.reading.count import count
from iosim.reading.unmet import unmet_words
from iosim.schedule import Causal, Dim, family
from iosim.schedule.masks import (
    BlockMask,
    Butterfly,
    Documents,
    LocalGlobal,
    Random,
    Window,
    parse_mask,
)
from iosim.schedule.relation import PairSums, Relation, relation_of
from iosim.shape import AttentionShape, Mask

SHAPE = AttentionShape(8, 8, 4)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def sums(shape: AttentionShape, br: int, bc: int) -> PairSums:
    relation = relation_of(shape)
    assert relation is not None
    return relation.sums(Dim("query", shape.n_q, br), Dim("key", shape.n_k, bc))


@pytest.mark.parametrize(
    ("text", "mask"),
    [
        ("window:256", Window(256, 256)),
        ("window:1k,0", Window(1024, 0)),
        ("local+global:3,global=2", LocalGlobal(3, 3, 2)),
        ("local+global:3,0,global=2", LocalGlobal(3, 0, 2)),
        ("documents:100,300,1k", Documents((100, 300, 1024))),
        ("butterfly:128", Butterfly(128)),
        ("random:0.25,block=64", Random(0.25, 64)),
        ("random:0.25,seed=3,block=64", Random(0.25, 64, 3)),
    ],
)
def test_masks_as_people_write_them(text: str, mask: Mask) -> None:
    assert parse_mask(text) == mask
    assert parse_mask(str(mask)) == mask


@given(strategies.shapes(masked=True))
def test_the_text_of_a_mask_states_it(shape: AttentionShape) -> None:
    assume(not isinstance(shape.mask, BlockMask))
    assert parse_mask(str(shape.mask)) == shape.mask


def test_a_file_of_blocks(tmp_path: Path) -> None:
    file = tmp_path / "a,block=3.npy"
    np.save(file, np.array([[1, 0, 2], [0, 0, 1]]))
    mask = parse_mask(f"{file},block=4x3")
    assert str(mask) == f"{file},block=4x3"
    assert parse_mask(str(mask)) == mask
    assert hash(parse_mask(str(mask))) == hash(mask)
    shape = AttentionShape(7, 9, 4, mask=mask)
    expected = np.repeat(np.repeat([[1, 0, 1], [0, 0, 1]], 3, axis=1), 4, axis=0)[:7]
    assert (naive.visible_of(shape) == expected.astype(bool)).all()
    assert bounds.visible_pairs(shape) == expected.sum()
    np.save(file, np.ones((2, 2), bool))
    assert str(parse_mask(f"{file},block=4")).endswith(",block=4")


@given(
    st.integers(1, 60), st.integers(1, 60), st.fractions(0, 1), st.integers(1, 9), st.integers(0, 5)
)
def test_blocks_at_random_are_exactly_so_many(
    n_q: int, n_k: int, density: Fraction, block: int, seed: int
) -> None:
    mask = Random(float(density), block, seed)
    rows, columns = mask.relation(AttentionShape(n_q, n_k, 1)).cells.entries()
    cells = -(-n_q // block) * -(-n_k // block)
    assert len(rows) == len(set(zip(rows, columns, strict=True))) == round(float(density) * cells)


def test_other_seeds_are_other_blocks() -> None:
    shapes = [AttentionShape(64, 64, 1, mask=Random(0.5, 4, seed)) for seed in (0, 0, 1)]
    matrices = [np.array(naive.visible_of(shape)) for shape in shapes]
    assert (matrices[0] == matrices[1]).all()
    assert (matrices[0] != matrices[2]).any()


long = st.integers(1, 10**12)
blocks = st.integers(1, 10**6)


@given(long, long, blocks, blocks, st.sampled_from(["bottom-right", "top-left"]), st.data())
def test_a_window_over_all_keys_before_is_causal(
    n_q: int, n_k: int, br: int, bc: int, align: Any, data: st.DataObject
) -> None:
    shape = AttentionShape(n_q, n_k, 1, align=align, mask=Window(n_q + n_k, 0))
    query, key = Dim("query", n_q, br), Dim("key", n_k, bc)
    mask, causal = relation_of(shape), Causal(shape.causal_offset)
    assert mask is not None
    assert mask.sums(query, key) == causal.sums(query, key)
    i = data.draw(st.integers(0, query.blocks - 1))
    assert mask.key_range(query, key, i) == causal.key_range(query, key, i)
    j = data.draw(st.integers(0, key.blocks - 1))
    assert list(mask.query_range(query, key, j)[:3]) == list(causal.query_range(query, key, j)[:3])


@given(st.integers(1, 10**12), st.integers(0, 10**12), st.integers(0, 10**12))
def test_pairs_of_a_window_are_a_band_with_its_corners_cut_off(
    n: int, left: int, right: int
) -> None:
    left, right = min(left, n - 1), min(right, n - 1)
    shape = AttentionShape(n, n, 1, mask=Window(left, right))
    corners = left * (left + 1) // 2 + right * (right + 1) // 2
    assert bounds.visible_pairs(shape) == n * (left + right + 1) - corners


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=30), st.booleans())
def test_pairs_of_documents_are_squares_or_triangles(lengths: list[int], causal: bool) -> None:
    n = sum(lengths)
    shape = AttentionShape(n, n, 1, causal=causal, mask=Documents(tuple(lengths)))
    expected = sum(length * (length + 1) // 2 if causal else length**2 for length in lengths)
    assert bounds.visible_pairs(shape) == expected


@given(st.integers(1, 10**9), st.integers(0, 10**9), st.integers(1, 10**9))
def test_pairs_of_a_window_with_sinks(n: int, left: int, tokens: int) -> None:
    """A triangle, but for what lies before the window and after the first tokens."""
    left, tokens = min(left, n - 1), min(tokens, n)
    shape = AttentionShape(n, n, 1, causal=True, mask=LocalGlobal(left, 0, tokens))

    def triangle(m: int) -> int:
        return m * (m + 1) // 2 if m > 0 else 0

    # Hidden: c < r - left where neither r nor c is among the tokens, a smaller triangle.
    expected = triangle(n) - triangle(n - left - 1 - tokens)
    assert bounds.visible_pairs(shape) == expected


def test_ten_million_rows_are_counted_in_closed_form() -> None:
    """Words of flash2 with 1 x 1 tiles: 2d for each visible pair, 2d + 1 for each query."""
    n, d = 10**7, 64
    for mask, causal, pairs in (
        (Window(4096, 0), False, n * 4097 - 4096 * 4097 // 2),
        (Documents((n // 4,) * 4), True, 4 * (n // 4) * (n // 4 + 1) // 2),
        (LocalGlobal(0, 0, 1), False, 3 * n - 2),
        (Random(0.25, n // 10, seed=1), False, 25 * (n // 10) ** 2),
    ):
        shape = AttentionShape(n, n, d, causal=causal, mask=mask)
        traffic = count(family("flash2").build(shape, br=1, bc=1))
        assert traffic.total_words == 2 * d * pairs + n * (2 * d + 1)


def test_rows_that_see_nothing_are_noted_once(tmp_path: Path) -> None:
    file = tmp_path / "mask.npy"
    np.save(file, np.array([[1, 1], [0, 0]]))
    arguments = ("--seq-len", "64", "--head-dim", "8,16", "--br", "8", "--bc", "8")
    result = run(
        "simulate", *arguments, "--mask", f"{file},block=32", "--schedule", "flash1,flash2"
    )
    assert result.exit_code == 0, result.output
    assert result.stderr == (
        "note: 32 of 64 queries see no key; their O is 0 and their LSE is -inf\n"
    )
    assert run("simulate", *arguments, "--mask", "window:3").stderr == ""


def test_a_record_says_its_mask() -> None:
    arguments = ("--seq-len", "64", "--head-dim", "8", "--br", "8", "--bc", "8", "--format", "json")
    for command in ("simulate", "bound", "tiles"):
        memory = ("--sram", "999w") if command != "simulate" else ()
        masked = run(command, *arguments, *memory, "--mask", "window:3,0", "--schedule", "flash2")
        plain = run(command, *arguments, *memory, "--causal", "--schedule", "flash2")
        for result, mask, causal in ((masked, "window:3,0", False), (plain, None, True)):
            assert result.exit_code == 0, result.output
            (record, *_) = json.loads(result.stdout)["records"]
            assert (record["mask"], record["causal"]) == (mask, causal)


def test_explain_under_a_mask_is_algorithm_5() -> None:
    page = run(
        *("explain", "--schedule", "flash1", "--seq-len", "64", "--head-dim", "8"),
        *("--br", "8", "--bc", "8", "--mask", "butterfly:8"),
    ).stdout
    lines = [line[3:].strip() for line in page.splitlines()]
    assert lines.index("if M_ij != 0 then") == lines.index("for 1 <= i <= T_r do") + 1
    assert "mask butterfly:8" in page
    assert "reads K: n_k d = 512 words" in page
    plain = run(*("explain", "--seq-len", "64", "--head-dim", "8", "--br", "8", "--bc", "8")).stdout
    assert "M_ij" not in plain


@given(strategies.shapes(rows=20, masked=True), st.integers(1, 9), st.integers(1, 9))
def test_words_of_tiles_that_meet_nothing(shape: AttentionShape, br: int, bc: int) -> None:
    """flash1 loads K_j and V_j of each of them, flash2 Q_i."""
    met = np.array(naive.met_blocks(naive.visible_of(shape), br, bc))
    queries, keys = (
        sum(b - a for (a, b), any_met in zip(naive.cut(n, block), some, strict=True) if not any_met)
        for n, block, some in ((shape.n_q, br, met.any(1)), (shape.n_k, bc, met.any(0)))
    )
    width = shape.head_dim + shape.value_dim
    for name, line, words in (
        ("flash1", "load K_j, V_j", shape.heads * keys * width),
        ("flash2", "load Q_i", shape.heads * queries * shape.head_dim),
    ):
        schedule = family(name).build(shape, br=br, bc=bc)
        assert unmet_words(schedule) == ({line: shape.batch * words} if words else {})


def test_explain_tells_the_words_of_empty_columns(tmp_path: Path) -> None:
    file = tmp_path / "mask.npy"
    np.save(file, np.array([[1, 0], [1, 0]]))
    page = run(
        *("explain", "--seq-len", "64", "--head-dim", "8", "--br", "8", "--bc", "8"),
        *("--mask", f"{file},block=32"),
    ).stdout
    assert "512 of these words are of tiles that the mask hides" in page  # 32 rows of K and V


@pytest.mark.parametrize("command", ["simulate", "explain", "bound", "tiles", "plot"])
def test_a_mask_of_another_shape_is_one_sentence(command: str) -> None:
    what = ("tiles", "-o", "never.svg") if command == "plot" else ()
    result = run(
        *(command, *what, "--seq-len", "64", "--head-dim", "8", "--sram", "999w"),
        *("--mask", "documents:30,30"),
    )
    assert result.exit_code == 2
    assert result.stderr == (
        "Error: the documents have 60 rows together, but the shape has 64 queries and 64 keys; "
        "all three must be the same\n"
    )


@pytest.mark.parametrize("name", ["flash1", "flash2"])
def test_a_mask_without_a_kernel_is_refused(name: str) -> None:
    from iosim.gpu.plan import launches

    shape = AttentionShape(64, 64, 64, mask=Window(8, 8))
    schedule = family(name).build(shape, br=64, bc=64)
    with pytest.raises(IosimError, match="mask window:8,8 has no GPU kernel"):
        launches(schedule)


def test_a_mask_may_be_of_any_family() -> None:
    """A mask of one's own is a class with a relation; nothing in iosim lists them."""

    class Antidiagonal:
        grain = (1, 1)

        def relation(self, shape: AttentionShape) -> Relation:
            matrix = np.eye(shape.n_q, dtype=bool)[::-1]
            return BlockMask.of(matrix, 1).relation(shape)

    shape = AttentionShape(9, 9, 4, mask=Antidiagonal())
    assert bounds.visible_pairs(shape) == 9
    assert (
        count(family("flash2").build(shape, br=2, bc=2)).tensors["K"].read
        == (3 + 4 + 4 + 4 + 2) * 4
    )
