"""What every model is: facts, settings of its own, first weights, and logits for many runs at once.

A model is one file: a subclass of :class:`Model` that :func:`register_model` makes known. All that
others need to know of it they ask the class; nobody compares its name with a text.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from hoplite.errors import ConfigError, some_of
from hoplite.models.settings import MODELS, TRAINING, ModelConfig

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from hoplite.bases import Basis
    from hoplite.propagation.dropout import Dropout
    from hoplite.propagation.engine import RowView, View
else:
    from hoplite.lazy import torch

Weights = dict[str, "Tensor"]
OF_FILTERS = frozenset({"filter_lr_factor", "filter_decay_factor"})


class Model(ABC):
    """A map from weights and a graph's RowView to logits.

    Weights are plain named tensors. ``initial`` makes those of one run; everything else takes them
    stacked with the run axis first, so that R runs are one wide problem: ``theta`` is (R, d, m),
    and the logits are (rows, R, m).

    A subclass with a ``name`` is a model. If it has settings, they are its ``Settings``, a frozen
    dataclass that derives from the base's; an instance has them as ``config``.
    """

    name: ClassVar[str]  # in commands and files
    title: ClassVar[str]  # in tables
    Settings: ClassVar[type[ModelConfig]] = ModelConfig
    idle: ClassVar[frozenset[str]] = frozenset()  # training settings that mean nothing to it
    variant: ClassVar[str | None] = None  # the setting whose values are models of their own
    variants: ClassVar[tuple[str, ...]] = ()  # and these values
    size: ClassVar[str] = ""  # what is told beside its name: {0.hops} is the setting hops
    growth: ClassVar[str]  # the setting that its cost grows with
    # Whether its logits are sums over hops, nodes and features (given its gates), so that they can
    # be explained
    linear: ClassVar[bool] = False
    unexplained: ClassVar[str] = "is not linear"  # and if they are not, why: "a gcn, which ..."
    # Whether a node's logits follow from its own hop features, so that it can be trained from a
    # store and on some rows alone; if not, every step needs the graph's edges
    rows_alone: ClassVar[bool] = False
    # for what a hop of a node has a coefficient of its own: all ("hop"), each "class" or "feature"
    coefficient_per: ClassVar[str] = "hop"
    takes_relations: ClassVar[bool] = False  # whether it has coefficients for each relation
    gated: ClassVar[bool] = False  # whether every node has coefficients of its own
    fixed: ClassVar[bool] = False  # whether its coefficients are known numbers of its settings
    map_per_hop: ClassVar[bool] = False  # whether every hop has a Theta of its own: (k + 1, d, m)
    many_at_once: ClassVar[bool] = True  # whether runs gain from training together
    learns: ClassVar[bool] = True  # whether there are steps; if not, one epoch scores it as it is
    bound: ClassVar[bool] = False  # whether its weights belong to the nodes of its own graph
    kept_hops: ClassVar[str] = "all"  # which hop features the model reads: "all" or "last"
    columns: ClassVar[str] = "classes"  # what it propagates under dropout: "classes" or "features"
    # Whether a training step draws at random even where no feature is dropped: it always gets a
    # Dropout then, whose seeds and epoch tell what to draw
    random_steps: ClassVar[bool] = False
    own_bias: ClassVar[bool] = False  # whether ``filtered`` adds a weight called bias itself
    # The weights by whose products with X alone it reads X, (d, m) each; none if it needs X itself
    input_weights: ClassVar[tuple[str, ...]] = ()

    map_weights: ClassVar[tuple[str, ...]] = ("theta", "bias")  # all others are the filter's

    # What the theory knows of its coefficients, see hoplite.theory.FunctionClass
    learned: ClassVar[str | None] = None  # the weight that they come from
    homogeneous: ClassVar[bool] = False  # twice the weight, twice the coefficients
    exponential: ClassVar[bool] = False
    theorem: ClassVar[int | None] = None  # of the paper, about their Rademacher complexity

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" not in vars(cls):
            return
        about = {"__module__": cls.__module__, "__qualname__": f"{cls.__qualname__}.Settings"}
        own = vars(cls).get("Settings")  # written in its body, and not in that of another
        if own is None or {name: getattr(own, name) for name in about} != about:
            made = type(cls.Settings)("Settings", (cls.Settings,), about)
            cls.Settings = dataclass(frozen=True)(made)
        cls.Settings.kind = cls

    def __init__(
        self, config: ModelConfig, num_features: int, num_classes: int, relations: int = 1
    ) -> None:
        self.config, self.relations = config, relations
        self.num_features = num_features
        self.num_classes = num_classes

    @classmethod
    def settings(cls) -> set[str]:
        """The names of all settings that it has, of its own and of its training."""
        own = {field.name for field in dataclasses.fields(cls.Settings)}
        return own | (set(TRAINING) - cls.idle)

    @classmethod
    def source(cls) -> str:
        """What makes it known elsewhere: the module to import; nothing for Hoplite's own."""
        return "" if cls.__module__.startswith("hoplite.models.") else cls.__module__

    @property
    def unlearned(self) -> frozenset[str]:
        """The weights that no step of an optimiser changes, such as running means."""
        return frozenset()

    @classmethod
    def reading(cls, config: ModelConfig) -> type[Model]:
        """The class that evaluates it, where its settings choose between several."""
        return cls

    def initial(self, generator: torch.Generator | None) -> Weights:
        """First weights of one run: Theta, then the filter's.

        Without a generator nothing is drawn: only the shapes mean something.
        """
        weights = {"theta": self.initial_map(generator)} | self.initial_filter(generator)
        if self.config.bias:
            weights["bias"] = torch.zeros(self.num_classes)
        return weights

    def initial_map(self, generator: torch.Generator | None) -> Tensor:
        """First Theta of one run: ~ U(-1/sqrt(m), 1/sqrt(m))."""
        shape = (self.num_features, self.num_classes)
        return uniform(shape, self.num_classes, generator)

    def initial_filter(self, generator: torch.Generator | None) -> Weights:
        """First weights of the filter of one run."""
        return {}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of one run's weights; none of their numbers is drawn or held."""
        try:
            with torch.device("meta"):
                first = self.initial(None)
        except RuntimeError as error:
            raise ConfigError(f"such a model is too large for any memory ({error}).") from error
        return {name: tuple(value.shape) for name, value in first.items()}

    def shown(
        self, num_nodes: int, nodes: np.ndarray, targets: Tensor, weights: Tensor | None
    ) -> Model:
        """The model with what its first weights take of the training ``nodes``; mostly nothing.

        ``targets`` are those of the task, (rows, ...), and ``weights`` the nodes', (rows,).
        """
        return self

    def expected(
        self, there: dict[str, tuple[int, ...]], num_nodes: int
    ) -> dict[str, tuple[int, ...]]:
        """The shapes that saved weights must have where there are those of ``there``.

        ``num_nodes`` is that of its graph, where it is ``bound`` to one.
        """
        return self.shapes()

    def refusal(self, shapes: dict[str, tuple[int, ...]]) -> str | None:
        """Why saved weights of these shapes are an earlier version's that mean something else."""
        return None

    @abstractmethod
    def filtered(self, weights: Weights, view: RowView, dropout: Dropout | None) -> Tensor:
        """The filtered signal before standardisation and bias: (rows, R, m)."""

    def logits(
        self,
        weights: Weights,
        view: View,
        dropout: Dropout | None = None,
        rows: Tensor | None = None,
    ) -> Tensor:
        """Logits (rows, R, m) of ``view``'s nodes, or of ``rows`` among them.

        Standardisation needs the mean and deviation over all nodes, so there ``view`` holds them
        all and ``rows`` picks afterwards.
        """
        values = view.evaluate(self, weights, dropout)
        scale = view.std_mean(values) if self.config.standardize else None
        if rows is not None:
            values = values.index_select(0, rows)
        if scale is not None:
            spread, mean = scale
            values = (values - mean) / spread.clamp_min(torch.finfo(values.dtype).eps)
        if "bias" in weights and not self.own_bias:
            values = values + weights["bias"]
        return values

    def coefficients(self, weights: Weights) -> Tensor | None:
        """c_0 .. c_k per run, (R, k + 1), without gates; None means one-hot at k."""
        raise ConfigError(f"a {self.name} has no filter coefficients; use a linear model.")

    def filters(self, weights: Weights) -> Tensor:
        """c_0 .. c_k of the filter of every class, (R, k + 1, m), or of all: (R, k + 1, 1).

        Without gates. ConfigError where there are no filters, or one for every feature and class.
        """
        found = self.coefficients(weights)
        if self.map_per_hop:
            raise ConfigError(
                f"a {self.name} has a filter for every feature and class, too many to show; their "
                "coefficients are in maps_."
            )
        if found is None:
            found = torch.eye(self.config.hops + 1)[-1:]
        return found.unsqueeze(2)

    def maps(self, weights: Weights) -> Tensor:
        """Theta of every hop: (R, k + 1, d, m), or (R, 1, d, m) if it is the same for all."""
        return weights["theta"] if self.map_per_hop else weights["theta"].unsqueeze(1)

    def node_coefficients(self, weights: Weights, view: RowView) -> list[Tensor]:
        """What hop i of the view's nodes is multiplied with beside Theta, i = 0 .. k; one run.

        Each has one number, or one for each node, and for each of its classes or features.
        """
        found = self.coefficients(weights)
        return [*(torch.eye(self.config.hops + 1)[-1] if found is None else found[0])]

    @property
    def last_hop(self) -> int:
        """The last hop whose coefficient counts."""
        return self.config.hops

    @classmethod
    def numbers(cls, config: ModelConfig) -> np.ndarray | None:
        """c_0 .. c_k, (k + 1,), if they are ``fixed``."""
        return None

    @classmethod
    def largest(cls, bound: float, config: ModelConfig) -> np.ndarray | None:
        """The largest ``|c_i|`` of all weights up to ``bound``: (k + 1,); None if not known."""
        return None

    @classmethod
    def paper_growth(cls, bound: float, basis: Basis, norm: float, hops: int) -> float:
        """The factor of the paper's bound that grows with the operator's 1-norm.

        infinity where the paper has no theorem, which bounds nothing.
        """
        return math.inf


def build_model(
    config: ModelConfig, num_features: int, num_classes: int, relations: Collection[str] = ()
) -> Model:
    """The model that ``config`` is of, for ``num_features`` inputs and ``num_classes`` outputs.

    ConfigError if the graph has ``relations`` and the model does not know what to do with them.
    """
    kind = config.kind.reading(config)
    if relations and not kind.takes_relations:
        raise ConfigError(
            f"the graph keeps directions or types of edges ({some_of(relations)}), and "
            f"{config.model} has one operator for all; use "
            f"{' or '.join(kind.name for kind in MODELS.values() if kind.takes_relations)}, or "
            "load the graph without directed and type."
        )
    if not relations:
        return kind(config, num_features, num_classes)
    return kind(config, num_features, num_classes, len(relations))


def uniform(shape: tuple[int, ...], size: int, generator: torch.Generator | None) -> Tensor:
    """Draw from U(-1/sqrt(size), 1/sqrt(size)); without a generator there is only the shape."""
    if generator is None:  # torch computes on the device "meta" only with a compiler, seconds away
        return torch.empty(shape)
    return (2 * torch.rand(shape, generator=generator) - 1) / math.sqrt(size)


def glorot(inputs: int, outputs: int, generator: torch.Generator | None) -> Tensor:
    """U(-a, a) with a = sqrt(6 / (inputs + outputs))."""
    bound = math.sqrt(6 / (inputs + outputs))
    if generator is None:
        return torch.empty(inputs, outputs)
    return bound * (2 * torch.rand(inputs, outputs, generator=generator) - 1)
