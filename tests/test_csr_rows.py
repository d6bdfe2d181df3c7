"""Rows from files are checked before anything computes with them: damage ends in a sentence."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from hoplite.csr import adjacency_digest
from hoplite.errors import DatasetError
from hoplite.io.array_files import CSR_ARRAYS
from hoplite.io.disk_graph import DiskGraph, write_disk_graph
from hoplite.operators import OPERATORS, find_operator
from hoplite.store import propagate

NUMBERS = [-(2**63), -(2**31), -1, 0, 1, 39, 40, 41, 10**6, 2**31 - 1, 2**31, 2**62]
KINDS = [
    np.int8,
    np.int32,
    np.int64,
    np.uint64,
    np.float32,
    np.float64,
    np.bool_,
    ">i4",
    ">i8",
    "U3",
]


@pytest.fixture(scope="module")
def kept(graphs, tmp_path_factory):
    """A graph on disk with isolated nodes and weights, and a store of it, to be copied."""
    graph, folder = graphs(40, 5, dtype=np.float32), tmp_path_factory.mktemp("kept")
    write_disk_graph(graph, folder / "graph")
    propagate(graph, folder / "store", hops=2)
    return folder


@st.composite
def damages(draw):
    """The name of a part and a function from its array to the damaged one."""
    part = draw(st.sampled_from(CSR_ARRAYS))
    what = draw(st.sampled_from(["numbers", "kind", "longer", "shorter", "column", "order"]))
    places = draw(st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=3))
    number, kind = draw(st.sampled_from(NUMBERS)), draw(st.sampled_from(KINDS))

    def damage(array):
        if what == "numbers":
            array = array.astype(np.int64 if array.dtype.kind == "i" else array.dtype)
            array[[int(place * len(array)) for place in places]] = number
            return array
        if what == "kind":
            return array.astype(kind)
        if what == "longer":
            return np.concatenate([array, array[:3]])
        if what == "shorter":
            return array[: int(places[0] * len(array))]
        if what == "column":
            return array.reshape(-1, 1)
        return array[::-1].copy()

    return part, damage


def change(folder, part, damage):
    """Write the damaged array, in the narrow type of the file if it still fits there."""
    path = folder / f"{part}.npy"
    before = np.load(path)
    with np.errstate(all="ignore"):
        after = damage(before)
        narrow = after.astype(before.dtype) if after.dtype.kind == before.dtype.kind else after
    np.save(path, narrow if np.array_equal(narrow, after) else after)


@examples(80)
@given(damage=damages(), most=st.integers(1, 200), operator=st.sampled_from(sorted(OPERATORS)))
def test_a_damaged_graph_on_disk(kept, tmp_path_factory, damage, most, operator):
    folder = tmp_path_factory.mktemp("d") / "graph"
    shutil.copytree(kept / "graph", folder)
    change(folder, *damage)
    try:
        graph = DiskGraph(folder)
        adjacency_digest(graph.adjacency_rows)
        for start, rows in find_operator(operator).rows(graph.adjacency_rows, np.float32, most):
            assert start + rows.shape[0] <= 40
        sentence = None
    except DatasetError as error:
        sentence = str(error)
    shutil.rmtree(folder)
    assert sentence is None or "is not a complete graph on disk" in sentence
