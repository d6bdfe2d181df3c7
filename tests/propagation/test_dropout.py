"""Dropout masks: fixed by seed, epoch and element alone, and with the right statistics."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hoplite.errors import ConfigError
from hoplite.propagation.dropout import Dropout

ELEMENTS = torch.arange(200_000)


def test_the_hash_is_the_documented_one():
    def mix(x):
        x ^= x >> 16
        x = x * 0x7FEB352D % 2**32
        x ^= x >> 15
        x = x * 0x846CA68B % 2**32
        return x ^ x >> 16

    dropout = Dropout((0.3,), (5,), 2)
    key0, key1, threshold = dropout.rules[0].tolist()
    assert threshold == int(0.3 * 2**32)
    elements = [0, 1, 12345, 2**32 - 1, 2**32, 2**40 + 7, 2**62 + 3]
    wanted = []
    for e in elements:
        x = mix(e % 2**32 ^ key0)
        x = mix(x ^ key1 ^ (e >> 32) * 0x9E3779B9 % 2**32)
        wanted.append(x >= threshold)
    assert dropout.mask(torch.tensor(elements), 0).tolist() == wanted


@pytest.mark.parametrize("rate", [0.0, 0.05, 0.5, 0.9, 0.999])
def test_the_rate_is_met(rate):
    for seed, epoch in ((0, 0), (1, 0), (0, 1), (-3, 7), (2**70, 10**6)):
        kept = Dropout((rate,), (seed,), epoch).mask(ELEMENTS, 0).double().mean().item()
        deviation = (rate * (1 - rate) / len(ELEMENTS)) ** 0.5
        assert abs(kept - (1 - rate)) <= 5 * deviation


def test_masks_of_other_seeds_epochs_and_neighbours_are_unrelated():
    masks = [
        Dropout((0.5,), (seed,), epoch).mask(ELEMENTS, 0).double()
        for seed in range(3)
        for epoch in range(3)
    ]
    correlation = np.corrcoef(torch.stack(masks).numpy())
    assert np.abs(correlation - np.eye(9)).max() < 0.012
    for lag in (1, 2, 7, 1433):
        pair = np.corrcoef(masks[0][lag:].numpy(), masks[0][:-lag].numpy())
        assert abs(pair[0, 1]) < 0.012


def test_a_run_does_not_depend_on_its_mates():
    alone = Dropout((0.4,), (11,), 9)
    together = Dropout((0.1, 0.4, 0.0), (3, 11, 11), 9)
    assert torch.equal(alone.mask(ELEMENTS, 0), together.mask(ELEMENTS, 1))
    assert together.mask(ELEMENTS, 2).all()
    assert together.active
    assert not Dropout((0.0,), (1,)).active
    assert alone == Dropout((0.4,), (11,), 9)


def test_scales():
    dropout = Dropout((0.0, 0.5, 0.75), (0, 0, 0))
    assert [dropout.scale(run) for run in range(3)] == [1.0, 2.0, 4.0]
    assert dropout.runs == 3


def test_impossible_rates_are_refused():
    for rate in (1.0, -0.1, float("nan"), 2):
        with pytest.raises(ConfigError, match="dropout rate is"):
            Dropout((rate,), (0,))
    with pytest.raises(ConfigError, match="2 rates but 1 seeds"):
        Dropout((0.1, 0.1), (0,))
