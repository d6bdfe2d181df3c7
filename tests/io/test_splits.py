"""Stratified splits: shares, seeds, small classes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hoplite.graph import PARTS, Split
from hoplite.io import even_split, stratified_split
from hoplite.io.node_files import read_split, write_split


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


def test_the_split_is_the_same_everywhere():
    split = stratified_split([0] * 5 + [1] * 5, seed=0)
    assert [split.train.tolist(), split.val.tolist(), split.test.tolist()] == [
        [2, 3, 4, 6, 8, 9],
        [0, 5],
        [1, 7],
    ]


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


@pytest.mark.parametrize("seed", [None, 0, 7])
def test_files_keep_the_parts_and_the_seed(tmp_path, seed):
    labels, path = np.arange(30) % 3, tmp_path / "split.npz"
    split = Split([3, 1], [2], [29, 0], seed=seed)
    write_split(path, split)
    again = read_split(path, labels, "mine")
    assert (again.note, again.seed) == ("mine", seed)
    for part in PARTS:
        np.testing.assert_array_equal(getattr(again, part), getattr(split, part))
    other = Split([3, 1], [2], [28, 0])
    write_split(path, other)
    with pytest.raises(ValueError, match="contains node 28"):
        read_split(path, labels[:20], "")
    whole = path.read_bytes()
    for size in range(0, len(whole), 61):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError):  # noqa: PT011
            read_split(path, labels, "")
