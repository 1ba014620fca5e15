"""Backward schedules: what each line moves, what hardware says, training steps, what is derived."""

import json
from dataclasses import replace
from functools import partial
from math import ceil
from pathlib import Path

import naive
import numpy as np
import pytest
import strategies
import trees
from click.testing import CliRunner
from hypothesis import assume, given
from hypothesis import strategies as st

from iosim.cli import main
from iosim.errors import CapacityError
from iosim.precision import precision
from iosim.reading.check import check
from iosim.reading.count import count
from iosim.reading.formula import formula
from iosim.reading.gradients import recomputed_flops
from iosim.report import simulate
from iosim.report_step import Step
from iosim.schedule import For, Move, backward_of, family, forward_of
from iosim.schedule.operations import find_operation
from iosim.schedule.tree import Compute, nodes
from iosim.shape import AttentionShape
from iosim.tiles import choose_tiles
from iosim.verify import verify

RECORDING = Path(__file__).parents[1] / "docs/data/h200_torch_attention.json"
SECOND = Path(__file__).parents[1] / "docs/data/h200_torch_shapes.json"
plain = strategies.shapes(rows=40, width=12, heads=False, causal=False)
backward = partial(strategies.cases, names=strategies.BACKWARD)
sizes = st.integers(1, 12)


def visible(shape: AttentionShape) -> np.ndarray:
    return np.array(naive.visible_of(shape))


# Traffic.


@given(plain)
def test_what_each_line_of_standard_backward_moves(shape: AttentionShape) -> None:
    n_q, n_k, d, d_v = shape.n_q, shape.n_k, shape.head_dim, shape.value_dim
    lines = count(family("standard_backward").build(shape)).lines
    square = n_q * n_k
    assert [(words.read, words.write) for words in lines.values()] == [
        (square + n_q * d_v, n_k * d_v),
        (n_q * d_v + n_k * d_v, square),
        (2 * square, square),
        (square + n_k * d, n_q * d),
        (square + n_q * d, n_k * d),
    ]
    n = replace(shape, n_q=n_k, value_dim=d)
    total = count(family("standard_backward").build(n)).total_words
    assert total == 7 * n_k**2 + 8 * n_k * d


@given(plain, sizes, sizes)
def test_what_each_line_of_flash1_backward_moves(shape: AttentionShape, br: int, bc: int) -> None:
    n_q, n_k, d, d_v = shape.n_q, shape.n_k, shape.head_dim, shape.value_dim
    t_c = ceil(n_k / bc)
    lines = count(family("flash1_backward").build(shape, br=br, bc=bc)).lines
    assert {text: (words.read, words.write) for text, words in lines.items()} == {
        "initialise dQ = 0 in HBM": (0, n_q * d),
        "initialise dK = 0, dV = 0 in HBM": (0, n_k * (d + d_v)),
        "load K_j, V_j": (n_k * (d + d_v), 0),
        "load Q_i, O_i, dO_i, dQ_i, l_i, m_i": (t_c * n_q * (2 * d + 2 * d_v + 2), 0),
        "write dQ_i with dS_ij K_j added, scaled": (0, t_c * n_q * d),
        "write dK_j, dV_j": (0, n_k * (d + d_v)),
    }


@given(plain, sizes, sizes)
def test_the_published_formulas_of_flash1_backward(shape: AttentionShape, br: int, bc: int) -> None:
    """4 N d + T_c N (5d + 2) and 3 N d to initialise (FA1, Algorithm 4; Coq counts the same)."""
    n, d = shape.n_q, shape.head_dim
    same = replace(shape, n_k=n, value_dim=d)
    total = formula(family("flash1_backward").build(same, br=br, bc=bc)).value()
    assert total == 4 * n * d + ceil(n / bc) * n * (5 * d + 2) + 3 * n * d


@given(plain, sizes, sizes)
def test_what_each_line_of_flash2_backward_moves(shape: AttentionShape, br: int, bc: int) -> None:
    n_q, n_k, d, d_v = shape.n_q, shape.n_k, shape.head_dim, shape.value_dim
    t_c, half = ceil(n_k / bc), precision(shape.dtype).storage.itemsize == 2
    lines = count(family("flash2_backward").build(shape, br=br, bc=bc)).lines
    expected = {
        "initialise dQ = 0 in HBM": (0, n_q * d, 0),
        "compute D = rowsum(dO * O), write D to HBM": (2 * n_q * d_v, n_q, 0),
        "load K_j, V_j": (n_k * (d + d_v), 0, 0),
        "load Q_i, dO_i, LSE_i, D_i": (t_c * n_q * (d + d_v + 2), 0, 0),
        "add dS_ij K_j, scaled, to dQ_i in HBM": (0, 0, t_c * n_q * d),
        "write dK_j, dV_j": (0, n_k * (d + d_v), 0),
    }
    if half:
        line = f"convert dQ from float32 to {shape.dtype}"
        expected[line] = (n_q * d, n_q * d, 0)
    assert {text: (w.read, w.write, w.add) for text, w in lines.items()} == expected


@given(plain, sizes, sizes)
def test_what_each_line_of_flash2_backward_q_moves(shape: AttentionShape, br: int, bc: int) -> None:
    n_q, n_k, d, d_v = shape.n_q, shape.n_k, shape.head_dim, shape.value_dim
    t_r, t_c = ceil(n_q / br), ceil(n_k / bc)
    lines = count(family("flash2_backward_q").build(shape, br=br, bc=bc)).lines
    assert {text: (words.read, words.write) for text, words in lines.items()} == {
        "compute D = rowsum(dO * O), write D to HBM": (2 * n_q * d_v, n_q),
        "load K_j, V_j": (n_k * (d + d_v), 0),
        "load Q_i, dO_i, LSE_i, D_i": (t_c * n_q * (d + d_v + 2), 0),
        "write dK_j, dV_j": (0, n_k * (d + d_v)),
        "load Q_i, dO_i, LSE_i, D_i once more": (n_q * (d + d_v + 2), 0),
        "load K_j, V_j again": (t_r * n_k * (d + d_v), 0),
        "write dQ_i": (0, n_q * d),
    }


@given(plain, sizes, sizes)
def test_what_backward_schedules_hold(shape: AttentionShape, br: int, bc: int) -> None:
    """K_j, V_j, dK_j, dV_j; the rows of a query tile; two score tiles; two or three statistics."""
    br, bc = min(br, shape.n_q), min(bc, shape.n_k)
    d, d_v = shape.head_dim, shape.value_dim
    keys, tiles = bc * 2 * (d + d_v), 2 * br * bc
    peaks = {
        name: check(family(name).build(shape, br=br, bc=bc)).peak_words
        for name in ("flash1_backward", "flash2_backward", "flash2_backward_q")
    }
    assert peaks["flash1_backward"] == keys + tiles + br * 2 * (d + d_v) + 3 * br
    one = keys + tiles + br * (2 * d + d_v + 2)
    dots, converted = br * (2 * d_v + 1), 2 * br * d
    assert peaks["flash2_backward"] == max(one, dots, converted)
    first = keys + tiles + br * (d + d_v + 2)
    second = bc * (d + d_v) + tiles + br * (2 * d + d_v + 2)
    assert peaks["flash2_backward_q"] == max(first, second, dots)


def test_the_printed_tiles_of_algorithm_4_are_rejected_and_tiles_finds_legal_ones() -> None:
    flash1 = family("flash1_backward")
    shape = AttentionShape(8192, 8192, 64)
    printed = choose_tiles(flash1, shape, 51_200, "paper").sizes
    assert printed == {"br": 64, "bc": 200}
    with pytest.raises(CapacityError, match="line 'load Q_i, O_i, dO_i, dQ_i, l_i, m_i': load of"):
        check(flash1.build(shape, **printed), capacity=51_200)
    for rule in ("largest", "best"):
        check(flash1.build(shape, **choose_tiles(flash1, shape, 51_200, rule).sizes), 51_200)


@given(st.sampled_from(strategies.BACKWARD), st.integers(10**6, 10**9), st.booleans())
def test_counting_does_not_depend_on_the_length(name: str, n: int, causal: bool) -> None:
    shape = AttentionShape(n, n, 64, heads=8, kv_heads=2, causal=causal)
    built = family(name).build(shape, **dict.fromkeys(family(name).tiles, 128))
    assert count(built).total_words == formula(built).value()


# What a recording of hardware says (torch 2.11 on an H200; docs/data says how it was measured).


def recorded() -> list[dict]:
    cases = json.loads(RECORDING.read_text(encoding="utf-8"))["cases"]
    return [case for case in cases if case["op"] == "bwd"]


def shape_of(case: dict) -> AttentionShape:
    names = ("n_q", "n_k", "head_dim", "heads", "kv_heads", "dtype", "causal")
    return AttentionShape(**{name: case[name] for name in names})


def test_there_are_recorded_backward_cases() -> None:
    cases = recorded()
    assert len(cases) == 10
    assert {case["backend"] for case in cases} == {"FLASH_ATTENTION", "CUDNN_ATTENTION"}
    assert not any(case["causal"] for case in cases)


@pytest.mark.parametrize(
    "case", recorded(), ids=lambda case: f"{case['backend']}-{case['n_q']}-{case['head_dim']}"
)
def test_recorded_reductions_are_the_words_added(case: dict) -> None:
    """An owner of 128 keys adds to dQ of all queries: T_c N d float32 words a head, to the byte."""
    shape = shape_of(case)
    traffic = count(family("flash2_backward").build(shape, br=64, bc=128))
    reduced = [kernel["l2_tex_red"] for kernel in case["kernels"] if kernel["l2_tex_red"]]
    assert reduced == [traffic.add_bytes]
    t_c = shape.n_k // 128
    assert traffic.add_bytes == shape.heads * t_c * shape.n_q * shape.head_dim * 4
    # FlashAttention-2 starts one block of threads for each owner; that is where 128 comes from.
    (main,) = [kernel for kernel in case["kernels"] if kernel["l2_tex_red"]]
    if case["backend"] == "FLASH_ATTENTION" and main["grid"] >= t_c * shape.heads:
        assert main["grid"] == t_c * shape.heads


def causal_cases() -> list[dict]:
    """Backward cases under a causal mask, from the second series of measurements."""
    cases = json.loads(SECOND.read_text(encoding="utf-8"))["cases"]
    return [case for case in cases if case["op"] == "bwd" and case["causal"]]


@pytest.mark.parametrize(
    "case", causal_cases(), ids=lambda case: f"{case['backend']}-{case['n_q']}-{case['head_dim']}"
)
def test_recorded_causal_reductions_are_the_rows_from_each_owner_on(case: dict) -> None:
    """A block of 128 keys adds to dQ of the queries from its first row on, to the byte."""
    shape = shape_of(case)
    (reduced,) = [kernel["l2_tex_red"] for kernel in case["kernels"] if kernel["l2_tex_red"]]
    rows = sum(shape.n_q - j for j in range(0, shape.n_k, 128))
    assert reduced == shape.heads * rows * shape.head_dim * 4
    assert reduced == count(family("flash2_backward").build(shape, br=64, bc=128)).add_bytes


def test_there_are_recorded_causal_cases() -> None:
    assert len(causal_cases()) == 12


@pytest.mark.parametrize(
    "case",
    [case for case in recorded() if case["backend"] == "FLASH_ATTENTION"],
    ids=lambda case: f"{case['n_q']}-{case['head_dim']}",
)
def test_recorded_passes_are_lines_of_the_schedule(case: dict) -> None:
    """The kernels before and after the main one: D from dO and O, and the conversion of dQ."""
    shape = shape_of(case)
    schedule = family("flash2_backward").build(shape, br=64, bc=128)
    traffic = count(schedule)
    kernels = {kernel["kernel"].split("kernel")[0][-22:]: kernel for kernel in case["kernels"]}
    dots = next(k for name, k in kernels.items() if "dot_do_o" in name)
    convert = next(k for name, k in kernels.items() if "convert_dq" in name)
    lines = traffic.lines
    line = lines["compute D = rowsum(dO * O), write D to HBM"]
    assert dots["l2_tex_read"] == 2 * line.read
    line = lines["convert dQ from float32 to float16"]
    assert convert["l2_tex_read"] == 4 * line.read
    assert convert["l2_tex_write"] == 2 * line.write
    # The first pass clears dQ too; beyond that it writes D, and at most 2 % more.
    written = 4 * (lines["initialise dQ = 0 in HBM"].write + traffic.tensors["D"].write)
    assert written <= dots["l2_tex_write"] <= 1.02 * written


def test_under_a_causal_mask_each_owner_of_keys_adds_from_its_first_row_on() -> None:
    """No recording has such a case; whoever measures one will find so many bytes."""
    n, d, heads = 4096, 64, 8
    shape = AttentionShape(n, n, d, heads=heads, causal=True)
    added = sum(n - first for first in range(0, n, 128))
    for br in (64, 128):
        traffic = count(family("flash2_backward").build(shape, br=br, bc=128))
        assert traffic.add_bytes == 4 * heads * d * added


# Training steps.


OWN = '''
from dataclasses import replace
from iosim.schedule import family, schedule

@schedule("mine", source="a test", forward="flash2")
def mine(shape, br, bc):
    """The backward pass of FlashAttention-2 under another name."""
    return replace(family("flash2_backward").build(shape, br=br, bc=bc), name="mine")
'''


def test_a_backward_pass_of_ones_own_gets_all_the_readings(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(OWN)
    mine = family(f"{path}:mine")
    assert (mine.direction, forward_of(mine).name) == ("backward", "flash2")
    assert verify(["counting"], schedules={"mine": mine}).passed
    args = ["simulate", "--pass", "both", "--schedule", f"{path}:mine", "--seq-len", "1k"]
    result = CliRunner().invoke(main, [*args, "--head-dim", "64", "--br", "64", "--bc", "64"])
    assert result.exit_code == 0, result.output
    assert "flash2 + mine" in result.stdout


@pytest.mark.parametrize("name", strategies.BACKWARD)
def test_the_passes_find_each_other(name: str) -> None:
    forward = forward_of(family(name))
    assert forward.direction == "forward"
    assert forward_of(forward) == forward
    assert backward_of(family(name)) == family(name)
    assert forward_of(backward_of(forward)) == forward


@given(plain, sizes, sizes)
def test_a_step_is_the_sum_of_its_passes(shape: AttentionShape, br: int, bc: int) -> None:
    tiles = {"br": br, "bc": bc}
    passes = [simulate(family(name), shape, given=tiles) for name in ("flash2", "flash2_backward")]
    step = Step(*passes).to_dict()
    records = [each.to_dict() for each in passes]
    for key in ("read_words", "write_words", "total_words", "read_bytes", "total_bytes", "flops"):
        assert step[key] == records[0][key] + records[1][key]
    assert step["total_words"] == sum(sum(words.values()) for words in step["tensors"].values())
    assert step["total_words"] == step["read_words"] + step["write_words"] + step["add_words"]
    standard = sum(
        naive.run_words(family(name).build(shape)) for name in ("standard", "standard_backward")
    )
    assert step["saved_words"] == standard - step["total_words"]
    assert step["recomputed_flops"] == records[1]["recomputed_flops"] > 0
    assert (records[0]["pass"], records[1]["pass"], step["pass"]) == ("forward", "backward", "both")


@given(backward(rows=12))
def test_recomputed_flops_by_hand(case: strategies.Case) -> None:
    """S again: a product, a scaling and 2 or 3 a probability; in two sweeps dP and dS as well."""
    shape = case.shape
    br, bc = (case.tiles.get(name, 1) for name in ("br", "bc"))
    met = naive.sums_of(naive.visible_of(shape), br, bc)[3]
    met *= shape.batch * shape.heads
    again = met * (2 * shape.head_dim + 1)
    expected = {
        "standard_backward": 0,
        "flash1_backward": again + 3 * met,
        "flash2_backward": again + 2 * met,
        "flash2_backward_q": 2 * (again + 2 * met) + met * (2 * shape.value_dim + 2),
    }
    assert recomputed_flops(case.schedule) == expected[case.name]
    assert recomputed_flops(case.schedule) <= count(case.schedule).flops


# What check derives.


def derived(name: str) -> tuple[bool, bool]:
    shape = AttentionShape(8, 8, 4, causal=True)
    checked = check(family(name).build(shape, **dict.fromkeys(family(name).tiles, 2)))
    return checked.fused, checked.once


def test_a_sweep_for_keys_and_one_for_queries_are_not_fused() -> None:
    assert derived("standard_backward") == derived("flash2_backward_q") == (False, False)
    assert derived("flash1_backward") == derived("flash2_backward") == (True, True)


@given(backward(names=("flash1_backward", "flash2_backward"), rows=10))
def test_flash_backward_is_fused_for_any_shape(case: strategies.Case) -> None:
    assume(visible(case.shape).any())
    checked = check(case.schedule)
    assert (checked.fused, checked.once, checked.rematerialises) == (True, True, False)


def broken(change: str) -> tuple[bool, bool]:
    """flash1_backward with one thing changed that the bounds' hypotheses forbid, and derived."""
    shape = AttentionShape(8, 8, 4, dtype="float32")
    whole = family("flash1_backward").build(shape, br=4, bc=4)

    def edit(node: object) -> tuple[object, ...]:
        at = isinstance(node, Compute) and find_operation(node).role
        tensors = {n.tensor.name: n.tensor for n, _ in nodes(whole.body) if isinstance(n, Move)}
        if change == "dQ away before its own addition" and at == "dQ":
            dQ = tensors["dQ"]
            return (Move("free", dQ), Move("load", dQ), node)
        if change == "V away before dQ" and isinstance(node, Compute):
            V = tensors["V"]
            if node.operation == "score_gradient":
                return (Move("free", V), node, Move("load", V))
            if at == "dV":
                return (Move("free", V), node, Move("load", V))
        if change == "all pairs twice" and isinstance(node, For) and node.dim.name == "group":
            return (node, node)
        return (node,)

    checked = check(trees.edited(whole, edit))
    return checked.fused, checked.once


def test_what_is_fused_is_derived_and_not_believed() -> None:
    assert broken("nothing") == (True, True)
    assert broken("V away before dQ") == (False, False)
    assert broken("all pairs twice") == (True, False)
    assert broken("dQ away before its own addition") == (False, False)
