"""The Coq files themselves: nothing is assumed, and Coq counts as `count` does.

What needs coqc is skipped where there is none; `.ci/run` installs it.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from iosim.errors import IosimError
from iosim.proofs import coq_check
from iosim.proofs.statement import FOLDER, without_comments
from iosim.reading.count import count, total_words
from iosim.schedule import family
from iosim.shape import AttentionShape
from iosim.verify.sandwich import LAWS

FILES = sorted(FOLDER.glob("*.v"))
needs_coqc = pytest.mark.skipif(
    shutil.which("coqc") is None,
    reason="coqc is not on PATH; the Debian package coq has it, and .ci/run installs it",
)

# The axioms on which the standard library builds the reals; excluded middle comes with `ln`.
OF_THE_REALS = {
    "ClassicalDedekindReals.sig_not_dec",
    "ClassicalDedekindReals.sig_forall_dec",
    "FunctionalExtensionality.functional_extensionality_dep",
    "Classical_Prop.classic",
}

# Whatever leaves a proof open, assumes a statement or switches a check of Coq off.
UNPROVED = re.compile(
    r"\b(Admitted|admit|give_up|Axioms?|Parameters?|Conjecture|Primitive|bypass_check|"
    r"(?:Guard|Positivity|Universe)\s+Checking|type_in_type|Load\s+\")"
)
ASSUMED = re.compile(r"^\s*(Variables?|Hypothes[ie]s|Context)\b")


def unproved(source: str) -> list[str]:
    """Return what a Coq source takes for granted: forbidden words, variables outside sections."""
    source = without_comments(source)
    found = [match[0] for match in UNPROVED.finditer(source)]
    depth = 0
    for line in source.splitlines():
        if match := re.match(r"\s*(Section|Module|End)\b", line):
            depth += -1 if match[1] == "End" else 1
        elif not depth and (match := ASSUMED.match(line)):
            found.append(match[1])
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_nothing_is_taken_for_granted(path: Path) -> None:
    assert unproved(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("Lemma a : False.\nProof.\nAdmitted.", ["Admitted"]),
        ("Proof. (* a hole *) admit. Defined.", ["admit"]),
        ("Axiom a : False.", ["Axiom"]),
        ("Section A.\nVariable x : nat.\nEnd A.\nHypothesis b : False.", ["Hypothesis"]),
        ("Unset Guard Checking.", ["Guard Checking"]),
        ("(* Axiom a : (* Admitted *) False. *)\nDefinition axiom := 1.", []),
    ],
)
def test_the_check_of_sources_can_fail(source: str, found: list[str]) -> None:
    assert unproved(source) == found


def test_every_file_is_built() -> None:
    built = (FOLDER / "_CoqProject").read_text(encoding="utf-8").split()
    assert {path.name for path in FILES} == {name for name in built if name.endswith(".v")} | {
        "Assumptions.v"
    }


def test_make_says_that_coqc_is_missing() -> None:
    result = subprocess.run(
        ["make", "--no-print-directory", "proofs", "COQC=coqc-of-nowhere"],
        cwd=FOLDER.parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert "coqc (Coq 8.16 or later) is not on PATH; please install it" in result.stderr
    assert result.stdout == ""


@needs_coqc
def test_make_checks_all_and_prints_only_the_axioms_of_the_reals(tmp_path: Path) -> None:
    # In a copy, so that two runs do not meet; what `make proofs` has built is used again.
    folder = Path(shutil.copytree(FOLDER, tmp_path / "coq"))
    result = subprocess.run(
        ["make", "--no-print-directory"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    for path in FILES:
        assert path.name == "Assumptions.v" or (folder / f"{path.stem}.vo").exists()
    groups = dict(re.findall(r"^== (.*?):\n(.*?)(?=^==|\Z)", result.stdout, re.M | re.S))
    assert len(groups) == len(
        re.findall(r"Print Assumptions", (FOLDER / "Assumptions.v").read_text())
    )
    for title, printed in groups.items():
        about_reals = title.startswith(("(a)", "(b)"))
        assert printed.startswith("Axioms:" if about_reals else "Closed under the global context")
        axioms = re.findall(r"^([\w.]+)(?= *:|$)", printed, re.M)
        assert set(axioms) - {"Axioms"} <= (OF_THE_REALS if about_reals else set())


# n_q, n_k, d, B_r, B_c: whole tiles, ragged ones of every kind, one row, tiles beyond the axis.
SHAPES = (
    (8, 8, 4, 4, 2),
    (8, 8, 4, 2, 4),
    (10, 10, 3, 4, 4),
    (13, 13, 5, 4, 3),
    (13, 13, 5, 3, 4),
    (7, 19, 2, 3, 5),
    (5, 23, 4, 2, 7),
    (19, 7, 2, 5, 3),
    (1, 30, 8, 1, 16),
    (30, 1, 8, 16, 1),
    (9, 11, 1, 20, 20),
    (64, 64, 16, 16, 8),
    (33, 47, 6, 9, 1),
)


def counts(n_q: int, n_k: int, d: int, br: int, bc: int, causal: bool) -> dict[str, int]:
    """Return the words that `count` gives, by the Coq term for them."""
    suffix, align = "", "bottom-right"
    if causal:
        # Coq's n_k - n_q is 0 where n_q > n_k: the mask is then aligned at the top left.
        suffix, align = "_causal", "bottom-right" if n_q <= n_k else "top-left"
    shape = AttentionShape(n_q, n_k, d, causal=causal, align=align)
    found = {}
    for name in ("flash1", "flash2") if causal else ("flash1", "flash2", "flash1_backward"):
        traffic = count(family(name).build(shape, br=br, bc=bc))
        term = f"({name}{suffix} {n_q} {n_k} {d} {br} {bc})"
        found[f"loads {term}"] = traffic.read_words
        found[f"stores {term}"] = traffic.write_words
        found[f"traffic {term}"] = traffic.total_words
    return found


def by_rule() -> dict[str, int]:
    """Return the words of the tile rules of `verify sandwich`, by the Coq term for them."""
    found = {}
    for law in LAWS:
        if not law.source.isidentifier():
            continue
        for n, d, words in ((20, 3, 31), (32, 8, 256), (41, 5, 97)):
            shape = AttentionShape(n, n, d)
            tiles = law.rule(family(law.schedule), shape, words)
            term = f"{law.source.removesuffix('_sandwich')} {n} {d} {words}"
            found[term] = total_words(family(law.schedule).build(shape, **tiles))
    return found


@needs_coqc
def test_coq_counts_as_count_does() -> None:
    expected = by_rule()
    for shape in SHAPES:
        expected |= counts(*shape, causal=False) | counts(*shape, causal=True)
    assert len(expected) == (6 + 9) * len(SHAPES) + 4 * 3
    assert dict(zip(expected, coq_check.compute(list(expected)), strict=True)) == expected


@needs_coqc
def test_coq_says_what_it_refuses() -> None:
    with pytest.raises(IosimError, match=r"coqc refuses Query\.v: .* flash3 was not found"):
        coq_check.compute(["traffic (flash3 1 1 1 1 1)"])


def test_a_missing_coqc_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(IosimError, match="coqc is not on PATH"):
        coq_check.compute(["1"])
