"""A bank's tables, as they come, from the command line: trained, predicted, explained, stored."""

from __future__ import annotations

import functools
import json
import runpy
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pyarrow import csv
from tests.commands import fail, succeed

EXAMPLE = Path(__file__).parents[2] / "examples" / "fraud.py"


@functools.cache
def example() -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(EXAMPLE)))


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("bank")
    made = example()
    fraud, oracle = made.make_bank(folder / "bank", 6000, seed=1)
    words = ["bank", *made.NAMES.split(), *made.TRAINING.split(), "--out", "model", "--json"]
    return folder, np.stack([fraud, oracle]), json.loads(succeed("train", *words, cwd=folder))


def test_the_readme_way_finds_fraud(bank: tuple[Path, np.ndarray, dict[str, Any]]) -> None:
    folder, (fraud, oracle), result = bank
    assert result["prepared"] == (
        "4 numbers and 2 dates scaled (standard), 1 number as it is, gaps in 4 columns filled, 2 "
        "texts one-hot"
    )
    succeed("predict", "model", "bank", "--proba", "--out", "fraud.csv", cwd=folder)
    hidden, score = example().scores(folder / "bank", folder / "fraud.csv")
    auc, precision = example().measured(fraud[hidden], score[hidden])
    best = example().measured(fraud[hidden], oracle[hidden])
    assert 0.9 < auc < best[0] < 1
    assert 0.4 < precision < best[1] < 1


def test_other_tables_are_prepared_as_in_training(
    bank: tuple[Path, np.ndarray, dict[str, Any]],
) -> None:
    folder = bank[0]
    table = csv.read_csv(folder / "bank" / "nodes.csv", convert_options=_as_text())
    names = sorted(set(table.column_names) - {"fraud"})
    other = table.select(names).rename_columns([{"account": "who"}.get(n, n) for n in names])
    (folder / "other").mkdir()
    csv.write_csv(other, folder / "other" / "nodes.csv")
    shutil.copy(folder / "bank" / "edges.csv", folder / "other" / "edges.csv")
    succeed("predict", "model", "bank", "--out", "a.csv", cwd=folder)
    succeed("predict", "model", "other", "--id", "who", "--out", "b.csv", cwd=folder)
    first, second = (csv.read_csv(folder / name) for name in ("a.csv", "b.csv"))
    assert first.drop_columns(["split"]) == second  # the other has no labels, so nothing to split
    words = ["predict", "model", "other", "--out", "c.csv"]
    assert "has no column 'account'" in fail(1, *words, cwd=folder)
    words = ["--hops", 5, "--operator", "adjacency", "--out", "own"]  # as the model has
    succeed("propagate", "other", "--id", "who", *words, cwd=folder)
    said = succeed("predict", "model", "own", "--out", "c.csv", cwd=folder)
    assert said  # the same columns were fitted to the same numbers
    node = table["account"][5].as_py()
    shown = json.loads(succeed("explain", "model", "bank", "--node", node, "--json", cwd=folder))
    for part in shown["features"]["top"]:
        if part["name"] in ("balance", "logins"):
            assert part["value"] == pytest.approx(float(table[part["name"]][5].as_py()), rel=1e-4)


def _as_text() -> csv.ConvertOptions:
    import pyarrow as pa

    names = ["account", "balance", "monthly_income", "age", "logins", "opened", "last_login"]
    names += ["verified", "channel", "town", "iban", "fraud"]
    return csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
