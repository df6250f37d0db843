# Everything a newcomer needs: `make train` runs the main job, `make test` checks the code.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.docs-installed
SITE := build/docs
# The policy of the film that `make demo` writes.
DEMO ?= zoo:DST2d
# Versions to install: those of constraints.txt, the lowest that pyproject.toml allows, or the newest.
DEPENDENCIES ?= pinned
pinned := constraints.txt
lowest := build/lowest.txt
newest := build/newest.txt
CONSTRAINTS := $($(DEPENDENCIES))

# Where Python is told to leave no bytecode, every process of the tests would compile the sources anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup demo train lint style types test tests test-slow test-ray bench docs dist clean

help:
	@echo "make demo       trained policies obey your preference, in the browser"
	@echo "make train      the main job: Q-Pensieve on DST2d, small enough for two cores (about three minutes)"
	@echo "make setup      create $(VENV) and install qpensieve with its development tools"
	@echo "make lint       ruff (format, lint) and pyright"
	@echo "make test       ruff, then the test suite with pyright beside it (under ten minutes on two cores)"
	@echo "make test-slow  the learning tests (many minutes)"
	@echo "make test-ray   installs Ray (258 MB) and runs the tests on a cluster of two nodes (three minutes)"
	@echo "make bench      benchmarks; prints tables of ratios measured in one run"
	@echo "make docs       the pages and the API reference as a site, in $(SITE)/site; warnings fail"
	@echo "make dist       a wheel and a source archive, in build/dist: make dist REPOSITORY=https://..."
	@echo "make clean      remove the environment and caches"

setup: $(STAMP)

build/lowest.txt: pyproject.toml
	@mkdir -p build
	sed -n '/^dependencies/,/^]/s/^  "\([a-z0-9-]*\)>=\([0-9.]*\).*/\1==\2/p' pyproject.toml > $@

build/newest.txt:
	@mkdir -p build
	touch $@

$(STAMP): pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c $(CONSTRAINTS) -e '.[dev]'
	@$(BIN)/python -m compileall -qq -j 0 -x '/(tests|pip|setuptools|OpenGL|fontTools)/' $(VENV)/lib || true  # all cores; pip uses one
	@touch $(STAMP)

# Without a display: the address of the page, and a film.
demo: $(STAMP)
	@mkdir -p build
	[ -n "$$DISPLAY$$WAYLAND_DISPLAY" ] || $(BIN)/qpensieve video $(DEMO) --out build/demo.gif --quiet
	$(BIN)/qpensieve watch

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
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e '.[ray]'
	XLA_FLAGS="$(XLA_FLAGS) $(UNOPTIMISED)" $(BIN)/python -m pytest -m slow tests/experiments/test_ray.py

bench: $(STAMP)
	for name in lanes blocks update methods collect train; do $(BIN)/python -m benchmarks $$name || exit 1; done

$(DOCS_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e '.[docs]'
	@touch $(DOCS_STAMP)

# Built in a folder of its own: beside zensical.toml Zensical keeps a .cache, and here that is the cache of the tests.
docs: $(DOCS_STAMP)
	rm -rf $(SITE)
	mkdir -p $(SITE)/pages/examples $(SITE)/pages/results/recipe
	cp zensical.toml $(SITE)
	cp -r README.md CHANGELOG.md CONTRIBUTING.md CITATION.cff docs $(SITE)/pages
	cp examples/*.md examples/*.py $(SITE)/pages/examples
	cp results/README.md results/recipe.md $(SITE)/pages/results
	cp results/recipe/*-round.md results/recipe/*.png $(SITE)/pages/results/recipe
	cd $(SITE) && $(abspath $(BIN))/zensical build --strict

# A package index needs whole addresses for the README's pictures and links. build and twine are installed in build/dist alone.
dist:
	$(if $(REPOSITORY),,$(error name the address of the repository: make dist REPOSITORY=https://...))
	rm -rf build/dist
	mkdir -p build/dist/tree
	git archive HEAD | tar x -C build/dist/tree
	sed -E 's#src="docs/#src="$(REPOSITORY)/raw/HEAD/docs/#g; s#\]\(([A-Za-z]+(/|\.md|\.cff))#]($(REPOSITORY)/blob/HEAD/\1#g' README.md \
	  > build/dist/tree/README.md
	$(PYTHON) -m venv build/dist/tools
	build/dist/tools/bin/python -m pip install --quiet --disable-pip-version-check build twine
	build/dist/tools/bin/python -m build --outdir build/dist build/dist/tree
	build/dist/tools/bin/python -m twine check --strict build/dist/*.whl build/dist/*.tar.gz

clean:
	rm -rf $(VENV) .cache .pytest_cache .ruff_cache build
