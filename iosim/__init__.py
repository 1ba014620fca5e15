"""Count, bound and verify the memory traffic of attention schedules."""

__version__ = "0.1.0"
