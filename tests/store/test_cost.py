"""The cost model against stores that were really made; time is for the benchmarks."""

import numpy as np
import pytest

from benchmarks.child import ask
from hoplite import Graph
from hoplite.io.disk_graph import write_disk_graph
from hoplite.store.cost import cost

NODES = 30_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    rng = np.random.default_rng(0)
    graph = Graph.from_edges(
        rng.integers(0, NODES, (900_000, 2)),
        features=rng.standard_normal((NODES, 200), np.float32),
    )
    place = tmp_path_factory.mktemp("cost") / "graph"
    write_disk_graph(graph, place)
    return place, graph.adjacency.nnz


@pytest.mark.usefixtures("without_pandas")
def test_bytes_in_panels(folder, tmp_path):
    (place, entries), memory = folder, 210 * 10**6
    expected = cost(NODES, entries, 200, 3, memory)
    assert expected.panels > 1
    found = ask(
        "store", folder=str(place), out=str(tmp_path / "s"), hops=3, memory=memory, threads=1
    )
    files = sum(path.stat().st_size for path in (tmp_path / "s").rglob("*") if path.is_file())
    assert files == pytest.approx(expected.files, rel=0.05)
    assert found["written"] == pytest.approx(expected.written, rel=0.05)
    assert found["panels"] == expected.panels
    assert found["read"] == pytest.approx(expected.read, rel=0.05)
