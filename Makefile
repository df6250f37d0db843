# Everything a newcomer needs: `make train` runs the main job, `make test` checks the code.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.docs-installed
SITE := build/docs

# Where Python is told to leave no bytecode, every process of the tests would compile the sources anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup train lint style types test tests test-slow test-ray bench docs clean

help:
	@echo "make train      the main job: Q-Pensieve on DST2d, small enough for two cores (two to three minutes)"
	@echo "make setup      create $(VENV) and install qpensieve with its development tools"
	@echo "make lint       ruff (format, lint) and pyright"
	@echo "make test       ruff, then the test suite with pyright beside it (under ten minutes on two cores)"
	@echo "make test-slow  the learning tests (many minutes)"
	@echo "make test-ray   installs Ray (258 MB) and runs the tests on a cluster of two nodes (three minutes)"
	@echo "make bench      benchmarks; prints tables of ratios measured in one run"
	@echo "make docs       the pages and the API reference as a site, in $(SITE)/site; warnings fail"
	@echo "make clean      remove the environment and caches"

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[dev]'
	@$(BIN)/python -m compileall -qq -j 0 -x '/(tests|pip|setuptools|OpenGL|fontTools)/' $(VENV)/lib || true  # all cores; pip uses one
	@touch $(STAMP)

train: $(STAMP)
	$(BIN)/qpensieve train DST2d --preset quick

lint: style types

style: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(STAMP)
	$(BIN)/pyright

# Tests spend most of their time on compiling, and code that runs only briefly need not be optimised: neither by LLVM nor in fused
# loops, whose emitters take more than half of it, nor need a program be split so that cores share it. A few tests ask for what users
# have (`OPTIMISED` in tests/algos/problem.py); slow tests run without these flags. pyright runs at the same time.
WHOLE := --xla_cpu_parallel_codegen_split_count=1
UNOPTIMISED := --xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false
test: style
	@$(MAKE) --no-print-directory --jobs=2 types tests

tests: $(STAMP)
	XLA_FLAGS="$(XLA_FLAGS) $(WHOLE) $(UNOPTIMISED)" \
	  $(BIN)/python -m pytest -n auto --dist worksteal

test-slow: $(STAMP)
	$(BIN)/python -m pytest -m slow

test-ray: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[ray]'
	XLA_FLAGS="$(XLA_FLAGS) $(UNOPTIMISED)" $(BIN)/python -m pytest -m slow tests/experiments/test_ray.py

bench: $(STAMP)
	for name in lanes blocks update methods collect train; do $(BIN)/python -m benchmarks $$name || exit 1; done

$(DOCS_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $(DOCS_STAMP)

# Built in a folder of its own: beside zensical.toml Zensical keeps a .cache, and here that is the cache of the tests.
docs: $(DOCS_STAMP)
	rm -rf $(SITE)
	mkdir -p $(SITE)/pages/examples $(SITE)/pages/results/recipe
	cp zensical.toml $(SITE)
	cp -r README.md CHANGELOG.md CONTRIBUTING.md docs $(SITE)/pages
	cp examples/*.md examples/*.py $(SITE)/pages/examples
	cp results/README.md results/recipe.md $(SITE)/pages/results
	cp results/recipe/*-round.md results/recipe/*.png $(SITE)/pages/results/recipe
	cd $(SITE) && $(abspath $(BIN))/zensical build --strict

clean:
	rm -rf $(VENV) .cache .pytest_cache .ruff_cache build
