"""Settings that a model does not have: refused, wherever they come from, and never shown."""

import pytest
from tests import pyg

from hoplite import ConfigError, ModelConfig, model_config, train
from hoplite.config import TrainingConfig
from hoplite.models import (
    MODELS,
    LabelModel,
    all_settings,
    idle_settings,
    models_with,
    split_options,
)

OTHER = {
    "hops": 3,
    "operator": "adjacency",
    "basis": "chebyshev",
    "start": "lowpass",
    "gate": "class",
    "layers": 3,
    "hidden": 5,
    "heads": 2,
    "gamma": 0.5,
    "alpha": 0.3,
    "time": 1.5,
    "channels": "adjacency,laplacian",
    "bias": True,
    "neighbour_labels": True,
    "order": "weights-first",
    "output_dropout": 0.4,
    "filter_lr_factor": 3.0,
    "filter_decay_factor": 1e5,
}
# what nothing learns by is idle where nothing is learned
STEPS = {
    "lr": 0.2,
    "weight_decay": 0.1,
    "dropout": 0.2,
    "optimizer": "lbfgs",
    "epochs": 2,
    "patience": 3,
    "validate_every": 4,
    "tie": "first",
    "loss": "huber",
    "class_weight": "balanced",
    "batch": 3,
    "drop_nodes": 0.3,
    "draws": 2,
    "consistency": 0.5,
    "sharpen": 0.1,
    "confidence": 0.7,
}


@pytest.mark.parametrize("model", MODELS)
def test_an_idle_setting_is_refused_unless_it_is_the_default(model):
    usual = {name: field.default for name, field in all_settings().items()}
    idle = {name for name in usual if len(models_with(name)) < len(MODELS)}
    assert set(OTHER) | set(STEPS) == idle
    learning = {name for name, kind in MODELS.items() if not issubclass(kind, LabelModel)}
    assert all(set(models_with(name)) == learning for name in STEPS)
    options = OTHER if model in learning else OTHER | STEPS
    for name, value in options.items():
        assert value != usual[name]
        split_options(model, {name: usual[name]})
        if name in idle_settings(model):
            with pytest.raises(ConfigError, match=rf"{name} is {value!r} but {model} (has|is)"):
                split_options(model, {name: value})
        else:
            split_options(model, {name: value})


@pytest.mark.parametrize("model", MODELS)
def test_a_setting_that_is_not_idle_changes_the_model(graphs, model):
    """The table tells the truth: what it calls a model's own setting changes its weights."""
    graph = graphs(n=20, d=6)
    options = {"hops": 2, "epochs": 4, "dropout": 0.0, "lr": 0.1, "hidden": 4}
    options["operator"] = "renormalized"
    options = {k: v for k, v in options.items() if k not in idle_settings(model)}
    if model == "gat":
        pyg.layers()

    def logits(**change):
        return train(graph, model, **(options | change)).model.logits(graph)

    first = logits()
    for name in set(OTHER) - idle_settings(model) - {"order"}:  # whose result is the same
        other = logits(**{name: OTHER[name]})
        assert other.shape == first.shape
        assert (other != first).any(), name


@pytest.mark.parametrize("name", ["hidden", "heads", "hops", "epochs", "patience", "batch"])
def test_absurd_sizes_are_refused(name):
    for value in (2**53 + 1, 10**30):
        with pytest.raises(ConfigError, match=f"{name} is {value}; it must be"):
            split_options("gat", {name: value})


def test_settings_of_a_model_by_position_and_by_name():
    found = model_config("hlgc", 3, "laplacian", "chebyshev", start="lowpass", gate="node")
    assert found.as_dict() == model_config(**found.as_dict()).as_dict()
    assert (found.hops, found.operator, found.basis) == (3, "laplacian", "chebyshev")
    assert ModelConfig.from_dict(found.as_dict()) == found
    for wrong, message in (
        ({"lr": 0.1}, "lr is a setting of TrainingConfig"),
        ({"heads": 2}, "hlgc has no such setting"),
        ({"hoops": 2}, "Did you mean 'hops'"),
    ):
        with pytest.raises(ConfigError, match=message):
            model_config("hlgc", **wrong)
    with pytest.raises(ConfigError, match="no setting 'heads'"):
        ModelConfig.from_dict(found.as_dict() | {"heads": 8})
    with pytest.raises(ConfigError, match="it must be one of"):
        ModelConfig.from_dict({"model": "os:path"})


@pytest.mark.parametrize("model", ["lgc", "sgc", "gcn"])
def test_lbfgs_steps_at_full_length_and_without_dropout_unless_asked(model):
    _, training = split_options(model, {"optimizer": "lbfgs"})
    assert (training.lr, training.dropout) == (1.0, 0.0)
    _, training = split_options(model, {"optimizer": "lbfgs", "lr": 0.1, "dropout": 0.2})
    assert (training.lr, training.dropout) == (0.1, 0.2)


@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": "lbfgs", "consistency": 1.0},
        {"optimizer": "lbfgs", "filter_lr_factor": 2.0},
        {"optimizer": "lbfgs", "lr": 1e13},
        {"batch": 5},
        {"batch": 5, "dropout": 0.0, "optimizer": "lbfgs"},
        {"batch": 5, "dropout": 0.0, "order": "weights-first"},
    ],
)
def test_settings_that_exclude_each_other(options):
    with pytest.raises(ConfigError):
        TrainingConfig(**options)


def test_a_number_beyond_all_floats_is_told():
    with pytest.raises(ConfigError, match="lr is 1000"):
        TrainingConfig(lr=10**400)
