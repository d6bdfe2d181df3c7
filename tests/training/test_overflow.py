"""Numbers without end: told before training, never saved, never a prediction."""

import contextlib
import json
import re
import sys
import warnings

import numpy as np
import pytest
from tests.commands import hoplite

from hoplite import HopliteError, ModelFileError, SGCClassifier, Split, train
from hoplite.datasets import write_npz
from hoplite.predictions import predict_table

WILD = {"operator": "laplacian", "hops": 1000, "epochs": 3}
AHEAD = "hop features may be as large as"


@pytest.fixture
def graph(graphs):
    return graphs(n=40, d=4, dtype=np.float32, seed=2)


def scaled(graph, factor):
    return graph.with_features(graph.features * np.float32(factor))


@pytest.mark.parametrize(
    ("options", "factor", "sentence"),
    [
        ({"operator": "laplacian", "hops": 200}, 1, r"2\^200 times 0\.99"),
        ({"operator": "laplacian", "hops": 66}, 1, r"2\^66 times"),
        ({"operator": "laplacian", "hops": 60}, 1, None),
        ({"operator": "laplacian", "hops": 200, "basis": "chebyshev"}, 1, None),
        ({"operator": "adjacency", "hops": 1000}, 1, None),
        ({"hops": 2}, 1e20, r"as large as 9\.9.e\+19, and beyond 1e19 float32"),
        ({"hops": 2}, 1e18, None),
    ],
)
@pytest.mark.parametrize("sparse", [False, True])
def test_powers_that_may_overflow_are_told_before_training(
    graphs, options, factor, sentence, sparse
):
    graph = scaled(graphs(n=40, d=4, dtype=np.float32, seed=2, sparse=sparse), factor)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with contextlib.suppress(HopliteError if sentence else ()):  # it may end in a model or not
            train(graph, "lgc", epochs=1, **options)
    ahead = [str(one.message) for one in told if AHEAD in str(one.message)]
    assert len(ahead) == (sentence is not None)
    if sentence:
        assert ahead[0].startswith(AHEAD)
        assert re.search(sentence, ahead[0])


def test_float64_reaches_further(graphs):
    train(graphs(n=40, d=4), "lgc", operator="laplacian", hops=200, epochs=1)


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
        result = train(graph.with_split(split), "sgc", seeds=3, hops=2, epochs=3)
        assert result.model.training["seed"] != 0
        assert np.isnan(result.runs[0].test_accuracy)
        assert result.summary()["diverged"] == 1
        json.dumps(result.summary(), allow_nan=False)


def test_a_sound_model_refuses_what_it_cannot_answer(graph, tmp_path):
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
    model.save(tmp_path / "model")
    write_npz(tmp_path / "wild.npz", wild)
    done = hoplite(
        "predict", tmp_path / "model", tmp_path / "wild.npz", "--out", tmp_path / "p.csv"
    )
    assert done.returncode == 1
    assert "are not finite" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "p.csv").exists()


def test_weights_that_are_not_finite_are_not_saved(graph, tmp_path):
    model = train(graph, "sgc", hops=2, epochs=1).model
    model.weights["theta"][0, 0] = np.inf
    with pytest.raises(ModelFileError, match="the weights 'theta' hold values that are not finite"):
        model.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()
    with pytest.raises(HopliteError, match="are not finite"):
        model.predict(graph)


def test_a_training_that_diverges_saves_nothing(graph, tmp_path):
    write_npz(tmp_path / "g.npz", graph)
    words = ["train", tmp_path / "g.npz", "--model", "sgc", "--out", tmp_path / "model"]
    done = hoplite(*words, "--operator", "laplacian", "--hops", 1000, "--epochs", 3)
    assert done.returncode == 1
    assert "runs diverged in the first epoch" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "model").exists()
