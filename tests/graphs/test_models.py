"""Training, saving, explaining and estimating whole graphs, in Python and on the command line."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from typer.testing import CliRunner

import hoplite
from hoplite import GraphClassifier, GraphModel, GraphRegressor
from hoplite.cli import app
from hoplite.errors import ConfigError, GraphError, ModelFileError, SearchError
from hoplite.graph import Graph, Split
from hoplite.graphs import GraphSet, explain_graph, train_graphs, write_graphs
from hoplite.graphs.training import candidates_of

OPTIONS: dict[str, dict[str, Any]] = {
    "hops": {"hops": 2, "structure": "add", "operator": "renormalized"},
    "pool": {"hops": 1, "profile_bins": 1, "structure": "add"},
    "colours": {"depth": 2},
    "fourier": {"hops": 1, "count": 32},
}


@pytest.fixture(scope="module")
def models(small: GraphSet) -> dict[str, GraphModel]:
    return {name: train_graphs(small, name, **own).model for name, own in OPTIONS.items()}


@pytest.mark.parametrize("threshold", [0.5, 0.95])
@pytest.mark.parametrize("name", OPTIONS)
def test_parts_add_up_to_the_logit(small: GraphSet, name: str, threshold: float) -> None:
    model = train_graphs(small, name, threshold=threshold, **OPTIONS[name]).model
    logits, predicted = model.logits(small), model.predict(small)
    assert (predicted == logits.argmax(axis=1)).all() == (threshold == 0.5)
    for g in range(len(small)):
        alone = explain_graph(model, small, g, "dense", alone=True)
        assert alone.logit == pytest.approx(logits[g, 1], abs=1e-5)
        assert abs(alone.residual) < 1e-5
        lead = explain_graph(model, small, g)
        assert lead.class_ == lead.predicted == model.class_names[predicted[g]]
        assert lead.logit == pytest.approx(np.ptp(model.task.decisions(logits[g])), abs=1e-5)
        assert abs(lead.residual) < 1e-5
        if name != "pool":
            assert lead.parts is not None
            assert lead.parts.shape[1] == small.sizes[g]


@pytest.mark.skipif("HOPLITE_TU" not in os.environ, reason="needs the folder of the TU sets")
@pytest.mark.parametrize("name", ["PROTEINS", "NCI1"])
@pytest.mark.parametrize("family", ["hops", "colours"])
def test_parts_add_up_on_public_sets(name: str, family: str) -> None:
    graphs = hoplite.load_graphs(Path(os.environ["HOPLITE_TU"], f"{name}.npz"), split=0)
    model = train_graphs(graphs, family, test=False).model
    logits = model.logits(graphs)
    for g in graphs.table.split.test.tolist():
        alone = explain_graph(model, graphs, g, model.class_names[0], alone=True)
        assert alone.logit == pytest.approx(logits[g, 0], abs=1e-5)
        assert abs(alone.residual) < 1e-5


def test_names_are_escaped_in_pictures(small: GraphSet, models: dict[str, GraphModel]) -> None:
    ids = ["<script>"] + [f"n{i}" for i in range(1, small.num_nodes)]
    named = dataclasses.replace(small, node_ids=ids)
    page = explain_graph(models["hops"], named, 0).page()
    assert "<script>" not in page
    assert page.count("<circle") == small.sizes[0]


@pytest.mark.parametrize("name", OPTIONS)
def test_saved_models_predict_the_same(
    small: GraphSet, models: dict[str, GraphModel], name: str, tmp_path: Path
) -> None:
    models[name].save(tmp_path / "model")
    again = GraphModel.load(tmp_path / "model")
    np.testing.assert_array_equal(again.logits(small), models[name].logits(small))
    assert again.pooling.settings == models[name].pooling.settings


@pytest.mark.parametrize(
    ("old", "new"),
    [('"family": "colours"', '"family": "os"'), ('"depth": 2', '"depth": -1'),
     ('"tags": "A', '"tags": "B'), ('"tags": ', '"tag": '),
     ('"num_features": 5', '"num_features": "x"')],
)  # fmt: skip
def test_damaged_models_are_refused(
    models: dict[str, GraphModel], tmp_path: Path, old: str, new: str
) -> None:
    models["colours"].save(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    text = json.dumps(json.loads(path.read_text(encoding="utf-8")))
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises((ModelFileError, ConfigError)):
        GraphModel.load(tmp_path / "model")


@pytest.mark.parametrize(
    ("name", "state", "message"),
    [
        ("fourier", {"mean": np.zeros(1)}, "scales are not those of 10 columns"),
        ("colours", {"tags": np.array([99])}, "tags are columns that do not exist"),
        ("colours", {"colours": np.array([2, 1])}, "colours are not sorted"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    models: dict[str, GraphModel], tmp_path: Path, name: str, state: Any, message: str
) -> None:
    """With a checksum that fits them."""
    model, own = models[name], models[name].pooling
    wrong = type(own)(own.settings, own.num_features, own.state | state)
    dataclasses.replace(model, pooling=wrong).save(tmp_path / "model")
    with pytest.raises(ModelFileError, match=message):
        GraphModel.load(tmp_path / "model")


def test_auto_takes_the_lowest_validation_loss(small: GraphSet) -> None:
    grid = [{"model": "colours", "depth": [0, 1]}, {"model": "pool", "hops": [1]}]
    result = train_graphs(small, grid=grid)
    losses = [one.loss for one in result.candidates]
    assert losses == sorted(losses)
    assert len(losses) == 3
    assert result.model.pooling.name == result.candidates[0].family
    assert result.test_accuracy > 0.7
    assert result.summary()["candidates"]


def test_regression_and_several_labels(small: GraphSet) -> None:
    edges = np.array([small.graph(g).num_edges for g in range(len(small))], float)
    numbers = small.with_labels(edges).with_split(small.table.split)
    result = train_graphs(numbers, "hops", structure="add")
    assert result.metrics("test")["r2"].mean > 0.9
    many = np.column_stack([edges > 5, small.sizes > 6]).astype(int)
    both = small.with_labels(many).with_split(small.table.split)
    result = train_graphs(both, "hops", structure="add")
    assert result.model.predict(both).shape == (60, 2)


def test_classes_to_compare_are_checked(small: GraphSet, models: dict[str, GraphModel]) -> None:
    with pytest.raises(ConfigError, match="the explained class"):
        explain_graph(models["hops"], small, 3, "dense", against="dense")
    with pytest.raises(ConfigError, match="cannot be combined with against"):
        explain_graph(models["hops"], small, 3, against="dense", alone=True)
    many = np.column_stack([small.sizes > 4, small.sizes > 6]).astype(int)
    both = small.with_labels(many, ["large", "huge"]).with_split(small.table.split)
    model = train_graphs(both, "hops").model
    with pytest.raises(ConfigError, match="requires a classifier with one class"):
        explain_graph(model, both, 3, "large", against="huge")


def test_options_are_checked(small: GraphSet) -> None:
    wrong: dict[str, dict[str, Any]] = {"colours": {"hops": 3}, "hops": {"dept": 1}}
    wrong["auto"] = {"x": 1}
    for name, options in wrong.items():
        with pytest.raises(ConfigError):
            train_graphs(small, name, **options)
    with pytest.raises(ConfigError, match="model"):
        train_graphs(small, "hop")
    other = dataclasses.replace(small, features=small.features[:, :3])
    model = train_graphs(small, "hops").model
    with pytest.raises(ModelFileError, match="features"):
        model.logits(other)


def test_estimators(small: GraphSet) -> None:
    labels = np.array(["sparse", "dense"])[small.table.labels]
    scores = cross_val_score(GraphClassifier("pool", hops=1, structure="add"), small, labels, cv=3)
    assert scores.mean() > 0.75
    search = GridSearchCV(GraphClassifier("colours", folds=3), {"depth": [0, 1]}, cv=2)
    search.fit([small[g] for g in range(len(small))], labels)
    assert set(search.predict(small)) <= {"sparse", "dense"}
    steps = make_pipeline("passthrough", GraphClassifier("colours", folds=3))
    tuned = GridSearchCV(steps, {"graphclassifier__depth": [0, 1]}, cv=2).fit(small, labels)
    assert tuned.predict_proba(small).shape == (60, 2)
    fitted = GraphClassifier("hops", hops=1).fit(small, labels)
    np.testing.assert_allclose(fitted.predict_proba(small).sum(axis=1), 1)
    assert GraphRegressor("hops", structure="add").fit(small, small.sizes).score(
        small, small.sizes
    ) > 0.9  # fmt: skip


def test_estimators_take_a_set_with_other_class_names(small: GraphSet) -> None:
    fitted = GraphClassifier("hops", hops=1).fit(small, small.labels)
    assert set(fitted.predict(small)) <= {0, 1}
    assert fitted.score(small, small.labels) > 0.5


def test_auto_goes_on_after_a_candidate_that_fails(small: GraphSet) -> None:
    bare = dataclasses.replace(small, features=np.empty((small.num_nodes, 0), np.float32))
    failing = {"model": "hops", "hops": [1], "structure": ["none"]}
    result = train_graphs(bare, grid=[failing, {"model": "colours", "depth": [1]}])
    assert [one.family for one in result.candidates] == ["colours", "hops"]
    assert result.candidates[1].loss == np.inf
    assert result.summary()["candidates"]["hops hops=1 structure=none"] is None
    with pytest.raises(GraphError, match="no node features"):
        train_graphs(bare, grid=[failing])


@pytest.mark.parametrize(
    ("grid", "options", "message"),
    [
        ([], {}, "grid has nothing to try"),
        (3, {}, "grid has nothing to try"),
        ("colours", {}, "grid has nothing to try"),
        ({"model": "colours"}, {}, "grid has nothing to try"),
        ([{"depth": [1]}], {}, "grid has nothing to try"),
        ([{"model": "colours", "depth": []}], {}, "grid has nothing to try"),
        ([{"model": ["colours"]}], {}, "model is"),
        ([{"model": "colours", "dept": 1}], {}, "'dept' is not a setting of colours; the settings"),
        ([{"model": "hops", "hops": [1]}], {"depth": 4}, "'depth' is not a setting of hops"),
        (None, {"dept": 4}, "Did you mean 'depth'"),
        ([{"model": "hops"}], {"model": "hops"}, "grid requires model='auto'"),
    ],
)
def test_a_wrong_grid_is_refused(small: GraphSet, grid, options, message) -> None:
    with pytest.raises(ConfigError, match=message):
        train_graphs(small, grid=grid, **options)


def test_a_grid_may_have_single_values() -> None:
    grid = [{"model": "colours", "depth": 1}, {"model": "pool", "structure": "add", "hops": (0, 1)}]
    titles = [one.title for one in candidates_of(grid, {})]
    assert titles == ["colours depth=1", "pool hops=0 structure=add", "pool hops=1 structure=add"]


@pytest.mark.parametrize("value", [0.0, 0.1, 1e3])
def test_constant_columns_have_no_effect(value: float) -> None:
    same = Graph.from_edges([(0, 1), (1, 2)], np.full((3, 2), value, np.float32))
    labels = [0, 1, 1] * 10
    graphs = GraphSet.from_graphs([same] * 30, labels, split=Split(range(18), range(18, 30)))
    for family in ("hops", "pool"):
        found = train_graphs(graphs, family, calibrate=False).model.predict_proba(graphs)
        np.testing.assert_allclose(found[:, 1], 2 / 3, atol=1e-3)


def test_commands(small: GraphSet, tmp_path: Path) -> None:
    ids = [f"g{i}" for i in range(len(small))]
    data = str(tmp_path / "small.npz")
    write_graphs(data, dataclasses.replace(small, graph_ids=ids))

    def run(*words: str) -> str:
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.output
        return result.stdout

    model, table = str(tmp_path / "model"), tmp_path / "table.csv"
    words = ("--model", "colours", "--depth", "1", "--task", "graphs", "--json")
    summary = json.loads(run("train", data, "--out", model, *words))
    assert summary["model"] == "colours"
    assert summary["graphs"] == 60
    assert summary["config"]["model"] == "colours"
    assert summary["config"]["depth"] == 1
    assert "hops" not in summary["config"]
    found = json.loads(run("search", data, "--model", "colours", "--out", f"{model}s", "--json"))
    assert found["config"]["model"].startswith("colours")
    assert found["command"].startswith(f"hoplite train {data} --model colours --depth")
    run("predict", model, data, "--out", str(table), "--proba")
    lines = table.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("id,predicted,probability")
    assert len(lines) == 61
    page = tmp_path / "page.html"
    words = ("--graph", "g3", "--out", str(page), "--json")
    found = json.loads(run("explain", model, data, *words))
    assert found["graph"] == "g3"
    assert abs(found["residual"]) < 1e-5
    assert "<svg" in page.read_text(encoding="utf-8")
    described = run("explain", model, data, "--graph", "g3", "--graph", "g1", "g2")
    assert all(f"graph: {name}," in described for name in ("g1", "g2", "g3"))
    for wrong in (("explain", model, data, "--node", "3"), ("train", "cora", "--depth", "1")):
        assert CliRunner().invoke(app, wrong).exit_code != 0


def test_a_server_answers_about_graphs(small: GraphSet, models: dict[str, GraphModel]) -> None:
    pytest.importorskip("fastapi")
    from hoplite.serve.answers import Answers

    ids = [f"g{i}" for i in range(len(small))]
    graphs = dataclasses.replace(small, graph_ids=ids, split=Split())
    answers = Answers(models["colours"].head, models["colours"].pooled(graphs))
    logits = models["colours"].logits(small)[7]
    names = ["sparse", "dense"]
    assert answers.node("g7").prediction.predicted == names[int(logits.argmax())]
    why = answers.explanation("g7", None, None)
    assert why.margin == pytest.approx(abs(logits[1] - logits[0]), abs=1e-5)


def test_a_search_takes_the_best_candidate_and_is_continued(
    small: GraphSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = {"colours": {"depth": [0, 1]}, "pool": {"hops": 1, "structure": ["none", "add"]}}
    result = hoplite.search(small, grid=grid, out=tmp_path, workers=1)
    same = train_graphs(small, "pool", hops=1, structure="add", test=False)
    titles = [one.options["model"] for one in result.ranking]
    assert len(titles) == 4
    losses = [one.val_loss for one in result.ranking]
    assert losses == sorted(losses)
    if titles[0] == "pool hops=1 structure=add":
        np.testing.assert_array_equal(result.model.logits(small), same.model.logits(small))
    assert result.test_accuracy > 0.7
    assert len(hoplite.search(small, grid=grid, samples=3).ranking) == 3
    several = [{"model": name} | own for name, own in grid.items()]
    listed = hoplite.search(small, grid=several, workers=1)
    assert [one.options["model"] for one in listed.ranking] == titles
    assert len(hoplite.search(small, "colours", grid=[{"depth": 0}, {"depth": 1}]).ranking) == 2
    for wrong in ([{"depth": [1]}], ["colours"], [], {}, 3):
        with pytest.raises(ConfigError, match=r"\[{'model': 'colours', 'depth': \[1, 2\]}\]"):
            hoplite.search(small, grid=wrong)
    for name in ("compare", "train_graphs"):  # nothing is trained again
        monkeypatch.setattr(sys.modules["hoplite.search.graphs"], name, None)
    again = hoplite.search(small, grid=grid, out=tmp_path)
    assert again.summary() == result.summary() | {"minutes": again.summary()["minutes"]}
    loaded = GraphModel.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.logits(small), result.model.logits(small))
    with pytest.raises(ConfigError, match="protocol"):
        hoplite.search(small, protocol="test")
    with pytest.raises(SearchError, match="another data"):
        hoplite.search(small.with_split(Split(range(60))), grid=grid, out=tmp_path)


def test_a_search_on_many_graphs_trains_as_train_does(
    small: GraphSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("graphs.training", "training.fit"):
        monkeypatch.setattr(sys.modules[f"hoplite.{module}"], "MAX_FOLDED", 40)
    many = small.with_split(None)
    found = hoplite.search(many, grid={"colours": {"depth": [2]}}, workers=1)
    expected = train_graphs(many, grid=[{"model": "colours", "depth": [2]}])
    assert found.best.val_loss == pytest.approx(expected.candidates[0].loss)
    assert found.trained.training_config.refit
    np.testing.assert_array_equal(found.model.logits(small), expected.model.logits(small))
