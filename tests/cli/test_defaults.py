"""Defaults of the command line beside those of Python: equal, or with a reason in one table."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import pytest

import hoplite
import hoplite.theory
from hoplite.cli.commands import SUMMARIES, command_function
from hoplite.cli.defaults import DIFFERENCES
from hoplite.config import TrainingConfig
from hoplite.models import MODELS, all_settings, models_with, usual_options
from hoplite.preparation import TableOptions

ROOT = Path(__file__).parents[2]
OPEN = ("store.open_data", {"split_seed": "seed", "split_index": "split"})
# for each command what it calls, and the options that are called otherwise there
CALLS: dict[str, list[tuple[str, dict[str, str]]]] = {
    "datasets": [("datasets.fetch.fetch", {"fetch_name": "name"})],
    "train": [
        ("training.train", {}),
        ("search.halving.auto", {}),
        ("search.auto_classifier.AutoClassifier", {}),
        OPEN,
    ],
    "search": [("search.run.search", {}), OPEN],
    "serve": [("serve.answers.Answers", {}), ("serve.server.listen", {}), OPEN],
    "predict": [("predictions.predictions", {"sets": "coverage"}), OPEN],
    "explain": [
        ("explain.explanation.explain", {}),
        ("explain.explanation.Explanation.summary", {"flips": ""}),
        ("explain.removals.flips", {}),
        OPEN,
    ],
    "bounds": [
        ("theory.FunctionClass", {}),
        ("theory.FunctionClass.estimate", {}),
        ("theory.generalization.generalization", {}),
        OPEN,
    ],
    "propagate": [("store.propagate", {"split_seed": "seed"}), ("store.update_store", {})],
    "doctor": [],
}
NONE_MEANS = {  # what a command does where its None is another value in Python
    ("bounds", "coefficient_bound"): 1.0,
    ("bounds", "weight_bound"): 1.0,
}


def found(path: str) -> Any:
    module, _, name = path.rpartition(".")
    try:
        return getattr(import_module(f"hoplite.{module}"), name)
    except ModuleNotFoundError:
        return getattr(found(module), name)


def options(command: str) -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(command_function(command), eval_str=True).parameters
    return {
        name: one
        for name, one in parameters.items()
        if one.default is not one.empty and one.kind is not one.VAR_KEYWORD
    }


def shown(parameter: inspect.Parameter) -> str:
    """What --help shows as the default."""
    about = get_args(parameter.annotation)[1]
    return about.show_default if isinstance(about.show_default, str) else about.help


def says(parameter: inspect.Parameter, default: Any) -> bool:
    """Whether --help names ``default`` as what holds if the option is not given."""
    about = get_args(parameter.annotation)[1]
    return about.show_default == str(default) or f"[default: {default}" in about.help


def differences() -> dict[tuple[str, str, str], tuple[Any, Any]]:
    """(command, option, Python's name) to the defaults in Python and on the command line."""
    told = {}
    for command, calls in CALLS.items():
        for path, names in calls:
            arguments = inspect.signature(found(path)).parameters
            for option, parameter in options(command).items():
                name = names.get(option, option)
                there = arguments.get(name)
                if there is None or there.default is there.empty:
                    continue
                here = parameter.default
                if here is None and there.default is not None:
                    here = NONE_MEANS.get((command, option), here)
                    if here is None and says(parameter, there.default):
                        continue
                if here != there.default:
                    told[command, option, path] = (there.default, here)
    return told


def test_every_difference_has_its_reason():
    real: dict[Any, set[str]] = {}
    for (command, option, path), defaults in differences().items():
        real.setdefault((command, option, *defaults), set()).add(path.rsplit(".", 1)[1])
    listed = {(one.command, one.option, one.there, one.here): one.python for one in DIFFERENCES}
    assert set(real) == set(listed)
    for key, python in listed.items():
        assert python.rsplit(".", 1)[1] in real[key]


def test_the_reasons_are_shown():
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    for one in DIFFERENCES:
        assert one.why in " ".join(page.split())
        parameter = options(one.command)[one.option]
        first = next(d for d in DIFFERENCES if (d.command, d.option) == (one.command, one.option))
        assert first.told() in get_args(parameter.annotation)[1].help


def test_all_commands_are_walked():
    assert set(CALLS) == set(SUMMARIES)


@pytest.mark.parametrize("command", ["train", "search"])
def test_settings_have_no_default_of_the_commands_own(command):
    """They are left out where they are not given, so Python's defaults hold."""
    given = options(command)
    for name in all_settings():
        assert given[name].default is None
    for field in TableOptions.names():
        assert given[field].default is None
    if command == "train":
        for name, field in all_settings().items():
            if type(field.default) is not bool:
                text = shown(given[name])
                assert text.startswith(str(field.default)), name
                for model in models_with(name):
                    usual = usual_options(model)[name]
                    assert usual == field.default or f"{model} {usual}" in text


def test_the_estimators_have_the_same():
    config = TrainingConfig()
    for kind in (hoplite.LGCClassifier, hoplite.SGCRegressor, hoplite.LabelPropagationClassifier):
        arguments = inspect.signature(kind.__init__).parameters
        own = usual_options(kind.kind.name)
        for name, argument in arguments.items():
            if name in own:
                assert argument.default == own[name]
            elif hasattr(config, name):
                assert argument.default == getattr(config, name)
    assert config.epochs == 500  # the paper's
    assert config.patience == 100
    assert set(MODELS)


@pytest.mark.parametrize("model", ["lgc", "s2gc", "dgc"])
def test_bounds_have_the_hops_of_the_model(model):
    graph = hoplite.Graph.from_edges([(0, 1), (1, 2)], features=[[1.0], [0.0], [2.0]])
    assert hoplite.theory.FunctionClass(graph, model).hops == usual_options(model)["hops"]
