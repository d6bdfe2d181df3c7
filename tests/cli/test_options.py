"""An option is one field of a configuration: command line, estimators and grids have it."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any, get_args

import pytest

import hoplite as library
from hoplite.cli import COMMANDS
from hoplite.cli.options import BASICS
from hoplite.config import TrainingConfig
from hoplite.models import all_settings, model_defaults, models_with
from hoplite.models.settings import help_group
from hoplite.preparation import TableOptions
from hoplite.search.space import parse_space


def parameters(name: str) -> dict[str, inspect.Parameter]:
    every = [command for commands in COMMANDS.values() for command in commands]
    (command,) = [command for command in every if command.__name__ == name]
    return dict(inspect.signature(command, eval_str=True).parameters)


def option(parameter: inspect.Parameter) -> Any:
    return get_args(parameter.annotation)[1]


@pytest.mark.parametrize("command", ["train", "search"])
def test_every_field_is_an_option_without_a_default_of_its_own(command):
    """Options that are not given are left out, so Python's defaults apply."""
    given = parameters(command)
    for name in all_settings():
        assert given[name].default is None
        panel = None if name in BASICS else help_group(name)
        assert option(given[name]).rich_help_panel == panel
    for name in TableOptions.names():
        assert given[name].default is None
    if command == "train":
        for name, field in all_settings().items():
            shown = option(given[name]).show_default
            if type(field.default) is not bool and field.default != "":
                first, *others = shown.split("; ")
                assert first.lower() == str(field.default).lower(), name
                exceptions = [text.split(" for ") for text in others]
                shown_for = {model: v for v, names in exceptions for model in names.split(", ")}
                for model in models_with(name):
                    assert shown_for.get(model, first).lower() == (
                        str(model_defaults(model)[name]).lower()
                    )


def test_the_estimators_and_grids_have_them_with_the_same_defaults():
    for kind in (library.LGCClassifier, library.SGCRegressor, library.LabelPropagationClassifier):
        arguments = inspect.signature(kind.__init__).parameters
        defaults = model_defaults(kind.model_class.name)
        for name, argument in arguments.items():
            if name in defaults and name != "folds":
                assert argument.default == defaults[name]
    training = {field.name for field in dataclasses.fields(TrainingConfig)}
    lacking = training - set(inspect.signature(library.LGCClassifier.__init__).parameters)
    assert lacking == {"loss", "preset"}  # of regressors, and of all settings at once
    for field in dataclasses.fields(TrainingConfig):
        if isinstance(field.default, float) and field.name != "sharpen":
            space = parse_space(f"[any]\n{field.name} = [0.25, 0.5]")
            assert len(space.configurations("x", "lgc")) == 2
    assert TrainingConfig().epochs == 500  # the paper's
    assert TrainingConfig().patience == 100
