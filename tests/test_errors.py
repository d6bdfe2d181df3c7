"""Errors name the option, and the nearest name for one that does not exist."""

from __future__ import annotations

import inspect
import pickle
from pathlib import Path

import pytest

import hoplite
from hoplite import ConfigError
from hoplite.models import find_model
from hoplite.models.settings import ARGUMENTS
from hoplite.preparation import TableOptions


def test_arguments_are_suggested_as_well(tmp_path: Path) -> None:
    own = inspect.signature(hoplite.train).parameters
    assert {*ARGUMENTS} == {name for name, one in own.items() if one.kind is one.KEYWORD_ONLY}
    with pytest.raises(ConfigError, match=r"'progres' is not an option .* mean 'progress'"):
        hoplite.train("cora", "lgc", progres=True)
    with pytest.raises(ConfigError, match=r"mean 'label'\?"):
        hoplite.load(tmp_path, labels="fraud")
    assert {"label", "source"} < {*TableOptions.names()}
    with pytest.raises(ConfigError, match=r"Did you mean 'auto'\?"):
        find_model("atuo")


def test_an_error_keeps_its_parameter_between_processes() -> None:
    with pytest.raises(ConfigError) as caught:
        hoplite.TrainingConfig(filter_lr_factor=-1)
    error = pickle.loads(pickle.dumps(caught.value))
    assert error.parameter == "filter_lr_factor"
    assert str(error).startswith("filter_lr_factor is -1; ")
    assert error.command_line_message().startswith("--filter-lr-factor is -1; ")
    assert ConfigError("a sentence.").command_line_message() == "a sentence."
