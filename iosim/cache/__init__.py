"""Caches managed by a policy: engines, miss curves and trace formats."""
