"""Trainings with several draws of what is dropped, and their agreement.

That a step is that of autograd is in test_gradients.py.
"""

import numpy as np
import pytest

import hoplite
from hoplite.errors import ConfigError


def test_nobody_sure_is_no_penalty(graphs):
    graph = graphs(n=40, d=5)
    plain = {"hops": 2, "epochs": 5, "drop_nodes": 0.5, "draws": 2, "seeds": 2}
    unsure = hoplite.train(graph, "lgc", **plain, consistency=5.0, confidence=1.0)
    without = hoplite.train(graph, "lgc", **plain)
    sure = hoplite.train(graph, "lgc", **plain, consistency=5.0)
    for one, other, changed in zip(unsure.runs, without.runs, sure.runs, strict=True):
        curve = one.history["train_loss"]
        np.testing.assert_allclose(curve, other.history["train_loss"], rtol=1e-5)
        assert abs(curve - changed.history["train_loss"]).max() > 1e-2


def test_numbers_do_not_agree():
    graph = hoplite.Graph.from_edges([(0, 1), (1, 2)], np.eye(3), np.array([0.5, 1.5, 2.5]))
    graph = graph.with_split(hoplite.Split([0, 1], [2], []))
    with pytest.raises(ConfigError, match=r"consistency is 1, which requires one class per node"):
        hoplite.train(graph, "lgc", consistency=1.0)
