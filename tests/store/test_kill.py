"""kill -9 at any moment loses nothing: the next run goes on, and the bytes are the same."""

import numpy as np
import pytest
from tests.commands import run

from hoplite import Graph
from hoplite.io import write_npz
from hoplite.store import propagate

KILLED_OFTEN = """
import os, random, signal, sys, time
from hoplite import load
from hoplite.store import propagate

graph, settings = load(sys.argv[1]), {"hops": 4, "dtype": sys.argv[3], "basis": "chebyshev"}
random.seed(1)
kills, ended = 0, 0


def files():
    return sum(len(names) for *_, names in os.walk(sys.argv[2]))


while True:
    pid = os.fork()  # before this process has started any thread
    if pid == 0:
        propagate(graph, sys.argv[2], **settings)
        os._exit(0)
    enough, ended = files() + random.randint(1, 120), 0
    while files() < enough and not ended:
        ended, status = os.waitpid(pid, os.WNOHANG)
        time.sleep(0.001)
    if ended:
        assert status == 0
        break
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    kills += 1
print(kills)
"""


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_killed_at_any_moment(stores, tmp_path, dtype):
    rng = np.random.default_rng(0)
    graph = Graph.from_edges(
        rng.integers(0, 900, (4000, 2)), features=rng.standard_normal((900, 40), np.float32)
    )
    write_npz(tmp_path / "graph.npz", graph)
    settings = {"hops": 4, "dtype": dtype, "basis": "chebyshev"}
    for name in ("whole", "killed"):
        stores.cut(graph, tmp_path / name, 32, 8, **settings)
    propagate(graph, tmp_path / "whole", **settings)
    paths = [str(tmp_path / name) for name in ("graph.npz", "killed")]
    done = run(KILLED_OFTEN, *paths, dtype)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0
    assert stores.all_bytes(tmp_path / "killed") == stores.all_bytes(tmp_path / "whole")
