"""Stores of untidy graphs: the same numbers as in memory, the same bytes from a cluster."""

import contextlib
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import untidy
from tests.dask_processes import Dask
from tests.examples import examples
from tests.store.conftest import all_bytes, in_memory

from hoplite.bases import EXAMPLES as BASES
from hoplite.engine.backend import has_native
from hoplite.operators import SYMMETRIC
from hoplite.store import building, cost, propagate
from hoplite.store.cluster import connect

pytestmark = [
    pytest.mark.skipif(not has_native(), reason="bits are the C++ core's promise"),
    pytest.mark.filterwarnings(untidy.UNTRAINED),
]
SETTINGS = st.fixed_dictionaries(
    {
        "hops": st.integers(0, 4),
        "operator": st.sampled_from(sorted(SYMMETRIC)),
        "basis": st.sampled_from(BASES),
    }
)
ROWS, COLUMNS = st.integers(1, 64), st.integers(1, 9)


@given(untidy.graphs(), SETTINGS, ROWS, COLUMNS, st.integers(1, 300), st.data())
@examples(10)
def test_any_cut_of_a_store_equals_memory(graph, settings, rows, columns, entries, data):
    order = st.lists(st.integers(0, graph.num_nodes - 1), max_size=20)
    nodes = np.array(data.draw(order), np.int64)
    low, high = sorted(data.draw(st.tuples(*[st.integers(0, graph.num_nodes)] * 2)))
    with untidy.folder() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost, "part_entries", lambda *_: entries)  # S goes by in ranges of rows
        untidy.cut_store(graph, Path(name, "s"), rows, columns, **settings)
        store = propagate(graph, Path(name, "s"), **settings)
        expected = in_memory(graph, settings["operator"], settings["basis"], settings["hops"])
        np.testing.assert_array_equal(store.read(0, graph.num_nodes), expected)
        np.testing.assert_array_equal(store.read(low, high), expected[:, low:high])
        np.testing.assert_array_equal(store.rows(nodes), expected[:, nodes])
        assert store.verify() == []


@pytest.fixture(scope="module")
def connected(tmp_path_factory):
    """One scheduler with two workers, and one connection to it, for all examples: a folder in
    which stores may be made on ``cluster="shared"``."""
    pytest.importorskip("distributed")
    cluster = Dask(tmp_path_factory.mktemp("dask"))
    cluster.worker()
    cluster.worker()
    cluster.wait_for(2)
    with (
        untidy.folder() as name,
        connect(cluster.address, name, 10**9) as workers,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(building, "connect", lambda *_: contextlib.nullcontext(workers))
        yield Path(name)
    cluster.close()


@given(graph=untidy.graphs(), settings=SETTINGS, rows=ROWS, columns=COLUMNS)
@examples(10)
def test_a_cluster_writes_the_same_bytes_as_one_process(connected, graph, settings, rows, columns):
    with tempfile.TemporaryDirectory(dir=connected) as name:
        alone, together = Path(name, "alone"), Path(name, "together")
        for out, cluster in ((alone, None), (together, "shared")):
            untidy.cut_store(graph, out, rows, columns, **settings)
            propagate(graph, out, cluster=cluster, **settings)
        assert all_bytes(alone) == all_bytes(together)
