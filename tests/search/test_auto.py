"""auto: the same choice for the same trials, whatever happens; test nodes decide nothing."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score

import hoplite
from hoplite.errors import ConfigError, GraphError, GridError, SearchError
from hoplite.graph import Graph, Split
from hoplite.search.auto import decide, list_candidates
from hoplite.search.trials import FILE
from hoplite.training.comparison import Candidate, standard_error
from hoplite.training.runs import OutOfTimeError, _limit, time_limit

module = sys.modules["hoplite.search.auto"]  # the package's name of it is the function's
sampling = sys.modules["hoplite.search.sample"]
pytestmark = pytest.mark.filterwarnings("ignore:.*no better than:hoplite.HopliteWarning")
FEW = {"seeds": 2, "epochs": 12}
CANDIDATES = """
[[try]]
model = "sgc"
hops = 0
lr = 0.05
weight_decay = [1e-5, 5e-3]
[[try]]
model = "ppr"
hops = [3, 6]
lr = 0.05
dropout = [0.0, 0.5]
weight_decay = [1e-5, 5e-3]
[[try]]
model = "lgc"
hops = 3
lr = [0.2, 0.02]
"""


@pytest.fixture
def graph(graphs) -> Graph:
    return graphs(n=60, d=6, classes=3, seed=3, dtype=np.float32)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "candidates.toml"
    path.write_text(CANDIDATES)
    return path


def facts(result: hoplite.AutoResult) -> dict:
    """All that must be the same again: everything but times."""
    found = result.summary()
    for one in [*found["candidates"], found["rival"]]:
        del one["seconds"]
    names = ("chosen", "options", "why", "trials", "candidates", "rival")
    scores = [run.scores["val_accuracy"] for run in result.trained.runs]
    return {name: found[name] for name in names} | {"val": scores}


def test_the_same_trials_give_the_same_choice(graph, file):
    result, again = (hoplite.auto(graph, trials=12, candidates=file, **FEW) for _ in range(2))
    assert facts(result) == facts(again)
    assert [one.chosen for one in result.candidates].count(True) == 1
    values = [one.val for one in result.candidates]
    assert values == sorted(values)  # losses
    assert result.model.config.model == result.chosen.model
    assert result.test_accuracy == result.trained.test_accuracy
    some = hoplite.auto(graph, trials="1,4,9", candidates=file, **FEW)
    assert (some.trials, len(some.candidates)) == ("1,4,9", 3)


def test_one_candidate_is_named_by_its_number(graph, file):
    for _ in range(2):
        result = hoplite.auto(graph, trials="3,", candidates=file, **FEW)
        assert ([one.position for one in result.candidates], result.trials) == ([3], "3,")
    with pytest.raises(ConfigError, match="99, but there are 12 candidates"):
        hoplite.auto(graph, trials="3,99", candidates=file)


def test_test_labels_decide_nothing(graph, file):
    rng, labels = np.random.default_rng(0), graph.labels.copy()
    labels[graph.split.test] = rng.permutation(labels[graph.split.test])
    other = graph.with_labels(labels).with_split(graph.split)
    none = graph.with_split(Split(graph.split.train, graph.split.val))
    first, *others = (
        hoplite.auto(g, trials=5, candidates=file, **FEW) for g in (graph, other, none)
    )
    for one in others:
        assert facts(one) == facts(first)
    assert math.isnan(others[1].test_accuracy)


def test_the_model_of_a_trial_is_that_of_train(graph, tmp_path):
    """A solved model is not trained again; its test scores are those of train."""
    path = tmp_path / "c.toml"
    path.write_text("[[try]]\nmodel = 'ppr'\nhops = 4\n")
    result = hoplite.auto(graph, trials=1, candidates=path)
    whole = hoplite.train(graph, "ppr", hops=4)
    assert result.test_accuracy == whole.test_accuracy
    np.testing.assert_array_equal(result.model.logits(graph), whole.model.logits(graph))
    assert result.model.training["split"] == whole.model.training["split"]


def test_without_validation_nodes_folds_choose(graph, file):
    nodes = np.concatenate([graph.split.train, graph.split.val])
    folded = graph.with_split(Split(nodes, test=graph.split.test))
    result = hoplite.auto(folded, trials=3, candidates=file, **FEW)
    assert result.trained.out_of_fold
    assert result.rival is not None
    with pytest.raises(GraphError, match="no val nodes"):
        hoplite.auto(graph.with_split(Split(graph.split.train[:5])), trials=3)
    with pytest.raises(ConfigError, match="only folds can compare"):
        hoplite.auto(folded, trials=2, folds=0)


def test_the_standard_error_is_that_of_paired_nodes():
    rng = np.random.default_rng(3)
    losses = rng.random((2, 40))
    ranks = [
        (-one.mean(), *(-np.delete(one, range(g, 40, 20)).mean() for g in range(20)))
        for one in losses
    ]
    pairs = (losses[0] - losses[1]).reshape(2, 20).mean(axis=0)  # of every group
    expected = pairs.std(ddof=1) / np.sqrt(20)
    assert standard_error(*ranks) == pytest.approx(expected)


def judged(position: int, model: str, hops: int, learned: int, *ranks: float) -> Candidate:
    return Candidate(position, model, {"hops": hops}, learned=learned, ranks=ranks)


def test_the_simpler_of_equals():
    blocks = judged(1, "blocks", 2, 90, -0.50, -0.51, -0.49)
    fixed = judged(2, "ppr", 4, 30, -0.505, -0.50, -0.51)  # it leads without group 1
    worse = judged(3, "sgc", 0, 30, -0.70, -0.71, -0.69)
    lost = judged(4, "sgc", 0, 3)
    assert decide([blocks, fixed, worse, lost]) == (fixed, blocks)
    assert decide([blocks, worse]) == (blocks, blocks)
    more = judged(5, "ppr", 9, 30, -0.505, -0.50, -0.51)
    assert decide([more, fixed])[0] is fixed
    with pytest.raises(hoplite.HopliteError, match="every candidate diverged"):
        decide([lost])


def test_a_budget_is_spent_on_the_candidates_of_train_first(graph, monkeypatch):
    """A clock that trials drive: each takes a tenth of the budget, so six of them have time."""
    done, before = [], module._Choice._try

    def attempt(self, candidate, limit):
        done.append(candidate)
        assert limit > 0
        return before(self, candidate, math.inf)

    monkeypatch.setattr(module._Choice, "_try", attempt)
    monkeypatch.setattr(
        module._Choice, "left", lambda self, share=1.0: 100 * (share - 0.1 * len(done))
    )
    result = hoplite.auto(graph, budget=100, epochs=5)
    assert [one.default for one in done] == [True] * 5 + [False]
    assert len({one.family for one in result.candidates}) == 5
    assert "6 of" in result.budget_notes[0]
    monkeypatch.undo()
    again = hoplite.auto(graph, trials=result.trials, epochs=5)
    assert (again.why, again.trials) == (result.why, result.trials)


def test_training_ends_with_its_time(graph):
    with time_limit(-1), pytest.raises(OutOfTimeError):
        hoplite.train(graph, "lgc", epochs=3)
    with time_limit(-1), pytest.raises(OutOfTimeError):
        hoplite.train(graph, "blocks", hops=1)
    with time_limit(-1, keep_best=True), time_limit(1e9), pytest.raises(OutOfTimeError):
        hoplite.train(graph, "lgc", epochs=3)
    ends = []

    def stop(progress):
        ends.append(progress.epoch)
        _limit.set((-math.inf, True))

    for model in ("lgc", "blocks"):
        with time_limit(1e9, keep_best=True):
            result = hoplite.train(graph, model, hops=1, progress=stop, refit=True)
        assert (ends.pop(), result.best_run.epochs) == (1, 1)


def test_reading_is_part_of_the_budget(graph, monkeypatch):
    def choose(graph, listed, seeds, file, budget, report):
        raise TimeoutError(budget)

    monkeypatch.setattr(module, "_Choice", choose)
    with pytest.raises(TimeoutError) as caught:
        hoplite.auto(graph, budget="1h")
    assert 0 < caught.value.args[0] < 3600


def test_a_candidate_without_time_is_not_tried(graph, file, monkeypatch):
    before = module._Choice._try
    late = {2, 3, 5}
    monkeypatch.setattr(
        module._Choice,
        "_try",
        lambda self, one, limit: before(self, one, -1.0 if one.position in late else limit),
    )
    result = hoplite.auto(graph, budget="1h", candidates=file, **FEW)
    assert result.trials == "1,4,6,7,8,9,10,11,12"
    assert sum("did not finish" in note for note in result.budget_notes) == 3
    monkeypatch.undo()
    again = hoplite.auto(graph, trials=result.trials, candidates=file, **FEW)
    assert facts(again) == facts(result)


@pytest.fixture
def small_sample(monkeypatch):
    for name, value in (("MAX_LABELS", 30), ("VALIDATED", 5), ("DRAWN", 3), ("NODES", 25)):
        monkeypatch.setattr(sampling, name, value)
    monkeypatch.setattr(sampling, "COLUMNS", 4)


@pytest.mark.filterwarnings("ignore:.*no training node")
def test_large_data_is_tried_as_a_sample(graph, file, monkeypatch, small_sample):
    small, columns = sampling.sample(graph, 0)
    assert (small.num_nodes, small.split.val.size, small.split.test.size) == (25, 5, 0)
    assert small.num_features == len(columns) == 4
    whole = hoplite.auto(graph, trials=3, candidates=file, **FEW)
    assert whole.model.num_features == graph.num_features
    known = hoplite.train(graph, whole.chosen.model, seeds=2, **whole.chosen.options)
    assert whole.test_accuracy == known.test_accuracy
    monkeypatch.setattr(module._Choice, "left", lambda self, share=1.0: -1.0)  # time for one
    short = hoplite.auto(graph, budget=1, candidates=file, **FEW)
    assert "the model of its trial is used" in short.budget_notes
    assert "there was no time for intervals of the scores" in short.budget_notes
    assert short.trials == "1"
    kept = np.asarray(graph.features)[:, columns]
    wide = short.model.weights["theta"].reshape(-1, graph.num_classes)
    np.testing.assert_allclose(
        short.model.logits(graph), kept @ wide[columns], rtol=1e-4, atol=1e-5
    )


@pytest.mark.filterwarnings("ignore:.*no training node")
@pytest.mark.parametrize("validated", [True, False])
def test_a_sample_has_the_edges_and_labels_of_its_nodes(graph, small_sample, validated):
    """Nodes are told apart by a feature, their number; weights of relations stay."""
    n, split = graph.num_nodes, graph.split
    nodes = np.concatenate([split.train, split.val])
    split = Split(split.train, split.val) if validated else Split(nodes)
    edges = np.argwhere(np.triu(graph.adjacency.toarray(), 1))
    features, types = np.arange(1.0, n + 1)[:, None], np.arange(len(edges)) % 2
    options = {"weights": 1.0 + np.arange(len(edges)), "types": types, "split": split}
    whole = Graph.from_edges(edges, features, graph.labels, **options)
    small, _ = sampling.sample(whole, 3)
    own = small.features[:, 0].astype(int) - 1
    assert set(own[small.split.val]) <= set(split.val if validated else nodes)
    assert set(own[small.split.train]) <= set(split.train if validated else nodes)
    np.testing.assert_array_equal(small.labels, whole.labels[own])
    for part, full in zip((small, *small.relations), (whole, *whole.relations), strict=True):
        expected = full.adjacency.toarray()[own][:, own]
        np.testing.assert_array_equal(part.adjacency.toarray(), expected)
        assert part.loop_weight == full.loop_weight


def test_the_largest_default_is_trained_on_all_data_first(graph, small_sample, monkeypatch):
    trained, before = [], module.train

    def train(data, model, **options):
        if data.num_nodes == graph.num_nodes:
            trained.append((model, options["hops"]))
        return before(data, model, **options)

    monkeypatch.setattr(module, "train", train)
    result = hoplite.auto(graph, trials=6, seeds=1, epochs=5)
    defaults = [one for one in result.candidates if one.default]
    largest = max(defaults, key=lambda one: one.learned)
    assert trained[0] == (largest.model, largest.options["hops"])
    assert len(trained) <= 2
    assert (result.chosen.model, result.chosen.options["hops"]) in trained


def test_gradient_boosting_is_reported_where_it_is_better(tmp_path):
    """A product of two columns, which no linear model sees, and edges that mean nothing."""
    rng = np.random.default_rng(4)
    features = rng.standard_normal((600, 3)).astype(np.float32)
    labels = (features[:, 0] * features[:, 1] > 0).astype(int)
    edges = rng.integers(0, 600, (900, 2))
    split = Split(*np.split(rng.permutation(600), [300, 450]))
    graph = Graph.from_edges(edges[edges[:, 0] != edges[:, 1]], features, labels, split=split)
    path = tmp_path / "c.toml"
    path.write_text("[[try]]\nmodel = 'blocks'\nhops = [0, 1]\n")
    result = hoplite.auto(graph, trials=2, candidates=path)
    assert "Gradient boosting" in result.advice[-1]
    assert result.rival.score > 0.85 > 0.65 > max(one.score for one in result.candidates)
    assert result.model.config.model == "blocks"


def test_degrees_are_not_features_alone():
    rng = np.random.default_rng(0)
    often = rng.lognormal(sigma=1.2, size=300)
    edges = rng.choice(300, (700, 2), p=often / often.sum())
    degrees = np.bincount(edges.ravel(), minlength=300)
    for score, says in ((degrees + rng.normal(size=300), False), (rng.normal(size=300), True)):
        label = np.where(score > np.median(score), "high", "low")
        values = score + rng.normal(size=300) if says else rng.normal(size=300)
        nodes = pd.DataFrame({"id": range(300), "x": values, "label": label})
        tables = nodes, pd.DataFrame(edges, columns=["source", "target"])
        result = hoplite.auto(tables, trials=3, seeds=1)
        assert result.chosen.family == "features alone"
        assert any("edges" in advice for advice in result.advice) is says


def test_a_class_with_one_node_is_missing_in_a_fold_of_gradient_boosting(graph, file):
    labels = np.zeros(graph.num_nodes, int)
    labels[5] = 1
    one = graph.with_labels(labels).with_split(Split(np.arange(30)))
    rival = hoplite.auto(one, trials=1, candidates=file, **FEW).rival
    assert rival.score == pytest.approx(29 / 30)


def test_interrupted_it_goes_on_to_the_same_choice(graph, file, tmp_path, monkeypatch):
    call = {"candidates": file, "trials": 6, **FEW}
    whole, before = hoplite.auto(graph, **call), module._Choice._try

    def killed(self, candidate, limit):
        if candidate.position == 4:
            raise KeyboardInterrupt
        return before(self, candidate, limit)

    with monkeypatch.context() as patch:
        patch.setattr(module._Choice, "_try", killed)
        with pytest.raises(KeyboardInterrupt):
            hoplite.auto(graph, out=tmp_path / "m", **call)
    tried = []
    monkeypatch.setattr(
        module._Choice,
        "_try",
        lambda self, one, limit: tried.append(one.position) or before(self, one, limit),
    )
    assert facts(hoplite.auto(graph, out=tmp_path / "m", **call)) == facts(whole)
    assert tried == [4, 5, 6]
    again = hoplite.auto(graph, out=tmp_path / "m", **call)  # nothing is left to try
    assert facts(again) == facts(whole)
    assert tried == [4, 5, 6]
    saved = hoplite.TrainedModel.load(tmp_path / "m")
    np.testing.assert_array_equal(saved.logits(graph), whole.model.logits(graph))


def test_a_folder_of_another_choice_is_refused(graph, file, tmp_path):
    out = tmp_path / "m"
    hoplite.auto(graph, trials=2, candidates=file, out=out, **FEW)
    for other in ({"trials": 3}, {"trials": 2, "operator": "adjacency"}, {"budget": "3s"}):
        with pytest.raises(SearchError, match="a search with another"):
            hoplite.auto(graph, candidates=file, out=out, **FEW | other)
    replaced = hoplite.auto(graph, trials=1, candidates=file, out=out, overwrite=True, **FEW)
    assert replaced.trials == "1"
    (out / "auto" / FILE).write_text("{}" * 1000)
    with pytest.raises(SearchError, match="damaged"):
        hoplite.auto(graph, trials=2, candidates=file, out=out, **FEW)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").touch()
    with pytest.raises(hoplite.ModelFileError, match="not part of a model"):
        hoplite.auto(graph, trials=2, out=tmp_path / "other", **FEW)


def test_auto_is_not_worse_than_train(tmp_path):
    """Its list begins with what train compares, and nothing worse by validation is chosen."""
    rng = np.random.default_rng(6)
    labels, ends = rng.integers(0, 2, 200), rng.integers(0, 200, (900, 2))
    ends = ends[(labels[ends[:, 0]] == labels[ends[:, 1]]) | (rng.random(900) < 0.3)]
    rows = [f"n{i},{'ab'[labels[i]]},{labels[i] + 2 * rng.normal()}" for i in range(200)]
    (tmp_path / "nodes.csv").write_text("\n".join(["id,label,x", *rows]) + "\n")
    lines = [f"n{a},n{b}" for a, b in ends]
    (tmp_path / "edges.csv").write_text("\n".join(["source,target", *lines]) + "\n")
    alone, found = hoplite.train(tmp_path), hoplite.auto(tmp_path, trials=12, seeds=1)
    tried = {str(one): one.val for one in found.candidates}
    same = {name: loss for name, loss in alone.candidates.items() if name in tried}
    assert len(same) == len(alone.candidates) == 6
    for name, loss in same.items():
        assert tried[name] == pytest.approx(loss, rel=1e-6)
    name, options = alone.model_config.model, alone.model_config
    chosen = [n for n in same if n.startswith(f"{name}: hops {options.hops}")]
    chosen = [n for n in chosen if ("neighbour" in n) == options.neighbour_labels]
    assert found.chosen.val <= same[chosen[0]] + 1e-9


def test_a_candidate_that_fails_does_not_stop_the_others(graph, tmp_path, monkeypatch):
    path = tmp_path / "c.toml"
    path.write_text("[[try]]\nmodel = 'ppr'\nhops = 4\n[[try]]\nmodel = 'blocks'\nhops = [0, 1]\n")
    before = module.train

    def train(data, model, **options):
        if options["hops"] == 0:
            raise MemoryError("no room")
        return before(data, model, **options)

    def edges_fail(data, model, **options):
        if options["hops"]:
            raise MemoryError("no room")
        return before(data, model, **options)

    monkeypatch.setattr(module, "train", train)
    found = hoplite.auto(graph, trials=3, candidates=path)
    assert [one.val is None for one in found.candidates] == [False, False, True]
    monkeypatch.setattr(module, "train", edges_fail)
    alone = hoplite.auto(graph, trials=3, candidates=path)
    assert [one.val is None for one in alone.candidates] == [False, True, True]
    assert not any("edges" in sentence for sentence in alone.advice)
    monkeypatch.setattr(module, "train", train)
    nodes = np.concatenate([graph.split.train, graph.split.val])
    monkeypatch.setattr("hoplite.training.comparison.PPR_OPTIONS", {"hops": -1})
    result = hoplite.train(graph.with_split(Split(nodes, test=graph.split.test)))
    assert sorted(map(math.isfinite, result.candidates.values())) == [False, True, True, True, True]


def test_diverged_candidates_do_not_stop_the_others(graph, tmp_path):
    path = tmp_path / "c.toml"
    path.write_text(
        "[[try]]\nmodel = 'lgc'\nhops = 3\nlr = 1e38\n[[try]]\nmodel = 'sgc'\nhops = [1, 2]\n"
    )
    found = hoplite.auto(graph, trials=3, candidates=path, **FEW)
    assert found.chosen.model == "sgc"
    assert found.candidates[-1].val is None


@pytest.mark.parametrize("task", ["regression", "multilabel"])
def test_numbers_and_several_labels(graph, file, task):
    rng, n = np.random.default_rng(5), graph.num_nodes
    labels = np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n) * 50)
    if task == "multilabel":
        labels = rng.integers(0, 2, (n, 3))
    known = np.isfinite(labels) if labels.ndim == 1 else np.ones(n, bool)
    parts = [part[known[part]] for part in np.split(rng.permutation(n), [20, 40])]
    other = graph.with_labels(labels).with_split(Split(*parts))
    first, again = (hoplite.auto(other, trials=4, candidates=file, **FEW) for _ in range(2))
    assert first.why == again.why
    assert first.trained.task.labels.task == task
    assert (first.rival is None) == (task == "multilabel")


def clusters(noise: bool) -> Graph:
    """Classes that the features tell roughly; edges that join them, or are drawn at random."""
    rng = np.random.default_rng(1)
    n = 240
    labels = rng.integers(0, 2, n)
    features = rng.standard_normal((n, 4)).astype(np.float32)
    features[:, 0] += (1.5 if noise else 0.4) * (2 * labels - 1)
    pairs = rng.integers(0, n, (1500, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    if not noise:
        pairs = pairs[labels[pairs[:, 0]] == labels[pairs[:, 1]]]
    order = rng.permutation(n)
    return Graph.from_edges(pairs, features, labels, split=Split(*np.split(order, [80, 160])))


def test_no_hops_where_the_edges_are_noise_and_some_where_they_are_not(file):
    alone = hoplite.auto(clusters(noise=True), trials=12, candidates=file, seeds=3, epochs=60)
    assert alone.chosen.options["hops"] == 0
    joined = hoplite.auto(clusters(noise=False), trials=12, candidates=file, seeds=3, epochs=60)
    assert joined.chosen.options["hops"] > 0


def test_options_hold_for_all_candidates_that_have_them(graph):
    trials, left_out = list_candidates(None, {"operator": "laplacian", "monitor": "loss"})
    assert {one.options["operator"] for one in trials} == {"laplacian"}
    assert {one.options["monitor"] for one in trials} == {"loss"}
    assert left_out  # the filters that are written for smooth signals near 1
    assert {"ppr", "heat", "s2gc"}.isdisjoint(one.model for one in trials)
    fewer, _ = list_candidates(None, {"hops": 2, "weight_decay": 0.0, "lr": 0.1})
    keys = [repr((one.model, sorted(one.options.items()))) for one in fewer]
    assert len(set(keys)) == len(keys) < len(list_candidates()[0])
    found = hoplite.auto(graph, trials=2, monitor="loss", **FEW)
    assert found.monitor.name == "loss"
    assert found.trained.training_config.monitor == "loss"


def test_the_classifier_follows_scikit_learn(graph, file):
    nodes = np.flatnonzero(graph.labels >= 0)
    y = np.array(["a", "bb", "c"])[graph.labels[nodes]]
    model = hoplite.AutoClassifier(
        graph, "1,2,6", seeds=2, candidates=file, options={"epochs": 8}, seed=4
    )
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert copy.graph is graph
    assert model.fit(nodes, y) is model
    assert list(model.classes_) == ["a", "bb", "c"]
    assert model.predict_proba(nodes).shape == (len(nodes), 3)
    np.testing.assert_array_equal(
        model.predict(nodes), model.classes_[model.decision_function(nodes).argmax(axis=1)]
    )
    np.testing.assert_array_equal(
        copy.fit(nodes, y).predict_proba(nodes), model.predict_proba(nodes)
    )
    assert cross_val_score(model, nodes, y, cv=2, error_score="raise").shape == (2,)
    grid = {"trials": [2, 4], "options": [{"epochs": 4}, {"epochs": 4, "bias": True}]}
    search = GridSearchCV(model, grid, cv=2, error_score="raise").fit(nodes, y)
    assert search.best_params_["trials"] in (2, 4)
    two = clone(model).fit(nodes, y == "a")
    assert two.decision_function(nodes).shape == nodes.shape
    several = clone(model).fit(nodes, np.eye(3, dtype=int)[graph.labels[nodes]])
    assert several.predict(nodes).shape == (len(nodes), 3)


def test_the_classifier_equals_auto_with_the_same_validation(graph, file):
    split, labels = graph.split, graph.labels
    model = hoplite.AutoClassifier(graph, 9, candidates=file, seeds=2, options={"epochs": 12})
    model.fit(split.train, labels[split.train], (split.val, labels[split.val]))
    found = hoplite.auto(graph, trials=9, candidates=file, **FEW)
    assert model.result_.why == found.why
    np.testing.assert_array_equal(
        model.predict(np.arange(graph.num_nodes)), found.model.predict(graph)
    )


def test_what_the_classifier_holds_out(graph, file):
    model = hoplite.AutoClassifier(graph, 1, candidates=file, seeds=1, options={"epochs": 2})
    nodes = np.array([3, 1, 7, 9, 11, 13, 20, 22, 3])  # one twice, one class with a single node
    y = np.array([5, 5, 5, 5, 5, 2, 2, 9, 5])
    labels = np.unique(y, return_inverse=True)[1]
    train, val = model._hold_out(hoplite.training.runs.NodeSet(nodes, labels), 0)
    assert sorted([*train.nodes, *val.nodes]) == sorted(set(nodes.tolist()))
    assert set(train.labels) == {0, 1, 2}
    assert len(val) == 2  # a quarter of 5 and of 2, at least one
    split = model.fit(nodes, y).model_.training["split"]
    assert (split["train"], split["val"], split["test"]) == (6, 2, 0)
    with pytest.raises(GraphError, match="only one node per class"):
        model.fit([1, 2, 3], [0, 1, 2])
    for wrong, message in (
        ({"held_out": 1}, "held_out is 1"),
        ({"options": {"seeds": 3}}, "'seeds' is not an option"),
        ({"options": {"hop": 4}}, "'hop' is not an option.* 'hops'"),
        ({"options": {3: 4}}, "3 is not an option"),
        ({"options": []}, "options has type list"),
    ):
        with pytest.raises(ConfigError, match=message):
            clone(model).set_params(**wrong).fit(nodes, y)


def test_class_weights_go_by_the_values_of_y(graph, file):
    nodes = np.flatnonzero(graph.labels >= 0)
    names = np.array(["a", "b", "c"])[graph.labels[nodes]]
    options = {"epochs": 6, "class_weight": {"a": 9.0, "b": 1, "c": 1}}
    weighted = hoplite.AutoClassifier(graph, 2, candidates=file, seeds=1, options=options)
    plain = clone(weighted).set_params(options={"epochs": 6})
    first, second = (one.fit(nodes, names).predict_proba(nodes)[:, 0] for one in (weighted, plain))
    assert first.mean() > second.mean()


@pytest.mark.parametrize(
    ("first", "second", "what"),
    [
        ("monitor = 'accuracy'", "monitor = 'loss'", "monitor has several"),
        ("", "monitor = ['auto', 'auc']", "monitor has several"),
        ("refit = true", "", "refit has several"),
    ],
)
def test_what_cannot_be_compared_is_refused(graph, tmp_path, first, second, what):
    path = tmp_path / "c.toml"
    path.write_text(f"[[try]]\nmodel = 'sgc'\n{first}\n[[try]]\nmodel = 'ppr'\n{second}\n")
    with pytest.raises(GridError, match=what):
        hoplite.auto(graph, trials=3, candidates=path, **FEW)
    given = {what.split()[0]: {"monitor": "auc", "refit": False}[what.split()[0]]}
    trials, _ = list_candidates(path, given)  # one for all: nothing differs
    assert all(one.options.items() >= given.items() for one in trials)
