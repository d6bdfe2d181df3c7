"""Infinite numbers: an error before training, never saved, never a prediction."""

import json
import sys

import numpy as np
import pytest

from hoplite import HopliteError, SGCClassifier, Split, train
from hoplite.predictions import predict_table

WILD = {"operator": "laplacian", "hops": 1000, "epochs": 3}


@pytest.fixture
def graph(graphs):
    return graphs(n=40, d=4, dtype=np.float32, seed=2)


@pytest.mark.filterwarnings("ignore::hoplite.HopliteWarning")
def test_without_a_finite_run_there_is_no_model(graph):
    with pytest.raises(HopliteError, match="all 2 runs diverged in the first epoch"):
        train(graph, "sgc", seeds=2, **WILD)
    with pytest.raises(HopliteError, match="the run diverged"):
        SGCClassifier(graph, **WILD).fit(graph.split.train, graph.labels[graph.split.train])


def test_the_model_is_one_of_the_finite_runs(graph, monkeypatch):
    """Also without validation nodes, where no accuracy tells which one."""
    module = sys.modules["hoplite.training.fit"]  # the package has a function of that name
    original = module.train_runs

    def first_lost(*arguments, **options):
        first, *others = original(*arguments, **options)
        fields = {**vars(first), "best_epoch": 0, "diverged": True}
        return [type(first)(**fields), *others]

    monkeypatch.setattr(module, "train_runs", first_lost)
    for split in (graph.split, Split(graph.split.train)):
        result = train(graph.with_split(split), "sgc", seeds=3, hops=2, epochs=3, folds=0)
        assert result.model.training["seed"] != 0
        assert np.isnan(result.runs[0].test_accuracy)
        assert result.summary()["diverged"] == 1
        json.dumps(result.summary(), allow_nan=False)


def test_a_sound_model_refuses_what_it_cannot_answer(graph):
    model = train(graph, "sgc", hops=2, epochs=3).model
    model.weights["theta"] *= 100
    features = graph.features.copy()
    features[5] = 3e38
    wild = graph.with_features(features)
    for ask in (model.logits, model.predict, model.predict_proba):
        with pytest.raises(HopliteError, match=r"the outputs of .* nodes \(first: node \d+\)"):
            ask(wild)
    with pytest.raises(HopliteError, match="are not finite"):
        predict_table(model, wild)
