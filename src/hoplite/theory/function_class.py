"""The functions that a linear graph convolution can express, and how complex they are."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeGuard

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import norm

from hoplite.bases import find_basis
from hoplite.config import check_flag, check_number
from hoplite.engine.polynomial import gather_hops
from hoplite.engine.propagation import Propagation
from hoplite.errors import ConfigError, plural
from hoplite.formatting import listing
from hoplite.graph import Graph, as_node_indices
from hoplite.io import load
from hoplite.machine import available_memory
from hoplite.models import MODELS, LinearModel, Model, ModelConfig, model_config
from hoplite.operators import find_operator
from hoplite.theory import complexity

MAX_HOPS = 5000  # the bounds look at all pairs of hops
BLOCK_BYTES = 2**27  # hop features held at a time
LARGEST = 1e100  # squares and sums of such numbers do not overflow
KEPT_BYTES = 2**29  # up to here they are kept for the next pass


@dataclass(frozen=True, eq=False)
class FunctionClass:
    """The functions u -> sigma( (sum_i c_i p_i(S) X theta)_u ) on L nodes u.

    theta is in R^d with ``||theta||_1 <= b``, sigma has the Lipschitz constant Lambda, and

        lgc   ``|c_i| <= a`` for every i
        egc   ``c_i = beta^i / i!`` with ``|beta| <= a``
        sgc   ``c_k = 1``, the others 0; a is not used
        s2gc, ppr, heat, dgc   constants; a is not used

    Its empirical Rademacher complexity is ``1/L E sup_f sum_l eps_l f(u_l)``, with independent
    random signs eps: how well the class can fit pure noise on these nodes.

    Parameters
    ----------
    graph : Graph, or its name or path
        The graph.
    config : ModelConfig
        The model with its hops, at most 5,000, operator, basis and constants; by default lgc.
    nodes : array of int, optional
        The L nodes; by default the training nodes, or all if there are none.
    coefficient_bound, weight_bound, lipschitz : float, default 1.0
        a, b and Lambda: the largest size of a coefficient (of ``|beta|`` for egc), of
        ``||theta||_1``, and the Lipschitz constant of the activation.
    bias : bool, default False
        Whether a constant may be added: theta has one more entry, which counts in its norm.
    outputs : int, default 1
        With m > 1, the class of functions with m outputs ``f_c``, each with its own ``theta_c``;
        the sum of all norms is at most b. The complexity then has a sign for every node and output.

    Examples
    --------
    The complexity of one node with the features 3 and 4 is 4, for either sign:

    >>> single = Graph.from_edges([], features=[[3.0, 4.0]])
    >>> functions = FunctionClass(single, model_config("sgc", hops=0))
    >>> functions.estimate().value, round(functions.bound(), 6)
    (4.0, 4.0)
    """

    graph: Graph
    config: ModelConfig = dataclasses.field(default_factory=model_config)
    nodes: np.ndarray | None = None
    coefficient_bound: float = 1.0
    weight_bound: float = 1.0
    lipschitz: float = 1.0
    bias: bool = False
    outputs: int = 1

    def __post_init__(self) -> None:
        config: Any = self.config
        if not isinstance(config, ModelConfig):
            raise ConfigError(
                f"has type {type(config).__name__}; pass hoplite.model_config(...).", "config"
            )
        check_bounds(config)
        find_operator(config.operator).require_symmetric("the bounds need")
        for name in ("coefficient_bound", "weight_bound", "lipschitz"):
            check_number(name, getattr(self, name), 0, LARGEST)
        check_number("hops", config.hops, 0, MAX_HOPS, whole=True)
        check_number("outputs", self.outputs, 1, whole=True)
        check_flag("bias", self.bias)
        if isinstance(self.graph, str):
            object.__setattr__(self, "graph", load(self.graph))
        object.__setattr__(self, "config", config.fitted(self.graph))
        chosen, train = self.nodes, self.graph.split.train
        if chosen is None:
            chosen = train if train.size else np.arange(self.graph.num_nodes)
        nodes = as_node_indices(chosen, "nodes")
        if not nodes.size or nodes[0] < 0 or nodes[-1] >= self.graph.num_nodes:
            span = f"has indices from {nodes[0]:,} to {nodes[-1]:,}" if nodes.size else "is empty"
            raise ConfigError(
                f"{span}; pass at least one index from 0 to {self.graph.num_nodes - 1:,}.", "nodes"
            )
        object.__setattr__(self, "nodes", nodes)
        columns = self.graph.num_features + self.bias
        pairs = 1 if self._constants is not None else np.count_nonzero(self._hop_weights) ** 2
        needed, free = 16 * columns * pairs, available_memory()  # they are held twice for a moment
        if needed > free:
            raise ConfigError(
                f"is {config.hops}; the products of all pairs of hops of {columns:,} features "
                f"take {needed / 1e9:.3g} GB, but only {free / 1e9:.3g} GB are free; use fewer "
                "hops.",
                "hops",
            )

    # ---- upper bounds

    def paper_bound(self) -> float:
        """The bound of the paper's Theorem 1 (lgc) or 2 (egc), which need not hold if d > 1.

            lgc   R <= b M Lambda / sqrt(L) * a sum_i ||S||_1^i
            egc   R <= b M Lambda / sqrt(L) * exp(a ||S||_1)

        M is the largest ``|X_uf|`` and ``||S||_1`` the largest absolute column sum.

        Returns
        -------
        float
            Infinity if it is too large for a float.
        """
        single = not self.bias and self.outputs == 1
        if (
            self.coefficients.facts.theorem is None
            or not find_basis(self.config.basis).powers
            or not single
        ):
            raise ConfigError(
                "the paper states bounds only for lgc and egc with one output, no bias and the "
                f"monomial basis (here: {self.config.model}, {plural(self.outputs, 'output')}"
                f"{', bias' * self.bias}, {self.config.basis}); use bound() instead."
            )
        a = float(self.coefficient_bound)
        if not self._scale * self._largest_feature:
            return 0.0  # also where the powers are infinite
        growth = self.coefficients.paper_growth(a, self._operator_1_norm, self.config.hops)
        return self._scale * self._largest_feature * math.sqrt(self.size) * growth

    def bound(self) -> float:
        """The smallest of :meth:`bounds`, an upper bound on the complexity.

        Returns
        -------
        float
        """
        return min(self.bounds().values())

    def bounds(self) -> dict[str, float]:
        """Upper bounds on the complexity; docs/theory.md explains each.

        Returns
        -------
        dict of float
            The bounds by name.
        """
        columns = self._columns
        bounds = {
            "trivial": complexity.trivial_bound(columns),
            "massart": complexity.massart_bound(columns),
            "chernoff": complexity.chernoff_bound(columns),
            "hopwise": complexity.hopwise_bound(columns, self._blocks()),
        }
        if self.coefficients.facts.exponential:
            bounds["covering"] = complexity.covering_bound(columns)
        return {name: self._scale * value for name, value in bounds.items()}

    # ---- its estimate

    def estimate(
        self,
        draws: int = complexity.DRAWS,
        *,
        seed: int = 0,
        confidence: float = 0.95,
        progress: Callable[[float], None] | None = None,
    ) -> complexity.Estimate:
        """Estimate the complexity by Monte Carlo.

        Parameters
        ----------
        draws : int, default 2000
            Number of random sign vectors. If there are no more than that in all (up to a common
            sign), all of them are used, and the result is exact.
        seed : int, default 0
            Seed of the draws.
        confidence : float, default 0.95
            Confidence of the interval.
        progress : callable, optional
            Called with the share of the work that is done.

        Returns
        -------
        Estimate
            With an activation, Lambda times the complexity without it, which is an upper bound.
        """
        result = complexity.estimate(
            self._blocks,
            self.size,
            self.graph.num_features + self.bias,
            exponential=self.coefficients.facts.exponential,
            outputs=self.outputs,
            draws=draws,
            seed=seed,
            confidence=confidence,
            progress=progress,
        )
        return result.scaled(self._scale)

    def summary(self, estimate: complexity.Estimate) -> dict[str, Any]:
        """The class, its bounds and an estimate as plain JSON values.

        Parameters
        ----------
        estimate : Estimate
            The complexity, from :meth:`estimate`.

        Returns
        -------
        dict
            Values for JSON; infinity is None.
        """
        limits = ("bias", "coefficient_bound", "weight_bound", "lipschitz")
        try:
            paper = _finite(self.paper_bound())
        except ConfigError:
            paper = None
        bounds = self.bounds()
        return {
            "dataset": self.graph.name,
            "basis": self.config.basis,
            **self.config.as_dict(),
            **{name: getattr(self, name) for name in limits},
            "nodes": self.size,
            "features": self.graph.num_features,
            "largest_feature": self._largest_feature,
            "operator_1_norm": self._operator_1_norm,
            "paper_bound": paper,
            "bound": min(bounds.values()),
            "bounds": {name: _finite(value) for name, value in bounds.items()},
            "estimate": dataclasses.asdict(estimate),
        }

    # ---- what they are made of

    @property
    def coefficients(self) -> type[LinearModel]:
        """The model, which knows where c_0 .. c_k come from."""
        model_class = self.config.kind
        assert issubclass(model_class, LinearModel)  # see __post_init__
        return model_class

    @property
    def _constants(self) -> np.ndarray | None:
        """c_0 .. c_k of a fixed filter, None if they are learned."""
        return self.coefficients.constants(self.config)

    @property
    def size(self) -> int:
        """L, the number of nodes."""
        assert self.nodes is not None  # see __post_init__
        return len(self.nodes)

    @property
    def _hop_weights(self) -> np.ndarray:
        """w_i, the largest ``|c_i|``: (k + 1,)."""
        largest = self.coefficients.largest(self.coefficient_bound, self.config)
        assert largest is not None  # see __post_init__
        return largest

    @property
    def _scale(self) -> float:
        """b Lambda / L, by which the complexity exceeds the expectation over signs."""
        return float(self.weight_bound) * float(self.lipschitz) / self.size

    @cached_property
    def _propagation(self) -> Propagation:
        # in float64: rounding must not carry the complexity over a bound
        return Propagation.of(self.graph, self.config, np.float64)

    @cached_property
    def _columns(self) -> complexity.Columns:
        return complexity.Columns.of(self._blocks(), self.outputs)

    @cached_property
    def _kept(self) -> list[np.ndarray]:
        return list(self._new_blocks())

    def _blocks(self) -> Iterator[np.ndarray]:
        """w_i p_i(S) X on the nodes, a block of features at a time: (hops, L, block).

        Of a fixed filter, whose coefficients no function of the class may change, it is the one
        signal sum_i c_i p_i(S) X: (1, L, block).
        """
        columns = self.graph.num_features + self.bias
        if 8 * (self.config.hops + 1) * self.size * columns <= KEPT_BYTES:
            return iter(self._kept)
        return self._new_blocks()

    def _new_blocks(self) -> Iterator[np.ndarray]:
        numbers, owner, k = self._constants, self._propagation, self.config.hops
        used = np.flatnonzero(self._hop_weights)
        used = used if used.size else np.array([0])  # a = 0 leaves only the bias
        weights = (self._hop_weights if numbers is None else numbers)[used, None, None]
        width = max(1, BLOCK_BYTES // (8 * (k + 1) * self.size))
        for start in range(0, self.graph.num_features, width):
            stop = min(start + width, self.graph.num_features)
            signal = owner.features.dense_columns(start, stop)
            hops = gather_hops(owner.matrices[0], owner.basis, signal, k, self.nodes)
            with np.errstate(over="ignore", invalid="ignore"):
                block = hops[used] * weights
                if numbers is not None:
                    block = block.sum(axis=0, keepdims=True)
            if not np.abs(block).max(initial=0.0) < LARGEST:
                raise ConfigError(
                    f"the features after {k} hops are too large to compute with; "
                    "use fewer hops, basis 'chebyshev' or a smaller coefficient_bound."
                )
            yield block
        if self.bias:  # a feature of ones that is not propagated
            constant = np.zeros((len(used) if numbers is None else 1, self.size, 1))
            constant[0] = 1.0  # of the lowest hop that is used
            yield constant

    @cached_property
    def _largest_feature(self) -> float:
        features = self.graph.features
        values = features.data if sp.issparse(features) else np.asarray(features)
        return float(np.abs(values).max(initial=0.0))

    @cached_property
    def _operator_1_norm(self) -> float:
        """The largest absolute column sum, which is also the largest row sum."""
        matrix = find_operator(self.config.operator).matrix(self.graph, np.float64)
        return float(norm(matrix, 1))


def bounded_models() -> list[str]:
    """The names of the models that have bounds."""
    return [model.name for model in MODELS.values() if has_bounds(model, model.Settings())]


def check_bounds(config: ModelConfig) -> type[LinearModel]:
    """The model's class; ConfigError if its bounds are not known."""
    model = config.kind
    if has_bounds(model, config):
        return model
    if issubclass(model, LinearModel) and model.source() and (names := _inherited(model, config)):
        own, other = (model.__mro__[_level(model, name)] for name in ("coefficients", names[0]))
        raise ConfigError(
            f"{own.__name__} has its own coefficients but inherits "
            f"{listing([f'`{name}`' for name in names])} from {other.__name__}; declare "
            f"{'it' if len(names) == 1 else 'them'} in {own.__name__} (docs/your-own-model.md)."
        )
    known = listing(bounded_models())
    raise ConfigError(f"is {config.model!r}, but bounds are known only for {known}.", "model")


def has_bounds(model: type[Model], config: ModelConfig) -> TypeGuard[type[LinearModel]]:
    """Whether the largest coefficients of such a model are known, so that its bounds are."""
    if not issubclass(model, LinearModel) or model.largest(1.0, config) is None:
        return False
    return not _inherited(model, config)


def _inherited(model: type[LinearModel], config: ModelConfig) -> list[str]:
    """What describes the coefficients of a base class, but not the model's own."""
    names = ("facts", "largest") if model.constants(config) is None else ("constants",)
    return [name for name in names if _level(model, name) > _level(model, "coefficients")]


def _level(model: type[LinearModel], name: str) -> int:
    """The place among the class and its bases of the one that defines an attribute."""
    return next(i for i, base in enumerate(model.__mro__) if name in vars(base))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
