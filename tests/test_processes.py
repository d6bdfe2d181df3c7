"""Processes that this one starts: threads of their own, whatever the folder for temporary files."""

import multiprocessing
import os
import tempfile

from hoplite import processes
from hoplite.engine import backend


def told(send):
    backend.set_num_threads(2)
    send.send((os.getpid(), processes._method(), backend.get_num_threads()))


def check(method):
    processes.warm_up()
    take, send = multiprocessing.Pipe(duplex=False)
    process = processes.start(told, send)
    assert take.recv() == (process.pid, method, 2)
    process.join()
    assert process.exitcode == 0


def test_a_started_process_may_use_threads():
    check("forkserver")


def test_where_the_folder_for_temporary_files_has_a_long_name(tmp_path, monkeypatch):
    long = tmp_path / ("d" * 90)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    monkeypatch.setenv("TMPDIR", str(long))  # for the process
    check("spawn")
