"""Too little memory, wherever it shows: one sentence, exit code 1."""

import resource
import subprocess
import sys

import pytest

from hoplite import cli


@pytest.fixture(autouse=True)
def own_signals(monkeypatch):
    monkeypatch.setattr("signal.signal", lambda number, handler: None)


WAYS = [
    MemoryError(),
    RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
    RuntimeError("std::bad_alloc"),
    OSError(12, "Cannot allocate memory"),
    ImportError("libtorch_cpu.so: failed to map segment from shared object"),
    RuntimeError("can't start new thread"),
]


@pytest.mark.parametrize("error", WAYS, ids=str)
def test_every_shortage_is_one_sentence(monkeypatch, capsys, error):
    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 1
    assert capsys.readouterr().err == (
        "error: there is not enough memory for this graph and these settings.\n"
    )


def test_other_errors_are_not_hidden(monkeypatch):
    def fail(*args, **kwargs):
        raise AttributeError("a mistake in the code")

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(AttributeError):
        cli.main()


def test_little_address_space():
    """Too little for the libraries that are imported first."""
    process = subprocess.run(
        [sys.executable, "-m", "hoplite", "train", "cora", "--epochs", "1"],
        capture_output=True,
        text=True,
        env={"PATH": "", "PYTHONPATH": ":".join(sys.path), "OPENBLAS_NUM_THREADS": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (200 << 20,) * 2),
    )
    assert process.returncode == 1, process.stderr
    assert process.stderr.startswith("error: there is not enough memory "), process.stderr
    assert process.stderr.count("\n") == 1
