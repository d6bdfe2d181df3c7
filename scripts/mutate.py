"""Can the tests fail? Change the code a little, one place at a time, and see whether one does.

python scripts/mutate.py map                                  # which test runs which line
python scripts/mutate.py run --package propagation --sample 120 --seed 0 --jobs 2
python scripts/mutate.py survivors --package propagation      # what no test noticed
python scripts/mutate.py table                                # writes docs/mutation.md

The changes are Cosmic Ray's (``pip install -e '.[test,mutation]'``). Each mutant is judged in a
forked child of a process that has imported everything but Hoplite: an import hook gives the child
the changed source (the tree is never written to), and pytest runs there the tests that reach the
changed line, the quick ones of the module's own folder first. Results are kept in build/mutation
and reused: a function that changed is judged again, survivors are with ``--again``. After a change
of tests run ``map`` for their files, after a change of the code for all.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.abc
import importlib.util
import json
import math
import os
import resource
import signal
import sys
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mutants import PACKAGES, ROOT, Mutant, sampled

WORK = ROOT / "build" / "mutation"
PAGE = ROOT / "docs" / "mutation.md"
JUSTIFIED = ROOT / "scripts" / "mutants_justified.toml"
TESTS = (
    *("tests/propagation", "tests/models", "tests/training", "tests/store", "tests/selection"),
    *("tests/test_operators.py", "tests/test_filters.py"),
    *("tests/test_estimators.py", "tests/test_graph.py", "tests/test_spectrum.py"),
    *PACKAGES.values(),  # their doctests
)
# Left out: tests that mostly run other processes, which do not see the mutant.
WITHOUT = ("test_kill.py", "test_cluster.py", "test_distributed.py")
LONGEST_TEST = 30  # seconds; a test that takes longer judges nothing
TEST_SECONDS = 12.0  # of tests that a mutant is judged by, as measured on the sound code
CHILD_SECONDS = 60  # of processor time that a child may take
CHILD_WAIT = 400  # seconds until a child that only waits is ended
CHILD_MEMORY = 16 << 30  # bytes of address space
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


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives one module the changed source."""

    def __init__(self, path: str, source: str) -> None:
        parts = Path(path).relative_to("src").with_suffix("").parts
        self.package = parts[-1] == "__init__"
        self.name = ".".join(parts[:-1] if self.package else parts)
        self.file, self.source = str(ROOT / path), source

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname != self.name:
            return None
        places = [str(Path(self.file).parent)] if self.package else None
        return importlib.util.spec_from_file_location(
            fullname, self.file, loader=self, submodule_search_locations=places
        )

    def exec_module(self, module: Any) -> None:
        exec(compile(self.source, self.file, "exec", dont_inherit=True), module.__dict__)

    def get_source(self, fullname: str) -> str:
        return self.source


def judge(mutant: Mutant, source: str, tests: list[str]) -> int:
    """In a child: 0 if every test passes with the changed source."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (CHILD_SECONDS, CHILD_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (CHILD_MEMORY, CHILD_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    log = os.open(WORK / f"log-{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(ROOT)
    import pytest

    finder = Finder(mutant.path, source)
    sys.meta_path.insert(0, finder)
    importlib.import_module(finder.name)
    return int(pytest.main(["-x", *OPTIONS, *tests]))


def run(package: str, sample: int | None, seed: int, jobs: int, again: bool) -> None:
    """Judge the mutants of a package that have no result yet, ``jobs`` at a time."""
    known = read_map()
    mutants, places, total = sampled(package, sample, seed)
    note_sample(package, mutants, places, total)
    results = read_results()
    open_ = [
        one
        for one in mutants
        if one.key not in results or (again and results[one.key]["result"] == "survived")
    ]
    print(f"{package}: {len(open_)} of {len(mutants)} to judge; {places} places, {total} mutants")
    warm()
    os.nice(5)
    running: dict[int, tuple[float, dict[str, Any]]] = {}
    for count, mutant in enumerate(open_):
        source, before, after = mutant.apply()
        tests = choose_tests(mutant, known)
        facts = {"key": mutant.key, "path": mutant.path, "line": mutant.line, "before": before}
        facts |= {"after": after, "tests": len(tests), "package": package}
        if not tests:
            note(facts | {"result": "survived", "how": "no test reaches it", "seconds": 0.0})
            continue
        while len(running) >= jobs:
            wait_for_one(running)
        pid = os.fork()
        if pid == 0:
            code = 99
            try:
                code = judge(mutant, source, tests)
            finally:
                os._exit(code)
        running[pid] = time.time(), facts
        print(f"\r{count + 1}/{len(open_)}", end="", file=sys.stderr)
    while running:
        wait_for_one(running)
    print(summary(package))


def wait_for_one(running: dict[int, tuple[float, dict[str, Any]]]) -> None:
    """Wait until a child has ended, or end one that has hung, and note its result."""
    while True:
        for pid, (begin, facts) in running.items():
            ended, status, usage = os.wait4(pid, os.WNOHANG)
            late = not ended and time.time() - begin > CHILD_WAIT
            if late:
                os.killpg(pid, signal.SIGKILL)
                ended, status, usage = os.wait4(pid, 0)
            if ended:
                del running[pid]
                _end_group(pid)
                (WORK / f"log-{pid}").unlink(missing_ok=True)
                code = os.waitstatus_to_exitcode(status)
                result = "survived" if code == 0 else "killed"
                seconds = round(usage.ru_utime + usage.ru_stime, 2)
                note(facts | {"result": result, "how": f"exit {code}", "seconds": seconds})
                return
        time.sleep(0.05)


def _end_group(pid: int) -> None:
    """What a mutant's tests may have left running."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def note(facts: dict[str, Any]) -> None:
    with (WORK / "results.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(facts) + "\n")


def read_results() -> dict[str, dict[str, Any]]:
    """The last result of each mutant."""
    store = WORK / "results.jsonl"
    lines = store.read_text(encoding="utf-8").splitlines() if store.exists() else []
    return {facts["key"]: facts for facts in map(json.loads, lines)}


def note_sample(package: str, mutants: list[Mutant], places: int, total: int) -> None:
    facts = {"places": places, "mutants": total, "keys": [one.key for one in mutants]}
    (WORK / f"sample-{package}.json").write_text(json.dumps(facts))


def outcomes(package: str) -> Iterator[dict[str, Any]]:
    """The results of the last sample; survivors with a reason become ``justified``."""
    reasons = tomllib.loads(JUSTIFIED.read_text(encoding="utf-8")).get("mutant", [])
    excused = {(one["module"], one["line"], one["mutation"]) for one in reasons}
    results = read_results()
    for key in json.loads((WORK / f"sample-{package}.json").read_text())["keys"]:
        if key in results:
            facts = results[key]
            where = facts["path"].removeprefix("src/hoplite/"), facts["before"]
            known = {(*where, facts["after"]), (*where, "any")} & excused
            if facts["result"] == "survived" and known:
                facts = facts | {"result": "justified"}
            yield facts


def summary(package: str) -> str:
    """One line of the table."""
    facts = json.loads((WORK / f"sample-{package}.json").read_text())
    found = [one["result"] for one in outcomes(package)]
    killed, survived = found.count("killed"), found.count("survived")
    counted = killed + survived
    low, high = wilson(killed, counted)
    return (
        f"| {package} | {facts['places']:,} ({facts['mutants']:,}) | {len(found)} | {killed} "
        f"| {survived} | {found.count('justified')} | {100 * killed / len(found):.1f} % "
        f"| {100 * killed / counted:.1f} % ({100 * low:.0f} to {100 * high:.0f}) |"
    )


def wilson(hits: int, count: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a rate."""
    z, rate = 1.96, hits / count
    middle = rate + z * z / (2 * count)
    half = z * math.sqrt(rate * (1 - rate) / count + z * z / (4 * count * count))
    return (middle - half) / (1 + z * z / count), (middle + half) / (1 + z * z / count)


HEAD = """# Can the tests fail?

Small changes are made to the code, one at a time: another operator, a number one higher or lower,
a condition negated, a loop that never runs, a decorator removed. A change that no test notices is
a hole in the tests. Written by `python scripts/mutate.py table` after `map` and `run`.

- At each of a random choice of places one random change is made; in brackets all possible changes.
- Not changed, since it never runs: annotations, functions without a body, `TYPE_CHECKING` blocks;
  and not `==` to `is`, which nothing could notice.
- A mutant is *killed* if a test fails, hangs or dies. It is judged by up to {seconds:g} s of tests
  that reach the line in their own process; a line that no such test reaches counts as survived.
- *Justified* survivors change nothing that a test should fix (speed, or an equal result);
  each has its reason in `scripts/mutants_justified.toml`. The first score counts them as survived,
  the second, with Wilson's 95 % interval, leaves them out.

| package | places (changes) | sampled | killed | survived | justified | killed of all | score |
|---|---|---|---|---|---|---|---|
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("action", choices=["map", "run", "survivors", "table"])
    parser.add_argument("paths", nargs="*", help="test files for `map`")
    parser.add_argument("--package", action="append", choices=list(PACKAGES))
    parser.add_argument("--sample", type=int, default=120)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--again", action="store_true", help="judge survivors again")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    if options.action == "map":
        make_map(options.paths)
    packages = options.package or list(PACKAGES)
    for package in packages if options.action in ("run", "survivors") else []:
        if options.action == "run":
            sample = None if options.all else options.sample
            run(package, sample, options.seed, options.jobs, options.again)
        else:
            for one in outcomes(package):
                if one["result"] == "survived":
                    print(f"{one['path']}:{one['line']} ({one['tests']} tests, {one['how']})")
                    print(f"  - {one['before']}\n  + {one['after']}")
    if options.action == "table":
        lines = [summary(package) for package in PACKAGES]
        PAGE.write_text(HEAD.format(seconds=TEST_SECONDS) + "\n".join(lines) + "\n")
        print("\n".join(lines))


if __name__ == "__main__":
    main()
