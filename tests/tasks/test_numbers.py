"""Numbers as labels, from tables and graphs to predictions, on scattered nodes with gaps."""

import numpy as np
import pytest
from sklearn import metrics
from sklearn.dummy import DummyRegressor

from hoplite import Graph, Split, train
from hoplite.engine.propagation import Propagation

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
