"""The planner: the cheaper order, and why."""

import dataclasses

import pytest

from hoplite import ConfigError
from hoplite.engine import evaluation
from hoplite.engine.evaluation import Sizes, make_plan

PUBMED_SGC = Sizes(19717, 500, 3, 108365, 988031, hops=10, kept_hops=1, rows=560)
SMALL = Sizes(
    nodes=10, features=4, classes=3, operator_nonzeros=20, feature_nonzeros=30, hops=5, kept_hops=6,
    rows=7, epochs=11,
)  # fmt: skip


def change(sizes, **values):
    return dataclasses.replace(sizes, **values)


def test_dropout_needs_weights_first():
    dropped = change(PUBMED_SGC, dropout=True)
    assert make_plan(dropped).order == "weights-first"
    assert "dropout" in make_plan(dropped).reason
    with pytest.raises(ConfigError, match="dropout is not 0"):
        make_plan(dropped, "hops-first")


def test_rows_of_a_fixed_filter_are_kept_where_they_are_few(monkeypatch):
    cost = SMALL.hops * SMALL.operator_nonzeros
    most = (cost - 1) // SMALL.nodes
    assert change(SMALL, rows=most).keeps_filter()
    assert not change(SMALL, rows=most + 1).keeps_filter()
    monkeypatch.setattr(evaluation, "MAX_FILTER_SIZE", 20)
    assert change(SMALL, rows=2).keeps_filter()
    assert not change(SMALL, rows=3).keeps_filter()
