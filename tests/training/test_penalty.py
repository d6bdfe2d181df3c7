"""The consistency penalty and its gradient, with torch's autograd as the judge."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.dense import disagreement
from tests.examples import examples

from hoplite.training.objective import penalty


def judged(logits, sharpen, confidence):
    """The formula of the module's docstring, by autograd."""
    z = torch.tensor(logits, requires_grad=True)
    value = disagreement([*z], sharpen, confidence)
    value.backward()
    return value.item(), z.grad.numpy()


@pytest.mark.parametrize(("dtype", "rtol"), [(np.float32, 1e-5), (np.float64, 1e-10)])
@given(
    seed=st.integers(0, 2**32 - 1),
    draws=st.integers(1, 4),
    nodes=st.sampled_from([1, 2, 30, 999]),
    m=st.sampled_from([2, 3, 10]),
    sharpen=st.sampled_from([0.0, 0.1, 0.37, 0.5, 1.0]),
    confidence=st.sampled_from([0.0, 0.513, 0.97, 1.0]),
)
@examples(40)
def test_value_and_gradient_are_those_of_autograd(
    dtype, rtol, seed, draws, nodes, m, sharpen, confidence
):
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal((draws, nodes, m)) * 10.0 ** rng.uniform(-2, 1, (nodes, 1))
    extreme = rng.random(nodes) < 0.1
    logits[:, extreme] *= 1e4
    logits = logits.astype(dtype)
    before = logits.copy()
    value, gradient = penalty(logits, sharpen, confidence)
    np.testing.assert_array_equal(logits, before)
    assert gradient.shape == logits.shape
    assert gradient.dtype == dtype
    assert gradient.flags.c_contiguous
    expected, judge = judged(logits, sharpen, confidence)
    assert value == pytest.approx(expected, rel=rtol, abs=rtol)
    size = 1 / (draws * nodes)  # of one node's part; differences of probabilities lose digits
    np.testing.assert_allclose(gradient, judge, rtol=rtol, atol=rtol * size)


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_a_logit_that_is_not_finite_gives_no_finite_penalty(broken):
    logits = np.random.default_rng(0).standard_normal((2, 6, 3)).astype(np.float32)
    logits[1, 4, 2] = broken
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for sharpen in (0.0, 0.5, 1.0):
            assert not np.isfinite(penalty(logits, sharpen, 0.0)[0])
