"""Wrong input: every error of the core is one sentence that quotes what was given.

The last test holds that the list is whole: each `raise` in these modules is reached by an example.
"""

import ast
import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_check
import test_decoding
import test_execute
import test_layouts
import test_nested
import test_ranks
import test_tree
import test_user_schedule

from iosim import bounds
from iosim.errors import CapacityError, IosimError, ScheduleError
from iosim.reading.check import check
from iosim.reading.count import count
from iosim.reading.execute import execute
from iosim.reading.formula import formula
from iosim.schedule import (
    Dim,
    Family,
    Schedule,
    Tensor,
    backward_of,
    families,
    family,
    free,
    load,
    problem,
)
from iosim.schedule.masks import (
    BlockMask,
    Butterfly,
    Documents,
    LocalGlobal,
    Random,
    Window,
    parse_mask,
)
from iosim.shape import AttentionShape
from iosim.tiles import choose_tiles
from iosim.training import training_step

SHAPE = AttentionShape(8, 8, 4)
IN_A_FILE = Path(__file__) / "mask.npy"
GOOD: dict[str, Any] = {"n_q": 4, "n_k": 4, "head_dim": 4}


def shape(**fields: Any) -> Callable[[], object]:
    return lambda: AttentionShape(**(GOOD | fields))


def same_symbol() -> object:
    a, b = (
        Tensor(name, (Dim(name, rows, symbol="n"),), "float32", "input")
        for name, rows in (("a", 5), ("b", 6))
    )
    return formula(Schedule("x", SHAPE, (*load("load", a, b), *free(a, b))))


def other_input() -> object:
    x = Tensor("X", (Dim("rows", 5),), "float32", "input")
    zeros = np.zeros((8, 4))
    return execute(Schedule("x", SHAPE, (*load("load X", x), *free(x))), zeros, zeros, zeros)


def backward(**given: object) -> Callable[[], object]:
    """Run a backward pass with these inputs beside Q, K and V; by default with none."""
    zeros = np.zeros((8, 4))
    schedule = family("flash1_backward").build(SHAPE, br=2, bc=2)
    kept = {"dO": zeros, "O": zeros, "l": np.ones(8), "m": np.zeros(8)}
    return lambda: execute(schedule, zeros, zeros, zeros, **(kept | given))  # type: ignore[arg-type]


def other_forward() -> object:
    """A training step whose forward pass stores P, and whose backward pass reads LSE."""
    built = family("flash2_backward").build(SHAPE, br=2, bc=2), family("standard").build(SHAPE)
    return training_step(*built, *[np.zeros((8, 4))] * 4)


def tiles(name: str, words: int | None, rule: str = "best", **given: int) -> Callable[[], object]:
    return lambda: choose_tiles(family(name), SHAPE, words, rule, given)


FLASH2 = family("flash2").build(SHAPE, br=2, bc=2)

# What is done, and what the sentence has to quote.
EXAMPLES: dict[str, tuple[Callable[[], object], tuple[str, ...]]] = {
    **{
        f"{name}={value!r}": (shape(**{name: value}), (name, repr(value), "at least 1"))
        for name in ("n_q", "n_k", "head_dim", "value_dim", "batch", "heads", "kv_heads")
        for value in (-1, 1.5, "8", True, None)
    },
    "n_q=0": (shape(n_q=0), ("n_q is 0", "at least 1")),
    "n_k=0": (shape(n_k=0), ("n_k is 0", "at least 1")),
    "head_dim=0": (shape(head_dim=0), ("head_dim is 0", "at least 1")),
    "batch=0": (shape(batch=0), ("batch is 0", "at least 1")),
    "heads=0": (shape(heads=0), ("heads is 0", "at least 1")),
    "grouped heads": (shape(heads=6, kv_heads=4), ("heads is 6", "kv_heads is 4", "multiple")),
    "more kv_heads": (shape(heads=2, kv_heads=4), ("heads is 2", "kv_heads is 4", "multiple")),
    "dtype": (shape(dtype="flaot16"), ("'flaot16'", "'float16'", "bfloat16, float32, float64")),
    "align": (shape(align="bottom"), ("'bottom'", "bottom-right, top-left")),
    "dropout": (shape(dropout=1.0), ("dropout is 1.0", "from 0 up to, but not including, 1")),
    "a schedule without dropout": (
        lambda: test_user_schedule.trees.split_loads(shape(dropout=0.1)(), 2, 2),
        ("'split_loads'", "drops nothing", "dropout 0.1"),
    ),
    **{
        f"--mask {text}": (lambda text=text: parse_mask(text), (f"'{text}'", *quoted))  # type: ignore[misc]
        for text, quoted in {
            "windows:3": ("write window:256 or window:256,0",),
            "3": ("window:256", "documents:", "file.npy,block=128"),
            "window:3,4,5": ("write window:256",),
            "window:global=3": ("write window:256",),
            "local+global:3": ("write local+global:256,global=4",),
            "documents:3,a=4": ("write documents:100,300,50",),
            "documents:a=4,3": ("write documents:100,300,50",),
            "butterfly:3,4": ("write butterfly:128",),
            "random:0.5": ("write random:0.25,block=128,seed=0",),
            "mask.npy": ("no block size", "mask.npy,block=128"),
        }.items()
    },
    "an extent of a mask": (lambda: parse_mask("window:-3"), ("'-3'", "whole number")),
    "no density": (lambda: parse_mask("random:half,block=3"), ("'half'", "from 0 to 1")),
    "a mask file that is not there": (
        lambda: parse_mask("none/mask.npy,block=3"),
        ("'none/mask.npy'", "does not exist"),
    ),
    "a mask file that is none": (
        lambda: parse_mask(f"{IN_A_FILE},block=3"),
        (str(IN_A_FILE), "cannot be read as a NumPy matrix"),
    ),
    "a mask of one row of numbers": (lambda: BlockMask.of([1, 2], 3), ("matrix", "(2,)", "int64")),
    "a mask of text": (lambda: BlockMask.of([["a"]], 3), ("(1, 1)", "<U1")),
    "mask blocks of no rows": (lambda: BlockMask.of([[1]], 0), ("blocks of 0 rows", "at least 1")),
    "a mask of another size": (
        shape(mask=BlockMask.of([[1]], 3)),
        ("1 x 1 blocks", "4 queries and 4 keys", "3 and 3", "2 x 2"),
    ),
    "too many blocks": (
        lambda: AttentionShape(10**9, 10**9, 4, mask=Random(0.1, 1)),
        ("random:0.1,block=1,seed=0", "1000000000 x 1000000000", "larger blocks"),
    ),
    "a butterfly of too many blocks": (
        lambda: AttentionShape(10**9, 10**9, 4, mask=Butterfly(1)),
        ("butterfly:1", "1000000000 x 1000000000", "larger blocks"),
    ),
    "density": (lambda: Random(1.5, 3), ("density of a mask is 1.5", "from 0 to 1")),
    "left": (lambda: Window(-1, 0), ("left extent", "-1", "at least 0")),
    "right": (lambda: LocalGlobal(0, -2, 1), ("right extent", "-2", "at least 0")),
    "tokens": (lambda: LocalGlobal(1, 1, 0), ("0 global tokens", "at least 1")),
    "a document of no rows": (lambda: Documents((3, 0)), ("document has 0 rows", "at least 1")),
    "no document": (lambda: Documents(()), ("no document", "at least one")),
    "documents of other rows": (
        shape(mask=Documents((3, 2))),
        ("5 rows", "4 queries and 4 keys"),
    ),
    "schedule": (lambda: family("flas2"), ("'flas2'", "'flash2'", "standard_tiled")),
    "a memory of no words": (lambda: bounds.lower_bounds(SHAPE, 0), ("M is 0 words", "1")),
    "br=0": (lambda: family("flash2").build(SHAPE, br=0, bc=1), ("br is 0", "at least 1")),
    "bc=-3": (lambda: family("flash1").build(SHAPE, br=1, bc=-3), ("bc is -3", "at least 1")),
    "br=2.0": (lambda: problem(SHAPE, 2.0), ("br is 2.0", "whole")),  # type: ignore[arg-type]
    "a tile larger than M": (
        lambda: check(FLASH2, capacity=20),
        ("line 'load K_j, V_j'", "28 words", "Q[0:2, 0:4]", "M is 20 words"),
    ),
    "rule": (tiles("flash1", 100, "papr"), ("--tiles", "'papr'", "'paper'")),
    "no memory": (tiles("flash1", None, br=2), ("flash1", "--bc", "--sram")),
    "no rule": (tiles("standard_tiled", 99, "paper"), ("--tiles paper", "largest, best")),
    "nothing fits": (tiles("flash2", 18), ("flash2", "19 words", "M has 18 words")),
    "three sizes": (
        lambda: choose_tiles(
            Family("three", lambda s, a, b, c: FLASH2, ("a", "b", "c"), ""), SHAPE, 100
        ),
        ("--tiles best", "three", "a, b, c"),
    ),
    "a name that is none": (
        lambda: Schedule(3, SHAPE, ()),  # type: ignore[arg-type]
        ("name of a schedule", "text", "3"),
    ),
    "a shape that is none": (
        lambda: Schedule("x", None, ()),  # type: ignore[arg-type]
        ("shape of x", "None"),
    ),
    "one symbol": (same_symbol, ("'n'", "5", "6")),
    "an input that is none": (backward(LSE=np.zeros(8)), ("'LSE'", "flash1_backward", "dO, l, m")),
    "another shape of dO": (backward(dO=np.zeros((8, 3))), ("dO has shape (8, 3)", "(1, 1, 8, 4)")),
    "another shape of l": (backward(l=np.zeros((8, 1))), ("l has shape (8, 1)", "(1, 1, 8)")),
    "no backward pass": (
        lambda: backward_of(family("standard_tiled")),
        ("'standard_tiled'", "standard, flash1, flash2"),
    ),
    "a step of two families": (other_forward, ("flash2_backward", "LSE", "standard", "S, P")),
    "a missing input": (other_input, ("'X'", "is missing", "give X=...")),
}


@pytest.mark.parametrize("what", EXAMPLES)
def test_an_error_is_one_sentence_that_quotes_what_was_given(what: str) -> None:
    action, quoted = EXAMPLES[what]
    with pytest.raises(IosimError) as caught:
        action()
    sentence = str(caught.value)
    assert sentence == sentence.strip()
    assert "\n" not in sentence
    assert ". " not in sentence.replace("...", "")
    assert not sentence.endswith(".")
    for text in quoted:
        assert text in sentence


def test_kinds_of_errors() -> None:
    assert issubclass(CapacityError, ScheduleError)
    assert issubclass(ScheduleError, IosimError)
    assert issubclass(IosimError, ValueError)


MODULES = (
    "shape",
    "bounds",
    "tiles",
    "training",
    "bounds_backward",
    "interconnect",
    *(f"schedule.{name}" for name in (
        "tree", "structure", "relation", "registry", "operations", "attention", "listing",
        "standard", "standard_tiled", "flash1", "flash2", "dropout", "dropout_backward",
        "layouts", "ranks", "ring", "ulysses", "tree_decoding",
        "flash2_packed", "split_kv", "paging", "nested",
        "attention_backward", "standard_backward", "flash1_backward", "flash2_backward",
    )),
    *(f"schedule.masks.{name}" for name in (
        "window", "documents", "local_global", "blocks", "causal_blocks", "patterns", "parsing",
    )),
    *(f"reading.{name}" for name in (
        "count", "check", "gradients", "execute", "pages", "formula", "residency", "walk", "extent",
        "traffic", "lockstep", "holdings", "rank_extent", "steps",
    )),
)  # fmt: skip

# Python itself would have to hand out no loader for a path that ends in .py; an IndexError is what
# a sequence raises (tests/test_relation.py), and no IosimError.
UNREACHABLE = {"is not a Python file", "IndexError"}


def raises_of(module: str) -> dict[tuple[str, int], str]:
    """The lines of the `raise` statements of a module that make an error, with their text."""
    path = inspect.getsourcefile(importlib.import_module(f"iosim.{module}"))
    assert path is not None
    source = Path(path).read_text(encoding="utf-8")
    return {
        (path, line): ast.get_source_segment(source, node) or ""
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Raise) and node.exc is not None
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
        if line == node.lineno
    }


def all_mistakes(folder: Path) -> list[Callable[[], object]]:
    zeros = np.zeros((8, 4))
    actions = [action for action, _ in EXAMPLES.values()]
    for refused in (test_tree.REFUSED, test_nested.REFUSED, test_ranks.WRONG, test_layouts.WRONG):
        actions += [build for build, _ in refused.values()]
    for schedule, _ in test_check.WRONG.values():
        actions += [
            lambda s=schedule: check(s),  # type: ignore[misc]
            lambda s=schedule: count(s),  # type: ignore[misc]
            lambda s=schedule: execute(s, zeros, zeros, zeros),  # type: ignore[misc]
        ]
    for sizes, _ in test_execute.WRONG_ARRAYS.values():
        arrays = [np.zeros(size) for size in sizes]
        actions.append(lambda a=arrays: execute(FLASH2, *a))  # type: ignore[misc]
    actions += [lambda body=body: test_execute.run_odd(*body) for body in test_execute.ODD]  # type: ignore[misc]
    for i, (text, _) in enumerate((
        *test_user_schedule.FILES.values(), *test_user_schedule.BUILDERS.values(),
    )):  # fmt: skip
        path = folder / f"mine{i}.py"
        path.write_text(text, encoding="utf-8")
        actions.append(lambda p=path: family(f"{p}:mine").build(SHAPE, br=2))  # type: ignore[misc]
    actions.append(lambda: family(f"{folder / 'none.py'}:mine"))
    actions += [run for run, _, _ in test_decoding.REFUSED.values()]
    return actions


def test_every_raise_of_the_core_is_reached_and_is_one_sentence(tmp_path: Path) -> None:
    wanted = {at: text for module in MODULES for at, text in raises_of(module).items()}
    assert len(wanted) > 30
    reached = set()
    sentences = []
    for action in all_mistakes(tmp_path):
        try:
            action()
        except IosimError as error:
            sentences.append(str(error))
            trace = error.__traceback__
            while trace is not None:
                reached.add((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
                trace = trace.tb_next
    assert [s for s in sentences if "\n" in s or ". " in s.replace("...", "")] == []
    missed = {
        at: text
        for at, text in wanted.items()
        if at not in reached and not any(words in text for words in UNREACHABLE)
    }
    assert missed == {}


def test_no_schedule_is_built_from_a_wrong_shape_by_any_family() -> None:
    for known in families().values():
        for name in known.tiles:
            sizes = dict.fromkeys(known.tiles, 2) | {name: 0}
            with pytest.raises(IosimError, match=f"tile size {name} is 0"):
                known.build(SHAPE, **sizes)
