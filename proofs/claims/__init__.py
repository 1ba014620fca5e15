"""Published claims about attention's IO, each recomputed and judged."""

from iosim.proofs.claims.ledger import Claim, Result, choose, load, read_ledger, run, to_dict
from iosim.proofs.claims.quantity import Number, Published

__all__ = [
    "Claim",
    "Number",
    "Published",
    "Result",
    "choose",
    "load",
    "read_ledger",
    "run",
    "to_dict",
]
