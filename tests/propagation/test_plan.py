"""The planner: the cheaper order, and why."""

import dataclasses

import pytest

from hoplite import ConfigError
from hoplite.propagation.plan import Problem, free_memory, make_plan

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
    assert free_memory() > 0
