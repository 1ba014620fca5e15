"""A schedule as data: axes, tensors, loops, moves and tile computations."""
