"""Linear models: a polynomial filter of an operator, and one linear map."""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from hoplite.bases import basis_choices, basis_words, find_basis
from hoplite.config import MAX_HOPS, choice_setting, flag_setting, number_setting, setting
from hoplite.engine.evaluation import Filter, FilterGradient, KeptHops, WeightsFirst
from hoplite.engine.propagation import Propagation
from hoplite.errors import ConfigError
from hoplite.formatting import listing
from hoplite.models.base import Model, Weights, uniform
from hoplite.models.settings import ModelConfig
from hoplite.operators import OPERATORS, find_operator

STARTS = ("random", "lowpass")
LOWPASS_DECAY = 0.8
OWN = "hoplite."  # prefix of modules whose models need no check
# defaults of models that are linear in their weights: every epoch is the optimum of one penalty
SOLVED: dict[str, Any] = {
    "optimizer": "path",
    "bias": True,
    "dropout": 0.0,
    "monitor": "loss",
    "folds": 5,
}


def operator_setting(default: str, operators: Iterable[str]) -> Any:
    """One of the ``operators``."""
    names = tuple(operators)
    return choice_setting(default, f"Graph operator: {listing(names, 'or')}.", names)


@dataclass(frozen=True)
class OperatorSettings(ModelConfig):
    """Settings of models that propagate by an operator."""

    operator: str = operator_setting("renormalized", OPERATORS)


@dataclass(frozen=True)
class HopSettings(OperatorSettings):
    """Settings of models that read hops of an operator."""

    hops: int = number_setting(10, "Number of hops.", 0, MAX_HOPS)
    bias: bool = flag_setting(False, "Add a bias.")

    def __post_init__(self) -> None:
        super().__post_init__()
        find_basis(self.basis).check_hops(self.hops)


@dataclass(frozen=True)
class PolynomialSettings(HopSettings):
    """Settings of polynomials of an operator."""

    neighbour_labels: bool = flag_setting(
        False, "Add the share of each class among labelled neighbours as features."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.neighbour_labels and self.standardize:
            raise ConfigError(
                "cannot be combined with standardize; leave out one of them.", "neighbour_labels"
            )


def start_setting() -> Any:
    """The setting of the initial coefficients."""
    return choice_setting("random", "Initial coefficients: random or lowpass.", STARTS)


@dataclass(frozen=True)
class StartSettings(PolynomialSettings):
    """Settings of polynomials that learn their coefficients."""

    start: str = start_setting()


def basis_setting(default: str = "monomial") -> Any:
    """The setting of the basis."""
    return setting(
        default,
        f"Polynomial basis: {basis_choices()}.",
        lambda name, value: str(find_basis(value, name)),
        choices=basis_words(),
    )


@dataclass(frozen=True)
class BasisSettings(StartSettings):
    """Settings of polynomials in any basis that learn their coefficients."""

    basis: str = basis_setting()


@dataclass(frozen=True)
class FilterFacts:
    """What the theory needs to know of a model's coefficients.

    Parameters
    ----------
    learned : str or None
        The weight that they come from.
    homogeneous : bool
        Whether twice the weight is twice the coefficients.
    exponential : bool
        Whether they are those of the exponential series.
    theorem : int or None
        The paper's theorem on their Rademacher complexity.
    """

    learned: str | None = None
    homogeneous: bool = False
    exponential: bool = False
    theorem: int | None = None


class LinearModel(Model):
    """H = sum_i c_i p_i(M) X Theta (+ L Lambda) (+ b), the c_i the same for all nodes.

    A model is its coefficients and their derivative: :meth:`coefficients` gives c from the weights,
    and :meth:`coefficients_vjp` takes dLoss/dc back to the weights. Weights are NumPy arrays:
    ``theta`` (d, m), those of the filter, and if they are asked for ``bias`` (m,) and Lambda,
    ``neighbours`` (m, m), of the labels of neighbours, see :mod:`hoplite.models.neighbours`.
    """

    Settings = PolynomialSettings
    size = "{0.hops} hops, {0.operator}, {0.basis_title}"
    facts: ClassVar[FilterFacts] = FilterFacts()

    @classmethod
    def check_store(cls) -> None:
        return

    def initial(self, rng: np.random.Generator | None) -> Weights:
        """First weights: Theta, then the filter's, then the bias."""
        weights = {"theta": self.initial_map(rng)} | self.initial_filter(rng)
        if self.config.bias:
            weights["bias"] = np.zeros(self.num_classes, np.float32)
        if self.config.neighbour_labels:
            weights["neighbours"] = np.zeros((self.num_classes, self.num_classes), np.float32)
        return weights

    def initial_map(self, rng: np.random.Generator | None) -> np.ndarray:
        """First Theta ~ U(-1/sqrt(m), 1/sqrt(m)): (d, m)."""
        return uniform((self.num_features, self.num_classes), self.num_classes, rng)

    def initial_filter(self, rng: np.random.Generator | None) -> Weights:
        """First weights of the filter."""
        return {}

    @abstractmethod
    def coefficients(self, weights: Weights) -> np.ndarray | None:
        """c_0, c_1, ...: (hops,), or one for each class, (hops, m).

        None where every hop has a map of its own. Hoplite's own models leave out the last ones if
        they are 0.
        """

    def coefficients_vjp(self, weights: Weights, gradient: np.ndarray) -> Weights:
        """The gradient by the filter's weights from dLoss/dc, of the shape of ``coefficients``.

        Nothing where the coefficients are constants.
        """
        return {}

    @classmethod
    def constants(cls, config: ModelConfig) -> np.ndarray | None:
        """c_0 .. c_k, (k + 1,), where they are known numbers of the settings; None if learned."""
        return None

    @cached_property
    def is_fixed(self) -> bool:
        """Whether the coefficients are known numbers."""
        return self.constants(self.config) is not None

    def filter(self, weights: Weights) -> Filter:
        """The model at some weights, as the engine evaluates it."""
        return Filter(weights["theta"], self._checked_coefficients(weights), self.is_fixed)

    def _checked_coefficients(self, weights: Weights) -> np.ndarray | None:
        """:meth:`coefficients`; ConfigError unless the model's class returns the right shape."""
        values, most = self.coefficients(weights), 1 + self.num_parts * self.config.hops
        if values is None and weights["theta"].ndim == 3:  # every hop has its own map
            return None
        values, allowed = np.asarray(values), ((), (self.num_classes,))
        if not 1 <= values.ndim <= 2 or len(values) > most or values.shape[1:] not in allowed:
            raise self._wrong_shape(values)
        return values

    def _wrong_shape(self, values: np.ndarray) -> ConfigError:
        most, by_class = 1 + self.num_parts * self.config.hops, values.ndim == 2
        wanted = (most, self.num_classes) if by_class else (most,)
        return ConfigError(
            f"{type(self).__name__}.coefficients returned shape {values.shape}; it must return one "
            f"coefficient per hop{' and class' * by_class}, {wanted}."
        )

    def check(self) -> None:
        """Compare the derivative of a user's coefficients with finite differences.

        In a random direction v of every weight of the filter, <vjp(g), v> must be
        <g, c(w + h v) - c(w - h v)> / 2h. Nothing is said where h and h / 2 differ, e.g. at a kink.
        """
        kind, rng = type(self), np.random.default_rng(0)
        if all(f.__module__.startswith(OWN) for f in (kind.coefficients, kind.coefficients_vjp)):
            return
        try:
            weights = self.initial(None) | self.initial_filter(rng)
            values = self._checked_coefficients(weights)
        except (KeyError, TypeError) as error:
            raise ConfigError(
                f"{kind.__name__}.coefficients failed with the weights of initial_filter, which "
                f"must return a dictionary of arrays: {error!r}."
            ) from error
        learned = [name for name in weights if name not in self.map_weights]
        for name in learned:
            noise = 0.01 * rng.standard_normal(weights[name].shape)
            weights[name] = np.asarray(weights[name] + noise)
        if values is None:
            return
        if not np.isfinite(values).all():
            raise ConfigError(f"{kind.__name__}.coefficients returns NaN or infinity initially.")
        may_be_short = kind.coefficients.__module__.startswith(OWN)
        if len(values) <= self.num_parts * self.config.hops and not may_be_short:
            raise self._wrong_shape(values)
        if self.is_fixed:
            return
        outer = rng.standard_normal(values.shape)
        by_weight = self.filter_gradient(weights, FilterGradient(weights["theta"], outer))
        for name in learned:
            direction = rng.standard_normal(weights[name].shape)
            parts = by_weight.get(name, np.zeros(())) * direction
            near, far = (
                outer * self._slopes(weights, name, direction, step) for step in (5e-4, 1e-3)
            )
            tolerance = 1e-3 * (np.abs(parts).sum() + np.abs(near).sum())
            converged = abs(near.sum() - far.sum()) <= tolerance / 2
            if converged and abs(parts.sum() - near.sum()) > tolerance:
                raise ConfigError(
                    f"{kind.__name__}.coefficients_vjp is wrong for the weight {name!r}: in a "
                    f"random direction the derivative is {parts.sum():.4g}, but finite differences "
                    f"of coefficients give {near.sum():.4g}."
                )

    def _slopes(
        self, weights: Weights, name: str, direction: np.ndarray, step: float
    ) -> np.ndarray:
        """(c(w + h v) - c(w - h v)) / 2h for the step h and the direction v of one weight."""
        above, below = (
            self.coefficients(weights | {name: np.asarray(weights[name] + h * direction)})
            for h in (step, -step)
        )
        return (np.asarray(above) - np.asarray(below)) / (2 * step)

    def filter_gradient(self, weights: Weights, gradient: FilterGradient) -> Weights:
        """The gradient by the weights from that by the filter."""
        if gradient.coefficients is None:
            return {"theta": gradient.maps}
        by_weight = self.coefficients_vjp(weights, gradient.coefficients)
        learned = weights.keys() - set(self.map_weights)
        expected = {name: weights[name].shape for name in learned}
        is_dict = isinstance(by_weight, dict)
        shapes = {name: np.shape(by_weight[name]) for name in by_weight} if is_dict else {}
        if not is_dict or not shapes.items() <= expected.items():
            what = f"{type(self).__name__}.coefficients_vjp returns"
            given = f"the shapes {shapes}" if is_dict else f"the type {type(by_weight).__name__}"
            raise ConfigError(f"{what} {given}; return a dictionary of the shapes {expected}.")
        typed = {name: np.asarray(value, weights[name].dtype) for name, value in by_weight.items()}
        return {"theta": gradient.maps} | typed

    @property
    def hops_read(self) -> list[int]:
        """The hops whose coefficients may differ from 0; of several operators, all."""
        numbers = self.constants(self.config)
        if numbers is None:
            return list(range(1 + self.num_parts * self.config.hops))
        return np.flatnonzero(numbers).tolist()

    @property
    def num_parts(self) -> int:
        """P, the operators side by side."""
        return self.relations * len(self.config.operators)

    def logits(self, weights: Weights, source: Propagation) -> np.ndarray:
        weights = {name: value.astype(source.dtype) for name, value in weights.items()}
        values = WeightsFirst(source).evaluate(self.filter(weights)).values
        if "neighbours" in weights:
            values += source.required_neighbours().times(weights["neighbours"])
        return self.finished(weights, values)

    def signal_from_hops(self, weights: Weights, hops: np.ndarray) -> np.ndarray:
        """The signal, before standardisation and bias, from the hop features that it reads.

        ``hops`` are those of :attr:`hops_read` at some rows: (hops, rows, d) -> (rows, m).
        """
        filter = self.filter(weights)
        if filter.coefficients is not None and filter.fixed:
            coefficients = filter.coefficients[self.hops_read]
            filter = dataclasses.replace(filter, coefficients=coefficients)
        return KeptHops(hops).evaluate(filter).values

    def filters(self, weights: Weights) -> np.ndarray:
        """c_0 .. c_k of the filter of every class, (k + 1, m), or of all: (k + 1, 1)."""
        values = self.all_coefficients(weights)
        return values if values.ndim == 2 else values[:, None]

    def all_coefficients(self, weights: Weights) -> np.ndarray:
        """The coefficients of all hops, those that are left out as 0."""
        first = self._checked_coefficients(weights)
        assert first is not None  # models with a map per hop have their own
        missing = 1 + self.num_parts * self.config.hops - len(first)
        return np.concatenate([first, np.zeros((missing, *first.shape[1:]), first.dtype)])

    def maps(self, weights: Weights) -> np.ndarray:
        """Theta of every hop: (hops, d, m), or (1, d, m) if it is the same for all."""
        return weights["theta"][None]

    def hop_coefficients(self, weights: Weights) -> np.ndarray:
        """What hop i is multiplied with besides its map: (hops,)."""
        return self.all_coefficients(weights)

    def filter_summary(self, weights: Weights) -> np.ndarray:
        """What people see of the filter: (hops,), or (hops, m) if every class has its own."""
        return self.hop_coefficients(weights)

    @classmethod
    def largest(cls, bound: float, config: ModelConfig) -> np.ndarray | None:
        """The largest ``|c_i|`` of all weights up to ``bound``: (k + 1,); None if not known."""
        numbers = cls.constants(config)
        return None if numbers is None else np.abs(numbers)

    @classmethod
    def paper_growth(cls, bound: float, norm: float, hops: int) -> float:
        """The factor of the paper's bound that grows with the operator's 1-norm.

        infinity where the paper has no theorem, which bounds nothing.
        """
        return math.inf


def start_coefficients(
    config: ModelConfig, rng: np.random.Generator | None, relations: int = 1
) -> np.ndarray:
    """First values of alpha_0 .. alpha_k, shape (k + 1,); of R relations (1 + R k,).

    ``random`` is the paper's U(-1/sqrt(k), 1/sqrt(k)); ``lowpass`` is (0.8 s)^i with s = -1 for
    the Laplacian, whose smooth signals have eigenvalues near 0, and s = 1 otherwise. Relations
    share it: each has an R-th of it, but for alpha_0.
    """
    drawn = uniform((1 + relations * config.hops,), max(config.hops, 1), rng)
    if config.start == "random" or rng is None:
        return drawn
    ratio = LOWPASS_DECAY * find_operator(config.operator).sign
    first, rest = np.split(ratio ** np.arange(config.hops + 1.0), [1])
    return np.concatenate([first, np.tile(rest / relations, relations)]).astype(np.float32)
