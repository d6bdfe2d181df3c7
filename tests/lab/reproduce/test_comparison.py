"""hLGC against LGC on random splits: the splits, the intervals, and going on after a stop."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from tests import commands

import hoplite
from hoplite import Graph
from hoplite.datasets.splits import random_split
from hoplite.errors import ConfigError, HopliteError
from hoplite.lab.reproduce import compare_again, comparison
from hoplite.lab.reproduce.comparison import compare, paired
from hoplite.lab.results import Accuracy, Results, load_results, write_results

SIZES = {"per_class": 3, "val": 11, "test": 17}
OPTIONS = {"hops": 2, "epochs": 8, "patience": 4, "lr": 0.2}


@pytest.fixture
def graph() -> Graph:
    """70 nodes with text ids, some alone, some without a label, classes of uneven sizes."""
    rng = np.random.default_rng(11)
    labels = rng.choice(3, 70, p=[0.6, 0.25, 0.15])
    labels[rng.permutation(70)[:9]] = -1
    edges = rng.integers(0, 60, (150, 2))
    edges = np.unique(np.sort(edges[edges[:, 0] != edges[:, 1]], axis=1), axis=0)
    features = rng.standard_normal((70, 7)) + np.eye(3, 7)[labels] * (labels >= 0)[:, None]
    ids = [f"node {i}" for i in rng.permutation(70)]
    features = sp.csr_array(features.astype(np.float32))
    return Graph.from_edges(edges, features, labels, node_ids=ids, name="cora")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, graph: Graph) -> None:
    monkeypatch.setattr(comparison, "SPLITS", 4)
    monkeypatch.setattr(comparison, "SIZES", SIZES)
    monkeypatch.setattr("hoplite.lab.reproduce.run.load", lambda name: graph)


def chosen() -> list[Accuracy]:
    """With options of other models, as version 0.1.0 wrote them."""
    each = {"protocol": "validation", "dataset": "cora", "test_mean": 0.5, "test_std": 0.0}
    old = OPTIONS | {"hidden": 16, "heads": 8}
    gates = [Accuracy(model="hlgc", gate=g, config=OPTIONS | {"gate": g}, **each)
             for g in ("class", "node", "feature")]  # fmt: skip
    return [
        Accuracy(model="gcn", config={"hidden": 4, "epochs": 2}, **each),
        *gates,
        Accuracy(model="lgc", config=old, **each),
    ]


def run(graph, folder, workers=1, progress=lambda what, share: None):
    return compare({"cora": graph}, chosen(), folder, workers, "again", progress)


def test_splits_are_of_the_sizes_that_are_asked_for(graph):
    labels = graph.labels
    splits = [random_split(labels, seed, **SIZES) for seed in range(5)]
    for split in splits:
        assert np.bincount(labels[split.train]).tolist() == [3, 3, 3]
        assert (split.val.size, split.test.size) == (11, 17)
        nodes = np.concatenate([split.train, split.val, split.test])
        assert np.unique(nodes).size == nodes.size
        assert (labels[nodes] >= 0).all()
    assert len({tuple(split.test) for split in splits}) == 5
    again = random_split(list(labels), 2, **SIZES)
    assert all(np.array_equal(getattr(again, p), getattr(splits[2], p)) for p in ("val", "test"))
    assert random_split(np.arange(6000) % 3, 0).sizes() == {"train": 60, "val": 500, "test": 1000}
    with pytest.raises(ConfigError, match="per_class is 99, but class 0 has"):
        random_split(labels, 0, per_class=99)
    with pytest.raises(ConfigError, match="val and test are 40 and 17, but 52 labelled nodes"):
        random_split(labels, 0, **SIZES | {"val": 40})


def test_intervals_are_those_of_the_formula():
    """t(0.975; 3) = 3.182446, t(1 - 0.025/9; 3) = 6.9552 from a table of the distribution."""
    ours, base = [0.50, 0.60, 0.55, 0.71, None, 0.9], [0.48, 0.61, 0.50, 0.65, 0.3, None]
    values = [0.02, -0.01, 0.05, 0.06]
    mean = sum(values) / 4
    error = (sum((v - mean) ** 2 for v in values) / 3) ** 0.5 / 2
    found = paired(ours, base, pairs=9)
    assert found is not None
    assert (found.splits, found.pairs, found.to) == (4, 9, "lgc")
    assert found.mean == pytest.approx(mean)
    assert found.high - found.mean == pytest.approx(3.182446 * error, rel=1e-6)
    assert found.mean - found.low == pytest.approx(3.182446 * error, rel=1e-6)
    # the distribution function of t with 3 degrees has a closed form
    width = (found.high_all - found.mean) / error
    x = width / 3**0.5
    assert 0.5 + (x / (1 + x * x) + np.arctan(x)) / np.pi == pytest.approx(1 - 0.025 / 9)
    assert paired([0.5, None], [0.4, 0.4], pairs=9) is None


def test_all_are_trained_on_the_same_splits_and_the_test_set_is_that_of_the_split(graph, tmp_path):
    found = run(graph, tmp_path / "c")
    assert [(e.model, e.gate) for e in found] == [
        ("lgc", None), ("hlgc", "class"), ("hlgc", "node"), ("hlgc", "feature"),
    ]  # fmt: skip
    for entry in found:
        gate = {} if entry.gate is None else {"gate": entry.gate}
        for split in range(4):
            own = graph.with_split(random_split(graph.labels, split, **SIZES))
            alone = hoplite.train(own, entry.model, seeds=[split], **OPTIONS, **gate)
            assert entry.test[split] == pytest.approx(alone.test_accuracy)
            assert entry.val[split] == pytest.approx(alone.val_accuracy)
    base = np.array(found[0].test)
    for entry in found[1:]:
        assert entry.difference is not None
        assert entry.difference.mean == pytest.approx(np.mean(np.array(entry.test) - base))
        assert entry.difference.pairs == 3
    assert found[0].difference is None


def test_a_comparison_goes_on_where_it_was(graph, tmp_path, monkeypatch):
    whole = run(graph, tmp_path / "whole")

    def stop(what, share):
        if share >= 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(graph, tmp_path / "c", progress=stop)
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "c").glob("*.json")}
    assert len(kept) == 8
    broken = next(iter(kept))
    broken.write_text(broken.read_text()[:-9])  # made again
    assert run(graph, tmp_path / "c", workers=2) == whole
    del kept[broken]
    assert all(path.stat().st_mtime_ns == time for path, time in kept.items())
    assert len(list((tmp_path / "c").iterdir())) == 16  # no locks, nothing half written
    monkeypatch.setattr(comparison, "train", None)
    assert run(graph, tmp_path / "c", workers=2) == whole


def test_without_lgc_there_is_nothing_to_compare_with(graph, tmp_path):
    gates = [one for one in chosen() if one.model != "lgc"]
    assert compare({"cora": graph}, gates, tmp_path / "c", 1, "again", print) == []
    assert compare({"cora": graph}, chosen()[-1:], tmp_path / "c", 1, "again", print) == []
    write_results(Results(kind="full", accuracy=gates), tmp_path)
    with pytest.raises(HopliteError, match="holds no full run whose settings could be compared"):
        compare_again(tmp_path)


def test_the_comparison_alone_of_results_that_are_there(graph, tmp_path):
    """Neither ledgers nor times are needed, and all else stays."""
    before = Results(kind="full", datasets=["cora"], seeds=5, accuracy=chosen(), command="c")
    write_results(before, tmp_path)
    found = compare_again(tmp_path, workers=1)
    assert replace(found, comparison=[]) == before
    assert load_results(tmp_path) == found
    assert found.comparison == [
        replace(one, command=f"hoplite reproduce --comparison --out {tmp_path.name}")
        for one in run(graph, tmp_path / "comparison")
    ]
    assert "## hLGC against LGC on random splits" in (tmp_path / "RESULTS.md").read_text()
    content = json.loads((tmp_path / "results.json").read_text())
    assert content["comparison"][1]["difference"]["splits"] == 4


@pytest.mark.parametrize("words", [["--quick"], ["--model", "lgc"], ["--dataset", "cora"]])
def test_the_comparison_alone_takes_its_models_from_the_results(tmp_path, words):
    found = commands.hoplite("reproduce", "--comparison", "--out", str(tmp_path), *words)
    assert found.returncode == 1
    assert "--comparison takes its models and datasets from --out" in " ".join(found.stderr.split())
