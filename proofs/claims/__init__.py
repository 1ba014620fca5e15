"""Published claims about attention's IO, each recomputed and judged."""

from iosim.proofs.claims import show
from iosim.proofs.claims.ledger import Claim, Result, choose, document, load, read_ledger, run
from iosim.proofs.claims.quantity import Number, Published

__all__ = [
    "Claim",
    "Number",
    "Published",
    "Result",
    "choose",
    "document",
    "load",
    "read_ledger",
    "run",
    "show",
]
