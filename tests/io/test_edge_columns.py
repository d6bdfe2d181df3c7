"""Edge columns that the user names: read everywhere alike, and remembered by models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv
from tests.io.test_preparation import N, columns, write

import hoplite
from hoplite import DatasetError
from hoplite.errors import ConfigError
from hoplite.store import opening

NAMES = {"source": "payer", "target": "payee", "weight": "euros"}
NAMED = {"id": "who", "label": "kind", "drop": "key"}


def renamed(folder: Path, names: dict[str, str] = NAMES, **more: Any) -> Path:
    """The edges with weights over magnitudes, under other names, and with further columns."""
    path = folder / "edges.csv"
    table = csv.read_csv(path)
    weights = np.random.default_rng(3).lognormal(3, 3, len(table))
    table = table.append_column("weight", pa.array(weights))
    table = table.rename_columns([names.get(name, name) for name in table.column_names])
    for name, values in more.items():
        table = table.append_column(name, pa.array([values] * len(table)))
    csv.write_csv(table.select(table.column_names[::-1]), path)
    return folder


def test_edge_columns_may_have_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = renamed(write(tmp_path / "plain", columns()), {})
    other = renamed(write(tmp_path / "other", columns()), when="2020-01-01", source="a decoy")
    wanted = hoplite.load(plain, **NAMED)
    found = hoplite.load(other, **NAMED, **NAMES)
    np.testing.assert_array_equal(found.adjacency.toarray(), wanted.adjacency.toarray())
    assert (found.adjacency.toarray() != 0).sum() > 300
    assert found.preparation is not None
    assert found.preparation.unused == ("source", "when")
    assert wanted.preparation is not None
    assert "edges" not in wanted.preparation.summary()

    model = hoplite.train(found, "sgc", hops=2, epochs=3).model
    model.save(tmp_path / "model")
    again = hoplite.TrainedModel.load(tmp_path / "model")
    assert again.preparation == found.preparation
    logits = model.logits(found)
    np.testing.assert_array_equal(again.logits(hoplite.load(other, prepare=again)), logits)
    frames = pa.table(columns()), csv.read_csv(other / "edges.csv")
    network = pytest.importorskip("networkx").MultiDiGraph()
    for row in frames[0].to_pylist():
        network.add_node(row.pop("who"), **row)
    for row in frames[1].to_pylist():
        network.add_edge(row.pop("payer"), row.pop("payee"), **row)
    for given in (frames, network):
        found = hoplite.open_data(given, prepare=again)
        np.testing.assert_allclose(again.logits(found), logits, atol=1e-5)
    back = {name: name for name in NAMES}  # tables with other names, for the same model
    np.testing.assert_array_equal(again.logits(hoplite.load(plain, prepare=again, **back)), logits)

    monkeypatch.setattr(opening, "TABLE_SHARE", 10**9)  # so that they are imported
    options = {"hops": 1, "memory": "4GB", **NAMED}
    stores = [
        hoplite.propagate(plain, tmp_path / "a", **options),
        hoplite.propagate(other, tmp_path / "b", **options, **NAMES),
    ]
    first, second = (store.preparation for store in stores)
    assert second == again.preparation != first
    np.testing.assert_array_equal(*(store.read(0, N) for store in stores))


def test_new_edges_have_the_names_of_the_old_ones(tmp_path: Path) -> None:
    other = renamed(write(tmp_path / "other", columns()))
    graph = hoplite.load(other, **NAMED, **NAMES)
    new = tmp_path / "new"
    new.mkdir()
    (new / "edges.csv").write_text("payee,payer,euros\np1,p0,7000\n")
    row = [graph.node_ids.index(name) for name in ("p0", "p1")] if graph.node_ids else []
    before, after = graph.adjacency, hoplite.io.extend(graph, new).adjacency
    assert after[row[0], row[1]] == np.float32(before[row[0], row[1]] + 7000)
    with pytest.raises(DatasetError, match=r"no column 'source' or 'target' \(it has"):
        hoplite.io.extend(graph, new, **{name: name for name in NAMES})
    (new / "edges.csv").unlink()
    nodes = {name: values[:1] for name, values in columns().items()} | {"who": pa.array(["z"])}
    csv.write_csv(pa.table(nodes), new / "nodes.csv")
    assert hoplite.io.extend(graph, new).num_nodes == N + 1  # without any edge


def test_edge_lists_name_their_columns(tmp_path: Path) -> None:
    path = tmp_path / "web.csv"
    path.write_text("from,to,euros\n1,2,5\n2,3,70\n3,1,1\n")
    names = {"source": "from", "target": "to"}
    graph = hoplite.load(path, structural=0, **names, weight="euros")
    np.testing.assert_array_equal(graph.adjacency.toarray(), [[0, 5, 1], [5, 0, 70], [1, 70, 0]])
    with pytest.raises(DatasetError, match=r"no columns 'form' and 'to' \(it starts with 'from',"):
        hoplite.load(path, source="form", target="to")
    with pytest.raises(DatasetError, match="source= and target="):
        hoplite.load(path)
    (tmp_path / "web.mtx").write_text(
        "%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 2\n"
    )
    with pytest.raises(ConfigError, match="source is an option of node and edge tables"):
        hoplite.load(tmp_path / "web.mtx", source="from")


def test_each_edge_column_has_a_name_of_its_own() -> None:
    with pytest.raises(ConfigError, match="must name different columns"):
        hoplite.TableOptions(source="from", target="from")
