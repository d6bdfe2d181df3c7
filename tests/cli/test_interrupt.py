"""A stopped command says so in one sentence, and the same command continues."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from tests.commands import hoplite, start

from hoplite import Graph, Split
from hoplite.io import write_npz

IMPORTING = """
import os, signal, sys, time

class Hook:
    def find_spec(self, name, *rest):
        if name == {name!r}:
            {action}

sys.meta_path.insert(0, Hook())
"""  # python runs sitecustomize.py first
LONG = ["--epochs", "3000", "--patience", "3000"]


@pytest.mark.parametrize(
    ("words", "begun", "number"),
    [
        (["search", "--workers", "1", "--samples", "4"], "*", signal.SIGTERM),
        (["train", "--model", "auto", "--trials", "6", "--hops", "2"], "auto/*", signal.SIGINT),
    ],
    ids=["search", "auto"],
)
def test_the_same_command_continues(tmp_path, words, begun, number):
    rng, n = np.random.default_rng(0), 120
    order = rng.permutation(n)
    graph = Graph.from_edges(
        rng.integers(0, n - 5, (300, 2)),  # the last nodes are isolated
        features=rng.standard_normal((n, 12), np.float32),
        labels=rng.choice(3, n, p=[0.7, 0.2, 0.1]),
        split=Split(order[:50], order[50:80], order[80:]),
    )
    write_npz(tmp_path / "graph.npz", graph)
    out = tmp_path / "out"
    command, *options = words
    given = [command, "graph.npz", *options, "--seeds", "1", *LONG, "--out", "out"]
    process = start(*given, cwd=tmp_path)
    process.wait_until(lambda: list(out.glob(begun)))
    os.killpg(process.pid, number)
    text, errors = process.communicate()
    assert (process.returncode, text) == (128 + number, "")
    name = signal.Signals(number).name
    assert errors == f"error: stopped by {name}; run the same command again to resume.\n"
    done = hoplite(*given, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("way", ["script", "module"])
@pytest.mark.parametrize("name", ["ast", "hoplite.__main__", "hoplite.cli", "typer"])
def test_an_interrupt_while_the_command_is_imported_ends_it_silently(tmp_path, way, name):
    """These imports come one after the other."""
    hook = IMPORTING.format(name=name, action="os.kill(os.getpid(), signal.SIGINT)")
    (tmp_path / "sitecustomize.py").write_text(
        f"{hook}signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    )
    script = tmp_path / "hoplite"
    script.write_text("import sys; from hoplite.__main__ import main; sys.exit(main())")
    command = [script] if way == "script" else ["-m", "hoplite"]
    done = subprocess.run(
        [sys.executable, *command, "--version"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_a_worker_that_still_imports_ends_with_its_parent(tmp_path):
    action = "open(f'{os.getpid()}.pid', 'w').close(); time.sleep(600)"
    (tmp_path / "sitecustomize.py").write_text(
        IMPORTING.format(name="hoplite.search", action=action)
    )
    (tmp_path / "parent.py").write_text(
        "import multiprocessing, sys\n"
        "from concurrent.futures import ProcessPoolExecutor\n"
        "from hoplite.machine import begin_worker\n"
        "if __name__ == '__main__':\n"
        "    context = multiprocessing.get_context('spawn')\n"
        "    with ProcessPoolExecutor(1, context, begin_worker, (context.Event(),)) as pool:\n"
        "        pool.submit(exec, 'import hoplite.search').result()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "parent.py"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        stderr=subprocess.PIPE,  # the worker holds its end as long as it lives
    )
    while not list(tmp_path.glob("*.pid")):
        assert parent.poll() is None, parent.communicate()
        time.sleep(0.01)
    parent.kill()
    parent.communicate(timeout=600)
