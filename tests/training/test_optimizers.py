"""Adam and L-BFGS against torch's, step by step."""

import warnings

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from hoplite.config import TrainingConfig
from hoplite.training.optimizers import LBFGS, Adam


def untidy_problems():
    """Uneven classes and features of many sizes: a convex loss, and one that is bilinear."""
    rng = np.random.default_rng(0)
    X = torch.tensor(rng.standard_normal((60, 5)) * 10.0 ** rng.uniform(-1, 1, 5))
    y = torch.tensor(rng.choice(3, 60, p=[0.6, 0.3, 0.1]))
    hops = torch.stack([torch.tensor(rng.uniform(-1, 1, (60, 1))) ** i * X for i in range(4)])

    def regression(weights):
        return cross_entropy(X @ weights["theta"] + weights["bias"], y)

    def bilinear(weights):
        mixed = torch.einsum("k,knd->nd", weights["alpha"], hops)
        return cross_entropy(mixed @ weights["theta"], y)

    theta, alpha = rng.standard_normal((5, 3)), rng.standard_normal(4)
    return {
        "regression": (regression, {"theta": np.zeros((5, 3)), "bias": np.zeros(3)}),
        "bilinear": (bilinear, {"alpha": alpha, "theta": 0.3 * theta}),
    }


PROBLEMS = untidy_problems()


def evaluated(loss, weights):
    """The loss at NumPy weights, and its gradients by autograd."""
    tensors = {name: torch.tensor(value, requires_grad=True) for name, value in weights.items()}
    value = loss(tensors)
    value.backward()
    return value.item(), {name: tensor.grad.numpy() for name, tensor in tensors.items()}


def assert_close(ours, theirs, rtol):
    for name, value in ours.items():
        expected = theirs[name].detach().numpy()
        np.testing.assert_allclose(value, expected, rtol=rtol, atol=rtol * np.abs(expected).max())


@pytest.mark.usefixtures("each_backend")
@pytest.mark.parametrize(("dtype", "rtol"), [(np.float32, 1e-4), (np.float64, 1e-9)])
def test_adam_equals_torch(dtype, rtol):
    """With rates of its own for the filter, on two groups of torch's parameters."""
    config = TrainingConfig(lr=0.1, weight_decay=0.3, filter_lr_factor=0.2, filter_decay_factor=5.0)
    rng = np.random.default_rng(3)
    start = {"theta": rng.standard_normal((7, 3)).astype(dtype)}
    start |= {"alpha": rng.standard_normal(5).astype(dtype), "idle": np.ones((), dtype)}
    ours = {key: value.copy() for key, value in start.items()}
    theirs = {key: torch.tensor(value, requires_grad=True) for key, value in start.items()}
    rates = {key: {"lr": 0.1, "weight_decay": 0.3} for key in start}
    rates["alpha"] = {"lr": 0.1 * 0.2, "weight_decay": 0.3 * 5.0}
    peer = torch.optim.Adam([{"params": [theirs[key]], **rates[key]} for key in start])

    def loss(weights):
        scale = weights["alpha"].square().sum()
        return (weights["theta"].sin() * scale).sum() + 0 * weights["idle"]

    adam = Adam(ours, config, {"alpha"})
    for _ in range(50):
        _, gradients = evaluated(loss, ours)
        given = {key: value.copy() for key, value in gradients.items()}
        del gradients["idle"]  # no part in the loss: a gradient of 0
        adam.step(gradients)
        for key, value in gradients.items():
            np.testing.assert_array_equal(value, given[key])
        peer.zero_grad()
        loss(theirs).backward()
        peer.step()
    assert_close(ours, theirs, rtol)
    assert all(value.dtype == dtype for value in ours.values())


def both_lbfgs(problem, config, steps):
    """Weights after every step, of ours and torch's, and the losses of every evaluation."""
    loss, start = PROBLEMS[problem]
    ours = {key: value.copy() for key, value in start.items()}
    theirs = {key: torch.tensor(value, requires_grad=True) for key, value in start.items()}
    optimizer = LBFGS(ours, config)
    peer = torch.optim.LBFGS(
        list(theirs.values()), config.lr, max_iter=20, line_search_fn="strong_wolfe"
    )
    seen, expected = [], []

    def closure():
        found = evaluated(loss, ours)
        seen.append(found[0])
        return found

    def objective():
        peer.zero_grad()
        plain = loss(theirs)
        expected.append(plain.item())
        squares = sum(value.square().sum() for value in theirs.values())
        total = plain + config.weight_decay / 2 * squares
        total.backward()
        return total

    for _ in range(steps):
        at = evaluated(loss, ours)[0]
        count = len(seen)
        optimizer.step(closure)
        assert seen[count] == at  # the first evaluation is that of the weights before the step
        peer.step(objective)
        yield ours, theirs, seen, expected


@pytest.mark.parametrize("weight_decay", [0.0, 0.02])
@pytest.mark.parametrize("lr", [1.0, 0.1])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_lbfgs_equals_torch(problem, lr, weight_decay):
    config = TrainingConfig(lr=lr, weight_decay=weight_decay, optimizer="lbfgs")
    for ours, theirs, seen, expected in both_lbfgs(problem, config, 5):
        assert_close(ours, theirs, 1e-9)
        np.testing.assert_allclose(seen, expected, rtol=1e-9)


def test_a_loss_that_is_not_finite_ends_a_step_without_a_warning():
    weights = {"w": np.array([1.0, -1.0])}
    optimizer = LBFGS(weights, TrainingConfig(lr=1, weight_decay=0, optimizer="lbfgs"))
    calls = []

    def closure():
        calls.append(1)
        return np.nan, {"w": np.full(2, np.nan)}

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.step(closure)
        Adam(weights, TrainingConfig(lr=1.0)).step({"w": np.array([np.inf, np.nan])})
    assert len(calls) < 200
