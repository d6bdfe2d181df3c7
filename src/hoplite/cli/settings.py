"""The options that the settings of models and of training are on the command line."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import Field
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from hoplite.errors import ConfigError
from hoplite.models import MODELS, ModelConfig, all_settings, find_model, models_with

FEW = 2  # models that have a setting: they are named in its help
USUAL_MODEL = ModelConfig().model
ModelOption = Annotated[
    str,
    typer.Option(
        help=f"{', '.join([*MODELS][:-1])} or {[*MODELS][-1]}, or your own as PACKAGE.MODULE:CLASS."
    ),
]
Command = TypeVar("Command", bound=Callable[..., None])
_commands: list[tuple[Callable[..., None], bool]] = []


def with_settings(*, defaults: bool) -> Callable[[Command], Command]:
    """Give a command, behind its ``--model``, an option for every setting of every known model.

    They come as ``**settings``, None where they are not given; ``defaults`` shows what holds then.
    """

    def change(command: Command) -> Command:
        _commands.append((command, defaults))
        _add_options(command, defaults)
        return command

    return change


def know_model(arguments: Sequence[str]) -> None:
    """If the command line names a model that is not known yet, find it and add its options.

    A module may lie in the current folder.
    """
    for argument, value in zip(arguments, [*arguments[1:], ""], strict=True):
        if argument.startswith("--model="):
            argument, value = argument.split("=", 1)
        if argument == "--model" and value and not value.startswith("-") and value not in MODELS:
            if ":" in value:
                sys.path.append(str(Path.cwd()))
            with suppress(*[ConfigError] if "--help" in arguments else []):
                find_model(value)
            for command, defaults in _commands:
                _add_options(command, defaults)


def _add_options(command: Any, defaults: bool) -> None:
    vars(command).pop("__signature__", None)
    written = inspect.signature(command, eval_str=True)
    parameters = [p for p in written.parameters.values() if p.kind is not p.VAR_KEYWORD]
    place = [parameter.name for parameter in parameters].index("model") + 1
    fields = sorted(all_settings().values(), key=lambda field: type(field.default) is bool)
    parameters[place:place] = [_option(field, defaults) for field in fields]
    command.__signature__ = written.replace(parameters=parameters)  # which typer reads


def _option(field: Field[Any], defaults: bool) -> Parameter:
    about, names = field.metadata, models_with(field.name)
    text = f"{' and '.join(names)} only: {about['help']}" if len(names) <= FEW else about["help"]
    kind = type(field.default)
    flags = [f"--{field.name.replace('_', '-')}"] if kind is bool else []
    usual = f"{field.default}; {about['store']}" if about["store"] else str(field.default)
    shown = usual if defaults and not flags else False
    option = typer.Option(*flags, help=text, show_default=shown)
    return Parameter(
        field.name,
        Parameter.POSITIONAL_OR_KEYWORD,
        default=None,
        annotation=Annotated[kind | None, option],
    )
