"""Pictures of models: the curves are the filters, the counts those of scikit-learn."""

import numpy as np
import pytest
from sklearn.calibration import calibration_curve
from sklearn.metrics import confusion_matrix, r2_score

from hoplite import ConfigError, Graph, GraphError, train
from hoplite.engine.spectrum import basis_values
from hoplite.tasks.evaluation import calibration_error

pytest.importorskip("plotly.graph_objects")


def curves(figure, axis):
    return {t.name: t for t in figure.data if t.yaxis == axis and t.name != "density"}


def test_a_curve_for_each_class(graph, trained):
    found = trained["jacobiconv"].model
    figure = found.plot_filter(graph)
    drawn, hops = curves(figure, "y"), curves(figure, "y2")
    assert len(drawn) == len(hops) == graph.num_classes
    theta, maps = found.weights["theta"], found.maps_
    for c, (curve, coefficients) in enumerate(zip(drawn.values(), hops.values(), strict=True)):
        own = maps[:, :, c] / theta[:, c]  # Theta_i = Theta diag(a_i), so all features agree
        np.testing.assert_allclose(own, own[:, :1].repeat(own.shape[1], 1), rtol=1e-3)
        np.testing.assert_allclose(coefficients.y, own[:, 0], rtol=1e-3)
        values = basis_values(found.config.basis, found.config.operator, np.array(curve.x), 3)
        np.testing.assert_allclose(curve.y, values @ np.array(coefficients.y), rtol=1e-4)
    (density,) = (t for t in figure.data if t.name == "density")
    assert density.yaxis not in ("y", "y2")
    assert np.trapezoid(density.y, density.x) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("nodes", ["train", "val", "test", "all", "mask"])
def test_confusion_and_reliability_are_those_of_scikit_learn(nodes, graph, trained):
    found, known = trained["lgc"].model, graph.labels >= 0
    chosen = {
        "train": graph.split.train, "val": graph.split.val, "test": graph.split.test,
        "all": np.flatnonzero(known), "mask": np.flatnonzero(np.arange(graph.num_nodes) % 3 == 0),
    }[nodes]  # fmt: skip
    given = np.isin(np.arange(graph.num_nodes), chosen) if nodes == "mask" else nodes
    chosen = chosen[known[chosen]]
    labels, proba = graph.labels[chosen], found.predict_proba(graph)[chosen]
    figure = found.plot_confusion(graph, given)
    expected = confusion_matrix(labels, proba.argmax(axis=1), labels=range(4))
    (drawn,) = figure.data
    shares = expected / np.maximum(expected.sum(axis=1, keepdims=True), 1)
    np.testing.assert_allclose(np.array(drawn.z), shares)
    assert [[int(t) for t in row] for row in drawn.text] == expected.tolist()
    assert figure.layout.yaxis.autorange == "reversed"  # the first class at the top

    _, points = found.plot_reliability(graph, given).data
    sure, right = proba.max(axis=1).astype(float), proba.argmax(axis=1) == labels
    true, predictions = calibration_curve(right, sure, n_bins=15)
    np.testing.assert_allclose(points.x, predictions, rtol=1e-6)
    np.testing.assert_allclose(points.y, true, rtol=1e-6)
    counts = np.array([int(c) for c in points.customdata])
    assert counts.sum() == len(chosen)
    gap = (counts * np.abs(np.array(points.x) - np.array(points.y))).sum() / len(chosen)
    assert gap == pytest.approx(calibration_error(labels, proba))


def test_nodes_that_do_not_exist_are_refused(graph, trained):
    n = graph.num_nodes
    for nodes in ([0, n], np.ones(n + 1, bool)):
        with pytest.raises(GraphError, match=f"from 0 to {n - 1}, or a mask of {n} values"):
            trained["lgc"].model.plot_confusion(graph, nodes)


def test_numbers_are_drawn_beside_the_true_ones(graph):
    values = np.where(graph.labels < 0, np.nan, 10.0 ** np.maximum(graph.labels, 0) - 3)
    numbers = Graph(graph.adjacency, graph.features, values, graph.split)
    result = train(numbers, "sgc", hops=1, epochs=30, lr=0.1, task="regression")
    for draw in (result.plot_confusion, result.plot_reliability):
        with pytest.raises(ConfigError, match=r"for regression; use plot_predicted\."):
            draw()
    predictions = result.model.predict(numbers)
    for part in ("val", "test"):
        nodes = getattr(graph.split, part)
        for drawn in (result.plot_predicted(part), result.model.plot_predicted(numbers, part)):
            line, points = drawn.data
            np.testing.assert_array_equal(points.x, values[nodes])
            np.testing.assert_allclose(points.y, predictions[nodes], rtol=1e-5)
            ends = [*values[nodes], *predictions[nodes]]
            np.testing.assert_allclose(line.x, [min(ends), max(ends)], rtol=1e-5)
            assert line.x == line.y
            r2 = r2_score(values[nodes], predictions[nodes])
            assert f"R² {r2:.3f}, mean error" in drawn.layout.title.text.replace("<br>", " ")
    with pytest.raises(GraphError, match=r"are for classification, .* trained for regression"):
        result.model.plot_predicted(graph)


def test_several_labels_have_a_curve_each(graph):
    rng = np.random.default_rng(4)
    several = (rng.random((graph.num_nodes, 4)) < [0.7, 0.4, 0.2, 0.05]).astype(np.int8)
    several[:, 0] |= several[:, 3]
    several[graph.labels < 0] = -1
    names = [*graph.class_names[:2], "c", "d"]
    tagged = graph.with_labels(several, names).with_split(graph.split)
    result = train(tagged, "lgc", hops=1, epochs=40, lr=0.1)
    with pytest.raises(ConfigError, match=r"for multilabel; use plot_reliability\."):
        result.plot_confusion()
    with pytest.raises(ConfigError, match="plot_predicted is not available"):
        result.model.plot_predicted(tagged)
    nodes = graph.split.test
    chance, inside = result.model.predict_proba(tagged)[nodes], several[nodes] == 1
    often = np.argsort(-inside.sum(axis=0), kind="stable")
    for drawn in (result.plot_reliability(), result.model.plot_reliability(tagged)):
        _, *curves = drawn.data
        assert len(curves) == 4
        for c, curve in zip(often, curves, strict=True):
            true, predictions = calibration_curve(inside[:, c], chance[:, c], n_bins=15)
            np.testing.assert_allclose(curve.x, predictions, rtol=1e-5)
            np.testing.assert_allclose(curve.y, true, rtol=1e-5)
            assert sum(int(one.split(", ")[-1]) for one in curve.customdata) == len(nodes)
        assert "<b>" not in "".join(curve.name for curve in curves)  # names are only text
