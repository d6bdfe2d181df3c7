"""Damaged and hostile inputs: every one must end in success or one sentence with exit code 1.

    python scripts/hostile.py [--cases 600] [--seed 0] [--only KIND] [--seconds 10] [--jobs 2]

Takes sound inputs of every kind that Hoplite reads (.npz, tables, graphs on disk, stores,
model folders, ledgers, grids, results), damages one file of a copy, and runs a command on it in a
process of its own. A finding is a signal, a traceback, an exit code other than 0 and 1, more than
one sentence, or more than ``--seconds``. The cases made by hand, each of which once did
harm, run too. Prints the findings and the counts by kind; ends with 1 if there is a finding.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import zipfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from hostile_harm import damage
from hostile_inputs import commands, make_inputs
from pyarrow import parquet

import hoplite.search  # noqa: F401 - imported once, before the forks
from hoplite.__main__ import main as hoplite_main

DOCUMENTS = {
    "stores": "manifest.json",
    "models": "config.json",
    "ledgers": "search.sqlite",
    "disk graphs": "graph.json",
}
MEMORY = 4 << 30  # address space beyond what is mapped when a case starts


@dataclass(frozen=True)
class Case:
    """A command on a copy of sound inputs with one thing wrong."""

    kind: str
    what: str
    words: tuple[str, ...]  # FOLDER stands for the copy
    harm: Callable[[Path], object]


def drawn_cases(count: int, seed: int) -> list[Case]:
    """``count`` cases, the same for the same seed, the kinds in turn."""
    found, table = [], commands()
    for number in range(count):
        kind = list(table)[number % len(table)]
        rng = np.random.default_rng([seed, number])
        target, words = table[kind][rng.integers(len(table[kind]))]

        def harm(folder: Path, target: str = target, number: int = number) -> None:
            damage(folder / target, np.random.default_rng([seed, number, 1]))

        found.append(Case(kind, f"draw {number}", tuple(words), harm))
    return found


def known_cases() -> list[Case]:
    """Inputs that once crashed, hung or confused a reader."""
    wide = [",".join(f"c{i}" for i in range(width)) for width in (10**5, 10**6)]
    labels = b"".join(b"%d,%d.5,1\n" % (i, i) for i in range(20_000))
    classes = b"".join(b"%d,c%d,train,1\n%d,c%d,val,2\n" % (i, i, -1 - i, i) for i in range(10**4))
    rates = b", ".join(b"%de-5" % i for i in range(1, 20_000))
    contents = [
        ("tables", "nodes.csv", f"id,label,split,{wide[0]}\n1,0,train{',0' * 10**5}\n".encode()),
        ("tables", "nodes.csv", f"id,label,split,{wide[1]}\n1,0,train{',0' * 10**6}\n".encode()),
        ("tables", "nodes.csv", b"id,label" + b",a" * 50_000 + b"\n"),
        ("tables", "nodes.csv", b"id,label,a\n" + labels),
        ("tables", "nodes.csv", b'id,label,a\n1,"x,2\n' + b"2,y,3\n" * 10**5),
        ("tables", "nodes.csv", b"id,label,age\n"),
        ("tables", "nodes.csv", b"id,label,split,a\n" + classes),
        ("npz", "", zip_bomb()),
        ("npz", "", b"PK\x03\x04" + bytes(100)),
        ("stores", "manifest.json", b'{"format": "hoplite store 1", "hops": 1000000000000}'),
        ("grids", "", b"[tables]\nlr = " + b"[" * 10**5 + b"]" * 10**5),
        ("grids", "", b"[tables]\nlr = [%s]\nweight_decay = [%s]\nhops = [1]\n" % (rates, rates)),
    ]
    for kind, name in DOCUMENTS.items():
        contents.append((kind, name, b'{"a":' * 10**5 + b"1" + b"}" * 10**5))
        contents.append((kind, name, b"[1, 2, 3]"))
    table = commands()
    cases = []
    for number, (kind, name, content) in enumerate(contents):
        target, words = table[kind][0]  # the simplest command

        def harm(folder: Path, path: str = f"{target}/{name}", content: bytes = content) -> None:
            (folder / path.rstrip("/")).write_bytes(content)

        cases.append(Case(kind, f"known {number}", tuple(words), harm))
    parquets = [words for target, words in table["tables"] if target == "parquet"]
    return cases + [Case("tables", "not UTF-8", tuple(words), invalid_text) for words in parquets]


def invalid_text(folder: Path) -> None:
    """A column of text whose bytes are not UTF-8."""
    buffers = [None, pa.py_buffer(np.arange(4, dtype=np.int32)), pa.py_buffer(b"\xff\xfe\xfd")]
    column = pa.Array.from_buffers(pa.string(), 3, buffers)
    table = pa.table({"id": ["a", "b", "c"], "label": column, "age": [1.0, 2.0, 3.0]})
    parquet.write_table(table, folder / "parquet/nodes.parquet")


def zip_bomb() -> bytes:
    """1 GB of zeros in 5 MB."""
    out = io.BytesIO()
    with (
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("meta.npy", "w", force_zip64=True) as member,
    ):
        for _ in range(16):
            member.write(bytes(1 << 26))
    return out.getvalue()


def run(words: list[str], folder: Path, seconds: float) -> tuple[int, str, float]:
    """``hoplite WORDS`` in a fork of this process: exit code (or -signal), its stderr, seconds."""
    errors, started = folder / "stderr", time.monotonic()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            _child(words, folder, errors)
        os._exit(99)
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        took = time.monotonic() - started
        if ended:
            break
        if took > seconds:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
    return os.waitstatus_to_exitcode(status), errors.read_text(errors="replace"), took


def must_work(words: list[str], folder: Path) -> None:
    """Run a command whose failure is this script's."""
    code, text, _ = run(words, folder, 600)
    if code:
        raise SystemExit(f"hoplite {' '.join(words)} failed: {text}")


def _child(words: list[str], folder: Path, errors: Path) -> None:
    os.setsid()
    for path, stream, flags in (
        (os.devnull, 0, os.O_RDONLY),
        (os.devnull, 1, os.O_WRONLY),
        (str(errors), 2, os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    ):
        os.dup2(os.open(path, flags, 0o600), stream)
    os.chdir(folder)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    sys.argv = ["hoplite", *words]
    try:
        hoplite_main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stderr.flush()
    os._exit(code)


def judge(case: Case, inputs: Path, seconds: float) -> str | None:
    """What is wrong with how a case ends, None if nothing is."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        folder = Path(place, "case")
        shutil.copytree(inputs, folder)
        case.harm(folder)
        code, text, took = run(list(case.words), folder, seconds)
    lines = [x for x in text.splitlines() if x and not x.startswith(("note: ", "warning: "))]
    last = lines[-1][:200] if lines else ""
    if took > seconds:
        return f"did not end within {seconds:g} s"
    if code < 0:
        return f"signal {signal.Signals(-code).name} {last}"
    if "Traceback" in text:
        return f"traceback: {last}"
    if code not in (0, 1):
        return f"exit code {code}: {last}"
    if code == 1 and (len(lines) != 1 or not last.startswith("error: ")):
        return f"{len(lines)} lines instead of one sentence: {last}"
    return None


def main() -> int:
    options = argparse.ArgumentParser(description="Damaged and hostile inputs.")
    options.add_argument("--cases", type=int, default=600, help="drawn cases")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--only", help="a kind of input")
    options.add_argument("--seconds", type=float, default=10.0)
    options.add_argument("--jobs", type=int, default=2)
    given = options.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        inputs = Path(place, "inputs")
        inputs.mkdir()
        make_inputs(inputs, must_work)
        cases = [*known_cases(), *drawn_cases(given.cases, given.seed)]
        for kind, entries in commands().items():  # what is sound must be taken
            cases += [
                Case(kind, "sound", tuple(words), lambda folder: None) for _, words in entries
            ]
        cases = [case for case in cases if given.only in (None, case.kind)]
        with ThreadPoolExecutor(given.jobs) as pool:
            found = list(pool.map(lambda case: judge(case, inputs, given.seconds), cases))
    for case, problem in zip(cases, found, strict=True):
        if problem:
            print(f"{case.kind}, {case.what}: hoplite {' '.join(case.words)}\n      {problem}")
    for kind, count in Counter(case.kind for case in cases).items():
        print(f"{kind:12} {count:4} inputs")
    findings = sum(1 for problem in found if problem)
    print(f"{len(cases)} damaged or hostile inputs, {findings} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
