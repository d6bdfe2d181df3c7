"""Exported models give the logits that Hoplite gives, in torch, ONNX Runtime and NumPy."""

import json

import numpy as np
import pytest
import torch
from tests.training.test_monitor import rare
from tests.untidy import UNTRAINED

from hoplite import ConfigError, Graph, HopFeatures, LGCRegressor, train

pytestmark = pytest.mark.filterwarnings(f"{UNTRAINED}")


@pytest.mark.parametrize(
    "options",
    [
        {"model": "sgc", "hops": 2},
        {"model": "egc", "hops": 3, "bias": True},
        {"model": "lgc", "hops": 4, "basis": "chebyshev", "operator": "laplacian", "bias": True},
        {"model": "lgc", "hops": 0},
        {"model": "blocks", "hops": 3, "basis": "chebyshev", "bias": True},
    ],
    ids=lambda options: f"{options['model']} {options['hops']}",
)
def test_exports_agree(graphs, tmp_path, options):
    graph = graphs(n=40, d=6, dtype=np.float32, seed=3)
    model = train(graph, **options, epochs=5).model
    about = {name: getattr(model.config, name) for name in ("hops", "operator", "basis")}
    nodes = np.random.default_rng(0).permutation(40)[:17]
    hops = HopFeatures(graph, **about, stack=True).fit_transform(nodes)
    wanted = model.logits(graph)[nodes]
    arrays = model.to_arrays()
    np.testing.assert_allclose(hops @ arrays["weight"] + arrays["bias"], wanted, atol=1e-5)
    with torch.no_grad():
        np.testing.assert_allclose(model.to_torch()(torch.from_numpy(hops)), wanted, atol=1e-5)
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    model.to_onnx(tmp_path / "model.onnx")
    session = runtime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(["logits"], {"hops": hops})[0], wanted, atol=1e-5)
    facts = session.get_modelmeta().custom_metadata_map
    assert json.loads(facts["class_names"]) == list(model.class_names)
    assert json.loads(facts["basis"]) == about["basis"]


def test_numbers_are_exported_in_their_units_and_thresholds_beside_the_logits(tmp_path):
    rng = np.random.default_rng(2)
    graph = Graph.from_edges(rng.integers(0, 60, (150, 2)), rng.standard_normal((60, 4)))  # float64
    values, nodes = 5000 + 300 * rng.standard_normal(60), rng.permutation(60)
    regressor = LGCRegressor(graph, hops=2, bias=True, epochs=20).fit(
        nodes[:40], values[nodes[:40]]
    )
    two = rare(1)
    options = {"hops": 1, "dropout": 0, "lr": 0.05, "bias": True, "monitor": "auc"}
    model = train(two, "lgc", threshold="balanced", **options).model
    exported = []
    for one, data in ((regressor.model_, graph), (model, two)):
        about = {name: getattr(one.config, name) for name in ("hops", "operator", "basis")}
        hops = HopFeatures(data, **about, stack=True).fit_transform(np.arange(data.num_nodes))
        hops, arrays, wanted = hops.astype(np.float32), one.to_arrays(), one.predict(data)
        module = one.to_torch()
        with torch.no_grad():
            outputs = module(torch.from_numpy(hops)).numpy()
        np.testing.assert_allclose(
            hops @ arrays["weight"] + arrays["bias"], outputs, rtol=1e-4, atol=1e-5
        )
        if one is model:
            assert (outputs.argmax(axis=1) != wanted).any()  # the threshold matters
            np.testing.assert_array_equal((outputs - arrays["shift"]).argmax(axis=1), wanted)
            np.testing.assert_array_equal(module.shift, arrays["shift"])
        else:
            np.testing.assert_allclose(outputs[:, 0], wanted, rtol=1e-5)
        exported.append((one, hops, outputs))
    runtime = pytest.importorskip("onnxruntime")
    for one, hops, outputs in exported:
        one.to_onnx(tmp_path / "model.onnx")
        found = runtime.InferenceSession(
            tmp_path / "model.onnx", providers=["CPUExecutionProvider"]
        )
        np.testing.assert_allclose(
            found.run(None, {"hops": hops})[0], outputs, rtol=1e-4, atol=1e-5
        )
        facts = found.get_modelmeta().custom_metadata_map
        assert json.loads(facts["task"]) == one.task.name
        assert json.loads(facts["task_state"]) == json.loads(json.dumps(one.task.state()))
        assert ("shift" in facts) == one.task.has_classes


def test_what_is_no_linear_map_of_hops(graphs):
    graph = graphs(n=30, d=4, dtype=np.float32)
    for options, message in (
        ({"model": "hlgc", "hops": 1}, "model 'hlgc' is not a linear map"),
        ({"model": "gcn"}, "model 'gcn' is not a linear map"),
        ({"model": "sgc", "hops": 1, "standardize": True}, "standardises its outputs"),
    ):
        model = train(graph, **options, epochs=2).model
        with pytest.raises(ConfigError, match=message):
            model.to_arrays()
