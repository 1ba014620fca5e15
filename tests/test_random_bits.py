"""Counter-based random bits: the published generator, alike in every tile, of the right share."""

import math
from itertools import product

import naive_philox
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iosim.errors import IosimError
from iosim.random_bits import RandomState, dropout_factors, kept, philox, random_words

# tests/kat_vectors of the Random123 distribution (D. E. Shaw Research), lines "philox4x32 10".
KNOWN = [
    "00000000 00000000 00000000 00000000 00000000 00000000 6627e8d5 e169c58d bc57ac4c 9b00dbd8",
    "ffffffff ffffffff ffffffff ffffffff ffffffff ffffffff 408f276d 41c83b0e a20bc7c6 6d5451fd",
    "243f6a88 85a308d3 13198a2e 03707344 a4093822 299f31d0 d16cfe09 94fdcceb 5001e420 24126ea1",
]

words32 = st.integers(0, 2**32 - 1)
words64 = st.integers(0, 2**64 - 1)
states = st.builds(RandomState, words64, words32)


@pytest.mark.parametrize("vector", KNOWN)
def test_known_answers(vector: str) -> None:
    numbers = [int(word, 16) for word in vector.split()]
    counter, key, expected = numbers[:4], numbers[4:6], numbers[6:]
    assert [int(word) for word in philox(counter, key)] == expected
    assert list(naive_philox.philox(counter, key)) == expected


@given(st.tuples(words64, words64, words64, words64), st.tuples(words64, words64))
def test_the_twin_is_numpys_generator_in_its_width(counter: tuple, key: tuple) -> None:
    """NumPy counts up before it draws."""
    counted = np.random.Philox(counter=np.array(counter, np.uint64), key=np.array(key, np.uint64))
    number = sum(word << 64 * i for i, word in enumerate(counter)) + 1
    after = [(number >> 64 * i) % 2**64 for i in range(4)]
    assert counted.random_raw(4).tolist() == list(naive_philox.philox(after, key, width=64))


@given(st.lists(st.tuples(words32, words32, words32, words32), min_size=1, max_size=5), words64)
def test_arrays_of_counters_are_counters_one_by_one(counters: list, seed: int) -> None:
    key = (seed % 2**32, seed >> 32)
    found = philox(np.array(counters, np.uint64).T, key)
    expected = [list(naive_philox.philox(c, key)) for c in counters]
    assert np.stack(found, axis=-1).tolist() == expected


@given(states, st.integers(1, 6), st.integers(1, 14), st.data())
def test_a_tile_alone_is_the_slice_of_the_whole(
    state: RandomState, rows: int, columns: int, data: st.DataObject
) -> None:
    whole = random_words(state, [0, 1, 2], slice(0, rows), slice(0, columns))
    r = sorted(data.draw(st.tuples(st.integers(0, rows), st.integers(0, rows))))
    c = sorted(data.draw(st.tuples(st.integers(0, columns), st.integers(0, columns))))
    head = data.draw(st.integers(0, 2))
    tile = random_words(state, [head], slice(*r), slice(*c))
    assert tile.shape == (1, r[1] - r[0], c[1] - c[0])
    assert (tile[0] == whole[head, slice(*r), slice(*c)]).all()


@given(states, words32, st.integers(0, 2**32 - 3), st.integers(0, 2**34 - 8))
def test_words_are_those_of_the_twin(state: RandomState, head: int, row: int, column: int) -> None:
    found = random_words(state, [head], slice(row, row + 2), slice(column, column + 6))
    expected = [
        [naive_philox.word(state.seed, state.offset, head, r, c) for c in range(column, column + 6)]
        for r in (row, row + 1)
    ]
    assert found[0].tolist() == expected


def test_every_part_of_the_place_and_the_state_matters() -> None:
    def drawn(seed: int, offset: int, head: int) -> bytes:
        return random_words(RandomState(seed, offset), [head], slice(0, 8), slice(0, 8)).tobytes()

    seeds = (0, 1, 2**32, 2**63)
    assert len({drawn(*each) for each in product(seeds, (0, 1), (0, 1))}) == len(seeds) * 4
    words = random_words(RandomState(3), range(4), slice(0, 32), slice(0, 32))
    assert len(np.unique(words)) > 4 * 32 * 32 - 10  # repeats of 2^-32 each pair: 0.002 expected


@pytest.mark.parametrize("dropout", [0.0, 0.1, 0.5, 0.9, 1 - 2.0**-53])
def test_the_share_kept_is_one_minus_p(dropout: float) -> None:
    """n draws of probability p: six standard deviations are exceeded once in 5e8."""
    n = 64 * 200 * 200
    share = kept(RandomState(11, 2), dropout, range(64), slice(0, 200), slice(0, 200)).mean()
    assert abs(share - (1 - dropout)) <= 6 * math.sqrt(dropout * (1 - dropout) / n)


def test_bits_of_neighbours_are_independent() -> None:
    """Of neighbours in a row, in a column, over heads: both kept in a share of (1 - p)^2."""
    bits = kept(RandomState(5), 0.3, range(16), slice(0, 128), slice(0, 128)).astype(float) - 0.7
    for axis in (0, 1, 2):
        shifted = bits * np.roll(bits, 1, axis)
        # Each product has variance (0.3 * 0.7)^2; neighbours are uncorrelated.
        assert abs(shifted.mean()) <= 6 * 0.21 / math.sqrt(bits.size)


def test_factors_have_the_mean_of_no_dropout() -> None:
    factors = dropout_factors(RandomState(9), 0.25, (2, 3, 50, 70))
    assert factors.shape == (2, 3, 50, 70)
    assert set(np.unique(factors)) == {0.0, 1 / 0.75}
    assert abs(factors.mean() - 1) <= 6 * math.sqrt(0.25 / 0.75 / factors.size)


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5, True, "7"])
def test_a_seed_that_is_none_is_refused(seed: object) -> None:
    with pytest.raises(IosimError, match=r"seed is .*, but it must be a whole number from 0 to"):
        RandomState(seed)  # type: ignore[arg-type]


@pytest.mark.parametrize("offset", [-1, 2**32])
def test_an_offset_that_is_none_is_refused(offset: int) -> None:
    with pytest.raises(IosimError, match=r"offset is .* from 0 to 4294967295"):
        RandomState(0, offset)
