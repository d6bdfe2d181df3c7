"""The processes of a search may die at any moment, also while they start."""

from __future__ import annotations

import contextlib
import threading

import numpy as np
import psutil
import pytest

from hoplite.errors import LedgerError
from hoplite.selection import run_search

CONFIGURATIONS = [{"hops": k, "epochs": 5, "dropout": d} for k in (1, 2) for d in (0.0, 0.5)]


@contextlib.contextmanager
def killed_at_birth(most):
    """Kill the first ``most`` workers as soon as they are seen; yields the pids of the killed."""
    killed, over, me = set(), threading.Event(), psutil.Process()
    others = {child.pid for child in me.children(recursive=True)}  # such as a browser

    def kill():
        while not over.wait(0.002) and len(killed) < most:
            with contextlib.suppress(psutil.NoSuchProcess):
                for child in me.children(recursive=True):
                    born = child.ppid() != me.pid or "spawn_main" in " ".join(child.cmdline())
                    if born and child.pid not in killed | others and len(killed) < most:
                        child.kill()
                        killed.add(child.pid)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def test_workers_that_are_killed_at_birth_are_replaced(graphs, tmp_path):
    graph = graphs(n=300, d=200, dtype=np.float32)  # more than a pipe holds
    with killed_at_birth(4) as killed:
        ledger = run_search(graph, "lgc", CONFIGURATIONS, tmp_path / "s", seeds=1, workers=2)
    assert len(killed) == 4
    assert len(ledger.runs()) == 4
    assert {path.name for path in (tmp_path / "s").iterdir()} == {
        "cells", "search.json", "search.lock",
    }  # fmt: skip


def test_workers_that_always_die_are_told(graphs, tmp_path):
    graph = graphs(n=40, d=6, dtype=np.float32)
    with killed_at_birth(10**6), pytest.raises(LedgerError, match=r"\d+ workers died"):
        run_search(graph, "lgc", CONFIGURATIONS, tmp_path / "s", seeds=1, workers=2)
    assert len(run_search(graph, "lgc", CONFIGURATIONS, tmp_path / "s", seeds=1).runs()) == 4
