"""``hoplite ...`` in a real process, without the seconds that importing torch takes each time.

A server imports everything once and forks for each command. Folder, environment, streams, exit code
and the end of the interpreter are those of any process; only what libraries read from the
environment while they are imported is the server's.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SERVER = """
import contextlib, gc, io, json, os, signal, sys, time
import rich.markdown, typer.rich_utils
import hoplite, hoplite.bench.suite, hoplite.cli, hoplite.explain, hoplite.predictions
import hoplite.report, hoplite.selection, hoplite.store
from hoplite.__main__ import main

with contextlib.redirect_stdout(io.StringIO()):  # what is imported only when a command runs
    hoplite.cli.app(["datasets", "--json"], standalone_mode=False)
gc.collect()
gc.freeze()  # so that a child's collector does not copy the pages of everything
replies = os.fdopen(os.dup(1), "w")
for line in sys.stdin:
    order = json.loads(line)
    pid = os.fork()
    if pid == 0:
        null = os.open(os.devnull, os.O_RDONLY)
        for handle, stream in ((null, 0), (order["out"], 1), (order["err"], 2)):
            if isinstance(handle, str):
                handle = os.open(handle, os.O_WRONLY)
            os.dup2(handle, stream)
        os.environ.clear()
        os.environ.update(order["env"])
        os.chdir(order["cwd"])
        sys.argv = ["hoplite", *order["words"]]
        exec(order["before"], {})
        main()
        sys.exit(0)
    deadline, ended = time.monotonic() + order["timeout"], 0
    while not ended:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if not ended:
            time.sleep(0.005)
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
    print(os.waitstatus_to_exitcode(status), file=replies, flush=True)
"""


@functools.cache
def _server() -> subprocess.Popen[str]:
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )

    def end() -> None:
        server.communicate()

    atexit.register(end)
    return server


def hoplite(
    *words: Any,
    cwd: Any = None,
    timeout: float = 600,
    env: dict[str, str] | None = None,
    before: str = "",
) -> subprocess.CompletedProcess[str]:
    """Run ``hoplite WORDS``, in its process after ``before``; killed after ``timeout`` seconds."""
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        out.touch()
        err.touch()
        order = {
            "words": [str(word) for word in words],
            "cwd": str(cwd or Path.cwd()),
            "env": dict(os.environ) | (env or {}),
            "out": str(out),
            "err": str(err),
            "timeout": timeout,
            "before": before,
        }
        print(json.dumps(order), file=server.stdin, flush=True)
        code = int(server.stdout.readline())
        texts = [path.read_text(encoding="utf-8") for path in (out, err)]
    return subprocess.CompletedProcess(["hoplite", *order["words"]], code, *texts)
