"""A store to which nodes and edges are added is the store of the grown graph, byte for byte."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.untidy import SEEDS, cut_store, folder

import hoplite
from hoplite import Graph, HopStore, Split, propagate, update_store
from hoplite.bases import EXAMPLES
from hoplite.errors import ConfigError, DatasetError, HopliteWarning, StoreError
from hoplite.operators import SYMMETRIC
from hoplite.store import growth
from hoplite.store.building import run_panel

FEATURES = ("p", "q", "r")


def ring(rng: np.random.Generator, n: int, *, weighted: bool, ids: str | None) -> Graph:
    """Nodes numbered at random on a ring, joined to some near ones, some to none; scattered splits,
    uneven classes, weights over magnitudes."""
    order = rng.permutation(n)
    left = np.repeat(np.arange(n), 3)
    right = (left + rng.integers(1, 4, len(left))) % n
    kept = (rng.random(len(left)) < 0.7) & (left % 9 != 4) & (right % 9 != 4)
    edges = order[np.column_stack([left, right])[kept]]
    labels = np.where(rng.random(n) < 0.5, rng.choice(3, n, p=[0.6, 0.3, 0.1]), -1)
    known = rng.permutation(np.flatnonzero(labels >= 0))
    labels[known[:3]] = [0, 1, 2]
    names = {"text": [f"ü{i}" for i in order], "integers": (7 * order - 3).tolist(), None: None}
    return Graph.from_edges(
        edges,
        rng.standard_normal((n, len(FEATURES))).astype(np.float32),
        labels,
        weights=10.0 ** rng.uniform(-2, 2, len(edges)) if weighted else None,
        split=Split(known[: len(known) // 2], known[len(known) // 2 :][:3]),
        class_names=["rare", "b", "Ü"],
        feature_names=FEATURES,
        node_ids=names[ids],
    )


def arrivals(rng, graph, *, weighted, ids, among):
    """Some nodes and edges that arrive around ``among``; one of the nodes is isolated."""
    m = int(rng.integers(0, 6))
    old = list(range(graph.num_nodes)) if graph.node_ids is None else list(graph.node_ids)
    new = [f"new {i}" if ids == "text" else 10**6 + i for i in range(m)]
    near, some = [old[i] for i in among], new[: max(m - 1, 0)]
    ends = [(a, near[rng.integers(len(near))]) for a in some for _ in range(2)]
    ends += [tuple(near[i] for i in rng.integers(0, len(near), 2)) for _ in range(3)]
    ends += ends[:2] + [(b, a) for a, b in ends[-2:]] + [(ends[0][0], ends[0][0])]
    cells = rng.standard_normal((m, len(FEATURES)))
    columns = {name: cells[:, j] for j, name in reversed([*enumerate(FEATURES)])}
    nodes = pa.table({"id": new, **columns}) if m else None
    edges = {name: [str(end[i]) for end in ends] for i, name in enumerate(("source", "target"))}
    if weighted:
        edges["weight"] = rng.uniform(0.1, 9, len(ends))
    return nodes, pa.table(edges)


def content(place: Path) -> dict[str, bytes]:
    """Every file of the valid version; of the manifest, all but what was added."""
    store = HopStore.open(place)
    assert [path.name for path in place.glob("v*")] == [store.manifest.data]
    files = (path for path in store.data.rglob("*") if path.is_file())
    found = {str(path.relative_to(store.data)): path.read_bytes() for path in files}
    return found | {"": repr(dataclasses.replace(store.manifest, added=(), version=0)).encode()}


def grown_and_made(place, graph, new, rows, columns, **settings):
    """The content of a store that was updated, and of one of the grown graph, cut alike."""
    cut_store(graph, place / "grown", rows, columns, **settings)
    propagate(graph, place / "grown", **settings)
    store = update_store(new, place / "grown")
    assert store.verify() == []
    after = hoplite.io.extend(graph, new)
    cut_store(after, place / "made", rows, columns, **settings)
    propagate(after, place / "made", **settings)
    return content(place / "grown"), content(place / "made")


def computed(monkeypatch) -> list[str]:
    """Which way every update takes, a panel each."""
    found: list[str] = []
    compute = growth._Update._compute

    def some(*arguments):
        found.append("some rows")
        compute(*arguments)

    def all_rows(*arguments):
        found.append("all rows")
        run_panel(*arguments)

    monkeypatch.setattr(growth._Update, "_compute", some)
    monkeypatch.setattr(growth, "run_panel", all_rows)
    return found


@given(
    seed=SEEDS,
    basis=st.sampled_from(EXAMPLES),
    operator=st.sampled_from(sorted(SYMMETRIC)),
    hops=st.integers(0, 4),
    weighted=st.booleans(),
    ids=st.sampled_from(["text", "integers", None]),
    local=st.booleans(),
    dtype=st.sampled_from(["float32", "float32", "float32", "bfloat16"]),
)
@examples(12)
def test_grown_is_made(seed, basis, operator, hops, weighted, ids, local, dtype):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(60, 200))
    graph = ring(rng, n, weighted=weighted, ids=ids)
    among = rng.permutation(n)[:4] if not local else _region(graph, rng)
    new = arrivals(rng, graph, weighted=weighted, ids=ids, among=among)
    settings = {"basis": basis, "operator": operator, "hops": hops, "dtype": dtype}
    with folder() as name, warnings.catch_warnings():
        rows, columns = int(rng.integers(1, n)), int(rng.integers(1, 4))
        grown, made = grown_and_made(Path(name), graph, new, rows, columns, **settings)
        assert grown.keys() == made.keys()
        assert [name for name in made if made[name] != grown[name]] == []


def _region(graph: Graph, rng: np.random.Generator) -> np.ndarray:
    """A node with an edge, and its neighbours."""
    linked = np.flatnonzero(np.diff(graph.adjacency.indptr))
    node = rng.choice(linked)
    return np.append(graph.adjacency[[node]].indices, node)


@pytest.fixture
def local_case(tmp_path, monkeypatch):
    """A ring on which arrivals change little, and what is to be compared."""
    rng = np.random.default_rng(5)
    graph = ring(rng, 200, weighted=True, ids="text")
    new = arrivals(rng, graph, weighted=True, ids="text", among=_region(graph, rng))
    assert new[0] is not None
    ways = computed(monkeypatch)

    def compare(**settings):
        found = grown_and_made(tmp_path, graph, new, 60, 2, **{"hops": 3, **settings})
        return ways, *found

    return compare


@pytest.mark.parametrize("operator", SYMMETRIC)
@pytest.mark.parametrize("basis", EXAMPLES)
def test_few_rows_are_computed(local_case, basis, operator):
    ways, grown, made = local_case(basis=basis, operator=operator)
    assert ways == ["some rows"] * 2
    assert grown == made


def test_without_memory_for_the_short_way(local_case, monkeypatch):
    monkeypatch.setattr(growth, "ENTRY_BYTES", 10**12)
    ways, grown, made = local_case()
    assert ways == ["all rows"] * 2
    assert grown == made


def small_store(place, **options):
    graph = Graph.from_edges([(0, 1), (1, 2)], np.eye(4)[:, :3], feature_names=FEATURES, **options)
    return graph, propagate(graph, place, hops=2)


def node(name="x", **others):
    return pa.table({"id": [name], "p": [1.0], "q": [2.0], "r": [3.0], **others})


def edge(*ends, **others):
    source, target = zip(*ends, strict=True)
    return pa.table({"source": list(map(str, source)), "target": list(map(str, target)), **others})


def test_twice_is_once(tmp_path):
    """The same tables again are none: a command that is repeated adds no weight twice."""
    small_store(tmp_path / "s")
    weights = (None, edge((0, 2), weight=[2.0]))
    first = content(update_store(weights, tmp_path / "s").folder)
    assert content(update_store(weights, tmp_path / "s").folder) == first
    second = update_store((node(), edge(("x", 2), weight=[1.0])), tmp_path / "s")
    assert len(second.manifest.added) == 2
    rows, ids = second.adjacency_rows, second.node_ids
    assert ids is not None
    assert rows is not None
    assert ids[-1] == "x"
    dense = rows.read(0, 5).toarray()
    assert dense[[0, 1, 2, 2], [2, 2, 1, 4]].tolist() == [2, 1, 1, 1]


def test_a_store_that_is_open_while_it_grows(tmp_path, monkeypatch):
    """It never mixes rows of both; more hops change nothing of the others."""
    graph, store = small_store(tmp_path / "s")
    before = store.read(0, 4)
    more = propagate(graph, tmp_path / "s", hops=3)
    np.testing.assert_array_equal(store.read(0, 4), before)
    np.testing.assert_array_equal(more.rows([3, 0], [1]), before[1:2, [3, 0]])
    with monkeypatch.context() as patched:  # killed before the old version is removed
        patched.setattr("hoplite.store.growth.shutil.rmtree", lambda *_, **__: None)
        update_store((None, edge((0, 2))), tmp_path / "s")
    np.testing.assert_array_equal(store.read(0, 4), before)
    assert (HopStore.open(store.folder).read(0, 4, [1]) != before[1]).any()
    update_store((None, edge((0, 3))), tmp_path / "s")
    for ask in (lambda: store.read(0, 1), lambda: more.rows([1])):
        with pytest.raises(StoreError, match="open it again"):
            ask()


def test_nothing_new_leaves_the_store_as_it_was(tmp_path):
    """Of tables whose edges are all dropped nothing was added, so they may be added later."""
    small_store(tmp_path / "s")
    before, new = content(tmp_path / "s"), (None, edge((0, "x")))
    update_store((None, new[1].slice(1)), tmp_path / "s")
    with pytest.warns(HopliteWarning, match="1 of 1 edge .* are dropped"):
        update_store(new, tmp_path / "s", unknown_nodes="drop")
    assert content(tmp_path / "s") == before
    assert not HopStore.open(tmp_path / "s").manifest.added
    update_store((node(), new[1]), tmp_path / "s")
    assert HopStore.open(tmp_path / "s").num_nodes == 5


def test_more_hops_from_the_grown_graph(tmp_path):
    graph, _ = small_store(tmp_path / "s")
    new = node(), edge(("x", 2))
    update_store(new, tmp_path / "s")
    after = hoplite.io.extend(graph, new)
    store = propagate(after, tmp_path / "s", hops=3)
    assert store.verify() == []
    assert len(store.manifest.added) == 1
    assert np.array_equal(store.read(0, 5), propagate(after, tmp_path / "t", hops=3).read(0, 5))


def test_labels_and_split_of_new_nodes(tmp_path):
    split = Split(np.array([0]), np.array([1]))
    small_store(tmp_path / "s", labels=[0, 0, -1, -1], class_names=["a"], split=split)
    new = node(label=["a"], split=["test"])
    store = update_store((new, None), tmp_path / "s")
    assert store.labels.tolist() == [0, 0, -1, -1, 0]
    parts = store.split.train, store.split.val, store.split.test
    assert [part.tolist() for part in parts] == [[0], [1], [4]]


@pytest.mark.parametrize(
    ("new", "sentence"),
    [
        ((node("2"), None), "has the id '2' in data row 1, which is already a node"),
        ((node(), edge(("x", "y"))), "'y'"),
        ((node().drop(["q"]), None), "has no feature 'q', which graph has"),
        (None, "new has type NoneType; pass a folder of tables, or a pair"),
    ],
)
def test_refused_and_left_as_it_was(tmp_path, new, sentence):
    small_store(tmp_path / "s")
    before = content(tmp_path / "s")
    with pytest.raises((DatasetError, ConfigError), match=sentence):
        update_store(new, tmp_path / "s")
    assert content(tmp_path / "s") == before


def test_stores_that_cannot_grow(tmp_path):
    with pytest.raises(StoreError, match="is not a hop store"):
        update_store((node(), None), tmp_path / "none")
    assert not (tmp_path / "none").exists()
    _, store = small_store(tmp_path / "s")
    (store.data / "hops" / "h1" / "r000000-c0000.npy").unlink()
    with pytest.raises(StoreError, match="is missing"):
        update_store((node(), None), store.folder)
    names = (*FEATURES, "degree", "log degree", "vector 1")
    graph = Graph.from_edges([(0, 1)], np.eye(6), feature_names=names)
    propagate(graph, tmp_path / "t", hops=1)
    with pytest.raises(StoreError, match="has structural features"):
        update_store((node(), None), tmp_path / "t")


def test_damage_is_not_spread(tmp_path):
    _, store = small_store(tmp_path / "s")
    block = store.data / "hops" / "h0" / "r000000-c0000.npy"
    data = bytearray(block.read_bytes())
    data[-2] ^= 1
    block.write_bytes(data)
    with pytest.raises(StoreError, match="does not contain the data that was written"):
        update_store((node(), None), store.folder)
