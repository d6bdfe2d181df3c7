"""What one search chose, in the terminal and as a page: every figure beside the accuracy."""

import json
import re

import numpy as np
import pytest
from tests.commands import hoplite

from hoplite import Graph, HopliteError
from hoplite.datasets import write_npz
from hoplite.datasets.splits import stratified_split
from hoplite.lab.report.page import page
from hoplite.lab.results import load_results


@pytest.fixture(scope="module")
def graph():
    """Two uneven classes, one with a name that is no HTML."""
    rng = np.random.default_rng(4)
    labels = (rng.random(200) < 0.25).astype(int)
    features = rng.standard_normal((200, 4)) + labels[:, None]
    graph = Graph.from_edges(
        rng.integers(0, 200, (400, 2)), features, labels, class_names=["ok", "<bad & rare>"]
    )
    return graph.with_split(stratified_split(labels))


def test_a_search_tells_its_monitor_and_every_figure(graph, tmp_path):
    write_npz(tmp_path / "accounts.npz", graph)
    (tmp_path / "mine.toml").write_text("[any]\nlr = 0.1\nhops = [0, 1]\n")
    words = ["search", tmp_path / "accounts.npz", "--grid", tmp_path / "mine.toml", "--seeds", 2]
    words += ["--model", "sgc", "--epochs", 30, "--dropout", 0, "--bias", "--workers", 1]
    words += ["--monitor", "auc", "--out", tmp_path / "found"]
    done = hoplite(*words)
    assert done.returncode == 0, done.stderr
    for text in (
        "val AUC",
        "val accuracy %",
        "Chosen by validation AUC: test AUC 0.",
        "balanced accuracy",
        "macro F1",
    ):
        assert text in done.stdout
    told = json.loads(hoplite(*words, "--json").stdout)
    assert told["monitor"] == "roc_auc"
    assert 0.5 < told["monitor_mean"] <= 1
    confusion = np.array(told["figures"]["confusion"])
    assert confusion.sum() == len(graph.split.test)

    done = hoplite("report", tmp_path / "found", "--out", tmp_path / "page.html")
    assert done.returncode == 0, done.stderr
    shown = (tmp_path / "page.html").read_text(encoding="utf-8")
    for text in ("balanced accuracy", "macro f1", "log loss", "roc auc", "&lt;bad &amp; rare&gt;"):
        assert text in shown
    assert "<bad & rare>" not in re.sub(r"<script.*?</script>", "", shown, flags=re.DOTALL)
    assert "Not in this run" not in shown
    for count in confusion.ravel():
        assert f"<td>{count}</td>" in shown
    (tmp_path / "found" / "validation.json").unlink()
    with pytest.raises(HopliteError, match=r"the search in .* is not finished"):
        load_results(tmp_path / "found")


def test_a_page_of_results_without_figures_has_none():
    from hoplite.lab.results import Accuracy, Results

    entry = Accuracy(
        dataset="cora", model="lgc", protocol="validation", config={}, test_mean=0.8, test_std=0.0
    )
    assert "every figure of the" not in page(Results(accuracy=[entry]))
