# make run    creates the environment, installs Hoplite, reproduces the paper's table (--quick)
# make test   creates the environment, installs Hoplite, runs every test
# make test-thorough   every test, with at least 500 random examples for each property (hours)
# make lint   formatting, lint and types
# make docs   the site, built strictly, with its gallery executed: docs/_build/html/index.html
# make notebooks  the examples as notebooks: build/notebooks
# make sanitize   the kernels' tests and fuzzer with AddressSanitizer and UBSan
# make wheel      sdist, wheel, and what the wheel does where there is no compiler (minutes)
# make fuzz       random calls of the C++ core against NumPy (SECONDS=60, SEED=0)

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: run test test-thorough lint docs notebooks sanitize wheel fuzz clean browser postgres

run: $(STAMP)
	$(BIN)/python -m experiments reproduce --quick --out runs/quick

# A worker a core, each with one thread: more would only wait for each other. Bytecode is kept, as
# many tests start processes.
WORKERS := $(shell getconf _NPROCESSORS_ONLN 2> /dev/null || echo 2)
test: $(STAMP) browser postgres
	env -u PYTHONDONTWRITEBYTECODE OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS) --maxprocesses 8 --dist worksteal

# Its examples differ from run to run; those of make test are always the same.
test-thorough: export HOPLITE_THOROUGH = 1
test-thorough: test

# The report's page is tested in a real browser; without one, and without CI=true, that test skips.
BROWSERS := chromium-headless-shell chromium chromium-browser google-chrome google-chrome-stable
INSTALL = $(ROOT) env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends
ROOT := $(if $(filter 0,$(shell id -u)),,sudo)
browser:
	@for name in $(BROWSERS); do command -v $$name > /dev/null && exit 0; done; \
	command -v apt-get > /dev/null || { echo "no browser found: install Chromium to test the report"; exit 0; }; \
	echo "installing Chromium for the test of the report"; \
	{ $(ROOT) apt-get -qq update && { $(INSTALL) chromium-headless-shell || $(INSTALL) chromium; }; \
	} > /dev/null 2>&1 || echo "Chromium could not be installed; the test of the report will skip"

# Tables are read from a real Postgres server, which the test starts; without one, that test skips.
postgres:
	@ls /usr/lib/postgresql/*/bin/postgres > /dev/null 2>&1 && exit 0; \
	command -v apt-get > /dev/null || { echo "no Postgres found: install it to test databases"; exit 0; }; \
	echo "installing Postgres for the test of databases"; \
	{ $(ROOT) apt-get -qq update && $(INSTALL) postgresql; \
	} > /dev/null 2>&1 || echo "Postgres could not be installed; the test of databases will skip"

lint: $(STAMP)
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	if command -v node > /dev/null; then $(BIN)/pyright --pythonpath $(BIN)/python; \
	else echo "types were not checked: pyright needs Node.js"; test "$$CI" != true; fi

# -W -n: a warning, or a reference that leads nowhere, is an error. Nothing is fetched.
docs: $(STAMP)
	$(BIN)/python -m sphinx -W --keep-going -n -b html docs docs/_build/html

notebooks: $(STAMP)
	$(BIN)/python scripts/notebooks.py

sanitize: $(STAMP)
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python scripts/sanitize.py

wheel: $(STAMP)
	$(BIN)/python scripts/test_wheel.py

SECONDS ?= 60
SEED ?= 0
fuzz: $(STAMP)
	$(BIN)/python scripts/fuzz_native.py --seconds $(SECONDS) --seed $(SEED)

# All at exactly the pinned versions, each file with its hash checked but torch's: its CPU build comes
# from elsewhere on some machines. The build runs without isolation to use the pinned tools, too.
TORCH := torch==2.13.0
$(STAMP): Makefile pyproject.toml constraints.txt CMakeLists.txt $(wildcard native/*)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes -r constraints.txt
	$(BIN)/python -m pip install --quiet $(TORCH)
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	$(BIN)/python -m pip check
	touch $@

clean:
	rm -rf $(VENV) build
