"""The settings of models, the registry of models, and the resolution of options.

Every model has a frozen dataclass of its own settings, a subclass of :class:`ModelConfig`. Nothing
here needs torch.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, ClassVar, TypeGuard, TypeVar

from hoplite.bases import find_basis
from hoplite.config import FAMILIES, GROUPS, Checked, TrainingConfig, flag_setting
from hoplite.errors import ConfigError, by_interface, nearest_hint, option_name
from hoplite.formatting import listing
from hoplite.preparation import TableOptions

if TYPE_CHECKING:
    from hoplite.graph import Graph
    from hoplite.models.base import Model

    ModelClass = TypeVar("ModelClass", bound=type)

DEFAULT_MODEL = "lgc"
AUTO = "auto"  # instead of a model, `hoplite train` chooses one
GROUP = "hoplite.models"  # entry points by which installed packages register models
MODELS: dict[str, type[Model]] = {}  # registered models by name
# A function that makes a Model of a torch.nn.Module class; it returns None for any other class
ADAPTER = "hoplite.nets.module:as_model"
TRAINING = {field.name: field for field in dataclasses.fields(TrainingConfig)}
# the arguments of train that are not settings
ARGUMENTS = (
    "seeds",
    "record_test",
    "test",
    "progress",
    "memory",
    "cluster",
    "sample_weight",
    "task",
)
# what tables are trained with where no model is given, see default_options
TABLE_OPTIONS = {"hops": 2, "operator": "random_walk"}
# defaults of L-BFGS, which takes long steps and needs the same loss in each of them
LBFGS = {"lr": 1.0, "dropout": 0.0}
# settings of gradient steps; passing one of them selects Adam
OF_STEPS = frozenset(
    {"lr", "weight_decay", "dropout", "drop_nodes", "output_dropout", "draws", "consistency",
     "sharpen", "confidence", "epochs", "patience", "validate_every", "batch"}
)  # fmt: skip


@dataclass(frozen=True)
class ModelConfig(Checked):
    """The validated settings of a model; create them with :func:`model_config`.

    Every model has a subclass with its own settings, e.g. ``LGC.Settings``; docs/models.md lists
    them.

    Attributes
    ----------
    model : str
        Name of the model.
    kind : type
        Class of the model.
    hops : int
        Number of hops k.
    operator, basis : str
        Names of S and of the basis polynomials p_i.
    bias, neighbour_labels, standardize : bool
        Whether the model has a bias, uses the labels of neighbours, and standardises its outputs.

    Examples
    --------
    >>> model_config("ppr", hops=4).alpha
    0.1
    """

    kind: ClassVar[type[Model]]  # the class of the model
    hops = 2  # for propagation where the model has no such setting: it has two layers
    operator = "renormalized"
    basis = "monomial"
    bias = False
    neighbour_labels = False
    standardize: bool = flag_setting(False, "Standardise the outputs.")

    if TYPE_CHECKING:  # other settings depend on the model

        def __getattr__(self, name: str) -> Any: ...

    @property
    def model(self) -> str:
        """The name of the model."""
        return self.kind.name

    @property
    def reads_neighbours(self) -> bool:
        """Whether the outputs of a node depend on edges."""
        return self.hops > 0 or self.neighbour_labels

    @property
    def operators(self) -> tuple[str, ...]:
        """The operators of the model; only models with channels have several."""
        return (self.operator,)

    @property
    def variant(self) -> str | None:
        """The variant of the model, such as hLGC's gate; None if it has only one."""
        return getattr(self, self.kind.variant) if self.kind.variant else None

    def size(self) -> str:
        """The settings that tables show next to the model's name."""
        text = re.sub(r"\b1 (hidden unit|\w+?)s\b", r"1 \1", self.kind.size.format(self))
        return text + ", labels of neighbours" * self.neighbour_labels

    @property
    def basis_title(self) -> str:
        """The basis for people, see :attr:`hoplite.bases.Basis.title`."""
        return find_basis(self.basis).title

    def fitted(self, graph: Graph) -> ModelConfig:
        """The same settings, with a basis fitted to the features of ``graph`` if it requires that.

        >>> from hoplite import Graph
        >>> g = Graph.from_edges([(0, 1)], features=[[1.0], [0.0]])
        >>> model_config("lgc", 1, "adjacency", "optimal").fitted(g).basis
        'recurrence:1,0,0'
        """
        if not find_basis(self.basis).of_signal:
            return self
        from hoplite.engine.propagation import fitted_basis

        basis = fitted_basis(graph, self.operators, self.basis, self.hops)
        return dataclasses.replace(self, basis=str(basis))

    def as_dict(self) -> dict[str, Any]:
        """Plain values: the model's name, and its settings."""
        return {"model": self.model} | dataclasses.asdict(self)

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> ModelConfig:
        """The settings that :meth:`as_dict` gave.

        The values may come from an untrusted file, which must not choose what is imported: no
        ``package.module:Class``.
        """
        name = values.get("model", DEFAULT_MODEL)
        if not isinstance(name, str) or ":" in name:
            raise ConfigError(f"is {name!r}; it must be one of {', '.join(MODELS)}.", "model")
        settings = find_model(name).Settings
        names = {field.name for field in dataclasses.fields(settings)}
        if unknown := sorted(values.keys() - names - {"model"}):
            raise ConfigError(f"this version has no setting {unknown[0]!r}")
        return settings(**{key: value for key, value in values.items() if key != "model"})


# Names that no setting of a model may have: arguments of train and attributes of ModelConfig
RESERVED = {"graph", "model", "out", "seed", *ARGUMENTS, *TRAINING, *dir(ModelConfig)}
RESERVED -= {"hops", "operator", "basis", "bias", "standardize", "neighbour_labels"}


def model_config(
    model: str | type = DEFAULT_MODEL,
    hops: int | None = None,
    operator: str | None = None,
    basis: str | None = None,
    **options: Any,
) -> ModelConfig:
    """The settings of a model.

    Parameters
    ----------
    model : str or type, default "lgc"
        A model's name or class.
    hops, operator, basis : optional
        Settings that most models have.
    **options
        Other settings of the model. Those that are None or missing have the model's defaults.

    Returns
    -------
    ModelConfig

    Raises
    ------
    ConfigError
        If the model does not have a setting, or its value is invalid.

    Examples
    --------
    >>> model_config("gcn", hidden=8)
    GCN.Settings(standardize=False, operator='renormalized', hidden=8)
    """
    named = {"hops": hops, "operator": operator, "basis": basis}
    options |= {name: value for name, value in named.items() if value is not None}
    if training := sorted(options.keys() & TRAINING):
        raise ConfigError("is a setting of TrainingConfig; pass it there.", training[0])
    return find_model(model).Settings(**own_options(model, options))


def register_model(model: ModelClass) -> ModelClass:
    """Register a model of your own by its name; also a decorator.

    Parameters
    ----------
    model : type
        A ``LinearModel``, ``LabelModel`` or ``Network`` class, or a ``torch.nn.Module`` class.

    Returns
    -------
    type
        The registered model.

    Examples
    --------
    >>> import hoplite
    >>> from hoplite.models import LGC, MODELS
    >>> @hoplite.register_model
    ... class Mine(LGC):
    ...     name = "mine"
    ...     title = "My LGC"
    >>> hoplite.model_config("mine", hops=3).hops
    3
    >>> del MODELS["mine"]
    """
    _register(model)
    return model


def _register(model: Any, address: str = "") -> type[Model]:
    """``model``, or the Model made of a torch.nn.Module class; either is registered.

    ``address`` is how the user named it.
    """
    settings = getattr(model, "Settings", None)
    if isinstance(model, type) and not _is_config(settings):
        model = EntryPoint("module", ADAPTER, GROUP).load()(model) or model
        settings = getattr(model, "Settings", None)
    if not _is_config(settings):
        raise ConfigError(
            f"{address or repr(model)} is not a model class; derive it from "
            "hoplite.models.LinearModel (or LabelModel, Network, RowNetwork) or torch.nn.Module."
        )
    name, place = getattr(model, "name", None), (model.__module__, model.__qualname__)
    if not isinstance(name, str) or not name.isidentifier() or name == AUTO:
        raise ConfigError(f'{place[1]}.name is {name!r}; use letters and digits, e.g. "damped".')
    registered = MODELS.get(name)
    if registered not in (None, model) and "name" not in vars(model):
        raise ConfigError(
            f"{place[1]} does not set `name` and inherits {name!r}; give it a name of its own."
        )
    if registered is not None and (registered.__module__, registered.__qualname__) != place:
        raise ConfigError(
            f"the name {name!r} is already used by {registered.__module__}; choose another."
        )
    others = all_settings()
    for field in dataclasses.fields(settings):
        what = f"{name}'s setting {field.name!r}"
        if "check" not in field.metadata:
            raise ConfigError(f"{what} has a plain default; use, e.g., number_setting.")
        if field.name in RESERVED:
            raise ConfigError(f"{what} is reserved by Hoplite; choose another name.")
        if field.name in others and type(others[field.name].default) is not type(field.default):
            raise ConfigError(f"{what} has another type in other models; choose another name.")
    MODELS[name] = model
    return model


@contextmanager
def forget_on_failure(names: Collection[str]) -> Iterator[None]:
    """If the block fails, unregister all models except those with these ``names``."""
    try:
        yield
    except BaseException:
        for name in MODELS.keys() - names:
            del MODELS[name]
        raise


def _is_config(settings: Any) -> TypeGuard[type[ModelConfig]]:
    return isinstance(settings, type) and issubclass(settings, ModelConfig)


def is_known(name: Any) -> bool:
    """Whether this is the name of a registered model, or of a model of an installed package."""
    return name in MODELS or any(entry.name == name for entry in entry_points(group=GROUP))


def find_model(name: str | type) -> type[Model]:
    """The model with this name: registered, of an installed package, or ``package.module:Class``.

    It may also be a class.

    >>> find_model("lgc").title
    'LGC'
    """
    if isinstance(name, type):
        return _register(name)
    if isinstance(name, str) and name in MODELS:
        return MODELS[name]
    if not isinstance(name, str):
        raise ConfigError(
            f"has type {type(name).__name__}; pass the class, or the name of a model.", "model"
        )
    if name == AUTO:
        raise ConfigError(
            f"is 'auto', but a model is needed here; call "
            f"{by_interface('hoplite.auto(graph)', '`hoplite train --model auto`')} to choose one.",
            "model",
        )
    if ":" in name:
        models = {address_of(model): model for model in MODELS.values()}
        return models.get(name) or _register(_load(EntryPoint(name, name, GROUP)), name)
    entries = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in entries:
        names = [*by_interface("", AUTO).split(), *MODELS, *entries]
        what = ", which is for sets of graphs; for nodes" if name in FAMILIES else ";"
        raise ConfigError(
            f"is {name!r}{what} it must be one of {', '.join(names)} or MODULE:CLASS."
            f"{nearest_hint(name, [*names, AUTO])}",
            "model",
        )
    model = _register(_load(entries[name]))
    if model.name != name:
        raise ConfigError(f"is {name!r}, but {entries[name].value} is {model.name!r}.", "model")
    return model


def _load(entry: EntryPoint) -> Any:
    """Import the object of ``entry``; ConfigError for any exception."""
    module, _, path = entry.value.partition(":")
    try:
        if not module or module.startswith(".") or not path:
            raise ImportError("it is not package.module:Class")
        return entry.load()
    except Exception as error:  # any error, as the code is not ours
        raise ConfigError(
            f"is {entry.name!r}, which cannot be imported ({error}).", "model"
        ) from error


def address_of(model: type[Model]) -> str:
    """The name by which :func:`find_model` finds ``model`` in another process, too."""
    return model.source() or model.name


def all_settings() -> dict[str, dataclasses.Field[Any]]:
    """The settings of all registered models, followed by those of training, by name."""
    settings: dict[str, dataclasses.Field[Any]] = {}
    for model in MODELS.values():
        for field in dataclasses.fields(model.Settings):
            settings.setdefault(field.name, field)
    return settings | TRAINING


def help_group(name: str) -> str:
    """The heading of a setting in ``--help``.

    >>> help_group("hops"), help_group("lr"), help_group("draws")
    ('Model', 'Training', 'Unlabelled nodes')
    """
    groups = {setting: group for group, names in GROUPS.items() for setting in names.split()}
    return groups.get(name, "Training" if name in TRAINING else "Model")


def model_defaults(model: str, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The defaults of all settings for ``model``, given ``options`` for some of them.

    >>> model_defaults("lgc")["hops"], model_defaults("s2gc")["hops"]
    (10, 16)
    >>> model_defaults("s2gc")["optimizer"], model_defaults("s2gc", {"dropout": 0.5})["lr"]
    ('path', 0.2)
    """
    model_class = find_model(model)
    fields = {field.name: field for field in dataclasses.fields(model_class.Settings)}
    defaults = {name: field.default for name, field in (all_settings() | fields).items()}
    return defaults | _preset(model_class, options or {})


def models_with(name: str) -> list[str]:
    """The models that have the setting ``name``.

    >>> models_with("gate")
    ['hlgc']
    """
    return [model.name for model in MODELS.values() if name in model.settings()]


def idle_settings(model: Any) -> set[str]:
    """The settings that ``model`` does not have; empty for unknown names.

    >>> sorted(idle_settings("gcn") & {"hidden", "hops", "lr"})
    ['hops']
    """
    return set(all_settings()) - MODELS[model].settings() if model in MODELS else set()


def without_idle(model: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """``options`` without the settings that ``model`` does not have, whatever their values."""
    idle = idle_settings(model)
    return {name: value for name, value in options.items() if name not in idle}


def own_options(model: str | type, options: Mapping[str, Any]) -> dict[str, Any]:
    """``options`` without settings that ``model`` does not have.

    Raises ConfigError if such a setting differs from its default, and for unknown names.
    """
    names, fields = find_model(model).settings(), all_settings()
    for name, value in options.items():
        if name not in fields and name in TableOptions.names():
            raise ConfigError(
                "is an option for reading data; pass it to hoplite.load or Graph.from_..., and "
                "train on the graph.",
                name,
            )
        if name not in fields:
            hint = nearest_hint(name, [*fields, *ARGUMENTS])
            if name == "seed":
                hint = f" Pass seeds=[{value}] for seed {value}; seeds=5 trains five seeds."
            raise ConfigError(
                f"{name!r} is not an option of {find_model(model).name} or of training.{hint}"
            )
        if name not in names and value != fields[name].default:
            fields[name].metadata["check"](name, value)
            raise ConfigError(
                f"is {value!r} but {find_model(model).name} has no such setting; leave it out, or "
                f"use {listing(models_with(name), 'or')}.",
                name,
            )
    return {name: value for name, value in options.items() if name in names}


def split_options(
    model: str | type, options: Mapping[str, Any]
) -> tuple[ModelConfig, TrainingConfig]:
    """Sort ``options`` into the two configurations."""
    settings, model_class = own_options(model, options), find_model(model)
    defaults: dict[str, Any] = {"dropout": 0.0} if "dropout" in model_class.idle else {}
    settings = defaults | _preset(model_class, settings) | settings
    config = model_class.Settings(**{k: v for k, v in settings.items() if k not in TRAINING})
    check_convex(config, settings.get("optimizer", "adam"))
    training = TrainingConfig(**{k: v for k, v in settings.items() if k in TRAINING})
    check_batch(config, training)
    return config, training


def _preset(model_class: type[Model], options: Mapping[str, Any]) -> dict[str, Any]:
    """The model's defaults of settings, where they differ from the general ones."""
    if options.get("preset") == "authors":
        if not model_class.authors:
            raise ConfigError(
                f"is 'authors', but {model_class.name} has no such preset; use default or paper.",
                "preset",
            )
        return model_class.authors
    defaults = model_class.paper if takes_steps(model_class, options) else model_class.defaults
    if options.get("optimizer") == "lbfgs" and options.get("preset") != "paper":
        return defaults | LBFGS
    return defaults


def takes_steps(model_class: type[Model], options: Mapping[str, Any]) -> bool:
    """Whether ``options`` select Adam or L-BFGS for a model whose default is "path".

    >>> takes_steps(find_model("sgc"), {"hops": 2}), takes_steps(find_model("sgc"), {"lr": 0.1})
    (False, True)
    """
    if options.get("preset") == "paper":
        return True
    solved = model_class.defaults.get("optimizer") == "path"
    default = "adam" if options.keys() & OF_STEPS or options.get("standardize") else "path"
    return solved and options.get("optimizer", default) != "path"


def switch_note(model_class: type[Model], options: Mapping[str, Any]) -> str | None:
    """A note that an option selects Adam with other defaults, unless they are set explicitly.

    >>> switch_note(find_model("sgc"), {"epochs": 3, "dropout": 0.2})
    'dropout= selects Adam, with other defaults: hops 10 (not 2), bias False (not True).'
    """
    if {"preset", "optimizer"} & options.keys() or not takes_steps(model_class, options):
        return None
    solved, steps = model_defaults(model_class.name), model_defaults(model_class.name, options)
    names = [n for n in ("hops", "bias", "dropout") if n not in options and steps[n] != solved[n]]
    values = ", ".join(f"{name} {steps[name]} (not {solved[name]})" for name in names)
    option = option_name(min(options.keys() & OF_STEPS, default="standardize"))
    return f"{option} selects Adam, with other defaults: {values}." if names else None


def default_options(options: Mapping[str, Any], *, tables: bool) -> tuple[str, dict[str, Any]]:
    """The default model, and ``options`` with its defaults.

    LGC for graphs and hop stores. Hop blocks with ``TABLE_OPTIONS`` for node and edge ``tables``,
    because a column of a node and its mean over neighbours often differ in meaning. Explicit
    options take precedence; an option that hop blocks do not have selects LGC.

    >>> default_options({"hops": 3}, tables=False)
    ('lgc', {'hops': 3})
    >>> default_options({"batch": 100}, tables=True)
    ('blocks', {'hops': 2, 'operator': 'random_walk', 'bias': True, 'dropout': 0.0, 'batch': 100})
    """
    blocks = find_model("blocks")
    if not tables or not options.keys() <= blocks.settings():
        return DEFAULT_MODEL, dict(options)
    defaults: dict[str, Any] = dict(TABLE_OPTIONS)
    if options.get("channels"):
        del defaults["operator"]
    if takes_steps(blocks, options):
        defaults["bias"] = True
        if not options.get("consistency"):  # its draws differ in what they drop
            defaults["dropout"] = 0.0
    return "blocks", defaults | dict(options)


def check_default_options(options: Mapping[str, Any]) -> None:
    """Raise ConfigError if ``options`` without a model are valid neither for tables nor graphs."""
    try:
        split_options(*default_options(options, tables=True))
    except ConfigError:
        split_options(DEFAULT_MODEL, options)


def check_convex(config: ModelConfig, optimizer: str) -> None:
    """Raise ConfigError if ``optimizer`` requires a convex model and this one is not convex."""
    solved = config.kind.defaults.get("optimizer") == "path" and not config.standardize
    if optimizer == "path" and not solved:
        reason = " with standardize" if config.standardize else ""
        raise ConfigError(
            f"is 'path', but the loss of {config.model}{reason} is not convex; use adam or lbfgs.",
            "optimizer",
        )


def check_batch(config: ModelConfig, training: TrainingConfig) -> None:
    """Raise ConfigError if the model does not support the optimizer or mini-batches."""
    check_convex(config, training.optimizer)
    if training.batch and (config.standardize or not config.kind.reads_rows()):
        reason = "standardize" if config.standardize else config.model
        raise ConfigError(
            f"is {training.batch}, but {reason} needs all nodes in every step; leave it out.",
            "batch",
        )
