"""Choices and distributions: ends of their ranges, shares, words of messages."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from hoplite.errors import ConfigError
from hoplite.selection.dimensions import (
    Choices,
    Distribution,
    count_configurations,
    draw_configurations,
    list_configurations,
    read_dimension,
    shorten,
)


def test_choices():
    choices = Choices((3, 1, 2))
    assert choices.size == 3
    values, shares = choices.support()
    assert values == [3, 1, 2]
    np.testing.assert_allclose(shares, 1 / 3)
    drawn = [choices.draw(np.random.default_rng(seed)) for seed in range(60)]
    assert set(drawn) == {1, 2, 3}


def test_whole_numbers_and_their_shares():
    flat = Distribution(2, 5, integer=True)
    assert flat.size == 4
    assert flat.support()[0] == [2, 3, 4, 5]
    np.testing.assert_allclose(flat.support()[1], 1 / 4)
    steep = Distribution(1, 3, log=True, integer=True)
    expected = np.array([math.log(2), math.log(3 / 2), math.log(4 / 3)]) / math.log(4)
    np.testing.assert_allclose(steep.support()[1], expected)
    drawn = [steep.draw(np.random.default_rng(seed)) for seed in range(3000)]
    shares = np.bincount(drawn, minlength=4)[1:] / 3000
    np.testing.assert_allclose(shares, expected, atol=0.04)
    assert all(type(one) is int for one in drawn)
    assert Distribution(0.5, 2.0).size == math.inf


@pytest.mark.parametrize("log", [False, True])
def test_draws_are_where_the_share_says(log):
    generator = SimpleNamespace(random=lambda: 0.25)
    value = Distribution(1.0, 16.0, log=log).draw(generator)
    assert value == pytest.approx(2.0 if log else 4.75)
    ends = [
        Distribution(0.1, 0.3, log=log).draw(SimpleNamespace(random=lambda s=s: s)) for s in (0, 1)
    ]
    assert ends == pytest.approx([0.1, 0.3])
    assert 0.1 <= ends[0] < ends[1] <= 0.3
    last = SimpleNamespace(random=lambda: 1 - 1e-12)
    assert Distribution(2, 5, log=log, integer=True).draw(last) == 5


def test_distributions_as_text():
    assert str(Distribution(0.5, 2.0)) == "{low = 0.5, high = 2}"
    assert str(Distribution(1, 8, True, True)) == (
        "{low = 1, high = 8, log = true, integer = true}"
    )


@pytest.mark.parametrize(
    ("name", "given", "sentence"),
    [
        ("lr", [], "empty list"),
        ("lr", [0.1, 0.2, 0.1], "has 0.1 twice"),
        ("lr", {"low": 1.0, "high": 1.0}, "low must be smaller"),
        ("lr", {"low": 0, "high": 1, "log": True}, "larger than 0"),
        ("lr", {"low": 0.1}, "has no high"),
        ("lr", {"high": 0.1}, "has no low"),
        ("lr", {"low": 0.1, "high": 1, "log": 1}, "write true or false"),
        ("lr", {"low": 0.1, "high": 1, "step": 1}, "the part 'step'"),
        ("hops", {"low": 1, "high": 3, "integer": False}, "leave integer = false out"),
        ("hops", {"low": 1.0, "high": 3}, "must be a whole number"),
        ("hops", 2**53, "must be a whole number"),
        ("hops", True, "must be a whole number"),
        ("lr", math.inf, "a number that is finite"),
        ("lr", "0.1", "a number that is finite"),
        ("bias", 1, "true or false"),
        ("operator", {"low": 1, "high": 2}, "is a text, so it has no distribution"),
        ("model", ["lgc"], "is chosen for the whole search"),
        ("lrr", [1], "is not an option"),
    ],
)
def test_dimensions_that_are_refused(name, given, sentence):
    with pytest.raises(ConfigError, match=sentence):
        read_dimension(name, given, "[cora]")


def test_dimensions_that_are_read():
    assert read_dimension("lr", 1, "").values == (1.0,)
    assert type(read_dimension("lr", [1], "").values[0]) is float
    assert read_dimension("lr", 2**53, "").values == (2.0**53,)
    assert read_dimension("hops", 2**53 - 1, "").values == (2**53 - 1,)
    assert read_dimension("hops", {"low": 1, "high": 4}, "") == Distribution(1, 4, False, True)
    assert read_dimension("lr", {"low": 1, "high": 4, "integer": True}, "").integer is True
    tiny = read_dimension("lr", {"low": 1e-9, "high": 1, "log": True}, "")
    assert tiny == Distribution(1e-9, 1.0, True, False)


def test_long_values_are_cut():
    assert shorten("a" * 58) == repr("a" * 58)
    assert shorten("a" * 59) == f"'{'a' * 59}..."
    assert shorten(10**5000) == "a very long value"


def test_products_in_order_with_their_shares():
    branches = [
        {"lr": Choices((0.1, 0.2)), "hops": Distribution(1, 3, log=True, integer=True)},
        {"lr": Choices((0.5,))},
    ]
    assert count_configurations(branches) == 7
    listed, shares = list_configurations(branches)
    assert listed[:4] == [
        {"lr": 0.1, "hops": 1},
        {"lr": 0.1, "hops": 2},
        {"lr": 0.1, "hops": 3},
        {"lr": 0.2, "hops": 1},
    ]
    assert listed[-1] == {"lr": 0.5}
    assert shares.sum() == pytest.approx(1)
    assert shares[-1] == pytest.approx(0.5)
    assert shares[0] == pytest.approx(0.25 * math.log(2) / math.log(4))
    everything = draw_configurations(branches, 7, np.random.default_rng(0))
    assert sorted(map(str, everything)) == sorted(map(str, listed))
    some = draw_configurations(branches, 6, np.random.default_rng(0))
    assert len({str(one) for one in some}) == len(some) == 6
    endless = [{"lr": Distribution(0.0, 1.0)}, {"lr": Choices((7.0,))}]
    drawn = draw_configurations(endless, 40, np.random.default_rng(1))
    assert len({one["lr"] for one in drawn}) == 40
    assert {"lr": 7.0} in drawn
