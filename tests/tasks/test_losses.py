"""Losses, gradients and metrics of the tasks on untidy rows, with torch's autograd as the judge."""

import dataclasses
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score
from tests.examples import examples
from torch.nn.functional import (
    binary_cross_entropy_with_logits,
    cross_entropy,
    huber_loss,
    mse_loss,
)

from hoplite.tasks import find_task
from hoplite.tasks.losses import BLOCK_NUMBERS
from hoplite.tasks.multiclass import Multiclass

TASKS = {
    "multiclass": find_task("multiclass"),
    "multilabel": find_task("multilabel"),
    "squared": find_task("regression"),
    "huber": find_task("regression").with_loss("huber"),
}
RTOL = {np.float32: 1e-5, np.float64: 1e-10}
LOSS_RTOL = {np.float32: 1e-6, np.float64: 1e-12}


def torch_loss(name, logits, targets, weights, count):
    """The same loss by torch's own functions."""
    if name == "multiclass":
        losses = cross_entropy(logits, targets, reduction="none")
    elif name == "multilabel":
        losses = binary_cross_entropy_with_logits(
            logits, targets.to(logits.dtype), reduction="none"
        )
        if weights is not None:
            losses = losses * (weights if weights.dim() == 2 else weights[:, None])
        return losses.mean(dim=1).sum() / count
    else:
        loss = mse_loss if name == "squared" else huber_loss
        losses = loss(logits[:, 0], targets.to(logits.dtype), reduction="none")
    return (losses if weights is None else losses * weights).sum() / count


def untidy_rows(name, rng, rows, m, spread):
    """Logits of many sizes, targets of uneven classes, and weights over magnitudes, some 0."""
    m = 1 if name in ("squared", "huber") else m
    logits = rng.standard_normal((rows, m)) * 10.0 ** rng.uniform(-3, spread, (rows, 1))
    extreme = rng.random((rows, m)) < 0.05
    logits[extreme] = rng.choice([-1e4, 1e4], int(extreme.sum()))
    if name == "multiclass":
        targets = rng.choice(m, rows, p=(shares := 0.3 ** np.arange(m)) / shares.sum())
    elif name == "multilabel":
        targets = (rng.random((rows, m)) < rng.choice([0.01, 0.5, 0.99], m)).astype(np.int64)
    else:
        targets = rng.standard_normal(rows) * 10.0 ** rng.uniform(-3, 1, rows)
    shape = (rows, m) if name == "multilabel" and rng.random() < 0.5 else (rows,)
    weights = 10.0 ** rng.uniform(-4, 3, shape) * (rng.random(shape) < 0.8)
    return logits, targets, weights


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", TASKS)
@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.sampled_from([1, 2, 7, 140, 2001]),
    m=st.sampled_from([2, 3, 10, 41]),
    spread=st.sampled_from([0, 1, 3]),
    weighted=st.booleans(),
    count=st.sampled_from([None, 3.5, 1e6]),
)
@examples(25)
def test_loss_and_gradient_are_those_of_autograd(
    name, dtype, seed, rows, m, spread, weighted, count
):
    logits, targets, weights = untidy_rows(name, np.random.default_rng(seed), rows, m, spread)
    logits, weights = logits.astype(dtype), weights.astype(dtype) if weighted else None
    task = TASKS[name]
    given_logits = logits.copy()
    loss, gradient = task.loss_and_gradient(logits, targets, weights, count)
    np.testing.assert_array_equal(logits, given_logits)
    assert task.loss(logits, targets, weights, count) == loss
    assert gradient.dtype == dtype
    assert gradient.shape == logits.shape
    assert gradient.flags.c_contiguous

    z = torch.tensor(logits, requires_grad=True)
    w = None if weights is None else torch.tensor(weights)
    count = rows if count is None else count
    expected = torch_loss(name, z, torch.tensor(targets), w, count)
    expected.backward()
    # rounding of a row is relative to its weight: p - 1 has few digits where p is nearly 1
    size = np.ones(rows) if weights is None else weights.astype(np.float64).reshape(rows, -1)
    size = np.reshape(size, (rows, -1)) / count / (logits.shape[1] if name == "multilabel" else 1)
    judge = z.grad.numpy().astype(np.float64)
    assert (np.abs(gradient - judge) <= RTOL[dtype] * np.maximum(np.abs(judge), size)).all()

    exact = torch_loss(  # of the same numbers in float64: a float32 sum is no judge of one
        name,
        torch.tensor(logits, dtype=torch.float64),
        torch.tensor(targets),
        None if w is None else w.double(),
        count,
    )
    slack = 4 * float(size.sum()) * float(np.finfo(dtype).eps)
    assert loss == pytest.approx(float(exact), rel=LOSS_RTOL[dtype], abs=slack)


@pytest.mark.parametrize("name", TASKS)
def test_losses_and_tallies_add_up(name):
    """Over ranges of rows, and over the blocks that a large set is cut into."""
    rng = np.random.default_rng(5)
    rows = BLOCK_NUMBERS // 3 + 11
    logits, targets, weights = untidy_rows(name, rng, rows, 7, 1)
    task = TASKS[name]
    loss, gradient = task.loss_and_gradient(logits, targets, weights)
    cuts = [slice(0, 1), slice(1, 1000), slice(1000, rows)]
    parts = [task.loss_and_gradient(logits[c], targets[c], weights[c], rows) for c in cuts]
    assert sum(part for part, _ in parts) == pytest.approx(loss, rel=1e-12)
    np.testing.assert_allclose(np.concatenate([g for _, g in parts]), gradient, rtol=1e-12)
    tallies = [task.tally(logits[c], targets[c]) for c in cuts]
    assert all(tally.dtype == np.float64 for tally in tallies)
    whole = task.measured(task.tally(logits, targets))
    assert task.measured(np.sum(tallies, axis=0)) == pytest.approx(whole, rel=1e-12)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", TASKS)
def test_a_logit_that_is_not_finite_gives_no_finite_loss_and_no_warning(name, value):
    rng = np.random.default_rng(1)
    logits, targets, _ = untidy_rows(name, rng, 6, 3, 0)
    for dtype in (np.float32, np.float64):
        for column in range(logits.shape[1]):
            if name == "multiclass" and value == -np.inf and column != targets[2]:
                continue  # a class of probability 0
            broken = logits.astype(dtype)
            broken[2, column] = value
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                loss, _ = TASKS[name].loss_and_gradient(broken, targets)
                TASKS[name].measured(TASKS[name].tally(broken, targets))
            judge = torch_loss(name, torch.tensor(broken), torch.tensor(targets), None, 6)
            assert not np.isfinite(loss)
            assert not np.isfinite(float(judge))


@pytest.mark.parametrize("name", TASKS)
def test_no_rows(name):
    logits, targets, _ = untidy_rows(name, np.random.default_rng(1), 3, 3, 0)
    loss, gradient = TASKS[name].loss_and_gradient(logits[:0], targets[:0])
    assert np.isnan(loss)
    assert gradient.shape == (0, logits.shape[1])
    assert TASKS[name].loss(logits[:0], targets[:0], count=4) == 0.0
    assert all(
        np.isnan(v) or v == 0
        for v in TASKS[name].measured(TASKS[name].tally(logits[:0], targets[:0]))
    )


@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(2, 5), st.integers(0, 2))
@examples(40)
def test_accuracy_takes_the_first_of_equal_outputs(seed, rows, m, digits):
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal((rows, m)).round(digits)
    targets = rng.integers(0, m, rows)
    shares = tuple(np.full(m, 1 / m))
    for task in (Multiclass(), dataclasses.replace(Multiclass(shares), threshold=0.3)):
        if m != 2 and task.shares:
            continue
        (accuracy,) = task.measured(task.tally(logits, targets))
        assert accuracy == accuracy_score(targets, task.predict(logits))
    judge = torch.tensor(logits).argmax(dim=1).numpy() == targets
    assert task.measured(Multiclass().tally(logits, targets)) == (judge.mean(),)


@pytest.mark.parametrize("rows", [1, 2, 1000])
def test_r2_of_equal_targets_means_nothing(rows):
    task, targets = TASKS["squared"], np.full(rows, 0.3)
    r2, mae = task.measured(task.tally(targets[:, None] + 0.5, targets))
    assert r2 == -np.inf
    assert mae == pytest.approx(0.5)
    r2, mae = task.measured(task.tally(targets[:, None], targets))
    assert np.isnan(r2)
    assert mae == 0
