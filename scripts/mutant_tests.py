"""Which tests judge a mutant: those that reach its line, found by one run under coverage."""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from mutants import PACKAGES, ROOT, Mutant

WORK = ROOT / "build" / "mutation"
TESTS = (
    *("tests/propagation", "tests/models", "tests/training", "tests/store", "tests/search"),
    *("tests/test_bases.py", "tests/test_operators.py", "tests/test_filters.py"),
    *("tests/test_estimators.py", "tests/test_graph.py", "tests/test_spectrum.py"),
    *PACKAGES.values(),  # their doctests
)
# Left out: tests that mostly run other processes, which do not see the mutant.
WITHOUT = ("test_kill.py", "test_cluster.py", "test_distributed.py")
LONGEST_TEST = 30  # seconds; a test that takes longer judges nothing
TEST_SECONDS = 12.0  # of tests that a mutant is judged by, as measured on the sound code
WARM = (
    *("torch._dynamo", "torch.optim", "torch.distributed", "scipy.sparse.linalg", "scipy.stats"),
    *("sklearn.metrics", "sklearn.model_selection", "sklearn.utils.estimator_checks", "pytest"),
    *("hypothesis.extra.numpy", "pyarrow.parquet", "pyarrow.csv", "safetensors.torch", "typer"),
    *("rich.progress", "msgspec", "psutil", "torch_geometric.nn", "distributed"),
)
OPTIONS = (
    *("-q", "--no-header", "--tb=no", "-o", "addopts=", "--import-mode=importlib"),
    *("--doctest-modules", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # of what is warm
    *("--rootdir", str(ROOT), "--hypothesis-seed=0"),
    "--hypothesis-profile=mutation",  # not the one that tests/conftest.py loads
)


def warm() -> None:
    """Import what every child needs, but nothing of Hoplite."""
    os.environ["OMP_WAIT_POLICY"] = "passive"
    sys.path[:0] = [str(ROOT / "src"), str(ROOT)]
    for name in WARM:
        importlib.import_module(name)
    from hypothesis import Phase, settings

    # No search for the smallest example, and no failure remembered for the next mutant.
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile("mutation", database=None, phases=phases, derandomize=True)
    settings.load_profile("mutation")


def make_map(paths: list[str]) -> None:
    """Run the tests under coverage: which of them pass, how long they take, on what lines."""
    import coverage  # pyright: ignore[reportMissingImports] - an extra

    os.chdir(ROOT)
    WORK.mkdir(parents=True, exist_ok=True)
    cover = coverage.Coverage(data_file=None, source=[str(ROOT / "src" / "hoplite")])
    plan = Plan(cover)
    warm()
    import pytest

    found = [path for path in paths or TESTS if (ROOT / path).exists()]
    skipped = [f"--ignore-glob=*/{name}" for name in WITHOUT]
    cover.start()
    pytest.main([*OPTIONS, *skipped, *found], plugins=[plan])
    cover.stop()
    data = cover.get_data()
    lines: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for file in data.measured_files():
        name = str(Path(file).relative_to(ROOT))
        for line, contexts in data.contexts_by_lineno(file).items():
            for context in contexts:
                for test in plan.users.get(context, [context]):
                    if test in plan.passed:
                        lines[test][name].append(line)
    store = WORK / "map.json"
    known = json.loads(store.read_text()) if store.exists() and paths else {}
    known = {test: facts for test, facts in known.items() if not test.startswith(tuple(found))}
    for test, seconds in plan.passed.items():
        known[test] = {"seconds": seconds, "lines": lines.get(test, {})}
    store.write_text(json.dumps(known))
    print(f"{len(plan.passed)} tests of {plan.count} can judge; {len(known)} are in the map")


class Plan:
    """A plugin of pytest: a context of coverage for each test and each fixture of several tests."""

    def __init__(self, cover: Any) -> None:
        self.cover = cover
        self.count = 0
        self.passed: dict[str, float] = {}
        self.users: dict[str, list[str]] = defaultdict(list)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.cover.switch_context(nodeid)
        self.count += 1
        self.failed = False
        self.begin = time.process_time()
        signal.signal(signal.SIGALRM, _too_long)
        signal.alarm(LONGEST_TEST)

    def pytest_fixture_setup(self, fixturedef: Any) -> None:
        if fixturedef.scope != "function":
            self.cover.switch_context(f"fixture {fixturedef.argname}")

    def pytest_runtest_call(self, item: Any) -> None:
        for name in getattr(item, "fixturenames", []):
            self.users[f"fixture {name}"].append(item.nodeid)
        self.cover.switch_context(item.nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.failed |= report.outcome != "passed"

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        signal.alarm(0)
        if not self.failed:
            self.passed[nodeid] = time.process_time() - self.begin


def _too_long(*_: Any) -> None:
    raise TimeoutError(f"over {LONGEST_TEST} s")


def read_map() -> dict[str, Any]:
    store = WORK / "map.json"
    if not store.exists():
        sys.exit("there is no map of the tests: run `python scripts/mutate.py map` first.")
    known = json.loads(store.read_text())
    for facts in known.values():
        facts["lines"] = {name: set(lines) for name, lines in facts["lines"].items()}
    return known


def choose_tests(mutant: Mutant, known: dict[str, Any]) -> list[str]:
    """Tests that reach the mutant: the quick ones of its own folder first, as time allows."""
    path = Path(mutant.path)

    def order(test: str) -> tuple[bool, bool, float]:
        file, seconds = test.split("::")[0], known[test]["seconds"]
        near = f"tests/{path.parent.name}/" in file or file.endswith(f"test_{path.name}")
        return seconds > TEST_SECONDS / 4, not near, seconds

    wanted, chosen, total = set(mutant.lines), [], 0.0
    reach = [one for one, facts in known.items() if wanted & facts["lines"].get(mutant.path, set())]
    for test in sorted(reach, key=order):
        total += known[test]["seconds"]
        if chosen and total > TEST_SECONDS:
            break
        chosen.append(test)
    return chosen
