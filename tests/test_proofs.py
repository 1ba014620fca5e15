"""The bridge between the Coq proofs and the code: names, constants, ranges and counts agree.

The text of each theorem is read from its .v file and evaluated with the functions of iosim in the
place of Coq's. What needs coqc is in test_coq.py.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import strategies
from hypothesis import assume, given
from hypothesis import strategies as st

from iosim import bounds
from iosim.errors import CapacityError, IosimError
from iosim.proofs.page import fill
from iosim.proofs.statement import FOLDER, Statement, evaluate, sides, statements, without_comments
from iosim.proofs.theorems import CITED, THEOREMS, Theorem, theorem
from iosim.reading.check import Checked, check
from iosim.reading.count import count, total_words
from iosim.reading.traffic import Traffic
from iosim.schedule import family
from iosim.shape import AttentionShape
from iosim.verify.capacity import held_words
from iosim.verify.registry import checks
from iosim.verify.sandwich import LAWS, Law

ids = [each.id for each in THEOREMS]
BOUNDS = bounds.bounds_of("forward") | bounds.bounds_of("backward")


@cache
def named(name: str) -> Statement:
    """Return what Coq states under a name."""
    record = theorem(name)
    return next(part for part in record.parts if part.name == name)


# What the names of the Coq files mean in iosim.


def flash1(n_q: int, n_k: int, d: int, br: int, bc: int) -> Traffic:
    return count(family("flash1").build(AttentionShape(n_q, n_k, d), br=br, bc=bc))


def flash2(n_q: int, n_k: int, d: int, br: int, bc: int) -> Traffic:
    return count(family("flash2").build(AttentionShape(n_q, n_k, d), br=br, bc=bc))


def flash1_backward(n_q: int, n_k: int, d: int, br: int, bc: int) -> Traffic:
    return count(family("flash1_backward").build(AttentionShape(n_q, n_k, d), br=br, bc=bc))


def causal(name: str) -> Callable[[int, int, int, int, int], Traffic]:
    def counted(n_q: int, n_k: int, d: int, br: int, bc: int) -> Traffic:
        # Coq's n_k - n_q is 0 where n_q > n_k: the mask is then aligned at the top left.
        align = "bottom-right" if n_q <= n_k else "top-left"
        shape = AttentionShape(n_q, n_k, d, causal=True, align=align)
        return count(family(name).build(shape, br=br, bc=bc))

    return counted


def by_rule(law: Law) -> Callable[[int, int, int], int]:
    def words(n: int, d: int, m: int) -> int:
        shape = AttentionShape(n, n, d)
        sizes = law.rule(family(law.schedule), shape, m)
        return total_words(family(law.schedule).build(shape, **sizes))

    return words


def causal_best(n: int, d: int, m: int) -> int:
    return causal("flash2")(n, n, d, (m - 2 * d) // (2 * d + 3), 1).total_words


def itself(value: Any) -> Any:
    return value


def cdiv(n: int, b: int) -> int:
    return -(-n // b)


PROVED = {law.source: law for law in LAWS if law.source.isidentifier()}
MEANING: dict[str, Any] = {
    "traffic": lambda counted: counted.total_words,
    "loads": lambda counted: counted.read_words,
    "stores": lambda counted: counted.write_words,
    "cdiv": cdiv,
    "sum": lambda n, f: sum(f(i) for i in range(n)),
    "Nat.min": min,
    "Nat.max": max,
    "flash1": flash1,
    "flash2": flash2,
    "flash1_backward": flash1_backward,
    "flash1_causal": causal("flash1"),
    "flash2_causal": causal("flash2"),
    "keys_seen": lambda nq, nk, br, i: min(nq, (i + 1) * br) + max(nk - nq, 0),
    "flash2_causal_best": causal_best,
    **{
        source.removesuffix("_sandwich"): by_rule(law) for source, law in PROVED.items()
    },  # flash1_printed and so on
}
MEANING["visited"] = lambda nq, nk, br, bc, i: cdiv(MEANING["keys_seen"](nq, nk, br, i), bc)
MEANING["first"] = lambda nq, nk, br, bc, j: max(j * bc - max(nk - nq, 0), 0) // br

# For executions the traffic is a number of its own.
EXECUTION = {**MEANING, "traffic": itself, "loads": itself, "news": itself, "length": itself}
EXECUTION["Machine.traffic"] = itself

small = st.integers(1, 40)


def least_memory(statement: Statement, known: dict[str, Any]) -> int:
    """Return the least M that the premises of the form `words <= M` allow."""
    compared = [sides(premise) for premise in statement.ranges]
    return max(evaluate(left, known) for left, *right in compared if right == ["M"])


# The records.


def test_records_and_printed_assumptions_are_of_the_same_theorems() -> None:
    printed = re.findall(r"@(\w+)", without_comments((FOLDER / "Assumptions.v").read_text()))
    recorded = [name for each in THEOREMS for name in (each.name, *each.also)]
    assert sorted(printed) == sorted(recorded)
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("record", THEOREMS, ids=ids)
def test_a_record_names_theorems_of_its_file(record: Theorem) -> None:
    assert [part.name for part in record.parts] == [record.name, *record.also]
    assert theorem(record.id) is theorem(record.name) is record


@pytest.mark.parametrize("record", THEOREMS, ids=ids)
def test_constants_are_those_of_the_text(record: Theorem) -> None:
    assert leading(record.coq) == list(record.constants)


def leading(statement: Statement) -> list[int]:
    """Return the coefficients of N^2 d^2 in the bounds that a theorem sets on a traffic."""
    big = 10**6
    names = ["N", "nq", "nk", "d", "dv", "br", "bc", "k"]
    numbers = {**EXECUTION, **dict.fromkeys(names, big), "M": 1, "vis": big * big}
    claims = [claim for claim in statement.numbers if "<=" in claim]
    known = statement.define(numbers) if claims else {}
    found = []
    for claim in claims:
        parts = sides(claim)
        terms = [part for part in parts if not re.search(r"\btraffic\b|\bloads\b|flash", part)]
        found += [evaluate(term, known) // big**4 for term in terms]
    return [coefficient for coefficient in found if 0 < coefficient < big]


def test_what_a_record_says_it_backs_is_there() -> None:
    rows = {f"sandwich: {law.schedule}, {law.tiles}" for law in LAWS}
    for record in THEOREMS:
        assert set(record.bounds) <= set(BOUNDS)
        assert set(record.checks) <= rows | set(checks())
    assert rows <= {row for record in THEOREMS for row in record.checks}


def test_every_bound_is_proved_or_says_that_it_is_cited() -> None:
    proved = {name for record in THEOREMS for name in record.bounds}
    assert proved | set(CITED) == set(BOUNDS)
    assert not proved & set(CITED)
    for name, bound in BOUNDS.items():
        source = bound(AttentionShape(8, 8, 4), 64, None).source
        if name in CITED:
            assert "coq" not in source.lower()
            assert CITED[name] in source
        else:
            cited = re.findall(r"proofs/coq/(\w+\.v), (\w+)", source)
            assert cited
            for file, of in cited:
                assert theorem(of).file == file
                assert of in (theorem(of).name, *theorem(of).also)
                assert name in theorem(of).bounds


def test_the_page_shows_every_theorem_as_its_file_has_it() -> None:
    shown = fill((FOLDER.parents[1] / "docs" / "proofs.md").read_text(encoding="utf-8"))
    for record in THEOREMS:
        assert record.statement in shown
        (block,) = re.findall(rf"```coq\n(\w+ {record.name}\b.*?)\n```", shown, re.DOTALL)
        assert block in (FOLDER / record.file).read_text(encoding="utf-8")


def test_an_unknown_theorem_and_an_unknown_file_are_named() -> None:
    with pytest.raises(IosimError, match="unknown theorem 'fused_bond'; did you mean"):
        theorem("fused_bond")
    with pytest.raises(IosimError, match=r"Missing\.v cannot be read"):
        statements("Missing.v")


# The bounds of iosim.bounds are those of the theorems.


@pytest.mark.parametrize(
    "name",
    [
        *("fused_bound_masked", "unfused_bound_masked", "general_bound_masked"),
        *("unfused_window_bound", "general_window_bound"),
        *("backward_bound", "backward_bound_recomputing"),
    ],
)
@given(shape=strategies.shapes(rows=60, width=9), m=st.integers(2, 3000))
def test_a_bound_is_the_least_traffic_that_its_theorem_leaves(
    name: str, shape: AttentionShape, m: int
) -> None:
    of = theorem(name).bounds[0]
    words = BOUNDS[of](shape, m, None).words
    known = {
        **EXECUTION,
        "vis": shape.batch * shape.heads * bounds.visible_pairs(shape),
        "d": shape.head_dim,
        "dv": shape.value_dim,
        "M": m,
    }
    assert named(name).applies(known)
    assert named(name).holds({**known, "es": words})
    assert words == 0 or not named(name).holds({**known, "es": words - 1})


@given(n_q=small, n_k=small, d=small, m=st.integers(1, 1600))
def test_the_bound_of_small_memories_is_the_least_that_its_theorem_leaves(
    n_q: int, n_k: int, d: int, m: int
) -> None:
    found = bounds.small_memory(AttentionShape(n_q, n_k, d), m)
    known = {**EXECUTION, "nq": n_q, "nk": n_k, "d": d, "M": m}
    statement = named("small_memory_bound")
    assert found.holds == (m <= d * d) == statement.applies(known)
    if found.holds:
        assert statement.holds({**known, "es": found.words})
        assert found.words == 0 or not statement.holds({**known, "es": found.words - 1})


@given(n=small, d=small, m=st.integers(2, 3000), words=st.integers(0, 10**6))
def test_special_cases_follow_from_the_bounds(n: int, d: int, m: int, words: int) -> None:
    shape, masked = AttentionShape(n, n, d), AttentionShape(n, n, d, causal=True)
    known = {**EXECUTION, "N": n, "nq": n, "nk": n, "d": d, "dv": d, "M": m, "es": words}

    def agrees(name: str, bound: str, of: AttentionShape) -> bool:
        return named(name).holds(known) == (words >= BOUNDS[bound](of, m, None).words)

    assert agrees("fused_bound", "fused", shape)
    assert agrees("fused_bound_constant_4", "fused", shape)
    assert agrees("fused_bound_causal", "fused", masked)
    assert agrees("unfused_bound_constant_2", "whole_rows", shape)
    assert agrees("general_bound", "general", shape)
    assert agrees("unfused_bound_large_memory", "whole_rows_large_memory", shape)
    assert agrees("general_bound_large_memory", "general_large_memory", shape)
    assert agrees("backward_bound_constant_10", "backward_fused_again", shape)
    assert agrees("backward_bound_constant_12", "backward_fused", shape)
    assert agrees("general_bound", "backward_general", shape)
    if named("general_bound_constant_1").applies(known):
        assert agrees("general_bound_constant_1", "general", shape)


@given(
    shape=strategies.shapes(rows=60, width=9), m=st.integers(2, 3000), made=st.integers(0, 10**5)
)
def test_the_bound_with_the_words_made_is_that_of_its_theorem(
    shape: AttentionShape, m: int, made: int
) -> None:
    checked = Checked(
        *(m, m, True, True, False, False),
        gradients=("dQ", "dK", "dV"),
        once=True,
        gradient_words_made=made,
    )
    words = BOUNDS["backward_fused_made"](shape, m, checked).words
    pairs = shape.batch * shape.heads * bounds.visible_pairs(shape)
    known = {**EXECUTION, "vis": pairs, "d": shape.head_dim, "dv": shape.value_dim, "M": m}
    statement = named("backward_bound_news")
    known["news"] = lambda es: made
    assert statement.holds({**known, "es": words})
    assert words == 0 or not statement.holds({**known, "es": words - 1})


# The laws of `verify sandwich` are those of the theorems.


@pytest.mark.parametrize("law", PROVED.values(), ids=PROVED)
@given(n=small, d=small, m=st.integers(0, 2000), words=st.integers(0, 10**7))
def test_a_law_has_the_range_and_the_constants_of_its_theorem(
    law: Law, n: int, d: int, m: int, words: int
) -> None:
    a, b = law.least
    statement = named(law.source)
    known = {**MEANING, "N": n, "d": d}
    for edge in (m, a * d + b - 1, a * d + b, n * d, n * d + 1):
        assert statement.applies(known | {"M": edge}) == (a * d + b <= edge <= n * d)
    m = max(m, 1)
    unit = n * n * d * d
    edges = [
        cdiv(constant * unit, m) + more
        for constant in (law.lower, law.upper)
        for more in (-1, 0, 1)
    ]
    for q in [words, *edges]:
        of = {law.source.removesuffix("_sandwich"): lambda n, d, m, q=q: q, "M": m}
        assert statement.holds(known | of) == (law.lower * unit <= q * m <= law.upper * unit)


def test_the_best_tile_has_the_constants_of_two_theorems() -> None:
    best = [law for law in LAWS if law not in PROVED.values()]
    assert len(best) == 2
    for law in best:
        row = f"sandwich: {law.schedule}, {law.tiles}"
        lower, upper = sorted(
            (each for each in THEOREMS if row in each.checks), key=lambda each: len(each.constants)
        )
        assert lower.name in law.source
        assert "fused" in lower.bounds
        assert (law.lower,) == lower.constants
        assert law.upper == upper.constants[1]
        assert law.least == PROVED[upper.name].least


@pytest.mark.parametrize(
    "record",
    [each for each in THEOREMS if re.search("sandwich|tight", each.name)],
    ids=lambda each: each.name,
)
@given(data=st.data())
def test_counts_lie_in_the_sandwich(record: Theorem, data: st.DataObject) -> None:
    n, d = data.draw(st.integers(1, 300)), data.draw(st.integers(1, 40))
    m = data.draw(st.integers(4 * d, max(n * d, 8 * d + 6)))
    known = {**MEANING, "N": n, "d": d, "M": m}
    assume(record.coq.applies(known))
    assert record.coq.holds(known)


# The closed forms are what count gives.


@pytest.mark.parametrize(
    "name",
    [
        *("flash1_traffic", "flash1_reads_writes", "flash2_traffic", "flash2_reads_writes"),
        *("flash1_causal_traffic", "flash2_causal_traffic"),
        *("flash1_causal_exact", "flash2_causal_exact"),
        *("flash1_backward_traffic", "flash1_backward_reads", "flash1_backward_writes"),
    ],
)
@given(nq=small, nk=small, d=small, br=small, bc=small, k=st.integers(1, 4))
def test_closed_forms_are_the_count(
    name: str, nq: int, nk: int, d: int, br: int, bc: int, k: int
) -> None:
    known = {**MEANING, "nq": nq, "nk": nk, "N": nq, "d": d, "br": br, "bc": bc, "k": k}
    if name == "flash1_causal_exact":
        known["bc"] = k * br
    if name == "flash2_causal_exact":
        known["br"] = k * bc
    assert named(name).applies(known)
    assert named(name).holds(known)


@pytest.mark.parametrize("name", ["flash1", "flash2"])
@given(n=st.integers(1, 60), d=small, br=small, bc=small)
def test_tiles_fit_from_where_the_theorem_says(name: str, n: int, d: int, br: int, bc: int) -> None:
    held = held_words(d, br, bc)
    known = {**MEANING, "d": d, "br": br, "bc": bc}
    assert named(f"{name}_fits").applies({**known, "M": held})
    assert not named(f"{name}_fits").applies({**known, "M": held - 1})
    checked = check(family(name).build(AttentionShape(n, n, d), br=br, bc=bc))
    assert checked.peak_words <= held
    assert checked.peak_words == held or n < max(br, bc)


@given(d=st.integers(1, 64), n=st.integers(1, 500), more=st.integers(0, 5000))
def test_printed_tiles_fit_in_the_range_of_the_theorem(d: int, n: int, more: int) -> None:
    least = least_memory(named("flash1_printed_fits"), {"d": d})
    shape = AttentionShape(n, n, d)
    tiles = PROVED["flash1_printed_sandwich"].rule(family("flash1"), shape, least + more)
    assert check(family("flash1").build(shape, **tiles)).peak_words <= least + more


@given(nq=small, nk=small, d=st.integers(1, 12), br=small, m=st.integers(1, 3000))
def test_printed_backward_tiles_fit_nowhere(nq: int, nk: int, d: int, br: int, m: int) -> None:
    known = {**MEANING, "nq": nq, "nk": nk, "d": d, "br": br, "M": m}
    assume(named("flash1_backward_never_fits").applies(known))
    backward = family("flash1_backward")
    shape = AttentionShape(nq, nk, d)
    assert backward.paper is not None
    bc = backward.paper(shape, m)["bc"]
    assert bc == cdiv(m, 4 * d), "the premise that a whole block of keys is there"
    with pytest.raises(CapacityError, match=f"but M is {m} words"):
        check(backward.build(shape, br=br, bc=bc), capacity=m)


@given(nq=small, nk=small, d=small, dv=small, br=small, bc=small)
def test_flash2_backward_is_the_witness_and_what_it_takes_to_be_free(
    nq: int, nk: int, d: int, dv: int, br: int, bc: int
) -> None:
    """The witness moves neither LSE and D nor the first words of dQ, and D is made nowhere."""
    known: dict[str, Any] = {**EXECUTION, "nq": nq, "nk": nk, "d": d, "dv": dv, "bc": bc}
    known["Traffic.traffic"] = MEANING["traffic"]
    (claim,) = named("backward_attained").numbers
    witness = evaluate(sides(claim)[1], known)
    shape = AttentionShape(nq, nk, d, value_dim=dv, dtype="float32")
    traffic = count(family("flash2_backward").build(shape, br=br, bc=bc))
    statistics = cdiv(nk, bc) * 2 * nq
    assert traffic.total_words == witness + statistics + nq * d + nq * (2 * dv + 1)


@pytest.mark.parametrize(
    ("witness", "bound"),
    [
        ("fused_attained", "fused_bound_masked"),
        ("flash2_attained", "fused_bound_masked"),
        ("flash2_causal_attained", "fused_bound_masked"),
        ("unfused_attained", "unfused_bound_masked"),
        ("backward_attained", "backward_bound"),
        ("unfused_attained", "unfused_window_bound"),
        ("unfused_attained", "general_window_bound"),
    ],
)
@given(nq=small, nk=small, d=small, dv=small, br=small, bc=small)
def test_no_execution_goes_below_the_bound_of_another_theorem(
    witness: str, bound: str, nq: int, nk: int, d: int, dv: int, br: int, bc: int
) -> None:
    same = "dv" not in named(witness).text
    known: dict[str, Any] = {**EXECUTION, "Traffic.traffic": MEANING["traffic"]}
    known |= {"nq": nq, "nk": max(nk, nq), "d": d, "dv": d if same else dv, "br": br, "bc": bc}
    least = least_memory(named(witness), known)
    (claim,) = named(witness).numbers
    words = evaluate(sides(claim)[1], known)
    pairs = nq * known["nk"]
    if "causal" in witness:
        pairs = bounds.visible_pairs(AttentionShape(nq, known["nk"], d, causal=True))
    known |= {"es": words, "M": least, "vis": pairs}
    assert named(witness).applies(known)
    assert named(bound).holds(known)
