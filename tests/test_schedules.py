"""The built-in schedules: what each line moves, what they hold, what they need."""

import inspect

import naive
import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st

from iosim.errors import IosimError
from iosim.reading.check import check
from iosim.reading.count import count
from iosim.schedule import Move, families, family
from iosim.schedule.listing import listing
from iosim.schedule.operations import operations
from iosim.schedule.square_tiling import listed
from iosim.schedule.tree import Compute, nodes
from iosim.shape import AttentionShape

plain = strategies.shapes(rows=40, width=12, heads=False, causal=False)
sizes = st.integers(1, 12)


def test_the_registry() -> None:
    assert strategies.FORWARD == (
        *("standard", "standard_passes", "standard_tiled", "square_tiling", "flash1", "flash2"),
        *("flash2_packed", "split_kv", "ring", "ulysses", "tree_decoding"),
    )
    assert set(families()) == {*strategies.FORWARD, *strategies.BACKWARD}
    for name, known in families().items():
        assert known.name == name
        assert family(name) == known
        assert known.source
        assert known.summary
        sizes = tuple(inspect.signature(known.build).parameters)[1:]
        assert (*known.tiles, *known.settings) == sizes
        assert name in strategies.NAMES
    assert {name for name, known in families().items() if known.paper} == {
        "square_tiling",
        "flash1",
        "flash2",
        "flash1_backward",
    }


@pytest.mark.parametrize(("wrong", "near"), [("flash3", "flash"), ("standart", "'standard'")])
def test_an_unknown_schedule_is_refused_with_the_closest(wrong: str, near: str) -> None:
    with pytest.raises(IosimError) as caught:
        family(wrong)
    assert str(caught.value).startswith(f"unknown schedule '{wrong}'; did you mean ")
    assert near in str(caught.value)


@given(strategies.cases())
def test_a_schedule_says_what_it_was_built_with(case: strategies.Case) -> None:
    schedule = case.schedule
    assert (schedule.name, schedule.shape, schedule.tiles) == (case.name, case.shape, case.tiles)
    assert (schedule.mask is None) == (not case.shape.causal and case.shape.mask is None)
    if schedule.mask is not None and case.shape.mask is None:
        assert schedule.mask.offset == naive.offset(case.shape)
    assert len(repr(schedule)) < 600


@given(plain)
def test_what_standard_holds(shape: AttentionShape) -> None:
    """K (or V) whole, one row of Q and one of S; or V, a row of P and one of O."""
    n_k, d, d_v = shape.n_k, shape.head_dim, shape.value_dim
    peak = check(family("standard").build(shape)).peak_words
    assert peak == max(n_k * d + d + n_k, 2 * n_k, n_k * d_v + n_k + d_v)


@given(plain, sizes, sizes)
def test_what_flash_holds(shape: AttentionShape, br: int, bc: int) -> None:
    """K_j, V_j; Q_i, O_i; one live S_ij; l_i and m_i."""
    br, bc = min(br, shape.n_q), min(bc, shape.n_k)
    width = shape.head_dim + shape.value_dim
    for name in ("flash1", "flash2"):
        peak = check(family(name).build(shape, br=br, bc=bc)).peak_words
        assert peak == (br + bc) * width + br * bc + 2 * br


@given(plain)
def test_tiled_standard_attention_fits_a_tiny_memory(shape: AttentionShape) -> None:
    """1 x 1 tiles: whatever the shape, four words are enough."""
    assert check(family("standard_tiled").build(shape, br=1, bc=1)).peak_words <= 4


@given(plain, sizes, sizes)
def test_the_words_of_tiled_standard_attention(shape: AttentionShape, br: int, bc: int) -> None:
    """Each matmul by outer products: operands once for each tile of the result, S and P in full."""
    n_q, n_k, d, d_v = shape.n_q, shape.n_k, shape.head_dim, shape.value_dim
    t_r, t_c, t_v = -(-n_q // br), -(-n_k // bc), -(-d_v // min(bc, d_v))
    traffic = count(family("standard_tiled").build(shape, br=br, bc=bc))
    assert traffic.tensors["Q"].read == t_c * n_q * d
    assert traffic.tensors["K"].read == t_r * n_k * d
    assert (traffic.tensors["S"].write, traffic.tensors["S"].read) == (n_q * n_k, 2 * n_q * n_k)
    assert (traffic.tensors["P"].write, traffic.tensors["P"].read) == (n_q * n_k, t_v * n_q * n_k)
    assert traffic.tensors["V"].read == t_r * n_k * d_v
    assert traffic.tensors["O"].write == n_q * d_v


@given(plain, sizes, sizes)
def test_what_each_line_of_flash1_moves(shape: AttentionShape, br: int, bc: int) -> None:
    n_q, n_k, d, d_v = shape.n_q, shape.n_k, shape.head_dim, shape.value_dim
    t_c = -(-n_k // bc)
    lines = count(family("flash1").build(shape, br=br, bc=bc)).lines
    assert {text: (words.read, words.write) for text, words in lines.items()} == {
        "initialise O = 0, l = 0, m = -inf in HBM": (0, n_q * (d_v + 2)),
        "load K_j, V_j": (n_k * (d + d_v), 0),
        "load Q_i, O_i, l_i, m_i": (t_c * n_q * (d + d_v + 2), 0),
        "write O_i, rescaled and with P_ij V_j added": (0, t_c * n_q * d_v),
        "write l_i, m_i": (0, t_c * n_q * 2),
    }


@given(plain, sizes, sizes)
def test_what_each_line_of_flash2_moves(shape: AttentionShape, br: int, bc: int) -> None:
    n_q, n_k, d, d_v = shape.n_q, shape.n_k, shape.head_dim, shape.value_dim
    t_r = -(-n_q // br)
    lines = count(family("flash2").build(shape, br=br, bc=bc)).lines
    assert {text: (words.read, words.write) for text, words in lines.items()} == {
        "load Q_i": (n_q * d, 0),
        "load K_j, V_j": (t_r * n_k * (d + d_v), 0),
        "write O_i": (0, n_q * d_v),
        "write LSE_i": (0, n_q),
    }


@given(plain, sizes, sizes)
def test_flops_of_the_two_matmuls_lead(shape: AttentionShape, br: int, bc: int) -> None:
    """2 n_q n_k (d + d_v) for the products; the rest is a few for each score, row and output."""
    n_q, n_k, d, d_v = shape.n_q, shape.n_k, shape.head_dim, shape.value_dim
    products = 2 * n_q * n_k * (d + d_v)
    t_c = -(-n_k // bc)
    assert count(family("standard").build(shape)).flops == products + 6 * n_q * n_k
    flash2 = count(family("flash2").build(shape, br=br, bc=bc)).flops
    per_tile = t_c * n_q * (4 + d_v)  # m, l and O rescaled
    assert flash2 == products + 5 * n_q * n_k + per_tile + n_q * (d_v + 2)
    flash1 = count(family("flash1").build(shape, br=br, bc=bc)).flops
    assert flash1 == products + 5 * n_q * n_k + per_tile + t_c * n_q * 2 * d_v


def test_masked_blocks_are_skipped_by_flash_alone() -> None:
    shape = AttentionShape(64, 64, 8, causal=True)
    whole = AttentionShape(64, 64, 8)
    for name in ("flash1", "flash2"):
        masked, full = (count(family(name).build(s, br=8, bc=8)) for s in (shape, whole))
        assert masked.flops < 0.6 * full.flops
        assert masked.read_words < full.read_words
    pairs = naive.pair_sums(64, 64, 8, 8, 0)[0]
    assert pairs == 36


def test_flash2_listings_hold_no_statistics_in_slow_memory() -> None:
    moved = {
        node.tensor.name
        for node, _ in nodes(family("flash2").build(AttentionShape(8, 8, 8), br=2, bc=2).body)
        if isinstance(node, Move) and node.kind in ("load", "store", "add")
    }
    assert moved == {"Q", "K", "V", "O", "LSE"}


def test_every_operation_is_used_and_takes_what_it_is_given() -> None:
    used = {
        node.operation
        for shape in (
            AttentionShape(8, 8, 8, heads=2),
            AttentionShape(8, 8, 8, 8, 1, 2, dropout=0.5),
        )
        for built in [
            *(
                known.build(
                    shape,
                    **dict.fromkeys(known.tiles, 2),
                    **({"ranks": 2} if "ranks" in known.settings else {}),
                )
                for known in families().values()
            ),
            listed(AttentionShape(8, 8, 8), 2, maximum=False),
        ]
        for node, _ in nodes(built.body)
        if isinstance(node, Compute)
    }
    assert used == set(operations()) == set(naive.FLOPS)


def test_listings_indent_by_the_loops_they_name() -> None:
    lines = listing(family("flash2").build(AttentionShape(8, 8, 8, heads=4), br=2, bc=2))
    depth = {line.text: line.depth for line in lines}
    assert depth["for 1 <= i <= T_r do"] == depth["end for i"] == 0
    assert depth["load Q_i"] == depth["for 1 <= j <= T_c do"] == 1
    assert depth["load K_j, V_j"] == 2
