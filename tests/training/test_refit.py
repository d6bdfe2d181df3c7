"""Refit: the second training is one on both label sets, for each run's own best epochs."""

import dataclasses
import json

import numpy as np
import pytest
from tests.commands import hoplite as command

import hoplite
from hoplite import ConfigError, Graph, Split, TrainedModel
from hoplite.models import find_model
from hoplite.store import propagate

OPTIONS = {"hops": 3, "epochs": 30, "lr": 0.1, "dropout": 0.3, "weight_decay": 1e-3}


def both_parts(graph):
    """The graph with the validation nodes among the training nodes."""
    split = graph.split
    return Graph(
        graph.adjacency,
        graph.features,
        graph.labels,
        split=Split(np.concatenate([split.train, split.val]), [], split.test),
        node_ids=graph.node_ids,
    )


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"dropout": 0.0},
        {"class_weight": "balanced"},
        {"optimizer": "lbfgs", "dropout": 0.0, "epochs": 6, "lr": 1.0},
        {"batch": 7, "dropout": 0.0},
    ],
)
@pytest.mark.parametrize("model", ["sgc", "lgc", "gcn"])
def test_each_run_is_a_training_on_both_parts_for_its_best_epochs(graphs, model, more):
    graph = graphs(n=50, seed=4)
    own = {k: v for k, v in (OPTIONS | more).items() if k in find_model(model).settings()}
    if "batch" in own and not find_model(model).reads_rows():
        return
    first = hoplite.train(graph, model, seeds=4, **own)
    result = hoplite.train(graph, model, seeds=4, refit=True, **own)
    if model != "gcn" and "optimizer" not in more:
        assert len({run.best_epoch for run in first.runs}) > 1
    for before, run in zip(first.runs, result.runs, strict=True):
        assert run.best_epoch == before.best_epoch
        assert run.val_accuracy == before.val_accuracy  # of the first training
        alone = own | {"epochs": run.best_epoch}
        wanted = hoplite.train(both_parts(graph), model, seeds=[run.seed], **alone).runs[0]
        for name, value in wanted.model.weights.items():
            np.testing.assert_allclose(run.model.weights[name], value, atol=1e-6)
        assert run.test_accuracy == wanted.test_accuracy
    assert result.best_run.seed == first.best_run.seed


def test_sample_weights_of_both_parts_count(graphs):
    graph = graphs(n=50, seed=4)
    weights = 10.0 ** np.random.default_rng(1).uniform(-2, 2, 50)
    (run,) = hoplite.train(graph, "sgc", refit=True, sample_weight=weights, **OPTIONS).runs
    options = OPTIONS | {"epochs": run.best_epoch, "sample_weight": weights}
    wanted = hoplite.train(both_parts(graph), "sgc", **options).model
    np.testing.assert_allclose(run.model.logits(graph), wanted.logits(graph), atol=1e-6)


def test_it_is_said_that_it_is_another_protocol(graphs, tmp_path):
    graph = graphs(n=50, seed=4)
    result = hoplite.train(graph, "sgc", seeds=2, refit=True, **OPTIONS)
    assert "refit on training and validation labels" in repr(result)
    assert result.summary()["protocol"] == "refit on training and validation labels"
    assert "protocol" not in hoplite.train(graph, "sgc", **OPTIONS).summary()
    back = TrainedModel.load(result.model.save(tmp_path / "model"))
    assert back.training["refit"] is True
    assert (back.logits(graph) == result.model.logits(graph)).all()
    with pytest.raises(ConfigError, match=r"no scores of validation nodes.*without refit"):
        back.prediction_sets(graph)


def test_what_validation_chose_stays(graphs):
    graph = graphs(n=60, classes=2, seed=4)
    options = OPTIONS | {"threshold": "balanced", "calibrate": True}
    first = hoplite.train(graph, "sgc", **options)
    result = hoplite.train(graph, "sgc", refit=True, **options)
    assert result.model.task == first.model.task
    assert result.model.task.temperature != 1


def test_label_propagation_and_correct_and_smooth_have_both_labels(graphs):
    graph = graphs(n=60, seed=2)
    split = graph.split
    both = np.concatenate([split.train, split.val])
    labels = hoplite.train(graph, "labelprop", refit=True).model
    assert (np.flatnonzero(labels.weights["signal"].sum(axis=1)) == np.sort(both)).all()
    options = OPTIONS | {"epochs": 1, "correct_smooth": True, "dropout": 0.0}
    seen = 0
    for seed in range(8):
        (first,) = hoplite.train(graph, "sgc", seeds=[seed], **options).runs
        (run,) = hoplite.train(graph, "sgc", seeds=[seed], refit=True, **options).runs
        assert run.val_accuracy == first.val_accuracy
        if first.model.after.idle:
            assert run.model.after.idle
            continue
        seen += 1
        wanted = tuple(np.sort(both).tolist()), tuple(graph.labels[np.sort(both)].tolist())
        after = dataclasses.replace(first.model.after, nodes=wanted[0], labels=wanted[1])
        assert run.model.after == after
        found = run.model.logits(graph)[split.test].argmax(axis=1)
        assert run.test_accuracy == (found == graph.labels[split.test]).mean()
    assert seen


def test_without_validation_nodes_it_is_refused(graphs):
    with pytest.raises(ConfigError, match="refit is True, which validation nodes choose"):
        hoplite.train(both_parts(graphs(n=50)), "sgc", refit=True)


def test_the_estimator(graphs):
    graph = graphs(n=50, seed=4)
    train, val = graph.split.train, graph.split.val
    result = hoplite.train(graph, "lgc", refit=True, **OPTIONS)
    estimator = hoplite.LGCClassifier(graph, refit=True, **OPTIONS)
    estimator.fit(train, graph.labels[train], validation=(val, graph.labels[val]))
    found, wanted = estimator.predict_proba(np.arange(50)), result.model.predict_proba(graph)
    np.testing.assert_allclose(found, wanted, atol=1e-9)
    with pytest.raises(ConfigError, match="refit is True"):
        estimator.fit(train, graph.labels[train])
    ones = np.ones(len(train))
    estimator.fit(train, graph.labels[train], (val, graph.labels[val]), sample_weight=ones)
    np.testing.assert_allclose(estimator.predict_proba(np.arange(50)), wanted, atol=1e-6)


def test_a_search_chooses_without_it(graphs, tmp_path):
    graph = graphs(n=50, seed=4)
    grid = tmp_path / "grid.toml"
    grid.write_text("[any]\nhops = [1, 3]\nlr = [0.1, 0.01]\nepochs = 10\n")
    plain = hoplite.search(graph, "sgc", grid=grid, seeds=2, out=tmp_path / "plain")
    found = hoplite.search(graph, "sgc", grid=grid, seeds=2, out=tmp_path / "refit", refit=True)
    assert [one.val for one in plain.ranking] == [one.val for one in found.ranking]
    assert found.val == plain.val
    again = hoplite.train(graph, "sgc", seeds=2, **found.best.options)
    assert again.training_config.refit
    assert found.test == tuple(run.test_accuracy for run in again.runs)
    grid.write_text("[any]\nrefit = [true, false]\n")
    with pytest.raises(ConfigError, match="refit has several values, but validation nodes cannot"):
        hoplite.search(graph, "sgc", grid=grid, seeds=2, out=tmp_path / "two")
    with pytest.raises(ConfigError, match="refit is True and protocol is 'test'"):
        hoplite.search(graph, "sgc", protocol="test", refit=True, out=tmp_path / "three")


def test_in_commands(tmp_path):
    words = ("cora", "--model", "sgc", "--hops", 2, "--epochs", 5, "--seeds", 2, "--refit")
    found = command("train", *words)
    assert found.returncode == 0, found.stderr
    assert "Protocol: refit on training and validation labels" in found.stdout
    values = json.loads(command("train", *words, "--json").stdout)
    assert values["protocol"] == "refit on training and validation labels"


def test_from_a_store_as_from_the_graph(graphs, tmp_path):
    graph = graphs(n=50, seed=4, dtype=np.float32)
    store = propagate(graph, tmp_path / "store", hops=2)
    options = {"epochs": 20, "lr": 0.1, "seeds": 3, "refit": True}
    stored = hoplite.train(store, "sgc", **options)
    result = hoplite.train(graph, "sgc", hops=2, dropout=0.0, **options)
    for one, other in zip(stored.runs, result.runs, strict=True):
        assert one.scores == other.scores
        np.testing.assert_allclose(
            one.model.weights["theta"], other.model.weights["theta"], atol=1e-5
        )


@pytest.mark.parametrize("weight", [1.0, 1e-3, 100.0])
def test_the_unit_of_sample_weights_is_no_matter(graphs, weight):
    graph = graphs(n=60, d=4)
    y, (train, val) = np.asarray(graph.labels), (graph.split.train, graph.split.val)
    own = np.random.default_rng(1).uniform(0.5, 2, len(train))

    def fitted(weights):
        model = hoplite.LGCClassifier(graph, hops=2, epochs=30, refit=True, dropout=0.0)
        model.fit(train, y[train], validation=(val, y[val]), sample_weight=weights)
        return model.decision_function(graph.split.test)

    np.testing.assert_allclose(fitted(weight * own), fitted(own), rtol=1e-4, atol=1e-5)
    both = fitted(np.full(len(train), weight))
    np.testing.assert_allclose(both, fitted(None), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("option", ["refit", "correct_smooth", "calibrate"])
def test_empty_validation_is_none(graphs, option):
    graph = graphs(n=30, d=3)
    nodes = graph.split.train
    model = hoplite.LGCClassifier(graph, hops=1, epochs=2, **{option: True})
    with pytest.raises(ConfigError, match=f"{option} is True"):
        model.fit(nodes, graph.labels[nodes], validation=([], []))
