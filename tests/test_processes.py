"""Processes that this one starts: threads of their own, whatever the folder for temporary files."""

import multiprocessing
import subprocess
import sys

from hoplite.processes import start, warm_up

CODE = """
import os
from hoplite import processes
from hoplite.propagation import backend

def told(send):
    backend.set_num_threads(2)
    send.send((processes._method(), backend.get_num_threads()))

if __name__ == "__main__":
    import multiprocessing
    processes.warm_up()
    take, send = multiprocessing.Pipe(duplex=False)
    process = processes.start(told, send)
    print(*take.recv())
    process.join()
"""


def test_a_started_process_may_use_threads(tmp_path):
    for folder, method in ((tmp_path / "short", "forkserver"), (tmp_path / ("d" * 90), "spawn")):
        folder.mkdir()
        (folder / "code.py").write_text(CODE)
        done = subprocess.run(
            [sys.executable, str(folder / "code.py")],
            env={"PATH": "", "TMPDIR": "/tmp" if method == "forkserver" else str(folder)},
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.stdout.split() == [method, "2"], done.stderr


def test_a_started_process_is_another_one():
    warm_up()
    take, send = multiprocessing.Pipe(duplex=False)
    process = start(send.send, "here")
    assert take.recv() == "here"
    process.join()
    assert process.exitcode == 0
