"""The signal of a few rows and its gradient, by one thread: what streaming is made of.

    linear models    H = (sum_i c_i P_i) Theta;  with G = dL/dH and M = sum_i c_i P_i
                     dTheta = M^T G,  dc_i = <P_i, G Theta^T>
    others           by automatic differentiation

Written out, the gradient of a linear model needs no outputs again, which saves a third of the work.
Gradients are summed over the tiles in double precision.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from hoplite.models import Weights
from hoplite.propagation.engine import Filter, KnownRows


class Tiles(Protocol):
    """One thread's work on tiles (hops, rows, d)."""

    def signal(self, hops: Tensor) -> Tensor:
        """The filtered signal of a tile: (rows, R, m)."""
        ...

    def add_gradient(self, hops: Tensor, outer: Tensor) -> None:
        """Add the weights' gradient at a tile, from that by its signal: (rows, R, m)."""
        ...

    def gradients(self) -> list[Tensor]:
        """The sums so far, one per weight."""
        ...


def tiles_for(model: Filter, weights: Weights) -> Tiles:
    """What evaluates ``model`` with these weights."""
    if model.linear and not model.gated:
        return LinearTiles(model, weights)
    return GeneralTiles(model, weights)


class LinearTiles:
    """SGC (which has only its last hop), EGC and LGC."""

    def __init__(self, model: Filter, weights: Weights) -> None:
        self._weights = {name: value.detach().requires_grad_() for name, value in weights.items()}
        with torch.enable_grad():
            self._learned = model.coefficients(self._weights)
        self._theta = weights["theta"].detach()
        self._by_theta = torch.zeros_like(self._theta, dtype=torch.float64)
        self._coefficients = None if self._learned is None else self._learned.detach()
        shape = () if self._learned is None else self._learned.shape
        self._by_coefficients = torch.zeros(shape, dtype=torch.float64)

    def signal(self, hops: Tensor) -> Tensor:
        return (self._mixed(hops) @ self._theta).transpose(0, 1)

    def add_gradient(self, hops: Tensor, outer: Tensor) -> None:
        by_run = outer.transpose(0, 1)  # (R, rows, m)
        self._by_theta += self._mixed(hops).transpose(1, 2) @ by_run
        if self._coefficients is not None:
            by_mixed = by_run @ self._theta.transpose(1, 2)  # (R, rows, d)
            self._by_coefficients += by_mixed.flatten(1) @ hops.flatten(1).T

    def gradients(self) -> list[Tensor]:
        learned, values = self._learned, list(self._weights.values())
        found = [torch.zeros_like(value) for value in values]
        if learned is not None and learned.requires_grad:
            outer = self._by_coefficients.to(learned.dtype)
            # outer as an argument would make torch import SymPy: a second and 40 MB
            with torch.enable_grad():
                inner = (learned * outer).sum()
            parts = torch.autograd.grad(inner, values, allow_unused=True)
            found = [f if p is None else p for f, p in zip(found, parts, strict=True)]
        names = list(self._weights)
        found[names.index("theta")] = self._by_theta  # which no coefficient depends on
        return found

    def _mixed(self, hops: Tensor) -> Tensor:
        """sum_i c_i P_i of every run: (R or 1, rows, d)."""
        if self._coefficients is None:
            return hops[-1:]
        return torch.tensordot(self._coefficients, hops, dims=1)


class GeneralTiles:
    """Any model that needs no more than hop features."""

    def __init__(self, model: Filter, weights: Weights) -> None:
        self._model = model
        self._weights = {name: value.detach().requires_grad_() for name, value in weights.items()}
        self._sums = [torch.zeros_like(v, dtype=torch.float64) for v in weights.values()]

    def signal(self, hops: Tensor) -> Tensor:
        with torch.no_grad():  # a new thread has gradients on
            return self._model.filtered(self._weights, KnownRows(hops), None)

    def add_gradient(self, hops: Tensor, outer: Tensor) -> None:
        with torch.enable_grad():
            inner = (self._model.filtered(self._weights, KnownRows(hops), None) * outer).sum()
        found = torch.autograd.grad(inner, list(self._weights.values()), allow_unused=True)
        for total, gradient in zip(self._sums, found, strict=True):
            if gradient is not None:  # the bias comes later, and some gates need hops
                total += gradient

    def gradients(self) -> list[Tensor]:
        return self._sums
