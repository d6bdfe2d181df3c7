"""Learned filters: LGC, EGC and JacobiConv learn their coefficients with Theta, hop blocks a map
for every hop."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hoplite.config import number_setting, setting
from hoplite.errors import ConfigError, check_choice
from hoplite.models import linear
from hoplite.models.base import OF_FILTERS, Weights, uniform
from hoplite.models.settings import ModelConfig
from hoplite.operators import OPERATORS, find_operator

NEGLIGIBLE = 2.0**-16  # share of the rounding error


class LGC(linear.LinearModel):
    """sum_i alpha_i p_i(S) X Theta, one learned coefficient per hop.

    c_i = alpha_i; with relations alpha has 1 + R k values, see :class:`~hoplite.graph.Relation`.

    >>> LGC.largest(2.0, LGC.Settings(hops=2)).tolist()
    [2.0, 2.0, 2.0]
    """

    name = "lgc"
    title = "LGC"
    facts = linear.FilterFacts(learned="alpha", homogeneous=True, theorem=1)
    takes_relations = True
    Settings = linear.BasisSettings

    def initial_filter(self, rng: np.random.Generator | None) -> Weights:
        return {"alpha": linear.start_coefficients(self.config, rng, self.relations)}

    def coefficients(self, weights: Weights) -> np.ndarray:
        return weights["alpha"]

    def coefficients_vjp(self, weights: Weights, gradient: np.ndarray) -> Weights:
        return {"alpha": gradient}

    @classmethod
    def largest(cls, bound: float, config: ModelConfig) -> np.ndarray:
        return np.full(config.hops + 1, float(bound))

    @classmethod
    def paper_growth(cls, bound: float, norm: float, hops: int) -> float:
        """a sum_i ||S||_1^i."""
        with np.errstate(over="ignore"):
            return bound * float((norm ** np.arange(hops + 1.0)).sum())


class EGC(linear.LinearModel):
    """sum_i beta^i / i! S^i X Theta, a truncated exponential with one learned rate beta.

    c_i = beta^i / i!

    >>> EGC.largest(2.0, EGC.Settings(hops=3)).tolist()
    [1.0, 2.0, 2.0, 1.3333333333333333]
    """

    name = "egc"
    title = "EGC"
    facts = linear.FilterFacts(learned="beta", exponential=True, theorem=2)
    Settings = linear.StartSettings

    def initial_filter(self, rng: np.random.Generator | None) -> Weights:
        """beta ~ U(-1/sqrt(k), 1/sqrt(k)); with the low-pass start 1, or -1 for the Laplacian."""
        rate = uniform((), max(self.config.hops, 1), rng)
        if self.config.start == "lowpass":
            rate = np.array(find_operator(self.config.operator).sign, np.float32)
        return {"beta": np.asarray(rate)}

    def coefficients(self, weights: Weights) -> np.ndarray:
        """Without the last hops, which a factorial makes vanish.

        ``|S^i X Theta|`` is at most ``|S|^i |X Theta|``, so a term below a small part of the
        rounding of the largest is lost anyway.
        """
        every = exponential_coefficients(weights["beta"], self.config.hops)
        matters = self._matters(every)
        kept = np.where(matters, every, every.dtype.type(0))
        return kept[: int(np.flatnonzero(matters)[-1]) + 1]

    def coefficients_vjp(self, weights: Weights, gradient: np.ndarray) -> Weights:
        """d/dbeta = sum_{i >= 1} (dLoss/dc_i) beta^(i-1) / (i-1)!"""
        every = exponential_coefficients(weights["beta"], self.config.hops)
        used = len(gradient)
        slopes = np.where(self._matters(every)[1:used], every[: used - 1], 0.0)
        return {"beta": np.array(np.sum(gradient[1:] * slopes, dtype=np.float64))}

    def _matters(self, every: np.ndarray) -> np.ndarray:
        """Which hops count: bool (k + 1,)."""
        norm = find_operator(self.config.operator).norm_bound
        size = np.abs(every) * norm ** np.arange(self.config.hops + 1.0)
        matters = ~(size < size.max() * np.finfo(every.dtype).eps * NEGLIGIBLE)  # NaN does
        matters[1:] |= matters[:-1].copy()  # c_{i-1} is the slope of c_i
        return matters

    @classmethod
    def largest(cls, bound: float, config: ModelConfig) -> np.ndarray:
        return np.cumprod(np.concatenate([[1.0], bound / np.arange(1, config.hops + 1)]))

    @classmethod
    def paper_growth(cls, bound: float, norm: float, hops: int) -> float:
        """exp(a ||S||_1); infinity where it is too large for a number."""
        return math.exp(bound * norm) if bound * norm < 700 else math.inf


class JacobiConv(linear.LinearModel):
    """A polynomial filter of its own for every class, by default in Jacobi polynomials:

        logits[:, c] = sum_i a_{i,c} (p_i(S) X Theta)[:, c]  (+ b_c)        c = 1 .. m

    It is LGC with (k + 1) m coefficients, and hop blocks with Theta_i = Theta diag(a_i).
    a_{i,c} = f_{i,c} prod_{j=1..i} gamma tanh(e_j), the paper's product parametrisation.

    Learned are Theta (d, m), ``class_filter`` f (k + 1, m), which starts at 1, and ``decay`` e
    (k,), which starts at min(1 / gamma, 1), so that at first hop i counts (gamma tanh e)^i.

    >>> model = JacobiConv(JacobiConv.Settings(hops=2), 3, 4)
    >>> model.shapes()
    {'theta': (3, 4), 'class_filter': (3, 4), 'decay': (2,)}
    """

    name = "jacobiconv"
    title = "JacobiConv"
    # what their settings for ten graphs have in common: the rates, a decay of Theta alone, dropout
    # of X and of X Theta, up to 1,000 epochs
    authors: ClassVar[dict[str, Any]] = {
        "operator": "adjacency", "hops": 10, "bias": True, "lr": 0.05, "weight_decay": 1e-4,
        "filter_decay_factor": 0.0, "dropout": 0.5, "output_dropout": 0.5, "epochs": 1000,
        "patience": 200,
    }  # fmt: skip

    @dataclass(frozen=True)
    class Settings(linear.PolynomialSettings):
        basis: str = linear.basis_setting("jacobi:1,1")
        gamma: float = number_setting(
            1.0, "Maximum ratio of successive coefficients, up to 2.", 0, 2,
            open_ends="l",
        )  # fmt: skip

    def initial_filter(self, rng: np.random.Generator | None) -> Weights:
        k, gamma = self.config.hops, self.config.gamma
        return {
            "class_filter": np.ones((k + 1, self.num_classes), np.float32),
            "decay": np.full(k, min(1 / gamma, 1.0), np.float32),
        }

    def coefficients(self, weights: Weights) -> np.ndarray:
        """a: (k + 1, m)."""
        return weights["class_filter"] * self._products(weights)[1][:, None]

    def coefficients_vjp(self, weights: Weights, gradient: np.ndarray) -> Weights:
        """With s_j = gamma tanh(e_j), g_0 = 1, g_i = g_{i-1} s_i and dg_i = sum_c da_{i,c} f_{i,c}:

            df_{i,c} = da_{i,c} g_i
            A_k = dg_k,  A_{i-1} = dg_{i-1} + A_i s_i,  de_i = A_i g_{i-1} gamma (1 - tanh(e_i)^2)

        Nothing is divided by tanh(e_j), which may be 0.
        """
        steps, products = self._products(weights)
        by_product = (gradient * weights["class_filter"]).sum(axis=1)
        by_step = np.zeros_like(by_product[1:])
        later = 0.0
        for i in reversed(range(len(steps))):
            later = by_product[i + 1] + (later * steps[i + 1] if i + 1 < len(steps) else 0.0)
            by_step[i] = later * products[i]
        slope = self.config.gamma * (1 - np.tanh(weights["decay"]) ** 2)
        return {"class_filter": gradient * products[:, None], "decay": by_step * slope}

    def _products(self, weights: Weights) -> tuple[np.ndarray, np.ndarray]:
        """s_1 .. s_k and g_0 .. g_k."""
        steps = (self.config.gamma * np.tanh(weights["decay"])).astype(weights["decay"].dtype)
        return steps, np.cumprod(np.concatenate([np.ones(1, steps.dtype), steps]))

    def maps(self, weights: Weights) -> np.ndarray:
        return weights["theta"][None] * self.coefficients(weights)[:, None]

    def hop_coefficients(self, weights: Weights) -> np.ndarray:
        """All 1, as the maps hold the filters."""
        return np.ones(self.config.hops + 1, weights["theta"].dtype)

    def filter_summary(self, weights: Weights) -> np.ndarray:
        """a: (k + 1, m)."""
        return self.coefficients(weights)


def check_channels(name: str, value: Any) -> str:
    """Operators with commas between them, none twice; nothing stands for the one ``operator``.

    >>> check_channels("channels", "adjacency, random_walk")
    'adjacency,random_walk'
    """
    if not isinstance(value, str):
        raise ConfigError(
            f"is {value!r}; it must be a comma-separated list of operators, e.g. "
            "'renormalized,random_walk'.",
            name,
        )
    operators = [part.strip() for part in value.split(",")] if value.strip() else []
    for operator in operators:
        check_choice(name, operator, OPERATORS)
    if len(set(operators)) < len(operators):
        raise ConfigError(f"is {value!r}, which has duplicate operators; use each once.", name)
    return ",".join(operators)


class HopBlocks(linear.LinearModel):
    """sum_i p_i(S) X Theta_i, a map of its own for every hop of every matrix.

    It is SIGN, or TAGConv, without an activation: logistic regression on all hop features side by
    side, with a convex loss, for which L-BFGS is the natural optimizer. With the relations of a
    graph and several operators (channels) there are P matrices, for each relation (such as ``out``
    and ``in``) all channels, and the blocks are those of linear FSGNN:

        Phi = [X | p_1(S_1) X .. p_k(S_1) X | p_1(S_2) X .. p_k(S_2) X | ..]        n x (1 + P k) d

    c_i = 1, and ``theta`` is (1 + P k, d, m): Theta of hop 0, then of every hop of every matrix.

    >>> HopBlocks(HopBlocks.Settings(hops=2), 3, 4).shapes()
    {'theta': (3, 3, 4)}
    >>> HopBlocks(HopBlocks.Settings(hops=2, channels="adjacency,random_walk"), 3, 4).shapes()
    {'theta': (5, 3, 4)}
    """

    name = "blocks"
    title = "Hop blocks"
    size = "{0.hops} hops, {0.operators_title}, {0.basis_title}"
    takes_relations = True
    idle = OF_FILTERS
    defaults = linear.SOLVED

    @dataclass(frozen=True)
    class Settings(linear.PolynomialSettings):
        basis: str = linear.basis_setting()
        channels: str = setting(
            "",
            "Operators to combine instead of --operator: A,B.",
            check_channels,
            choices=OPERATORS,
        )

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.channels and self.operator != linear.PolynomialSettings.operator:
                raise ConfigError(
                    f"is {self.operator!r} but channels is {self.channels!r}; pass only "
                    "one of them.",
                    "operator",
                )
            if self.channels in OPERATORS:  # one channel is the operator
                object.__setattr__(self, "operator", self.channels)
                object.__setattr__(self, "channels", "")

        @property
        def operators(self) -> tuple[str, ...]:
            return tuple(self.channels.split(",")) if self.channels else (self.operator,)

        @property
        def operators_title(self) -> str:
            return " and ".join(self.operators)

    @property
    def blocks(self) -> int:
        """1 + P k."""
        return 1 + self.num_parts * self.config.hops

    def initial_map(self, rng: np.random.Generator | None) -> np.ndarray:
        """Theta_i ~ U(-1/sqrt(B d), 1/sqrt(B d)) of B blocks, as torch.nn.Linear's of all."""
        shape = (self.blocks, self.num_features, self.num_classes)
        return uniform(shape, max(shape[0] * shape[1], 1), rng)

    def coefficients(self, weights: Weights) -> None:
        return None

    def hop_coefficients(self, weights: Weights) -> np.ndarray:
        return np.ones(self.blocks, weights["theta"].dtype)

    def filter_summary(self, weights: Weights) -> np.ndarray:
        """The norms ``||Theta_i||`` of the maps: (1 + P k,)."""
        return np.sqrt(np.square(weights["theta"]).sum(axis=(1, 2)))

    def filters(self, weights: Weights) -> np.ndarray:
        raise ConfigError(
            f"model {self.name!r} has a filter for every feature and class, which are too many to "
            "show; see maps_ for their coefficients."
        )

    def maps(self, weights: Weights) -> np.ndarray:
        return weights["theta"]


def exponential_coefficients(rate: np.ndarray, hops: int) -> np.ndarray:
    """beta^i / i! for i = 0 .. hops as a cumulative product, as i! overflows: (hops + 1,).

    >>> exponential_coefficients(np.array(2.0), 3).round(4).tolist()
    [1.0, 2.0, 2.0, 1.3333]
    """
    steps = np.arange(1, hops + 1, dtype=rate.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.cumprod(np.concatenate([np.ones(1, rate.dtype), rate / steps]))
