"""Searches: the same table whoever trains it; two protocols, never mixed; two stages."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sqlite3
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import numpy as np
import psutil
import pytest
import scipy.sparse as sp
from tests import commands
from tests.dask_processes import local_workers
from tests.examples import THOROUGH

import hoplite
from hoplite import Graph
from hoplite.errors import ConfigError, HopliteError, SearchError
from hoplite.search import FinishedTrial, Scores, SearchProgress, Trial, full_options, results
from hoplite.search.executors import Processes, Threads
from hoplite.search.results import rank
from hoplite.search.run import file_facts, fingerprint, run_trials
from hoplite.search.trials import FILE, SearchFile

GRID = {
    "lr": [0.2, 0.05],
    "weight_decay": [5e-3, 5e-4],
    "dropout": [0.0, 0.5],
    "hops": [2, 5],
}
FEW = {"grid": {"lr": [0.2, 0.01], "hops": [1, 2]}, "seeds": 2, "epochs": 8}


@pytest.fixture
def graph(graphs) -> Graph:
    return graphs(n=60, d=6, classes=3, seed=5, isolated=7, weighted=True, dtype=np.float32)


def table(result) -> list[dict]:
    """Every trial without its time."""
    return [{k: v for k, v in row.items() if k != "seconds"} for row in result.rows()]


def test_every_trial_once_and_the_best_first(graph, tmp_path):
    states: list[SearchProgress] = []
    options = {"grid": GRID, "seeds": [4, 0, 7], "epochs": 20}
    result = hoplite.search(graph, "lgc", out=tmp_path / "s", progress=states.append, **options)
    rows = result.rows()
    assert len({(*map(row.get, GRID), row["seed"]) for row in rows}) == len(rows) == 48
    assert [row["seed"] for row in rows[:3]] == [4, 0, 7]
    means = [one.val_mean for one in result.ranking]
    assert means == pytest.approx(sorted(means, reverse=True), abs=1e-12)  # ties differ by a bit
    assert states[0].done == 0
    assert (states[-1].done, states[-1].total, states[-1].share) == (48, 48, 1.0)
    assert {len(column) for column in result.table().values()} == {48}
    assert result.summary()["trials"] == 48
    assert "SearchResult" in result._repr_html_()
    for one in result.ranking[:3]:
        alone = hoplite.train(graph, "lgc", seeds=[4, 0, 7], **one.options)
        assert [run.val_accuracy for run in alone.runs] == list(one.val)
    assert table(hoplite.search(graph, "lgc", **options)) == table(result)  # without a file


def test_a_search_gives_a_model(graph, tmp_path, monkeypatch):
    result = hoplite.search(graph, "lgc", out=tmp_path, **FEW)
    expected = hoplite.train(graph, "lgc", seeds=2, **result.best.options)
    saved = hoplite.TrainedModel.load(tmp_path / "model")
    for model in (result.model, saved):
        np.testing.assert_array_equal(model.logits(graph), expected.model.logits(graph))
    assert result.test == tuple(run.test_accuracy for run in expected.runs)
    with monkeypatch.context() as patch:
        patch.setattr(results, "train", None)  # the same search again trains nothing
        again = hoplite.search(graph, "lgc", out=tmp_path, **FEW)
        assert again.summary() == result.summary()
        np.testing.assert_array_equal(again.model.logits(graph), saved.logits(graph))
    fewer = hoplite.search(graph, "lgc", out=tmp_path, **FEW | {"seeds": 1})
    assert len(fewer.test) == 1  # another choice has another model
    assert hoplite.TrainedModel.load(tmp_path / "model").training["search"]["of"]["seeds"] == [0]
    (tmp_path / "model" / "config.json").write_text("{}")
    assert hoplite.search(graph, "lgc", out=tmp_path, **FEW).summary() == result.summary()
    biased = hoplite.search(graph, "lgc", protocol="test", out=tmp_path / "biased", **FEW)
    assert not (tmp_path / "biased" / "model").exists()
    assert biased.model.config.hops == biased.best.options["hops"]


def test_validation_never_reads_the_test_labels(graph):
    labels = np.array(graph.labels)
    labels[graph.split.test] = 0
    other = graph.with_labels(labels).with_split(graph.split)
    first, second = (hoplite.search(one, "lgc", **FEW) for one in (graph, other))
    assert table(first) == table(second)
    assert "test_accuracy" not in first.rows()[0]


def test_the_test_protocol_is_marked_and_adds_to_the_file(graph, tmp_path):
    honest = hoplite.search(graph, "sgc", out=tmp_path, **FEW)
    biased = hoplite.search(graph, "sgc", out=tmp_path, protocol="test", **FEW)
    assert honest.summary()["biased"] is None
    assert "optimistic" in biased.summary()["biased"]
    assert biased.test_accuracy == max(np.mean(one.test) for one in biased.ranking)
    assert all("test_accuracy" in row for row in biased.rows())
    assert table(hoplite.search(graph, "sgc", out=tmp_path, **FEW)) == table(honest)
    with pytest.raises(ConfigError, match="protocol is 'tset'"):
        hoplite.search(graph, "sgc", out=tmp_path, protocol="tset", **FEW)


def trials(*values: tuple[float | None, ...]) -> list[FinishedTrial]:
    """One trial for each (accuracy, loss, test accuracy)."""
    return [
        FinishedTrial(Trial("sgc", {"lr": i}, 0), Scores(val, val, loss, 1, 2, False), test, 0.1)
        for i, (val, loss, test) in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("finished", "seeds", "protocol", "order"),
    [
        ([(0.8, 0.5, None), (0.9, 0.9, None), (0.8, 0.4, None), (0.8, 0.5, None)], 1, "validation",
         [1, 2, 0, 3]),  # equal means: the lower loss, then the grid's order
        ([(0.8, None, None), (0.8, 5.0, None)], 1, "validation", [1, 0]),
        ([(0.1, 0.7, None), (0.2, 0.7, None), (0.3, 0.7, None),
          (0.3, 0.6, None), (0.2, 0.6, None), (0.1, 0.6, None)], 3, "validation", [1, 0]),
        ([(0.9, 0.5, 0.7), (0.8, 0.1, 0.75), (0.85, 0.3, 0.75), (0.85, 0.2, 0.75)], 1, "test",
         [3, 2, 1, 0]),
        ([(None, 0, None), (None, 0, None), (0.9, 0, 0.9), (None, 0, None), (0.2, 0, 0.2),
          (0.1, 0, 0.1), (None, 0, None), (0.95, 0, 0.95)], 2, "test", [2, 3, 1, 0]),
    ],
)  # fmt: skip
def test_rankings(finished, seeds, protocol, order):
    assert [one.position for one in rank(trials(*finished), seeds, protocol)] == order


@pytest.mark.parametrize("protocol", ["validation", "test"])
def test_a_search_goes_on_beyond_trials_that_diverge(graph, tmp_path, protocol):
    """Powers of the Laplacian grow like 2^k: 200 of them are too many for float32."""
    grid = {"operator": "laplacian", "hops": [200, 2], "dropout": [0.0, 0.5]}
    for _ in range(2):  # the file is read again
        result = hoplite.search(
            graph, "sgc", grid=grid, out=tmp_path, protocol=protocol, seeds=2, epochs=5
        )
        assert [one.options["hops"] for one in result.ranking] == [2, 2, 200, 200]
        assert result.summary()["diverged"] == 4
        assert np.isfinite(result.test).all()
        for row in result.rows():
            assert (row["val_accuracy"] is None) == row["diverged"] == (row["hops"] == 200)
    with pytest.raises(HopliteError, match="every trial diverged"):
        hoplite.search(graph, "sgc", grid=grid | {"hops": 200}, seeds=2, epochs=5)


def test_other_data_are_refused_and_other_grids_extend_the_file(graph, tmp_path):
    whole = hoplite.search(graph, "lgc", **FEW)
    smaller = FEW | {"grid": {"lr": [0.2, 0.01], "hops": 2}}
    part = hoplite.search(graph, "lgc", out=tmp_path, **smaller)
    counts: list[SearchProgress] = []
    larger = hoplite.search(graph, "lgc", out=tmp_path, progress=counts.append, **FEW)
    assert (counts[0].done, counts[-1].done) == (4, 8)
    assert table(larger) == table(whole)
    assert larger.best == larger.ranking[0]
    np.testing.assert_array_equal(
        hoplite.TrainedModel.load(tmp_path / "model").logits(graph), whole.model.logits(graph)
    )
    again = hoplite.search(graph, "lgc", out=tmp_path, **smaller)  # ranks its own grid alone
    assert table(again) == table(part)
    other = graph.with_features(np.asarray(graph.features) * 2)
    with pytest.raises(SearchError, match="another data"):
        hoplite.search(other, "lgc", out=tmp_path, **FEW)


def test_the_fingerprint_sees_every_part_but_no_width(graphs):
    graph = graphs(n=20, seed=5)
    first = fingerprint(graph)
    assert fingerprint(graphs(n=20, seed=5)) == first
    changed = np.array(graph.features)
    changed[3, 1] += 1e-9
    others = [graph.with_features(changed, graph.feature_names)]
    others.append(graph.with_features(sp.csr_array(graph.features), graph.feature_names))
    labels = np.array(graph.labels)
    labels[7] = (labels[7] + 1) % 3
    same = {"features": graph.features, "split": graph.split}
    others.append(Graph(graph.adjacency, labels=labels, **same))
    others.append(Graph(graph.adjacency * 2, labels=graph.labels, **same))
    others.append(graph.with_split(hoplite.Split(graph.split.train, graph.split.test)))
    others.append(graph.with_loop_weight(3.0))
    assert len({first, *map(fingerprint, others)}) == 7


def test_two_stages(graph, tmp_path):
    """All configurations with the first seed, then the best with all seeds."""
    grid, seeds = tmp_path / "grid.toml", [4, 0, 7]
    text = "[any]\nlr = [0.001, 0.3]\nweight_decay = [5e-4, 5e-2]\nhops = [1, 3]\nepochs = 12\n"
    grid.write_text(text)
    first = hoplite.search(graph, "lgc", grid=grid, seeds=seeds[:1])
    grid.write_text(text + "screen = 3\n")
    states: list[SearchProgress] = []
    options = {"grid": grid, "seeds": seeds, "protocol": "test"}
    result = hoplite.search(graph, "lgc", out=tmp_path, progress=states.append, **options)
    best = [one.options for one in first.ranking[:3]]
    assert sorted(map(str, best)) == sorted(str(one.options) for one in result.ranking)
    assert len(result.trials) == states[-1].total == states[-1].done == 5 + 3 * 3
    assert result.configurations == 8
    tested = [one.trial.options for one in result.trials if one.test_accuracy is not None]
    assert len(tested) == 9
    assert all(options in best for options in tested)
    assert table(hoplite.search(graph, "lgc", out=tmp_path, **options)) == table(result)
    assert len(hoplite.search(graph, "lgc", grid=grid, seeds=1).ranking) == 8


# Who trains


@pytest.mark.parametrize("cluster", [False, True])
def test_processes_that_are_killed_are_replaced(graph, tmp_path, cluster):
    """The scores are those of threads, to the bit. One trial is held back until a worker died."""
    if cluster:
        pytest.importorskip("distributed")
    options = {"grid": GRID, "seeds": 2, "epochs": 60}
    here = hoplite.search(graph, "lgc", **options)
    me, before = psutil.Process(), {one.pid for one in psutil.Process().children(recursive=True)}
    killed: list[int] = []
    with SearchFile(tmp_path, file_facts(graph)) as file:
        held = file.queue([here.trials[-1].trial])
        number, _ = held.claim()

        def kill(state: SearchProgress) -> None:
            if killed or not state.done:
                return
            if cluster:
                children = local_workers()
            else:
                children = [c for c in me.children() if "spawn_main" in " ".join(c.cmdline())]
            for child in [c for c in children if c.pid not in before][:1]:
                child.kill()
                killed.append(child.pid)
                held.release(number)

        how = {"cluster": "local:2"} if cluster else {"executor": "processes", "workers": 2}
        there = hoplite.search(graph, "lgc", out=tmp_path, progress=kill, **how, **options)
    assert len(killed) == 1
    assert table(there) == table(here)
    assert {path.name for path in tmp_path.iterdir()} == {"search.sqlite", "model"}


def test_workers_that_always_die_are_an_error(graph, tmp_path, monkeypatch):
    def broken(*_):
        raise BrokenProcessPool

    monkeypatch.setattr(Processes, "_run", broken)
    with SearchFile(tmp_path, file_facts(graph)) as file:
        trials = [Trial("lgc", full_options("lgc", {"hops": k, "epochs": 5}), 0) for k in (1, 2)]
        with pytest.raises(SearchError, match="workers died 3 times"):
            run_trials(file, graph, trials, Processes(2))
        assert len(run_trials(file, graph, trials, Threads(2))) == 2


@pytest.mark.parametrize("executor", ["threads", "processes"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_search_that_is_stopped_leaves_no_process_and_loses_nothing(tmp_path, executor, number):
    words = ["search", "cora", "--out", tmp_path, "--epochs", "100000", "--patience", "60"]
    words += ["--workers", "2", "--executor", executor, "--grid", "default"]
    process = commands.start(*words)
    process.wait_until(lambda: finished(tmp_path) >= 3)
    done = finished(tmp_path)
    children = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT) if number == signal.SIGINT else process.kill()
    text, errors = process.communicate()
    assert (process.returncode, text) == (130 if number == signal.SIGINT else -9, "")
    assert "Traceback" not in errors
    assert not psutil.wait_procs(children, timeout=600)[1]
    assert finished(tmp_path) >= done
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as db:
        running = db.execute("SELECT count(*) FROM trials WHERE status = 'running'").fetchone()
    if number == signal.SIGINT:
        assert running == (0,)


def finished(folder: Path) -> int:
    """How many trials a search's file has, if there is one."""
    with contextlib.suppress(sqlite3.Error):
        uri = f"file:{folder / FILE}?mode=rw"  # a killed writer leaves a journal to roll back
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=600)) as db:
            return db.execute("SELECT count(*) FROM trials WHERE status = 'done'").fetchone()[0]
    return 0


SMALL = {
    "grid": "[cora]\nlr = [0.2, 0.05]\nweight_decay = [5e-3, 5e-4]\n"
    "dropout = [0.0, 0.5]\nhops = [2, 5]",
    "words": ["--seeds", "2", "--epochs", "20"],
    "trials": 32,
    "kills": 3,
}
PAPER = {
    "grid": 'extends = "paper"',
    "words": ["--seeds", "5", "--epochs", "30"],
    "trials": 945,
    "kills": 10,
}


def test_killed_again_and_again_while_two_share_the_file(tmp_path):
    """kill -9 at random moments; thorough: the paper's 945 trials of LGC on Cora, ten kills."""
    case, rng = PAPER if THOROUGH else SMALL, random.Random(7)
    (tmp_path / "grid.toml").write_text(case["grid"])
    words = ["search", "cora", "--model", "lgc", "--grid", tmp_path / "grid.toml", "--json"]
    words += ["--protocol", "test", *case["words"], "--workers", "1", "--out"]
    whole = commands.succeed(*words, tmp_path / "whole")
    out = tmp_path / "killed"
    counts = sorted(rng.randrange(case["trials"]) for _ in range(case["kills"]))
    both = [commands.start(*words, out) for _ in range(2)]
    for i, count in enumerate(counts):
        while (done := finished(out)) < count:
            time.sleep(0.005)
        time.sleep(0.02 * rng.random())
        victim = both[i % 2]
        victim.kill()
        victim.wait()
        assert finished(out) >= done  # nothing that was finished is lost
        both[i % 2] = commands.start(*words, out)
    texts = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0], texts
    expected, *found = [_chosen(text) for text in (whole, *(text for text, _ in texts))]
    assert found == [expected, expected]
    tables = [_rows(folder / FILE) for folder in (tmp_path / "whole", out)]
    assert tables[0] == tables[1]
    assert len(tables[0]) == case["trials"]


def _chosen(text: str) -> dict:
    timed = ("out", "minutes", "saved")
    return {k: v for k, v in json.loads(text).items() if k not in timed}


def _rows(path: Path) -> list[tuple]:
    """All that is kept of every trial, without the time."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        rows = db.execute("SELECT model, options, seed, fold, status, scores, test FROM trials")
        return sorted(
            (*row[:5], str(json.loads(row[5])["scores"]), row[6]) for row in rows.fetchall()
        )
