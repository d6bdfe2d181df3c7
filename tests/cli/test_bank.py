"""A bank's tables, as they come, from the command line: trained, predicted, explained, stored."""

from __future__ import annotations

import functools
import json
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.commands import succeed

EXAMPLE = Path(__file__).parents[2] / "examples" / "fraud.py"


@functools.cache
def example() -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(EXAMPLE)))


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("bank")
    made = example()
    fraud, oracle = made.make_bank(folder / "bank", 6000, seed=1)
    words = ["bank", *made.NAMES.split(), "--out", "model", "--json"]
    return folder, np.stack([fraud, oracle]), json.loads(succeed("train", *words, cwd=folder))


def test_the_readme_way_finds_fraud(bank: tuple[Path, np.ndarray, dict[str, Any]]) -> None:
    folder, (fraud, oracle), result = bank
    assert "4 numeric columns" in result["prepared"]
    succeed("predict", "model", "bank", "--proba", "--out", "fraud.csv", cwd=folder)
    hidden, score = example().scores(folder / "bank", folder / "fraud.csv")
    auc, precision = example().measured(fraud[hidden], score[hidden])
    best = example().measured(fraud[hidden], oracle[hidden])
    assert 0.9 < auc < best[0] < 1
    assert 0.4 < precision < best[1] < 1
