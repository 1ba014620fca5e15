"""Formulas derived from the tree: their value is the count, and they are the published ones."""

import naive
import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st

from iosim.errors import ScheduleError
from iosim.reading.count import count
from iosim.reading.formula import Polynomial, formula
from iosim.schedule import Dim, For, Schedule, Tensor, family, free, load
from iosim.shape import AttentionShape

symbols = st.lists(st.sampled_from(["b", "T_r", "n_q", "d", "z"]), max_size=3).map(
    lambda names: tuple(sorted(names))
)
polynomials = st.dictionaries(symbols, st.integers(1, 5), max_size=4).map(Polynomial)
VALUES = {"b": 2, "T_r": 3, "n_q": 5, "d": 7, "z": 11}


@given(strategies.cases(rows=30))
def test_the_value_of_a_formula_is_the_count(case: strategies.Case) -> None:
    found, counted = formula(case.schedule), count(case.schedule)
    assert found.value("read") == counted.read_words
    assert found.value("write") == counted.write_words
    assert found.value() == counted.total_words
    for name, words in counted.tensors.items():
        for direction in ("read", "write", "add"):
            expected = getattr(words, direction)
            polynomial = found.words(direction, tensor=name)
            assert polynomial.value(found.values) == expected
    for text, words in counted.lines.items():
        assert found.words(line=text).value(found.values) == words.total


@given(strategies.cases(rows=30))
def test_what_a_formula_prints_evaluates_to_the_count(case: strategies.Case) -> None:
    """The text itself, read as Python with the values of its legend."""
    found = formula(case.schedule)
    legend = found.legend()
    for direction, expected in (("read", count(case.schedule).read_words), ("", None)):
        value = eval(as_python(str(found.words(direction))), {}, legend)
        assert value == (found.value() if expected is None else expected)


def as_python(text: str) -> str:
    """'d (2 T_r n_k + n_q)' as 'd*(2*T_r*n_k + n_q)'."""
    return text.replace(" + ", "+").replace(" ", "*")


@given(polynomials, polynomials)
def test_addition_of_polynomials_is_that_of_their_values(a: Polynomial, b: Polynomial) -> None:
    assert (a + b).value(VALUES) == a.value(VALUES) + b.value(VALUES)
    assert eval(as_python(str(a)), {}, VALUES) == a.value(VALUES)


# Words of one head by hand, from the listings of FA1 (arXiv 2205.14135) and FA2 (2307.08691).
@given(strategies.shapes(rows=40, heads=False, causal=False), st.integers(1, 12), st.integers(1, 9))
def test_the_published_formulas_without_a_mask(shape: AttentionShape, br: int, bc: int) -> None:
    n_q, n_k, d, d_v = shape.n_q, shape.n_k, shape.head_dim, shape.value_dim
    t_r, t_c = -(-n_q // br), -(-n_k // bc)

    standard = formula(family("standard").build(shape))
    assert standard.value("read") == n_q * d + n_k * (d + d_v) + 2 * n_q * n_k
    assert standard.value("write") == 2 * n_q * n_k + n_q * d_v

    # A pass over S more, and a byte a key that says which keys are padding.
    passes = formula(family("standard_passes").build(shape))
    assert passes.value("read") == standard.value("read") + n_q * n_k + n_k
    assert passes.value("write") == standard.value("write") + n_q * n_k

    flash1 = formula(family("flash1").build(shape, br=br, bc=bc))
    assert flash1.value("read") == n_k * (d + d_v) + t_c * n_q * (d + d_v + 2)
    assert flash1.value("write") == n_q * (d_v + 2) + t_c * n_q * (d_v + 2)

    flash2 = formula(family("flash2").build(shape, br=br, bc=bc))
    assert flash2.value("read") == n_q * d + t_r * n_k * (d + d_v)
    assert flash2.value("write") == n_q * d_v + n_q


@given(st.integers(1, 60), st.integers(1, 5), st.integers(1, 12), st.integers(1, 12))
def test_the_published_causal_sums(n: int, d: int, br: int, bc: int) -> None:
    """FA2 visits ceil(min((i + 1) B_r, N) / B_c) key blocks for query block i when n_q = n_k."""
    shape = AttentionShape(n, n, d, causal=True)
    read_k = visited_rows = 0
    for i in range(-(-n // br)):
        rows = min((i + 1) * br, n) - i * br
        visited = -(-min((i + 1) * br, n) // bc)
        read_k += sum(min((j + 1) * bc, n) - j * bc for j in range(visited))
        visited_rows += visited * rows
    flash2 = formula(family("flash2").build(shape, br=br, bc=bc))
    assert flash2.value("read") == n * d + read_k * 2 * d
    assert flash2.value("write") == n * (d + 1)
    flash1 = formula(family("flash1").build(shape, br=br, bc=bc))
    assert flash1.value("read") == 2 * n * d + visited_rows * (2 * d + 2)
    assert flash1.value("write") == n * (d + 2) + visited_rows * (d + 2)


def printed(name: str, shape: AttentionShape, **tiles: int) -> tuple[str, str]:
    found = formula(family(name).build(shape, **tiles))
    return str(found.words("read")), str(found.words("write"))


def test_formulas_print_as_the_papers_write_them() -> None:
    shape = AttentionShape(1000, 1000, 64)
    assert printed("standard", shape) == (
        "2 n_q n_k + n_q d + 2 n_k d",
        "n_q (2 n_k + d)",
    )
    assert printed("flash1", shape, br=100, bc=100) == (
        "2 T_c n_q d + 2 T_c n_q + 2 n_k d",
        "n_q (T_c d + 2 T_c + d + 2)",
    )
    assert printed("flash2", shape, br=100, bc=100) == ("d (2 T_r n_k + n_q)", "n_q (d + 1)")


def test_a_line_and_a_mask_print_what_they_mean() -> None:
    shape = AttentionShape(1000, 1000, 64, heads=8, causal=True)
    found = formula(family("flash1").build(shape, br=100, bc=100))
    assert str(found.words(line="load Q_i, O_i, l_i, m_i")) == "h_kv X_q (2 d + 2)"
    assert found.legend() == {
        "h_kv": 8,
        "X_q": naive.pair_sums(1000, 1000, 100, 100, 0)[1],
        "n_q": 1000,
        "n_k": 1000,
        "d": 64,
    }


def test_one_symbol_for_two_values_is_refused() -> None:
    a = Tensor("A", (Dim("rows", 5, symbol="n"),), "float32", "input")
    b = Tensor("B", (Dim("columns", 6, symbol="n"),), "float32", "input")
    body = (*load("load A, B", a, b), *free(a, b))
    with pytest.raises(ScheduleError, match="symbol 'n' stands for 5 and for 6"):
        formula(Schedule("x", AttentionShape(1, 1, 1), body))


def test_nothing_moved_is_zero() -> None:
    loop = For(Dim("query", 4, 2), ())
    assert str(formula(Schedule("x", AttentionShape(4, 4, 1), (loop,))).words()) == "0"
