"""Mean and deviation of the columns of a long signal, over one process's rows or over a team's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Total = Callable[[Tensor], Tensor]  # the sum of a tensor over the processes
BLOCK = 1 << 13  # rows at a time, so that no copy of the signal is made


def std_mean(values: Tensor, count: int, total: Total) -> tuple[Tensor, Tensor]:
    """Deviation and mean over ``count`` rows in all, (rows, R, m) -> (1, R, m), differentiable.

        mean = sum_r v_r / n,  std^2 = sum_r (v_r - mean)^2 / n

    ``total`` adds up what the processes have; one process has all: ``lambda part: part``.

    >>> std, mean = std_mean(torch.tensor([[[1.0]], [[3.0]]]), 2, lambda part: part)
    >>> float(std), float(mean)
    (1.0, 2.0)
    """
    return _StdMean.apply(values, count, total)  # pyright: ignore[reportReturnType]


class _StdMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, count: int, total: Total) -> tuple[Tensor, Tensor]:
        sums, squares = torch.zeros(2, 1, *values.shape[1:], dtype=torch.float64)
        for block in values.split(BLOCK):
            sums += block.sum(dim=0)
        mean = (total(sums) / count).to(values.dtype)
        for block in values.split(BLOCK):
            squares += (block - mean).square_().sum(dim=0)
        std = (total(squares) / count).sqrt().to(values.dtype)
        ctx.save_for_backward(values, std, mean)
        ctx.count, ctx.total = count, total
        return std, mean

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """dv = dmean / n + dstd (v - mean) / (n std), in one pass: a v + b."""
        values, std, mean = ctx.saved_tensors
        by_std, by_mean = (ctx.total(gradient) / ctx.count for gradient in gradients)
        a = torch.where(std > 0, by_std / std, 0.0)  # a constant column stays one
        return torch.addcmul(by_mean - a * mean, values, a), None, None
