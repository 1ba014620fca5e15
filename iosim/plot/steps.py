"""Positions along a logarithmic axis."""


def log_steps(first: int, last: int, per_octave: int = 2) -> tuple[int, ...]:
    """Return whole numbers from `first` to `last`, both included, evenly apart on a log axis.

    >>> log_steps(1, 12)
    (1, 2, 3, 4, 6, 8, 11, 12)
    """
    steps = range(per_octave * (last // first).bit_length())
    values = {round(first * 2 ** (step / per_octave)) for step in steps}
    return tuple(sorted({value for value in values if value <= last} | {last}))
