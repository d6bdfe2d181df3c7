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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mutant_tests import OPTIONS, TEST_SECONDS, WORK, choose_tests, make_map, read_map, warm
from mutants import PACKAGES, ROOT, Mutant, sampled

PAGE = ROOT / "docs" / "mutation.md"
JUSTIFIED = ROOT / "scripts" / "mutants_justified.toml"
CHILD_SECONDS = 60  # of processor time that a child may take
CHILD_WAIT = 400  # seconds until a child that only waits is ended
CHILD_MEMORY = 16 << 30  # bytes of address space
NO_TESTS = (4, 5)  # pytest's exit codes
CONTROLS = 2  # how many mutants' tests are first run on the code as it is


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


def start_child(path: str, source: str, tests: list[str]) -> int:
    """A child that ends with 0 if every test passes with this source of ``path``."""
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            code = judge(path, source, tests)
        finally:
            os._exit(code)
    return pid


def judge(path: str, source: str, tests: list[str]) -> int:
    """In the child: pytest's exit code."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (CHILD_SECONDS, CHILD_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (CHILD_MEMORY, CHILD_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    log = os.open(WORK / f"log-{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(ROOT)
    import pytest

    finder = Finder(path, source)
    sys.meta_path.insert(0, finder)
    for name in (finder.name, "hoplite.search", "hoplite.estimators"):
        importlib.import_module(name)
    return int(pytest.main(["-x", *OPTIONS, *tests]))


def run(package: str, sample: int | None, seed: int, jobs: int, again: bool) -> None:
    """Judge the mutants of a package that have no result yet, ``jobs`` at a time."""
    known = read_map()
    mutants, places, total = sampled(package, sample, seed)
    facts = {"places": places, "mutants": total, "seed": seed}
    facts |= {"keys": [one.key for one in mutants]}
    (WORK / f"sample-{package}.json").write_text(json.dumps(facts))
    results = read_results()
    open_ = [
        one
        for one in mutants
        if one.key not in results or (again and results[one.key]["result"] == "survived")
    ]
    print(f"{package}: {len(open_)} of {len(mutants)} to judge; {places} places, {total} mutants")
    warm()
    os.nice(5)
    check_sound([one for one in open_ if choose_tests(one, known)][:CONTROLS], known)
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
        running[start_child(mutant.path, source, tests)] = time.time(), facts
        print(f"\r{count + 1}/{len(open_)}", end="", file=sys.stderr)
    while running:
        wait_for_one(running)
    print(summary(package))


def check_sound(mutants: list[Mutant], known: dict[str, Any]) -> None:
    """The tests of some mutants pass, in the same surroundings, with the code as it is."""
    for mutant in mutants:
        source, tests = (
            (ROOT / mutant.path).read_text(encoding="utf-8"),
            choose_tests(mutant, known),
        )
        pid = start_child(mutant.path, source, tests)
        if os.waitpid(pid, 0)[1]:
            sys.exit(f"the tests of {mutant.path} fail without a mutant: see {WORK}/log-{pid}")
        (WORK / f"log-{pid}").unlink()


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
                if code in NO_TESTS:
                    sys.exit("the map names tests that are not there: run `mutate.py map` again.")
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
        f"| {package} | {facts['seed']} | {facts['places']:,} ({facts['mutants']:,}) "
        f"| {len(found)} | {killed} | {survived} | {found.count('justified')} "
        f"| {100 * killed / len(found):.1f} % | {100 * killed / counted:.1f} % "
        f"({100 * low:.0f} to {100 * high:.0f}) |"
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
a hole in the tests. Written by `python scripts/mutate.py table` after `map` and `run` (about 3 s of
processor time a mutant; the head of the script says how).

- At each of a random choice of places one random change is made; in brackets all possible changes.
- Not changed, since it never runs: annotations, functions without a body, `TYPE_CHECKING` blocks;
  and not `==` to `is`, nor the stars of arguments to other signs.
- A mutant is *killed* if a test fails, hangs or dies. It is judged by up to {seconds:g} s of tests
  that reach the line in their own process; a line that no such test reaches counts as survived.
- *Justified* survivors change nothing that a test should fix (speed, or an equal result);
  each has its reason in `scripts/mutants_justified.toml`. The first score counts them as survived,
  the second, with Wilson's 95 % interval, leaves them out.
- Tests were written for the survivors of seed 0, and of seed 1 in the store, so only other samples
  estimate what is not sampled.

| package | seed | places (changes) | sampled | killed | survived | justified | of all | score |
|---|---|---|---|---|---|---|---|---|
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
