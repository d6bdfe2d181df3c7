"""Models where a small mistake would go unnoticed elsewhere: first weights, one hop at a time,
names and counts in sentences, what stays after a save that failed."""

import dataclasses
import json
import math
import os

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from hoplite import ConfigError, Graph, HopliteWarning, ModelFileError, TrainedModel
from hoplite.models import ModelConfig, build_model
from hoplite.models.alignment import aligned_graph, check_classes, labels_in
from hoplite.models.base import glorot
from hoplite.models.egc import EGC
from hoplite.models.hlgc import run_matmul
from hoplite.propagation.dropout import Dropout
from hoplite.propagation.engine import KnownRows, Propagation


def drawn(shape, size, source):
    return (2 * torch.rand(shape, generator=source) - 1) / math.sqrt(size)


def initial(config, features=6, classes=3, seed=4):
    model = build_model(config, features, classes)
    return model.initial(torch.Generator().manual_seed(seed))


def plain_graph(names=None, classes=None, labels=None, sparse=False):
    features = np.arange(24.0).reshape(6, 4) % 5
    return Graph.from_edges(
        [(0, 5), (5, 2), (1, 3)],
        sp.csr_array(features) if sparse else features,
        labels,
        class_names=classes,
        feature_names=names,
    )


# ---- first weights


@pytest.mark.parametrize("model", ["sgc", "egc", "lgc"])
@pytest.mark.parametrize("bias", [False, True])
def test_first_weights_of_linear_models(model, bias):
    source = torch.Generator().manual_seed(4)
    expected = {"theta": drawn((6, 3), 3, source)}
    if model == "egc":
        expected["beta"] = drawn((), 5, source)
    if model == "lgc":
        expected["alpha"] = drawn((6,), 5, source)
    if bias:
        expected["bias"] = torch.zeros(3)
    found = initial(ModelConfig(model, 5, bias=bias))
    assert list(found) == list(expected)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value)


@pytest.mark.parametrize("operator", ["adjacency", "renormalized", "laplacian"])
def test_lowpass_starts_go_by_the_operator(operator):
    sign = -1 if operator == "laplacian" else 1
    alpha = initial(ModelConfig("lgc", 2, operator, start="lowpass"))["alpha"]
    torch.testing.assert_close(alpha, torch.tensor([1, sign * 0.8, 0.64]))
    assert initial(ModelConfig("egc", 2, operator, start="lowpass"))["beta"] == sign


@pytest.mark.parametrize("start", ["random", "lowpass"])
def test_first_weights_of_the_gates(start):
    for gate, inputs, outputs in (("class", 9, 3), ("feature", 9, 6)):
        source = torch.Generator().manual_seed(4)
        drawn((6, 3), 3, source)
        if gate == "class":
            drawn((4,), 3, source)
        weight, bias = drawn((inputs, outputs), inputs, source), drawn(outputs, inputs, source)
        found = initial(ModelConfig("hlgc", 3, gate=gate, start=start))
        first = found["gate_features" if gate == "class" else "gate_hop"]
        torch.testing.assert_close(torch.cat([first, found["gate_sum"]]), weight)
        assert first.shape == (6, outputs)
        expected = torch.ones(outputs) if start == "lowpass" else bias
        torch.testing.assert_close(found["gate_bias"], expected)
    source = torch.Generator().manual_seed(4)
    drawn((6, 3), 3, source)
    drawn((4,), 3, source)
    found = initial(ModelConfig("hlgc", 3, gate="node"))
    torch.testing.assert_close(found["gate_hidden"], drawn((4, 6, 3), 6, source))
    torch.testing.assert_close(found["gate_out"], drawn((4, 3), 3, source))
    narrow = initial(ModelConfig("hlgc", 0, gate="node"), features=1)
    assert narrow["gate_hidden"].shape == (1, 1, 1)


def test_first_weights_of_the_baselines():
    values = glorot(40, 14, torch.Generator().manual_seed(0))
    bound = math.sqrt(6 / 54)
    again = bound * (2 * torch.rand(40, 14, generator=torch.Generator().manual_seed(0)) - 1)
    torch.testing.assert_close(values, again)
    shapes = {name: tuple(v.shape) for name, v in initial(ModelConfig("gcn", hidden=5)).items()}
    assert shapes == {"hidden_weight": (6, 5), "hidden_bias": (5,), "weight": (5, 3), "bias": (3,)}
    gcn = initial(ModelConfig("gcn", hidden=5))
    assert not gcn["hidden_bias"].any()
    assert not gcn["bias"].any()
    gat = initial(ModelConfig("gat", hidden=5, heads=2))
    assert {name: tuple(value.shape) for name, value in gat.items()} == {
        "hidden_weight": (6, 10),
        "hidden_source": (2, 5),
        "hidden_target": (2, 5),
        "hidden_bias": (10,),
        "weight": (10, 3),
        "source": (1, 3),
        "target": (1, 3),
        "bias": (3,),
    }


# ---- EGC


def test_egc_hands_on_only_the_hops_that_matter():
    """Of 60 hops those of which float32 could see something, and one more for the slope."""

    class Seen:
        def evaluate(self, model, weights, dropout):
            return model.filtered(weights, self, dropout)

        def combine(self, theta, coefficients, dropout):
            self.coefficients = coefficients
            return theta

    for operator, norm in (("renormalized", 1), ("laplacian", 2)):
        model = build_model(ModelConfig("egc", 60, operator), 2, 2)
        assert isinstance(model, EGC)
        for rates in ([0.5], [0.01, 3.0], [0.0]):
            view = Seen()
            beta = torch.tensor(rates)
            model.logits({"theta": torch.zeros(len(rates), 2, 2), "beta": beta}, view)
            longest = []
            for run, rate in enumerate(rates):
                sizes = [float(np.float32(rate)) ** i / math.factorial(i) for i in range(61)]
                least = max(s * norm**i for i, s in enumerate(sizes)) * 2.0**-23 * 2.0**-16
                kept = [s * norm**i >= least for i, s in enumerate(sizes)]
                kept = [a or b for a, b in zip(kept, [False, *kept], strict=False)]
                found = view.coefficients[run]
                longest.append(max(i for i, k in enumerate(kept) if k) + 1)
                expected = [s if k else 0.0 for s, k in zip(sizes, kept, strict=True)]
                np.testing.assert_allclose(found, expected[: len(found)], rtol=1e-5)
                assert [v != 0 for v in found] == [e != 0 for e in expected[: len(found)]]
            assert view.coefficients.shape[1] == max(longest)
            assert max(longest) < 61


# ---- products of several runs


@pytest.mark.parametrize(("left", "right"), [(1, 1), (1, 3), (3, 3)])
def test_products_of_every_run(left, right):
    rng = torch.Generator().manual_seed(1)
    a = torch.randn(left, 5, 4, dtype=torch.float64, generator=rng)
    b = torch.randn(right, 4, 2, dtype=torch.float64, generator=rng)
    torch.testing.assert_close(
        run_matmul(a, b), torch.stack([a[r % left] @ b[r] for r in range(right)])
    )


@pytest.mark.parametrize("gate", ["node", "class", "feature"])
def test_gated_coefficients_hop_by_hop(graphs, gate):
    """alpha_i times its gate; times P_i and Theta they add up to the output."""
    graph = graphs(n=15, d=4, seed=2)
    config = ModelConfig("hlgc", 3, "laplacian", gate=gate)
    model = build_model(config, 4, 3)
    first = model.initial(torch.Generator().manual_seed(2))
    weights = {name: value.double().unsqueeze(0) for name, value in first.items()}
    view = Propagation(graph, "laplacian", hops=3).view(np.array([13, 2, 7, 0]))
    seen = []
    model.filtered(weights, view, None, seen.append)
    assert len(seen) == 4
    found = model.node_coefficients(weights, view)
    torch.testing.assert_close(found, seen)
    assert not any(one.requires_grad for one in found)
    output = model.filtered(weights, view, None)[:, 0]
    hops, theta = view.hop_features()[:, :, 0], weights["theta"][0]
    flat = [one.squeeze(1 if gate == "class" else 0) for one in found]
    if gate == "feature":
        parts = [(c * hop) @ theta for c, hop in zip(flat, hops, strict=True)]
    else:
        parts = [c * (hop @ theta) for c, hop in zip(flat, hops, strict=True)]
    torch.testing.assert_close(sum(parts), output)


def test_gcn_drops_hidden_units_of_a_layer_of_its_own(graphs, dense):
    graph = graphs(n=14, d=5)
    model = build_model(ModelConfig("gcn", hidden=8), 5, 3)
    weights = {
        name: value.double().unsqueeze(0)
        for name, value in model.initial(torch.Generator().manual_seed(0)).items()
    }
    weights["hidden_bias"] += 0.3
    propagation = Propagation(graph, hops=2)
    dropout = Dropout((0.5,), (3,), 8)
    found = model.logits(weights, propagation.view([4, 13]), dropout)[:, 0]
    operator = torch.from_numpy(dense.operator(graph, "renormalized"))
    dropped = propagation.features.dense(dropout, 0)
    hidden = torch.relu(operator @ dropped @ weights["hidden_weight"][0] + weights["hidden_bias"])
    hidden = hidden.view(14, 8)
    kept = dropout.layer(1).mask(torch.arange(14 * 8).view(14, 8), 0)
    outputs = operator @ (hidden * kept * 2) @ weights["weight"][0]
    torch.testing.assert_close(found, outputs[[4, 13]])


# ---- standardised outputs


def test_a_constant_column_is_standardised_to_zero():
    hops = torch.tensor([[[1.0, 2.0], [1.0, 5.0], [1.0, 11.0]]])
    model = build_model(ModelConfig("sgc", 0, standardize=True), 2, 2)
    logits = model.logits({"theta": torch.eye(2).unsqueeze(0)}, KnownRows(hops))[:, 0]
    assert logits[:, 0].tolist() == [0, 0, 0]
    np.testing.assert_allclose(logits[:, 1].mean(), 0, atol=1e-6)
    np.testing.assert_allclose(logits[:, 1].std(correction=0), 1, rtol=1e-6)


# ---- names


def test_counts_of_new_values_and_of_classes_are_said():
    graph = plain_graph(["age", "town=x", "town=new", "kind=a"])
    names = ("age", "town=x", "town=y", "kind=a")
    with pytest.warns(HopliteWarning, match="5 of 6 nodes have a value of town that"):
        found = aligned_graph(graph, 4, names)
    assert found.feature_names == names
    expected = np.array(graph.features)
    expected[:, 2] = 0
    np.testing.assert_array_equal(found.features, expected)
    same = plain_graph(names)
    assert aligned_graph(same, 4, names) is same
    two = plain_graph(["age", "town=x", "town=new", "kind=new"])
    with pytest.warns(HopliteWarning, match="6 of 6 nodes have a value of kind, town that"):
        aligned_graph(two, 4, names)


def test_names_are_only_compared_where_both_have_them():
    assert aligned_graph(plain_graph(), 4, ("a", "b", "c", "d")).num_features == 4
    assert aligned_graph(plain_graph(["a", "b", "c", "d"]), 4, None).num_features == 4
    with pytest.raises(ModelFileError, match="trained on 5 features but the graph has 4"):
        aligned_graph(plain_graph(["a", "b", "c", "d"]), 5, None)
    # "=" makes a name one-hot only if the other side has values of that column too
    with pytest.raises(ModelFileError, match="expects feature 'd=1'"):
        aligned_graph(plain_graph(["a", "b", "c", "d"]), 4, ("a", "b", "c", "d=1"))


@pytest.mark.parametrize("sparse", [False, True])
def test_features_in_another_order(sparse):
    graph = plain_graph(["a", "b", "c", "d"], sparse=sparse)
    found = aligned_graph(graph, 4, ("d", "a", "c", "b")).features
    expected = graph.features[:, [3, 0, 2, 1]]
    if sparse:
        found, expected = found.toarray(), expected.toarray()
    np.testing.assert_array_equal(found, expected)


def test_classes_by_name_by_number_and_unknown():
    five, six = tuple("abcde"), tuple("abcdef")
    odd = plain_graph(classes=["c", "z"], labels=[0, 1, -1, 0, 1, 1])
    with pytest.raises(ModelFileError, match=r"class 'z', which .* know \(a, b, c, d, e\);"):
        check_classes(odd, five)
    with pytest.raises(ModelFileError, match=r"know \(a, b, c, d, e, \.\.\.\);"):
        check_classes(odd, six)
    known = plain_graph(classes=["c", "a"], labels=[0, 1, -1, 0, 1, 1])
    assert labels_in(known, five).tolist() == [2, 0, -1, 2, 0, 0]
    numbered = plain_graph(labels=[0, 1, -1, 2, 1, 1])
    assert labels_in(numbered, ("x", "y", "z")).tolist() == [0, 1, -1, 2, 1, 1]
    check_classes(numbered, ("x", "y", "z", "w"))
    with pytest.raises(ModelFileError, match="knows 2 classes but the graph has 3"):
        check_classes(numbered, ("x", "y"))
    assert labels_in(plain_graph(), five).tolist() == [-1] * 6


# ---- a trained model


def untrained(config=None, seed=0, **more):
    config = config or ModelConfig("lgc", 2)
    weights = initial(config, 4, 3, seed)
    return TrainedModel(config, weights, 4, ("a", "b", "c"), training={"seed": seed}, **more)


def test_a_trained_model_says_what_it_is_and_stays_so():
    model = untrained(ModelConfig("lgc", 2, "laplacian"))
    assert repr(model) == "TrainedModel(lgc, 2 hops, laplacian, monomial, features=4, classes=3)"
    assert model.num_classes == 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        model.num_features = 5
    copy = model.coefficients_
    copy[:] = 9
    assert not (model.coefficients_ == 9).any()
    assert model != untrained(ModelConfig("lgc", 2, "laplacian"))
    hyper = untrained(ModelConfig("hlgc", 2))
    np.testing.assert_array_equal(hyper.coefficients_, hyper.weights["alpha"])


def test_probabilities_are_the_softmax_of_the_logits():
    model, graph = untrained(), plain_graph()
    logits = model.logits(graph)
    assert logits.shape == (6, 3)
    odds = np.exp(logits)
    np.testing.assert_allclose(model.predict_proba(graph), odds / odds.sum(1, keepdims=True))
    np.testing.assert_array_equal(model.predict(graph), logits.argmax(1))


def test_weights_that_do_not_fit_are_refused_before_anything_is_made(tmp_path):
    folder = untrained().save(tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())
    config.pop("checksum", None)
    for hops in (0, 1, 3):
        config["model"]["hops"] = hops
        (folder / "config.json").write_text(json.dumps(config))
        with pytest.raises(ModelFileError, match=f"do not fit a lgc model with {hops} hops?,"):
            TrainedModel.load(folder)


def test_names_and_result_come_back(tmp_path):
    names = ("w", "x", "y", "z")
    folder = untrained(feature_names=names).save(tmp_path / "m", result={"figure": 1})
    assert TrainedModel.load(folder).feature_names == names
    assert json.loads((folder / "result.json").read_text())["figure"] == 1
    untrained(seed=1).save(tmp_path / "m", overwrite=True, result={"figure": 2})
    assert json.loads((folder / "result.json").read_text())["figure"] == 2
    back = TrainedModel.load(folder)
    assert (back.feature_names, back.training) == (None, {"seed": 1})
    assert back.num_features == 4


def test_a_folder_that_is_not_a_models_is_left_alone(tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    untrained().save(empty)
    for name in ("config.json", "weights.safetensors"):
        one = tmp_path / f"only {name}"
        one.mkdir()
        (one / name).write_text("x")
        with pytest.raises(ModelFileError, match="holds a model already"):
            untrained().save(one)
        assert (one / name).read_text() == "x"
        untrained().save(one, overwrite=True)
        assert TrainedModel.load(one).training == {"seed": 0}


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_folders_that_may_not_be_used(tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(ModelFileError, match="is not a writable folder"):
        untrained().save(tmp_path / "locked" / "m")


def test_other_types_and_infinite_weights_are_refused(tmp_path):
    for alpha in (torch.ones(3, dtype=torch.float16), torch.tensor([0, torch.inf, 1])):
        model = untrained()
        model.weights["alpha"] = alpha
        with pytest.raises((ModelFileError, ConfigError)):
            TrainedModel.load(model.save(tmp_path / "m", overwrite=True))
