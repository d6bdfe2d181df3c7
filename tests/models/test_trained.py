"""Models on disk: what is saved comes back, and nothing else is taken for a model."""

import json
import os

import numpy as np
import pytest
import torch

from hoplite import ConfigError, Graph, ModelFileError, TrainedModel, train
from hoplite.config import GATES, ModelConfig
from hoplite.models import build_model

CONFIGS = [
    ModelConfig("sgc", 2),
    ModelConfig("egc", 3, "laplacian", start="lowpass"),
    ModelConfig("lgc", 3, "adjacency", "chebyshev", bias=True, standardize=True),
    *[ModelConfig("hlgc", 2, gate=gate) for gate in GATES],
    ModelConfig("gcn", hidden=4),
]


def untrained(config, graph, seed=0):
    model = build_model(config, graph.num_features, graph.num_classes)
    weights = model.initial(torch.Generator().manual_seed(seed))
    names = ("a", "b", "c")
    return TrainedModel(config, weights, graph.num_features, names, None, {"seed": seed})


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{c.model}-{c.gate}")
def test_round_trip(graphs, tmp_path, config):
    graph = graphs(dtype=np.float32)
    model = untrained(config, graph)
    back = TrainedModel.load(model.save(tmp_path / "deep" / "model"))
    assert back.config == config
    assert back.class_names == ("a", "b", "c")
    assert back.training == {"seed": 0}
    np.testing.assert_array_equal(back.logits(graph), model.logits(graph))
    np.testing.assert_array_equal(back.predict(graph), model.logits(graph).argmax(1))
    np.testing.assert_allclose(back.predict_proba(graph).sum(1), 1, atol=1e-6)
    names = {path.name for path in (tmp_path / "deep" / "model").iterdir()}
    assert names == {"config.json", "weights.safetensors"}
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["model"]


def test_coefficients(graphs):
    graph = graphs()
    sgc, egc, lgc = (untrained(ModelConfig(model, 2), graph) for model in ("sgc", "egc", "lgc"))
    assert sgc.coefficients_.tolist() == [0, 0, 1]
    beta = float(egc.weights["beta"])
    np.testing.assert_allclose(egc.coefficients_, [1, beta, beta**2 / 2], rtol=1e-6)
    np.testing.assert_array_equal(lgc.coefficients_, lgc.weights["alpha"].numpy())
    with pytest.raises(ConfigError, match="no filter coefficients"):
        _ = untrained(ModelConfig("gcn"), graph).coefficients_


def test_existing_folder_is_kept_unless_overwritten(graphs, tmp_path):
    graph = graphs()
    first, second = (untrained(ModelConfig("lgc", 2), graph, seed) for seed in (1, 2))
    first.save(tmp_path / "m")
    (tmp_path / "m" / "notes.txt").write_text("mine")
    with pytest.raises(ModelFileError, match="not empty"):
        second.save(tmp_path / "m")
    assert TrainedModel.load(tmp_path / "m").training == {"seed": 1}
    second.save(tmp_path / "m", overwrite=True)
    assert TrainedModel.load(tmp_path / "m").training == {"seed": 2}
    assert (tmp_path / "m" / "notes.txt").read_text() == "mine"


def test_failing_save_leaves_the_old_model(graphs, tmp_path, monkeypatch):
    graph = graphs()
    untrained(ModelConfig("lgc", 2), graph, 1).save(tmp_path / "m")
    monkeypatch.setattr(os, "fsync", _disk_full)
    with pytest.raises(OSError, match="No space"):
        untrained(ModelConfig("lgc", 2), graph, 2).save(tmp_path / "m", overwrite=True)
    monkeypatch.undo()
    assert TrainedModel.load(tmp_path / "m").training == {"seed": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def _disk_full(handle):
    raise OSError(28, "No space left on device")


def _cut_weights(folder):
    path = folder / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:-7])


def _cut_config(folder):
    path = folder / "config.json"
    path.write_text(path.read_text()[:50])


def _edit_config(**changes):
    def edit(folder):
        path = folder / "config.json"
        config = json.loads(path.read_text())
        config["model"] |= {k: v for k, v in changes.items() if k in config["model"]}
        config |= {k: v for k, v in changes.items() if k not in config["model"]}
        path.write_text(json.dumps(config))

    return edit


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (_cut_weights, "truncated or belongs to another model"),
        (_cut_config, "truncated or not JSON"),
        (lambda folder: (folder / "weights.safetensors").unlink(), "cannot read"),
        (lambda folder: (folder / "config.json").unlink(), "cannot read"),
        (_edit_config(hops=5), "do not fit a lgc model"),
        (_edit_config(operator="pickle"), "operator is 'pickle'"),
        (_edit_config(format=99), "this version"),
        (_edit_config(class_names=["a"]), "5 features and 1 classes"),
        (_edit_config(class_names=None), "does not hold a complete model"),
    ],
)
def test_damaged_folder(graphs, tmp_path, damage, sentence):
    folder = untrained(ModelConfig("lgc", 2), graphs()).save(tmp_path / "m")
    damage(folder)
    with pytest.raises(ModelFileError, match=sentence):
        TrainedModel.load(folder)


def test_weights_of_another_model(graphs, tmp_path):
    first = untrained(ModelConfig("lgc", 2), graphs(), 1).save(tmp_path / "a")
    second = untrained(ModelConfig("lgc", 2), graphs(), 2).save(tmp_path / "b")
    (second / "weights.safetensors").replace(first / "weights.safetensors")
    with pytest.raises(ModelFileError, match="belongs to another model"):
        TrainedModel.load(first)


def test_not_a_folder(tmp_path):
    with pytest.raises(ModelFileError, match="not a model folder"):
        TrainedModel.load(tmp_path / "missing")


def test_graph_must_fit(graphs):
    model = untrained(ModelConfig("lgc", 2), graphs())
    with pytest.raises(ModelFileError, match="trained on 5 features but the graph has 6"):
        model.predict(graphs(d=6))
    with pytest.raises(ModelFileError, match="knows 3 classes but the graph has 2"):
        model.predict(graphs(classes=2))
    unlabelled = Graph(graphs().adjacency, graphs().features)
    assert model.predict(unlabelled).shape == (12,)


def test_feature_names_must_match(graphs):
    def named(names):
        return Graph.from_edges([(0, 1)], np.eye(2), [0, 1], feature_names=names)

    graph = named(["x", "y"]).with_split(type(graphs().split)(train=[0, 1]))
    model = train(graph, "lgc", epochs=1).model
    assert model.feature_names == ("x", "y")
    with pytest.raises(ModelFileError, match="expects feature 'x' where the graph has 'y'"):
        model.predict(named(["y", "x"]))
