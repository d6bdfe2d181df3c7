"""The planner: the cheaper order, and why."""

import dataclasses
import types

import numpy as np
import pytest

from hoplite import ConfigError, ModelConfig
from hoplite.models import build_model
from hoplite.propagation.engine import Propagation
from hoplite.propagation.orders import Problem, free_memory, make_plan
from hoplite.training import plan
from hoplite.training.runs import run_bytes

TYPES = (np.float32, np.float64)

CORA = Problem(2708, 1433, 7, 13264, 49216, hops=20, kept_hops=21, rows=640)
PUBMED_SGC = Problem(19717, 500, 3, 108365, 988031, hops=10, kept_hops=1, rows=560)


def change(**values):
    return dataclasses.replace(CORA, **values)


def test_few_needed_rows_and_one_kept_hop_prefer_hops_first():
    assert make_plan(PUBMED_SGC).order == "hops-first"


def test_one_epoch_never_pays_for_propagating_wide_features():
    assert make_plan(change(epochs=1)).order == "weights-first"


def test_dropout_needs_weights_first():
    problem = change(kept_hops=1, dropout=True)
    plan = make_plan(problem)
    assert plan.order == "weights-first"
    assert "dropout" in plan.reason
    with pytest.raises(ConfigError, match="dropout is not 0"):
        make_plan(problem, "hops-first")


def test_memory_limit():
    assert make_plan(PUBMED_SGC, memory=10**12).order == "hops-first"
    assert make_plan(PUBMED_SGC, memory=1000).order == "weights-first"


def test_explain_names_order_and_work():
    text = make_plan(CORA).explain()
    assert text.startswith("weights-first: it needs less work")
    assert "multiply-adds" in text


def test_what_was_read_before_does_not_change_a_plan(monkeypatch):
    """The page cache of files is not free, but can be had."""
    told = types.SimpleNamespace(free=10**6, available=10**12)
    monkeypatch.setattr("psutil.virtual_memory", lambda: told)
    assert free_memory() == 10**12
    assert make_plan(PUBMED_SGC).order == "hops-first"
    told.available = 10**5
    assert make_plan(PUBMED_SGC).order == "weights-first"


def test_numbers_count_with_their_size(graphs):
    single, double = (plan(graphs(n=40, dtype=dtype), "lgc", dropout=0) for dtype in TYPES)
    assert double.problem.hops_first_bytes() == 2 * single.problem.hops_first_bytes() > 0
    sizes = []
    for dtype in TYPES:
        graph = graphs(n=40, dtype=dtype)
        model = build_model(ModelConfig("lgc", 3), graph.num_features, graph.num_classes)
        sizes.append(run_bytes(model, Propagation(graph, hops=3)))
    assert sizes[1] == 2 * sizes[0] > 0


def test_a_theta_of_all_hops_meets_the_features_once():
    """JacobiConv has a map per hop, but they are one Theta, scaled; hop blocks have k + 1."""
    sizes = {
        model: plan("cora", model, hops=20, dropout=0, seeds=1).problem
        for model in ("lgc", "jacobiconv", "blocks")
    }
    assert {name: (one.maps, one.inputs) for name, one in sizes.items()} == {
        "lgc": (1, 1),
        "jacobiconv": (21, 1),
        "blocks": (21, 21),
    }
    first = sizes["lgc"].weights_first_work()
    assert sizes["jacobiconv"].weights_first_work() == first < sizes["blocks"].weights_first_work()
