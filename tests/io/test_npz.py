"""Graphs as .npz files: round trip, same bytes, damage."""

from __future__ import annotations

import io
import json
import os
import struct
import tracemalloc
import zipfile
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from hoplite.errors import DatasetError
from hoplite.graph import Graph, Split
from hoplite.io import array_files, read_npz, write_npz
from hoplite.io.npz import read_meta


def same_graph(a: Graph, b: Graph) -> None:
    assert a.name == b.name
    assert (a.adjacency != b.adjacency).nnz == 0
    assert a.adjacency.dtype == b.adjacency.dtype
    assert type(a.features) is type(b.features)
    assert a.features.dtype == b.features.dtype
    assert a.features.shape == b.features.shape
    if sp.issparse(a.features):
        for part in ("data", "indices", "indptr"):
            np.testing.assert_array_equal(getattr(a.features, part), getattr(b.features, part))
    else:
        np.testing.assert_array_equal(a.features, b.features)
    np.testing.assert_array_equal(a.labels, b.labels)
    for part in ("train", "val", "test"):
        np.testing.assert_array_equal(getattr(a.split, part), getattr(b.split, part))
    assert (a.split.note, a.split.seed) == (b.split.note, b.split.seed)
    assert a.class_names == b.class_names
    assert a.feature_names == b.feature_names
    assert a.node_ids == b.node_ids


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    n, d = draw(st.integers(1, 12)), draw(st.integers(0, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    edges = rng.integers(0, n, (draw(st.integers(0, 30)), 2))
    weights = None
    if draw(st.booleans()):
        weights = (rng.random(len(edges)) + 0.1).astype(dtype)
    features = rng.integers(-2, 3, (n, d)).astype(dtype)
    if draw(st.booleans()):
        features *= rng.random((n, d)).astype(dtype)
    if draw(st.booleans()):
        features = sp.csr_array(features)
    text = st.text(max_size=4)
    names = draw(st.none() | st.lists(text, min_size=d, max_size=d).map(tuple))
    ids = draw(
        st.none()
        | st.lists(text, min_size=n, max_size=n, unique=True).map(tuple)
        | st.lists(st.integers(), min_size=n, max_size=n, unique=True).map(tuple)
    )
    return Graph.from_edges(
        edges,
        features,
        rng.integers(0, 3, n),
        weights=weights,
        split=Split(
            val=rng.permutation(n)[: n // 2], note=draw(text), seed=draw(st.none() | st.just(3))
        ),
        class_names=("a", "b\x00", "ü"),
        feature_names=names,
        node_ids=ids,
        name=draw(text),
    )


@given(graph=graphs())
@examples(60)
def test_round_trip_is_exact_and_bytes_are_the_same(graph, tmp_path_factory):
    folder = tmp_path_factory.getbasetemp()
    write_npz(folder / "a.npz", graph)
    again = read_npz(folder / "a.npz")
    same_graph(graph, again)
    write_npz(folder / "b.npz", again)
    assert (folder / "a.npz").read_bytes() == (folder / "b.npz").read_bytes()


def test_row_normalize_stores_counts_and_loads_shares(tmp_path):
    counts = np.array([[1, 3], [0, 0], [2, 2]], np.float32)
    for features in (counts, sp.csr_array(counts)):
        graph = Graph.from_edges([(0, 1)], features)
        write_npz(tmp_path / "g.npz", graph, row_normalize=True)
        loaded = read_npz(tmp_path / "g.npz").features
        loaded = loaded.toarray() if sp.issparse(loaded) else loaded
        np.testing.assert_array_equal(loaded, [[0.25, 0.75], [0, 0], [0.5, 0.5]])


@pytest.mark.parametrize("name", [True, np.False_, 0.5, None])
def test_ids_that_json_cannot_hold_are_refused_and_nothing_is_written(tmp_path, name):
    graph = Graph.from_edges([], [[1.0]], node_ids=[name])
    with pytest.raises(DatasetError, match=r"node_ids contains .* only strings and integers"):
        write_npz(tmp_path / "g.npz", graph)
    assert list(tmp_path.iterdir()) == []


def small_file(tmp_path):
    path = tmp_path / "g.npz"
    write_npz(path, Graph.from_edges([(0, 1), (1, 2)], np.eye(3), [0, 1, 0]))
    return path


@pytest.mark.parametrize(
    "changes",
    [
        {"labels": np.zeros(2, np.int8)},
        {"labels": np.array(["a", "b", "c"])},
        {"train": np.array([7], np.uint8)},
        {"edge_counts": np.array([9, 9, 9], np.uint8)},
        {"edge_counts": np.array([-1, 2, 1], np.int8)},
        {"edge_counts": np.array([1, 1], np.uint8)},
        {"edge_weights": np.array(-1, np.float32)},
        {"edge_weights": np.array([1, 2, 3], np.float32)},
        {"edge_weights": np.array("x")},
        {"features": np.full((3, 3), np.nan)},
        {"edge_steps": None},
        {"meta": np.frombuffer(b"[]", np.uint8)},
        {"meta": None},
    ],
)
def test_contradictions_are_damage(tmp_path, changes):
    path = small_file(tmp_path)
    with np.load(path) as archive:
        arrays = {**archive, **changes}
    np.savez(path, **{key: value for key, value in arrays.items() if value is not None})
    with pytest.raises(DatasetError, match="is not a valid graph file"):
        read_npz(path)


def test_foreign_files_are_refused(tmp_path):
    path = tmp_path / "g.npz"
    objects, plain = io.BytesIO(), io.BytesIO()
    np.savez(objects, meta=np.array([{"a": object()}], dtype=object))
    np.save(plain, np.arange(3))
    for content in (b"", b"hello", b"PK\x03\x04", plain.getvalue(), objects.getvalue()):
        path.write_bytes(content)
        with pytest.raises(DatasetError, match="is not a valid graph file"):
            read_npz(path)
    with pytest.raises(DatasetError, match="does not exist"):
        read_meta(tmp_path / "none.npz")
    os.mkfifo(tmp_path / "pipe.npz")
    with pytest.raises(DatasetError, match="it is not a regular file"):
        read_npz(tmp_path / "pipe.npz")


def with_meta(path, **changes):
    with np.load(path) as archive:
        arrays = dict(archive)
    meta = json.loads(arrays["meta"].tobytes()) | changes
    kept = {key: value for key, value in meta.items() if value != "gone"}
    arrays["meta"] = np.frombuffer(json.dumps(kept).encode(), np.uint8)
    np.savez(path, **arrays)


@pytest.mark.parametrize(
    "changes",
    [
        {"class_names": ["a", "a"]},
        {"class_names": [None, "b"]},
        {"class_names": "gone"},
        {"name": 3},
        {"nodes": -1},
        {"nodes": 10**18},
        {"version": 2},
        {"features": 10**11},
        {"features": "gone"},
        {"split": {"train": 1}, "row_normalize": "yes"},
        {"split_note": ["x"]},
        {"node_ids": {"a": 1}},
        {"node_ids": [[1], [2], [3]]},
        {"feature_names": [1.5, 2.5, 3.5]},
        {"split_seed": "x"},
    ],
    ids=str,
)
def test_descriptions_that_are_none(tmp_path, changes):
    path = small_file(tmp_path)
    with_meta(path, **changes)
    with pytest.raises(DatasetError, match="is not a valid graph file"):
        read_npz(path)


def replaced(path, name, content):
    """The archive with other bytes in a member."""
    with zipfile.ZipFile(path) as archive:
        members = {member: archive.read(member) for member in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, old in (members | {name: content}).items():
            archive.writestr(member, old if member != name else content)


def header(text: bytes) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


@pytest.mark.parametrize(
    "content",
    [
        header(b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000, 1000000), }"),
        header(b"{'descr': '<f8', 'fortran_order': False, 'shape': (0, 1000000000000), }"),
        header(b"{'descr': '<f8', 'fortran_order': False, 'shape': (3, -3), }"),
        header(b"{'descr': '<f8', 'fortran_order': False, 'shape': " + b"(" * 5000),
        header(b"{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (9,), }"),
        header(b"{'descr': '<f3', 'fortran_order': False, 'shape': (9,), }"),
        header(b"__import__('os').system('false')"),
        b"\x93NUMPY\x09\x00",
        b"",
    ],
)
def test_headers_that_numpy_does_not_write(tmp_path, content):
    path = small_file(tmp_path)
    replaced(path, "features.npy", content)
    with pytest.raises(DatasetError, match="is not a valid graph file"):
        read_npz(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_archives_that_are_traps(tmp_path, monkeypatch):
    path = small_file(tmp_path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("labels.npy", b"again")
    with pytest.raises(DatasetError, match="it has duplicate arrays"):
        read_npz(path)
    memory = SimpleNamespace(total=10**6)
    monkeypatch.setattr(array_files.psutil, "virtual_memory", lambda: memory)
    path = small_file(tmp_path)
    read_npz(path)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb.npy", bytes(10**6))
    with pytest.raises(DatasetError, match=r"unpacks to 1,00[0-9,]+ bytes, more than 1,000,000"):
        read_npz(path)


def test_no_more_is_unpacked_than_is_declared(tmp_path):
    """A member that declares 1 kB but unpacks to 100 MB."""
    path = small_file(tmp_path)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f8", "fortran_order": False, "shape": (3, 3)}
    )
    replaced(path, "features.npy", header.getvalue() + bytes(10**8))
    content = path.read_bytes()
    size = len(header.getvalue()) + 10**8
    path.write_bytes(content.replace(struct.pack("<L", size), struct.pack("<L", 200)))
    tracemalloc.start()
    with pytest.raises(DatasetError, match="is not a valid graph file"):
        read_npz(path)
    assert tracemalloc.get_traced_memory()[1] < 10**7
    tracemalloc.stop()
