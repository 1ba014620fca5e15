"""Evaluate terms of the Coq files with coqc: the counting functions as Coq computes them."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from iosim.errors import IosimError
from iosim.proofs.statement import FOLDER

# The files that define the counting functions, each after those that it needs.
COUNTING = ("Tiles", "Traffic", "TrafficBounds", "CausalTraffic", "BackwardTraffic")


def compute(terms: Sequence[str]) -> list[int]:
    """Return the value of each term, a natural number, by Coq's `Compute`.

    The files of COUNTING are compiled in a scratch folder as they stand, proofs left unchecked
    (`make proofs` checks them). Raises IosimError where coqc is missing or refuses something.
    """
    if shutil.which("coqc") is None:
        raise IosimError("coqc is not on PATH; install Coq 8.16, the Debian package coq")
    query = [
        f"From Coq Require Import NArith List. From iosim Require Import {' '.join(COUNTING)}.",
        "Set Printing Width 1000000. Set Printing Depth 1000000. Open Scope N_scope.",
        # As binary numbers, so that they are printed in digits.
        *(f"Compute N.of_nat ({term})%nat." for term in terms),
    ]
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name in COUNTING:
            shutil.copy(FOLDER / f"{name}.v", folder)
            _coqc(folder, f"{name}.v")
        (folder / "Query.v").write_text("\n".join(query) + "\n", encoding="utf-8")
        printed = _coqc(folder, "Query.v")
    values = [int(value) for value in re.findall(r"^ *= (\d+)$", printed, re.MULTILINE)]
    if len(values) != len(terms):
        raise IosimError(f"coqc printed {len(values)} numbers for {len(terms)} terms: {printed}")
    return values


def _coqc(folder: Path, file: str) -> str:
    # -vos compiles definitions and leaves opaque proofs out.
    result = subprocess.run(
        ["coqc", "-q", "-vos", "-Q", ".", "iosim", file],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        raise IosimError(f"coqc refuses {file}: {' '.join(result.stderr.split())}")
    return result.stdout
