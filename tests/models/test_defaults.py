"""Training defaults that a model has of its own."""

import inspect

import pytest

import hoplite
from hoplite import ConfigError, Graph
from hoplite.datasets.splits import stratified_split
from hoplite.models import SGC, split_options, usual_options

FIXED = ("sgc", "s2gc", "ppr", "heat", "dgc")


@pytest.mark.parametrize("model", FIXED)
def test_fixed_filters_are_good_without_any_option(cora, model):
    split = stratified_split(cora.labels)
    graph = Graph(cora.adjacency, cora.features, cora.labels, split=split)
    assert hoplite.train(graph, model).test_accuracy > 0.8
    assert hoplite.train(cora, model).test_accuracy > 0.78


def test_every_way_in_has_the_same_defaults():
    assert split_options("sgc", {})[1].lr == usual_options("sgc")["lr"] == 0.2
    assert split_options("lgc", {})[1].lr == usual_options("lgc")["lr"] == 0.05
    parameters = inspect.signature(hoplite.SGCClassifier).parameters
    assert parameters["weight_decay"].default == 5e-6
    assert inspect.signature(hoplite.LGCClassifier).parameters["weight_decay"].default == 5e-4


def test_explicit_options_win():
    training = split_options("ppr", {"lr": 0.05, "weight_decay": 5e-4})[1]
    assert (training.lr, training.weight_decay) == (0.05, 5e-4)


def test_a_default_of_what_is_no_training_setting_is_refused():
    wrong = type("Wrong", (SGC,), {"name": "wrong", "defaults": {"hops": 3}})
    with pytest.raises(ConfigError, match="wrong's defaults have 'hops', which is no training"):
        hoplite.register_model(wrong)
