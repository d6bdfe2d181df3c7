"""The settings of models, the list of models, and the options of ``train`` sorted by them.

Every model has a frozen dataclass of its own settings, a subclass of :class:`ModelConfig`; nothing
here needs torch, so that wrong settings are told at once.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, ClassVar, TypeGuard, TypeVar

from hoplite.bases import find_basis
from hoplite.config import Checked, TrainingConfig, flag_setting
from hoplite.errors import ConfigError, check_choice, nearest_hint
from hoplite.preparation import TableOptions
from hoplite.strategies import STRATEGIES

if TYPE_CHECKING:
    from hoplite.graph import Graph
    from hoplite.models.base import Model

    ModelClass = TypeVar("ModelClass", bound=type)

GROUP = "hoplite.models"  # of the entry points by which installed packages name their models
MODELS: dict[str, type[Model]] = {}  # those that are known, by name
# What makes a Model of a class of another library's, None of what it does not know
ADAPTERS = ("hoplite.nets.module:as_model",)
TRAINING = {field.name: field for field in dataclasses.fields(TrainingConfig)}
# the arguments of train that are no settings
ARGUMENTS = ("seeds", "record_test", "progress", "memory", "cluster", "sample_weight", "task")
# What no model's setting may be called: arguments of train, search and the estimators, options of
# their commands, and what ModelConfig itself has.
TAKEN = {
    *("graph", "model", "seed", *ARGUMENTS, *TRAINING),
    *("grid", "protocol", "samples", "sample_seed", "workers", "cluster", "export", "fixed"),
    *("dataset", "split_seed", "split_index", "structural", "link", "threads", "out"),
    *("overwrite", "json", "settings", "help", "budget", "trials"),
    *("kind", "operators", "variant", "size", "basis_title", "fitted", "as_dict", "from_dict"),
}
# what tables are trained with where no model is given, see default_options
TABLE_OPTIONS = {
    "hops": 2,
    "operator": "random_walk",
    "bias": True,
    "dropout": 0.0,
    "optimizer": "lbfgs",
}
# the order in which ModelConfig takes settings without their names
PLACES = ("model", "hops", "operator", "basis", "start", "gate", "hidden", "heads", "bias")
PLACES += ("standardize",)


class _ByName(type):
    """A call of ModelConfig itself makes the settings of the model that it names."""

    def __call__(cls, *values: Any, **options: Any) -> Any:
        if "kind" in dir(cls):
            return super().__call__(*values, **options)
        given = dict(zip(PLACES, values, strict=False))
        twice = given.keys() & options.keys()
        if twice or len(values) > len(PLACES):
            what = f"{min(twice)} twice" if twice else f"more than {len(PLACES)} values"
            raise TypeError(f"ModelConfig() got {what}; give the settings by their names.")
        given |= options
        model = given.pop("model", "lgc")
        training = sorted(given.keys() & TRAINING)
        if training:
            raise ConfigError(f"{training[0]} is a setting of TrainingConfig; give it there.")
        return find_model(model).Settings(**own_options(model, given))


@dataclass(frozen=True)
class ModelConfig(Checked, metaclass=_ByName):
    """The settings of a model, checked once: ``ModelConfig("lgc", hops=3)``.

    What it makes is ``LGC.Settings(hops=3)``, which has the settings of that model alone, with
    ``model`` for its name and ``kind`` for its class. A setting that the model does not have is
    refused, unless it is at its default. Which model has which is in docs/models.md.

    >>> ModelConfig("gcn", hidden=8)
    GCN.Settings(standardize=False, operator='renormalized', hidden=8)
    """

    kind: ClassVar[type[Model]]  # what the settings are of
    hops = 2  # what propagation takes where the model has no such setting: it has two layers
    operator = "renormalized"
    basis = "monomial"
    bias = False
    standardize: bool = flag_setting(False, "Standardise the output columns.")

    if TYPE_CHECKING:  # every model has others

        def __getattr__(self, name: str) -> Any: ...

    @property
    def model(self) -> str:
        """The name of the model."""
        return self.kind.name

    @property
    def operators(self) -> tuple[str, ...]:
        """The operators whose hops it reads side by side: one, but of models with channels."""
        return (self.operator,)

    @property
    def variant(self) -> str | None:
        """The reading of the model, such as hLGC's gate; None if it has only one."""
        return getattr(self, self.kind.variant) if self.kind.variant else None

    def size(self) -> str:
        """What is told of the settings beside the model's name."""
        return re.sub(r"\b1 (hidden unit|\w+?)s\b", r"1 \1", self.kind.size.format(self))

    @property
    def basis_title(self) -> str:
        """The basis for people, see :attr:`hoplite.bases.Basis.title`."""
        return find_basis(self.basis).title

    def fitted(self, graph: Graph) -> ModelConfig:
        """The same, with the numbers of a basis that comes from a signal: here, from ``graph``'s.

        >>> from hoplite import Graph
        >>> g = Graph.from_edges([(0, 1)], features=[[1.0], [0.0]])
        >>> ModelConfig("lgc", 1, "adjacency", "optimal").fitted(g).basis
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
        """The settings that :meth:`as_dict` gave; other models' settings may have any value.

        Earlier versions kept all settings with every model. The values may come from a file, which
        must not choose what is imported: no ``package.module:Class``.
        """
        name = values.get("model", "lgc")
        if not isinstance(name, str) or ":" in name:
            raise ConfigError(f"model is {name!r}; it must be one of {', '.join(MODELS)}.")
        kind = find_model(name)
        unknown = sorted(values.keys() - all_settings().keys() - {"model"})
        if unknown:
            raise ConfigError(f"this version has no setting {unknown[0]!r}")
        return kind.Settings(**{k: v for k, v in values.items() if k in kind.settings()})


def register_model(model: ModelClass) -> ModelClass:
    """Make ``model`` known by its name, everywhere; to be used as a decorator, too.

    It may also be a class of torch.nn.Module, see :mod:`hoplite.nets.module`.
    """
    _registered(model)
    return model


def _registered(found: Any) -> type[Model]:
    """``found``, or the Model that an adapter makes of it, which is known from now on."""
    model, settings = found, getattr(found, "Settings", None)
    if isinstance(found, type) and not _is_config(settings):
        adapters = [EntryPoint(address, address, GROUP).load() for address in ADAPTERS]
        model = next(filter(None, (adapt(found) for adapt in adapters)), found)
        settings = getattr(model, "Settings", None)
    if not _is_config(settings):
        raise ConfigError(f"{model!r} is not a Model; derive it from hoplite.models.Model.")
    name, place = getattr(model, "name", None), (model.__module__, model.__qualname__)
    if not isinstance(name, str) or not name.isidentifier():
        raise ConfigError(f"the name of {place[1]} is {name!r}; give it one of letters and digits.")
    if name in STRATEGIES:
        raise ConfigError(f"the name {name!r} belongs to Hoplite; choose another.")
    there = MODELS.get(name)
    if there is not None and (there.__module__, there.__qualname__) != place:
        raise ConfigError(f"the name {name!r} belongs to {there.__module__}; choose another.")
    for option in model.defaults:
        if option not in TRAINING or option in model.idle:
            raise ConfigError(f"{name}'s defaults have {option!r}, which is no training setting.")
    known = all_settings()
    for field in dataclasses.fields(settings):
        if field.name in TAKEN or not field.metadata.get("check"):
            why = "is a name of Hoplite's own" if field.name in TAKEN else "has no check"
            raise ConfigError(
                f"{name}'s setting {field.name!r} {why}; choose another name."
                if field.name in TAKEN
                else f"{name}'s setting {field.name!r} {why}; make it with number_setting, "
                "choice_setting or flag_setting of hoplite.config."
            )
        if field.name in known and type(known[field.name].default) is not type(field.default):
            raise ConfigError(
                f"{name}'s setting {field.name!r} is of another type than that of "
                f"{' and '.join(models_with(field.name))}; choose another name."
            )
    MODELS[name] = model
    return model


def _is_config(settings: Any) -> TypeGuard[type[ModelConfig]]:
    return isinstance(settings, type) and issubclass(settings, ModelConfig)


def is_known(name: Any) -> bool:
    """Whether this is the name of a known model, or of one of an installed package."""
    return name in MODELS or any(entry.name == name for entry in entry_points(group=GROUP))


def find_model(name: str | type) -> type[Model]:
    """The model of this name: known, of an installed package, or ``package.module:Class``.

    It may also be a class itself.

    >>> find_model("lgc").title
    'LGC'
    """
    if isinstance(name, str) and name in STRATEGIES:
        raise ConfigError(STRATEGIES[name].instead)
    if isinstance(name, type):
        return _registered(name)
    if not isinstance(name, str) or name in MODELS:
        return MODELS[check_choice("model", name, MODELS)]
    if ":" in name:
        for model in MODELS.values():
            if address_of(model) == name:
                return model
        module, _, path = name.partition(":")
        entry = EntryPoint(name, f"{module}:{path}", GROUP)
        return _registered(_loaded(entry, "write it as package.module:Class"))
    entries = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in entries:
        names = [*MODELS, *entries]
        raise ConfigError(
            f"model is {name!r}; it must be one of {', '.join(names)}, or "
            f"{', '.join(one.offered for one in STRATEGIES.values())}."
            f"{nearest_hint(name, [*names, *STRATEGIES])}"
        )
    found = _registered(_loaded(entries[name], "mend its package, or remove it"))
    if found.name != name:
        raise ConfigError(f"model is {name!r}, but {entries[name].value} is {found.name!r}.")
    return found


def _loaded(entry: EntryPoint, remedy: str) -> Any:
    """The object that ``entry`` names; ConfigError, whatever its module does instead."""
    module, _, path = entry.value.partition(":")
    try:
        if not module or module.startswith(".") or not path:
            raise ImportError("no module and class")
        return entry.load()
    except Exception as error:  # of code that is not ours
        raise ConfigError(
            f"model is {entry.name!r}, which cannot be imported ({error}); {remedy}."
        ) from error


def address_of(model: type[Model]) -> str:
    """What :func:`find_model` finds ``model`` by in another process, too."""
    own = not model.source()
    return model.name if own else f"{model.__module__}:{model.__qualname__}"


def all_settings() -> dict[str, dataclasses.Field[Any]]:
    """The settings of all known models, and then those of training: name to field."""
    found: dict[str, dataclasses.Field[Any]] = {}
    for model in MODELS.values():
        for field in dataclasses.fields(model.Settings):
            found.setdefault(field.name, field)
    return found | TRAINING


def usual_options(model: str) -> dict[str, Any]:
    """The defaults of ``model``, which may be others than another's; then those that it lacks.

    >>> usual_options("lgc")["hops"], usual_options("s2gc")["hops"]
    (10, 16)
    >>> usual_options("lgc")["lr"], usual_options("s2gc")["lr"]
    (0.05, 0.2)
    """
    kind = find_model(model)
    own = {field.name: field for field in dataclasses.fields(kind.Settings)}
    return {name: field.default for name, field in (all_settings() | own).items()} | kind.defaults


def models_with(name: str) -> list[str]:
    """The models that have the setting ``name``.

    >>> models_with("gate")
    ['hlgc']
    """
    return [model.name for model in MODELS.values() if name in model.settings()]


def idle_settings(model: Any) -> set[str]:
    """The settings that ``model`` does not have; none for a name that is not a model's.

    >>> sorted(idle_settings("gcn") & {"hidden", "hops", "lr"})
    ['hops']
    """
    return set(all_settings()) - MODELS[model].settings() if model in MODELS else set()


def without_idle(model: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """``options`` without the settings that ``model`` does not have, whatever their values.

    Earlier versions kept them in their files.
    """
    idle = idle_settings(model)
    return {name: value for name, value in options.items() if name not in idle}


def own_options(model: str | type, options: Mapping[str, Any]) -> dict[str, Any]:
    """``options`` without those that ``model`` does not have.

    One that it would ignore is a mistake, not a wish, unless it is the default of the models that
    have it. An unknown name gets the nearest suggested.
    """
    own, known = find_model(model).settings(), all_settings()
    for name, value in options.items():
        if name in TableOptions.names() and name not in known:
            raise ConfigError(
                f"{name!r} says how data are read, not trained; give it to hoplite.load or "
                "Graph.from_..., and train on the graph that it returns."
            )
        if name not in known:
            hint = nearest_hint(name, [*known, *ARGUMENTS])
            raise ConfigError(f"{name!r} is not an option of train.{hint}")
        if name not in own and value != known[name].default:
            known[name].metadata["check"](name, value)
            raise ConfigError(
                f"{name} is {value!r} but {find_model(model).name} has no {name}; "
                f"leave it out, or use {' or '.join(models_with(name))}."
            )
    return {name: value for name, value in options.items() if name in own}


def split_options(
    model: str | type, options: Mapping[str, Any]
) -> tuple[ModelConfig, TrainingConfig]:
    """Sort ``options`` into the two configurations."""
    own = own_options(model, options)
    kind = find_model(model)
    config = kind.Settings(**{k: v for k, v in own.items() if k not in TRAINING})
    nothing: dict[str, Any] = {"dropout": 0.0} if "dropout" in kind.idle else {}
    chosen: dict[str, Any] = {k: v for k, v in own.items() if k in TRAINING}
    training = TrainingConfig(**(nothing | kind.defaults | chosen))
    check_batch(config, training)
    return config, training


def default_options(options: Mapping[str, Any], *, tables: bool) -> tuple[str, dict[str, Any]]:
    """The model where none is given, and ``options`` with what is left out of them.

    LGC for graphs and hop stores. Hop blocks with ``TABLE_OPTIONS`` for node and edge ``tables``:
    there a column of the node itself and its means over neighbours often say different things.
    Options that are given win; one that hop blocks do not have means LGC.

    >>> default_options({"hops": 3}, tables=False)
    ('lgc', {'hops': 3})
    >>> default_options({"batch": 100}, tables=True)
    ('blocks', {'hops': 2, 'operator': 'random_walk', 'bias': True, 'dropout': 0.0, 'batch': 100})
    """
    if not tables or not options.keys() <= find_model("blocks").settings():
        return "lgc", dict(options)
    defaults = dict(TABLE_OPTIONS)
    if options.get("channels"):
        del defaults["operator"]
    if options.get("batch") or options.get("consistency"):
        del defaults["optimizer"]  # L-BFGS has neither
    if options.get("consistency"):
        del defaults["dropout"]  # draws differ in what they drop
    return "blocks", defaults | dict(options)


def check_default_options(options: Mapping[str, Any]) -> None:
    """ConfigError if ``options`` without a model are wrong for tables and for graphs alike."""
    try:
        split_options(*default_options(options, tables=True))
    except ConfigError:
        split_options("lgc", options)


def check_batch(config: ModelConfig, training: TrainingConfig) -> None:
    """Raise ConfigError if the model needs all nodes in every step, and a step has only some."""
    if training.batch and not config.kind.reads_rows():
        raise ConfigError(
            f"batch is {training.batch} but {config.model} needs the whole graph in every step; "
            "set batch to 0, or use a linear model."
        )
    if training.batch and config.standardize:
        raise ConfigError(
            f"batch is {training.batch} but standardize needs the mean and deviation over all "
            "nodes in every step; set batch to 0, or leave out standardize."
        )
