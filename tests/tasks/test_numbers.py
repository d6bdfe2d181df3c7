"""Numbers as labels, from tables and graphs to predictions, on scattered nodes with gaps."""

import json
import re

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet
from sklearn import metrics
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import Ridge
from tests.commands import hoplite

from hoplite import (
    ConfigError,
    DatasetError,
    Graph,
    GraphError,
    HopliteWarning,
    LGCRegressor,
    Split,
    TrainedModel,
    load,
    open_data,
    train,
)
from hoplite.datasets import write_disk_graph, write_npz
from hoplite.engine.propagation import Propagation
from hoplite.explain import explain
from hoplite.labels import kind_of, relabelled
from hoplite.selection import search
from hoplite.store import propagate
from hoplite.tasks import task_of
from hoplite.theory import generalization

OPTIONS = {"hops": 2, "bias": True, "dropout": 0, "epochs": 120, "lr": 0.1, "weight_decay": 1e-4}


@pytest.fixture(scope="module")
def priced():
    """Weights over magnitudes, isolated nodes, a fifth without a price, parts in no order."""
    rng = np.random.default_rng(8)
    n = 120
    edges = np.argwhere(np.triu(rng.random((n, n)) < 0.05, 1))
    edges = edges[~np.isin(edges, [3, 77]).any(axis=1)]
    bare = Graph.from_edges(
        edges,
        rng.standard_normal((n, 3)),
        weights=10 ** rng.uniform(-2, 2, len(edges)),
        node_ids=[f"n {i * 7 % n}" for i in range(n)],
    )
    hops = Propagation(bare, hops=2).hop_features()[-1]
    prices = 5000 + 300 * (hops @ [2.0, -1.0, 0.5]) + 20 * rng.standard_normal(n)
    order = rng.permutation(n)
    prices[order[95:]] = np.nan
    split = Split(order[:50], order[50:72], order[72:95])
    return bare.with_labels(prices).with_split(split)


def test_figures_and_baseline_are_those_of_scikit_learn(priced):
    result = train(priced, "sgc", **OPTIONS, seeds=2)
    assert result.task.name == "regression"
    split, labels = priced.split, priced.labels
    for part in ("val", "test"):
        nodes = getattr(split, part)
        run = result.best_run
        predicted = run.model.predict(priced)[nodes]
        mean = DummyRegressor().fit(np.zeros((50, 1)), labels[split.train]).predict(nodes[:, None])
        for values, found in (
            (predicted, run.metrics(part)),
            (mean, result.baseline(part)),
        ):
            assert found["r2"] == pytest.approx(metrics.r2_score(labels[nodes], values))
            assert found["mae"] == pytest.approx(metrics.mean_absolute_error(labels[nodes], values))
            squares = metrics.mean_squared_error(labels[nodes], values)
            assert found["rmse"] == pytest.approx(squares**0.5)
        assert result.metrics(part)["r2"].mean > 0.9
    summary = result.summary()
    assert summary["task"] == "regression"
    assert summary["test_r2_mean"] == pytest.approx(result.metrics()["r2"].mean)
    assert "r2: validation 0.9" in repr(result)
    assert "task=regression" in repr(priced)
    nodes = split.train
    fitted = LGCRegressor(priced, **OPTIONS).fit(
        nodes, labels[nodes], validation=(split.val, labels[split.val])
    )
    same = train(priced, "lgc", **OPTIONS).model
    np.testing.assert_allclose(fitted.predict(split.test), same.predict(priced)[split.test])


def test_the_squared_loss_is_ridge_regression(priced):
    decay, n = 0.3, len(priced.split.train)
    options = OPTIONS | {"optimizer": "lbfgs", "lr": 1, "weight_decay": decay, "bias": False}
    alone = priced.with_split(Split(priced.split.train))
    found = train(alone, "sgc", **options).model.predict(priced)
    hops = Propagation(priced, hops=2).hop_features()[-1]
    y = priced.labels[priced.split.train]
    ridge = Ridge(alpha=decay * n / 2, fit_intercept=False)  # mean (z - t)^2 + decay / 2 |theta|^2
    ridge.fit(hops[priced.split.train], (y - y.mean()) / y.std())
    np.testing.assert_allclose(found, y.mean() + y.std() * ridge.predict(hops), rtol=1e-5)


def test_hubers_loss_is_less_moved_by_wild_values(priced):
    wild = np.array(priced.labels)
    wild[priced.split.train[:5]] += 1e6
    graph = priced.with_labels(wild).with_split(Split(priced.split.train))
    test = priced.split.test
    errors = []
    for loss in ("squared", "huber"):
        predicted = train(graph, "sgc", **OPTIONS, loss=loss).model.predict(graph)[test]
        errors.append(np.abs(predicted - np.median(wild[priced.split.train])).mean())
    assert errors[1] < errors[0] / 2
    with pytest.raises(ConfigError, match="loss is 'huber', but multiclass has one loss only"):
        train("cora", "sgc", loss="huber", epochs=1)


def test_a_model_that_knows_less_than_the_mean_is_told(priced):
    misled = np.array(priced.features[:, 0], float)
    misled[priced.split.test] *= -1
    graph = priced.with_labels(misled).with_split(priced.split)
    with pytest.warns(HopliteWarning, match="no better than always predicting the mean: R2 -"):
        train(graph, "sgc", **OPTIONS | {"hops": 0})


@pytest.fixture(scope="module")
def tables(priced, tmp_path_factory):
    """The same prices in a table: another name, text ids, gaps written in several ways."""
    folder = tmp_path_factory.mktemp("prices") / "houses"
    folder.mkdir()
    prices = [None if np.isnan(v) else round(float(v), 2) for v in priced.labels]
    parts = np.full(120, "", dtype=object)
    for part in ("train", "val", "test"):
        parts[getattr(priced.split, part)] = part
    gaps = iter(["", "NA", " ", "null"] * 30)
    text = [next(gaps) if one is None else str(one) for one in prices]
    nodes = {"id": priced.node_ids, "price": text, "split": parts.tolist()}
    nodes |= {f"x{j}": np.asarray(priced.features)[:, j] for j in range(3)}
    csv.write_csv(pa.table(nodes), folder / "nodes.csv")
    pairs = priced.adjacency.tocoo()
    ends = {
        name: [priced.node_ids[i] for i in of]
        for name, of in (("source", pairs.row), ("target", pairs.col))
    }
    parquet.write_table(pa.table(ends | {"weight": pairs.data}), folder / "edges.parquet")
    return folder, prices


def test_tables_to_predictions(tables, tmp_path):
    folder, prices = tables
    with pytest.raises(
        DatasetError, match=r"97 different .* labelled nodes; the task is regression if"
    ):
        load(folder, label="price")
    words = ["train", folder, "--label", "price", "--seeds", 2, "--bias", "--task", "regression"]
    words += ["--model", "lgc"]
    words += [f"--{k.replace('_', '-')}={v}" for k, v in OPTIONS.items() if k != "bias"]
    done = hoplite(*words, "--loss", "huber", "--out", tmp_path / "m", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["task"] == "regression"
    assert told["config"]["loss"] == "huber"
    assert told["metrics"]["test"]["r2"]["mean"] > 0.9 > 0.2 > told["baseline"]["test"]["r2"]
    assert set(told["runs"][0]["metrics"]["test"]) == {"r2", "mae", "rmse"}
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    assert config["format"] == 2  # which earlier versions refuse, as they know classes alone
    model = TrainedModel.load(tmp_path / "m")
    graph = load(folder, prepare=model)  # no label= or task=: the model knows them
    np.testing.assert_array_equal(graph.labels, np.array(prices, float))
    done = hoplite("predict", tmp_path / "m", folder, "--out", tmp_path / "p.parquet", "--json")
    assert done.returncode == 0, done.stderr
    written = parquet.read_table(tmp_path / "p.parquet")
    np.testing.assert_allclose(written["predicted"].to_numpy(), model.predict(graph))
    assert json.loads(done.stdout)["predicted"]["largest"] == written["predicted"].to_numpy().max()
    shown = hoplite(*words).stdout
    for text in ("val R2", "MAE", "RMSE", "regression", "from the split column"):
        assert text in shown


def test_stores_and_files_keep_numbers(tables, tmp_path):
    folder, _ = tables
    graph = load(folder, label="price", task="regression")
    store = propagate(folder, tmp_path / "s", hops=2, label="price", task="regression")
    np.testing.assert_array_equal(store.labels, graph.labels)
    options = OPTIONS | {"optimizer": "lbfgs", "lr": 1, "epochs": 5}
    one, other = (train(data, "sgc", **options) for data in (graph, tmp_path / "s"))
    np.testing.assert_allclose(other.model.predict(store), one.model.predict(graph), rtol=1e-4)
    with pytest.raises(ConfigError, match="labels of houses are there for regression; make the st"):
        open_data(tmp_path / "s", task="classification")
    write_npz(tmp_path / "g.npz", graph)
    write_disk_graph(graph, tmp_path / "disk")
    for read in (load(tmp_path / "g.npz"), open_data(tmp_path / "disk", task="regression")):
        np.testing.assert_array_equal(read.labels, graph.labels)
        np.testing.assert_array_equal(read.split.val, graph.split.val)
    made = Graph.from_networkx(graph.to_networkx(), scale="none", task="regression")
    np.testing.assert_array_equal(made.labels, graph.labels)


def test_a_search_compares_by_its_monitor(priced, tmp_path):
    grid = tmp_path / "mine.toml"
    grid.write_text('[any]\nlr = 0.1\nhops = [0, 2]\nloss = ["squared", "huber"]\n')
    fixed = {"epochs": 40, "dropout": 0.0, "bias": True, "monitor": "mae"}
    found = [
        search(priced, "sgc", grid=str(grid), out=tmp_path / "s", seeds=2, **fixed)
        for _ in range(2)  # and again, from what was kept
    ]
    values = [found[0].monitored(candidate) for candidate in found[0].ranking]
    assert values == sorted(values)
    assert values[0] < 0.5 * values[-1]
    assert found[0].best.options["hops"] == 2
    again = train(priced, "sgc", seeds=2, **found[0].best.options)
    assert values[0] == pytest.approx(np.mean([run.scores["val_mae"] for run in again.runs]))
    one, other = (result.summary() for result in found)
    assert (one.score, one.monitor, one.monitor_mean) == ("r2", "mae", pytest.approx(values[0]))
    assert one.test_mean == pytest.approx(again.metrics()["r2"].mean)
    assert one.figures.mean["rmse"] == pytest.approx(again.metrics()["rmse"].mean)
    assert one.figures.baseline["r2"] < 0.2
    assert one == other
    assert found[1].model.predict(priced).shape == (120,)


def test_what_has_no_numbers_says_so(priced, tables, tmp_path):
    folder, _ = tables
    model = train(priced, "sgc", **OPTIONS).model
    for refused in (
        lambda: explain(model, priced, priced.node_ids[0]),
        lambda: generalization(model, priced),
        lambda: search(priced, "sgc", out=tmp_path / "search", protocol="test"),
        lambda: train(priced, "sgc", class_weight="balanced"),
        lambda: train(priced, "sgc", threshold="f1"),
        lambda: train(priced, "sgc", monitor="accuracy"),
    ):
        with pytest.raises(ConfigError) as caught:
            refused()
        assert "\n" not in str(caught.value)
    with pytest.raises(GraphError, match="a label is 'Theory', which is no number"):
        load("cora", task="regression")
    with pytest.raises(DatasetError, match=r"'split' of .* has '[a-z]+' in data row .*for regress"):
        load(folder, label="split", task="regression")
    with pytest.raises(GraphError, match="task is 'multilabel', but the labels are there for regr"):
        priced.for_task("multilabel")
    flat = priced.with_labels(np.full(120, 7.0)).with_split(priced.split)
    with pytest.raises(GraphError, match="all training nodes have the value 7"):
        train(flat, "sgc", epochs=1)


def test_one_class_only_and_labels_that_are_not_there(tables, tmp_path):
    folder, _ = tables
    (tmp_path / "t").mkdir()
    for name in ("nodes.csv", "edges.parquet"):
        (tmp_path / "t" / name).write_bytes((folder / name).read_bytes())
    nodes = csv.read_csv(tmp_path / "t" / "nodes.csv")
    csv.write_csv(
        nodes.append_column("kind", pa.array(["house"] * 120)).drop_columns("split"),
        tmp_path / "t" / "nodes.csv",
    )
    for words, sentence in (
        (["--label", "kind"], "all labels are 'house', so there is nothing to learn"),
        (["--label", "pryce"], "has no column 'pryce' .* Did you mean 'price'"),
        ([], "no labels to learn from; give some nodes a label, or name the column"),
        (["--task", "regresion"], "task is 'regresion'; .* Did you mean 'regression'"),
    ):
        done = hoplite("train", tmp_path / "t", *words)
        assert done.returncode in (1, 2)
        assert len(done.stderr.strip().splitlines()) == 1
        assert re.search(sentence, done.stderr), done.stderr


def test_a_key_is_no_label(priced):
    keys = np.where(np.arange(120) % 3, np.cumsum(np.arange(120) % 3 > 0) - 1, -1)
    graph = priced.with_labels(keys, [f"K{i}" for i in range(80)])
    with pytest.raises(GraphError, match="all 80 labels are different, such as 'K0', so nothing"):
        train(graph.with_split(Split(np.flatnonzero(keys >= 0))), "sgc", epochs=1)


def test_labels_by_kind():
    classes, names = np.array([2, -1, 0]), ("1.5", "2", "40")
    assert relabelled(classes, names, "regression")[0][0] == 40
    numbers = relabelled(classes, names, "regression")[0]
    back, again = relabelled(numbers, (), "classification")
    assert (back.tolist(), again) == ([1, -1, 0], ("1.5", "40"))
    sets, single = relabelled(np.array([1, 0, -1]), ("a|b", "b"), "multilabel")
    assert (sets.tolist(), single) == ([[0, 1], [1, 1], [-1, -1]], ("a", "b"))
    for labels, task in ((classes, "multiclass"), (numbers, "regression")):
        assert task_of(labels).name == task
        assert task_of(labels).labels is kind_of(labels)
    with pytest.raises(GraphError, match=r"labels have type .* pass an integer class"):
        kind_of(np.zeros((2, 2, 2)))
