"""Searches: the same table whatever happens to the processes; two protocols, never mixed."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests import commands
from tests.dask_processes import local_workers

import hoplite
from hoplite.errors import ConfigError, GraphError, HopliteError, LedgerError
from hoplite.selection import SearchProgress, choose, rank, run_search, runs_table, search
from hoplite.selection.cells import graph_digest
from hoplite.selection.ledger import Ledger, RecordedRun, Settings

GRID = """
[any]
lr = [0.2, 0.05]
weight_decay = [5e-3, 5e-4]
dropout = [0.0, 0.5]
hops = [2, 5]
hidden = [4]
"""
OPTIONS = ["--seeds", "2", "--epochs", "30", "--patience", "10"]


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    path = tmp_path / "grid.toml"
    path.write_text(GRID)
    return path


def small(graphs, **changes):
    return graphs(n=40, d=6, classes=3, seed=3, dtype=np.float32, **changes)


def test_every_run_once_and_the_best_first(graphs, grid, tmp_path) -> None:
    graph = small(graphs)
    states: list[SearchProgress] = []
    result = search(
        graph, "lgc", grid=grid, out=tmp_path / "s", seeds=3, epochs=20, progress=states.append
    )
    runs = result.ledger.runs()
    assert sorted((run.configuration, run.seed) for run in runs) == [
        (c, s) for c in range(16) for s in range(3)
    ]
    means = [candidate.val_mean for candidate in result.ranking]
    assert means == pytest.approx(
        sorted(means, reverse=True), abs=1e-12
    )  # ties may differ by a bit
    assert len(means) == 16
    assert states[-1].share == 1
    assert states[-1].done == states[-1].total == 48


def test_share_and_count_agree_at_every_look(graphs, grid, tmp_path, monkeypatch) -> None:
    """Though a cell is recorded at once, and cells with dropout take longer and come first."""
    monkeypatch.setattr("hoplite.selection.cells.LOOK_SECONDS", 0.0)
    states: list[SearchProgress] = []
    grid.write_text("[any]\nlr = [0.01, 0.1]\nhops = [1, 9]\ndropout = [0.0, 0.5]\n")
    search(
        small(graphs), "lgc", grid=grid, out=tmp_path / "s", seeds=3, epochs=20,
        progress=states.append,
    )  # fmt: skip
    assert {state.total for state in states} == {24}
    for state in states:
        assert state.done <= 24 * state.share < state.done + 1
        assert (state.share == 1) == (state.done == 24)
    counts = [state.done for state in states]
    assert counts == sorted(counts)
    assert {*counts} > {0, 6, 12, 18, 24}  # and some within a cell of six runs that train together


def test_a_cell_trains_as_train_does(graphs, grid, tmp_path) -> None:
    graph = small(graphs)
    result = search(graph, "lgc", grid=grid, out=tmp_path / "s", seeds=2, epochs=20)
    for candidate in result.ranking[:4]:
        alone = hoplite.train(graph, "lgc", seeds=2, **candidate.options)
        assert [run.val_accuracy for run in alone.runs] == pytest.approx(candidate.val)


def test_a_search_gives_a_model(graphs, grid, tmp_path) -> None:
    graph, out = small(graphs), tmp_path / "s"
    result = search(graph, "lgc", grid=grid, out=out, seeds=2, epochs=20)
    trained = hoplite.train(graph, "lgc", seeds=2, **result.best.options)
    wanted = trained.model.logits(graph)
    np.testing.assert_array_equal(result.model.logits(graph), wanted)
    saved = hoplite.TrainedModel.load(out / "model")
    np.testing.assert_array_equal(saved.logits(graph), wanted)
    shutil.rmtree(out / "model")  # as earlier versions left it
    again = search(graph, "lgc", grid=grid, out=out, seeds=2, epochs=20)
    np.testing.assert_array_equal(again.model.logits(graph), wanted)
    shutil.rmtree(out / "model")
    (out / "model").mkdir()  # all that a save killed at once leaves
    search(graph, "lgc", grid=grid, out=out, seeds=2, epochs=20)
    saved = hoplite.TrainedModel.load(out / "model")
    np.testing.assert_array_equal(saved.logits(graph), wanted)
    biased = search(graph, "lgc", grid=grid, out=out, seeds=2, epochs=20, protocol="test")
    assert biased.save_model() is None
    assert biased.model.config.hops == biased.best.options["hops"]


def test_validation_never_reads_the_test_set(graphs, tmp_path) -> None:
    """The ledger is the same whatever the test labels are, and holds no word of them."""
    graph = small(graphs)
    labels = np.array(graph.labels)
    labels[graph.split.test] = 0
    runs = []
    for name, one in (("a", graph), ("b", graph.with_labels(labels).with_split(graph.split))):
        ledger = run_search(
            one, "lgc", [{"hops": 2, "lr": lr, "epochs": 10} for lr in (0.1, 0.2)],
            tmp_path / name, seeds=2,
        )  # fmt: skip
        runs.append([replace(run, seconds=0) for run in ledger.runs()])
        assert not list((tmp_path / name / "cells").glob("*.test.json"))
    assert runs[0] == runs[1]


def test_the_two_protocols_choose_by_their_own_figures(tmp_path) -> None:
    configurations = [{"lr": lr} for lr in (0.1, 0.2, 0.3)]
    settings = Settings(1, "0", "x", "0", "lgc", [0], configurations, [[0], [1], [2]])
    ledger = Ledger.open(tmp_path / "s", settings)
    figures = [(0.8, 0.5, 0.1), (0.7, 0.9, 0.1), (0.8, 0.4, 0.05)]  # validation, test, loss
    for cell, (val, test, loss) in enumerate(figures):
        ledger.record(cell, [RecordedRun(cell, 0, val, loss)], 1.0, [test])
    by_validation = rank(ledger, "validation")
    assert [one.position for one in by_validation] == [2, 0, 1]  # equal means: the lower loss
    assert all(one.test == () for one in by_validation)
    assert [one.position for one in rank(ledger, "test")] == [1, 0, 2]
    with pytest.raises(ConfigError, match="protocol is 'tset'"):
        rank(ledger, "tset")


@pytest.mark.parametrize("protocol", ["validation", "test"])
def test_a_search_goes_on_beyond_runs_that_diverge(graphs, tmp_path, protocol) -> None:
    """Powers of the Laplacian grow like 2^k: 200 of them are too many for float32."""
    graph, grid = small(graphs, isolated=4), tmp_path / "grid.toml"
    grid.write_text('[any]\noperator = "laplacian"\nhops = [200, 2]\ndropout = [0.0, 0.5]\n')
    options = {"grid": grid, "out": tmp_path / "s", "protocol": protocol}
    for _ in range(2):  # the ledger is read again
        result = search(graph, "sgc", seeds=2, epochs=5, **options)
        assert [candidate.options["hops"] for candidate in result.ranking] == [2, 2, 200, 200]
        assert result.summary().diverged == 4
        assert np.isfinite(result.test).all()
        rows = result.table().to_pylist()
        assert [row["val_accuracy"] is None for row in rows] == [row["hops"] == 200 for row in rows]
        assert all(row["diverged"] == (row["hops"] == 200) for row in rows)
    hopeless = tmp_path / "hopeless.toml"
    hopeless.write_text('[any]\noperator = "laplacian"\nhops = [200]\n')
    with pytest.raises(HopliteError, match=r"every run of the search in .* diverged"):
        search(
            graph, "sgc", seeds=2, epochs=5, **options | {"grid": hopeless, "out": tmp_path / "h"}
        )


def test_a_configuration_is_not_better_because_a_run_of_it_diverged(tmp_path) -> None:
    configurations = [{"lr": lr} for lr in range(4)]
    settings = Settings(1, "0", "x", "0", "lgc", [0, 1], configurations, [[0], [1], [2], [3]])
    ledger = Ledger.open(tmp_path / "s", settings)
    figures = [(None, None), (0.9, None), (0.2, 0.1), (None, 0.95)]
    for cell, values in enumerate(figures):
        runs = [RecordedRun(cell, seed, value) for seed, value in enumerate(values)]
        ledger.record(cell, runs, 1.0, list(values))
    for protocol in ("validation", "test"):
        assert [one.position for one in rank(ledger, protocol)] == [2, 3, 1, 0]


def test_an_edited_result_is_not_believed(graphs, grid, tmp_path) -> None:
    options = {"grid": grid, "out": tmp_path / "s", "seeds": 2, "epochs": 5}
    first = search(small(graphs), "sgc", **options).summary()
    path = tmp_path / "s" / "validation.json"
    edited = json.loads(path.read_text()) | {"test": [1.0, 1.0]}
    path.write_text(json.dumps(edited))
    assert search(small(graphs), "sgc", **options).summary() == first
    assert json.loads(path.read_text())["test"] == first.test


def test_test_protocol_is_marked_and_reuses_nothing_hidden(graphs, grid, tmp_path) -> None:
    graph, out = small(graphs), tmp_path / "s"
    honest = search(graph, "sgc", grid=grid, out=out, seeds=2, epochs=10)
    biased = search(graph, "sgc", grid=grid, out=out, seeds=2, epochs=10, protocol="test")
    assert honest.summary().biased is None
    assert "upper bound" in biased.summary().biased
    assert biased.test_accuracy >= max(
        float(np.mean(one.test)) for one in biased.ranking
    )  # it is the maximum
    again = search(graph, "sgc", grid=grid, out=out, seeds=2, epochs=10)
    assert replace(again.summary(), cpu_minutes=honest.summary().cpu_minutes) == honest.summary()
    assert "test_accuracy" not in runs_table(again.ledger).column_names
    assert "test_accuracy" in biased.table().column_names


def test_other_settings_and_graphs_are_refused(graphs, grid, tmp_path) -> None:
    graph, out = small(graphs), tmp_path / "s"
    search(graph, "lgc", grid=grid, out=out, seeds=1, epochs=5)
    with pytest.raises(LedgerError, match="epochs is 5 there and 6 here"):
        search(graph, "lgc", grid=grid, out=out, seeds=1, epochs=6)
    other = graph.with_features(np.asarray(graph.features) * 2)
    assert graph_digest(other) != graph_digest(graph)
    with pytest.raises(LedgerError, match="graph is"):
        search(other, "lgc", grid=grid, out=out, seeds=1, epochs=5)


def test_a_larger_grid_trains_what_is_new_and_chooses_again(graphs, tmp_path) -> None:
    graph, out, grid = small(graphs), tmp_path / "s", tmp_path / "grid.toml"
    grid.write_text("[any]\nlr = [0.2, 0.01]\nhops = [1, 2]\nclass_weight = ['none', 'balanced']")
    options = {"grid": grid, "seeds": 2, "epochs": 8}
    anew = search(graph, "lgc", **options, out=tmp_path / "anew")
    some = [one.options for one in anew.ranking[2:] if one.options["class_weight"] == "none"]
    some = [{k: v for k, v in one.items() if k != "class_weight"} for one in some]  # as it is there
    first = choose(graph, run_search(graph, "lgc", some, out, seeds=2), "validation")
    first.save_model()
    there = [(path, path.read_bytes()) for path in (out / "cells").glob("*.json")]
    assert there
    larger = search(graph, "lgc", **options, out=out)
    assert all(path.read_bytes() == content for path, content in there)
    usual = {"class_weight": "none"}
    assert [usual | one.options for one in larger.ranking] == [one.options for one in anew.ranking]
    assert larger.best.options != first.best.options
    np.testing.assert_array_equal(larger.model.logits(graph), anew.model.logits(graph))
    saved = hoplite.TrainedModel.load(out / "model")
    np.testing.assert_array_equal(saved.logits(graph), anew.model.logits(graph))
    assert search(graph, "lgc", **options, out=out).test == larger.test


def test_an_unfinished_search_has_no_ranking(graphs, grid, tmp_path) -> None:
    graph, out = small(graphs), tmp_path / "s"
    result = search(graph, "lgc", grid=grid, out=out, seeds=1, epochs=5)
    next(iter((out / "cells").glob("*.json"))).unlink()
    with pytest.raises(LedgerError, match="not finished"):
        choose(graph, result.ledger, "validation")


def test_a_graph_without_validation_nodes_is_told(graphs, grid, tmp_path) -> None:
    graph = small(graphs)
    split = hoplite.Split(graph.split.train, [], graph.split.test)
    with pytest.raises(GraphError, match="no val nodes"):
        search(graph.with_split(split), "lgc", grid=grid, out=tmp_path / "s")


def command(out: Path, grid: Path, *more: str) -> list[str]:
    words = ["search", "cora", "--model", "lgc", "--json"]
    return [*words, "--grid", str(grid), "--out", str(out), *OPTIONS, *more]


def table(out: Path) -> list[dict]:
    """Every recorded run without its time."""
    rows = runs_table(Ledger.read(out), "test").to_pylist()
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]


def chosen(text: str) -> dict:
    return {k: v for k, v in json.loads(text).items() if k not in ("out", "cpu_minutes", "export")}


def test_killed_three_times_ends_with_the_same_table(grid: Path, tmp_path: Path) -> None:
    """kill -9 of the search at different moments, its workers left to notice by themselves."""
    words = command(tmp_path / "whole", grid, "--protocol", "test", "--workers", "1")
    whole = commands.hoplite(*words)
    out = tmp_path / "killed"
    finished: list[int] = []
    for enough in (0, 1, 2):  # cells at the kill; the workers may finish some more
        process = commands.start(*command(out, grid, "--protocol", "test"))
        while not (out / "cells").exists() or len(list(out.glob("cells/*.json"))) < enough:
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
        process.wait()
        recorded = list(out.glob("cells/*.json"))
        finished.append(len(recorded))
    assert finished == sorted(finished)  # nothing that was finished is lost
    export = tmp_path / "runs.parquet"
    last = commands.hoplite(*command(out, grid, "--protocol", "test", "--export", str(export)))
    assert chosen(last.stdout) == chosen(whole.stdout)
    assert table(out) == table(tmp_path / "whole")
    assert len(pq.read_table(export)) == 16 * 2


def test_two_processes_share_a_ledger(grid: Path, tmp_path: Path) -> None:
    out = tmp_path / "shared"
    both = [commands.start(*command(out, grid, "--workers", "1")) for _ in range(2)]
    texts = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert chosen(texts[0]) == chosen(texts[1])
    runs = Ledger.read(out).runs()
    assert len({(run.configuration, run.seed) for run in runs}) == len(runs) == 32


def test_a_dask_cluster_gives_the_same_table(graphs, grid, tmp_path) -> None:
    """With a worker that is killed again and again; the choice is the same, too."""
    pytest.importorskip("distributed")
    graph, found, killed = small(graphs), [], []

    def kill_one(state: SearchProgress) -> None:
        if len(killed) < 3 and state.running:
            killed.extend(worker.kill() for worker in local_workers()[:1])

    for name, options in (("here", {}), ("there", {"cluster": "local:2", "progress": kill_one})):
        result = search(graph, "lgc", grid=grid, out=tmp_path / name, seeds=2, epochs=60, **options)
        summary = replace(result.summary(), cpu_minutes=0)
        runs = [replace(run, seconds=0) for run in result.ledger.runs()]
        found.append((summary, runs))
    assert killed
    assert found[0] == found[1]


def test_mini_batches_are_searched(graphs, tmp_path):
    (tmp_path / "g.toml").write_text("[any]\nhops = [0, 1]\nlr = [0.1, 0.01]\n")
    found = hoplite.search(
        graphs(n=40, d=3), "lgc", grid=tmp_path / "g.toml", out=tmp_path / "s",
        seeds=1, batch=5, dropout=0.0, epochs=2,
    )  # fmt: skip
    assert len(found.ranking) == 4
    assert {one.options["batch"] for one in found.ranking} == {5}
