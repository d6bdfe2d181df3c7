"""Losses recorded with an autograd engine (commit da873df), from the same first weights and masks.

tests/data/reference_losses.json has for every case the losses and scores of its first epochs,
recorded by that commit's ``hoplite.train`` in float64 or float32.
"""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path

import numpy as np
import pytest

import hoplite
from hoplite.engine.backend import has_native, use_backend
from hoplite.models import LinearModel

CASES = json.loads((Path(__file__).parents[1] / "data" / "reference_losses.json").read_text())
# relative; two L-BFGS trajectories of a bilinear loss part by more than rounding
TOLERANCE = {"float64": 1e-9, "float32": 1e-5, "lgc-untidy-lbfgs-float64": 1e-6}


def untidy_graph(dtype=np.float64, labels="classes"):
    """60 nodes, 12 features, 4 classes; ``labels`` is "classes", "numbers" or "sets".

    Scattered split, uneven classes, isolated nodes, edge weights over four magnitudes, dense
    features with 40 % zeros on columns of different scales, one node without any. Drawn by
    ``Generator.random`` alone and rounded to a few digits, so that no libm matters.
    """
    n, d, m = 60, 12, 4
    rng = np.random.default_rng(2024)
    classes = np.searchsorted([0.45, 0.72, 0.90], rng.random(n), side="right")
    # edges: 7 % of all pairs, 25 % within a class, 50 % at the hub; some nodes have none
    pairs, exponents = rng.random((n, n)), rng.random((n, n))
    chance = np.where(classes[:, None] == classes[None, :], 0.25, 0.07)
    chance[17, :] = 0.5
    chance[:, 17] = 0.5
    isolated = np.argsort(rng.random(n))[:6]
    isolated = isolated[isolated != 17]
    upper = np.triu(pairs < chance, 1)
    upper[isolated, :] = False
    upper[:, isolated] = False
    weights = np.round(10.0 ** (4 * exponents - 2), 6)  # 0.01 to 100
    adjacency = np.where(upper, weights, 0.0)
    adjacency = adjacency + adjacency.T
    # features
    scales = np.array([0.1, 0.3, 1.0, 3.0] * 3)
    shifts = 2 * rng.random((m, d)) - 1
    features = (2 * rng.random((n, d)) - 1 + shifts[classes]) * scales
    features = np.where(rng.random((n, d)) < 0.4, 0.0, np.round(features, 4))
    features[29] = 0.0
    # labels of other kinds
    numbers = np.round(10 * (features @ (2 * rng.random(d) - 1)) + 30 + 5 * rng.random(n), 3)
    sets = (rng.random((n, m)) < np.where(np.arange(m) == classes[:, None], 0.8, 0.2)).astype(int)
    # a scattered split; some nodes have no label and are in no part
    order = np.argsort(rng.random(n))
    unknown = order[:5]
    split = hoplite.Split(train=order[5:27], val=order[27:43], test=order[43:])
    classes[unknown], numbers[unknown], sets[unknown] = -1, np.nan, -1
    chosen = {"classes": classes, "numbers": numbers, "sets": sets}[labels]
    return hoplite.Graph(adjacency, features.astype(dtype), chosen, split, name="untidy")


def first_weights(model, d, m, hops, bias=False, gamma=1.0):
    """The weights that every recorded training starts from, in float64."""
    rng = np.random.default_rng(12345)
    if model == "blocks":
        theta = rng.uniform(-1, 1, (hops + 1, d, m)) / math.sqrt((hops + 1) * d)
    else:
        theta = rng.uniform(-1, 1, (d, m)) / math.sqrt(m)
    weights = {"theta": theta}
    if model == "lgc":
        weights["alpha"] = rng.uniform(-1, 1, hops + 1) / math.sqrt(hops)
    if model == "egc":
        weights["beta"] = np.array(rng.uniform(-1, 1) / math.sqrt(hops))
    if model == "jacobiconv":
        weights["class_filter"] = np.ones((hops + 1, m))
        weights["decay"] = np.full(hops, min(1 / gamma, 1.0))
    if bias:
        weights["bias"] = np.zeros(m)
    return weights


def graph_of(case):
    if case["graph"] == "untidy":
        return untidy_graph(np.dtype(case["dtype"]), case["labels"])
    graph = hoplite.load(case["graph"])
    return graph.with_features(graph.features.astype(case["dtype"]), graph.feature_names)


@pytest.mark.parametrize("backend", ["numpy", *(["native"] if has_native() else [])])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_losses_are_those_of_autograd(case, backend, monkeypatch):
    if backend == "numpy" and case["graph"] == "citeseer":
        pytest.skip("the fallback is slow, and Cora shows the same")

    def initial(self, rng):
        c = self.config
        return first_weights(
            self.name, self.num_features, self.num_classes, c.hops, c.bias, getattr(c, "gamma", 1.0)
        )

    monkeypatch.setattr(LinearModel, "initial", initial)
    with warnings.catch_warnings(), use_backend(backend):
        warnings.simplefilter("ignore", hoplite.HopliteWarning)
        result = hoplite.train(graph_of(case), case["model"], seeds=[0], **case["options"])
    history = result.runs[0].history
    tolerance = TOLERANCE.get(case["name"], TOLERANCE[case["dtype"]])
    for curve in ("train_loss", "val_loss"):
        np.testing.assert_allclose(history[curve], case[curve], rtol=tolerance, err_msg=curve)
    if case["dtype"] == "float64":
        for curve in case.keys() & {"val_accuracy", "val_micro_f1", "val_r2", "val_mae"}:
            np.testing.assert_allclose(history[curve], case[curve], rtol=1e-6, err_msg=curve)
