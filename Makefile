# The two commands of the README, each with all its set-up: `make fit` and `make test`.

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: fit test test-all pure lint types contracts spelling docs accuracy bench clean

fit: $(READY)
	$(BIN)/meshfit fit examples/tiny-llama

test: lint types contracts spelling pure
	$(BIN)/pytest -m "dist and not heavy and not gpu"

test-all: lint types contracts spelling pure
	$(BIN)/pytest -m "(dist or heavy) and not gpu"

# One process a core; what launches ranks runs after it, alone.
pure: $(READY)
	$(BIN)/pytest -n auto --dist loadfile -m "not dist and not heavy and not gpu"

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/mypy

contracts: $(READY)
	$(BIN)/lint-imports

spelling: $(READY)
	$(BIN)/codespell src tests docs examples benchmarks README.md CHANGELOG.md

docs: $(READY)
	$(BIN)/python -m meshfit.report.rules > docs/rules.md

# The tables of docs/accuracy.md, from a table of published measurements.
TRAINING ?= ../shared/truth/training.csv
accuracy: $(READY)
	$(BIN)/python tools/accuracy.py $(TRAINING) --leave-one-out

bench: $(READY)
	$(BIN)/python benchmarks/tier1.py
	$(BIN)/python benchmarks/tier2.py
	$(BIN)/python benchmarks/space.py

# torch goes in through constraints.txt, before anything that would pull a CUDA build of its own.
$(READY): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "needs $(PYTHON) on the PATH (set PYTHON=...)"; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade -c constraints.txt torch
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[run,dev]"
	touch $@

clean:
	rm -rf $(VENV) meshfit-runs .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
