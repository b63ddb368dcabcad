# make install | make demo | make test | make test-all | make fuzz | make chaos | make test-browser | make results | make bench | make lint. Everything is installed into .venv, once, with the versions of constraints.txt.
PYTHON ?= python3
PIP = .venv/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
PYTEST = HF_HUB_OFFLINE=1 .venv/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder
ARGS ?=
RUNS ?=

.PHONY: install demo test test-all fuzz chaos test-browser results bench lint format clean

install: .venv/.embedded

demo: .venv/.embedded
	.venv/bin/python -m distill recipe=distilbert $(ARGS)

test: .venv/.dev
	$(PYTEST) -m "not slow" $(ARGS)

test-all: .venv/.dev
	$(PYTEST) $(ARGS)

# 1,000 random cases of each kind; test-all has 100. Runs that are disturbed at random take more than half an hour.
fuzz: .venv/.dev
	FUZZ_CASES=1000 $(PYTEST) tests/fuzz $(ARGS)

chaos: .venv/.dev
	HF_HUB_OFFLINE=1 .venv/bin/python -m benchmarks.chaos $(ARGS)

test-browser: .venv/.browser
	HF_HUB_OFFLINE=1 .venv/bin/python -m pytest -rs tests/browser $(ARGS)

# Lists the committed results; RUNS="NAME ..." makes those again.
results: .venv/.dev
	.venv/bin/python -m benchmarks.remake $(RUNS)

# Distillation with distill and with other libraries, timed in turn: half an hour for each round, of which there are three.
bench: .venv/.bench
	HF_HUB_OFFLINE=1 .venv/bin/python -m benchmarks.frameworks --output benchmarks/results/frameworks.json $(ARGS)
	HF_HUB_OFFLINE=1 .venv/bin/python -m benchmarks.embedders --output benchmarks/results/embedders.json

lint: .venv/.dev
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

format: .venv/.dev
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

clean:
	rm -rf .venv dist build .mypy_cache .pytest_cache .ruff_cache

.venv/.python:
	$(PYTHON) -m venv .venv
	touch $@

# Torch first: a CPU build that is there already meets torch's pin, and is then not replaced by a larger one.
.venv/.torch: constraints.txt | .venv/.python
	$(PIP) torch
	touch $@

.venv/.embedded: pyproject.toml constraints.txt .venv/.torch
	$(PIP) --editable ".[embedded,openvino]"
	touch $@

.venv/.dev: pyproject.toml constraints.txt .venv/.torch
	$(PIP) --editable ".[embedded,dev,torchao,openvino]"
	touch $@ .venv/.embedded

.venv/.bench: .venv/.dev
	$(PIP) --editable ".[bench]"
	touch $@

# The browser itself is the system's: chromium or chrome.
.venv/.browser: .venv/.dev
	$(PIP) --editable ".[browser]"
	touch $@
