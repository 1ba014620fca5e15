"""Several devices: who sends how much to whom, what each rank computes, what it may touch."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction

import naive
import naive_ranks
import numpy as np
import pytest
import strategies
import trees
from click.testing import CliRunner
from hypothesis import assume, given
from hypothesis import strategies as st
from inputs import operands

from iosim.cli import main
from iosim.errors import IosimError, ScheduleError
from iosim.interconnect import overlap_rows, queries_stay
from iosim.reading.check import check
from iosim.reading.count import count
from iosim.reading.execute import execute
from iosim.reading.formula import formula
from iosim.reading.trace_program import compile_trace
from iosim.reading.traffic import Share
from iosim.schedule import Compute, Dim, For, Move, Schedule, Tensor, family, free, load, problem
from iosim.schedule.ranks import Butterfly, Others, Own, RankRelation, Ranks, shards
from iosim.schedule.tree import Node, exchange, nodes
from iosim.shape import AttentionShape

NAMES = ("ring", "ulysses", "tree_decoding")
RELATIONS = {"Own": Own, "Others": Others, "Butterfly": Butterfly}


def many(**of_shape):
    """A schedule of several devices, for any number of ranks that can be built."""
    return strategies.cases(names=NAMES, **of_shape)


# Which blocks ranks visit


@pytest.mark.parametrize("name", RELATIONS)
@given(data=st.data())
def test_visits_are_what_the_name_says(name: str, data: st.DataObject) -> None:
    ranks = 2 ** data.draw(st.integers(0, 4))
    if name != "Butterfly":
        ranks = data.draw(st.integers(1, 12))
    relation: RankRelation = RELATIONS[name]("rank", "shard")
    visited = [list(relation.visits(ranks, i)) for i in range(ranks)]
    assert visited == [naive.VISITS[name](i, ranks) for i in range(ranks)]
    for i, each in enumerate(visited):
        assert all(i in visited[j] for j in each), "visits are mutual"
    weights = data.draw(st.lists(st.integers(0, 9), min_size=ranks, max_size=ranks))
    assert relation.over(weights) == [sum(weights[j] for j in each) for each in visited]
    query, key = Dim("rank", ranks, 1), Dim("shard", 3 * ranks - 1 if ranks > 1 else 2, 3)
    sums = relation.sums(query, key)
    met = [(i, j) for i, each in enumerate(visited) for j in each]
    assert sums.pairs == sums.query_rows == len(met)
    assert sums.key_rows == sums.products == sum(key.rows(j) for _, j in met)
    for i in range(ranks):
        assert list(relation.key_range(query, key, i)) == visited[i]
        assert sorted(relation.query_range(query, key, i)) == sorted(visited[i])


def test_shards_come_round_a_ring_in_the_order_of_arrival() -> None:
    assert list(Others("rank", "shard").visits(5, 2)) == [1, 0, 4, 3]


# Against ranks that post arrays to each other


@given(many(dtypes=("float64",), rows=12), st.integers(0, 2**32 - 1))
def test_words_and_outputs_are_those_of_a_simulation(case: strategies.Case, seed: int) -> None:
    """Float64 beside float64: a few hundred roundings of 1.1e-16, relative to the largest value."""
    shape = replace(case.shape, batch=1)
    schedule = family(case.name).build(shape, **case.tiles)
    inputs = operands(shape, seed)
    seen = np.array(naive.visible_of(shape))
    one = [array[0] for array in inputs]
    dealt = [case.tiles[name] for name in ("ranks", "layout") if name in case.tiles]
    output, post = getattr(naive_ranks, case.name)(*one, seen, *dealt)
    traffic = count(schedule)
    assert [share.send_words for share in traffic.ranks] == post.sent
    assert [share.receive_words for share in traffic.ranks] == post.received
    done = execute(schedule, *inputs)
    assert np.allclose(done.O[0], output, rtol=0, atol=1e-12 * max(1, abs(inputs[2]).max()))


def assert_as_one_device(case: strategies.Case, seed: int) -> None:
    """Float64 beside float64: a few hundred roundings of 1.1e-16, relative to the largest value."""
    inputs = operands(case.shape, seed)
    tiles = {name: case.tiles[name] for name in ("br", "bc")}
    alone = execute(family("flash2").build(case.shape, **tiles), *inputs)
    done = execute(case.schedule, *inputs)
    assert np.allclose(done.O, alone.O, rtol=0, atol=1e-12 * max(1, abs(inputs[2]).max()))
    assert done.LSE is not None
    assert alone.LSE is not None
    assert np.allclose(done.LSE, alone.LSE, rtol=1e-12, atol=1e-12)


@given(many(dtypes=("float64",), rows=12, dropout=(0.0, 0.5)), st.integers(0, 2**32 - 1))
def test_devices_together_compute_what_one_does(case: strategies.Case, seed: int) -> None:
    """Under any mask, and with the same elements dropped: a bit depends on its place alone."""
    assert_as_one_device(case, seed)


@given(many(rows=12))
def test_shares_add_up(case: strategies.Case) -> None:
    traffic = count(case.schedule)
    assert len(traffic.ranks) == case.tiles["ranks"]
    for way in ("read", "write", "add"):
        together = sum(getattr(share, f"{way}_words") for share in traffic.ranks)
        assert together == getattr(traffic, f"{way}_words")
    assert sum(share.send_words for share in traffic.ranks) == traffic.interconnect_words
    assert sum(share.receive_words for share in traffic.ranks) == traffic.interconnect_words
    assert sum(share.flops for share in traffic.ranks) == traffic.flops
    assert execute(case.schedule, *operands(case.shape, 0)).traffic.ranks == traffic.ranks
    found = formula(case.schedule)
    assert found.value("interconnect") == traffic.interconnect_words
    assert found.value() == traffic.total_words


@given(many(rows=12))
def test_one_rank_sends_nothing(case: strategies.Case) -> None:
    traffic = count(family(case.name).build(case.shape, **case.tiles | {"ranks": 1}))
    assert traffic.interconnect_words == 0
    (share,) = traffic.ranks
    assert share == Share(
        traffic.read_words, traffic.write_words, traffic.add_words, flops=traffic.flops
    )


# Closed forms by hand, in words over the interconnect

shapes = strategies.shapes(rows=60)


def built(name: str, shape: AttentionShape, ranks: int) -> Schedule:
    try:
        return family(name).build(shape, br=3, bc=4, ranks=ranks)
    except IosimError:
        assume(False)
        raise


@given(shapes, st.integers(1, 9))
def test_a_ring_sends_every_shard_to_all_other_ranks(shape: AttentionShape, p: int) -> None:
    """(p - 1) n_k (d + d_v) words a head of keys and values, with or without a mask.

    Rank r does not send the shard of rank r + 1, which has come full circle then.
    """
    traffic = count(built("ring", shape, p))
    width = shape.batch * shape.kv_heads * (shape.head_dim + shape.value_dim)
    assert traffic.interconnect_words == (p - 1) * shape.n_k * width
    rows = [piece.stop - piece.start for piece in naive_ranks.cut(shape.n_k, p)]
    for r, share in enumerate(traffic.ranks):
        assert share.receive_words == (shape.n_k - rows[r]) * width
        assert share.send_words == (shape.n_k - rows[(r + 1) % p]) * width


@given(shapes, st.integers(1, 3), st.integers(1, 6), st.integers(1, 9))
def test_an_all_to_all_sends_all_but_a_share_of_everything(
    shape: AttentionShape, kv_heads: int, group: int, p: int
) -> None:
    """(p - 1) / p of Q, K, V and O once: each row goes to all ranks that hold other heads."""
    shape = replace(shape, kv_heads=kv_heads * p, heads=kv_heads * p * group)
    traffic = count(built("ulysses", shape, p))
    width = shape.head_dim + shape.value_dim
    whole = shape.batch * width * (shape.heads * shape.n_q + shape.kv_heads * shape.n_k)
    assert traffic.interconnect_words == Fraction(p - 1, p) * whole
    assert traffic.interconnect_bytes == Fraction(p - 1, p) * whole * shape.item_bytes


@given(shapes, st.integers(0, 4))
def test_tree_decoding_sends_a_state_a_round(shape: AttentionShape, rounds: int) -> None:
    """log2 p states of d_v + 2 words for each query and head, whatever n_k."""
    traffic = count(built("tree_decoding", shape, 2**rounds))
    words = rounds * shape.batch * shape.heads * shape.n_q * (shape.value_dim + 2)
    assert {share.send_words for share in traffic.ranks} == {words}
    assert {share.receive_words for share in traffic.ranks} == {words}
    item = 8 if shape.dtype == "float64" else 4
    assert traffic.interconnect_bytes == 2**rounds * words * item


@given(
    strategies.shapes(rows=60, heads=False, causal=False),
    st.integers(1, 9),
    st.integers(1, 9),
    st.integers(1, 9),
)
def test_what_a_ring_reads_and_writes(shape: AttentionShape, p: int, br: int, bc: int) -> None:
    """Q and the state once for each shard, K and V of each shard once for each tile of queries."""
    try:
        schedule = family("ring").build(shape, br=br, bc=bc, ranks=p)
    except IosimError:
        assume(False)
    n_q, n_k, d, d_v = shape.n_q, shape.n_k, shape.head_dim, shape.value_dim
    t_r = sum(-(-(piece.stop - piece.start) // br) for piece in naive_ranks.cut(n_q, p))
    traffic = count(schedule)
    state = n_q * (d_v + 2)
    assert traffic.read_words == p * n_q * d + p * state + t_r * n_k * (d + d_v)
    assert traffic.write_words == p * state + n_q * (d_v + 1)


def test_the_closed_forms_print_as_the_literature_writes_them() -> None:
    shape = AttentionShape(1024, 1024, 64, heads=16, kv_heads=8)
    sent = {
        name: str(formula(family(name).build(shape, br=64, bc=64, ranks=8)).words("interconnect"))
        for name in NAMES
    }
    assert sent == {
        "ring": "2 p_o h_kv n_k d",
        "ulysses": "p_o h_kv_p d (2 g n_q + 2 n_k)",
        "tree_decoding": "p p_r h_kv g n_q (d + 2)",
    }


@pytest.mark.parametrize("causal", [False, True])
def test_ten_million_rows_are_exact_to_the_last_word(causal: bool) -> None:
    """Ragged shards: 10^7 + 3 rows on 64 ranks in single rows; row r sees r + 1 keys."""
    n, p, d = 10**7 + 3, 64, 16
    shape = AttentionShape(n, n, d, heads=p, kv_heads=p, causal=causal)
    pairs = n * (n + 1) // 2 if causal else n * n
    ring = count(family("ring").build(shape, br=1, bc=1, ranks=p))
    assert ring.tensors["K"].read == p * pairs * d
    assert ring.interconnect_words == (p - 1) * p * n * 2 * d
    block = -(-n // p)
    assert ring.ranks[0].receive_words == p * (n - block) * 2 * d
    ulysses = count(family("ulysses").build(shape, br=1, bc=1, ranks=p))
    assert ulysses.interconnect_words == (p - 1) * 4 * n * d
    decode = replace(shape, n_q=1)
    tree = count(family("tree_decoding").build(decode, br=1, bc=1, ranks=p))
    assert tree.interconnect_words == p * 6 * p * (d + 2)


@given(st.integers(1, 8), st.integers(1, 6))
def test_a_causal_ring_leaves_the_first_ranks_idle(p: int, rows: int) -> None:
    """Rank r reads, for its rows one by one, the keys up to each of them."""
    shape = AttentionShape(p * rows, p * rows, 1, causal=True)
    traffic = count(family("ring").build(shape, br=1, bc=1, ranks=p))
    keys = [sum(i + 1 for i in range(r * rows, (r + 1) * rows)) for r in range(p)]
    # K, V and what does not depend on r but for the shards that a rank meets: Q and the state.
    others = [rows * (1 + 3) * (r + 1) for r in range(p)]
    assert [share.read_words for share in traffic.ranks] == [
        2 * k + other for k, other in zip(keys, others, strict=True)
    ]


def test_the_balance_of_a_causal_ring_tends_to_a_half() -> None:
    """In tiles of a shard rank r works on r + 1 of them: the mean over the most is (p + 1) / 2p."""
    for p in (1, 2, 4, 16):
        shape = AttentionShape(64 * p, 64 * p, 64, causal=True)
        ring = count(family("ring").build(shape, br=64, bc=64, ranks=p))
        read = [share.read_words for share in ring.ranks]
        keys = [words - read[0] for words in read]
        assert keys == [r * keys[1] for r in range(p)] if p > 1 else keys == [0]
        mean = sum(share.flops for share in ring.ranks) / p
        # The softmax and the last pass are a few per cent of the FLOPs at d = 64.
        assert abs(mean / ring.ranks[-1].flops - (p + 1) / (2 * p)) < 0.02


# What has to be sent where queries stay


@given(strategies.shapes(rows=30), st.integers(1, 8))
def test_what_has_to_be_sent_is_what_is_seen_and_lacking(shape: AttentionShape, p: int) -> None:
    schedule = built("ring", shape, p)
    bound = queries_stay(schedule)
    assert bound is not None
    if p == 1:
        assert not bound.holds
        return
    seen = np.array(naive.visible_of(shape))
    rows = 0
    for mine, own in zip(naive_ranks.cut(shape.n_q, p), naive_ranks.cut(shape.n_k, p), strict=True):
        needed = {j for i in range(mine.start, mine.stop) for j in np.flatnonzero(seen[i])}
        rows += len(needed - set(range(own.start, own.stop)))
    width = shape.batch * shape.kv_heads * (shape.head_dim + shape.value_dim)
    assert (bound.words, bound.holds) == (rows * width, True)
    sent = count(schedule).interconnect_words
    assert sent >= bound.words
    if not shape.causal and shape.mask is None:
        assert sent == bound.words


def test_a_causal_ring_sends_twice_what_it_must() -> None:
    """Rank r needs r of the p - 1 shards that it gets."""
    shape = AttentionShape(4096, 4096, 64, causal=True)
    schedule = family("ring").build(shape, br=64, bc=64, ranks=8)
    bound = queries_stay(schedule)
    assert bound is not None
    assert count(schedule).interconnect_words == 2 * bound.words


def test_nothing_is_claimed_where_queries_or_results_are_sent() -> None:
    shape = AttentionShape(64, 64, 8, heads=4)
    for name in ("ulysses", "tree_decoding"):
        bound = queries_stay(family(name).build(shape, br=8, bc=8, ranks=4))
        assert bound is not None
        assert (bound.holds, bound.words) == (False, 0)
    assert queries_stay(family("flash2").build(shape, br=8, bc=8)) is None


@given(st.integers(1, 64), st.sampled_from(strategies.DTYPES), st.integers(1, 4), st.integers(2, 5))
def test_a_block_of_c_rows_has_so_many_flops_for_each_byte(
    c: int, dtype: str, group: int, p: int
) -> None:
    """Matmul FLOPs of a step over bytes of a shift, from the counts; the rule turns it around."""
    shape = AttentionShape(p * c, p * c, 8, heads=group, kv_heads=1, dtype=dtype)
    schedule = family("ring").build(shape, br=c, bc=c, ranks=p)
    traffic = count(schedule)
    products = sum(
        2 * shape.n_q * shape.n_k * shape.head_dim * group for _ in ("scores", "accumulate")
    )
    step = Fraction(products, p * p)
    shift = Fraction(traffic.interconnect_bytes, p * (p - 1))
    # On a machine of exactly so many FLOP/s for each byte/s, c rows just hide the transfer.
    assert overlap_rows(float(step), float(shift), shape.item_bytes, group) == c


def test_the_table_of_ring_attention() -> None:
    """Table 2 of arXiv 2310.01889: 312 TFLOP/s over 12.5 and 300 GB/s."""
    assert overlap_rows(312e12, 12.5e9) == 24_960
    assert 6 * overlap_rows(312e12, 12.5e9) == 149_760
    assert overlap_rows(312e12, 300e9) == 1_040
    assert overlap_rows(312e12, 12.5e9, item_bytes=4) == 2 * 24_960
    assert overlap_rows(312e12, 12.5e9, group=8) == 24_960 / 8


# A rank touches only what it holds or was sent


def rewritten(schedule: Schedule, edit: Callable[[Move], Move | None]) -> Schedule:
    """Return the schedule with its exchanges edited or, for None, left out."""

    def change(node: Node) -> tuple[Node, ...]:
        if isinstance(node, Move) and node.kind in ("receive", "send", "shift"):
            new = edit(node)
            return () if new is None else (new,)
        return (node,)

    return trees.edited(schedule, change)


def exchanges(schedule: Schedule) -> Iterator[Move]:
    for node, _ in nodes(schedule.body):
        if isinstance(node, Move) and node.kind in ("receive", "send", "shift"):
            yield node


SHAPE = AttentionShape(8, 12, 4, heads=4, dtype="float64")


@pytest.mark.parametrize("name", NAMES)
def test_no_exchange_may_be_left_out(name: str) -> None:
    schedule = family(name).build(SHAPE, br=3, bc=2, ranks=4)
    found = list(exchanges(schedule))
    assert found
    for move in found:
        without = rewritten(schedule, lambda node, gone=move: None if node is gone else node)  # type: ignore[misc]
        with pytest.raises(ScheduleError):
            execute(without, *operands(SHAPE, 0))


@pytest.mark.parametrize("tensor", ["K", "V"])
@pytest.mark.parametrize("name", ["ring", "ulysses"])
def test_check_sees_that_rows_are_never_sent(name: str, tensor: str) -> None:
    schedule = family(name).build(SHAPE, br=3, bc=2, ranks=4)
    without = rewritten(schedule, lambda move: None if move.tensor.name == tensor else move)
    with pytest.raises(
        ScheduleError, match=rf"load of {tensor}\[.*on rank 0, which neither holds all of it nor is"
    ):
        check(without)
    with pytest.raises(ScheduleError, match="some words of which nobody has sent"):
        execute(without, *operands(SHAPE, 0))


def test_owners_may_send_as_well_as_the_rank_before() -> None:
    """Each rank asks the owner of each shard: other wires, the same words and results."""
    ring = family("ring").build(SHAPE, br=3, bc=2, ranks=4)
    asked = rewritten(ring, lambda move: replace(move, kind="receive"))
    inputs = operands(SHAPE, 0)
    assert np.array_equal(execute(asked, *inputs).O, execute(ring, *inputs).O)
    assert count(asked).interconnect_words == count(ring).interconnect_words
    assert execute(asked, *inputs).traffic == count(asked)


def test_what_went_on_round_the_ring_is_gone() -> None:
    """A pass over shard r - 1 after the last shift: by then it is with another rank."""
    p = problem(SHAPE, 8, 12)
    rank, shard = shards(p.query, 4, "queries", "rank"), shards(p.key, 4, "keys", "shard")
    holds = {"Q": p.query.cut(2), "K": p.key.cut(3)}
    others = Others("rank", "shard")
    body = (
        For(rank, (
            For(shard, exchange("shift", "pass on K", p.K), relation=others),
            For(shard, (
                For(p.kv_head, (*load("load K again", p.K), *free(p.K))),
            ), relation=others),
        )),
    )  # fmt: skip
    schedule = Schedule("late", SHAPE, body, ranks=Ranks(rank, holds))
    with pytest.raises(ScheduleError, match=r"line 'load K again': load of .* nobody has sent"):
        execute(schedule, *operands(SHAPE, 0))


@given(many(dtypes=("float32",), rows=12), st.integers(0, 2**32 - 1))
def test_all_ranks_of_a_tree_end_with_the_same_bits(case: strategies.Case, seed: int) -> None:
    """The merge is commutative to the last bit; `execute` refuses copies that differ."""
    assume(case.name == "tree_decoding")
    execute(case.schedule, *operands(case.shape, seed))


# Wrong input

P = problem(SHAPE, 2, 2)
RANK = shards(P.query, 4, "queries", "rank")
SHARD = shards(P.key, 4, "keys", "shard")
HOLDS = {"Q": P.query.cut(2), "K": P.key.cut(3)}
TOUCH = (*load("load Q", P.Q), *free(P.Q))
K_ONCE = (*load("load K", P.K), *free(P.K))
SHIFT = exchange("shift", "pass on K", P.K)
SCRATCH = Tensor("X", P.K.axes, "float32", "slow")


def build(name: str, shape: AttentionShape, ranks: object) -> Callable[[], object]:
    return lambda: family(name).build(shape, br=2, bc=2, ranks=ranks)


def ranked(*body: Node, ranks: Ranks | None = None) -> Callable[[], object]:
    return lambda: Schedule("odd", SHAPE, body, ranks=ranks)


def run_alone_in_a_shift() -> object:
    """Rank 0 leaves a shift out that the others make."""

    class Fewer(Others):
        def visits(self, ranks: int, i: int) -> tuple[int, ...]:
            return tuple(super().visits(ranks, i))[: 1 if i == 0 else None]

    body = (For(RANK, (For(SHARD, SHIFT, relation=Fewer("rank", "shard")),)),)
    return execute(Schedule("odd", SHAPE, body, ranks=Ranks(RANK, HOLDS)), *operands(SHAPE, 0))


def send_too_soon() -> object:
    body = (
        For(
            RANK, (For(SHARD, exchange("send", "send X", SCRATCH), relation=Own("rank", "shard")),)
        ),
    )
    return count(Schedule("odd", SHAPE, body, ranks=Ranks(RANK, HOLDS)))


def load_of_others() -> object:
    body = (
        For(
            RANK,
            (For(SHARD, (*load("load K", P.K), *free(P.K)), relation=Others("rank", "shard")),),
        ),
    )
    return check(Schedule("odd", SHAPE, body, ranks=Ranks(RANK, HOLDS)))


def ring_backwards() -> object:
    """Rank r asks for shard r + 1 first, which the rank before it does not have yet."""

    class Backwards(Others):
        def visits(self, ranks: int, i: int) -> tuple[int, ...]:
            return tuple(super().visits(ranks, i))[::-1]

    schedule = trees.edited(
        family("ring").build(SHAPE, br=3, bc=2, ranks=4),
        lambda node: (
            replace(node, relation=Backwards("rank", "shard"))
            if isinstance(node, For) and isinstance(node.relation, Others)
            else node,
        ),
    )
    return execute(schedule, *operands(SHAPE, 0))


def tree_without_merges() -> object:
    schedule = trees.edited(
        family("tree_decoding").build(SHAPE, br=3, bc=2, ranks=4),
        lambda node: (
            () if isinstance(node, Compute) and node.operation == "merge_states" else (node,)
        ),
    )
    return execute(schedule, *operands(SHAPE, 0))


WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "no rank": (build("ring", SHAPE, 0), "ranks is 0, but it must be a whole number of at least 1"),
    "half a rank": (build("ulysses", SHAPE, 1.5), "ranks is 1.5, but it must be a whole number"),
    "ranks that are true": (build("tree_decoding", SHAPE, True), "ranks is True, but it must be"),
    "more ranks than queries": (
        build("ring", AttentionShape(3, 12, 4), 4),
        "ranks is 4, but in shards of 1 the 3 queries are enough for 3 only; give 3 ranks",
    ),
    "a rank without a key": (
        build("ring", AttentionShape(12, 5, 4), 4),
        "ranks is 4, but in shards of 2 the 5 keys are enough for 3 only; give 3 ranks",
    ),
    "more ranks than keys": (
        build("tree_decoding", AttentionShape(1, 3, 4), 4),
        "ranks is 4, but in shards of 1 the 3 keys are enough for 3 only; give 3 ranks",
    ),
    "ranks that do not divide the heads": (
        build("ulysses", AttentionShape(12, 12, 4, heads=6), 4),
        "ranks is 4, which does not divide the 6 heads of keys and values; it must",
    ),
    "more ranks than heads of keys": (
        build("ulysses", AttentionShape(12, 12, 4, heads=8, kv_heads=2), 4),
        "ranks is 4, which does not divide the 2 heads of keys and values; it must",
    ),
    "no power of two": (
        build("tree_decoding", AttentionShape(1, 12, 4), 3),
        "ranks is 3, but tree_decoding merges the results of ranks r and r xor 2\\^k; give a power",
    ),
    "a trace": (
        lambda: compile_trace(family("ring").build(SHAPE, br=2, bc=2, ranks=2)),
        "ring runs on several devices, which share no cache and have no addresses in common",
    ),
    "a rate of nothing": (
        lambda: overlap_rows(312e12, 0),
        "bytes_per_second is 0, but it must be more than 0",
    ),
    "an exchange without ranks": (
        ranked(For(RANK, (For(SHARD, SHIFT),))),
        "odd has an exchange in it, but does not say what its ranks hold",
    ),
    "a relation without ranks": (
        ranked(For(RANK, (For(SHARD, K_ONCE, relation=Own("rank", "shard")),))),
        "odd has a loop that is related to ranks in it, but does not say what its ranks hold",
    ),
    "work outside of the ranks": (
        ranked(*TOUCH, ranks=Ranks(RANK, HOLDS)),
        "odd has 'load Q' outside of the loop over its ranks",
    ),
    "an exchange with nobody": (
        ranked(For(RANK, SHIFT), ranks=Ranks(RANK, HOLDS)),
        "odd has 'pass on K' outside of any loop that is related to the ranks",
    ),
    "too few shards": (
        ranked(
            For(RANK, (For(
                replace(SHARD, block=6), SHIFT, relation=Others("rank", "shard")
            ),)),
            ranks=Ranks(RANK, HOLDS),
        ),
        "the loop over 'key' has 2 blocks for 4 ranks; there must be one for each",
    ),
    "a shift that one rank leaves out": (
        run_alone_in_a_shift,
        "line 'pass on K': a shift, which not all ranks take part in at once",
    ),
    "a tensor that is sent before it is there": (
        send_too_soon,
        r"line 'send X': send of X\[.*\], but nothing has stored X before",
    ),
    "a load of what another rank holds": (
        load_of_others,
        r"load of K\[.*\] on rank 0, which neither holds all of it nor is sent it",
    ),
    "a ring in the wrong order": (
        ring_backwards,
        r"line 'send K_s .*': rank 3 should send K\[3:6, 0:4\] to rank 0, but does not hold all",
    ),
    "copies that differ": (
        tree_without_merges,
        "output 'LSE' is another on rank 1 than on rank 0",
    ),
    "an output on the wrong rank": (
        lambda: execute(
            replace(
                family("ring").build(SHAPE, br=3, bc=2, ranks=4),
                ranks=Ranks(RANK, {**HOLDS, "V": HOLDS["K"], "O": P.query.cut(2)}),
            ),
            *operands(SHAPE, 0),
        ),
        "output 'LSE' has words that nothing has written on rank 0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("why", WRONG)
def test_what_several_devices_could_not_run_is_refused(why: str) -> None:
    action, complaint = WRONG[why]
    with pytest.raises(IosimError, match=complaint):
        action()


# From the command line


def called(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, words)
    return result.exit_code, result.output


def test_simulate_records_what_each_device_sends() -> None:
    words = "simulate --schedule flash2,ring --seq-len 1k --head-dim 64 --br 64 --bc 64 --ranks 4"
    code, output = called(*words.split(), "--causal", "--format", "json")
    assert code == 0
    alone, ring = json.loads(output)["records"]
    assert "ranks" not in alone
    assert ring["ranks"] == 4
    assert ring["interconnect_words"] == 3 * 1024 * 128
    assert ring["interconnect_bytes"] == 2 * ring["interconnect_words"]
    assert ring["interconnect_send_words"] == ring["interconnect_receive_words"] == 3 * 256 * 128
    assert ring["interconnect_bound_words"] == ring["interconnect_words"] // 2
    assert ring["rank_total_words"] > ring["total_words"] // 4
    assert 0.5 < ring["rank_balance"] < 0.7
    assert ring["tensors"]["K"]["interconnect_words"] == 3 * 1024 * 64
    code, output = called(*words.split(), "--ranks", "2,4")
    assert code == 0
    heading, alone, *rings = output.splitlines()[2:]
    assert "interconnect_send (words)" in heading
    assert alone.startswith("flash2")
    assert len(rings) == 2


def test_explain_says_what_is_sent_on_which_line() -> None:
    words = "explain --schedule ring --seq-len 1k --head-dim 64 --br 64 --bc 64 --ranks 4"
    code, output = called(*words.split())
    assert code == 0
    assert "sends K: p_o n_k d = 196 608 words" in output
    assert "sends between devices 2 p_o n_k d = 393 216 words, 768 KiB (786 432 B)" in output
    assert "lower bound between devices (queries_stay) 393 216 words" in output
    assert "p_o = 3  other ranks, p - 1" in output
    code, output = called(*words.split(), "--format", "json")
    sent = [record["interconnect_words"] for record in json.loads(output)["records"]]
    assert sum(sent) == 393_216


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--schedule ring", "--ranks is missing; ring runs on several devices, so write --ranks 4"),
        ("--schedule flash2 --ranks 4", "--ranks 4 is no setting of flash2; write --schedule ring"),
        ("--schedule ring --ranks 0", "'0' is too small; the least is 1"),
        ("--schedule ring --ranks 2k", "ranks is 2048, but in shards of 1 the 1024 queries are"),
        ("--schedule ulysses --ranks 2", "ranks is 2, which does not divide the 1 heads"),
    ],
)
def test_wrong_ranks_are_one_sentence(words: str, complaint: str) -> None:
    shape = "simulate --seq-len 1k --head-dim 64 --br 8 --bc 8"
    code, output = called(*f"{shape} {words}".split())
    assert code == 2
    assert complaint in output
