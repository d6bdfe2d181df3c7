"""The scripts in examples/ that need other libraries, run where these are installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hoplite import TrainedModel

EXAMPLES = Path(__file__).parents[1] / "examples"


def ran(name: str, *words: Any, cwd: Path) -> str:
    command = [sys.executable, str(EXAMPLES / name), *map(str, words)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_optuna(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    said = ran("with_optuna.py", "cora", "--trials", 3, "--epochs", 10, "--out", "m", cwd=tmp_path)
    assert said.startswith("best of 3 trials: {'hops': ")
    assert TrainedModel.load(tmp_path / "m").config.hops in range(1, 21)
