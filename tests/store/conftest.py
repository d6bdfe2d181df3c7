"""A store cut as a test wants it, the whole store in memory, and its bytes."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from hoplite.propagation.engine import Propagation
from hoplite.store import propagate
from hoplite.store.manifest import read_manifest


@pytest.fixture
def tmp_path():
    """A folder in memory where there is one: a disk takes minutes to sync thousands of blocks."""
    memory = Path("/dev/shm")
    usable = memory.is_dir() and os.access(memory, os.W_OK)
    place = memory if usable and shutil.disk_usage(memory).free > 4e9 else None
    with tempfile.TemporaryDirectory(dir=place, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def cut_store(graph, folder, scratch, *, rows, columns, **settings):
    """An empty store of ``graph`` with blocks of these sizes; propagate keeps to them."""
    propagate(graph, scratch, **settings)
    manifest = read_manifest(scratch)
    panels = tuple(
        (first, min(first + columns, manifest.columns))
        for first in range(0, manifest.columns, columns)
    )
    folder.mkdir()
    cut = dataclasses.replace(manifest, rows_per_block=rows, panels=panels, error=())
    cut.write(folder)


def in_memory(graph, operator="renormalized", basis="monomial", hops=3):
    """p_i(S) X as the models compute it: (hops + 1, n, d)."""
    features = graph.features.astype(np.float32)
    single = graph.with_features(features, graph.feature_names)
    return Propagation(single, operator, basis, hops).view().hop_features().squeeze(2).numpy()


def all_bytes(folder: Path) -> dict[str, bytes]:
    """Every file of a store but the lock."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture(scope="session")
def stores():
    class Stores:
        cut = staticmethod(cut_store)
        in_memory = staticmethod(in_memory)
        all_bytes = staticmethod(all_bytes)

    return Stores


class Dask:
    """A scheduler in a process of its own, and workers that a test starts and kills."""

    def __init__(self, folder: Path) -> None:
        self._file, self._log = folder / "scheduler.json", (folder / "log").open("wb")
        self._processes: list[subprocess.Popen[bytes]] = []
        self._environment = os.environ | {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0"}
        self.scheduler = self._start("scheduler", "--port", "0", "--no-dashboard")
        self.address = self._wait(lambda: json.loads(self._file.read_text())["address"])

    def worker(self, *options: str, before: str = "", prefix: tuple[str, ...] | list[str] = ()):
        return self._start("worker", "--no-nanny", *options, before=before, prefix=prefix)

    def wait_for(self, workers: int) -> None:
        """Until the scheduler has so many workers."""
        from distributed import Client

        with Client(self.address, set_as_default=False) as client:
            self._wait(lambda: len(client.nthreads()) == workers or None)

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        self._log.close()

    def _start(self, kind: str, *options: str, before: str = "", prefix=()):
        code = f"{before}\nfrom distributed.cli.dask_{kind} import main\nmain()"
        usual = ["--nthreads", "1", "--memory-limit", "0", "--no-dashboard"]
        words = [*usual, *options] if kind == "worker" else list(options)
        process = subprocess.Popen(
            [*prefix, sys.executable, "-c", code, "--scheduler-file", str(self._file), *words],
            env=self._environment,
            cwd=self._file.parent,
            stdout=self._log,
            stderr=self._log,
        )
        self._processes.append(process)
        return process

    @staticmethod
    def _wait(look):
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline:
            try:
                found = look()
            except (OSError, ValueError):  # not there yet, or half written
                found = None
            if found is not None:
                return found
            time.sleep(0.05)
        raise TimeoutError("the cluster of the test does not start")


@pytest.fixture
def dask(tmp_path_factory):
    cluster = Dask(tmp_path_factory.mktemp("dask"))
    yield cluster
    cluster.close()
