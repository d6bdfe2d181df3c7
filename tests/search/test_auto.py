"""auto: the same choice for the same trials, whatever happens; test nodes decide nothing."""

from __future__ import annotations

import contextlib
import json
import math
import signal
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from tests import commands

import hoplite
from hoplite.errors import ConfigError, GraphError, GridError, SearchError
from hoplite.graph import Graph, Split
from hoplite.search import executors, halving
from hoplite.search.halving import (
    Candidate,
    Finalist,
    decide,
    list_candidates,
    parse_seconds,
    parse_trials,
)
from hoplite.search.results import ConfigurationScores
from hoplite.search.trials import FILE
from hoplite.tasks.base import Metric

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


def said(result: halving.AutoResult) -> dict:
    """All that must be the same again: everything but times."""
    found = result.summary()
    for one in found["candidates"]:
        del one["seconds"]
    return {k: found[k] for k in ("chosen", "options", "why", "trials", "candidates")} | {
        "val": [run.scores["val_accuracy"] for run in result.trained.runs]
    }


def test_every_rung_keeps_the_best_of_the_one_before(graph, file):
    options = {"trials": "12/6/2", "candidates": file, **FEW}
    result, again = (hoplite.auto(graph, **options) for _ in range(2))
    assert said(result) == said(again)
    assert [one.seeds for one in result.candidates] == [2] * 2 + [1] * 10
    assert sum(one.chosen for one in result.candidates) == 1
    assert result.model.config.model == result.chosen.model
    assert result.test_accuracy == result.trained.test_accuracy
    rungs = [[one for one in result.candidates if one.rung == rung] for rung in range(3)]
    assert [len(rung) for rung in rungs] == [6, 4, 2]
    # 12 epochs are all there are, so rungs 0 and 1 gave the same scores: nobody was dropped that
    # was better than one who went on
    assert max(one.val for one in rungs[0]) <= min(one.val for one in rungs[1])


@pytest.mark.parametrize("at", [0.001, 0.03, 0.3, 9.0])
def test_a_short_budget_shortens_and_says_so(graph, file, at, monkeypatch):
    """A clock that training drives: every trial costs the share ``at`` of the budget."""
    done, before = [], executors.train_trial
    monkeypatch.setattr(halving._Halving, "elapsed", lambda self: at * len(done) * 10)

    def train_trial(*arguments, **options):
        result = before(*arguments, **options)
        done.append(result)
        return result

    monkeypatch.setattr(executors, "train_trial", train_trial)
    found = hoplite.auto(graph, budget=10, candidates=file, **FEW)
    assert found.budget_notes or at < 0.2
    again = hoplite.auto(graph, trials=found.trials, candidates=file, **FEW)
    assert (again.chosen, again.trials) == (found.chosen, found.trials)
    twins = {one.candidate: one for one in found.candidates}
    for one in again.candidates:
        twin = twins[one.candidate]
        if (twin.rung, twin.seeds) == (one.rung, one.seeds):  # a rung may have had no use
            assert twin.val == one.val


@pytest.mark.parametrize(
    ("late", "sizes"), [((1, 0), "12/1/1"), ((1, 3), "12/3/2"), ((2, 0), "12/8/1")]
)
def test_a_rung_cut_short_gives_sizes_that_repeat_the_choice(graph, file, monkeypatch, late, sizes):
    """In rung ``late[0]`` so many candidates had time."""
    before = halving._Halving._train
    monkeypatch.setattr(
        halving._Halving,
        "_train",
        lambda self, rung, some: before(self, rung, some)[: late[1] if rung == late[0] else None],
    )
    monkeypatch.setattr(halving, "default_sizes", lambda n: (n, 8, 2))
    found = hoplite.auto(graph, budget="1h", candidates=file, **FEW)
    assert (found.trials, len(found.budget_notes)) == (sizes, 1)
    monkeypatch.undo()
    assert hoplite.auto(graph, trials=sizes, candidates=file, **FEW).chosen == found.chosen


def test_test_labels_decide_nothing(graph, file, monkeypatch):
    seen, before = [], executors.train_trial

    def watched(graph, *arguments, **options):
        seen.append(graph.split.test.size)
        return before(graph, *arguments, **options)

    monkeypatch.setattr(executors, "train_trial", watched)
    rng, labels = np.random.default_rng(0), graph.labels.copy()
    test = graph.split.test
    labels[test] = rng.permutation(labels[test])
    labels[test[0]] = graph.num_classes - 1 - labels[test[0]]
    other = graph.with_labels(labels).with_split(graph.split)
    first, again = (hoplite.auto(g, trials=12, candidates=file, **FEW) for g in (graph, other))
    assert said(first) == said(again)
    none = graph.with_split(Split(graph.split.train, graph.split.val))
    assert said(hoplite.auto(none, trials=12, candidates=file, **FEW)) == said(first)
    assert len(seen) > 36
    assert not any(seen)


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


def scored(position: int, model: str, hops: int, *val: float) -> Finalist:
    candidate = Candidate(position, model, {"hops": hops})
    return Finalist(candidate, 2, ConfigurationScores(position, {}, val, val, 0.5))


def test_the_simpler_of_equals(graph):
    """20 validation nodes: a lead of one is none; larger ones count, unless the seeds differ."""
    accuracy, n = Metric("accuracy", percent=True), len(graph.split.val)
    assert n == 20
    fixed = scored(7, "ppr", 4, 0.75, 0.75)
    learned = scored(1, "lgc", 4, 0.80, 0.80)
    blocks = scored(0, "blocks", 2, 0.80, 0.80)
    assert decide([learned, fixed, blocks], graph, accuracy)[0] is fixed
    better = scored(1, "lgc", 4, 0.85, 0.85)
    assert decide([better, fixed, blocks], graph, accuracy)[0] is better  # 2 nodes better
    uneven = scored(1, "lgc", 4, 0.70, 1.0)
    chosen, best, margin = decide([uneven, fixed], graph, accuracy)
    assert (chosen, best) == (fixed, uneven)
    assert margin == pytest.approx(math.sqrt(np.var([0.7, 1.0], ddof=1) / 2))
    more, fewer = scored(0, "ppr", 9, 0.8), scored(1, "ppr", 2, 0.8)
    assert decide([more, fewer], graph, accuracy)[0] is fewer
    lost = scored(7, "ppr", 4, 0.9, math.nan)
    assert decide([lost, blocks], graph, accuracy)[0] is blocks  # a run without a result
    loss = Metric("loss", larger_is_better=False)  # without a node as a unit
    assert decide([learned, fixed], graph, loss)[0] is learned


def test_simplicity_is_what_is_learned(graph):
    order = [("sgc", 0), ("ppr", 4), ("sgc", 5), ("lgc", 3), ("jacobiconv", 3), ("blocks", 2)]
    keys = [Candidate(0, model, {"hops": hops}).simplicity(graph) for model, hops in order]
    assert keys == sorted(keys)
    assert keys[0][0] == (1 + graph.num_features) * graph.num_classes == keys[2][0]


KILL = """
import os, signal
from hoplite.search.trials import TrialQueue
before, count = TrialQueue.record, 0

def record(self, *arguments):
    global count
    before(self, *arguments)
    count += 1
    if count == {at}:
        os.kill(os.getpid(), signal.SIGKILL)

TrialQueue.record = record
"""


def test_killed_again_and_again_it_ends_with_the_same_choice(tmp_path):
    words = ["train", "cora", "--model", "auto", "--trials", "12/6/2", "--seeds", "2"]
    words += ["--epochs", "8", "--hops", "2", "--json", "--out"]
    whole = commands.succeed(*words, tmp_path / "whole")
    out, left = tmp_path / "killed", []
    for at in (2, 1, 3):
        killed = commands.hoplite(*words, out, before=KILL.format(at=at))
        assert killed.returncode == -signal.SIGKILL
        with contextlib.closing(sqlite3.connect(out / "auto" / FILE)) as db:
            done = db.execute("SELECT count(*) FROM trials WHERE scores IS NOT NULL")
            left.append(done.fetchone()[0])
        assert not (out / "config.json").exists()
    assert left == sorted(set(left))  # nothing was lost
    last = commands.succeed(*words, out)
    found, wanted = (json.loads(one) for one in (last, whole))
    for one in (found, wanted):
        del one["out"], one["ms_per_epoch"], one["auto"]["seconds"]
        for part in (*one["runs"], *one["auto"]["candidates"]):
            del part["seconds"]
    assert found == wanted
    assert hoplite.TrainedModel.load(out).config.model == found["auto"]["chosen"]
    refused = commands.hoplite(*words, out)
    assert (refused.returncode, "--overwrite" in refused.stderr) == (1, True)
    replaced = commands.succeed(*words[:5], "3", *words[6:], out, "--overwrite")
    assert json.loads(replaced)["auto"]["trials"] == "3/3/3"


def test_a_folder_of_another_choice_is_refused(graph, file, tmp_path):
    out = tmp_path / "m"
    first = hoplite.auto(graph, trials=4, candidates=file, out=out, **FEW)
    again = hoplite.auto(graph, trials=4, candidates=file, out=out, **FEW)  # from the ledgers
    assert said(first) == said(again)
    for other, word in (
        ({"trials": 5}, "trials"),
        ({"trials": 4, "operator": "adjacency"}, "options"),
        ({"budget": "3s"}, "trials"),
    ):
        with pytest.raises(SearchError, match=f"other settings: ({word}) differs"):
            hoplite.auto(graph, candidates=file, out=out, **FEW | other)
    (out / "auto" / FILE).write_text("{}" * 1000)
    with pytest.raises(SearchError, match="damaged"):
        hoplite.auto(graph, trials=4, candidates=file, out=out, **FEW)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").touch()
    with pytest.raises(hoplite.ModelFileError, match="not a model's"):
        hoplite.auto(graph, trials=4, out=tmp_path / "other", **FEW)


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


def test_hoplites_own_candidates():
    trials, left_out = list_candidates()
    assert not left_out
    assert trials[0].options["hops"] == 0
    assert [one.position for one in trials] == list(range(len(trials)))
    models = {one.model for one in trials}
    assert models >= {"sgc", "ppr", "s2gc", "heat", "lgc", "jacobiconv", "blocks"}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("try = 3", "give tables"),
        ("[[try]]\nhops = 2", "table 1 has no model"),
        ("[[try]]\nmodel = 'pppr'", "model is 'pppr'"),
        ("[[try]]\nmodel = 'auto'", "chooses among the models"),
        ("[[try]]\nmodel = 'ppr'\nhop = 2", "'hop' is not an option"),
        ("[[try]]\nmodel = 'ppr'\nhops = -1", "hops is -1"),
        ("[[try]]\nmodel = 'ppr'\nlr = {low = 0.1, high = 1.0}", "distribution"),
        ("[[try", "not valid TOML"),
    ],
)
def test_wrong_files_of_candidates(tmp_path, text, what):
    path = tmp_path / "c.toml"
    path.write_text(text)
    with pytest.raises((GridError, ConfigError), match=what):
        list_candidates(path)


def test_wrong_arguments(graph, tmp_path):
    for value in ("5x", "-3s", 0, math.nan, math.inf, True, None, "s", "1e5s", [3]):
        with pytest.raises(ConfigError, match="such as 60s, 5m or 1h"):
            parse_seconds(value)
    for value in (0, "", "3/4/1", "3/2", "3/2/0", True, 2.5, None, "3/2/1/1", 10**9):
        with pytest.raises(ConfigError, match="trials is"):
            parse_trials(value)
    for options, what in (
        ({"budget": "3s"}, "give one of them"),
        ({"gate": "node"}, "none of the candidates has it"),
        ({"lr": -1}, "lr is -1"),
        ({"candidates": tmp_path / "none.toml"}, "cannot be read"),
        ({"candidates": 7}, "candidates is a int"),
    ):
        with pytest.raises(ConfigError, match=what):
            hoplite.auto(graph, trials=3, **options)
    with pytest.raises(GraphError, match="no val nodes"):
        hoplite.auto(graph.with_split(Split(graph.split.train[:9])), trials=3)
    with pytest.raises(ConfigError, match=r"hoplite\.auto"):
        hoplite.train(graph, "auto")
    with pytest.raises(ConfigError, match="is 'auto'"):
        hoplite.register_model(type("Mine", (hoplite.models.SGC,), {"name": "auto"}))


def test_diverged_candidates_do_not_stop_the_others(graph, tmp_path):
    path = tmp_path / "c.toml"
    path.write_text(
        "[[try]]\nmodel = 'lgc'\nhops = 3\nlr = 1e38\n[[try]]\nmodel = 'sgc'\nhops = [1, 2]\n"
    )
    found = hoplite.auto(graph, trials="3/3/2", candidates=path, **FEW)
    assert found.chosen.model == "sgc"


@pytest.mark.parametrize("task", ["regression", "multilabel"])
def test_numbers_and_several_labels(graph, file, task):
    rng, n = np.random.default_rng(5), graph.num_nodes
    labels = np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n) * 50)
    if task == "multilabel":
        labels = rng.integers(0, 2, (n, 3))
    known = np.isfinite(labels) if labels.ndim == 1 else np.ones(n, bool)
    parts = [part[known[part]] for part in np.split(rng.permutation(n), [20, 40])]
    other = graph.with_labels(labels).with_split(Split(*parts))
    first, again = (hoplite.auto(other, trials=8, candidates=file, **FEW) for _ in range(2))
    assert first.why == again.why
    assert first.trained.task.labels.task == task
    values = [one.val for one in first.candidates if one.rung == 2]
    order = sorted(values, key=first.monitor.rank, reverse=True)
    assert values == pytest.approx(order, abs=1e-9)


def test_users_tables_with_gaps_and_relations(tmp_path):
    rng = np.random.default_rng(2)
    ids = [f"Zoë, {i}" for i in rng.permutation(80)]
    rows = ["id,age,town,label,note"]
    for i, name in enumerate(ids):
        label = "" if i % 7 == 3 else ("yes" if rng.random() < 0.3 else "no")
        age = "" if i % 5 == 0 else str(rng.integers(1, 10**6))
        rows.append(f'"{name}",{age},{rng.choice(["A", "B", ""])},{label},x')
    ends = rng.choice(ids[:70], (200, 2))  # the last ten have no edges
    (tmp_path / "club").mkdir()
    (tmp_path / "club" / "nodes.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    edges = ["source,target", *(f'"{a}","{b}"' for a, b in ends)]
    (tmp_path / "club" / "edges.csv").write_text("\n".join(edges) + "\n", encoding="utf-8")
    words = ["train", tmp_path / "club", "--model", "auto", "--trials", "10", "--seeds", "2"]
    words += ["--epochs", "10", "--class-weight", "balanced"]
    text = commands.succeed(*words)
    assert " was chosen: " in text
    assert "--trials 10/4/3 gives the same choice" in text
    directed = json.loads(commands.succeed(*words, "--directed", "--json"))["auto"]
    assert directed["chosen"] == "lgc"
    assert any(reason.startswith("ppr: ") for reason in directed["left_out"])


def test_the_classifier_follows_scikit_learn(graph, file):
    nodes = np.flatnonzero(graph.labels >= 0)
    y = np.array(["a", "bb", "c"])[graph.labels[nodes]]
    model = hoplite.AutoClassifier(
        graph, "6/3/2", seeds=2, candidates=file, options={"epochs": 8}, seed=4
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
    train, val = model._hold_out(hoplite.training.runs.NodeSet(nodes, labels))
    assert sorted([*train.nodes, *val.nodes]) == sorted(set(nodes.tolist()))
    assert set(train.labels) == {0, 1, 2}
    assert len(val) == 2  # a quarter of 5 and of 2, at least one
    split = model.fit(nodes, y).model_.training["split"]
    assert (split["train"], split["val"], split["test"]) == (6, 2, 0)
    with pytest.raises(GraphError, match="single node of every class"):
        model.fit([1, 2, 3], [0, 1, 2])
    for wrong, message in (
        ({"held_out": 1}, "held_out is 1"),
        ({"options": {"seeds": 3}}, "'seeds' is not an option"),
        ({"options": {"hop": 4}}, "'hop' is not an option.* 'hops'"),
        ({"options": {3: 4}}, "3 is not an option"),
        ({"options": []}, "options is a list"),
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


class KilledError(BaseException):
    """Nothing catches it, as nothing catches a kill."""


def killed(*arguments, **options):
    raise KilledError


@pytest.mark.parametrize("at", ["_decided", "last_training", "train"])
def test_what_is_finished_needs_no_time(graph, file, tmp_path, monkeypatch, at):
    """Killed when all rungs are done, or in the last training, and resumed when time is up."""
    call = {"budget": "1h", "candidates": file, **FEW}
    whole = hoplite.auto(graph, **call)
    with monkeypatch.context() as patch:
        patch.setattr(halving if at == "train" else halving._Halving, at, killed)
        with pytest.raises(KilledError):
            hoplite.auto(graph, out=tmp_path / "m", **call)
    monkeypatch.setattr(halving._Halving, "elapsed", lambda self: 1e9)
    for _ in range(2):
        found = hoplite.auto(graph, out=tmp_path / "m", **call)
        assert said(found) == said(whole)
        assert not found.budget_notes
        saved = hoplite.TrainedModel.load(tmp_path / "m")
        np.testing.assert_array_equal(saved.predict_proba(graph), whole.model.predict_proba(graph))


def test_a_shortened_training_is_as_short_again(graph, file, tmp_path, monkeypatch):
    call = {"budget": 10, "candidates": file, "seeds": 3, "epochs": 30, "out": tmp_path / "m"}
    with monkeypatch.context() as patch:
        patch.setattr(halving._Halving, "elapsed", lambda self: 1e9)
        first = hoplite.auto(graph, **call)
    assert (len(first.trained.runs), first.trained.training_config.epochs) == (1, 20)
    again = hoplite.auto(graph, **call)
    assert said(again) == said(first)
    assert again.budget_notes == first.budget_notes
