"""Every closed gradient equals torch's autograd: models, tasks, options, bases, operators."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from tests import dense
from tests.conftest import make_graph

from hoplite.engine.dropout import DRAW_BIT, Dropout
from hoplite.engine.propagation import Propagation
from hoplite.models import MODELS, LinearModel, build_model, split_options
from hoplite.tasks import Regression, find_task
from hoplite.training.objective import Problem
from hoplite.training.runs import Run, objective_of
from hoplite.training.sets import NodeSet

BASES = ("monomial", "chebyshev", "legendre", "jacobi:1,0.5")
BASES += ("recurrence:1,0.2,0/1.5,-0.1,0.4/1,0,0.3",)
LINEAR = [name for name, kind in MODELS.items() if issubclass(kind, LinearModel)]
CLOSE = {np.float32: 1e-5, np.float64: 1e-10}
OPTIONS = {
    "plain": {},
    "bias": {"bias": True},
    "standardize": {"standardize": True, "bias": True},
    "dropout": {"dropout": 0.5},
    "nodes": {"drop_nodes": 0.4},
    "outputs": {"output_dropout": 0.3},
    "everything dropped": {"dropout": 0.3, "drop_nodes": 0.2, "output_dropout": 0.2, "bias": True},
    "standardize, dropped": {"dropout": 0.5, "standardize": True},
    "draws": {"dropout": 0.5, "draws": 3},
    "consistency": {"dropout": 0.5, "draws": 2, "consistency": 2.0, "bias": True},
    "sharp consistency": {"drop_nodes": 0.4, "draws": 2, "consistency": 0.7, "sharpen": 0.0,
                          "confidence": 0.4},
    "consistency, standardize": {"dropout": 0.4, "draws": 2, "consistency": 1.0,
                                 "standardize": True},
    "weights first": {"order": "weights-first"},
    "hops first": {"order": "hops-first"},
    "hops first, standardize": {"order": "hops-first", "standardize": True},
}  # fmt: skip


def make_problem(model, task, seed, dtype, config, training, weighted=True, d=6):
    graph = make_graph(25, d, 3, seed=seed, dtype=dtype, sparse=seed % 2 == 0)
    rng = np.random.default_rng(seed)
    order = rng.permutation(25)
    labels = {
        "multiclass": rng.integers(0, 3, 25),
        "multilabel": rng.integers(0, 2, (25, 3)),
        "regression": rng.standard_normal(25),
    }[task.name]
    source = Propagation.of(graph, config, dtype)
    sets = {}
    for name, nodes in (("train", order[:9]), ("val", order[9:15])):
        weights = 10.0 ** rng.uniform(-2, 2, len(nodes)) if weighted else None
        sets[name] = NodeSet(nodes, labels[nodes], weights)
    return Problem.of(source, task, sets, 1 if task.name == "regression" else 3)


def autograd(model, problem, training, seed, params, step):
    """The loss at ``params`` and its gradient, densely."""
    weights = {
        name: torch.tensor(value.astype(np.float64), requires_grad=True)
        for name, value in params.items()
    }
    draws = []
    for draw in range(training.draws):
        dropout = None
        if training.drops:
            dropout = Dropout(
                training.dropout, seed ^ (draw << DRAW_BIT), step, training.drop_nodes,
                training.output_dropout,
            )  # fmt: skip
        draws.append(dense.logits(model, weights, problem.source, dropout))
    train = problem.train
    total = sum(dense.loss(problem.task, values[train.nodes], train) for values in draws)
    total = total / len(draws)
    if training.consistency:
        apart = dense.disagreement(draws, training.sharpen, training.confidence)
        total = total + training.consistency * apart
    total.backward()
    zero = torch.zeros(())
    return float(total.detach()), {
        name: (zero if value.grad is None else value.grad).numpy()
        for name, value in weights.items()
    }


def check(model_name, options, task, *, seed=0, dtype=np.float64, d=6, hops=3):
    config, training = split_options(model_name, {"hops": hops, "dropout": 0.0} | options)
    outputs = 1 if task.name == "regression" else 3
    model = build_model(config, d, outputs)
    problem = make_problem(model, task, seed, dtype, config, training, d=d)
    objective = objective_of(model, problem, Run(training, 11))
    measured, gradients = objective.gradient(4)
    loss, wanted = autograd(model, problem, training, 11, objective.params, 4)
    assert measured.loss == pytest.approx(loss, rel=CLOSE[dtype])
    assert gradients.keys() == objective.params.keys()
    for name, expected in wanted.items():
        scale = max(np.abs(expected).max(), 1e-3) if expected.size else 1.0
        apart = np.abs(gradients[name] - expected).max() if expected.size else 0.0
        assert apart <= CLOSE[dtype] * scale, (name, apart, scale)
        assert gradients[name].dtype == objective.params[name].dtype
    # the outputs that validation reads, and the next step from what was computed on the way
    outputs = objective.outputs(5)["val"]
    clean = {name: torch.tensor(v.astype(np.float64)) for name, v in objective.params.items()}
    expected = dense.logits(model, clean, problem.source)[problem.parts["val"].nodes].numpy()
    assert np.abs(outputs - expected).max() <= CLOSE[dtype] * max(1, np.abs(expected).max())
    ahead = objective.gradient(5)
    again = objective_of(model, problem, Run(training, 11)).gradient(5)
    assert ahead[0].loss == pytest.approx(again[0].loss, rel=CLOSE[dtype])
    for name in objective.params:
        np.testing.assert_allclose(ahead[1][name], again[1][name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("model", LINEAR)
def test_gradients_of_classes(model, options):
    if not OPTIONS[options].keys() <= MODELS[model].settings():
        pytest.skip("the model has no such option")
    check(model, OPTIONS[options], find_task("multiclass"), seed=len(options))


@pytest.mark.parametrize("model", LINEAR)
@pytest.mark.parametrize("task", ["multilabel", "regression", "huber"])
def test_gradients_of_other_tasks(model, task):
    huber = dataclasses.replace(Regression(), kind="huber")
    chosen = huber if task == "huber" else find_task(task)
    for seed, options in enumerate(({}, {"dropout": 0.5, "bias": True}, {"standardize": True})):
        check(model, options, chosen, seed=seed)


@pytest.mark.usefixtures("each_backend")
@pytest.mark.parametrize("model", LINEAR)
def test_gradients_in_float32_and_with_both_backends(model):
    for seed, options in enumerate(({}, {"dropout": 0.5}, {"order": "hops-first"})):
        check(model, options, find_task("multiclass"), seed=seed, dtype=np.float32)


@pytest.mark.parametrize("operator", ["renormalized", "adjacency", "laplacian", "random_walk"])
@pytest.mark.parametrize("basis", BASES)
def test_gradients_of_every_basis_and_operator(basis, operator):
    task = find_task("multiclass")
    for model in ("lgc", "blocks", "jacobiconv"):
        for options in ({}, {"dropout": 0.5}, {"order": "hops-first"}):
            own = {"basis": basis, "operator": operator} | options
            check(model, own, task, seed=3)


def test_gradients_of_channels():
    options = {"channels": "renormalized,random_walk,laplacian"}
    for more in ({}, {"dropout": 0.4}, {"order": "hops-first"}, {"order": "weights-first"}):
        check("blocks", options | more, find_task("multiclass"), seed=2, hops=2)


@pytest.mark.parametrize("model", LINEAR)
@pytest.mark.parametrize("hops", [0, 1, 7])
def test_gradients_of_few_and_many_hops(model, hops):
    own = {"time": min(hops, 2.0)} if model in ("dgc", "heat") else {}
    for options in ({}, {"dropout": 0.5}):
        check(model, options | own, find_task("multiclass"), seed=1, hops=hops)


@pytest.mark.parametrize("model", LINEAR)
def test_gradients_with_fewer_features_than_outputs(model):
    for options in ({}, {"dropout": 0.5}, {"output_dropout": 0.5}, {"standardize": True}):
        check(model, options, find_task("multiclass"), seed=5, d=2)


@pytest.mark.parametrize("model", LINEAR)
def test_a_mini_batch_is_a_training_set_of_its_own(model):
    task = find_task("multiclass")
    config, training = split_options(model, {"hops": 2, "dropout": 0.0, "batch": 4})
    built = build_model(config, 6, 3)
    problem = make_problem(built, task, 4, np.float64, config, training)
    objective = objective_of(built, problem, Run(training, 0))
    batch = np.array([5, 0, 3])
    measured, gradients = objective.gradient(0, batch)
    part = problem.train.at(batch)
    alone = Problem(problem.source, task, {"train": part})
    whole = dataclasses.replace(training, batch=0)
    wanted, expected = objective_of(built, alone, Run(whole, 0)).gradient(0)
    assert measured.loss == pytest.approx(wanted.loss)
    for name, value in expected.items():
        np.testing.assert_allclose(gradients[name], value, rtol=1e-9, atol=1e-12)
