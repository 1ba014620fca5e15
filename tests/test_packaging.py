"""What an installed iosim holds: the folders in their places, the data files, one version."""

import configparser
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

import iosim

ROOT = Path(__file__).parents[1]


def test_versions_agree() -> None:
    assert metadata.version("iosim") == iosim.__version__
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8").splitlines()
    assert f"version: {iosim.__version__}" in citation


def test_metadata_is_in_setup_cfg_only() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert set(project) == {"build-system", "dependency-groups", "tool"}
    assert "setuptools" not in project["tool"]
    tools = {"mypy", "tool:pytest", "flake8", "isort", "coverage:run"}
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    assert not tools & set(setup.sections()), "settings of tools are in pyproject.toml"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a wheel from a copy of the sources, without a network."""
    source = tmp_path_factory.mktemp("source")
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("iosim", "gpu", "proofs"):
        unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / name, source / name, ignore=unwanted)
    shutil.copytree(ROOT / "docs" / "data", source / "docs" / "data", ignore=unwanted)
    build = "from setuptools import build_meta; build_meta.build_wheel('dist')"
    result = subprocess.run(
        [sys.executable, "-c", build],
        cwd=source,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    assert "Deprecat" not in result.stdout
    (path,) = (source / "dist").glob("*.whl")
    return path


def test_wheel_holds_every_source_file_once(wheel: Path) -> None:
    held = zipfile.ZipFile(wheel).namelist()
    assert len(held) == len(set(held))
    assert {name.split("/")[0] for name in held} == {
        "iosim",
        f"iosim-{iosim.__version__}.dist-info",
    }
    places = [("iosim", "iosim"), ("gpu", "iosim/gpu"), ("proofs", "iosim/proofs"),
              ("docs/data", "iosim/recordings")]  # fmt: skip
    expected = {
        f"{place}/{path.relative_to(ROOT / folder).as_posix()}"
        for folder, place in places
        for suffix in ("*.py", "*.json", "*.toml", "*.v", "py.typed")
        for path in (ROOT / folder).rglob(suffix)
    }
    assert expected <= set(held), "list a new package or kind of data file in setup.cfg"


def test_wheel_is_importable_elsewhere(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    script = (
        "import importlib.util, sys; sys.path.insert(0, sys.argv[1]); "
        "import iosim.gpu, iosim.proofs, iosim.machine; "
        "assert iosim.__file__.startswith(sys.argv[1]), iosim.__file__; "
        "print(iosim.machine.machine('A100').name, "
        "importlib.util.find_spec('gpu'), importlib.util.find_spec('proofs'))"
    )
    # -I leaves out this folder and PYTHONPATH, so that only the wheel and its needs are there.
    result = subprocess.run(
        [sys.executable, "-I", "-c", script, str(tmp_path / "site")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout == "A100 None None\n"
