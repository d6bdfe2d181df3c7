"""Means and deviations of columns, from all rows or merged from parts of them."""

import functools

import numpy as np
import pytest

from hoplite.engine.evaluation import Moments, Standardized


@pytest.mark.parametrize("rows", [1, 5, 9000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_moments_of_parts_are_those_of_the_whole(rows, dtype):
    rng = np.random.default_rng(rows)
    values = rng.normal([0, 4, 1000], 1, (rows, 3)).astype(dtype)
    values[:, 1] = 7
    whole = Moments.of(values)
    cuts = np.sort(rng.integers(0, rows + 1, 4))  # some parts are empty
    parts = functools.reduce(Moments.merged, map(Moments.of, np.split(values, cuts)))
    assert parts.rows == whole.rows == rows
    np.testing.assert_allclose(parts.mean, values.mean(axis=0, dtype=np.float64), rtol=1e-12)
    np.testing.assert_allclose(parts.squares, whole.squares, rtol=1e-6, atol=1e-12)
    found = Standardized.from_moments(parts, values.dtype).apply(values)
    assert found.dtype == dtype
    assert (found[:, 1] == 0).all()
    if rows > 1:
        np.testing.assert_allclose(found[:, [0, 2]].mean(axis=0), 0, atol=1e-3)
        np.testing.assert_allclose(found[:, [0, 2]].std(axis=0), 1, rtol=1e-3)
