"""A value of the node itself that flips its prediction: it does, and slightly less does not."""

import datetime
import warnings

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.explain.test_explain import untrained
from tests.io.test_preparation import columns, write
from tests.untidy import SEEDS, UNTRAINED
from tests.untidy import graphs as untidy_graphs

import hoplite
from hoplite import Graph, TrainedModel, train
from hoplite.bases import EXAMPLES
from hoplite.explain import Explainer, explain
from hoplite.explain.changes import Cell
from hoplite.models import build_model, model_config
from hoplite.operators import OPERATORS
from hoplite.preparation import TextColumn
from hoplite.structural import with_structural

LINEAR = [("sgc", "monomial"), ("egc", "monomial"), ("blocks", EXAMPLES[-1])]
LINEAR += [("lgc", basis) for basis in EXAMPLES]


def changed(graph, node, feature, value):
    """The graph with another feature of a node, in double precision."""
    features = np.array(graph.feature_rows(0, graph.num_nodes), np.float64)
    features[node, feature] = value
    return Graph(graph.adjacency, features, class_names=graph.class_names)


@pytest.mark.filterwarnings(UNTRAINED)
@examples(15)
@given(untidy_graphs(), st.sampled_from(LINEAR), st.sampled_from(sorted(OPERATORS)), SEEDS)
def test_features_as_they_are(graph, case, operator, seed):
    rng = np.random.default_rng(seed)
    features = np.array(graph.feature_rows(0, graph.num_nodes), np.float64)
    flag = rng.integers(features.shape[1])
    features[:, flag] = rng.random(len(features)) < 0.5
    graph = Graph(graph.adjacency, features, class_names=graph.class_names)
    config = model_config(case[0], int(rng.integers(0, 4)), operator, case[1], bias=True)
    trained = untrained(config, graph, seed, graph.class_names)
    explainer, predicted = Explainer(trained, graph), trained.predict(graph)
    for node in rng.choice(graph.num_nodes, 3, replace=False):
        report = explainer.explain(int(node)).changes(range(graph.num_features))
        assert report.checked == graph.num_features
        found = {one.index: one for one in report.found}
        for f in range(graph.num_features):
            own, p = features[node, f], predicted[node]

            def class_at(value, node=node, f=f):
                return trained.predict(changed(graph, node, f, value))[node]

            if np.isin(features[:, f], (0, 1)).all():
                assert (f in found) == (class_at(1 - own) != p)
                if f in found:
                    assert (found[f].to, found[f].side) == (1 - own, "equal")
                    assert found[f].becomes == graph.class_names[class_at(1 - own)]
                continue
            if f not in found:
                assert class_at(own + 1e4) == class_at(own - 1e4) == p
                continue
            to = found[f].to
            assert not found[f].outside  # of a matrix nobody knows the range
            assert (to > own) == (found[f].side == "above")
            assert graph.class_names[class_at(to)] == found[f].becomes
            assert class_at(to) != p
            assert class_at(own + 0.998 * (to - own)) == p
            assert class_at(own - 0.998 * (to - own)) == p  # nor is the other way shorter


def precise(graph):
    """In double precision, as outputs of amounts that are not scaled are large."""
    features = np.array(graph.feature_rows(0, graph.num_nodes), np.float64)
    return graph.with_features(features, graph.feature_names, preparation=graph.preparation)


@pytest.fixture(scope="module", params=["standard", "log"])
def tables(request, tmp_path_factory):
    folder = write(tmp_path_factory.mktemp(request.param) / "t", columns(3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", hoplite.HopliteWarning)  # a key, and what is not scaled
        graph = hoplite.load(folder, scale=request.param, id="who", label="kind")
    graph = precise(graph)
    model = train(graph, "lgc", hops=2, epochs=60, dropout=0, lr=0.05).model
    return folder, graph, model


def test_cells_of_a_table(tables, tmp_path):
    """Every flip is checked on tables written again with the one cell changed."""
    _, graph, model = tables
    made, seen, marked = columns(3), set(), set()
    explainer = Explainer(model, graph)

    def class_at(node, name, value):
        cells = made[name].to_pylist()
        cells[node] = value
        other = write(tmp_path / "other", made | {name: pa.array(cells, made[name].type)})
        again = precise(hoplite.load(other, prepare=model))
        return model.class_names[model.predict(again)[node]]

    for node in range(0, 120, 24):
        explanation = explainer.explain(graph.node_ids[node])
        report = explanation.changes(range(graph.num_features))
        predicted = explanation.summary().node.predicted
        assert report.checked == len({one.split("=")[0] for one in graph.feature_names})
        for flip in report.found:
            name, to, cell = flip.name, flip.to, made[flip.name][node].as_py()
            seen.add((name, cell is None))
            if name == "since":
                to = datetime.date.fromisoformat(to)
                before = to + datetime.timedelta(days=1 if flip.side == "below" else -1)
                if cell is not None:
                    assert flip.value == str(cell)
            elif name == "member":
                assert to in {"true", "false"} - {str(cell).lower()}
                to, before = to == "true", None
            elif name == "town":
                assert flip.value == ("missing" if cell is None else cell)
                assert to in {"Ulm", "Bonn", "Köln", "Rome", "Oslo"} - {cell}
                before = None
            else:
                column = next(c for c in model.preparation.fitted if c.name == name)
                start = (column.fill or column.default_fill)[0] if cell is None else cell
                before = start + 0.99 * (to - start) if flip.side != "equal" else None
            assert class_at(node, name, to) == flip.becomes != predicted
            known = [one for one in made[name].to_pylist() if one is not None]
            beyond = {"above": name != "town" and to > max(known)}
            beyond["below"] = name != "town" and to < min(known)
            outside = beyond.get(flip.side, any(beyond.values()))
            assert flip.outside == outside, flip
            marked.add((name, outside))
            if before is not None and flip.side != "equal" and before != cell:
                assert class_at(node, name, before) == predicted
    assert {name for name, _ in seen} >= {"amount", "debt", "since"}
    assert {gap for _, gap in seen} == {False, True}
    assert {outside for _, outside in marked} == {False, True}


def test_a_category_is_only_exchanged_where_that_flips(tables):
    _, graph, model = tables
    made = columns(3)
    theta, names = model.weights["theta"].astype(np.float64), list(model.feature_names)
    towns = [one for one in names if one.startswith("town=")]
    for node in range(0, 120, 11):
        found = explain(model, graph, graph.node_ids[node])
        weight = found.coefficients @ found.reach[:, node]
        own = made["town"][node].as_py()
        now = theta[names.index(f"town={own}")] if own else 0
        after = [found.logits + weight * (theta[names.index(t)] - now) for t in towns]
        flips = any(one.argmax() != found.logits.argmax() for one in after)
        report = found.changes([names.index(towns[0])])
        assert (report.checked, len(report.found)) == (1, int(flips))


def test_where_nothing_can_be_told(graphs):
    graph = graphs(dtype=np.float32)
    graph = Graph(graph.adjacency, graph.features)
    node = 2
    config = model_config("lgc", 2, standardize=True)
    weights = build_model(config, 5, 3).initial(np.random.default_rng(0))
    assert explain(TrainedModel(config, weights, 5, tuple("abc")), graph, node).changes() is None
    config = model_config("sgc", 1)
    one = TrainedModel(config, {"theta": np.ones((5, 1))}, 5, ("a",))
    assert explain(one, graph, node).changes() is None
    grown = with_structural(graph, 2)
    theta = np.random.default_rng(1).normal(size=(9, 2))
    model = TrainedModel(config, {"theta": theta}, 9, ("a", "b"), grown.feature_names)
    report = explain(model, grown, node).changes(range(9))
    assert report.checked == 5  # nobody gives a node another degree
    isolated = int(np.flatnonzero(np.diff(graph.adjacency.indptr) == 0)[0])
    config = model_config("sgc", 1, "adjacency")
    model = TrainedModel(config, {"theta": theta[:5]}, 5, ("a", "b"))
    assert explain(model, graph, isolated).changes(range(5)).found == ()


def test_what_is_tried_does_not_follow_from_what_is_listed(graphs):
    graph = graphs(dtype=np.float32)
    graph = Graph(graph.adjacency, graph.features)
    config = model_config("lgc", 2, "renormalized", "monomial", bias=True)
    trained = untrained(config, graph, 1, tuple("abc"))
    explanations = [explain(trained, graph, node) for node in range(graph.num_nodes)]
    reports = [[e.summary(top).changes for top in (0, 1, 20)] for e in explanations]
    assert any(first.found for first, *_ in reports)
    assert all(first == one for first, *others in reports for one in others)


@pytest.mark.parametrize("gap", [1e-3, 1e-5, 1e-7])
def test_a_third_class_close_behind_the_border(gap):
    """Rounding must not step over the class that comes first."""
    features = np.array([[0.0], [1.5]])  # no flag
    graph = Graph.from_edges([], features)
    weights = {"theta": np.array([[0.0, 1.0, 1e4]])}
    weights["bias"] = np.array([np.pi, 0.0, -np.pi * (1e4 - 1) - 1e4 * gap])
    config = model_config("sgc", 0, bias=True)
    trained = TrainedModel(config, weights, 1, ("a", "b", "c"))
    (found,) = explain(trained, graph, 0).changes([0]).found
    logits = trained.logits(Graph.from_edges([], [[found.to], [1.5]]))[0]
    assert found.becomes == trained.class_names[int(logits.argmax())] != "a"


def test_the_text_missing_may_be_a_category():
    own = np.array([1.0, 0.0])
    town = Cell(0, 0, TextColumn("town", values=("Ulm", "missing")))
    assert town.changed(own, "missing").tolist() == [0.0, 1.0]
    assert town.changed(own, None).tolist() == [0.0, 0.0]
    plain = Cell(0, 0, TextColumn("town", values=("Ulm", "Bonn")))
    assert plain.changed(own, "missing").tolist() == [0.0, 0.0]
