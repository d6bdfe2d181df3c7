"""A real notebook: progress without widgets, HTML of the objects, and a figure of Plotly."""

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")
pytest.importorskip("plotly")

SET_UP = """
import warnings
import numpy as np
import hoplite
warnings.simplefilter("ignore", hoplite.HopliteWarning)
rng = np.random.default_rng(0)
labels = rng.integers(0, 3, 90)
graph = hoplite.Graph.from_edges(
    rng.integers(0, 80, (200, 2)), rng.standard_normal((90, 4)) + labels[:, None], labels,
    split=hoplite.Split(range(0, 90, 3), range(1, 90, 3), range(2, 90, 3)),
    class_names=["<img src=x onerror=alert(1)>", "b", "c"],
)
"""
CELLS = {
    "set up": SET_UP,
    "progress": "result = hoplite.train(graph, 'lgc', hops=2, epochs=20, progress=True)",
    "graph": "graph",
    "result": "result",
    "plot": "result.plot_history()",
    "confusion": "result.plot_confusion()",
}


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    book = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source) for source in CELLS.values()]
    )
    folder = str(tmp_path_factory.mktemp("notebook"))
    client = nbclient.NotebookClient(
        book, timeout=300, kernel_name="python3", resources={"metadata": {"path": folder}}
    )
    client.execute()
    return dict(zip(CELLS, book.cells, strict=True))


def data(cell):
    return [output.data for output in cell.outputs if "data" in output]


def test_a_bar_is_an_output_of_its_cell(cells):
    (shown,) = data(cells["progress"])
    assert "graph lgc, 1 seed" in shown["text/html"]
    assert "epoch 20" in shown["text/plain"]  # its last state
    assert not [o for o in cells["progress"].outputs if o.output_type == "stream"]


@pytest.mark.parametrize("name", ["graph", "result"])
def test_objects_are_shown_as_html(name, cells):
    (shown,) = data(cells[name])
    assert "<table>" in shown["text/html"]
    assert "<img" not in shown["text/html"]
    assert "\n" not in shown["text/plain"]  # the short repr


@pytest.mark.parametrize("name", ["plot", "confusion"])
def test_figures_show_themselves(name, cells):
    (shown,) = data(cells[name])
    figure = shown["application/vnd.plotly.v1+json"]
    assert figure["data"]
    assert "<img" not in str(figure)
