"""How blocks that share an SM part it between them, from the times of grids of several sizes."""


def pace_of_times(one: float, two: float, three: float) -> tuple[float, float]:
    """Return the times of a row for a block alone and for the younger of two; the older needs 1.

    `one`, `two`, `three` are the times, in any unit, of grids of so many blocks for each SM, of
    which two run at once. The older goes first and needs a for a row, the younger b, one alone c.
    With x = a / b, one = c; two = a + (1 - x) c, as the younger has done x of its rows when the
    older ends; three = a (2 - x) + (1 - x + x^2) c, as it then is the older one, beside the third.
    So x = (2 two - one - three) / (two - 2 one); the results are c / a and 1 / x.

    >>> alone, younger = pace_of_times(0.6, 1.0 + 0.1 * 0.6, 1.0 * 1.1 + 0.91 * 0.6)
    >>> round(alone, 9), round(1 / younger, 9)
    (0.6, 0.9)
    """
    share = (2 * two - one - three) / (two - 2 * one)
    older = two - (1 - share) * one
    return one / older, 1 / share
