"""Small pebble games: the search against brute force, known optima, bounds, broken witnesses."""

import random
from functools import lru_cache
from itertools import product
from pathlib import Path

import naive_pebble
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iosim.errors import CapacityError, IosimError, ScheduleError
from iosim.proofs import pebble_table as tables
from iosim.proofs.pebble import solve
from iosim.proofs.pebble_moves import GAMES, Game, Instance, Move, replay
from iosim.proofs.pebble_schedules import best_schedule, schedule_moves, without_statistics
from iosim.proofs.pebble_search import Canonical, evictions
from iosim.reading.count import count
from iosim.schedule import family
from iosim.shape import AttentionShape

PAGE = Path(__file__).parents[1] / "docs" / "small-instances.md"
solved = lru_cache(maxsize=None)(solve)
by_brute_force = lru_cache(maxsize=None)(naive_pebble.optimum)


def instance(
    n_q: int, n_k: int, words: int, d: int = 1, *, game: Game = "fused", causal: bool = False
) -> Instance:
    return Instance(AttentionShape(n_q, n_k, d, causal=causal), words, game)


def least_words(shape: AttentionShape, game: Game) -> int:
    width = shape.head_dim + shape.value_dim
    return width + 1 if game in ("unfused", "either") else 2 * width


# Found by an earlier program: n_q, n_k, then M and the optimum, d = d_v = 1.
KNOWN = [
    (2, 2, {4: 10, 5: 9, 6: 8}),
    (2, 3, {4: 14, 5: 12, 6: 10}),
    (3, 3, {4: 20, 5: 18, 6: 16, 7: 14, 8: 12}),
    (3, 4, {4: 26, 6: 20}),
    (4, 3, {5: 22}),
    (4, 4, {4: 34, 5: 28, 6: 22, 7: 21, 8: 20}),
]


@pytest.mark.parametrize(
    ("n_q", "n_k", "words", "optimum"),
    [(n_q, n_k, words, best) for n_q, n_k, row in KNOWN for words, best in row.items()],
)
def test_known_optima(n_q: int, n_k: int, words: int, optimum: int) -> None:
    found = solved(instance(n_q, n_k, words))
    assert found.words == optimum
    assert replay(found.instance, found.moves).traffic == optimum


# What brute force does in well under a second; scores make many more raw configurations.
TINY_FUSED = [(1, 1, 1, 1), (1, 1, 2, 1), (1, 1, 1, 2), (1, 2, 1, 1), (2, 1, 1, 1), (2, 2, 1, 1)]
TINY_UNFUSED = [(1, 1, 1, 1), (1, 2, 1, 1), (2, 1, 1, 1)]


@st.composite
def tiny_instances(draw: st.DrawFn) -> Instance:
    game: Game = draw(st.sampled_from(GAMES))
    scores = game in ("unfused", "either")
    sizes = TINY_UNFUSED if scores else TINY_FUSED
    n_q, n_k, d, d_v = draw(st.sampled_from(sizes))
    causal = n_q <= n_k and draw(st.booleans())
    shape = AttentionShape(n_q, n_k, d, d_v, causal=causal)
    return Instance(
        shape, least_words(shape, game) + draw(st.integers(0, 1 if scores else 2)), game
    )


@settings(max_examples=20)
@given(tiny_instances())
def test_search_finds_what_brute_force_finds(tiny: Instance) -> None:
    assert solved(tiny).words == by_brute_force(tiny)


@pytest.mark.parametrize("game", ["fused", "reducing"])
@pytest.mark.parametrize(("n_q", "n_k"), [(1, 2), (2, 1), (2, 2)])
@pytest.mark.parametrize("words", [4, 5, 6])
def test_search_finds_what_brute_force_finds_on_each(
    n_q: int, n_k: int, words: int, game: Game
) -> None:
    case = instance(n_q, n_k, words, game=game)
    assert solved(case).words == by_brute_force(case)


@st.composite
def small_instances(draw: st.DrawFn, games: tuple[Game, ...] = GAMES) -> Instance:
    game = draw(st.sampled_from(games))
    n_q, n_k = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    if game in ("unfused", "either") and n_q * n_k > 6:
        n_k = 2
    d = draw(st.integers(1, 2))
    d_v = draw(st.integers(1, 2)) if game in ("fused", "reducing") else d
    causal = n_q <= n_k and draw(st.booleans())
    shape = AttentionShape(n_q, n_k, d, d_v, causal=causal)
    return Instance(shape, least_words(shape, game) + draw(st.integers(0, 4 * d)), game)


@settings(max_examples=60)
@given(small_instances())
def test_a_witness_replays_to_the_optimum_within_m(case: Instance) -> None:
    found = solved(case)
    played = replay(case, found.moves)
    assert played.traffic == found.words
    assert played.peak_words <= case.words


@settings(max_examples=60)
@given(small_instances(games=("fused", "reducing")))
def test_no_bound_exceeds_an_optimum(case: Instance) -> None:
    assert all(b.words <= solved(case).words for b in tables.fused_bounds(case))


def test_the_compulsory_bound_is_reached_where_all_fits() -> None:
    row = tables.compare(AttentionShape(3, 3, 1), 8)
    assert row.optimum == row.largest_bound == row.bounds["compulsory"]


@settings(max_examples=30)
@given(small_instances(games=("unfused",)))
def test_compulsory_words_bound_the_unfused_games_too(case: Instance) -> None:
    either = solved(Instance(case.shape, case.words, "either"))
    compulsory = tables.fused_bounds(case)[0]
    assert compulsory.name == "compulsory"
    assert compulsory.words <= either.words <= solved(case).words


@settings(max_examples=30)
@given(small_instances())
def test_more_memory_never_costs(case: Instance) -> None:
    assert solved(Instance(case.shape, case.words + 1, case.game)).words <= solved(case).words


@pytest.mark.parametrize("words", range(4, 9))
def test_more_moves_never_cost(words: int) -> None:
    optimum = {game: solved(instance(2, 3, words, game=game)).words for game in GAMES}
    assert optimum["reducing"] <= optimum["fused"]
    assert optimum["either"] <= min(optimum["fused"], optimum["unfused"])


@pytest.mark.parametrize("words", range(4, 9))
def test_with_reductions_queries_and_keys_change_places(words: int) -> None:
    # Then an accumulator costs one word each time it comes in, like any row of Q, K or V.
    there = solved(instance(3, 4, words, game="reducing")).words
    assert there == solved(instance(4, 3, words, game="reducing")).words
    assert there <= solved(instance(3, 4, words)).words


def test_a_reduction_can_pay() -> None:
    assert solved(instance(3, 4, 6, game="reducing")).words == 18 < solved(instance(3, 4, 6)).words


@pytest.mark.parametrize(("n", "rows"), [(2, 4), (2, 5), (2, 6), (3, 4), (3, 5), (3, 6)])
def test_word_by_word_is_no_better_than_row_by_row_where_rows_fit(n: int, rows: int) -> None:
    # Seen on every instance solved, and not proved.
    assert solved(instance(n, n, 2 * rows, 2)).words == 2 * solved(instance(n, n, rows)).words


# Broken witnesses

GIVEN = [
    instance(2, 2, 4),
    instance(3, 3, 6),
    instance(2, 2, 9, 2),
    instance(3, 3, 5, causal=True),
    instance(3, 4, 6, game="reducing"),
    instance(2, 3, 3, game="unfused"),
    instance(2, 2, 9, 2, game="unfused"),
    instance(2, 3, 5, game="either"),
]


@pytest.mark.parametrize("case", GIVEN, ids=str)
def test_without_any_of_its_moves_a_witness_is_refused(case: Instance) -> None:
    found = solved(case)
    for at, move in enumerate(found.moves):
        # Without a drop there may still be room enough; all else is needed, and without a word
        # moved the rest would beat the optimum.
        if move.kind != "drop":
            with pytest.raises(ScheduleError):
                replay(case, [*found.moves[:at], *found.moves[at + 1 :]])


@pytest.mark.parametrize("case", GIVEN, ids=str)
def test_one_word_less_than_its_peak_is_refused(case: Instance) -> None:
    found = solved(case)
    peak = replay(case, found.moves).peak_words
    with pytest.raises(CapacityError, match=f"{peak} words in fast memory, but M is {peak - 1}"):
        replay(Instance(case.shape, peak - 1, case.game), found.moves)


ONE = [Move("load", (kind, 0, 0)) for kind in "qkv"] + [Move("new", ("a", 0, 0))]
PROC, STORE = Move("proc", (0, 0)), Move("store", ("a", 0, 0))


@pytest.mark.parametrize(
    ("moves", "complaint"),
    [
        ([*ONE, PROC], "does not end in slow memory"),
        ([*ONE, STORE], "does not end in slow memory"),
        ([*ONE, PROC, PROC, STORE], "counted twice"),
        ([*ONE, PROC, STORE, Move("load", ("a", 0, 0))], "counted twice"),
        ([*ONE, PROC, Move("add", ("a", 0, 0))], "not a move of the fused game"),
        ([*ONE, Move("score", (0, 0))], "not a move of this fused game"),
        ([*ONE, Move("proc", (0, 1))], "not a move of this fused game"),
        ([*ONE, Move("new", ("a", 0, 0))], "resident already"),
        ([Move("new", ("q", 0, 0))], "an input"),
        ([*ONE, Move("store", ("q", 0, 0))], "an input"),
        ([STORE], "not resident"),
        ([Move("load", ("a", 0, 0))], "never stored"),
        ([Move("drop", ("q", 0, 0))], "not resident"),
        ([Move("jump", ("q", 0, 0))], "no such move"),
    ],
)
def test_what_the_rules_do_not_allow_is_refused(moves: list[Move], complaint: str) -> None:
    with pytest.raises(ScheduleError, match=complaint):
        replay(instance(1, 1, 4), moves)


@pytest.mark.parametrize(
    ("kind", "missing"),
    [("proc", row) for row in "qkva"]
    + [("score", row) for row in "qks"]
    + [("absorb", row) for row in "vas"],
)
def test_a_computation_without_one_of_its_operands_is_refused(kind: str, missing: str) -> None:
    made = {row: Move("new" if row in "as" else "load", (row, 0, 0)) for row in "qkvas"}
    moves = list(made.values())
    if kind == "absorb":
        moves.append(Move("score", (0, 0)))
    moves.append(Move("drop", (missing, 0, 0)))
    with pytest.raises(ScheduleError, match=f"{missing}0,0 is not in fast memory"):
        replay(instance(1, 1, 5, game="either"), [*moves, Move(kind, (0, 0))])


def test_a_score_that_was_never_formed_is_refused() -> None:
    moves = [*ONE[2:], Move("new", ("s", 0, 0)), Move("absorb", (0, 0))]
    with pytest.raises(ScheduleError, match="never formed"):
        replay(instance(1, 1, 4, game="unfused"), moves)


# Schedules


@pytest.mark.parametrize("name", tables.SCHEDULES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("n_q", "n_k", "d"), [(3, 3, 1), (2, 3, 2), (4, 5, 1)])
def test_schedules_replay_to_their_count(
    name: str, causal: bool, n_q: int, n_k: int, d: int
) -> None:
    shape = AttentionShape(n_q, n_k, d, causal=causal)
    for br, bc in product(range(1, n_q + 1), range(1, n_k + 1)):
        schedule = without_statistics(family(name).build(shape, br=br, bc=bc))
        counted = count(schedule)
        case = Instance(shape, counted.peak_words)
        played = replay(case, schedule_moves(schedule, case))
        assert (played.loads, played.stores) == (counted.read_words, counted.write_words)
        assert played.peak_words == counted.peak_words


@settings(max_examples=40)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 2), st.integers(0, 8))
def test_best_schedules_by_their_formulas(n_q: int, n_k: int, d: int, more: int) -> None:
    # Without statistics, d_v = d: flash2 moves 2 n_q d + T_r 2 n_k d words and flash1
    # 2 n_k d + n_q d + T_c 3 n_q d; both hold 2 (B_r + B_c) d.
    case = instance(n_q, n_k, 4 * d + more, d)
    tiles = [
        (br, bc)
        for br, bc in product(range(1, n_q + 1), range(1, n_k + 1))
        if 2 * (br + bc) * d <= case.words
    ]
    for name, least in (
        ("flash2", min(2 * n_q * d + -(-n_q // br) * 2 * n_k * d for br, _ in tiles)),
        ("flash1", min(2 * n_k * d + n_q * d + -(-n_k // bc) * 3 * n_q * d for _, bc in tiles)),
    ):
        best = best_schedule(name, case)
        assert best is not None
        assert best.words == least
        assert best.peak_words <= case.words


def test_where_no_tile_fits_there_is_no_schedule() -> None:
    assert best_schedule("flash2", instance(2, 2, 3)) is None


def test_a_counted_score_takes_one_word_from_the_fused_game() -> None:
    row = tables.compare_unfused(AttentionShape(2, 2, 2), 9)
    assert (row.fused, row.fused_counted, row.unfused, row.saved) == (19, 20, 16, 3)
    assert tables.compare_unfused(AttentionShape(2, 2, 2), 8).fused_counted is None


# An unfused schedule can be better: both optima have witnesses, and the fused one is exact.


@pytest.mark.parametrize(
    ("n_q", "n_k", "d", "words", "fused", "unfused"),
    [(2, 2, 2, 8, 20, 18), (2, 2, 2, 9, 19, 16), (2, 2, 3, 12, 30, 24), (2, 4, 3, 12, 54, 44)],
)
def test_keeping_scores_can_beat_every_fused_execution(
    n_q: int, n_k: int, d: int, words: int, fused: int, unfused: int
) -> None:
    assert words >= d * d
    assert solved(instance(n_q, n_k, words, d)).words == fused
    found = solved(instance(n_q, n_k, words, d, game="unfused"))
    assert replay(found.instance, found.moves).traffic == found.words == unfused


@pytest.mark.parametrize("words", range(4, 8))
def test_with_rows_of_one_word_keeping_scores_does_not_pay(words: int) -> None:
    for n_q, n_k in ((2, 2), (2, 3), (3, 2)):
        either = solved(instance(n_q, n_k, words, game="either")).words
        assert either == solved(instance(n_q, n_k, words)).words


# What the search is made of


@given(st.integers(0, 2**32), st.integers(1, 2))
def test_the_least_form_forgets_names(seed: int, bits: int) -> None:
    draw = random.Random(seed)
    n_q, n_k = draw.randint(1, 3), draw.randint(1, 4)
    rows = [
        (draw.randrange(1 << bits * n_k), *(draw.randint(0, 1) for _ in range(3)))
        for _ in range(n_q)
    ]
    keys = [draw.randint(0, 2) for _ in range(n_k)]
    order = draw.sample(range(n_k), n_k)
    mask = (1 << bits) - 1
    other = [
        (sum((code >> bits * j & mask) << bits * new for new, j in enumerate(order)), *rest)
        for code, *rest in draw.sample(rows, n_q)
    ]
    least = Canonical(n_k, bits)
    assert least((tuple(rows), tuple(keys))) == least((tuple(other), tuple(keys[j] for j in order)))


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), max_size=4), st.integers(-1, 8))
def test_evictions_are_those_that_give_nothing_up_needlessly(
    sizes: list[tuple[int, int]], need: int
) -> None:
    items = [(("q", i, 0), units, words) for i, (units, words) in enumerate(sizes)]
    expected = set()
    for given_up in product(*(range(units + 1) for _, units, _ in items)):
        freed = sum(n * words for n, (_, _, words) in zip(given_up, items, strict=True))
        chosen = [(n, item) for n, item in zip(given_up, items, strict=True) if n]
        if freed >= need and all(freed - words < need for _, (_, _, words) in chosen):
            expected.add(tuple((label, n) for n, (label, _, _) in chosen))
    found = list(evictions(items, need))
    assert set(found) == expected
    assert len(found) == len(expected)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: solve(instance(2, 2, 3)), "M is 3 words, but the fused game needs at least 4"),
        (lambda: solve(instance(2, 2, 2, game="unfused")), "needs at least 3"),
        (lambda: solve(instance(3, 3, 4), limit=5), "at least 1[0-9] words; give a larger limit"),
        (lambda: Instance(AttentionShape(2, 2, 1, heads=2), 4), "about one head"),
        (lambda: Instance(AttentionShape(3, 2, 1, causal=True), 4), "some query sees no key"),
        (lambda: Instance(AttentionShape(2, 2, 1), 4, "chess"), "game 'chess'"),  # type: ignore[arg-type]
        (
            lambda: solve(Instance(AttentionShape(2, 2, 1, 2), 9, "unfused")),
            "value_dim is 2 and head_dim 1",
        ),
        (lambda: tables.with_table("no markers", "fused", []), "no place for table 'fused'"),
    ],
)
def test_wrong_use_is_refused(make: object, complaint: str) -> None:
    assert callable(make)
    with pytest.raises(IosimError, match=complaint):
        make()


# The page


def test_the_page_has_the_rows_that_are_computed_now() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    fused = [tables.compare(shape, words) for shape, words in tables.QUICK_CASES]
    unfused = [tables.compare_unfused(shape, words) for shape, words in tables.QUICK_UNFUSED]
    for table, slow in (
        (tables.markdown(fused, tables.fused_columns()), tables.SLOW_CASES),
        (tables.markdown(unfused, tables.unfused_columns()), tables.SLOW_UNFUSED),
    ):
        start = lines.index(table[0])
        assert lines[start : start + len(table)] == table
        rest = lines[start + len(table) :]
        assert rest.index("") == len(slow)


def test_a_table_takes_its_place_on_a_page() -> None:
    page = "before\n<!-- table x -->\nold\n<!-- end of table x -->\nafter\n"
    once = tables.with_table(page, "x", ["| new |"])
    assert once == "before\n<!-- table x -->\n\n| new |\n\n<!-- end of table x -->\nafter\n"
    assert tables.with_table(once, "x", ["| new |"]) == once
