# make run: set up and open GPU Deck.  make test: set up and run the tests.  Both work on a fresh clone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Written when what running needs is installed, and when what developing needs is.
RUNS := $(VENV)/.runs
STAMP := $(VENV)/.installed
# Compat mode adds the clone to the path; the default would have each start of Python import a finder, 15 ms.
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --config-settings editable_mode=compat -c constraints.txt -e

# The tests start hundreds of processes: what these import is compiled once, also where the environment says otherwise.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: run test slow everything gpu mutants xvfb torture file-faults peers soak ray slurm frameworks matrix emulation truth lint types imports docs transcript bench dist clean

run: $(RUNS)
	$(BIN)/gpudeck

test: $(STAMP)
	QT_QPA_PLATFORM=offscreen $(BIN)/python -m pytest

slow: $(STAMP)
	QT_QPA_PLATFORM=offscreen $(BIN)/python -m pytest -m slow --timeout 600

# All that takes long, for hours, with a table in tests/benchmarks/log/everything.md; make everything ONLY="truth xvfb"
# runs these targets alone.
everything: $(STAMP)
	$(BIN)/python -m tests.everything $(ONLY)

# All tests and figures that need an NVIDIA GPU, as long as MINUTES says.
gpu: $(STAMP)
	$(BIN)/python -m tests.gpu $(if $(MINUTES),--minutes $(MINUTES))

# Plausible slips are planted in a copy of the sources, one after another: a test must catch each.
mutants: $(STAMP)
	$(BIN)/python -m tests.mutants

# The window on a real X11 server without a screen, driven by mouse and keys.
xvfb: $(STAMP)
	QT_QPA_PLATFORM=xcb xvfb-run -a -s "-screen 0 1600x1200x24" $(BIN)/python -m pytest -n 0 tests/gui/test_walk.py tests/gui/test_journeys.py

# make torture SEED=4 asks for the same faults again, in the same order; N=500 for 500 faults from the outside
# instead of 2,000; PART=outside, inside, others (users of a shared daemon), remote (another machine) or changed_files
# (inject and clean) for one part.
torture: $(STAMP)
	$(BIN)/python -m tests.integration.torture $(PART) $(if $(SEED),--seed $(SEED)) $(if $(N),--faults $(N))
	$(if $(PART),,$(BIN)/python -m tests.integration.torture.file_faults $(if $(SEED),--seed $(SEED)))

# Errors of the disk at 1,000 accesses of the daemon and of runners to the folders of jobs, which is part of make
# torture, and at 300 accesses of the daemon to its store, its settings and its log.
file-faults: $(STAMP)
	$(BIN)/python -m tests.integration.torture.file_faults $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tests.integration.torture.state_faults --schedules 300 $(if $(SEED),--seed $(SEED))

# Acknowledged jobs that GPU Deck, gflow, task-spooler and Slurm lose when their daemons are killed; those in the PATH.
peers: $(STAMP)
	$(BIN)/python -m tests.benchmarks.queue_losses

# Thousands of jobs in twenty minutes, and what grows meanwhile.
soak: $(STAMP)
	$(BIN)/python -m tests.benchmarks.soak $(if $(MINUTES),--minutes $(MINUTES))

# A real Ray head, which listens on all interfaces: in a network namespace that has none but its own loopback.
ray: $(STAMP)
	@test -x $(BIN)/ray || $(INSTALL) '.[ray]'
	unshare -rn sh -c 'ip link set lo up && QT_QPA_PLATFORM=offscreen exec $(BIN)/python -m pytest -n 0 -m ray --timeout 600 tests/clusters'

# Jobs of a few seconds in the Slurm cluster whose commands are in the PATH; its machines must share this file system.
slurm: $(STAMP)
	QT_QPA_PLATFORM=offscreen $(BIN)/python -m pytest -n 0 -m slurm --timeout 600 tests/clusters

# Attention in JAX, in transformers with Trainer and PEFT, in diffusers and, where it is installed, timm, and on several processes; LoRA as peft reads it.
frameworks: $(STAMP)
	@$(BIN)/python -c 'import diffusers, jax, peft' 2>/dev/null || $(INSTALL) '.[frameworks]'
	$(BIN)/python -m pytest -n 0 -rs -m 'slow or not slow' --timeout 600 tests/unit/accel/frameworks tests/unit/accel/training/test_tuning.py

matrix: $(STAMP)
	@$(BIN)/python -c 'from gpudeck.accel.runtime.nvrtc import library; library()' 2>/dev/null || $(INSTALL) '.[nvrtc]'
	$(BIN)/python -m pytest -m matrix --timeout 600 tests/unit/accel

emulation: $(STAMP)
	$(BIN)/python -m pytest -m emulation --timeout 600 tests/emulation

truth: $(STAMP)
	$(BIN)/python -m pytest -m truth --timeout 600 tests/unit/assistant/test_truth.py

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(MAKE) --silent types imports

types: $(STAMP) .typing/gpudeck
	$(BIN)/mypy

imports: $(STAMP) .typing/gpudeck
	cd .typing && ../$(BIN)/lint-imports --config ../pyproject.toml

# Links that lay the folders out as they are imported, for tools that read them without importing.
.typing/gpudeck: gpudeck gpudeck/* Makefile
	@rm -rf $@ && mkdir -p $@
	@for name in $(wildcard gpudeck/*.py) gpudeck/py.typed app accel assistant scheduler language; do ln -s ../../$$name $@/; done

# The commands and settings as Markdown, from where they are defined.
docs: $(STAMP)
	$(BIN)/python -m gpudeck.app.cli.reference docs

# Real jobs, thirty questions, and what the assistant answered: docs/transcript.md, written anew.
transcript: $(STAMP)
	$(BIN)/python -m tests.transcript

bench: $(STAMP)
	QT_QPA_PLATFORM=offscreen $(BIN)/python -m tests.benchmarks

# The sdist and the wheel of the last commit in dist/, with their contents checked.
dist: $(STAMP)
	@$(BIN)/python -c 'import build, twine' 2>/dev/null || $(INSTALL) '.[dist]'
	$(BIN)/python -m tests.distribution

clean:
	rm -rf $(VENV) .typing build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache

# Reinstalled when what it depends on changes; -c holds every package at the version that was tested.
$(RUNS): pyproject.toml setup.py constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "GPU Deck needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.11" >&2; exit 1; }
	@echo "Setting up in $(VENV): the first time takes some minutes, most of them torch."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(INSTALL) '.[assistant,window]'
	@touch $@

$(STAMP): $(RUNS)
	@$(INSTALL) '.[test,lint]'
	@touch $@
