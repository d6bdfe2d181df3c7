"""SIGINT, SIGTERM and SIGHUP at any moment: one sentence, the right exit code, nobody left."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from tests.commands import start

from hoplite import Graph, Split
from hoplite.io import write_npz

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
LONG = ["--epochs", "1000000", "--patience", "1000000"]
COMMANDS = {
    "propagate": ["--hops", "3000", "--out", "OUT", "--json"],
    "propagate local:2": ["--hops", "3000", "--out", "OUT", "--cluster", "local:2"],
    "train": [*LONG, "--out", "OUT"],
}
# moments: as soon as signals are heard, when workers are started, a random time later, and when
# the work has begun
MOMENTS = ["first", "starting", "random", "working"]
THOROUGH = bool(os.environ.get("HOPLITE_THOROUGH"))
ALL = list(itertools.product(COMMANDS, SIGNALS, MOMENTS))
# as libraries have that compute: it receives signals while the main thread blocks them
THREAD = """
import threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
"""
SAMPLE = [
    ("propagate local:2", signal.SIGTERM, "working"),
    ("propagate local:2", signal.SIGINT, "starting"),
    ("propagate", signal.SIGHUP, "working"),
    ("train", signal.SIGINT, "working"),
    ("train", signal.SIGTERM, "first"),
]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    rng = np.random.default_rng(0)
    n, order = 300, np.random.default_rng(1).permutation(300)
    graph = Graph.from_edges(
        rng.integers(0, n - 5, (900, 2)),  # the last nodes are alone
        features=rng.standard_normal((n, 80), np.float32),
        labels=rng.choice(4, n, p=[0.7, 0.2, 0.05, 0.05]),
        split=Split(order[:120], order[120:200], order[200:]),
    )
    path = tmp_path_factory.mktemp("data") / "graph.npz"
    write_npz(path, graph)
    return path


def listens(process) -> bool:
    """Whether the process has begun to handle SIGTERM itself."""
    text = Path(f"/proc/{process.pid}/status").read_text()
    caught = int(text.split("SigCgt:")[1].split()[0], 16)
    return bool(caught >> (signal.SIGTERM - 1) & 1)


def wait_for(look, process):
    deadline = time.monotonic() + 600
    while not look():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
@pytest.mark.parametrize(("command", "number", "moment"), ALL if THOROUGH else SAMPLE)
def test_one_sentence_and_nobody_left(dataset, tmp_path, command, number, moment):
    out = tmp_path / "out"
    words = [str(out) if word == "OUT" else word for word in COMMANDS[command]]
    environment = {"TMPDIR": str(tmp_path)}
    if moment == "first":  # while it imports
        process = subprocess.Popen(
            [sys.executable, "-m", "hoplite", command.split()[0], str(dataset), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=os.environ | environment,
            # where the tests run in the background, some are ignored, also by what they start
            preexec_fn=lambda: [signal.signal(each, signal.SIG_DFL) for each in SIGNALS],
        )
    else:
        before = THREAD if moment == "starting" else ""
        process = start(command.split()[0], dataset, *words, before=before, env=environment)
    wait_for(lambda: listens(process), process)
    if moment == "starting" and command == "propagate local:2":
        wait_for(lambda: len(psutil.Process(process.pid).children()) > 1, process)
    elif moment in ("starting", "random"):
        time.sleep(random.Random(f"{command} {number}").uniform(0, 3))
    elif moment == "working" and command == "train":
        time.sleep(1)  # nothing of it shows from outside
    elif moment == "working":
        wait_for(lambda: any(out.glob("v0/hops/h1/*.npy")), process)
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    os.killpg(process.pid, number)  # as a terminal does
    text, errors = process.communicate(timeout=600)
    after = "" if command == "train" else "; run the same command again to resume"
    sentence = f"stopped by {signal.Signals(number).name}{after}."
    assert (process.returncode, errors) == (128 + number, f"error: {sentence}\n")
    assert (json.loads(text) if "--json" in words else text) in ("", {"error": sentence})
    assert psutil.wait_procs(family, timeout=600)[1] == []
    left = [path.name for path in tmp_path.iterdir() if path != out]
    assert left == []
    if command != "propagate local:2":  # whose workers die with it; the next run tidies up
        assert not list(out.rglob("*.tmp"))
