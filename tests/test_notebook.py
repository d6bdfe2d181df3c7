"""A real notebook: progress without widgets, escaped HTML of the objects, and a Plotly figure."""

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")
pytest.importorskip("plotly")

GRAPH = """
import numpy as np
import hoplite
rng = np.random.default_rng(0)
labels = rng.integers(0, 3, 90)
graph = hoplite.Graph.from_edges(
    rng.integers(0, 80, (200, 2)), rng.standard_normal((90, 4)) + labels[:, None], labels,
    split=hoplite.Split(range(0, 90, 3), range(1, 90, 3), range(2, 90, 3)),
    class_names=["<img src=x onerror=alert(1)>", "b", "c"],
)
graph
"""
TRAIN = "result = hoplite.train(graph, 'lgc', hops=2, epochs=20, progress=True)"


def test_a_notebook_shows_progress_objects_and_figures(tmp_path):
    sources = [GRAPH, TRAIN, "result", "result.plot_confusion()"]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(s) for s in sources])
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(book, timeout=600, kernel_name="python3", resources=resources).execute()
    outputs = [[o.data for o in cell.outputs if "data" in o] for cell in book.cells]
    (graph,), (progress,), (result,), (figure,) = outputs
    assert "graph lgc, 1 seed" in progress["text/html"]
    assert "epoch 20" in progress["text/plain"]  # its last state
    assert not [o for o in book.cells[1].outputs if o.output_type == "stream"]
    for html in (graph["text/html"], result["text/html"]):
        assert "<table>" in html
        assert "<img" not in html
    assert figure["application/vnd.plotly.v1+json"]["data"]
    assert "<img" not in str(figure["application/vnd.plotly.v1+json"])
