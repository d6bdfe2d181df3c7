"""``hoplite ...`` and other Python in real processes, without the seconds of imports.

A server imports everything once and forks for each process. Folder, environment, streams, session
and exit code are those of any process; only what libraries read from the environment while they are
imported is the server's, and the interpreter ends after its exit functions without tidying up.
"""

from __future__ import annotations

import atexit
import functools
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

SERVER = """
import atexit, contextlib, gc, io, json, os, signal, sys, threading, traceback
import distributed.cli.dask_scheduler, distributed.cli.dask_worker
import rich.markdown, typer.rich_utils
import hoplite, hoplite.cli, hoplite.explain, hoplite.predictions, benchmarks.suite
import hoplite.search, hoplite.store.cluster, hoplite.serve.app
from hoplite.engine import backend
import torch  # which networks need

# what a busy machine alone would cause: lines about progress, and workers that are given up
hoplite.progress.ESTIMATE_SECONDS = hoplite.progress.LINE_SECONDS = float("inf")
hoplite.store.cluster.PATIENCE = 600.0
with contextlib.redirect_stdout(io.StringIO()):  # what is imported only when a command runs
    hoplite.cli.app(["datasets", "--json"], standalone_mode=False)
assert threading.active_count() == 1
gc.collect()
gc.freeze()  # so that a child's collector does not copy the pages of everything
living = set()


def run(order, handles):
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run unattended
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    for stream, handle in enumerate(handles):
        os.dup2(handle, stream)
    os.environ.clear()
    os.environ.update(order["env"])
    os.chdir(order["cwd"])
    sys.argv = order["argv"]
    backend._default_threads.cache_clear()  # they are those of its own environment
    code = 1
    try:
        exec(order["code"], {"__name__": "__main__"})
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        threading._shutdown()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


with os.fdopen(os.dup(0)) as orders, os.fdopen(os.dup(1), "w") as replies:
    for line in orders:
        order = json.loads(line)
        if "pid" in order:
            ended, status = os.waitpid(order["pid"], os.WNOHANG)
            reply = os.waitstatus_to_exitcode(status) if ended else None
            living -= {ended}
        else:
            ways = (os.O_RDONLY, os.O_WRONLY | os.O_APPEND, os.O_WRONLY | os.O_APPEND)
            handles = [os.open(path, way) for path, way in zip(order["streams"], ways)]
            reply = os.fork() or run(order, handles)
            living.add(reply)
            for handle in handles:
                os.close(handle)
        print(json.dumps(reply), file=replies, flush=True)
for pid in living:
    os.kill(pid, signal.SIGKILL)
"""
COMMAND = "from hoplite.__main__ import main; main()"


class Server:
    """The process that forks; one for all tests of a process."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent.parent,  # where benchmarks/ is
            env=os.environ | {"OMP_NUM_THREADS": "1"},  # else it has threads when it forks
        )
        atexit.register(self._process.communicate)

    def ask(self, **order: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(order), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())


server = functools.cache(Server)
numbers = itertools.count()


@functools.cache
def folder() -> str:
    """Where processes write what they print."""
    made = tempfile.TemporaryDirectory()
    atexit.register(made.cleanup)
    return made.name


class Process:
    """A process in a session of its own, with the methods of ``subprocess.Popen`` that tests use.

    What it prints goes to two files, which :meth:`communicate` reads, or both to ``log``; with
    ``talk``, ``stdin`` and ``stdout`` are pipes.
    """

    stdin: IO[str]
    stdout: IO[str]

    def __init__(
        self,
        code: str,
        *words: Any,
        cwd: Any = None,
        env: dict[str, str] | None = None,
        log: Path | None = None,
        talk: bool = False,
    ) -> None:
        self._texts = [log or Path(folder(), f"{next(numbers)}-{name}") for name in ("out", "err")]
        for path in self._texts:
            path.touch()
        streams = [os.devnull, *self._texts]
        if talk:
            pipes = os.pipe(), os.pipe()
            streams[:2] = [f"/proc/{os.getpid()}/fd/{end}" for end in (pipes[0][0], pipes[1][1])]
        self.returncode: int | None = None
        self.args = ["hoplite", *(str(word) for word in words)]
        self.pid = server().ask(
            code=code,
            argv=self.args,
            cwd=str(cwd or Path.cwd()),
            env=dict(os.environ) | (env or {}),
            streams=[str(stream) for stream in streams],
        )
        if talk:
            self.stdin, self.stdout = os.fdopen(pipes[0][1], "w"), os.fdopen(pipes[1][0])
            os.close(pipes[0][0])
            os.close(pipes[1][1])

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = server().ask(pid=self.pid)
        return self.returncode

    def wait(self, timeout: float = 600) -> int:
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                self.kill()
                raise subprocess.TimeoutExpired(self.args, timeout)
            time.sleep(0.005)
        return code

    def wait_until(self, look: Callable[[], Any]) -> Any:
        """What ``look`` finds while the process runs, when it finds something."""
        deadline = time.monotonic() + 600
        while not (found := look()):
            assert self.poll() is None, [path.read_text("utf-8") for path in self._texts]
            assert time.monotonic() < deadline
            time.sleep(0.005)
        return found

    def communicate(self, timeout: float = 600) -> tuple[str, str]:
        """What it wrote, when it has ended."""
        self.wait(timeout)
        out, err = (path.read_text(encoding="utf-8") for path in self._texts)
        return out, err

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """The pipes of one that talks."""
        self.stdin.close()
        self.stdout.close()


def run(code: str, *words: Any, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process of its own until it ends."""
    process = Process(code, *words, **options)
    texts = process.communicate()
    assert process.returncode is not None
    return subprocess.CompletedProcess(process.args, process.returncode, *texts)


def run_module(command: list[str]) -> subprocess.CompletedProcess[str]:
    """What ``subprocess.run`` gives for ``python -m MODULE WORDS``."""
    _, _, module, *words = command
    return run(f"import runpy; runpy.run_module({module!r}, run_name='__main__')", *words)


def start(*words: Any, before: str = "", **options: Any) -> Process:
    """Start ``hoplite WORDS``, in its process after ``before``."""
    return Process(f"{before}\n{COMMAND}", *words, **options)


def hoplite(*words: Any, before: str = "", **options: Any) -> subprocess.CompletedProcess[str]:
    """Run ``hoplite WORDS`` until it ends, in its process after ``before``."""
    return run(f"{before}\n{COMMAND}", *words, **options)


def succeed(*words: Any, **options: Any) -> str:
    """What ``hoplite WORDS`` prints."""
    done = hoplite(*words, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def fail(code: int, *words: Any, **options: Any) -> str:
    """The one sentence with which ``hoplite WORDS`` ends; nothing else but warnings is printed."""
    done = hoplite(*words, **options)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    (error,) = [line for line in done.stderr.splitlines() if not line.startswith("warning:")]
    assert error.startswith("error: ")
    return error
