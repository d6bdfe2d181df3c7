"""Label propagation: the recurrence, the shares that it tells, and the graph that it is of."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from tests import untidy
from tests.examples import examples

import hoplite
from hoplite import Graph, ModelFileError, Split, TrainedModel


def spread(S, Y, alpha, hops):
    """F_k step by step."""
    found = Y
    for _ in range(hops):
        found = alpha * S @ found + (1 - alpha) * Y
    return found


def shares(S, Y, u, alpha, hops):
    """Of the labels that reach a node; the training nodes' where none does."""
    mass = spread(S, u, alpha, hops)
    usual = Y.sum(axis=0) / u.sum()
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(mass[:, None] > 0, spread(S, Y, alpha, hops) / mass[:, None], usual)


@pytest.mark.filterwarnings(untidy.UNTRAINED)
@pytest.mark.filterwarnings("ignore:on the .* nodes:hoplite.HopliteWarning")
@examples(60)
@given(
    graph=untidy.graphs(),
    hops=st.integers(0, 12),
    alpha=st.floats(0, 1),
    operator=st.sampled_from(["renormalized", "adjacency"]),
)
def test_equal_to_the_recurrence(dense, graph, hops, alpha, operator):
    known = graph.labels[graph.labels >= 0]
    assume(len(known) < 3 or np.bincount(known).max() > 1)  # or there is nothing to learn
    result = hoplite.train(graph, "labelprop", hops=hops, alpha=alpha, operator=operator)
    train, m = graph.split.train, len(graph.class_names)
    Y, u = np.zeros((graph.num_nodes, m)), np.zeros(graph.num_nodes)
    Y[train, graph.labels[train]], u[train] = 1, 1
    wanted = shares(dense.operator(graph, operator), Y, u, alpha, hops)
    found = result.model.predict_proba(graph)
    tiny = spread(dense.operator(graph, operator), u, alpha, hops) < 1e-30  # float32 may lose it
    np.testing.assert_allclose(found[~tiny], wanted[~tiny], atol=1e-5)
    assert result.runs[0].epochs == 1
    assert (result.model.weights["signal"] == Y).all()


def test_several_labels_are_shares_of_the_nodes_that_have_them(dense, tmp_path):
    rng = np.random.default_rng(3)
    n = 30
    edges = rng.integers(0, n - 2, (60, 2))  # loops and doubles, and the last two are isolated
    labels = (rng.random((n, 3)) < [0.7, 0.3, 0.1]).astype(np.int8)
    order = rng.permutation(n)
    labels[order[0]] = 1
    graph = Graph.from_edges(
        edges, rng.normal(size=(n, 2)), labels, split=Split(order[:10], order[10:20], order[20:])
    )
    model = hoplite.train(graph, "labelprop", hops=7, alpha=0.8).model
    model = TrainedModel.load(model.save(tmp_path / "model"))
    Y, u = np.zeros((n, 3)), np.zeros(n)
    Y[order[:10]], u[order[:10]] = labels[order[:10]], 1
    wanted = shares(dense.operator(graph, "adjacency"), Y, u, 0.8, 7)
    np.testing.assert_allclose(model.predict_proba(graph), wanted, atol=1e-6)


def test_saved_models_are_of_their_own_nodes(graphs, tmp_path):
    graph = graphs(n=30)
    result = hoplite.train(graph, "labelprop", hops=5, seeds=[3, 8])
    one, other = (run.model.logits(graph) for run in result.runs)
    assert (one == other).all()  # nothing is drawn
    folder = result.model.save(tmp_path / "model")
    back = TrainedModel.load(folder)
    assert (back.logits(graph) == one).all()

    with pytest.raises(ModelFileError, match=r"labels of the 30 nodes .* has 12 nodes; predict on"):
        back.logits(graphs(n=12))
    with pytest.raises(ModelFileError, match="have other ids or another order"):
        back.logits(graphs(n=30, seed=9))

    text = (folder / "config.json").read_text()
    for change, message in (
        (lambda c: c.pop("node_index"), "do not fit model .labelprop."),
        (lambda c: c["node_index"].update(count=29), "do not fit model .labelprop."),
        (lambda c: c["node_index"].update(count=-1), "is damaged"),
    ):
        content = json.loads(text)
        content.pop("checksum")
        change(content)
        (folder / "config.json").write_text(json.dumps(content))
        with pytest.raises(ModelFileError, match=message):
            TrainedModel.load(folder)


def test_nodes_that_arrive_later_are_behind_and_have_no_label(dense):
    rng = np.random.default_rng(5)
    ids = [f"ü{i}" for i in rng.permutation(25)]
    labels = ["xy"[i % 2] if i % 5 else None for i in range(20)]
    nodes = pa.table({"id": ids[:20], "age": rng.normal(size=20), "label": labels})
    ends = rng.integers(0, 20, (40, 2))
    edges = pa.table({"source": [ids[a] for a, _ in ends], "target": [ids[b] for _, b in ends]})
    graph = hoplite.io.from_frames(nodes, edges)
    known = np.flatnonzero(graph.labels >= 0)
    graph = graph.with_split(Split(known[:9], known[9:]))
    model = hoplite.train(graph, "labelprop", hops=6, alpha=0.6).model
    new = pa.table({"id": ids[20:], "age": rng.normal(size=5)})
    more = pa.table({"source": ids[20:24], "target": [ids[0], ids[20], ids[1], ids[2]]})
    later = hoplite.io.extend(graph, (new, more))
    train = graph.split.train
    Y, u = np.zeros((25, 2)), np.zeros(25)
    Y[train, graph.labels[train]], u[train] = 1, 1
    wanted = shares(dense.operator(later, "adjacency"), Y, u, 0.6, 6)
    np.testing.assert_allclose(model.predict_proba(later), wanted, atol=1e-6)


def test_the_estimator_and_its_weights(graphs, dense):
    graph = graphs(n=40)
    train, val = graph.split.train, graph.split.val
    nodes, y = train, graph.labels[train]
    estimator = clone(hoplite.LabelPropagationClassifier(graph, hops=6, alpha=0.7))
    estimator.fit(nodes, y, validation=(val, graph.labels[val]))
    whole = hoplite.train(graph, "labelprop", hops=6, alpha=0.7).model
    np.testing.assert_allclose(
        estimator.predict_proba(np.arange(40)), whole.predict_proba(graph), atol=1e-12
    )
    assert not hasattr(estimator, "coef_")
    weights = 10.0 ** np.random.default_rng(0).uniform(-2, 2, len(nodes))
    estimator.fit(nodes, y, sample_weight=weights)
    Y, u = np.zeros((40, 3)), np.zeros(40)
    Y[nodes, y], u[nodes] = weights, weights
    wanted = shares(dense.operator(graph, "adjacency"), Y, u, 0.7, 6)
    np.testing.assert_allclose(estimator.predict_proba(np.arange(40)), wanted, atol=1e-6)
    grid = GridSearchCV(estimator, {"alpha": [0.2, 0.9]}, cv=2).fit(nodes, y)
    assert grid.best_params_["alpha"] in (0.2, 0.9)
