"""The planner: the cheaper order, and why."""

import dataclasses

import pytest

from hoplite import ConfigError
from hoplite.engine import orders
from hoplite.engine.orders import Sizes, make_plan

CORA = Sizes(2708, 1433, 7, 13264, 49216, hops=20, kept_hops=21, rows=640)
PUBMED_SGC = Sizes(19717, 500, 3, 108365, 988031, hops=10, kept_hops=1, rows=560)
SMALL = Sizes(
    nodes=10, features=4, classes=3, operator_nonzeros=20, feature_nonzeros=30, hops=5, kept_hops=6,
    rows=7, epochs=11,
)  # fmt: skip


def change(sizes, **values):
    return dataclasses.replace(sizes, **values)


def test_the_work_of_both_orders_by_hand():
    assert SMALL.weights_first_work() == 2 * 11 * 8 * (30 + 5 * 20)  # 3 columns, a vector of 8
    wide = change(SMALL, classes=9, passes=1)
    assert wide.weights_first_work() == 11 * 9 * (30 + 5 * 20)
    assert wide.hops_first_work() == 5 * 20 * 4 + 11 * 7 * 4 * (4 * 6 + 9) // 4
    for kept, mixing in ((1, 0), (2, 2)):
        work = change(SMALL, kept_hops=kept).hops_first_work()
        assert work == 400 + 22 * 28 * (4 * mixing + 3) // 4
    blocks = change(SMALL, maps=6)
    assert blocks.weights_first_work() == 2 * 11 * 8 * (6 * 30 + 5 * 20)
    assert blocks.hops_first_work() == 400 + 22 * 7 * 4 * 6 * 3 // 4
    assert SMALL.hops_first_bytes() == 4 * 6 * 7 * 4
    assert change(SMALL, itemsize=8).hops_first_bytes() == 8 * 6 * 7 * 4


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
    monkeypatch.setattr(orders, "MAX_FILTER_SIZE", 20)
    assert change(SMALL, rows=2).keeps_filter()
    assert not change(SMALL, rows=3).keeps_filter()
