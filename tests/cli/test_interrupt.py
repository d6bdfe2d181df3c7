"""A stopped command says so in one sentence, and the same command continues."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import pytest
from tests.commands import hoplite, start

from hoplite import Graph, Split
from hoplite.io import write_npz

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
    deadline = time.monotonic() + 300
    while not list(out.glob(begun)):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.killpg(process.pid, number)
    text, errors = process.communicate()
    assert (process.returncode, text) == (128 + number, "")
    name = signal.Signals(number).name
    assert errors == f"error: stopped by {name}; run the same command again to continue.\n"
    done = hoplite(*given, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
