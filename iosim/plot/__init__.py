"""Figures of traffic against length, head dimension, memory and tile size, and of rounding."""

from iosim.plot.figures import FIGURES, Request, write_figures

__all__ = ["FIGURES", "Request", "write_figures"]
