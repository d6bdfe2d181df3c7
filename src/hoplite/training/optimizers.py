"""The two optimisers: Adam over many runs at once, and L-BFGS for one run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

import torch
from torch import Tensor

from hoplite.config import TrainingConfig
from hoplite.models import Weights
from hoplite.propagation.backend import get_num_threads, native, uses_native

Losses = Callable[[], Tensor]  # one loss per run, (R,), freshly evaluated

LBFGS_ITERATIONS = 20  # per epoch


def learned(weights: Weights) -> Weights:
    """Those that have a gradient; no penalty pulls at the others, such as running means."""
    return {name: value for name, value in weights.items() if value.requires_grad}


class Optimizer(Protocol):
    """Changes weights (run axis first) in place to lower each run's loss."""

    def step(self, losses: Losses) -> None: ...

    def keep(self, weights: Weights, runs: Tensor) -> None:
        """Continue with ``weights``, which are the rows ``runs`` of the former ones."""
        ...


class Adam:
    """Adam with its own learning rate and weight decay per run, and for the filter.

    As torch.optim.Adam: g <- g + wd w; m <- 0.9 m + 0.1 g; v <- 0.999 v + 0.001 g^2;
    w <- w - lr m^ / (sqrt(v^) + 1e-8). Runs never mix: row r of each tensor sees only row r.
    """

    def __init__(
        self, weights: Weights, configs: Sequence[TrainingConfig], filters: Collection[str] = ()
    ) -> None:
        self._weights = weights = learned(weights)
        rates = [[c.lr, c.weight_decay] for c in configs]
        factors = [[c.filter_lr_factor, c.filter_decay_factor] for c in configs]
        own, times = (
            torch.tensor(pairs, dtype=torch.float64).view(-1, 2) for pairs in (rates, factors)
        )
        # of each weight (2, R): learning rates and penalties
        self._rates = {
            name: (own * times if name in filters else own).T.contiguous() for name in weights
        }
        self._mean = {name: torch.zeros_like(value) for name, value in weights.items()}
        self._square = {name: torch.zeros_like(value) for name, value in weights.items()}
        self._steps = 0

    def step(self, losses: Losses) -> None:
        for value in self._weights.values():
            value.grad = None
        losses().sum().backward()  # not autograd.grad, which several processes cannot share
        self._steps += 1
        with torch.no_grad():
            for name, value in self._weights.items():
                mean, square = self._mean[name], self._square[name]
                # with no hops, beta and some gates have no part in the loss
                gradient = torch.zeros_like(value) if value.grad is None else value.grad
                # the C++ core goes through all of them as through one list of numbers
                listed = all(tensor.is_contiguous() for tensor in (value, mean, square))
                update = self._by_core if listed and uses_native(value) else self._by_torch
                update(gradient.contiguous(), value, mean, square, self._rates[name])

    def keep(self, weights: Weights, runs: Tensor) -> None:
        self._weights = learned(weights)
        self._rates = {name: rates[:, runs].contiguous() for name, rates in self._rates.items()}
        self._mean = {name: value[runs] for name, value in self._mean.items()}
        self._square = {name: value[runs] for name, value in self._square.items()}

    def _by_core(
        self, gradient: Tensor, value: Tensor, mean: Tensor, square: Tensor, rates: Tensor
    ) -> None:
        assert native is not None  # uses_native said so
        runs = value.shape[0]
        if not runs:
            return
        tensors = (gradient, value, mean, square, *rates)  # each of the rates is a row
        native.adam(
            value.dtype == torch.float32,
            runs,
            value.numel() // runs,
            *[tensor.data_ptr() for tensor in tensors],
            self._steps,
            get_num_threads(),
        )

    def _by_torch(
        self, gradient: Tensor, value: Tensor, mean: Tensor, square: Tensor, rates: Tensor
    ) -> None:
        per_run = (-1, *[1] * (value.dim() - 1))  # (R,) -> (R, 1, ..., 1)
        lr, decay = (rate.view(per_run) for rate in rates.to(value.dtype))
        gradient = torch.addcmul(gradient, decay, value)
        mean.lerp_(gradient, 0.1)
        square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        step = mean / square.sqrt().div_((1 - 0.999**self._steps) ** 0.5).add_(1e-8)
        value.addcmul_(lr, step, value=-1 / (1 - 0.9**self._steps))


class LBFGS:
    """torch's L-BFGS with a strong Wolfe line search, for a batch of one run."""

    def __init__(
        self, weights: Weights, configs: Sequence[TrainingConfig], filters: Collection[str] = ()
    ) -> None:
        (config,) = configs
        weights = learned(weights)
        self._weights = list(weights.values())
        self._decays = [
            config.weight_decay * (config.filter_decay_factor if name in filters else 1)
            for name in weights
        ]
        self._optimizer = torch.optim.LBFGS(
            self._weights, config.lr, LBFGS_ITERATIONS, line_search_fn="strong_wolfe"
        )

    def step(self, losses: Losses) -> None:
        def objective() -> Tensor:
            self._optimizer.zero_grad()
            pairs = zip(self._decays, self._weights, strict=True)
            loss = losses().sum() + sum(decay / 2 * value.square().sum() for decay, value in pairs)
            loss.backward()
            return loss

        self._optimizer.step(objective)  # pyright: ignore[reportArgumentType] - torch wants float

    def keep(self, weights: Weights, runs: Tensor) -> None:
        """Nothing to do: the only run is kept or the training is over."""
