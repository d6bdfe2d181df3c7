"""Models on disk: what is saved comes back, and nothing else is taken for a model."""

import dataclasses
import hashlib
import json
import math
import os
import re
import threading

import numpy as np
import pytest
from safetensors.numpy import save as save_arrays
from tests import pyg

from hoplite import Graph, HopliteWarning, ModelFileError, TrainedModel
from hoplite.models import MODELS, all_settings, build_model, model_config
from hoplite.models.alignment import check_classes, labels_in
from hoplite.nets.hlgc import GATES

CONFIGS = [
    model_config("sgc", 2),
    model_config("egc", 3, "laplacian", start="lowpass"),
    model_config("lgc", 3, "adjacency", "chebyshev", bias=True, standardize=True),
    *[model_config("hlgc", 2, gate=gate) for gate in GATES],
    model_config("gcn", hidden=4),
    model_config("gat", hidden=4, heads=2),
]


def untrained(config, graph, seed=0):
    model = build_model(config, graph.num_features, graph.num_classes)
    weights = model.initial(np.random.default_rng(seed))
    names = ("a", "b", "c")
    return TrainedModel(config, weights, graph.num_features, names, None, {"seed": seed})


def names_in(folder):
    """The names, without the digests."""
    return sorted(re.sub(r"-[0-9a-f]{16}\.", ".", path.name) for path in folder.iterdir())


def weights_of(folder):
    (path,) = folder.glob("weights-*.safetensors")
    return path


def result_of(folder):
    (path,) = folder.glob("result-*.json")
    content = json.loads(path.read_text())
    del content["checksum"]
    return content


def replace_weights(folder, data):
    """Other weights, and a configuration that knows them."""
    digest = hashlib.sha256(data).hexdigest()
    weights_of(folder).unlink()
    (folder / f"weights-{digest[:16]}.safetensors").write_bytes(data)
    _edit_config(weights_sha256=digest)(folder)


def with_names(graph, features=None, classes=None):
    """The graph with other names and no split."""
    return Graph(
        graph.adjacency,
        graph.features,
        graph.labels if classes else None,
        class_names=classes,
        feature_names=features,
    )


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{c.model}-{c.variant}")
def test_round_trip(graphs, tmp_path, config):
    if config.model == "gat":
        pyg.layers()
    graph = graphs(dtype=np.float32)
    model = untrained(config, graph)
    back = TrainedModel.load(model.save(tmp_path / "deep" / "model"))
    assert back.config == config
    assert back.class_names == ("a", "b", "c")
    assert back.training == {"seed": 0}
    np.testing.assert_array_equal(back.logits(graph), model.logits(graph))
    np.testing.assert_array_equal(back.predict(graph), model.logits(graph).argmax(1))
    odds = np.exp(model.logits(graph))
    np.testing.assert_allclose(back.predict_proba(graph), odds / odds.sum(1, keepdims=True), 1e-5)
    assert names_in(tmp_path / "deep" / "model") == ["config.json", "weights.safetensors"]
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["model"]


def test_existing_folder_is_kept_unless_overwritten(graphs, tmp_path):
    graph = graphs()
    first, second = (untrained(model_config("lgc", 2), graph, seed) for seed in (1, 2))
    first.save(tmp_path / "m", result={"figure": 1})
    with pytest.raises(ModelFileError, match="already exists"):
        second.save(tmp_path / "m")
    assert TrainedModel.load(tmp_path / "m").training == {"seed": 1}
    (tmp_path / "link").symlink_to(tmp_path / "m")
    second.save(tmp_path / "link", overwrite=True)
    assert (tmp_path / "link").is_symlink()
    assert TrainedModel.load(tmp_path / "m").training == {"seed": 2}
    assert names_in(tmp_path / "m") == ["config.json", "weights.safetensors"]  # no old result


def test_foreign_files_are_never_replaced(graphs, tmp_path):
    model = untrained(model_config("lgc", 2), graphs())
    model.save(tmp_path / "m")
    (tmp_path / "m" / "notes.txt").write_text("mine")
    with pytest.raises(ModelFileError, match=r"contains 'notes\.txt'"):
        model.save(tmp_path / "m", overwrite=True)
    with pytest.raises(ModelFileError, match="is a file"):
        model.save(tmp_path / "m" / "notes.txt", overwrite=True)
    with pytest.raises(ModelFileError, match="not a writable folder"):
        model.save(tmp_path / "m" / "notes.txt" / "deeper")


def test_what_a_kill_left_blocks_nothing(graphs, tmp_path):
    old, new = (untrained(model_config("lgc", 2), graphs(), seed) for seed in (1, 2))
    left = ("weights-0123456789abcdef.safetensors", "result-0123456789abcdef.json")
    for name in (*left, ".config.json.tmp", ".config.json.0123456789abcdef.tmp"):
        (tmp_path / name).write_text("half")
    assert TrainedModel.load(old.save(tmp_path)).training == {"seed": 1}
    assert names_in(tmp_path) == ["config.json", "weights.safetensors"]
    (tmp_path / left[0]).write_text("half")
    assert TrainedModel.load(tmp_path).training == {"seed": 1}
    assert TrainedModel.load(new.save(tmp_path, overwrite=True)).training == {"seed": 2}
    assert names_in(tmp_path) == ["config.json", "weights.safetensors"]


def test_full_disk_leaves_what_was_there(graphs, tmp_path, monkeypatch):
    graph = graphs()
    untrained(model_config("lgc", 2), graph, 1).save(tmp_path / "m")
    monkeypatch.setattr(os, "fsync", _disk_full)
    for name in ("m", "fresh"):
        with pytest.raises(ModelFileError, match=r"cannot write the model to .*: No space"):
            untrained(model_config("lgc", 2), graph, 2).save(tmp_path / name, overwrite=True)
    monkeypatch.undo()
    assert TrainedModel.load(tmp_path / "m").training == {"seed": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
    assert names_in(tmp_path / "m") == ["config.json", "weights.safetensors"]


def _disk_full(handle):
    raise OSError(28, "No space left on device")


def _cut_weights(folder):
    weights_of(folder).write_bytes(weights_of(folder).read_bytes()[:-7])


def _cut_config(folder):
    path = folder / "config.json"
    path.write_text(path.read_text()[:50])


def _edit_config(**changes):
    def edit(folder):
        path = folder / "config.json"
        config = json.loads(path.read_text())
        settings = {"model", *all_settings()}
        known = MODELS.get(str(changes.get("model", "lgc")), MODELS["lgc"])
        own = {"model"} | {field.name for field in dataclasses.fields(known.Settings)}
        config["model"] = {k: v for k, v in config["model"].items() if k in own}
        config["model"] |= {k: v for k, v in changes.items() if k in settings}
        config |= {k: v for k, v in changes.items() if k not in settings}
        del config["checksum"]  # as malice would
        path.write_text(json.dumps(config))

    return edit


def _edit_text(before, after):
    def edit(folder):
        path = folder / "config.json"
        text = path.read_text()
        assert before in text
        path.write_text(text.replace(before, after))

    return edit


def _edit_old(before, after):
    def edit(folder):
        _edit_config()(folder)
        _edit_text(before, after)(folder)

    return edit


def _weights_header(header):
    return lambda folder: replace_weights(folder, len(header).to_bytes(8, "little") + header)


def _in_place_of(name, make):
    def replace(folder):
        (path,) = folder.glob(name)
        path.unlink()
        make(path)

    return replace


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (_cut_weights, "truncated or belongs to another model"),
        (_cut_config, "config.json is damaged .Input data was truncated"),
        (_edit_text('"basis": "monomial"', '"basis": "chebyshev"'), "checksum does not match"),
        (lambda folder: weights_of(folder).unlink(), "cannot read"),
        (lambda folder: (folder / "config.json").unlink(), "not a model folder"),
        (_edit_config(hops=5), "do not fit model .lgc."),
        (_edit_config(operator="pickle"), "operator is 'pickle'"),
        (_edit_config(format=99), "config.json is damaged"),
        (_edit_config(weights_sha256="../x"), "config.json is damaged"),
        (_edit_config(class_names=["a"]), "5 features and 1 class"),
        (_edit_config(class_names=["a", None, "c"]), r"got `null` - at `\$.class_names"),
        (_edit_config(class_names=[]), "Expected `array` of length >= 1"),
        (_edit_config(num_features=99), "do not fit"),
        (_edit_config(num_features=10**30), r"\$.num_features"),
        (_edit_config(num_features=10**12), "do not fit"),
        (_edit_config(num_features=10**8, model="sgc", feature_names=None), "do not fit"),
        (_edit_config(num_features=65_000, model="hlgc", gate="node", hops=10**5), "do not fit"),
        (_edit_config(num_features=math.inf), "config.json is damaged"),
        (_edit_config(model="gcn", hidden=10**9), "hidden is 1000000000"),
        (_edit_config(model="gcn", hidden=10**6), "do not fit"),
        (_edit_config(model="gat", hidden=10**4, heads=10**4), "do not fit"),
        (_edit_config(hops=10**12), "hops is 1000000000000"),
        (_edit_config(hops=2.5), "hops is 2.5; it must be"),
        (_edit_config(model=["lgc"]), "damaged"),
        (_edit_config(training={"task": [None]}), "unknown task"),
        (
            _edit_config(model="mine", module="os"),
            "the model 'mine', which is unknown; import os",
        ),
        (_edit_config(model="os:system"), "model is 'os:system'; it must be one of"),
        (_edit_config(feature_names=["x"]), "1 names for 5 features"),
        (_edit_old('"hops"', '"stops"'), "no setting 'stops'"),
        (_edit_old('"a"', r'"\ud800"'), "config.json is damaged"),
        (_edit_old('"training"', '"drilling"'), "missing required field `training`"),
        (lambda folder: (folder / "config.json").write_text("[" * 200_000), "nested too deeply"),
        (_weights_header(b"{" * 100_000), "not a weights file"),
        (_weights_header(b'{"alpha":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}'), "not a"),
        (_weights_header(b"{}"), "do not fit"),
        (lambda folder: weights_of(folder).write_bytes(b"\xff" * 40), "truncated"),
        (_in_place_of("config.json", os.mkfifo), "it is not a regular file"),
        (_in_place_of("weights-*", os.mkfifo), "it is not a regular file"),
        (_in_place_of("weights-*", os.mkdir), "it is a folder"),
        (_in_place_of("config.json", lambda path: path.symlink_to("/dev/zero")), "not a regular"),
    ],
)
def test_damaged_folder(graphs, tmp_path, damage, sentence):
    folder = untrained(model_config("lgc", 2), graphs()).save(tmp_path / "m")
    damage(folder)
    with pytest.raises(ModelFileError, match=sentence):
        TrainedModel.load(folder)


@pytest.mark.parametrize("value", [math.nan, math.inf, 1, np.float16(1)])
def test_weights_must_be_finite_numbers(graphs, tmp_path, value):
    model = untrained(model_config("lgc", 2), graphs())
    folder = model.save(tmp_path / "m")
    weights = model.weights | {"alpha": np.full(3, value)}
    with pytest.raises(ModelFileError, match="'alpha' are not finite"):
        dataclasses.replace(model, weights=weights | {"alpha": np.full(3, math.nan)}).save(
            tmp_path / "fresh"
        )
    assert not (tmp_path / "fresh").exists()
    replace_weights(folder, save_arrays(weights))
    with pytest.raises(ModelFileError, match="contains weights that are not finite"):
        TrainedModel.load(folder)


def test_saves_at_the_same_time_do_not_mix(graphs, tmp_path):
    models = [untrained(model_config("lgc", 2), graphs(), seed) for seed in range(4)]
    models[0].save(tmp_path / "m", result={"seed": 0})
    failures, seen = [], []

    def save(model):
        try:
            for _ in range(8):
                model.save(tmp_path / "m", overwrite=True, result=model.training)
                seen.append(TrainedModel.load(tmp_path / "m").training["seed"])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=save, args=(model,)) for model in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(seen) == 32
    last = TrainedModel.load(tmp_path / "m")
    np.testing.assert_array_equal(
        last.weights["theta"], models[last.training["seed"]].weights["theta"]
    )
    assert result_of(tmp_path / "m") == last.training
    assert names_in(tmp_path / "m") == ["config.json", "result.json", "weights.safetensors"]


def test_graph_must_fit(graphs):
    model = untrained(model_config("lgc", 2), graphs())
    with pytest.raises(ModelFileError, match="trained on 5 features but the graph has 6"):
        model.predict(graphs(d=6))
    with pytest.raises(ModelFileError, match="has 3 classes but the graph has 4"):
        model.predict(graphs(classes=4))
    with pytest.raises(ModelFileError, match="has the class 'z', but the model was"):
        model.predict(with_names(graphs(), classes=["a", "z", "b"]))
    fewer = with_names(graphs(classes=2), classes=["c", "a"])
    assert model.predict(fewer).shape == (12,)
    assert model.predict(with_names(graphs())).shape == (12,)


@pytest.mark.parametrize("sparse", [False, True])
def test_features_are_found_by_name(graphs, sparse):
    graph = with_names(graphs(sparse=sparse), ["age", "town=x", "town=y", "town=z", "size"])
    model = dataclasses.replace(
        untrained(model_config("lgc", 2), graph), feature_names=graph.feature_names
    )
    expected = model.logits(graph)
    order = [4, 2, 0, 3, 1]
    moved = graph.with_features(graph.features[:, order], [graph.feature_names[j] for j in order])
    np.testing.assert_allclose(model.logits(moved), expected)
    # A category that is new counts as none, one that is missing as zero.
    names = ["age", "town=x", "town=y", "town=new", "size"]
    changed = graph.with_features(graph.features, names)
    with pytest.warns(HopliteWarning, match="has values of town that the model does not know"):
        found = model.logits(changed)
    without = model.weights | {"theta": model.weights["theta"].copy()}
    without["theta"][3] = 0
    np.testing.assert_allclose(found, dataclasses.replace(model, weights=without).logits(graph))
    with pytest.raises(ModelFileError, match="expects feature 'size', which the graph does not"):
        model.logits(graph.with_features(graph.features, [*names[:4], "height"]))
    more = graph.with_features(np.ones((12, 6)), ["pet=cat", *graph.feature_names])
    with pytest.raises(ModelFileError, match="has feature 'pet=cat', which the model does not"):
        model.logits(more)


def plain_graph(names=None, classes=None, labels=None):
    features = np.arange(24.0).reshape(6, 4) % 5
    edges = [(0, 5), (5, 2), (1, 3)]
    return Graph.from_edges(edges, features, labels, class_names=classes, feature_names=names)


def test_classes_by_name_by_number_and_unknown():
    labels, five = [0, 1, -1, 0, 1, 1], tuple("abcde")
    odd = plain_graph(classes=["c", "z"], labels=labels)
    for known, listed in ((five, "a, b, c, d, e"), ((*five, "f"), r"a, b, c, d, e, \.\.\.")):
        with pytest.raises(ModelFileError, match=rf"class 'z', but .* the classes {listed};"):
            check_classes(odd, known)
    named = plain_graph(classes=["c", "a"], labels=labels)
    assert labels_in(named, five).tolist() == [2, 0, -1, 2, 0, 0]
    numbered = plain_graph(labels=[0, 1, -1, 2, 1, 1])
    assert labels_in(numbered, ("x", "y", "z")).tolist() == [0, 1, -1, 2, 1, 1]
    assert labels_in(plain_graph(), five).tolist() == [-1] * 6
