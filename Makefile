# make install | make demo | make test | make test-all | make test-floors | make fuzz | make chaos | make edits | make test-browser | make results | make bench | make lint | make docs | make release. Everything is installed into .venv, once, with the versions of constraints.txt; with another Python: make test PYTHON=python3.13 VENV=.venv-3.13.
PYTHON ?= python3
VENV ?= .venv
PIP = $(VENV)/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
PYTEST = HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE= $(VENV)/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder
ARGS ?=
# Not of the environment, in which WSL has the computer's name.
NAME =

.PHONY: install demo test test-all test-floors fuzz chaos edits test-browser results bench lint docs format release clean

install: $(VENV)/.embedded

demo: $(VENV)/.embedded
	$(VENV)/bin/python -m distill recipe=distilbert $(ARGS)

test: $(VENV)/.dev
	$(PYTEST) -m "not slow" $(ARGS)

test-all: $(VENV)/.dev .node/.installed
	$(PYTEST) $(ARGS)

# The unit tests with the lowest versions that pyproject.toml allows; of torch, with that of constraints.txt. Old versions warn.
test-floors: .venv-floors/.floors
	$(subst $(VENV)/,.venv-floors/,$(PYTEST)) -W default -m "not slow" tests/unit $(ARGS)

# 1,000 random cases of each kind; test-all has 25. Runs that are disturbed at random take more than half an hour.
fuzz: $(VENV)/.dev
	FUZZ_CASES=1000 $(PYTEST) tests/fuzz $(ARGS)

chaos: $(VENV)/.dev
	HF_HUB_OFFLINE=1 $(VENV)/bin/python -m benchmarks.chaos $(ARGS)

# Random edits of inputs between identical commands: what is used again must be what would be made again. More than an hour.
edits: $(VENV)/.dev
	HF_HUB_OFFLINE=1 $(VENV)/bin/python -m benchmarks.edits $(ARGS)

test-browser: $(VENV)/.browser
	HF_HUB_OFFLINE=1 $(VENV)/bin/python -m pytest -rs tests/browser $(ARGS)

# Makes a committed result again by its own command; without NAME it lists them.
results: $(VENV)/.dev
	$(VENV)/bin/python -m benchmarks.remake $(NAME)

# Distillation with distill and with other libraries, timed in turn: half an hour for each round, of which there are three.
bench: $(VENV)/.bench
	HF_HUB_OFFLINE=1 $(VENV)/bin/python -m benchmarks.frameworks --output benchmarks/results/frameworks.json $(ARGS)
	HF_HUB_OFFLINE=1 $(VENV)/bin/python -m benchmarks.embedders --output benchmarks/results/embedders.json

lint: $(VENV)/.dev $(VENV)/.site
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --quiet

# The documents as a site, at the address that it prints.
docs: $(VENV)/.dev $(VENV)/.site
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs serve

format: $(VENV)/.dev
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

# dist/: the wheel, tested in an empty folder, the source, the list of what it was tested with (CycloneDX) and the changelog's section.
# Version and date come first: distill/__init__.py, CHANGELOG.md.
release: $(VENV)/.release
	$(VENV)/bin/pip-audit --strict --no-deps --disable-pip --requirement constraints.txt
	$(PYTEST) tests/packaging
	rm -rf dist
	$(VENV)/bin/python -m build --no-isolation
	$(VENV)/bin/cyclonedx-py requirements constraints.txt --pyproject pyproject.toml --output-reproducible --output-file dist/distill.cdx.json
	awk '/^## /{n++} n==1' CHANGELOG.md > dist/CHANGES.md

clean:
	rm -rf .venv .venv-* .node dist build site .mypy_cache .pytest_cache .ruff_cache

$(VENV)/.python:
	$(PYTHON) -m venv $(VENV)
	touch $@

# Torch first: a CPU build that is there already meets torch's pin, and is then not replaced by a larger one.
$(VENV)/.torch: constraints.txt | $(VENV)/.python
	$(PIP) torch
	touch $@

$(VENV)/.embedded: pyproject.toml constraints.txt $(VENV)/.torch
	$(PIP) --editable ".[embedded,openvino]"
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt $(VENV)/.torch
	$(PIP) --editable ".[embedded,dev,torchao,openvino]"
	touch $@ $(VENV)/.embedded

# transformers.js, where npm is found and has a registry; else its test is skipped. Scripts would download libraries for GPUs.
.node/.installed:
	mkdir -p .node
	-npm install --prefix .node --ignore-scripts --no-audit --no-fund --silent --fetch-retries 0 --fetch-timeout 30000 @huggingface/transformers@4.3.2
	touch $@

$(VENV)/.bench: $(VENV)/.dev
	$(PIP) --editable ".[bench]"
	touch $@

# The browser itself is the system's: chromium or chrome.
$(VENV)/.browser: $(VENV)/.dev
	$(PIP) --editable ".[browser]"
	touch $@

$(VENV)/.site: $(VENV)/.dev
	$(PIP) --editable ".[site]"
	touch $@

$(VENV)/.release: $(VENV)/.dev
	$(PIP) --editable ".[release]"
	touch $@

.venv-floors/.floors: pyproject.toml constraints.txt
	$(MAKE) VENV=.venv-floors .venv-floors/.torch
	.venv-floors/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt uv
	.venv-floors/bin/uv pip install --quiet --python .venv-floors/bin/python --resolution lowest-direct --editable ".[embedded,dev,torchao,openvino]"
	touch $@
