"""Figures of traffic against length, head dimension, memory and tile size."""
