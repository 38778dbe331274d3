# Everything sets up .venv by itself, compiler plugins for TPU and CUDA included.
PYTHON ?= python3
PY := .venv/bin/python
export JAX_PLATFORMS ?= cpu
# Each of the tests' processes would compile the package's Python again: 0.4 s of the 1.2 s that its import takes.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test examples lint lint-types lint-style lint-imports lint-prose docs bench fuzz

demo: .venv/stamp
	$(PY) -m stablehlo_mem demo

test: .venv/stamp
	$(PY) -m pytest

examples: .venv/examples
	$(PY) -m pytest -rs --no-header tests/test_examples.py tests/test_recipes.py

# Pyright takes nearly all of the time, so the others run beside it.
lint: .venv/stamp
	$(MAKE) --no-print-directory --jobs --output-sync lint-types lint-style lint-imports lint-prose

# It is pinned, so it need not ask for a newer version; with a larger young generation node collects garbage less often.
lint-types:
	NODE_OPTIONS=--max-semi-space-size=128 PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(PY) -m pyright stablehlo_mem

lint-style:
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

lint-imports:
	.venv/bin/lint-imports

lint-prose:
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
