"""What every model is: first weights, and logits for many runs at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from hoplite.config import ModelConfig
from hoplite.errors import ConfigError
from hoplite.filters import uniform
from hoplite.operators import find_operator
from hoplite.propagation.dropout import Dropout
from hoplite.propagation.engine import RowView, View

Weights = dict[str, Tensor]


class Model(ABC):
    """A map from weights and a graph's RowView to logits.

    Weights are plain named tensors. ``initial`` makes those of one run; everything else takes them
    stacked with the run axis first, so that R runs are one wide problem: ``theta`` is (R, d, m),
    and the logits are (rows, R, m).
    """

    kept_hops: ClassVar[str] = "all"  # which hop features the model reads: "all" or "last"
    # for what a hop of a node has a coefficient of its own: all ("hop"), each "class" or "feature"
    coefficient_per: ClassVar[str] = "hop"
    columns: ClassVar[str] = "classes"  # what it propagates under dropout: "classes" or "features"

    def __init__(self, config: ModelConfig, num_features: int, num_classes: int) -> None:
        self.config = config
        self.num_features = num_features
        self.num_classes = num_classes
        self.lowpass_sign = find_operator(config.operator).sign

    @classmethod
    def reading(cls, config: ModelConfig) -> type[Model]:
        """The class that evaluates it, where its settings choose between several."""
        return cls

    def initial(self, generator: torch.Generator | None) -> Weights:
        """First weights of one run: Theta ~ U(-1/sqrt(m), 1/sqrt(m)), then the filter's.

        Without a generator nothing is drawn: only the shapes mean something.
        """
        shape = (self.num_features, self.num_classes)
        weights = {"theta": uniform(shape, self.num_classes, generator)}
        weights |= self.initial_filter(generator)
        if self.config.bias:
            weights["bias"] = torch.zeros(self.num_classes)
        return weights

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of one run's weights; none of their numbers is drawn or held."""
        try:
            with torch.device("meta"):
                first = self.initial(None)
        except RuntimeError as error:
            raise ConfigError(f"such a model is too large for any memory ({error}).") from error
        return {name: tuple(value.shape) for name, value in first.items()}

    @abstractmethod
    def initial_filter(self, generator: torch.Generator | None) -> Weights:
        """First weights of the filter of one run."""

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
        if "bias" in weights:
            values = values + weights["bias"]
        return values
