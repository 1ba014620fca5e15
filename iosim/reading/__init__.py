"""Readings of a schedule: counted, checked, executed, written as a formula."""
