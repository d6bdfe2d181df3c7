"""What is on disk is what is in memory, to the bit, however it is cut."""

import numpy as np
import pytest

from hoplite import Graph
from hoplite.bases import EXAMPLES as BASES
from hoplite.engine.backend import has_native, use_threads
from hoplite.io.array_files import CsrFiles
from hoplite.operators import SYMMETRIC, find_operator
from hoplite.store import HopStore, propagate

pytestmark = pytest.mark.skipif(not has_native(), reason="bits are the C++ core's promise")
BOTH = pytest.mark.parametrize("basis", BASES)
ALL = pytest.mark.parametrize("operator", SYMMETRIC)


@ALL
@BOTH
@pytest.mark.parametrize("weighted", [True, False])
def test_operator_and_adjacency_equal_memory(
    graphs, tmp_path, monkeypatch, operator, basis, weighted
):
    graph = graphs(40, 3, dtype=np.float32, isolated=4)
    if not weighted:
        adjacency = (graph.adjacency != 0).astype(np.float32)
        graph = Graph(adjacency, graph.features, graph.labels, graph.split)
    monkeypatch.setattr("hoplite.store.cost.prepared_entries", lambda room: 6)
    store = propagate(graph, tmp_path / "s", hops=1, operator=operator, basis=basis)
    expected = find_operator(operator).matrix(graph, basis=basis)
    files = CsrFiles(store.data / "operator")
    found = files.read(0, 40)
    for part in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(found, part), getattr(expected, part))
    assert found.dtype == np.float32
    rows = store.adjacency_rows
    assert rows is not None
    assert rows.weighted == weighted
    np.testing.assert_array_equal(rows.read(3, 30).toarray(), graph.adjacency[3:30].toarray())


def test_threads_do_not_matter(graphs, stores, tmp_path):
    graph = graphs(2000, 40, density=0.05, dtype=np.float32)
    for threads in (1, 2, 8):
        with use_threads(threads):
            propagate(graph, tmp_path / str(threads), hops=2)
    one, *others = (stores.all_bytes(tmp_path / str(threads)) for threads in (1, 2, 8))
    assert others == [one, one]


def test_more_hops_are_added_and_fewer_are_there_already(graphs, stores, tmp_path):
    graph = graphs(20, 4, dtype=np.float32)
    propagate(graph, tmp_path / "s", hops=1, basis="chebyshev")
    first = (tmp_path / "s/v0/hops/h1/r000000-c0000.npy").stat().st_mtime_ns
    store = propagate(graph, tmp_path / "s", hops=4, basis="chebyshev")
    assert (tmp_path / "s/v0/hops/h1/r000000-c0000.npy").stat().st_mtime_ns == first
    expected = stores.in_memory(graph, basis="chebyshev", hops=4)
    assert np.array_equal(store.read(0, 20), expected)
    assert propagate(graph, tmp_path / "s", hops=2, basis="chebyshev").hops == 4


def test_edgeless_and_hopless(tmp_path):
    graph = Graph.from_edges(np.empty((0, 2), int), features=np.eye(3))
    store = propagate(graph, tmp_path / "a", hops=2, operator="adjacency")
    assert np.array_equal(store.read(0, 3)[1:], np.zeros((2, 3, 3)))
    assert propagate(graph, tmp_path / "b", hops=0).read(0, 3).shape == (1, 3, 3)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@BOTH
def test_half_precision_and_its_error(graphs, stores, tmp_path, dtype, basis):
    graph = graphs(50, 6, dtype=np.float32)
    settings = {"hops": 3, "dtype": dtype, "basis": basis}
    stores.cut(graph, tmp_path / "s", 16, 4, **settings)
    store = propagate(graph, tmp_path / "s", **settings)
    exact, kept = stores.in_memory(graph, basis=basis).astype(np.float64), store.read(0, 50)
    assert np.array_equal(kept[0], exact[0])  # X is never rounded
    unit = {"float16": 2**-11, "bfloat16": 2**-8}[dtype]
    assert np.all(np.abs(kept - exact) <= unit * np.abs(exact) + 2**-24)
    for record in store.errors():
        gap = (kept - exact)[record["hop"]]
        assert record["max_abs"] == np.abs(gap).max() > 0
        relative = np.linalg.norm(gap) / np.linalg.norm(exact[record["hop"]])
        assert record["relative"] == pytest.approx(relative, rel=1e-9)
    assert [record["hop"] for record in store.errors()] == [1, 2, 3]
    assert np.array_equal(store.rows([49, 0]), kept[:, [49, 0]])
    assert HopStore.open(tmp_path / "s").errors() == store.errors()
