# Everything sets up .venv by itself, compiler plugins for TPU and CUDA included.
PYTHON ?= python3
PY := .venv/bin/python
export JAX_PLATFORMS ?= cpu
# Each of the tests' processes would compile the package's Python again: 0.4 s of the 1.2 s that its import takes.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test examples lint docs bench fuzz

demo: .venv/stamp
	$(PY) -m stablehlo_mem demo

test: .venv/stamp
	$(PY) -m pytest

examples: .venv/examples
	$(PY) -m pytest -rs --no-header tests/test_examples.py tests/test_recipes.py

lint: .venv/stamp
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m pyright stablehlo_mem
	.venv/bin/lint-imports
	$(PY) -m pytest -n 0 --no-header -q tests/test_docs.py -k prose

docs: .venv/stamp
	$(PY) benchmarks/tables.py
	$(PY) docs/generate
	$(PY) -m mkdocs build --strict

N ?= 100
fuzz: .venv/stamp
	$(PY) benchmarks/fuzz.py $(N)

bench: .venv/stamp
	$(PY) benchmarks/run.py

.venv/stamp: pyproject.toml
	$(PY) -c "import pip" 2>/dev/null || $(PYTHON) -m venv --clear .venv
	$(PY) -m pip install --quiet --disable-pip-version-check --editable ".[tpu,cuda,test]"
	touch $@

.venv/examples: .venv/stamp
	$(PY) -m pip install --quiet --disable-pip-version-check --editable ".[examples,recipes]"
	touch $@
