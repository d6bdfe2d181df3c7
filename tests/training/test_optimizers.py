"""Adam for many runs against torch's Adam, run by run."""

import contextlib
import warnings

import numpy as np
import pytest
import torch

from hoplite import train
from hoplite.config import TrainingConfig
from hoplite.errors import ConfigError, HopliteError, HopliteWarning
from hoplite.propagation import backend
from hoplite.training.optimizers import LBFGS, Adam


def quadratic(weights, targets):
    return lambda: (weights["w"] - targets).pow(4).flatten(1).sum(1)


def test_adam_equals_torch_run_by_run():
    configs = [TrainingConfig(lr=lr, weight_decay=wd) for lr, wd in [(0.1, 0), (0.02, 0.3)]]
    start = torch.randn(2, 3, 2, generator=torch.Generator().manual_seed(0))
    targets = torch.randn(2, 3, 2, generator=torch.Generator().manual_seed(1))
    many = {"w": start.clone().requires_grad_()}
    adam = Adam(many, configs)
    for _ in range(50):
        adam.step(quadratic(many, targets))
    for r, config in enumerate(configs):
        one = start[r].clone().requires_grad_()
        peer = torch.optim.Adam([one], lr=config.lr, weight_decay=config.weight_decay)
        for _ in range(50):
            peer.zero_grad()
            (one - targets[r]).pow(4).sum().backward()
            peer.step()
        torch.testing.assert_close(many["w"][r], one, rtol=1e-5, atol=1e-6)


def test_a_run_that_stays_is_not_disturbed_by_those_that_leave():
    configs = [TrainingConfig(lr=0.1)] * 3
    start, targets = torch.zeros(3, 4), torch.randn(3, 4)

    def trained(leave):
        weights = {"w": start.clone().requires_grad_()}
        adam = Adam(weights, configs)
        kept = torch.arange(3)
        for step in range(20):
            if leave and step == 7:
                kept = torch.tensor([1])
                weights = {"w": weights["w"].detach()[kept].requires_grad_()}
                adam.keep(weights, kept)
            adam.step(quadratic(weights, targets[kept]))
        return weights["w"][0 if leave else 1]

    assert torch.equal(trained(leave=True), trained(leave=False))


def test_lbfgs_solves_a_regularised_least_squares():
    weights = {"w": torch.zeros(1, 3, requires_grad=True)}
    target = torch.tensor([1.0, 2.0, 3.0])
    optimizer = LBFGS(weights, [TrainingConfig(lr=1, weight_decay=1.0, optimizer="lbfgs")])
    optimizer.step(lambda: (weights["w"] - target).square().sum(1) / 2)
    torch.testing.assert_close(weights["w"][0].detach(), target / 2, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(not backend.has_native(), reason="built without the C++ core")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(3,), (3, 70_001), (2, 5, 4)])
def test_native_adam_equals_its_torch_twin(dtype, shape):
    configs = [TrainingConfig(lr=0.1 * (r + 1), weight_decay=0.01 * r) for r in range(shape[0])]
    start = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=dtype)
    found = []
    for name in ("native", "torch"):
        with backend.use_backend(name):
            weights = {"w": start.clone().requires_grad_()}
            adam = Adam(weights, configs)
            for _ in range(10):
                adam.step(lambda weights=weights: weights["w"].pow(4).reshape(shape[0], -1).sum(1))
            found.append(weights["w"].detach())
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


def test_lbfgs_with_too_large_a_rate_is_told(graphs):
    graph = graphs(n=40, d=6, dtype=np.float32)
    with pytest.raises(ConfigError, match=r"lr is 1e\+300; .* at most 1e\+12"):
        train(graph, "lgc", optimizer="lbfgs", dropout=0, lr=1e300, epochs=2)
    for model in ("sgc", "lgc", "gcn"):  # the largest makes a model of finite weights, or none
        with warnings.catch_warnings(), contextlib.suppress(HopliteError):
            warnings.simplefilter("ignore", HopliteWarning)
            found = train(graph, model, optimizer="lbfgs", dropout=0, lr=1e12, epochs=2)
            assert all(value.isfinite().all() for value in found.model.weights.values())
