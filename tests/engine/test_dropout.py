"""Dropout masks: fixed by seed, step and element alone, and with the right statistics."""

from __future__ import annotations

import numpy as np

from hoplite.engine.dropout import Dropout, Mask

ELEMENTS = np.arange(200_000)


def splitmix(z):
    z = (z + 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    return z ^ z >> 31


def lowbias(x):
    x ^= x >> 16
    x = x * 0x7FEB352D % 2**32
    x ^= x >> 15
    x = x * 0x846CA68B % 2**32
    return x ^ x >> 16


def test_the_hash_is_the_documented_one():
    for seed, step in ((0, 0), (5, 2), (-3, 7), (2**70 + 1, 2**40 + 9), (1, 2**64 + 3), (9, -1)):
        mask = Mask(0.3, seed, step)
        key = splitmix(splitmix(seed % 2**64) ^ step % 2**64)
        assert mask.keys == (key % 2**32, key >> 32)
        assert mask.rule == (*mask.keys, int(0.3 * 2**32), mask.scale)
        elements = [0, 1, 12345, 2**32 - 1, 2**32, 2**40 + 7, 2**62 + 3]
        wanted = []
        for e in elements:
            x = lowbias(e % 2**32 ^ key % 2**32)
            x = lowbias(x ^ key >> 32 ^ (e >> 32) * 0x9E3779B9 % 2**32)
            wanted.append(x >= mask.threshold)
        assert mask.keeps(np.array(elements)).tolist() == wanted


def test_recorded_masks():
    """Of seed 7 and step 3: what a saved seed stands for must never change."""
    kept = "1010110111001001010000110111111001010101010110001111100111011010"
    assert "".join(map(str, Mask(0.5, 7, 3).keeps(np.arange(64)).astype(int))) == kept


def test_masks_of_other_seeds_steps_layers_and_neighbours_are_unrelated():
    dropouts = [Dropout(0.5, seed, step, 0.5, 0.5) for seed in range(2) for step in range(2)]
    masks = [
        mask.keeps(ELEMENTS)
        for one in dropouts
        for mask in (one.of_entries(), one.of_entries(1), one.of_nodes, one.of_outputs)
    ]
    correlation = np.corrcoef(np.stack(masks))
    assert np.abs(correlation - np.eye(16)).max() < 0.012
    for lag in (1, 2, 7, 1433):
        assert abs(np.corrcoef(masks[0][lag:], masks[0][:-lag])[0, 1]) < 0.012
