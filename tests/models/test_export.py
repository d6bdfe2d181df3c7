"""Exported models give the logits that Hoplite gives, in torch, ONNX Runtime and NumPy."""

import json

import numpy as np
import pytest
import torch
from tests.untidy import UNTRAINED

from hoplite import ConfigError, HopFeatures, train

pytestmark = pytest.mark.filterwarnings(f"{UNTRAINED}")


@pytest.mark.parametrize(
    "options",
    [
        {"model": "sgc", "hops": 2},
        {"model": "egc", "hops": 3, "bias": True},
        {"model": "lgc", "hops": 4, "basis": "chebyshev", "operator": "laplacian", "bias": True},
        {"model": "lgc", "hops": 0},
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


def test_what_is_no_linear_map_of_hops(graphs):
    graph = graphs(n=30, d=4, dtype=np.float32)
    for options, message in (
        ({"model": "hlgc", "hops": 1}, "a hlgc is no linear map"),
        ({"model": "gcn"}, "a gcn is no linear map"),
        ({"model": "sgc", "hops": 1, "standardize": True}, "standardises its outputs"),
    ):
        model = train(graph, **options, epochs=2).model
        with pytest.raises(ConfigError, match=message):
            model.to_arrays()
