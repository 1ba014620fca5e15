"""Philox 4xW-10 one counter at a time, in Python's own integers, for words of W = 32 or 64 bits.

Written from section 2.2 and table 2 of Salmon et al., SC 2011. The width is a parameter so that
NumPy's generator, which has 64-bit words, vouches for the very lines that are used with 32.
"""

CONSTANTS = {
    32: ((0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)),
    64: (
        (0xD2E7470EE14C6C93, 0xCA5A826395121157),
        (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B),
    ),
}


def philox(counter, key, width=32, rounds=10):
    multipliers, steps = CONSTANTS[width]
    end = 2**width
    x0, x1, x2, x3 = counter
    k0, k1 = key
    for _ in range(rounds):
        high0, low0 = divmod(x0 * multipliers[0], end)
        high1, low1 = divmod(x2 * multipliers[1], end)
        x0, x1, x2, x3 = high1 ^ x1 ^ k0, low1, high0 ^ x3 ^ k1, low0
        k0, k1 = (k0 + steps[0]) % end, (k1 + steps[1]) % end
    return x0, x1, x2, x3


def word(seed, offset, head, row, column):
    """The random word of one element."""
    counter = (column // 4, row, head, offset)
    return philox(counter, (seed % 2**32, seed // 2**32))[column % 4]
