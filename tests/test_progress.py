"""progress=True: bars where there is a terminal, quiet elsewhere; and what the log tells."""

import contextlib
import io

import numpy as np
import pytest
from tests.plots.conftest import untidy
from tests.training.test_table_defaults import tables

import hoplite
from hoplite import Split, auto, propagate, search, train
from hoplite.explain import flips
from hoplite.predictions import predict_table
from hoplite.progress import search_bar, steps_bar, watched
from hoplite.search.run import SearchProgress


@pytest.fixture(scope="module")
def graph():
    return untidy()


class Terminal(io.StringIO):
    """What a terminal was sent."""

    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    return Terminal()


def test_training_searching_choosing_and_storing_have_bars(graph, terminal, tmp_path, capsys):
    (tmp_path / "mine.toml").write_text("[any]\nlr = [0.01, 0.1]\n")
    options = {"grid": tmp_path / "mine.toml", "seeds": 1, "epochs": 3, "hops": 1}
    with contextlib.redirect_stderr(terminal):  # pytest sets standard error after its fixtures
        result = train(graph, "sgc", hops=1, epochs=5, progress=True)
        assert "sgc, 1 seed" in terminal.getvalue()
        assert "epoch 5" in terminal.getvalue()
        search(graph, "sgc", out=tmp_path / "found", progress=True, **options)
        assert "2 of 2 runs done" in terminal.getvalue()
        auto(graph, trials=2, seeds=1, progress=True)
        assert "blocks: " in terminal.getvalue()
        store = propagate(graph, tmp_path / "store", hops=1, progress=True)
        assert "hop 1" in terminal.getvalue()
        predict_table(result.model, store, progress=True)
        assert "predict" in terminal.getvalue()
        flips(result.model, graph, graph.node_ids[3], progress=True)
    assert "\u202e" not in terminal.getvalue()
    assert capsys.readouterr().out == ""


def test_a_line_a_minute_without_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr("hoplite.progress.LINE_SECONDS", -1.0)
    with search_bar("cora") as report:
        report(SearchProgress(60, 240))
    with steps_bar("work") as report:
        report("half\x1b", 0.5)
    assert capsys.readouterr().err.splitlines() == [
        "cora, 60 of 240 runs done (25%)",
        "work: half\\x1b (50%)",
    ]


@pytest.mark.filterwarnings("ignore:.*so no threshold was chosen:hoplite.HopliteWarning")
def test_judging_and_folds_and_refits_are_parts_of_one_work(graph):
    """Shares never fall, and end with 1, for tables whose candidates are judged first."""
    frames = tables(n=200)
    numbers = hoplite.io.from_frames(*frames)
    parts = Split(np.arange(0, 100), np.arange(100, 150), np.arange(150, 200))
    for data, options in (
        (numbers, {}),
        (numbers, {"model": "blocks", "hops": 1}),
        (numbers.with_split(parts), {"refit": True}),
        (graph, {}),
    ):
        states = []
        train(data, **options, progress=states.append)
        shares = [state.done / state.total for state in states]
        assert shares == sorted(shares)
        assert shares[0] < 0.5
        assert shares[-1] <= 1


def test_an_error_ends_the_bar(graph, terminal):
    def work():
        with watched(True, steps_bar, "work") as report:
            report("half", 0.5)
            raise RuntimeError

    with contextlib.redirect_stderr(terminal):
        with pytest.raises(RuntimeError):
            work()
        train(graph, "sgc", hops=1, epochs=1, progress=True)
    assert "half" in terminal.getvalue()
    assert terminal.getvalue().count("\x1b[?25h") == 2  # the cursor is shown again after each
