"""What a user writes, with the types that checkers must find in it (see tests/test_types.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, assert_type

import numpy as np
import numpy.typing as npt

import hoplite
from hoplite import (
    Graph,
    LGCClassifier,
    LGCRegressor,
    Split,
    TrainedModel,
    TrainingResult,
    auto,
    load,
    search,
    train,
)
from hoplite.explain import Explanation, explain
from hoplite.search import SearchResult

Array = npt.NDArray[Any]


def program(folder: Path) -> float:
    """Load, train, save, load again, predict, explain, search; and the estimators."""
    graph = load("cora")
    assert_type(graph, Graph)
    assert_type(graph.labels, Array)
    assert_type(graph.num_nodes, int)
    assert_type(graph.split, Split)

    result = train(graph, "lgc", hops=2, epochs=5, seeds=1)
    assert_type(result, TrainingResult)
    assert_type(result.test_accuracy, float)
    assert_type(result.model, TrainedModel)
    assert_type(result.model.filter_coefficients_, Array)

    result.model.save(folder / "model")
    model = TrainedModel.load(folder / "model")
    assert_type(model, TrainedModel)
    assert_type(model.predict(graph), Array)

    why = explain(model, graph, 17)
    assert_type(why, Explanation)

    classifier = LGCClassifier(graph, hops=2, epochs=5)
    nodes = graph.split.train
    fitted = classifier.fit(nodes, graph.labels[nodes])
    assert_type(fitted, LGCClassifier)
    assert_type(fitted.predict(graph.split.test), Array)
    assert_type(fitted.predict_proba(graph.split.test), Array)

    ring = Graph.from_edges([(0, 1), (1, 2), (2, 3), (3, 0), (3, 3)], np.eye(4))
    assert_type(ring, Graph)
    numbers = LGCRegressor(ring, hops=1, epochs=5).fit([0, 1, 2, 3], [1.0, 2.5, -3.0, 40.0])
    assert_type(numbers, LGCRegressor)

    grid = folder / "grid.toml"
    grid.write_text("[any]\nhops = [1, 2]\nlr = [0.1]\n", encoding="utf-8")
    found = search(graph, "lgc", grid=grid, out=folder / "search", seeds=1, epochs=3)
    assert_type(found, SearchResult)
    assert_type(hoplite.__version__, str)
    assert callable(auto)
    return result.test_accuracy
