"""Prediction sets: the exact rule, ties, and the coverage that was stated, on real graphs too."""

import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from tests.examples import examples
from tests.training.scattered import scattered_graph
from tests.training.test_monitor import rare
from tests.untidy import SEEDS

import hoplite
from hoplite import ConfigError, HopliteWarning, LGCRegressor, ModelFileError, Split, TrainedModel
from hoplite.models.trained import CONFORMAL
from hoplite.predictions import predict_table
from hoplite.tasks import Conformal, conformal, find_task

OPTIONS = {"hops": 2, "dropout": 0, "lr": 0.2, "epochs": 30}


@examples(60)
@given(SEEDS, st.integers(1, 60), st.integers(1, 999), st.booleans())
def test_the_quantile_is_the_exact_one(seed, n, thousandths, ties):
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 4, n) / 4 if ties else rng.random(n)
    rank = math.ceil(Fraction(thousandths, 1000) * (n + 1))
    expected = np.inf if rank > n else np.sort(scores)[rank - 1]
    assert Conformal.of(scores).quantile(thousandths / 1000) == expected


@pytest.mark.parametrize("n", [7, 8, 9, 100, 1001])
def test_many_scores_are_thinned_and_lose_no_coverage(monkeypatch, n):
    monkeypatch.setattr(conformal, "MAX_KEPT", 8)
    scores = np.random.default_rng(n).permutation(n) / n
    found, all_ = Conformal.of(scores), np.sort(scores)
    assert len(found.scores) == min(n, 8)
    for thousandths in range(1, 1000):
        rank = math.ceil(Fraction(thousandths, 1000) * (n + 1))
        least = np.inf if rank > n else all_[rank - 1]
        got = found.quantile(thousandths / 1000)
        assert least <= got
        assert np.isinf(got) == np.isinf(least)
        if np.isfinite(got):
            assert got - least <= 1 / 8


@pytest.mark.parametrize("ties", [False, True])
def test_coverage_of_nodes_like_those_of_validation(ties):
    rng = np.random.default_rng(0)
    shares, task = [], find_task()
    for _ in range(300):
        z = rng.standard_normal((120, 3)) * 2
        labels = np.array([rng.choice(3, p=p) for p in softmax(z, axis=1)])
        z = np.round(z) if ties else z * 3  # the probabilities are wrong, the coverage is not
        kept = Conformal.of(task.nonconformity(labels[:40], z[:40]))
        inside = task.sets(z[40:], kept.quantile(0.8))
        shares.append(inside[np.arange(80), labels[40:]].mean())
    least, most = 0.8, 1 if ties else 0.8 + 1 / 41
    noise = 4 * np.std(shares) / len(shares) ** 0.5
    assert least - noise <= np.mean(shares) <= most + noise


@pytest.mark.filterwarnings("ignore:a coverage of .* need")  # of 0.99 and more
def test_sets_are_kept_with_a_model_and_come_from_stores(tmp_path):
    graph = scattered_graph()
    names = ["a|b", "c\\", "d", "e", "f"][: graph.num_classes]
    graph = graph.with_labels(graph.labels, names).with_split(graph.split)
    result = hoplite.train(graph, "lgc", **OPTIONS)
    model = TrainedModel.load(result.model.save(tmp_path / "model"))
    store = hoplite.propagate(graph, tmp_path / "store", hops=2)
    chance, val = model.predict_proba(graph).astype(float), graph.split.val
    for coverage in (0.5, 0.8, 0.999):
        own = np.sort(chance[val, graph.labels[val]])[::-1]
        rank = math.ceil(Fraction(repr(coverage)) * (len(val) + 1))
        least = own[rank - 1] if rank <= len(val) else 0
        found = model.prediction_sets(graph, coverage)
        clear = np.abs(chance - least) > 2e-6
        np.testing.assert_array_equal(found[clear], (chance >= least)[clear])
        assert found[val, graph.labels[val]].mean() >= coverage - 1 / len(val)
        np.testing.assert_array_equal(model.prediction_sets(store, coverage), found)
        texts = [
            "|".join(n.replace("\\", "\\\\").replace("|", "\\|") for n in np.array(names)[one])
            for one in found
        ]
        for data in (graph, store):
            table = predict_table(model, data, coverage=coverage)
            assert table["set"].tolist() == texts
            assert table["set_size"].tolist() == found.sum(axis=1).tolist()
    assert model.prediction_sets(graph, 0.999).all()  # more than so few nodes can tell
    for wrong in (0, 1, 1.5, float("nan"), "0.9"):
        with pytest.raises(ConfigError, match="coverage is"):
            model.prediction_sets(graph, wrong)
    whole = graph.with_split(Split(graph.split.train))
    alone = hoplite.train(whole, "lgc", folds=0, **OPTIONS).model
    with pytest.raises(ConfigError, match="has no validation scores"):
        alone.prediction_sets(graph)
    model.training[CONFORMAL]["scores"] = ["?"]
    with pytest.raises(ModelFileError, match="scores are damaged"):
        model.prediction_sets(graph)


@pytest.mark.filterwarnings("ignore:a coverage of .* need")  # of 0.99 and more
def test_every_class_is_covered_if_asked(tmp_path):
    """The exact rule, class by class; and a note of sets that leave out a rare class."""
    rng = np.random.default_rng(3)
    graph = rare()
    big = Split(graph.split.train[:60], np.setdiff1d(np.arange(400), graph.split.train[:60]))
    graph = graph.with_split(big)
    result = hoplite.train(graph, "sgc", hops=0, dropout=0, bias=True, epochs=60, lr=0.05)
    model = TrainedModel.load(result.model.save(tmp_path / "m"))
    labels, val, chance = graph.labels, graph.split.val, model.predict_proba(graph).astype(float)
    own = val[labels[val] == 1]
    assert model.prediction_sets(graph, 0.9)[own, 1].mean() < 0.8
    for coverage in (0.5, 0.9, 0.99):
        found = model.prediction_sets(graph, coverage, by_class=True)
        for c in (0, 1):
            nodes = val[labels[val] == c]
            rank = math.ceil(Fraction(repr(coverage)) * (len(nodes) + 1))
            least = np.sort(chance[nodes, c])[::-1][rank - 1] if rank <= len(nodes) else 0
            clear = np.abs(chance[:, c] - least) > 2e-6
            np.testing.assert_array_equal(found[clear, c], (chance[:, c] >= least)[clear])
            assert found[nodes, c].mean() >= coverage
        table = predict_table(model, graph, coverage=coverage, by_class=True)
        assert table["set_size"].tolist() == found.sum(axis=1).tolist()
    assert model.prediction_sets(graph, 0.99, by_class=True)[:, 1].all()  # too few of them
    values = graph.with_labels(rng.standard_normal(400)).with_split(big)
    numbers = hoplite.train(values, "sgc", hops=0, epochs=2).model
    with pytest.raises(ConfigError, match="predicts numbers"):
        numbers.prediction_sets(values, 0.9, by_class=True)


def test_too_few_nodes_for_a_coverage_are_told():
    """n nodes are enough for at most n / (n + 1), of all nodes or of each class."""
    graph = scattered_graph()
    rest = np.setdiff1d(np.arange(graph.num_nodes), graph.split.train)
    common = rest[graph.labels[rest] != 1]
    graph = graph.with_split(Split(graph.split.train, common[:9]))  # none of class 1
    model = hoplite.train(graph, "lgc", **OPTIONS).model
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not model.prediction_sets(graph, 0.9).all()
    with pytest.warns(
        HopliteWarning, match="coverage of 91 % needs at least 11 validation nodes but there are"
    ):
        assert predict_table(model, graph, coverage=0.91)["set_size"].min() > 1
    with pytest.warns(HopliteWarning, match="needs at least 9 validation nodes of each class but"):
        sets = model.prediction_sets(graph, 0.9, by_class=True)
    assert sets.all(axis=0).tolist() == [False, True, True]
    numbers = graph.with_labels(graph.features[:, 0]).with_split(graph.split)
    with pytest.warns(HopliteWarning, match="needs at least 19 .* so every interval is unbounded"):
        hoplite.train(numbers, "lgc", **OPTIONS).model.prediction_sets(numbers, 0.95)


def test_intervals_of_numbers():
    rng = np.random.default_rng(1)
    graph = scattered_graph()
    y = graph.features @ rng.standard_normal(graph.num_features) + rng.standard_normal(
        graph.num_nodes
    )
    order = rng.permutation(graph.num_nodes)
    third = len(order) // 3
    train, val = order[:third], order[third : 2 * third]
    model = LGCRegressor(graph, **OPTIONS).fit(train, y[train], validation=(val, y[val])).model_
    low, high = model.prediction_sets(graph, 0.8).T
    inside = (low <= y) & (y <= high)
    assert inside[val].sum() >= math.ceil(0.8 * (third + 1))
    table = predict_table(model, graph, coverage=0.8)
    np.testing.assert_array_equal(table["low"], low)
    np.testing.assert_array_equal(table["high"], high)
