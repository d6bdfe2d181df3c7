"""The options that the settings of models and of training are on the command line."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import Field, fields
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from hoplite.cli.completion import Complete, offered
from hoplite.errors import ConfigError
from hoplite.models import (
    MODELS,
    ModelConfig,
    all_settings,
    find_model,
    models_with,
    usual_options,
)
from hoplite.preparation import TableOptions
from hoplite.strategies import STRATEGIES

FEW = 2  # models that have a setting: they are named in its help
SOME = 4  # likewise, if it means another thing to each
USUAL_MODEL = ModelConfig().model
_MODEL_HELP = (
    f"{', '.join([*MODELS][:-1])} or {[*MODELS][-1]}, or your own as PACKAGE.MODULE:CLASS; of "
    f"train also {', '.join(STRATEGIES)}, which chooses one."
)
_MODEL_NAMES = offered([*MODELS, *STRATEGIES])
ModelOption = Annotated[str, typer.Option(help=_MODEL_HELP, autocompletion=_MODEL_NAMES)]
ModelByDataOption = Annotated[
    str | None,
    typer.Option(
        help=f"{_MODEL_HELP} Tables have by default 2 hops, operator random_walk, bias, dropout 0, "
        "optimizer lbfgs and the feature log degree.",
        show_default=f"{USUAL_MODEL}; blocks for node and edge tables",
        autocompletion=_MODEL_NAMES,
    ),
]
Command = TypeVar("Command", bound=Callable[..., None])
_commands: list[tuple[Callable[..., None], bool]] = []


def with_settings(*, defaults: bool) -> Callable[[Command], Command]:
    """Give a command, behind its ``--model``, an option for every setting of every known model.

    They come as ``**settings``, None where they are not given; ``defaults`` shows what holds then.
    The options of tables come with them: :func:`table_options` takes them out.
    """

    def change(command: Command) -> Command:
        _commands.append((command, defaults))
        _add_options(command, defaults)
        return command

    return change


def with_tables(*, reading: bool = False) -> Callable[[Command], Command]:
    """Give a command the options of node and edge tables, which come as ``**tables``.

    With ``reading``, where a model says the rest, only those that do not change the features.
    """

    def change(command: Any) -> Any:
        written = inspect.signature(command, eval_str=True)
        parameters = [p for p in written.parameters.values() if p.kind is not p.VAR_KEYWORD]
        parameters += _table_parameters(reading)
        command.__signature__ = written.replace(parameters=parameters)
        return command

    return change


def table_options(settings: dict[str, Any]) -> dict[str, Any]:
    """The options of tables that were given, which are taken out of ``settings``."""
    found = {name: settings.pop(name, None) for name in TableOptions.names()}
    return {name: value for name, value in found.items() if value is not None}


def _table_parameters(reading: bool) -> list[Parameter]:
    found = []
    for field in fields(TableOptions):
        if field.metadata["reading"] or not reading:
            usual = field.default
            kind = type(usual) if isinstance(usual, int) else str
            shown = str(usual) if usual else False
            about, flag = field.metadata, f"--{field.name.replace('_', '-')}"
            text = about["help"] if about["general"] else f"Of tables: {about['help']}"
            option = typer.Option(
                flag, help=text, show_default=shown, autocompletion=_offered(about)
            )
            found.append(
                Parameter(
                    field.name,
                    Parameter.KEYWORD_ONLY,
                    default=None,
                    annotation=Annotated[kind | None, option],
                )
            )
    return found


def _offered(about: Mapping[str, Any]) -> Complete | None:
    return offered(about["choices"]) if about["choices"] else None


def know_model(arguments: Sequence[str]) -> None:
    """If the command line names a model that is not known yet, find it and add its options.

    A module may lie in the current folder. Whether the name is wrong is for commands to say where
    --model means something else, such as a row of a table.
    """
    own = {command.__name__ for command, _ in _commands}
    strict = bool(own & {*arguments[1:2]}) and "--help" not in arguments
    for argument, value in zip(arguments, [*arguments[1:], ""], strict=True):
        if argument.startswith("--model="):
            argument, value = argument.split("=", 1)
        known = value.startswith("-") or value in MODELS or value in STRATEGIES
        if argument == "--model" and value and not known:
            if ":" in value:
                sys.path.append(str(Path.cwd()))
            with suppress(*[] if strict else [ConfigError]):
                find_model(value)
            for command, defaults in _commands:
                _add_options(command, defaults)


def _add_options(command: Any, defaults: bool) -> None:
    vars(command).pop("__signature__", None)
    written = inspect.signature(command, eval_str=True)
    parameters = [p for p in written.parameters.values() if p.kind is not p.VAR_KEYWORD]
    place = [parameter.name for parameter in parameters].index("model") + 1
    settings = sorted(all_settings().values(), key=lambda field: type(field.default) is bool)
    parameters[place:place] = [_option(field, defaults) for field in settings]
    parameters += _table_parameters(reading=False)
    command.__signature__ = written.replace(parameters=parameters)  # which typer reads


def _each(setting: str, names: Sequence[str]) -> str:
    """What the setting means to each of the models; empty if that is the same for all."""
    told: dict[str, list[str]] = {}
    for name in names:
        for field in fields(MODELS[name].Settings):
            if field.name == setting:
                told.setdefault(field.metadata["help"].rstrip("."), []).append(name)
    if len(told) < 2:
        return ""
    return "; ".join(f"{' and '.join(of)}: {text}" for text, of in told.items()) + "."


def _option(field: Field[Any], defaults: bool) -> Parameter:
    about, names = field.metadata, models_with(field.name)
    text = f"{' and '.join(names)} only: {about['help']}" if len(names) <= FEW else about["help"]
    if FEW < len(names) <= SOME:
        text = _each(field.name, names) or text
    kind = type(field.default)
    own = {name: usual_options(name)[field.name] for name in names}
    flags = [f"--{field.name.replace('_', '-')}"] if kind is bool else []
    if flags and any(find_model(name).source() for name in names):  # others' may be on as they are
        flags = [f"{flags[0]}/--no-{flags[0][2:]}"]
    others = ", ".join(f"{name} {value}" for name, value in own.items() if value != field.default)
    usual = f"{field.default} ({others})" if others else str(field.default)
    usual = f"{usual}; {about['store']}" if about["store"] else usual
    shown = usual if defaults and not flags else False
    option = typer.Option(*flags, help=text, show_default=shown, autocompletion=_offered(about))
    return Parameter(
        field.name,
        Parameter.POSITIONAL_OR_KEYWORD,
        default=None,
        annotation=Annotated[kind | None, option],
    )
