"""Folders and files that version 0.1.0 wrote (tests/earlier) are read, and mean the same."""

import csv
from pathlib import Path

import numpy as np
import pytest

import hoplite
from hoplite.io.disk_graph import DiskGraph

EARLIER = Path(__file__).parent / "earlier"
SGC = hoplite.TrainedModel.load(EARLIER / "models" / "sgc")
GRAPH = hoplite.load(EARLIER / "club", prepare=SGC)  # as they are: nothing is scaled
NAMES = sorted(path.stem for path in (EARLIER / "predictions").glob("*.csv"))


@pytest.mark.parametrize("name", NAMES)
def test_models_predict_what_they_predicted(name: str, tmp_path: Path) -> None:
    if name == "gat":
        pytest.importorskip("torch_geometric")
    model = hoplite.TrainedModel.load(EARLIER / "models" / name)
    text = (EARLIER / "predictions" / f"{name}.csv").read_text()
    rows = list(csv.DictReader(text.splitlines()))
    probabilities = model.predict_proba(GRAPH)
    assert [row["id"] for row in rows] == [str(one) for one in GRAPH.node_ids or ()]
    assert [row["predicted"] for row in rows] == [
        model.class_names[c] for c in probabilities.argmax(axis=1)
    ]
    wanted = [float(row["probability"]) for row in rows]
    np.testing.assert_allclose(probabilities.max(axis=1), wanted, rtol=1e-5)
    model.save(tmp_path / "again")
    again = hoplite.TrainedModel.load(tmp_path / "again")
    assert again.config == model.config
    np.testing.assert_array_equal(again.logits(GRAPH), model.logits(GRAPH))


def test_models_do_not_take_columns_that_are_scaled() -> None:
    with pytest.raises(hoplite.ModelFileError, match=r"'age' was prepared otherwise for club"):
        SGC.predict(hoplite.load(EARLIER / "club"))


def test_graphs_on_disk_are_read() -> None:
    with DiskGraph(EARLIER / "disk-graph") as graph:
        features = np.asarray(
            GRAPH.features.toarray()
            if not isinstance(GRAPH.features, np.ndarray)
            else GRAPH.features
        )
        np.testing.assert_array_equal(graph.feature_rows(0, 40), features)
        np.testing.assert_array_equal(graph.labels, GRAPH.labels)
        assert tuple(graph.node_ids or ()) == GRAPH.node_ids
