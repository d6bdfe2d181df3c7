"""The options of commands: shared ones, and those made from the fields of configurations.

:func:`with_settings` and :func:`with_reading` are the only place that turns a field into an option:
its type, default, help, completion and group come from the field's metadata.
"""

from __future__ import annotations

import inspect
import itertools
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import Field
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

import hoplite
from hoplite.config import FAMILIES, NAMES, TABLE_FORMATS
from hoplite.errors import ConfigError, HopliteError, check_choice
from hoplite.models import MODELS, all_settings, find_model, model_defaults, models_with
from hoplite.models.settings import AUTO, DEFAULT_MODEL, help_group
from hoplite.preparation import TableOptions

MAX_NAMED = 4  # models that the help of a setting names
# settings in the first group of a help
BASICS = ("nodes", "edges", "label", "id", "source", "target", "weight", "task")
Command = TypeVar("Command", bound=Callable[..., None])
_commands: list[tuple[Any, bool, Sequence[str]]] = []  # arguments of with_settings


def complete(names: Iterable[str]) -> Callable[[str], list[str]]:
    """A completion: the ``names`` that start with the typed word.

    >>> complete(["sgc", "lgc"])("l")
    ['lgc']
    """
    allowed = list(names)
    return lambda incomplete: [name for name in allowed if name.startswith(incomplete)]


def complete_dataset(incomplete: str) -> list[str]:
    """Names of datasets and of files and folders here; without a name, shells offer files."""
    names = complete(NAMES)(incomplete)
    files = [path.name for path in sorted(Path().glob("[!.]*"))] if names else []
    return list(dict.fromkeys([*names, *complete(files)(incomplete)]))


Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, nothing else.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")]


def _dataset_argument(more: str) -> Any:
    text = f"A name (`hoplite datasets`), a folder of tables, a file{more}."
    return typer.Argument(metavar="DATASET", help=text, autocompletion=complete_dataset)


Dataset = Annotated[str, _dataset_argument(", a database or a hop store")]
Source = Annotated[str, _dataset_argument(" or a database")]
Threads = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="CPU threads.",
        show_default="all cores",
        rich_help_panel="Large graphs",
    ),
]
StoreMemory = Annotated[
    str | None,
    typer.Option(
        help="Memory limit for a hop store, e.g. 700MB.",
        show_default="4GB",
        rich_help_panel="Large graphs",
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        help="Dask cluster to compute on: tcp://HOST:PORT or local:N.",
        rich_help_panel="Large graphs",
    ),
]
ModelFolder = Annotated[
    Path, typer.Argument(metavar="MODEL_DIR", help="A folder written by `hoplite train --out`.")
]
OwnClass = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="MODULE:CLASS",
        help="The class of your own model, if no installed package registers it.",
    ),
]
_MODEL_HELP = f"{', '.join(MODELS)}, or MODULE:CLASS."
ModelName = Annotated[
    str | None,
    typer.Option(
        help=_MODEL_HELP,
        show_default=f"{DEFAULT_MODEL}; for graphs {AUTO}",
        autocompletion=complete(MODELS),
    ),
]
ModelByData = Annotated[
    str | None,
    typer.Option(
        help=f"auto, {_MODEL_HELP}",
        show_default=f"{DEFAULT_MODEL}; for tables, chosen by cross-validation",
        autocompletion=complete([*MODELS, AUTO]),
    ),
]


def _data_option(type_: type, *flags: str, **options: Any) -> Any:
    return Annotated[type_ | None, typer.Option(*flags, rich_help_panel="Data", **options)]


# How data is read: arguments of ``open_data``, besides the options of tables
DATA_OPTIONS = {
    "seed": _data_option(
        int,
        "--split-seed",
        min=0,
        metavar="N",
        help="Seed of a 60/20/20 split, for tables without a split column.",
        show_default="no split",
    ),
    "split": _data_option(
        int, "--split-index", min=0, metavar="N", help="Which split of a .npz file to use, from 0."
    ),
    "structural": _data_option(
        int,
        min=0,
        metavar="N",
        help="Add degrees and N singular vectors as features.",
        show_default="32 if there are no features",
    ),
    "link": _data_option(bool, "--link", help="Add the adjacency matrix as features."),
}


def with_settings(
    *, defaults: bool = False, only: Sequence[str] = ()
) -> Callable[[Command], Command]:
    """Give a command the options of models, training and reading data, after its own.

    They come as ``**settings``, None where they are not given; ``defaults`` shows the defaults,
    ``only`` are the settings of models and training that the command has.
    :func:`split_settings` separates the options of reading data.
    """

    def decorate(command: Command) -> Command:
        _commands.append((command, defaults, only))
        _add_settings(command, defaults, only)
        return command

    return decorate


def with_store_tables(command: Command) -> Command:
    """Give a command the options of reading data that a hop store can be built with."""
    tables = [name for name in TableOptions.names() if name not in ("directed", "type")]
    _add_parameters(command, _reading_parameters(DATA_OPTIONS, tables, basics=()))
    return command


def with_reading(command: Command) -> Command:
    """Give a command the options of reading data that do not change the features.

    They come as ``**reading``, None where they are not given; a saved model decides the others.
    """
    tables = TableOptions.names(reading=True)
    _add_parameters(command, _reading_parameters(["seed"], tables, trained=True))
    return command


def split_settings(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments of ``open_data`` and the settings of models and training that are not None."""
    rest = without_none(settings)
    names = [name for name in (*DATA_OPTIONS, *TableOptions.names()) if name in rest]
    return {name: rest.pop(name) for name in names}, rest


def without_none(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are not None."""
    return {name: value for name, value in options.items() if value is not None}


def register_named_model(words: Sequence[str]) -> None:
    """Add the options of a model that only the command line names, such as ``--model mine:Model``.

    Its module may be in the current folder. The help has all settings of the named model.
    """
    for word, following in itertools.pairwise([*words, ""]):
        option, _, value = word.partition("=")
        value = value or following
        if option != "--model" or not value or value in (*FAMILIES, AUTO):
            continue
        if ":" in value:
            sys.path.append(str(Path.cwd()))
        with suppress(ConfigError):  # the command reports it, and knows its models
            model = find_model(value).name
            for command in _commands:
                _add_settings(*command, model)


def _add_settings(
    command: Any, defaults: bool, only: Sequence[str], model: str | None = None
) -> None:
    """Add the options of all settings; the help shows those of ``model``, or of many models."""
    vars(command).pop("__signature__", None)
    parameters = []
    for name, field in all_settings().items():
        models = models_with(name)
        foreign = len(models) <= MAX_NAMED if model is None else model not in models
        if not only or name in only:
            hidden = foreign and not only
            parameters.append(_setting_parameter(field, models, defaults, hidden=hidden))
    reading = _reading_parameters(DATA_OPTIONS, TableOptions.names())
    _add_parameters(command, [*parameters, *reading])


def _add_parameters(command: Any, new: list[Parameter]) -> None:
    """Add to the signature of ``command``, which Typer reads; its own options have priority."""
    signature = inspect.signature(command, eval_str=True)
    old = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    names = {parameter.name for parameter in old}
    new = [parameter for parameter in new if parameter.name not in names]
    command.__signature__ = signature.replace(parameters=[*old, *new])


def _parameter(name: str, annotation: Any) -> Parameter:
    """One option; its default is None, so that Python's own default applies."""
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _field_parameter(field: Field[Any], type_: type, panel: Any, **options: Any) -> Parameter:
    choices = field.metadata["choices"]
    completion = complete(choices) if choices else None
    option = typer.Option(autocompletion=completion, rich_help_panel=panel, **options)
    return _parameter(field.name, Annotated[type_ | None, option])


def _reading_parameters(
    data: Iterable[str],
    tables: Iterable[str],
    *,
    trained: bool = False,
    basics: Sequence[str] = BASICS,
) -> list[Parameter]:
    """The options of reading data; a ``trained`` model knows the columns, but not the tables."""
    parameters = [_parameter(name, DATA_OPTIONS[name]) for name in data]
    for name in tables:
        field = TableOptions.__dataclass_fields__[name]
        type_ = type(field.default) if isinstance(field.default, int) else str
        text = field.metadata["help"]
        default = str(field.metadata.get("default_text", field.default) or "") or False
        if trained and name not in ("nodes", "edges"):
            default = "as in training"
        panel = None if name in basics else "Tables"
        parameters.append(_field_parameter(field, type_, panel, help=text, show_default=default))
    return parameters


def _setting_parameter(
    field: Field[Any], models: Sequence[str], defaults: bool, *, hidden: bool
) -> Parameter:
    type_ = str if field.metadata["choices"] else type(field.default)
    visible = defaults and field.default != "" and type_ is not bool
    text = _help(field, models)
    default = _defaults_text(field, models) if visible else False
    about: dict[str, Any] = {"help": text, "show_default": default, "hidden": hidden}
    return _field_parameter(field, type_, help_group(field.name), **about)


def _defaults_text(field: Field[Any], models: Sequence[str]) -> str:
    """The default of a setting, and the models with another one: "10; 2 for sgc, stacked"."""
    exceptions: dict[Any, list[str]] = {}
    for model in models:
        value = model_defaults(model)[field.name]
        if value != field.default:
            exceptions.setdefault(value, []).append(model)
    texts = [f"{value} for {', '.join(names)}" for value, names in exceptions.items()]
    return "; ".join([str(field.default).replace("None", "none"), *texts])


def _help(field: Field[Any], models: Sequence[str]) -> str:
    """The help of a setting; for each model if few models have it."""
    if len(models) > MAX_NAMED:
        return field.metadata["help"]
    meanings: dict[str, list[str]] = {}
    for model in models:
        setting = MODELS[model].Settings.__dataclass_fields__.get(field.name, field)
        meanings.setdefault(setting.metadata["help"].rstrip("."), []).append(model)
    return ". ".join(f"{text} ({', '.join(names)})" for text, names in meanings.items()) + "."


def load_model(folder: Path, dataset: str, own_class: str | None) -> hoplite.TrainedModel:
    """The model in ``folder``, after its class was registered."""
    from hoplite.models.saved import CONFIG_FILE

    if Path(dataset, CONFIG_FILE).is_file() and not (folder / CONFIG_FILE).is_file():
        raise ConfigError(
            f"{folder} is not a model folder but {dataset} is; swap them: "
            f"{shlex.join(['hoplite', *sys.argv[1:2], dataset, str(folder)])}."
        )
    if own_class is not None:
        if ":" not in own_class:
            raise ConfigError(f"is {own_class!r}; pass your own model as MODULE:CLASS.", "model")
        find_model(own_class)
    return hoplite.TrainedModel.load(folder)


def save_model(
    model: Any, out: Path | None, summary: dict[str, Any], *, overwrite: bool, **details: Any
) -> HopliteError | None:
    """Save a model with its ``summary`` and ``details``, if a folder is given; the error if any.

    The summary gets where it is, or why it is not there: a full disk must not lose the scores.
    """
    if out is None:
        return None
    try:
        model.save(out, overwrite=overwrite, result=summary | details)
    except HopliteError as error:
        summary["error"] = str(error)
        return error
    summary["out"] = str(out)
    return None


def check_new(path: Path, *, overwrite: bool) -> None:
    """HopliteError if ``path`` exists, unless it may be overwritten."""
    if path.exists() and not overwrite:
        raise HopliteError(f"{path} already exists; use --overwrite.")


def check_page(out: Path, *, overwrite: bool) -> None:
    """Check before any work that ``out`` can be written as an HTML page."""
    check_choice("the file extension of --out", out.suffix.lower(), (".html", ".htm"))
    folder = out.absolute().parent
    if not folder.is_dir() or out.is_dir():
        raise ConfigError(f"--out {out} is not a file in an existing folder.")
    check_new(out, overwrite=overwrite)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise HopliteError(f"{out} cannot be written: its folder is not writable.")


def check_table(option: str, out: Path, dataset: str) -> None:
    """Raise ConfigError unless ``out`` can be a table, and replaces no file of the dataset."""
    check_choice(f"the file extension of {option}", out.suffix.lower(), TABLE_FORMATS)
    data, target = (Path(os.path.realpath(path)) for path in (dataset, out))
    if target.exists() and (target == data or data in target.parents):
        raise ConfigError(
            f"{option} {out} already exists and is a file of {dataset}; choose another name."
        )
