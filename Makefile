# make run    the main job: DS-AL on the embedded CIFAR-100 features, a table and a report in runs/
# make test   tests, lint, types and the import contract
# make slow   the tests that take minutes
# make mutants  whether tests notice changes of the mathematics: takes half an hour; MODULES="analytic/head analytic/ridge" for some
# make docs   the documentation, strictly checked, into build/site; needs no network once installed
# make clean  forget the virtual environment and the caches
#
# Each works on a fresh machine with Python 3.10 or later: the virtual environment is made on the way.
# Another interpreter: make test PYTHON=python3.12

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install -q -c constraints.txt
# One thread for each of the two pytest workers: BLAS threads of two processes would fight for the cores.
PYTEST := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -q

.PHONY: run test slow docs mutants lint clean

run: $(VENV)/.package
	$(BIN)/dsal run

test: lint
	$(PYTEST) -n 2

slow: $(VENV)/.checks $(VENV)/.docs
	$(BIN)/python -m pytest -q -m slow

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

mutants: $(VENV)/.checks
	cd tests && ../$(BIN)/python -m mutation.run $(MODULES)

lint: $(VENV)/.checks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

$(VENV)/.python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "dsal needs Python 3.10 or later: make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.package: $(VENV)/.python pyproject.toml constraints.txt
	$(INSTALL) -e .
	touch $@

$(VENV)/.docs: $(VENV)/.package
	$(INSTALL) -e '.[docs]'
	touch $@

$(VENV)/.checks: $(VENV)/.package
	$(INSTALL) -e '.[test,dev,examples,lite,onnx,serve]'
	touch $@
