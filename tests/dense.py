"""Linear models written densely in torch, in float64: the judge of the engine and of training."""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.special import comb, factorial

from hoplite.engine.dropout import Dropout, Mask
from hoplite.engine.propagation import Propagation

Weights = dict[str, torch.Tensor]


def dense_hops(source: Propagation) -> torch.Tensor:
    """p_i(M) of every hop, by the recurrence of the basis: (slices, n, n)."""
    eye = np.eye(source.num_nodes)
    found = [eye]
    for matrix in source.matrices:
        dense = matrix.to_scipy().toarray().astype(np.float64)
        before, now = np.zeros_like(eye), eye
        for a, b, g in source.basis.steps(source.hops):
            before, now = now, (a * dense + b * eye) @ now - g * before
            found.append(now)
    return torch.from_numpy(np.stack(found))


def kept(mask: Mask | None, elements: np.ndarray) -> torch.Tensor:
    """What each element is multiplied with."""
    if mask is None:
        return torch.ones(elements.shape, dtype=torch.float64)
    return torch.from_numpy(mask.keeps(elements) * mask.scale)


def coefficients(model, weights: Weights) -> torch.Tensor:
    """c of every hop, (slices,) or (slices, m), from the formulas of the papers."""
    config, k = model.config, model.config.hops
    i = torch.arange(k + 1, dtype=torch.float64)
    match config.model:
        case "sgc":
            return (i == k).double()
        case "egc":
            return weights["beta"] ** i / torch.from_numpy(factorial(np.arange(k + 1.0)))
        case "lgc":
            return weights["alpha"]
        case "s2gc":
            own = torch.full((k + 1,), (1 - config.alpha) / max(k, 1), dtype=torch.float64)
            own[0] = config.alpha if k else 1.0
            return own
        case "ppr":
            own = config.alpha * (1 - config.alpha) ** i
            own[-1] = (1 - config.alpha) ** k
            return own
        case "heat":
            return math.exp(-config.time) * config.time**i / torch.from_numpy(factorial(i.numpy()))
        case "dgc":
            step = config.time / k if k else 0.0
            ways = torch.from_numpy(comb(k, i.numpy()))
            return ways * step**i * (1 - step) ** (k - i)
        case "jacobiconv":
            steps = config.gamma * torch.tanh(weights["decay"])
            products = torch.cumprod(torch.cat([torch.ones(1).double(), steps]), 0)
            return weights["class_filter"] * products[:, None]
        case _:
            raise AssertionError(config.model)


def signal(model, weights: Weights, source: Propagation, dropout: Dropout | None) -> torch.Tensor:
    """sum_i c_i p_i(M) X~ Theta_i of all nodes: (n, m)."""
    x = torch.from_numpy(np.array(source.features.dense(), np.float64))
    (n, d), rows = x.shape, np.arange(source.num_nodes)
    if dropout is not None:
        x = x * kept(dropout.of_entries(), rows[:, None] * d + np.arange(d))
        x = x * kept(dropout.of_nodes, rows)[:, None]
    hops = dense_hops(source)
    maps = weights["theta"] if weights["theta"].ndim == 3 else weights["theta"][None]
    wide = maps.transpose(0, 1).reshape(d, -1)  # all maps side by side, as they are dropped
    outputs = x @ wide
    if dropout is not None:
        columns = outputs.shape[1]
        outputs = outputs * kept(dropout.of_outputs, rows[:, None] * columns + np.arange(columns))
    outputs = outputs.reshape(n, len(maps), -1).transpose(0, 1)
    if len(maps) > 1 or model.config.model == "blocks":
        return torch.einsum("kuv,kvm->um", hops, outputs)
    c = coefficients(model, weights)
    c = c if c.ndim == 2 else c[:, None].expand(-1, outputs.shape[2])
    return torch.einsum("kuv,vm,km->um", hops, outputs[0], c)


def logits(model, weights: Weights, source: Propagation, dropout=None) -> torch.Tensor:
    """Outputs of all nodes, standardised if asked for, with bias: (n, m)."""
    values = signal(model, weights, source, dropout)
    if model.config.standardize:
        deviation, mean = torch.std_mean(values, dim=0, correction=0)
        values = (values - mean) / deviation
    return values + weights["bias"] if "bias" in weights else values


def loss(task, values: torch.Tensor, part) -> torch.Tensor:
    """The task's loss of outputs (rows, m)."""
    targets = torch.from_numpy(part.targets)
    weights = torch.ones(len(part)).double() if part.weights is None else torch.tensor(part.weights)
    if task.name == "multiclass":
        each = torch.nn.functional.cross_entropy(values, targets, reduction="none")
    elif task.name == "multilabel":
        each = torch.nn.functional.binary_cross_entropy_with_logits(
            values, targets.double(), reduction="none"
        )
        weights = weights if weights.ndim == 2 else weights[:, None]
        return (each * weights).mean(dim=1).sum() / len(part)
    elif task.kind == "huber":
        each = torch.nn.functional.huber_loss(values[:, 0], targets, reduction="none")
    else:
        each = (values[:, 0] - targets) ** 2
    return (each * weights.double()).sum() / len(part)


def disagreement(draws: list[torch.Tensor], sharpen: float, confidence: float) -> torch.Tensor:
    """1/(S n) sum_s sum_v w_v ||P_s[v] - Q[v]||^2, with Q the sharpened mean, a constant."""
    each = torch.stack([values.softmax(dim=1) for values in draws])
    common = each.mean(dim=0).detach()
    if sharpen:
        target = (common / common.amax(dim=1, keepdim=True)) ** (1 / sharpen)
        target = target / target.sum(dim=1, keepdim=True)
    else:
        target = torch.nn.functional.one_hot(common.argmax(dim=1), common.shape[1]).double()
    sure = (common.amax(dim=1) >= confidence).double()
    return ((each - target) ** 2 * sure[:, None]).sum() / each.shape[:2].numel()
