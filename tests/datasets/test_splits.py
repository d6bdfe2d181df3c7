"""Stratified splits: shares, seeds, small classes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoplite.datasets import stratified_split
from hoplite.datasets.splits import even_split
from hoplite.errors import ConfigError


@given(
    labels=st.lists(st.integers(-1, 4), max_size=80),
    seed=st.integers(0, 2**40),
)
def test_every_labelled_node_is_dealt_once_and_in_proportion(labels, seed):
    labels = np.array(labels, np.int64)
    split = stratified_split(labels, seed)
    dealt = np.concatenate([split.train, split.val, split.test])
    np.testing.assert_array_equal(np.sort(dealt), np.flatnonzero(labels >= 0))
    for label in np.unique(labels[labels >= 0]):
        count = (labels == label).sum()
        for part, share in (("train", 0.6), ("val", 0.2), ("test", 0.2)):
            got = (labels[getattr(split, part)] == label).sum()
            assert abs(got - share * count) <= 1
        assert (labels[split.train] == label).any()


def test_the_same_seed_gives_the_same_split_and_another_seed_another():
    labels = np.arange(60) % 3
    a, b, c = stratified_split(labels, 1), stratified_split(labels, 1), stratified_split(labels, 2)
    assert a.train.tolist() == b.train.tolist()
    assert a.train.tolist() != c.train.tolist()


def test_the_split_is_the_same_everywhere():
    split = stratified_split([0] * 5 + [1] * 5, seed=0)
    assert [split.train.tolist(), split.val.tolist(), split.test.tolist()] == [
        [2, 3, 4, 6, 8, 9],
        [0, 5],
        [1, 7],
    ]


def test_other_fractions_and_the_note():
    split = stratified_split(np.zeros(10, int), 7, fractions=(0.5, 0.25, 0))
    assert split.sizes() == {"train": 5, "val": 3, "test": 0}
    assert split.note == "stratified 50/25/0, seed 7"


@pytest.mark.parametrize("fractions", [(0.5, 0.5), (0.8, 0.3, 0.1), (-0.1, 0.5, 0.5), (0, 0, 0)])
def test_bad_fractions(fractions):
    with pytest.raises(ConfigError, match="fractions is"):
        stratified_split([0, 1], fractions=fractions)


@pytest.mark.parametrize("seed", [-1, 1.5, None, "1", True])
def test_bad_seeds(seed):
    with pytest.raises(ConfigError, match=f"seed is {seed!r}; it must be a whole number"):
        stratified_split([0, 1], seed=seed)


def test_even_splits_take_as_many_of_every_class():
    rng = np.random.default_rng(11)
    sizes = [3, 40, 7, 90, 1]
    labels = rng.permutation(np.repeat([-1, *range(5)], [20, *sizes]))
    n = sum(sizes)
    most = round(0.6 * n / 5)
    split = even_split(labels, seed=4)
    dealt = np.concatenate([split.train, split.val, split.test])
    assert np.array_equal(np.sort(dealt), np.flatnonzero(labels >= 0))
    assert np.bincount(labels[split.train]).tolist() == [min(size, most) for size in sizes]
    assert split.val.size == round(0.2 * n)
    assert set(labels[split.val]) <= {1, 3}  # smaller classes are all in training
    assert not np.array_equal(split.train, even_split(labels, seed=5).train)
    assert np.array_equal(split.test, even_split(labels, seed=4).test)
