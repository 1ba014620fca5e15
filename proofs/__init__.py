"""The mathematics behind the counts (import name iosim.proofs)."""
