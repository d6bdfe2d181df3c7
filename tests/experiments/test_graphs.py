"""The experiment on whole graphs, on a small set: chosen on validation, resumed, refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.graphs.conftest import random_set

from experiments import graphs
from hoplite.errors import DatasetError
from hoplite.graphs import write_graphs
from hoplite.graphs.training import candidates_of


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A set under the name of a public one, with ten splits."""
    path = tmp_path / "MUTAG.npz"
    write_graphs(path, random_set(1))
    arrays = dict(np.load(path))
    rng = np.random.default_rng(0)
    arrays["split"] = np.stack([rng.permutation(np.arange(60) % 10).clip(0, 2) for _ in range(10)])
    np.savez(path, **arrays)
    return tmp_path


def test_folds_are_kept_and_another_grid_is_refused(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = data / "out"
    out.mkdir()
    monkeypatch.setattr(graphs, "FOLDS", 2)
    monkeypatch.setattr(graphs, "grid_of", lambda name: [{"model": "colours", "depth": [0, 1]}])
    graphs.run_set(data, "MUTAG", out)
    first = (out / "MUTAG-0.json").read_text(encoding="utf-8")
    record = json.loads(first)
    assert record["val_loss"] == min(loss for loss, _ in record["candidates"].values())
    (out / "MUTAG-1.json").unlink()
    graphs.run_set(data, "MUTAG", out)
    assert (out / "MUTAG-0.json").read_text(encoding="utf-8") == first
    records = [record, json.loads((out / "MUTAG-1.json").read_text(encoding="utf-8"))]
    page = data / "page.md"
    assert "| MUTAG | " in graphs.write_page(records, page)
    assert f"Made by {record['made_by']}." in page.read_text(encoding="utf-8")
    net = {"set": "MUTAG", "net": "GIN", "fold": 0, "test_accuracy": 0.5, "processor_seconds": 1.0}
    text = graphs.write_page([net], page)  # next to the linear models
    assert "| GIN | 50.0 ± 0.0 | 1 |" in text
    assert "MUTAG, 1 fold |" in text
    assert graphs.write_page(records, page) == text
    assert len(json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))) == 3
    monkeypatch.setattr(graphs, "grid_of", lambda name: [{"model": "colours", "depth": [2]}])
    with pytest.raises(DatasetError, match="another grid"):
        graphs.run(data, out, ["MUTAG"], 1, lambda what, share: None, data / "page.md")


def test_every_set_has_a_grid_and_its_candidates_are_sound() -> None:
    for name in graphs.DEFAULT:
        assert candidates_of(graphs.grid_of(name), {})


def test_every_network_trains(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch_geometric")
    from experiments import graph_nets

    monkeypatch.setattr(graph_nets, "EPOCHS", 1)
    monkeypatch.setattr(graph_nets, "WIDTH", 4)
    fold = graphs.load_fold(data, "MUTAG", 0)
    batches = graph_nets.as_data(fold)
    for net in graph_nets.NETS:
        record = graph_nets.run_fold(batches, fold.table.split, net)
        assert 0 <= record["test_accuracy"] <= 1
