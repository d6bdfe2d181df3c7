"""What stops a training and chooses its epoch, and the best of several runs and settings."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.untidy import UNTRAINED, graphs

from hoplite import Graph, Split, train

NAMES = {
    "accuracy": "accuracy",
    "loss": "loss",
    "auc": "roc_auc",
    "ap": "average_precision",
    "f1": "macro_f1",
}


def best_by_hand(curve, losses, tie, patience):
    """The epoch that is kept, counted from 1, and the epochs that are trained."""
    best = (-np.inf, np.inf)
    kept = 0
    for epoch, (value, loss) in enumerate(zip(curve, losses, strict=True), 1):
        better = value > best[0] or (tie == "loss" and value == best[0] and loss < best[1])
        if better:
            best, kept = (value, loss), epoch
        if epoch - kept >= patience:
            return kept, epoch
    return kept, len(curve)


@pytest.mark.filterwarnings(UNTRAINED)
@examples(25)
@given(graphs(), st.sampled_from([*NAMES]), st.sampled_from(["first", "loss"]))
def test_the_monitor_and_the_tie_choose_the_epoch(graph, monitor, tie):
    result = train(
        graph, "sgc", hops=1, lr=0.3, epochs=15, patience=4, monitor=monitor, tie=tie, seeds=2
    )
    ranked = []
    for run in result.runs:
        if not graph.split.val.size:
            assert result.out_of_fold or run.best_epoch == run.epochs == 15
            continue
        curve = run.history[f"val_{NAMES[monitor]}"]
        curve = np.nan_to_num(-curve if monitor == "loss" else curve, nan=-9.0)
        losses = run.history["val_loss"]
        assert (run.best_epoch, run.epochs) == best_by_hand(curve, losses, tie, 4)
        best = curve[run.best_epoch - 1]
        ranked.append((best, 0 if tie == "first" else -losses[run.best_epoch - 1]))
        if monitor not in ("accuracy", "loss"):
            report = np.nan_to_num(run.val_metrics[NAMES[monitor]], nan=-9.0)
            assert best == pytest.approx(report, abs=1e-6)
    if ranked:
        assert result.best_run is result.runs[ranked.index(max(ranked))]


def rare(seed=0):
    """One node in twelve is of the second class, and features tell it only in part."""
    rng = np.random.default_rng(seed)
    labels = (rng.random(400) < 0.08).astype(int)
    features = rng.standard_normal((400, 5))
    features[:, 0] += 1.5 * labels
    parts = np.split(rng.permutation(400), [150, 270])
    edges = rng.integers(0, 400, (300, 2))
    return Graph.from_edges(edges, features, labels, split=Split(*parts), class_names=["b", "a"])


def test_a_rare_class_is_learned_although_accuracy_does_not_rise():
    """The paper's rule keeps one of the first epochs here; ties by loss go on."""
    graph = rare()
    options = {"hops": 1, "dropout": 0, "lr": 0.01, "bias": True, "operator": "laplacian"}
    first, by_loss, auc = (
        train(graph, "lgc", **options, **more)
        for more in ({"tie": "first"}, {}, {"monitor": "auc"})
    )
    assert by_loss.training_config.tie == "loss"
    assert first.runs[0].epochs < by_loss.runs[0].epochs
    found = [one.metrics("val")["roc_auc"].mean for one in (first, by_loss, auc)]
    assert found[0] < found[1] <= found[2]
