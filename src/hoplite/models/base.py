"""The base class of all models: a name, settings, initial weights and outputs.

There are four types. A :class:`~hoplite.models.linear.LinearModel` only uses NumPy and has
closed-form gradients; a :class:`~hoplite.models.labelprop.LabelModel` spreads labels and learns
nothing; a
:class:`~hoplite.nets.base.Network` and a :class:`~hoplite.nets.base.RowNetwork` need PyTorch.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hoplite.engine.evaluation import Standardized
from hoplite.errors import ConfigError, option_name, some_of
from hoplite.formatting import listing
from hoplite.models.settings import MODELS, TRAINING, ModelConfig

if TYPE_CHECKING:
    from hoplite.engine.propagation import Propagation

Weights = dict[str, np.ndarray]
OF_FILTERS = frozenset({"filter_lr_factor", "filter_decay_factor"})


class Model(ABC):
    """A map from weights and a graph to outputs, n x m.

    A subclass with a ``name`` is a model; :func:`hoplite.register_model` makes it known. Its
    ``Settings`` are a frozen dataclass that derives from the base's; an instance has them as
    ``config``.
    """

    name: ClassVar[str]  # in commands and files
    title: ClassVar[str]  # in tables
    Settings: ClassVar[type[ModelConfig]] = ModelConfig
    idle: ClassVar[frozenset[str]] = frozenset()  # training settings without an effect
    size: ClassVar[str] = ""  # shown next to its name: {0.hops} is the setting hops
    growth: ClassVar[str] = "hops"  # the setting that its cost is proportional to
    # Defaults of settings, of the model and of training, that differ from the general ones
    defaults: ClassVar[dict[str, Any]] = {}
    paper: ClassVar[dict[str, Any]] = {}
    authors: ClassVar[dict[str, Any]] = {}  # with preset "authors"
    variant: ClassVar[str | None] = None  # the setting whose values are separate models
    takes_relations: ClassVar[bool] = False  # whether each relation of a graph has coefficients
    map_weights: ClassVar[tuple[str, ...]] = ("theta", "bias", "neighbours")  # not of the filter

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" not in vars(cls):
            return
        about = {"__module__": cls.__module__, "__qualname__": f"{cls.__qualname__}.Settings"}
        settings = vars(cls).get("Settings")  # written in its body, and not in that of another
        if settings is None or {name: getattr(settings, name) for name in about} != about:
            cls.Settings = dataclass(frozen=True)(type("Settings", (cls.Settings,), about))
        cls.Settings.kind = cls

    def __init__(
        self, config: ModelConfig, num_features: int, num_classes: int, relations: int = 1
    ) -> None:
        self.config, self.relations = config, relations
        self.num_features, self.num_classes = num_features, num_classes

    @classmethod
    def settings(cls) -> set[str]:
        """The names of all its settings, those of training included."""
        names = {field.name for field in dataclasses.fields(cls.Settings)}
        return names | (set(TRAINING) - cls.idle)

    @classmethod
    def source(cls) -> str:
        """The ``module:Class`` that another process imports; empty for Hoplite's own."""
        is_builtin = cls.__module__.startswith(("hoplite.models.", "hoplite.nets."))
        return "" if is_builtin else f"{cls.__module__}:{cls.__qualname__}"

    @classmethod
    def variants(cls) -> tuple[str, ...]:
        """The values of the setting ``variant``."""
        field = cls.Settings.__dataclass_fields__.get(cls.variant or "")
        return () if field is None else field.metadata["choices"]

    @classmethod
    def check_store(cls) -> None:
        """Raise ConfigError if the model needs more than hop features of single nodes."""
        raise ConfigError(
            f"is {cls.name!r}, which needs the edges in every step; for a hop store, use "
            f"{names_of(lambda model: model.reads_rows())}.",
            "model",
        )

    @classmethod
    def reads_rows(cls) -> bool:
        """Whether a node's outputs depend only on its own hop features, as in a hop store."""
        return cls.check_store.__func__ is not Model.check_store.__func__

    def check(self) -> None:  # noqa: B027 - most have nothing to check
        """ConfigError if the methods of a user's own class contradict each other."""

    @abstractmethod
    def initial(self, rng: np.random.Generator | None) -> Weights:
        """Initial weights; without a generator nothing is drawn, and only the shapes matter."""

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the weights, without allocating them."""
        return {name: value.shape for name, value in self.initial(None).items()}

    def expected(
        self, saved: dict[str, tuple[int, ...]], num_nodes: int
    ) -> dict[str, tuple[int, ...]]:
        """The shapes that weights in a file must have, given those that were read from it.

        ``num_nodes`` is that of the training graph, for models whose weights belong to nodes.
        """
        return self.shapes()

    @abstractmethod
    def logits(self, weights: Weights, source: Propagation) -> np.ndarray:
        """Outputs of all nodes: (n, m)."""

    def finished(self, weights: Weights, values: np.ndarray) -> np.ndarray:
        """The outputs from the signal of all nodes, standardised if set, and with bias."""
        if self.config.standardize:
            values = Standardized.of(values).apply(values)
        return values + weights["bias"].astype(values.dtype) if "bias" in weights else values

    def signal_columns(self) -> int:
        """Number of columns of the widest signal on all nodes, to estimate memory."""
        return self.num_classes


def build_model(
    config: ModelConfig, num_features: int, num_classes: int, relations: Collection[str] = ()
) -> Any:
    """The model of ``config``, for ``num_features`` inputs and ``num_classes`` outputs.

    Raises ConfigError if the graph has ``relations`` and the model does not support them.
    """
    if not isinstance(config, ModelConfig):
        raise ConfigError(f"has type {type(config).__name__}; pass model_config(...).", "config")
    model_class = config.kind
    if relations and not model_class.takes_relations:
        raise ConfigError(
            f"the graph has directed or typed edges ({some_of(relations)}), but {config.model} "
            f"has a single operator; use {names_of(lambda model: model.takes_relations)}, or "
            f"load the graph without {option_name('directed')} and {option_name('type')}."
        )
    model = model_class(config, num_features, num_classes, len(relations) or 1)
    model.check()
    return model


def names_of(condition: Callable[[type[Model]], bool]) -> str:
    """The names of the models that meet a condition, such as "sgc, egc or lgc"."""
    return listing([model.name for model in MODELS.values() if condition(model)], "or")


def uniform(shape: tuple[int, ...], size: int, rng: np.random.Generator | None) -> np.ndarray:
    """U(-1/sqrt(size), 1/sqrt(size)) in float32; without a generator only the shape counts."""
    if rng is None:
        return np.broadcast_to(np.float32(0), shape)
    return ((2 * rng.random(shape, np.float32) - 1) / math.sqrt(size)).astype(np.float32)
