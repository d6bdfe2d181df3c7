"""The two optimizers of a training run: Adam and full-batch L-BFGS.

Both change the arrays of a model's parameters in place, and both penalise weights with
``decay / 2 ||w||^2``. The learning rate and the decay of the parameters in ``filters`` are
multiplied by ``filter_lr_factor`` and ``filter_decay_factor`` of the settings.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from typing import NamedTuple

import numpy as np

from hoplite.config import TrainingConfig
from hoplite.engine.backend import get_num_threads, native, uses_native

Params = dict[str, np.ndarray]
Closure = Callable[[], tuple[float, Params]]  # the loss and its gradients at the present weights

BETA_MEAN, BETA_SQUARE, EPSILON = 0.9, 0.999, 1e-8

LBFGS_ITERATIONS = 20  # maximum number of iterations in one step
MAX_EVALUATIONS = LBFGS_ITERATIONS * 5 // 4  # maximum in one step, checked after every iteration
MAX_SEARCH_EVALUATIONS = 25  # maximum in one line search, after its first evaluation
HISTORY = 100  # pairs of changes that the inverse Hessian is estimated from
MIN_CURVATURE = 1e-10  # pairs with less are left out, so that the estimate stays positive
SMALL_GRADIENT = 1e-7  # largest entry at a minimum
SMALL_CHANGE = 1e-9  # change of weights, loss or slope that ends a step
SUFFICIENT_DECREASE, CURVATURE = 1e-4, 0.9  # c1 and c2 of the strong Wolfe conditions


class Adam:
    """Adam with coupled weight decay, as ``torch.optim.Adam``.

        g <- g + decay w
        m <- 0.9 m + 0.1 g,    v <- 0.999 v + 0.001 g^2
        w <- w - lr m^ / (sqrt(v^) + 1e-8),    m^ = m / (1 - 0.9^t),  v^ = v / (1 - 0.999^t)

    Parameters
    ----------
    params : dict of ndarray
        The weights w, by name; changed in place.
    config : TrainingConfig
        ``lr``, ``weight_decay`` and their factors for the filter.
    filters : collection of str
        Names of the parameters of the filter.

    >>> weights = {"w": np.array([1.0, -2.0])}
    >>> Adam(weights, TrainingConfig(lr=0.1, weight_decay=0), ()).step({"w": weights["w"].copy()})
    >>> weights["w"].round(6).tolist()  # the first step is lr in every entry
    [0.9, -1.9]
    """

    def __init__(
        self, params: Params, config: TrainingConfig, filters: Collection[str] = ()
    ) -> None:
        self._params = params
        self._rates: dict[str, tuple[float, float]] = {}  # learning rate and decay
        for name in params:
            lr = config.lr * (config.filter_lr_factor if name in filters else 1.0)
            self._rates[name] = lr, _decay(name, config, filters)
        self._mean = {name: np.zeros_like(weight, order="C") for name, weight in params.items()}
        self._square = {name: np.zeros_like(weight, order="C") for name, weight in params.items()}
        self._steps = 0

    def step(self, gradients: Params) -> None:
        """Change the weights by one step, for the gradients of the loss without its penalty.

        A parameter without a gradient has no part in the loss; its gradient is 0.
        """
        self._steps += 1
        for name, weight in self._params.items():
            gradient = gradients.get(name)
            gradient = np.zeros_like(weight) if gradient is None else gradient
            gradient = np.asarray(gradient, weight.dtype, order="C")
            moments, rates = (self._mean[name], self._square[name]), self._rates[name]
            if native is not None and uses_native() and weight.flags.c_contiguous and weight.size:
                native.adam(gradient, weight, *moments, *rates, self._steps, get_num_threads())
            else:
                _adam(gradient, weight, *moments, *rates, self._steps)


def _adam(
    gradient: np.ndarray,
    weight: np.ndarray,
    mean: np.ndarray,
    square: np.ndarray,
    lr: float,
    decay: float,
    step: int,
) -> None:
    """One step of Adam in NumPy, in place; ``step`` counts from 1."""
    with np.errstate(all="ignore"):  # a diverging run must reach its non-finite loss
        work = np.multiply(weight, decay, out=np.empty_like(weight))
        work += gradient
        square *= BETA_SQUARE
        square += (1 - BETA_SQUARE) * np.square(work)
        work -= mean
        work *= 1 - BETA_MEAN
        mean += work
        np.sqrt(square, out=work)
        work /= (1 - BETA_SQUARE**step) ** 0.5
        work += EPSILON
        np.divide(mean, work, out=work)
        work *= lr / (1 - BETA_MEAN**step)
        weight -= work


class LBFGS:
    """Full-batch L-BFGS with a strong Wolfe line search, as ``torch.optim.LBFGS``.

    One step is up to 20 iterations. Each goes along d = -B g, with g the gradient and B the
    estimate of the inverse Hessian from the last pairs of changes (s, y) of weights and
    gradient, as far as the line search says (Nocedal and Wright, Numerical Optimization,
    algorithms 3.5, 3.6 and 7.4). The pairs are kept from step to step.

    Parameters
    ----------
    params : dict of ndarray
        The weights w, by name and all of one number type; changed in place.
    config : TrainingConfig
        ``lr``, the first length that the line search tries, and ``weight_decay``.
    filters : collection of str
        Names of the parameters of the filter.
    history : int, default 100
        Pairs (s, y) that are kept.
    tolerance : float, default 0
        A step ends after an iteration whose relative decrease of the loss is smaller.

    >>> weights = {"w": np.zeros(2)}
    >>> optimizer = LBFGS(weights, TrainingConfig(lr=1.0, weight_decay=1.0, optimizer="lbfgs"))
    >>> def closure():  # ||w - 2||^2 / 2; with the penalty, the minimum is at 1
    ...     errors = weights["w"] - 2
    ...     return float(errors @ errors) / 2, {"w": errors}
    >>> optimizer.step(closure)
    >>> weights["w"].round(6).tolist()
    [1.0, 1.0]
    """

    def __init__(
        self,
        params: Params,
        config: TrainingConfig,
        filters: Collection[str] = (),
        history: int = HISTORY,
        tolerance: float = 0.0,
    ) -> None:
        self._params, self._lr, self._tolerance = params, config.lr, tolerance
        self._decays = {name: _decay(name, config, filters) for name in params}
        self._dtype = np.result_type(*params.values())
        # the estimate B: changes s and y with 1 / s'y, the oldest first, and its scale
        self._pairs: deque[tuple[np.ndarray, np.ndarray, float]] = deque(maxlen=history)
        self._scale = 1.0
        # the change of the weights in the last iteration, and the gradient before it
        self._last: tuple[np.ndarray, np.ndarray] | None = None

    def step(self, closure: Closure) -> None:
        """Change the weights by up to 20 iterations.

        ``closure`` returns the loss without its penalty and its gradients at the weights as they
        are when it is called. Its first call of a step is at the weights before the step.
        """
        with np.errstate(all="ignore"):  # a diverging run must reach its non-finite loss
            self._iterate(closure)

    def _iterate(self, closure: Closure) -> None:
        loss, gradient = self._evaluate(closure)
        evaluations = 1
        if _largest(gradient) <= SMALL_GRADIENT:
            return
        for iteration in range(LBFGS_ITERATIONS):
            # the first direction is a gradient, whose size does not suggest a length
            first = self._last is None
            length = min(1.0, 1.0 / float(np.abs(gradient).sum())) if first else 1.0
            direction = self._next_direction(gradient)
            length, slope = length * self._lr, _dot(gradient, direction)
            self._last = length * direction, gradient
            if slope > -SMALL_CHANGE:
                return
            start, last_loss = self._flat(), loss
            line = _Line(partial(self._evaluate_at, closure, start, direction), direction)
            point, tried = line.search(_Point(0.0, loss, gradient, slope), length)
            change = point.length * direction
            self._last = change, gradient
            self._assign(start + change)
            loss, gradient = point.loss, point.gradient
            evaluations += tried
            if (
                iteration == LBFGS_ITERATIONS - 1
                or evaluations >= MAX_EVALUATIONS
                or _largest(gradient) <= SMALL_GRADIENT
                or _largest(change) <= SMALL_CHANGE
                or abs(loss - last_loss) < max(SMALL_CHANGE, self._tolerance * abs(loss))
            ):
                return

    def _next_direction(self, gradient: np.ndarray) -> np.ndarray:
        """-g at first; later -B g, after B is updated with the changes of the last iteration."""
        if self._last is None:
            return -gradient
        moved, before = self._last
        changed = gradient - before
        curvature = _dot(changed, moved)
        if curvature > MIN_CURVATURE:
            self._pairs.append((moved, changed, 1 / curvature))
            self._scale = float(np.float64(curvature) / _dot(changed, changed))
        result, factors = -gradient, []  # the two-loop recursion
        for moved, changed, inverse in reversed(self._pairs):
            factors.append(_dot(moved, result) * inverse)
            result -= factors[-1] * changed
        result *= self._scale
        for (moved, changed, inverse), factor in zip(self._pairs, reversed(factors), strict=True):
            result += (factor - _dot(changed, result) * inverse) * moved
        return result

    def _evaluate(self, closure: Closure) -> tuple[float, np.ndarray]:
        """The loss with its penalty, and its gradient as one vector."""
        loss, gradients = closure()
        total, parts = float(loss), []
        for name, weight in self._params.items():
            decay, gradient = self._decays[name], gradients.get(name)
            total += decay / 2 * float(np.square(weight).sum(dtype=np.float64))
            part = weight * decay if gradient is None else gradient + weight * decay
            parts.append(np.ravel(part))
        return total, np.concatenate(parts, dtype=self._dtype)

    def _evaluate_at(
        self, closure: Closure, start: np.ndarray, direction: np.ndarray, length: float
    ) -> tuple[float, np.ndarray]:
        """:meth:`_evaluate` at ``start + length direction``."""
        self._assign(start + length * direction)
        return self._evaluate(closure)

    def _flat(self) -> np.ndarray:
        return np.concatenate([*map(np.ravel, self._params.values())], dtype=self._dtype)

    def _assign(self, flat: np.ndarray) -> None:
        start = 0
        for weight in self._params.values():
            weight[...] = flat[start : start + weight.size].reshape(weight.shape)
            start += weight.size


class _Point(NamedTuple):
    """A point on a line: its length along d, the loss, the gradient and the slope g'd there."""

    length: float
    loss: float
    gradient: np.ndarray
    slope: float


class _Line:
    """The search along a direction for a point with the strong Wolfe conditions.

        f(t) <= f(0) + c1 t f'(0)    and    |f'(t)| <= c2 |f'(0)|

    First the length grows until an interval must hold such a point; then the interval shrinks.
    """

    def __init__(
        self, evaluate: Callable[[float], tuple[float, np.ndarray]], direction: np.ndarray
    ) -> None:
        self._evaluate, self._direction = evaluate, direction

    def search(self, start: _Point, length: float) -> tuple[_Point, int]:
        """The point to go to, and the number of evaluations; ``length`` is tried first."""
        left = MAX_SEARCH_EVALUATIONS
        before, now, grown = start, self._at(length), 0
        while left:
            too_high = self._too_high(now, start) or (grown > 1 and now.loss >= before.loss)
            if not too_high and _is_flat(now, start):
                return now, 1 + MAX_SEARCH_EVALUATIONS - left
            if too_high or now.slope >= 0:
                break
            least, most = now.length + 0.01 * (now.length - before.length), now.length * 10
            length = _cubic_minimum(before, now, least, most)
            before, now = now, self._at(length)
            grown, left = grown + 1, left - 1
        ends = [before, now] if left else [start, now]
        point, left = self._shrink(start, ends, left)
        return point, 1 + MAX_SEARCH_EVALUATIONS - left

    def _shrink(self, start: _Point, ends: list[_Point], left: int) -> tuple[_Point, int]:
        """The best end of the interval once it has a good point or is too small, or after ``left``
        evaluations; and how many of these are left over."""
        low = _lower(ends)
        reach, stuck = _largest(self._direction), False
        while left and not abs(ends[1].length - ends[0].length) * reach < SMALL_CHANGE:
            length, stuck = _inside(ends, stuck)
            now, left = self._at(length), left - 1
            if self._too_high(now, start) or now.loss >= ends[low].loss:
                ends[1 - low] = now
                low = _lower(ends)
                continue
            if _is_flat(now, start):
                return now, left
            if now.slope * (ends[1 - low].length - ends[low].length) >= 0:
                ends[1 - low] = ends[low]
            ends[low] = now
        return ends[low], left

    def _at(self, length: float) -> _Point:
        loss, gradient = self._evaluate(length)
        return _Point(length, loss, gradient, _dot(gradient, self._direction))

    @staticmethod
    def _too_high(now: _Point, start: _Point) -> bool:
        return now.loss > start.loss + SUFFICIENT_DECREASE * now.length * start.slope


def _is_flat(now: _Point, start: _Point) -> bool:
    """Whether the slope is small enough, the second Wolfe condition."""
    return abs(now.slope) <= -CURVATURE * start.slope


def _lower(ends: list[_Point]) -> int:
    """Which end has the lower loss, of equal ones the first."""
    return 0 if ends[0].loss <= ends[1].loss else 1


def _inside(ends: list[_Point], stuck: bool) -> tuple[float, bool]:
    """A length within the interval, and whether it is within a tenth of it from one end.

    The second time in turn, or at an end itself, it is a tenth away, so that the interval shrinks.
    """
    first, second = ends
    least, most = min(first.length, second.length), max(first.length, second.length)
    length, tenth = _cubic_minimum(first, second, least, most), 0.1 * (most - least)
    if not min(most - length, length - least) < tenth:
        return length, False
    if not (stuck or length >= most or length <= least):
        return length, True
    nearer_most = abs(length - most) < abs(length - least)
    return (most - tenth if nearer_most else least + tenth), False


def _cubic_minimum(first: _Point, second: _Point, least: float, most: float) -> float:
    """The minimum, within [least, most], of the cubic with the losses and slopes of two points.

    The middle if the cubic has none (Nocedal and Wright, equation 3.59).
    """
    if first.length > second.length:
        first, second = second, first
    width = np.float64(second.length - first.length)
    mean = first.slope + second.slope - 3 * (second.loss - first.loss) / width
    square = mean * mean - first.slope * second.slope
    if not square >= 0:
        return (least + most) / 2
    root = np.sqrt(np.float64(square))
    share = (second.slope + root - mean) / (second.slope - first.slope + 2 * root)
    return min(max(float(second.length - width * share), least), most)


def _dot(left: np.ndarray, right: np.ndarray) -> float:
    return float(left @ right)


def _largest(vector: np.ndarray) -> float:
    """The largest absolute entry; NaN if one is, and 0 of none."""
    return float(np.abs(vector).max(initial=0.0))


def _decay(name: str, config: TrainingConfig, filters: Collection[str]) -> float:
    return config.weight_decay * (config.filter_decay_factor if name in filters else 1.0)
