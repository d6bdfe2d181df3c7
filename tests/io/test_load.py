"""Names and paths become graphs, or one clear sentence."""

from __future__ import annotations

import os
import pickle
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hoplite import open_data
from hoplite.config import EMBEDDED
from hoplite.errors import DatasetError
from hoplite.io import available, load

PLANETOID = Path(os.environ.get("HOPLITE_PLANETOID", "planetoid"))
SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "build_datasets.py"


def test_embedded_graphs():
    for info in available():
        graph = load(info.name)
        assert graph.name == info.name
        sizes = (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes)
        assert sizes == (info.nodes, info.edges, info.features, info.classes)
        assert graph.split.sizes() == {"train": info.train, "val": info.val, "test": info.test}
        sums = graph.features.sum(axis=1)
        np.testing.assert_allclose(sums[sums != 0], 1, rtol=1e-5)
        assert graph.features.dtype == np.float32
    assert tuple(info.name for info in available()) == EMBEDDED


def tables(folder):
    folder.mkdir()
    (folder / "nodes.csv").write_text("id,label,x\na,0,1\nb,1,2\n")
    (folder / "edges.csv").write_text("source,target\na,b\n")


def test_a_name_wins_over_a_folder_and_a_separator_over_the_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tables(tmp_path / "cora")
    assert load("cora").num_nodes == 2708
    assert load("./cora").num_nodes == 2
    assert load(Path("cora")).num_nodes == 2
    assert load(tmp_path / "cora").name == "cora"


def test_the_seed_reaches_the_split(tmp_path):
    folder = tmp_path / "t"
    folder.mkdir()
    rows = "".join(f"{i},{i % 2},{i}\n" for i in range(40))
    (folder / "nodes.csv").write_text(f"id,label,x\n{rows}")
    (folder / "edges.csv").write_text("source,target\n0,1\n")
    assert load(folder).split.sizes() == {"train": 40, "val": 0, "test": 0}  # none is drawn
    assert load(folder, seed=0).split.description == "stratified 60/20/20, seed 0"
    assert load(folder, seed=3).split.sizes() == {"train": 24, "val": 8, "test": 8}
    assert load(folder, seed=0).split.train.tolist() != load(folder, seed=3).split.train.tolist()


def test_paths_that_hold_no_dataset(tmp_path):
    for name in ("transactions.csv", "customers.parquet", "note.txt"):
        (tmp_path / "shop").mkdir(exist_ok=True)
        (tmp_path / "shop" / name).touch()
    with pytest.raises(DatasetError, match=r"has customers\.parquet.* nodes= and edges="):
        load(tmp_path / "shop")
    (tmp_path / "shop" / "transactions.csv").write_text("source,target\n")
    for name in ("shpo", "shpo/nodes.csv"):
        with pytest.raises(DatasetError, match="Did you mean 'shop'"):
            load(tmp_path / name)
    (tmp_path / "shop" / "transactions.csv").rename(tmp_path / "shop" / "edges.csv")
    with pytest.raises(DatasetError, match=r"no nodes\.csv.*has customers\.parquet"):
        load(tmp_path / "shop")
    with pytest.raises(DatasetError, match=r"is not a dataset: it needs nodes\.csv"):
        load(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "nodes.csv").write_text("x,account,label\n7,A1,b\n8,A2,c\n,,\n")
    (tmp_path / "other" / "edges.csv").write_text("source,target\nA2,A1\nA1,A2\n")
    with pytest.raises(DatasetError, match=r"no column 'id'; .* column 'account'"):
        load(tmp_path / "other")
    for name in ("nodes.csv", "edges.csv"):
        with pytest.raises(DatasetError, match="is one of two tables; pass the folder"):
            load(tmp_path / "other" / name)
    with pytest.raises(DatasetError, match=r"no such path exists.* Did you mean 'other'"):
        load(tmp_path / "othr", edges="links.csv")
    (tmp_path / "data.docx").touch()
    with pytest.raises(DatasetError, match=r"has an unsupported format; use one of .*\.npz"):
        load(tmp_path / "data.docx")


@pytest.mark.parametrize("source", ["a" * 5000, "a/" * 5000, "a" * 300 + "/b", "a\0b"])
@pytest.mark.parametrize("read", [load, open_data])
def test_names_that_no_file_can_have(source, read):
    with pytest.raises(DatasetError, match=r"^dataset 'a.*' (cannot be read|is unknown)") as caught:
        read(source)
    assert len(str(caught.value)) < 500


@pytest.fixture(scope="module")
def script():
    return SimpleNamespace(**runpy.run_path(str(SCRIPT)))


@pytest.mark.skipif(not PLANETOID.is_dir(), reason="HOPLITE_PLANETOID is not set")
def test_the_build_script_writes_the_embedded_files(tmp_path, monkeypatch, script):
    arguments = ["build", "--planetoid", str(PLANETOID), "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", arguments)
    script.main()
    for name in EMBEDDED:
        assert (tmp_path / f"{name}.npz").read_bytes() == (
            script.TARGET / f"{name}.npz"
        ).read_bytes()


@pytest.mark.parametrize("value", [print, Path("x"), np.float64(1), {1}])
def test_the_build_script_unpickles_nothing_but_arrays(value, script):
    with pytest.raises(pickle.UnpicklingError, match="it asks for"):
        script.unpickle(pickle.dumps(value, 2))
