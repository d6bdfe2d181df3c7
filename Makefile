# make run    creates the environment, installs Hoplite, reproduces the paper's table (--quick)
# make test   creates the environment, installs Hoplite, runs every test
# make lint   formatting, lint and types
# make sanitize   the kernels' tests and fuzzer with AddressSanitizer and UBSan
# make fuzz       random calls of the C++ core against NumPy (SECONDS=60, SEED=0)

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: run test lint sanitize fuzz clean browser

run: $(STAMP)
	$(BIN)/hoplite reproduce --quick --out runs/quick

# A worker more than there are cores, as some tests wait for processes, and each keeps to one
# thread: more would only wait for each other.
WORKERS := $(shell expr $$(getconf _NPROCESSORS_ONLN 2> /dev/null || echo 2) + 1)
test: $(STAMP) browser
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS) --maxprocesses 8 --dist worksteal

# The report's page is tested in a real browser; without one, and without CI=true, that test skips.
BROWSERS := chromium chromium-browser google-chrome google-chrome-stable
ROOT := $(if $(filter 0,$(shell id -u)),,sudo)
browser:
	@for name in $(BROWSERS); do command -v $$name > /dev/null && exit 0; done; \
	command -v apt-get > /dev/null || { echo "no browser found: install Chromium to test the report"; exit 0; }; \
	echo "installing Chromium for the test of the report"; \
	{ $(ROOT) apt-get -qq update \
	&& $(ROOT) env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends chromium; \
	} > /dev/null 2>&1 || echo "Chromium could not be installed; the test of the report will skip"

lint: $(STAMP)
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/pyright

sanitize: $(STAMP)
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python scripts/sanitize.py

SECONDS ?= 60
SEED ?= 0
fuzz: $(STAMP)
	$(BIN)/python scripts/fuzz_native.py --seconds $(SECONDS) --seed $(SEED)

# The build runs without isolation so that it, too, uses exactly the pinned tools.
$(STAMP): pyproject.toml constraints.txt CMakeLists.txt $(wildcard native/*)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt scikit-build-core nanobind cmake ninja
	$(BIN)/python -m pip install --quiet --no-build-isolation -c constraints.txt -e '.[test,dev,baselines]'
	touch $@

clean:
	rm -rf $(VENV) build
