"""``local:N``: what the machine lacks, and workers that die."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from hoplite.datasets import write_npz

pytest.importorskip("distributed")
SMALL = "mount -t tmpfs -o size=64k tmpfs /dev/shm"


def test_without_room_in_the_shared_memory_folder(graphs, tmp_path):
    """Semaphores of multiprocessing live there; a container may have little of it."""
    if subprocess.run(["unshare", "-m", "sh", "-c", SMALL], capture_output=True).returncode:
        pytest.skip("it needs the right to mount")
    write_npz(tmp_path / "graph.npz", graphs(60, 8, dtype=np.float32))
    full = f"{SMALL} && head -c 64k /dev/zero > /dev/shm/full"
    words = ["propagate", "graph.npz", "--hops", "2", "--out", "store", "--cluster", "local:2"]
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", f'{full}; exec "$@"', "sh", sys.executable, "-m", "hoplite",
         *words],
        capture_output=True, text=True, cwd=tmp_path, timeout=600,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
