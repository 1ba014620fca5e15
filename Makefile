# `make verify` and `make test` need nothing but Python 3.11 or later as python3; each target
# installs what it needs into .venv once and again when the packaging files change.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
PACKAGING := setup.cfg pyproject.toml

.PHONY: verify proofs test lint types docs doctest bench clean

verify: .venv/iosim.stamp
	$(BIN)/iosim verify

# Checks every proof and prints what the main theorems assume. Needs coqc and installs nothing.
proofs:
	@$(MAKE) --no-print-directory -C proofs/coq

test: .venv/test.stamp
	$(BIN)/pytest -n auto --dist worksteal

lint: .venv/lint.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# gpu/ and proofs/ are type-checked where they are imported from: inside iosim.
types: .venv/lint.stamp
	rm -rf build/typed && mkdir -p build/typed
	cp -R iosim build/typed/iosim && cp -R gpu proofs build/typed/iosim
	cd build/typed && ../../$(BIN)/mypy --config-file ../../pyproject.toml

docs: .venv/docs.stamp
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html

# The examples in docstrings and in the pages.
doctest: .venv/test.stamp
	$(BIN)/pytest --doctest-modules --doctest-glob='*.md' --ignore docs/_build iosim proofs docs README.md

bench: .venv/bench.stamp
	$(BIN)/python benchmarks/spine_speed.py
	$(BIN)/python benchmarks/cache_speed.py

clean:
	rm -rf .venv build dist docs/_build *.egg-info .pytest_cache .mypy_cache .ruff_cache \
	    .hypothesis .benchmarks
	$(MAKE) --no-print-directory -C proofs/coq clean
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# pip knows --group from 25.1 on; the pip that a new environment starts with may be older.
.venv/pip.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "iosim needs Python 3.11 or later, and $(PYTHON) is older or missing;" \
	        "say which to use: make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(PIP) --upgrade 'pip>=25.1'
	touch $@

# The note silenced here says that a folder named iosim may go before an installed one.
.venv/iosim.stamp: .venv/pip.stamp $(PACKAGING)
	PYTHONWARNINGS='ignore:Editable installation' $(PIP) --editable .
	touch $@

# The compiler of the GPU kernels, for the tests that need no GPU; without it they are skipped.
.venv/gpu.stamp: .venv/iosim.stamp $(PACKAGING)
	PYTHONWARNINGS='ignore:Editable installation' $(PIP) --editable '.[gpu]'
	touch $@

.venv/%.stamp: .venv/iosim.stamp $(PACKAGING)
	$(PIP) --group $*
	touch $@

