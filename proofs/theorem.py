"""The record of one theorem that is checked in Coq, and words that several records share."""

from dataclasses import dataclass

from iosim.errors import IosimError
from iosim.proofs.statement import Statement, statements

FA1 = "Dao et al. 2022, arXiv 2205.14135"
FA2 = "Dao 2023, arXiv 2307.08691"
DERIVED = "derived in this project"

MASKED = "any set of visible pairs, so any mask, batch and (grouped) heads"
EXPLICIT = "a valid execution on an explicit memory of M words, any order, recomputation allowed"


@dataclass(frozen=True)
class Theorem:
    """One theorem: what it says, under which hypotheses, where it is proved, who relies on it.

    `name` is its Coq name in `file` of proofs/coq, `also` are forms and parts of it in the same
    file. `constants` are the coefficients of N^2 d^2 that it gives (n_q = n_k = N, d_v = d), in
    the order of the text. `source` is where the claim comes from. `bounds` are the lower bounds of
    iosim.bounds that it backs, `checks` the rows of `iosim verify` that rest on it. `new`: as far
    as is known here, nobody has published it.
    """

    id: str
    statement: str
    hypotheses: str
    file: str
    name: str
    source: str
    also: tuple[str, ...] = ()
    constants: tuple[int, ...] = ()
    bounds: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    new: bool = False

    @property
    def coq(self) -> Statement:
        """What the Coq file states."""
        return self._read(self.name)

    @property
    def parts(self) -> tuple[Statement, ...]:
        """What the Coq file states for `name` and for each of `also`."""
        return tuple(self._read(name) for name in (self.name, *self.also))

    @property
    def ranges(self) -> tuple[str, ...]:
        """The premises on numbers, as Coq reads them."""
        return self.coq.ranges

    def _read(self, name: str) -> Statement:
        found = statements(self.file)
        if name not in found:
            raise IosimError(f"proofs/coq/{self.file} has no theorem {name}")
        return found[name]
