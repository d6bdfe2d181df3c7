"""Too little memory, wherever it shows: one sentence, exit code 1."""

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
