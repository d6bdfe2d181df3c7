# make run    creates the environment, installs Hoplite, trains on the embedded data
# make test   creates the environment, installs Hoplite, runs every test
# make lint   formatting, lint and types

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: run test lint clean

run: $(STAMP)
	$(BIN)/hoplite datasets
	$(BIN)/hoplite train cora --model lgc --hops 20 --lr 0.2 --weight-decay 5e-4 --dropout 0.5
	$(BIN)/hoplite train citeseer --model lgc --hops 20 --lr 0.2 --weight-decay 1e-2 --dropout 0.5
	$(BIN)/hoplite train pubmed --model sgc --hops 10 --lr 0.2 --weight-decay 5e-6 --dropout 0

test: $(STAMP)
	$(BIN)/python -m pytest

lint: $(STAMP)
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/pyright

# The build runs without isolation so that it, too, uses exactly the pinned tools.
$(STAMP): pyproject.toml constraints.txt CMakeLists.txt $(wildcard native/*)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt scikit-build-core nanobind cmake ninja
	$(BIN)/python -m pip install --quiet --no-build-isolation -c constraints.txt -e '.[test,dev,baselines]'
	touch $@

clean:
	rm -rf $(VENV) build
