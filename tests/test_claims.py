"""The ledger of claims: every record whole, every verdict derived, and `iosim claims` itself."""

import csv
import doctest
import importlib
import io
import json
import tomllib
from collections.abc import Iterator
from dataclasses import fields, replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from iosim.cli import main
from iosim.errors import IosimError
from iosim.proofs import claims as package
from iosim.proofs.claims import common, quantity, registry
from iosim.proofs.claims import ledger as rules
from iosim.proofs.claims.ledger import ASSUMED, OUT_OF_RANGE, REFUTED, REPRODUCED
from iosim.proofs.claims.quantity import RELATIONS, UNITS, Number, Published
from iosim.proofs.claims.registry import Condition, Reading, Recomputed, recomputations

LEDGER = package.read_ledger()
IDS = [claim.id for claim in LEDGER]


@pytest.fixture(scope="module")
def results() -> dict[str, rules.Result]:
    return {result.claim.id: result for result in package.run(LEDGER)}


def iosim(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


# --- the records -----------------------------------------------------------------------------


def test_there_are_enough_claims_and_each_verdict_occurs() -> None:
    assert len(LEDGER) >= 30
    assert {claim.verdict for claim in LEDGER} == set(rules.VERDICTS)


@pytest.mark.parametrize("claim", LEDGER, ids=IDS)
def test_a_record_is_whole(claim: rules.Claim) -> None:
    for name in ("id", "title", "source", "says", "finding"):
        text = getattr(claim, name)
        assert text == text.strip() != ""
    sentences = (claim.says, claim.finding, *claim.assumptions)
    for sentence in sentences:
        assert len(sentence) > 9
        assert sentence[0].isupper() or sentence[0].isdigit()
        assert sentence.endswith(".")
    assert len(claim.title) <= 45  # a row of the table stays readable
    assert claim.published


def test_every_function_is_there_and_every_one_is_used() -> None:
    assert {claim.recompute for claim in LEDGER} == set(recomputations())


def test_every_function_says_how_it_recomputes() -> None:
    for claim in LEDGER:
        assert rules.how(claim).endswith(".")


def test_a_function_is_called_with_the_inputs_of_its_claim() -> None:
    """An input changed changes what is recomputed: nothing is read from a table."""
    (claim,) = package.choose(LEDGER, ["one-matrix-float32"])
    doubled = replace(claim, inputs={**claim.inputs, "heads": 2})
    (one,), (two,) = (list(package.run([each])) for each in (claim, doubled))
    key = claim.published[0].quantity
    assert two.reading.numbers[key].value == 2 * one.reading.numbers[key].value
    assert (one.verdict, two.verdict) == (REPRODUCED, REFUTED)


def test_verdicts_are_as_recorded(results: dict[str, rules.Result]) -> None:
    wrong = {key: each.verdict for key, each in results.items() if not each.as_recorded}
    assert wrong == {}


def test_assumptions_are_stated_where_a_verdict_rests_on_them(
    results: dict[str, rules.Result],
) -> None:
    for result in results.values():
        if any(reading.assumed for reading in result.recomputed.readings):
            assert result.claim.assumptions


def test_findings_quote_only_what_was_recomputed(results: dict[str, rules.Result]) -> None:
    for result in results.values():
        assert "{" not in result.finding
        assert "nan" not in result.finding.split()
        assert len(result.finding.split()) >= 5


# --- the rule --------------------------------------------------------------------------------

DIGITS = st.decimals(
    allow_nan=False, allow_infinity=False, min_value=Decimal("0.001"), max_value=10**9
)


@given(DIGITS, st.fractions(-2, 2))
def test_equality_is_to_half_a_unit_of_the_last_digit(value: Decimal, units: Fraction) -> None:
    text = str(value)
    published = Published("x", text, "words")
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)
    unit = Fraction(10) ** exponent
    found = Number(Fraction(text) + units * unit, "words")
    assert published.agrees(found) == (abs(units) <= Fraction(1, 2))


@given(DIGITS, st.fractions(Fraction(1, 1000), 1000))
def test_bounds_allow_nothing(value: Decimal, factor: Fraction) -> None:
    found = Number(Fraction(str(value)) * factor, "words")
    least = Published("x", str(value), "words", "at least")
    most = Published("x", str(value), "words", "at most")
    assert least.agrees(found) == (factor >= 1)
    assert most.agrees(found) == (factor <= 1)


@pytest.mark.parametrize(
    ("factor", "agrees"), [(9, True), (11, False), (0.11, True), (0.09, False)]
)
def test_an_order_of_magnitude_is_a_factor_of_ten(factor: float, agrees: bool) -> None:
    published = Published("x", "4.12e-7", "abs. error", "order of")
    assert published.agrees(Number(4.12e-7 * factor, "abs. error")) == agrees
    assert not published.agrees(Number(0, "abs. error"))


def perturbed(each: Published, number: Number, sizes: Any) -> Published:
    """Return the published number moved just beyond what the rule lets pass."""
    found = each.in_unit(number, sizes)
    step = {
        "equals": each.tolerance * Fraction(101, 100),
        "at least": abs(found) / 1000 + Fraction(1, 1000),
        "at most": -abs(found) / 1000 - Fraction(1, 1000),
        "order of": 11 * found,
    }[each.relation]
    moved = (found + step).limit_denominator(10**12)
    return replace(each, value=f"{float(moved):.15g}", within=str(float(each.tolerance)))


def test_a_perturbed_number_flips_the_verdict(results: dict[str, rules.Result]) -> None:
    """Each published number of each claim that agrees, moved a little too far, is refuted."""
    flipped = 0
    for result in results.values():
        if result.verdict not in (REPRODUCED, ASSUMED):
            continue
        for i, each in enumerate(result.claim.published):
            moved = perturbed(each, result.reading.numbers[each.quantity], result.reading.sizes)
            numbers = (*result.claim.published[:i], moved, *result.claim.published[i + 1 :])
            wrong = replace(result.claim, published=numbers)
            alone = replace(result.recomputed, readings=(result.reading,))
            assert rules.judge(wrong, alone)[1] == REFUTED, (result.claim.id, moved)
            flipped += 1
    assert flipped >= 30


def test_a_refuted_number_set_right_is_reproduced(results: dict[str, rules.Result]) -> None:
    refuted = [result for result in results.values() if result.verdict == REFUTED]
    assert len(refuted) >= 10
    for result in refuted:
        numbers = tuple(
            replace(
                each,
                value=f"{float(each.in_unit(result.reading.numbers[each.quantity])):.12g}",
                within="1e-3",
            )
            for each in result.claim.published
            if each.relation == "equals"
        )
        if numbers:
            right = replace(result.claim, published=numbers)
            assert rules.judge(right, result.recomputed)[1] in (REPRODUCED, ASSUMED)


def judged(*readings: Reading, met: bool = True) -> str:
    claim = replace(LEDGER[0], published=(Published("x", "2", "words"),))
    _, verdict = rules.judge(claim, Recomputed(readings, {}, (Condition("it holds", met),)))
    return str(verdict)


def test_each_verdict_follows_from_the_readings() -> None:
    right = Reading("right", {"x": Number(2, "words")})
    wrong = Reading("wrong", {"x": Number(3, "words")})
    assumed = replace(right, assumed=True)
    assert judged(right) == REPRODUCED
    assert judged(wrong, assumed) == ASSUMED
    assert judged(assumed, right) == REPRODUCED
    assert judged(wrong, replace(wrong, assumed=True)) == REFUTED
    assert judged(right, met=False) == OUT_OF_RANGE


def test_all_numbers_of_a_claim_must_agree() -> None:
    claim = replace(
        LEDGER[0], published=(Published("x", "2", "words"), Published("y", "2", "words"))
    )
    reading = Reading("half right", {"x": Number(2, "words"), "y": Number(3, "words")})
    assert rules.judge(claim, Recomputed((reading,)))[1] == REFUTED


def test_words_are_never_bytes() -> None:
    with pytest.raises(IosimError, match="published in GB, but recomputed in words"):
        Published("x", "4", "GB").agrees(Number(4e9, "words"))


def test_a_quantity_left_out_is_an_error_and_not_a_verdict() -> None:
    with pytest.raises(IosimError, match="unknown quantity 'x'"):
        judged(Reading("of something else", {"y": Number(2, "words")}))


@pytest.mark.parametrize(
    "module", [m.__name__ for m in (package.show, rules, quantity, registry, common)]
)
def test_examples_in_docstrings_run(module: str) -> None:
    assert doctest.testmod(importlib.import_module(module)).failed == 0


def test_units_name_what_they_measure() -> None:
    for kind, size in UNITS.values():
        assert UNITS[kind] == (kind, 1)
        assert size >= 1


# --- ledgers that are wrong --------------------------------------------------------------------

RECORD = """
[[claims]]
id = "one"
title = "A title"
source = "A source"
says = "It says."
recompute = "vector_flops"
inputs = { device = "A100" }
published = [{ quantity = "ratio", value = "16", unit = "times" }]
verdict = "reproduced"
finding = "It is so."
"""


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('says = "It says."', "", "missing 1 required"),
        ('says = "It says."', 'says = ""', "claim 'one' has no says"),
        ('title = "A title"', 'title = "A title"\ntitel = "x"', "titel"),
        ('verdict = "reproduced"', 'verdict = "refused"', "did you mean 'refuted'"),
        ('verdict = "reproduced"', f'verdict = "{ASSUMED}"', "states none"),
        ('unit = "times"', 'unit = "tims"', "did you mean 'times'"),
        ('value = "16"', 'value = "sixteen"', "'sixteen' is not a number"),
        ('value = "16"', 'value = "nan"', "'nan' is not a number"),
        ('unit = "times"', 'unit = "times", relation = "least"', "did you mean 'at least'"),
        ('published = [{ quantity = "ratio", value = "16", unit = "times" }]', "", "published"),
        ("[[claims]]", f"{RECORD}\n[[claims]]", "twice"),
        ('id = "one"', 'id = "one', "not TOML"),
    ],
)
def test_a_wrong_record_is_refused_in_one_sentence(old: str, new: str, complaint: str) -> None:
    assert rules.load(RECORD)[0].id == "one"
    with pytest.raises(IosimError, match=complaint):
        rules.load(RECORD.replace(old, new))


def test_an_unknown_function_names_the_closest() -> None:
    wrong = rules.load(RECORD.replace("vector_flops", "vector_flop"))
    with pytest.raises(IosimError, match="did you mean 'vector_flops'"):
        list(package.run(wrong))


def test_relations_are_those_that_numbers_know() -> None:
    found = Number(2, "words")
    for relation in RELATIONS:
        assert Published("x", "2", "words", relation).agrees(found)


# --- the command -----------------------------------------------------------------------------

QUICK = ("--id", "one-matrix-float32", "--id", "fig2-flash-bytes", "--id", "ring-infiniband")


def test_the_table_shows_published_and_recomputed() -> None:
    result = iosim("claims", *QUICK)
    assert result.exit_code == 0
    head, *rows, blank, summary = result.stdout.splitlines()
    assert head.split() == ["id", "claim", "published", "recomputed", "verdict"]
    assert [row.split()[0] for row in rows] == [each for each in IDS if each in QUICK]
    assert "268 MB" in result.stdout
    assert "268.4 MB" in result.stdout
    assert (blank, summary.partition(":")[0]) == ("", "3 claims")
    assert summary.endswith("3 as recorded")


def test_details_are_sentences() -> None:
    (claim,) = package.choose(LEDGER, ["fig2-flash-bytes"])
    text = " ".join(iosim("claims", "--details", "--id", claim.id).stdout.split())
    for expected in (claim.source, claim.says, *claim.assumptions, "106 624 words"):
        assert expected in text
    for label in ("Source", "It says", "Assumed", "Recomputed by", "Reading", "Verdict", "Finding"):
        assert f"{label}: " in text


def test_json_has_a_schema_and_units_with_every_number() -> None:
    document = json.loads(iosim("claims", "--format", "json", *QUICK).stdout)
    assert set(document) == {"schema", "records"}
    assert document["schema"] == 1
    names = {field.name for field in fields(rules.Claim)} - {"published", "verdict"}
    for record in document["records"]:
        assert names < set(record)
        assert set(record) - names == {
            *("how", "numbers", "conditions", "verdict", "recorded_verdict", "as_recorded")
        }
        assert record["verdict"] in rules.VERDICTS
        assert isinstance(record["as_recorded"], bool)
        for number in record["numbers"]:
            assert number["unit"] in UNITS
            assert isinstance(number["published"], float)
            for reading in number["readings"]:
                assert isinstance(reading["recomputed"], float)
                assert isinstance(reading["agrees"], bool)


def test_csv_has_a_row_for_each_published_number(tmp_path: Path) -> None:
    path = tmp_path / "claims.csv"
    assert iosim("claims", "--format", "csv", *QUICK, "-o", str(path)).stdout == ""
    rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))
    chosen = package.choose(LEDGER, QUICK[1::2])
    assert [(row["id"], row["published"]) for row in rows] == [
        (claim.id, each.value) for claim in chosen for each in claim.published
    ]


def test_an_unknown_id_names_the_closest() -> None:
    result = iosim("claims", "--id", "fig2-flop")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "unknown claim 'fig2-flop'; did you mean 'fig2-flops'?" in result.stderr


def wrong_ledgers() -> Iterator[rules.Claim]:
    for key in ("ring-infiniband", "one-matrix-float32", "sram-192-kb"):
        (claim,) = package.choose(LEDGER, [key])
        for verdict in rules.VERDICTS:
            if verdict != claim.verdict:
                yield replace(claim, verdict=verdict, assumptions=("Something is assumed.",))


@pytest.mark.parametrize("claim", list(wrong_ledgers()), ids=lambda c: f"{c.id}, {c.verdict}")
@pytest.mark.parametrize("form", ["table", "json", "csv"])
def test_a_wrong_verdict_on_record_is_exit_code_1(
    claim: rules.Claim, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package, "read_ledger", lambda: (claim,))
    result = iosim("claims", "--format", form)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"{claim.id}: found to be ")
    assert result.stderr.endswith(f"recorded as {claim.verdict}\n")
    assert result.stdout


def test_the_record_that_the_page_shows_is_on_record() -> None:
    root = Path(__file__).parents[1]
    page = (root / "docs" / "claims.md").read_text(encoding="utf-8")
    (shown,) = tomllib.loads(page.partition("```toml\n")[2].partition("```")[0])["claims"]
    text = (root / "proofs" / "claims" / "claims.toml").read_text(encoding="utf-8")
    assert shown in [{"assumptions": [], **record} for record in tomllib.loads(text)["claims"]]
