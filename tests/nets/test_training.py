"""The objective of networks against autograd of the whole loss, its bits, and its threads."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from tests.dense import disagreement
from torch.nn.functional import cross_entropy

from hoplite import train
from hoplite.config import TrainingConfig
from hoplite.engine.backend import use_threads
from hoplite.engine.dropout import DRAW_BIT, Dropout
from hoplite.engine.propagation import Propagation
from hoplite.models import build_model, model_config
from hoplite.nets import view as views
from hoplite.nets.view import GraphView, torch_threads
from hoplite.tasks import DEFAULT_TASK, find_task
from hoplite.training.objective import Problem
from hoplite.training.sets import NodeSet

MODELS = [
    {"model": "gcn", "hidden": 4},
    {"model": "gat", "hidden": 3, "heads": 2},
    {"model": "hlgc", "gate": "class", "hops": 2, "bias": True},
    {"model": "hlgc", "gate": "node", "hops": 2},
]


def problem_of(graph, config, weights=None):
    parts = {name: getattr(graph.split, name) for name in ("train", "val", "test")}
    sets = {name: NodeSet(nodes, graph.labels[nodes]) for name, nodes in parts.items()}
    if weights is not None:
        sets["train"] = NodeSet(parts["train"], graph.labels[parts["train"]], weights)
    source = Propagation.of(graph, config)
    return Problem.of(source, find_task(DEFAULT_TASK), sets, graph.num_classes)


def outputs(model, w, source, dropout):
    """All nodes' logits by torch alone, from the model's signal."""
    values = model.forward(w, GraphView(source), dropout)
    if model.config.standardize:
        spread, mean = torch.std_mean(values, dim=0, correction=0)
        values = (values - mean) / spread
    return values + w["bias"] if "bias" in w else values


def whole_loss(model, w, problem, training, seed, step):
    part, found = problem.train, []
    nodes = torch.tensor(part.nodes)
    labels = torch.tensor(part.targets)
    weights = None if part.weights is None else torch.tensor(part.weights)
    for draw in range(training.draws):
        own = seed ^ (draw << DRAW_BIT)
        dropout = Dropout(training.dropout, own, step, training.drop_nodes)
        found.append(outputs(model, w, problem.source, dropout if training.drops else None))
    losses = [cross_entropy(z[nodes], labels, reduction="none") for z in found]
    loss = sum(((one if weights is None else one * weights).mean()) for one in losses)
    loss = loss / len(found)
    if training.consistency:
        apart = disagreement(found, training.sharpen, training.confidence)
        loss = loss + training.consistency * apart
    return loss


@pytest.mark.parametrize("options", MODELS, ids=lambda one: one.get("gate", one["model"]))
@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize(
    "training",
    [
        TrainingConfig(dropout=0.0),
        TrainingConfig(dropout=0.4, drop_nodes=0.2),
        TrainingConfig(dropout=0.4, draws=3),
        TrainingConfig(dropout=0.4, draws=2, consistency=0.7),
    ],
    ids=["plain", "dropout", "draws", "consistency"],
)
def test_gradient_is_that_of_the_whole_loss(graphs, options, standardize, training):
    graph = graphs(n=40, d=6, sparse=True)
    config = model_config(**options, standardize=standardize)
    model = build_model(config, 6, 3)
    weights = np.random.default_rng(4).random(len(graph.split.train))
    problem = problem_of(graph, config, weights)
    objective = model.objective(problem, training, 9)
    if "bias" in objective.params:
        objective.params["bias"][...] = [0.3, -0.2, 0.1]
    w = {n: torch.tensor(v, requires_grad=True) for n, v in objective.params.items()}
    loss = whole_loss(model, w, problem, training, 9, 5)
    loss.backward()
    measured, gradients = objective.gradient(5)
    assert measured.loss == pytest.approx(loss.item(), rel=1e-10)
    assert gradients.keys() == objective.params.keys()
    for name, value in gradients.items():
        np.testing.assert_allclose(value, w[name].grad, rtol=1e-7, atol=1e-10, err_msg=name)
        assert value.dtype == objective.params[name].dtype
        assert value.shape == objective.params[name].shape
    found = objective.outputs(6)
    with torch.no_grad():
        expected = outputs(model, w, problem.source, None).numpy()
    assert list(found) == ["val", "test"]
    for name, logits in found.items():
        np.testing.assert_allclose(logits, expected[problem.parts[name].nodes], atol=1e-10)


def test_a_batch_is_a_part_of_the_training_nodes(graphs):
    graph = graphs(n=40, d=6)
    config = model_config("hlgc", gate="node", hops=2)
    problem = problem_of(graph, config)
    objective = build_model(config, 6, 3).objective(
        problem, TrainingConfig(dropout=0.0, batch=4), 0
    )
    count = len(problem.train)
    whole, total = objective.gradient(0)
    found = [objective.gradient(0, rows) for rows in np.array_split(np.arange(count), 3)]
    shares = [len(rows) / count for rows in np.array_split(np.arange(count), 3)]
    losses = [share * one.loss for share, (one, _) in zip(shares, found, strict=True)]
    assert sum(losses) == pytest.approx(whole.loss)
    for name, value in total.items():
        summed = sum(share * own[name] for share, (_, own) in zip(shares, found, strict=True))
        np.testing.assert_allclose(summed, value, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("options", MODELS, ids=lambda one: one.get("gate", one["model"]))
def test_the_same_seed_gives_the_same_bits(graphs, options):
    graph = graphs(n=60, d=8, dtype=np.float32, sparse=True)
    settings = {"epochs": 8, "dropout": 0.3, **options}
    torch.manual_seed(1)
    state = torch.get_rng_state()
    together = train(graph, seeds=[3, 4, 5], **settings)
    assert torch.equal(torch.get_rng_state(), state)
    for seed, run in zip((3, 4, 5), together.runs, strict=True):
        with use_threads(1):
            (alone,) = train(graph, seeds=[seed], **settings).runs
        for name, curve in run.history.items():
            np.testing.assert_array_equal(curve, alone.history[name], err_msg=name)
        for name, value in run.model.weights.items():
            np.testing.assert_array_equal(value, alone.model.weights[name], err_msg=name)
    assert (together.runs[0].history["train_loss"] != together.runs[1].history["train_loss"]).any()


def test_threads_of_torch_are_as_before():
    before = torch.get_num_threads()

    def work(_):
        with torch_threads(10):
            return torch.get_num_threads()

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(work, range(50))) == {1}
    assert torch.get_num_threads() == before
    with use_threads(3), torch_threads(views.SHARED_WORK):
        assert torch.get_num_threads() == 3
    assert torch.get_num_threads() == before
