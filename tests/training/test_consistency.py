"""Draws of what is dropped and their agreement, against dense algebra on untidy graphs."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests import untidy
from tests.examples import examples

import hoplite
from hoplite.bases import find_basis
from hoplite.config import TrainingConfig
from hoplite.errors import ConfigError
from hoplite.models import build_model, split_options
from hoplite.operators import find_operator
from hoplite.propagation.dropout import NODES, OUTPUTS, Dropout
from hoplite.propagation.engine import Propagation
from hoplite.store import propagate
from hoplite.tasks import find_task
from hoplite.training import Run, fit_runs
from hoplite.training.consistency import DRAW, dropped
from hoplite.training.loop import _Batch
from hoplite.training.optimizers import Adam
from hoplite.training.runs import node_sets

pytestmark = pytest.mark.filterwarnings(untidy.UNTRAINED)
MODELS = ("sgc", "egc", "lgc", "ppr", "jacobiconv", "blocks")
RATES = st.sampled_from([0.0, 0.3, 0.7])


@st.composite
def runs(draw, least=1, most=3):
    """Trainings that may share a batch, with anything that they need not share."""
    draws = draw(st.integers(1, 3))
    return [
        Run(
            TrainingConfig(
                lr=draw(st.sampled_from([0.01, 0.1])),
                weight_decay=draw(st.sampled_from([0.0, 0.05])),
                dropout=draw(RATES),
                drop_nodes=draw(RATES),
                output_dropout=draw(RATES),
                draws=draws,
                consistency=draw(st.sampled_from([0.0, 0.5, 3.0])),
                sharpen=draw(st.sampled_from([0.0, 0.3, 1.0])),
                confidence=draw(st.sampled_from([0.0, 0.4, 0.6])),
                epochs=4,
                patience=2,
            ),
            seed=draw(st.integers(0, 99)),
        )
        for _ in range(draw(st.integers(least, most)))
    ]


def built(graph, model, hops, operator, bias):
    config, _ = split_options(model, {"hops": hops, "operator": operator, "bias": bias})
    source = Propagation(graph, operator, config.basis, hops, dtype=np.float64)
    return build_model(config, graph.num_features, graph.num_classes), source


def dense_logits(graph, model, weights, run, draw, epoch):
    """H of one draw in dense algebra, all nodes: (n, m); weights without the axis of runs."""
    seed, config = run.seed ^ (draw << DRAW), run.config
    features = graph.features
    X = torch.tensor(features.toarray() if hasattr(features, "toarray") else features).double()
    n, d = X.shape

    def kept(rate, layer, elements):
        if not rate:
            return torch.ones(elements.shape, dtype=torch.float64)
        mask = Dropout((rate,), (seed,), epoch + (layer << 32)).mask(elements, 0)
        return mask.double() / (1 - rate)

    X = X * kept(config.dropout, 0, torch.arange(n * d).view(n, d))
    X = X * kept(config.drop_nodes, NODES, torch.arange(n).view(n, 1))
    chosen = find_operator(model.config.operator)
    basis = find_basis(model.config.basis)
    S = torch.tensor(chosen.matrix(graph, np.float64, basis).toarray())
    stacked = {name: value.unsqueeze(0) for name, value in weights.items()}
    maps, hops = model.maps(stacked)[0], model.config.hops
    if model.map_per_hop and model.input_weights:  # X Theta is dropped before the filters
        outer = model.class_coefficients(stacked)[0].unsqueeze(1)  # (k + 1, 1, m)
        maps = weights["theta"].unsqueeze(0)
    else:
        found = model.coefficients(stacked)
        ends = torch.eye(hops + 1, dtype=torch.float64)[-1]
        outer = (ends if found is None else found[0].double()).view(-1, 1, 1)
    wide = torch.cat(list(X @ maps), dim=1)  # every map's outputs side by side
    wide = wide * kept(config.output_dropout, OUTPUTS, torch.arange(wide.numel()).view(wide.shape))
    signals = wide.view(n, len(maps), -1).transpose(0, 1).expand(hops + 1, -1, -1)
    total = torch.zeros(n, model.num_classes, dtype=torch.float64)
    before, power = torch.zeros(n, n, dtype=torch.float64), torch.eye(n, dtype=torch.float64)
    for i in range(hops + 1):
        total = total + outer[i] * (power @ signals[i])
        a, b, g = basis.step(i)
        before, power = power, a * S @ power + b * power - g * before
    return total + weights.get("bias", 0)


@given(
    untidy.graphs(),
    st.sampled_from(MODELS),
    runs(),
    st.integers(0, 4),
    st.sampled_from(["renormalized", "adjacency"]),
    st.booleans(),
    st.integers(0, 3),
)
@examples(25)
def test_a_step_is_that_of_dense_algebra(graph, name, chosen, hops, operator, bias, epoch):
    """Loss and gradient of a step of all runs at once."""
    model, source = built(graph, name, hops, operator, bias)
    same = {run.config.consistency > 0 for run in chosen}
    if len(same) > 1:  # those train in two batches
        chosen = [run for run in chosen if run.config.consistency > 0]
    parts, task = node_sets(graph), find_task()
    batch = _Batch(model, source, task, chosen, parts["train"], None, None)
    with torch.no_grad():  # away from filters that are all alike at the start
        for value in batch.weights.values():
            value += 0.3 * torch.randn(value.shape, generator=torch.Generator().manual_seed(1))
    loss, *_ = batch._measure(batch.train_rows, dropped(chosen, epoch))
    gradients = torch.autograd.grad(loss.sum(), list(batch.weights.values()), allow_unused=True)
    train, labels = torch.tensor(parts["train"].nodes), torch.tensor(parts["train"].labels)
    for r, run in enumerate(chosen):
        own = {
            key: value[r].detach().clone().requires_grad_() for key, value in batch.weights.items()
        }
        config = run.config
        logits = [dense_logits(graph, model, own, run, s, epoch) for s in range(config.draws)]
        expected = sum(torch.nn.functional.cross_entropy(z[train], labels) for z in logits)
        chances = [z.softmax(dim=1) for z in logits]
        mean = (sum(chances) / config.draws).detach()
        if config.sharpen:
            target = mean ** (1 / config.sharpen)
            target = target / target.sum(dim=1, keepdim=True)
        else:
            target = torch.nn.functional.one_hot(mean.argmax(dim=1), mean.shape[1])
        sure = mean.amax(dim=1) >= config.confidence
        apart = sum((p - target).square().sum(dim=1)[sure].sum() for p in chances)
        expected = (expected + config.consistency * apart / len(mean)) / config.draws
        torch.testing.assert_close(loss[r], expected, rtol=1e-9, atol=1e-9)
        wanted = torch.autograd.grad(expected, list(own.values()), allow_unused=True)
        for found, right in zip(gradients, wanted, strict=True):
            if right is not None:
                torch.testing.assert_close(found[r], right, rtol=1e-7, atol=1e-9)


@given(untidy.graphs(), st.sampled_from((*MODELS, "hlgc", "gcn")), runs(2, 4))
@examples(12)
def test_together_as_alone(graph, name, chosen):
    idle = hoplite.models.idle_settings(name) & {"output_dropout"}
    plain = dict.fromkeys(idle, 0.0)
    chosen = [Run(dataclasses.replace(run.config, **plain), run.seed) for run in chosen]
    config, _ = split_options(
        name, {"hops": 2} if "hops" in hoplite.models.MODELS[name].settings() else {}
    )
    source = Propagation(graph, config.operator, config.basis, config.hops, dtype=np.float64)
    model, parts = build_model(config, graph.num_features, graph.num_classes), node_sets(graph)
    val = parts["val"] if len(parts["val"]) else None
    together = fit_runs(model, source, chosen, parts["train"], val)
    for run, found in zip(chosen, together, strict=True):
        (alone,) = fit_runs(model, source, [run], parts["train"], val)
        assert found.best_epoch == alone.best_epoch
        for key, value in alone.weights.items():
            torch.testing.assert_close(found.weights[key], value, rtol=1e-6, atol=1e-8)


def test_nobody_sure_is_no_penalty(graphs):
    graph = graphs(n=40, d=5)
    plain = {"hops": 2, "epochs": 5, "drop_nodes": 0.5, "draws": 2, "seeds": 2}
    unsure = hoplite.train(graph, "lgc", **plain, consistency=5.0, confidence=1.0)
    without = hoplite.train(graph, "lgc", **plain)
    sure = hoplite.train(graph, "lgc", **plain, consistency=5.0)
    for one, other, changed in zip(unsure.runs, without.runs, sure.runs, strict=True):
        curve = one.history["train_loss"]
        np.testing.assert_allclose(curve, other.history["train_loss"], rtol=1e-5)
        assert abs(curve - changed.history["train_loss"]).max() > 1e-2


def test_what_is_dropped_is_dropped_so_often():
    """Shares of nodes, entries and outputs that are kept, and that draws differ."""
    run = Run(TrainingConfig(dropout=0.2, drop_nodes=0.6, output_dropout=0.4, draws=2), seed=3)
    found = dropped([run], epoch=5)
    assert found is not None
    elements = torch.arange(20_000)
    masks = []
    for one, rate in ((found, 0.2), (found.of_nodes, 0.6), (found.of_outputs, 0.4)):
        both = [one.mask(elements, draw) for draw in range(2)]
        for mask in both:
            assert abs(mask.double().mean() - (1 - rate)) < 0.015
        assert (both[0] != both[1]).double().mean() == pytest.approx(
            2 * rate * (1 - rate), abs=0.03
        )
        masks += both
    assert len({tuple(mask.tolist()) for mask in masks}) == 6
    assert dropped([Run(TrainingConfig(dropout=0), 1)], 0) is None


def test_the_filter_has_rates_of_its_own():
    """Adam on two weights, against torch's with two groups of parameters."""
    generator = torch.Generator().manual_seed(0)
    first = {name: torch.randn(2, 3, generator=generator).double() for name in ("theta", "alpha")}
    configs = [
        TrainingConfig(lr=0.1, weight_decay=0.3, filter_lr_factor=0.2, filter_decay_factor=5.0),
        TrainingConfig(lr=0.03, weight_decay=0.1, filter_lr_factor=4.0, filter_decay_factor=0.0),
    ]
    ours = {name: torch.nn.Parameter(value.clone()) for name, value in first.items()}
    adam = Adam(ours, configs, {"alpha"})

    def losses(weights, run):
        return (weights["theta"][run].sin() * weights["alpha"][run].square()).sum()

    theirs = {name: value.clone().unbind() for name, value in first.items()}
    groups = []
    for run, config in enumerate(configs):
        own = {name: torch.nn.Parameter(theirs[name][run].clone()) for name in theirs}
        rates = {
            "theta": (config.lr, config.weight_decay),
            "alpha": (
                config.lr * config.filter_lr_factor,
                config.weight_decay * config.filter_decay_factor,
            ),
        }
        optimizer = torch.optim.Adam(
            [{"params": [own[n]], "lr": lr, "weight_decay": wd} for n, (lr, wd) in rates.items()]
        )
        groups.append((own, optimizer))
    for _ in range(7):
        adam.step(lambda: torch.stack([losses(ours, run) for run in range(2)]))
        for own, optimizer in groups:
            optimizer.zero_grad()
            losses({name: value.unsqueeze(0) for name, value in own.items()}, 0).backward()
            optimizer.step()
    for run, (own, _) in enumerate(groups):
        for name, value in own.items():
            torch.testing.assert_close(ours[name][run].detach(), value.detach(), rtol=1e-9, atol=0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"consistency": 1.0, "optimizer": "lbfgs"}, "consistency is 1.0 but optimizer is 'lbfgs'"),
        ({"filter_lr_factor": 2.0, "optimizer": "lbfgs"}, "filter_lr_factor is 2.0"),
        ({"drop_nodes": 0.5, "batch": 3, "dropout": 0.0}, "batch is 3 but drop_nodes is 0.5"),
        ({"drop_nodes": 1.0}, "drop_nodes is 1.0; it must be a number"),
        ({"draws": 0}, "draws is 0; it must be a whole number"),
        ({"sharpen": 1.5}, "sharpen is 1.5"),
        ({"confidence": -0.1}, "confidence is -0.1"),
    ],
)
def test_wrong_settings(options, said):
    with pytest.raises(ConfigError, match=said):
        TrainingConfig(**options)


@pytest.mark.parametrize("name", ["drop_nodes", "output_dropout", "consistency"])
def test_a_store_has_nothing_to_drop(name, graphs, tmp_path):
    store = propagate(graphs(n=30, d=3), tmp_path, hops=1)
    with pytest.raises(ConfigError, match=f"{name} is 0.5 but a store holds hop features"):
        hoplite.train(store, "lgc", **{name: 0.5})


def test_models_without_a_filter_have_no_rate_for_it(graphs):
    with pytest.raises(ConfigError, match="sgc has no filter_lr_factor"):
        hoplite.train(graphs(n=20, d=3), "sgc", filter_lr_factor=2.0)


def test_numbers_do_not_agree():
    graph = hoplite.Graph.from_edges([(0, 1), (1, 2)], np.eye(3), np.array([0.5, 1.5, 2.5]))
    graph = graph.with_split(hoplite.Split([0, 1], [2], []))
    with pytest.raises(
        ConfigError, match=r"consistency is 1, which is for nodes of one class each"
    ):
        hoplite.train(graph, "lgc", consistency=1.0)
