"""Convex models solved, not trained: a path of penalties, each to its optimum.

SGC, the fixed filters and hop blocks are generalised linear models on columns F = [F_ij], N x D,
that do not change in training: filtered features, or the features of all hops side by side. With
mean loss l over the N training nodes the problem of penalty lambda is

    min over U, b   l((F - 1 mu') diag(1/s) U + 1 b')  +  lambda/2 ||U||^2        U: D x m,  b: m

The penalty does not hold back b. Dense columns are standardised: mu_j and s_j are their mean and
standard deviation over the training nodes, every hop's own. Sparse ones stay as they are: mu = 0,
s = 1, so that they stay sparse; without a bias mu = 0, too. What is learned is

    Theta = diag(1/s) U,    bias = b - mu' Theta

so a trained model is an ordinary linear model that knows nothing of the scaling. As l is a mean,
and lambda is relative to the mean squared length of a row, it means the same for 100 nodes and for
100,000, and for any unit of the features:

    lambda_e = 10^(-1 - e/2) min(1, 1000/N) 1/N sum_v ||F_v||^2,    e = 1, 2, ...

with F standardised, and 10^(-e) beyond 10,000 nodes, where the loss is flatter around its minimum.
An epoch of training is one lambda, from strong to weak. Each starts where the one before ended.

L-BFGS works in U / h^(-1/2), h the diagonal of the Hessian at b alone,

    h_jc = q_c 1/N sum_v F_vj^2 + lambda,    q_c = N sum_v G_vc^2,    G = dl/dH at b: N x m

because the columns of words or rare categories differ by orders of magnitude. The mean squares of
columns that are never made (weights first) are estimated: for Z, N x r, of independent signs,
E (F'Z)_jc^2 = sum_v F_vj^2.

With more than 131,072 weights a penalty has up to 20 iterations, and ends after one that gains
less than 0.1 %; so does the refit, which starts from the weights of the path.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from hoplite.config import TrainingConfig
from hoplite.engine.evaluation import KeptRows
from hoplite.models.base import Weights
from hoplite.tasks import Task
from hoplite.training.linear import LinearObjective
from hoplite.training.objective import Part
from hoplite.training.optimizers import LBFGS

STRONGEST = 10**-1.5  # strongest penalty for FEW nodes, relative to a row's squared length
FEW, MANY = 1000, 10_000  # training nodes
LARGE = 1 << 17  # weights, from which on L-BFGS has the features' type, and one step each
PENALTIES = 12  # epochs at most
HISTORY = 10  # pairs of L-BFGS
TOLERANCE = 1e-3  # relative decrease by a step, with LARGE weights an iteration, that ends one
MAX_STEPS = 10
MIN_SIGNS = 16  # columns of signs that mean squares are estimated with
PLAIN = TrainingConfig(lr=1.0, weight_decay=0.0, optimizer="lbfgs")


class Moments(NamedTuple):
    """The mean and the mean square of each column over the training nodes, (D,)."""

    mean: np.ndarray
    square: np.ndarray

    @property
    def deviation(self) -> np.ndarray:
        """The standard deviation of each column, 1 where it is constant up to rounding."""
        variance = self.square - self.mean**2
        constant = variance <= 1e-10 * self.square
        return np.where(constant, 1.0, np.sqrt(np.where(constant, 1.0, variance)))


class PenaltyPath:
    """Solves for one penalty after another; used as an optimizer.

    Parameters
    ----------
    objective : LinearObjective
        For a model whose outputs are linear in ``theta``, (d, m) or (hops, d, m). Its ``theta``,
        ``bias`` (m,) and ``neighbours`` (m, m), if there are some, are changed in place.
    start : dict of ndarray or None
        Weights to start from; the best constant outputs if None.
    skipped : int, default 0
        Penalties that are left out.
    rows : int, optional
        Training nodes of the run that chose the penalty, whose steps between penalties are kept.
    """

    def __init__(
        self,
        objective: LinearObjective,
        start: Weights | None = None,
        skipped: int = 0,
        rows: int | None = None,
    ) -> None:
        self._params, part = objective.params, objective.problem.train
        has_bias, outputs = "bias" in self._params, self._params["theta"].shape[-1]
        moments = column_moments(objective)
        mean, deviation = np.zeros(len(moments.mean)), np.ones(len(moments.mean))
        self._is_scaled = not objective.problem.source.features.is_sparse
        if self._is_scaled:
            deviation = moments.deviation
            mean = moments.mean if has_bias else mean
        self._mean, self._inverse = mean, (1 / deviation)[:, None]
        squares = (moments.square - 2 * mean * moments.mean + mean**2) / deviation**2
        self._squares = np.maximum(squares, 0)  # rounding makes those of constant columns negative
        least = 1.0 if self._is_scaled else 1e-30  # a column that is not constant has 1
        self._unit, self._epoch = max(float(self._squares.sum()), least), skipped
        self._rows, self._first_rows = len(part), rows or len(part)
        task = objective.problem.task
        bias, self._curvature = _intercept(task, part, outputs, fitted=has_bias)
        theta = np.zeros((len(mean), outputs))
        if start is not None:
            theta = stacked(start) / self._inverse
            bias = start.get("bias", 0.0) + mean @ (theta * self._inverse)
        scaled = {"theta": theta} | ({"bias": bias} if has_bias else {})
        large = theta.size >= LARGE
        dtype = objective.problem.source.dtype if large else np.float64
        self._steps = 1 if large else MAX_STEPS
        self._tolerance = TOLERANCE if large else 0.0
        self._scaled = {name: np.asarray(value, dtype) for name, value in scaled.items()}

    def step(self, closure: Callable[[], tuple[float, Weights]]) -> None:
        """Solve for the next penalty; ``closure`` is as that of :class:`LBFGS`."""
        penalty = relative_penalty(self._epoch, self._rows, self._first_rows) * self._unit
        self._epoch += 1
        dtype = self._scaled["theta"].dtype
        by_column = np.sqrt(self._squares[:, None] * self._curvature + penalty)
        scales = {"theta": (1 / by_column).astype(dtype)}
        scales["bias"] = (1 / np.sqrt(self._curvature)).astype(dtype)
        moved = {name: value / scales[name] for name, value in self._scaled.items()}
        reached = math.inf

        def evaluate() -> tuple[float, Weights]:
            nonlocal reached
            self._scaled = {name: value * scales[name] for name, value in moved.items()}
            self._write()
            loss, gradients = closure()
            maps = self._scaled["theta"]
            by_map = stacked(gradients)
            if self._is_scaled:
                by_bias = gradients.get("bias", np.zeros(maps.shape[1]))
                by_map = (by_map - np.outer(self._mean, by_bias)) * self._inverse
            by_map = by_map + penalty * maps
            reached = loss + penalty / 2 * float(np.vdot(maps, maps))
            gradients = {"theta": by_map, "bias": gradients.get("bias")}
            return reached, {name: gradients[name] * scales[name] for name in moved}

        optimizer = LBFGS(moved, PLAIN, history=HISTORY, tolerance=self._tolerance)
        before = math.inf
        for _ in range(self._steps):
            optimizer.step(evaluate)
            if not before - reached > TOLERANCE * abs(reached):
                break
            before = reached
        evaluate()

    def _write(self) -> None:
        """The weights of the model from those of standardised columns."""
        theta, shift = self._scaled["theta"], 0.0
        if self._is_scaled:
            theta = theta * self._inverse
            shift = self._mean @ theta
        own = self._params["theta"]
        columns = len(theta) - len(self._params.get("neighbours", ()))
        own[...] = theta[:columns].reshape(own.shape)
        if "neighbours" in self._params:
            self._params["neighbours"][...] = theta[columns:]
        if "bias" in self._scaled:
            self._params["bias"][...] = self._scaled["bias"] - shift


def relative_penalty(epoch: int, rows: int, first_rows: int | None = None) -> float:
    """The penalty of an epoch, from 0, as a multiple of the mean squared length of a row.

    The step from one to the next goes by ``first_rows``, by default the same.

    >>> [round(relative_penalty(epoch, 100), 4) for epoch in range(3)]
    [0.0316, 0.01, 0.0032]
    """
    ratio = 10**-0.5 if (first_rows or rows) <= MANY else 0.1
    return STRONGEST * min(1.0, FEW / rows) * ratio**epoch


def stacked(weights: Weights) -> np.ndarray:
    """The maps of all columns below each other, those of labels of neighbours last: (D, m)."""
    maps = weights["theta"].reshape(-1, weights["theta"].shape[-1])
    return np.concatenate([maps, weights["neighbours"]]) if "neighbours" in weights else maps


def path_patience(rows: int) -> int:
    """Penalties that are tried after the best one; of many nodes the validation loss is smooth."""
    return 2 if rows <= MANY else 1


def column_moments(objective: LinearObjective) -> Moments:
    """Moments of the columns that :func:`stacked` maps multiply, over the N training nodes.

    The mean is exact, F'1 / N; the mean square where the columns are kept, and estimated otherwise.
    """
    moments, labels = _feature_moments(objective), objective.training_labels
    if labels is None:
        return moments
    own = labels.dense().astype(np.float64)
    last = Moments(own.mean(axis=0), np.square(own).mean(axis=0))
    return Moments(*(np.concatenate(pair) for pair in zip(moments, last, strict=True)))


def _feature_moments(objective: LinearObjective) -> Moments:
    """Moments of the columns that ``theta`` multiplies."""
    rows, outputs = len(objective.problem.train), objective.params["theta"].shape[-1]
    order, dtype = objective.training_order, objective.problem.source.dtype
    evaluation = order.evaluate(objective.model.filter(objective.params))

    def transposed(signal: np.ndarray) -> np.ndarray:
        by_map = evaluation.gradient(signal.astype(dtype)).maps
        return by_map.reshape(-1, outputs).astype(np.float64)

    mean = transposed(np.full((rows, outputs), 1 / rows))[:, 0]
    if isinstance(order, KeptRows):
        return Moments(mean, order.column_squares(rows) / rows)
    rng, draws = np.random.default_rng(0), -(-MIN_SIGNS // outputs)
    signs = [rng.choice([-1.0, 1.0], (rows, outputs)) for _ in range(draws)]
    square = np.mean([(transposed(draw) ** 2).mean(axis=1) for draw in signs], axis=0) / rows
    return Moments(mean, np.maximum(square, mean**2))


def _intercept(
    task: Task, part: Part, outputs: int, *, fitted: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The best constant outputs b (m,), 0 if they are not ``fitted``, and the curvature q (m,)."""
    params = {"bias": np.zeros(outputs)}
    gradient = np.empty((len(part), outputs))

    def closure() -> tuple[float, Weights]:
        nonlocal gradient
        logits = np.tile(params["bias"], (len(part), 1))
        loss, gradient = task.loss_and_gradient(logits, part.targets, part.weights)
        return loss, {"bias": gradient.sum(axis=0)}

    if fitted:
        LBFGS(params, PLAIN, history=HISTORY).step(closure)
    closure()
    curvature = len(part) * np.square(gradient).sum(axis=0)
    return params["bias"], np.maximum(curvature, 1 / len(part))
