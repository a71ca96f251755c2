# make run: set up and open GPU Deck.  make test: set up and run the tests.  Both work on a fresh clone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: run test torture matrix emulation lint bench clean

run: $(STAMP)
	$(BIN)/gpudeck

test: $(STAMP)
	QT_QPA_PLATFORM=offscreen $(BIN)/python -m pytest

# make torture SEED=4 asks for the same faults again, in the same order.
torture: $(STAMP)
	$(BIN)/python -m tests.integration.torture $(if $(SEED),--seed $(SEED))

matrix: $(STAMP)
	$(BIN)/python -m pytest -m matrix --timeout 600 tests/unit/accel/test_compile_matrix.py tests/unit/assistant/test_rwkv_gpu.py

emulation: $(STAMP)
	$(BIN)/python -m pytest -m emulation --timeout 600 tests/emulation

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP)
	QT_QPA_PLATFORM=offscreen $(BIN)/python -m tests.benchmarks

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache

# Reinstalled when what it depends on changes; -c holds every package at the version that was tested.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "GPU Deck needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.11" >&2; exit 1; }
	@echo "Setting up in $(VENV): the first time takes some minutes, most of them torch."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test,lint]'
	@touch $(STAMP)
