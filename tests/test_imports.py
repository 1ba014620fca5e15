"""Imports point one way, and `iosim --help` stays light.

The arrows are held by parsing every module's imports, so an arrow that would only be followed at
run time counts too. The last tests show that the checks can fail.
"""

import ast
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# A module may import from its own layer and from those below it, never from those above.
LAYERS = [
    {"errors"},
    {"units", "precision", "random_bits"},
    {"machine", "model_config", "output", "data"},
    {"schedule", "shape", "softmax", "softmax_exact", "reference"},
    {
        *("reading", "bounds", "bounds_backward", "interconnect", "cache", "tiles", "tolerance"),
        *("laws", "law_cases", "measured", "device", "crossover", "longest"),
    },
    {"training"},
    {"verify", "report", "report_step", "best", "plot", "audit"},
    {"cli"},
    {"__main__"},
]
LAYER_OF = {name: height for height, names in enumerate(LAYERS) for name in names}

# What stands beside the package and is reached from iosim/cli only, inside a function.
OPTIONAL = {"gpu", "proofs"}

# Too slow to load, or needless, for a help text.
HEAVY = {"numpy", "scipy", "numba", "matplotlib", "hypothesis", "ml_dtypes", "zstandard"}


def imports(source: str, package: str) -> Iterator[tuple[str, bool]]:
    """Yield (name of the module imported, whether inside a function) for every import."""

    def visit(node: ast.AST, inside: bool) -> Iterator[tuple[str, bool]]:
        if isinstance(node, ast.Import):
            yield from ((alias.name, inside) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parent = package.split(".")
                parent = parent[: len(parent) - node.level + 1]
                base = ".".join([*parent, base] if base else parent)
            # `from iosim import units` imports iosim.units: the name may be a module's.
            yield from ((f"{base}.{alias.name}", inside) for alias in node.names)
        inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, inside)

    return visit(ast.parse(source), False)


def wrong_imports(module: str, source: str, *, is_package: bool = False) -> list[str]:
    """Return a sentence for every import of `module` that points the wrong way."""
    own = _part(module)
    package = module if is_package else module.rpartition(".")[0]
    wrong = []
    for name, inside in imports(source, package):
        if name.split(".")[0] in OPTIONAL:
            wrong.append(f"{module} imports {name}, which is only importable inside iosim")
        if not name.startswith("iosim."):
            continue
        part = _part(name)
        if part in OPTIONAL and own not in OPTIONAL:
            if own != "cli":
                wrong.append(f"{module} imports {name}: only iosim.cli may")
            elif not inside:
                wrong.append(f"{module} imports {name} outside a function")
        elif part in LAYER_OF and own in LAYER_OF and LAYER_OF[part] > LAYER_OF[own]:
            wrong.append(f"{module} imports {name}, which lies above it")
        elif module == "iosim" and part in LAYER_OF:
            wrong.append(f"iosim imports {name} at once; it should stay light")
    return wrong


def _part(module: str) -> str:
    """Return the second part of a dotted name: schedule for iosim.schedule.flash1."""
    return [*module.split("."), ""][1]


def modules() -> Iterator[tuple[str, Path]]:
    for folder, name in [("iosim", "iosim"), ("gpu", "iosim.gpu"), ("proofs", "iosim.proofs")]:
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            yield ".".join([name, *parts]).removesuffix(".__init__"), path


@pytest.mark.parametrize(("module", "path"), [pytest.param(*m, id=m[0]) for m in modules()])
def test_imports_point_one_way(module: str, path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert wrong_imports(module, source, is_package=path.name == "__init__.py") == []


def test_every_module_has_a_layer() -> None:
    parts = {_part(module) for module, _ in modules()} - {""} - OPTIONAL
    assert parts <= set(LAYER_OF), "give the new part of iosim a layer in LAYERS"


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        ("iosim.shape", "import iosim.reading.count", "lies above it"),
        ("iosim.softmax", "from iosim import bounds", "lies above it"),
        ("iosim.schedule.tree", "from ..reading import count", "lies above it"),
        ("iosim.reading.count", "def f():\n    from iosim.verify import grid", "lies above it"),
        ("iosim.reading.count", "from iosim.cli.options import sram", "lies above it"),
        ("iosim.errors", "from iosim.units import closest", "lies above it"),
        ("iosim.verify", "def f():\n    import iosim.gpu.launch", "only iosim.cli may"),
        ("iosim.cli.gpu", "from iosim.gpu import launch", "outside a function"),
        ("iosim.cli.gpu", "import gpu", "only importable inside iosim"),
        ("iosim.gpu.launch", "from gpu.kernels import flash2", "only importable inside iosim"),
    ],
)
def test_the_check_of_arrows_can_fail(module: str, source: str, complaint: str) -> None:
    (sentence,) = wrong_imports(module, source)
    assert complaint in sentence


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("iosim.cli.gpu", "def f():\n    from iosim.gpu import launch"),
        ("iosim.gpu.launch", "from iosim.reading import count\nfrom iosim.gpu import kernels"),
        ("iosim.schedule.flash1", "from . import tree\nfrom .relation import causal"),
        ("iosim.verify", "import numpy.typing\nfrom iosim.bounds import fused"),
    ],
)
def test_the_check_of_arrows_can_pass(module: str, source: str) -> None:
    assert wrong_imports(module, source) == []


def loaded_by(code: str, folder: Path) -> set[str]:
    """Return the top-level modules that `code` loads in a fresh Python, run in `folder`."""
    script = textwrap.dedent(code) + "\nimport sys\nprint(*sys.modules, file=sys.stderr)"
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=True
    )
    return {name.split(".")[0] for name in result.stderr.split()}


HELP = """\
import contextlib
from iosim.cli import main
with contextlib.suppress(SystemExit):
    main(["--help"])
"""


def test_help_loads_nothing_heavy(tmp_path: Path) -> None:
    loaded = loaded_by(HELP, tmp_path)
    assert "click" in loaded
    assert not loaded & HEAVY


def test_the_check_of_lightness_can_fail(tmp_path: Path) -> None:
    assert loaded_by("import ml_dtypes", tmp_path) & HEAVY >= {"ml_dtypes", "numpy"}


@pytest.mark.parametrize("name", sorted(OPTIONAL))
def test_mapped_folders_are_importable_only_inside_iosim(name: str, tmp_path: Path) -> None:
    find = f"""\
        import importlib, importlib.util
        importlib.import_module("iosim.{name}")
        print(importlib.util.find_spec("{name}"))
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(find)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout == "None\n"
