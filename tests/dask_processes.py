"""A Dask cluster of real processes that tests start and kill."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.commands import Process

# What a worker runs before it begins, to be one that cannot help.
ANOTHER_VERSION = "import hoplite.machine; hoplite.machine.VERSION = '0.0.7'"
WITHOUT_HOPLITE = """
import sys
for name in [name for name in sys.modules if name.startswith("hoplite.")]:
    del sys.modules[name]
sys.modules["hoplite"] = None
"""


class Dask:
    """A scheduler in a process of its own, and workers that a test starts and kills."""

    def __init__(self, folder: Path, *options: str, **environment: str) -> None:
        self._file, self._log = folder / "scheduler.json", folder / "log"
        self._processes: list[Any] = []
        allowed = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0"}
        self._environment = allowed | environment
        self.scheduler = self._start("scheduler", "--port", "0", "--no-dashboard", *options)
        self.address = self._wait(lambda: json.loads(self._file.read_text())["address"])

    def worker(self, *options: str, before: str = "", prefix: tuple[str, ...] | list[str] = ()):
        return self._start("worker", "--no-nanny", *options, before=before, prefix=prefix)

    def wait_for(self, workers: int) -> None:
        """Until the scheduler has so many workers."""
        from distributed import Client

        with self._wait(lambda: Client(self.address, set_as_default=False)) as client:
            self._wait(lambda: len(client.nthreads()) == workers or None)

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def _start(self, kind: str, *options: str, before: str = "", prefix=()) -> Any:
        code = f"{before}\nfrom distributed.cli.dask_{kind} import main\nmain()"
        words = ["--scheduler-file", str(self._file), *options]
        if kind == "worker":
            words[2:2] = ["--nthreads", "1", "--memory-limit", "0", "--no-dashboard"]
        if prefix:
            process = subprocess.Popen(
                [*prefix, sys.executable, "-c", code, *words],
                env=os.environ | self._environment,
                cwd=self._file.parent,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        else:
            settings = "import dask; dask.config.refresh()  # from the environment\n"
            process = Process(
                settings + code, *words, env=self._environment, cwd=self._file.parent, log=self._log
            )
        self._processes.append(process)
        return process

    @staticmethod
    def _wait(look):
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline:
            try:
                found = look()
            except (OSError, ValueError, AssertionError):  # not yet there or whole; Dask is slow
                found = None
            if found is not None:
                return found
            time.sleep(0.05)
        raise TimeoutError("the cluster of the test does not start")


def local_workers(leader: int | None = None) -> list[psutil.Process]:
    """The worker processes of ``local:N`` in the process ``leader``."""
    found = []
    for child in psutil.Process(leader).children():
        with contextlib.suppress(psutil.NoSuchProcess):  # also of a zombie
            words = " ".join(child.cmdline())
            found += [child] if "spawn_main" in words or "dask worker" in words else []
    return found


def running_workers() -> list[psutil.Process]:
    """The worker processes of ``local:N`` in this process that have started.

    Dask does not start a worker again that was killed while it started.
    """
    from distributed import Nanny
    from distributed.core import Status

    processes = [nanny.process for nanny in list(Nanny._instances)]
    running = [one.pid for one in processes if one and one.status == Status.running]
    return [psutil.Process(pid) for pid in running if pid]  # None if it has just ended


@pytest.fixture
def dask(tmp_path_factory):
    cluster = Dask(tmp_path_factory.mktemp("dask"))
    yield cluster
    cluster.close()
