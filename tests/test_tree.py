"""The tree itself: axes, listings, and the trees that are refused when they are built."""

from collections.abc import Callable
from itertools import pairwise

import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st

from iosim.errors import IosimError, ScheduleError
from iosim.schedule import (
    Causal,
    Compute,
    Dim,
    For,
    Move,
    Schedule,
    Tensor,
    families,
    free,
    load,
    problem,
)
from iosim.schedule.listing import line_numbers, listing
from iosim.schedule.tree import nodes
from iosim.shape import AttentionShape

SHAPE = AttentionShape(8, 6, 4, value_dim=3)
P = problem(SHAPE, br=2, bc=3)


@given(st.integers(1, 50), st.integers(1, 60))
def test_blocks_tile_the_axis(n: int, block: int) -> None:
    dim = Dim("query", n, block)
    ranges = [dim.range(i) for i in range(dim.blocks)]
    assert [row for first, stop in ranges for row in range(first, stop)] == list(range(n))
    assert [stop - first for first, stop in ranges] == [dim.rows(i) for i in range(dim.blocks)]
    assert all(rows == block for rows in map(dim.rows, range(dim.blocks - 1)))


def test_an_axis_of_no_block_is_one_block() -> None:
    dim = Dim("pages", 7)
    assert (dim.blocks, dim.rows(0), dim.symbol, dim.count) == (1, 7, "n_pages", "T_pages")
    assert dim.cut(2) == Dim("pages", 7, 2)
    assert dim.cut(2, "T_p").count == "T_p"


@given(strategies.cases())
def test_every_line_is_in_the_listing_once_in_a_row(case: strategies.Case) -> None:
    schedule = case.schedule
    lines = listing(schedule)
    assert [line.number for line in lines] == list(range(1, len(lines) + 1))
    assert all(a.text != b.text for a, b in pairwise(lines))
    texts = {node.line for node, _ in nodes(schedule.body)} - {""}
    assert texts == {line.text for line in lines}
    numbers = line_numbers(schedule)
    assert all(lines[number - 1].text == text for text, number in numbers.items())
    assert all(numbers[line.text] <= line.number for line in lines)
    assert [text.split(None, 1)[0] for text in str(schedule).splitlines()] == [
        str(line.number) for line in lines
    ]


@pytest.mark.parametrize("name", sorted(families()))
def test_moves_without_a_line_move_nothing(name: str) -> None:
    """Otherwise words would be missing from the listing."""
    family = families()[name]
    schedule = family.build(SHAPE, **dict.fromkeys(family.tiles, 2))
    for node, _ in nodes(schedule.body):
        if isinstance(node, Move) and node.kind in ("load", "store", "add"):
            assert node.line


def test_flash1_prints_as_the_paper_numbers_it() -> None:
    text = str(families()["flash1"].build(AttentionShape(1024, 1024, 64), br=64, bc=128))
    assert "  5  for 1 <= j <= T_c do" in text
    assert "  6    load K_j, V_j" in text
    assert "  8      load Q_i, O_i, l_i, m_i" in text


ROWS = Dim("query", 8, 4)
COPY = (*load("load Q", P.Q), *free(P.Q))
OTHER_Q = Tensor("Q", P.Q.axes, "float32", "input")
LONGER = Tensor("K", (Dim("key", 7),), "float16", "input")
REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "no star": (
        lambda: Schedule("x", SHAPE, (For(ROWS, (load("load Q", P.Q),)),)),  # type: ignore[arg-type]
        "the loop over 'query' holds a tuple, which is not a node; .* need a [*] before them",
    ),
    "no comma": (
        lambda: Schedule("x", SHAPE, (For(ROWS, Move("load", P.Q)),)),  # type: ignore[arg-type]
        "the body of the loop over 'query' is a Move, .* a comma after it",
    ),
    "no comma at the top": (
        lambda: Schedule("x", SHAPE, For(ROWS, COPY)),  # type: ignore[arg-type]
        "the body of the schedule is a For",
    ),
    "an operand without a comma": (
        lambda: Schedule("x", SHAPE, (Compute("clear", P.O, ()),)),  # type: ignore[arg-type]
        "the outputs and inputs of clear must be tuples",
    ),
    "an axis within itself": (
        lambda: Schedule("x", SHAPE, (For(P.query, (For(ROWS, COPY),)),)),
        "a loop over 'query' lies inside another loop over 'query'",
    ),
    "a relation without its other axis": (
        lambda: Schedule("x", SHAPE, (For(P.key, COPY, relation=Causal(0)),)),
        "the loop over 'key' is related to 'query', but no loop over 'query' is around it",
    ),
    "a relation whose other axis is inside": (
        lambda: Schedule("x", SHAPE, (For(P.key, (For(P.query, COPY),), relation=Causal(0)),)),
        "no loop over 'query' is around it",
    ),
    "a relation of other axes": (
        lambda: Schedule(
            "x",
            SHAPE,
            (For(P.query, (For(P.key, (For(P.dim, COPY, relation=Causal(0)),)),)),),
        ),
        "the loop over 'dim' has a relation of 'query' to 'key'",
    ),
    "two relations of one axis": (
        lambda: Schedule(
            "x",
            SHAPE,
            (
                For(
                    P.query,
                    (
                        For(
                            P.key,
                            (For(Dim("page", 8), COPY, relation=Causal(0, key="page")),),
                            relation=Causal(0),
                        ),
                    ),
                ),
            ),
        ),
        "relates 'query' to 'page', one of which is in a relation already",
    ),
    "two tensors of one name": (
        lambda: Schedule("x", SHAPE, (*COPY, *load("again", OTHER_Q), *free(OTHER_Q))),
        "tensor 'Q' stands for two different ones",
    ),
    "two lengths of one axis": (
        lambda: Schedule("x", SHAPE, (For(P.key, load("load K", LONGER)),)),
        "axis 'key' has 6 rows in one place and 7 in another",
    ),
    "kind": (lambda: Move("lod", P.Q), "'lod'; did you mean 'load'"),  # type: ignore[arg-type]
    "order": (
        lambda: For(ROWS, COPY, order="backward"),  # type: ignore[arg-type]
        "unknown order of a loop 'backward'; .*forward, reverse, snake",
    ),
    "place": (
        lambda: Tensor("Q", (), "float16", "hbm"),  # type: ignore[arg-type]
        "unknown place of a tensor 'hbm'",
    ),
    "dtype": (lambda: Tensor("Q", (), "float61"), "'float61'; did you mean 'float64'"),
    "dtype held": (lambda: Tensor("Q", (), "float16", held="fp32"), "'fp32'"),
    "rows": (lambda: Dim("query", 0), "axis 'query' has 0 rows"),
    "negative block": (lambda: Dim("query", 8, -1), "axis 'query' has 8 rows in blocks of -1"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_tree_that_makes_no_sense_is_refused_when_it_is_built(why: str) -> None:
    build, complaint = REFUSED[why]
    with pytest.raises(IosimError, match=complaint):
        build()


def test_two_ways_to_cut_an_axis_are_one_tensor() -> None:
    column = Tensor("Q", (*P.Q.axes[:-1], P.dim.cut(1)), P.Q.dtype, "input")
    body = (*COPY, For(P.dim.cut(1), (*load("a column", column), *free(column))))
    assert Schedule("x", SHAPE, body).body == body  # not refused


def test_relations_side_by_side_are_fine() -> None:
    related = For(P.key, COPY, relation=Causal(0))
    body = (For(P.query, (related, related)),)
    assert Schedule("x", SHAPE, body).body == body  # not refused


def test_the_errors_of_trees_are_of_schedules() -> None:
    with pytest.raises(ScheduleError):
        Schedule("x", SHAPE, (For(P.query, (For(ROWS, COPY),)),))
