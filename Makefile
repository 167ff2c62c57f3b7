# Each target sets up what it needs; the environment is .venv, the command .venv/bin/bertsmith.
.PHONY: setup demo test test-slow check format bench conformance

PYTHON ?= python3
BIN := .venv/bin
export BERTSMITH_DATA ?= $(wildcard ../shared/data)
ifeq ($(BERTSMITH_DATA),)
unexport BERTSMITH_DATA
endif

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: setup
	$(BIN)/bertsmith demo --out demo

# A worker a processor, each on its own (tests/conftest.py); a file's tests stay together.
test: setup
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 8 --dist loadfile

test-slow: setup
	$(BIN)/python -m pytest -m slow --timeout 3600

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup
	$(BIN)/python benchmarks/pretrain_speed.py
	$(BIN)/python benchmarks/finetune_speed.py
	$(BIN)/python benchmarks/prepare_speed.py

# Prints a line a fact and writes the page, which a test compares with the tests' source.
conformance: setup
	$(BIN)/python -m pytest -q tests/conformance --ignore tests/conformance/test_page.py --conformance docs/conformance.md
