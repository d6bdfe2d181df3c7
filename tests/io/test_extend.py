"""Nodes that arrive later are predicted as if their tables and the old ones had always been one."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import csv, parquet
from tests.commands import hoplite as command
from tests.examples import examples
from tests.untidy import SEEDS, folder

import hoplite
from hoplite import ConfigError, DatasetError, Graph, HopliteWarning, Split
from hoplite.io import write_npz
from hoplite.store.opening import open_extended

TRAINING = {"hops": 2, "epochs": 3, "bias": True, "dropout": 0.0}


def write(place: Path, nodes: pa.Table | None, edges: pa.Table | None, kind: str = "csv") -> Path:
    place.mkdir()
    for stem, table in (("nodes", nodes), ("edges", edges)):
        if table is not None and kind == "csv":
            csv.write_csv(table, place / f"{stem}.csv")
        elif table is not None:
            parquet.write_table(table, place / f"{stem}.parquet")
    return place


def untidy_tables(seed: int, *, weighted: bool = True, integers: bool = False):
    """Old and new nodes and edges: unsorted ids, gaps, dates, text, a new value of it, isolated
    nodes, edges among old nodes that repeat others, also in the other direction."""
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(12, 40)), int(rng.integers(1, 9))
    numbers = rng.permutation(10 * (n + m))[: n + m]
    ids = numbers.tolist() if integers else [f"ü{i} " for i in numbers]
    town = rng.choice(["Ulm", "Bonn", "Köln"], n + m).tolist()
    town[n] = "Rome"  # which no old node has
    days = rng.integers(0, 9999, n + m)
    nodes = pa.table(
        {
            "age": [
                None if i % 7 == 3 else float(x) for i, x in enumerate(rng.normal(40, 9, n + m))
            ],
            "town": [None if i % 11 == 5 else t for i, t in enumerate(town)],
            "label": ["xy"[i % 2] if i % 5 else None for i in range(n)] + [None] * m,
            "id": ids,
            "since": pa.array(days, pa.int32()).cast(pa.date32()),
        }
    )
    before = rng.integers(0, n - 2, (3 * n, 2))
    after = np.concatenate(
        [
            np.column_stack([rng.integers(n, n + m, 2 * m), rng.integers(0, n + m, 2 * m)]),
            rng.integers(0, n, (3, 2)),
            before[:3, ::-1],
            before[3:6],
        ]
    )
    after = after[(after != n + m - 1).all(axis=1)]  # the last new node is isolated

    def edges(pairs):
        columns = {"target": [ids[b] for _, b in pairs], "source": [ids[a] for a, _ in pairs]}
        return pa.table(
            columns | ({"weight": rng.uniform(0.1, 30, len(pairs))} if weighted else {})
        )

    return nodes, n, edges(before), edges(after)


@given(
    seed=SEEDS, weighted=st.booleans(), integers=st.booleans(), kind=st.sampled_from(["csv", "pq"])
)
@examples(8)
def test_new_nodes_are_those_of_the_merged_tables(seed, weighted, integers, kind):
    nodes, n, before, after = untidy_tables(seed, weighted=weighted, integers=integers)
    with folder() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore", HopliteWarning)
        place = Path(name)
        old = write(place / "old", nodes[:n], before, kind)
        new = write(place / "new", nodes[n:].drop(["label"]), after, "csv")
        merged = write(place / "merged", nodes, pa.concat_tables([before, after]), kind)
        model = hoplite.train(hoplite.load(old), "lgc", **TRAINING).model
        expected = hoplite.load(merged, prepare=model)
        found, named = open_extended(old, new, prepare=model)
        assert named.tolist() == list(range(n, len(nodes)))
        assert found.node_ids == expected.node_ids
        assert abs(found.adjacency - expected.adjacency).max() <= 1e-5
        assert np.array_equal(found.adjacency.indices, expected.adjacency.indices)
        assert np.array_equal(
            found.feature_rows(0, len(nodes)), expected.feature_rows(0, len(nodes))
        )
        assert np.array_equal(found.labels, expected.labels)
        np.testing.assert_allclose(model.logits(found), model.logits(expected), atol=1e-5)
        # the old nodes keep their split: a new one is in it only if the table says so
        assert found.split.sizes() == hoplite.load(old, prepare=model).split.sizes()


@pytest.mark.parametrize("options", [{"directed": True}, {"type": "kind"}])
@pytest.mark.filterwarnings("ignore::hoplite.HopliteWarning")
def test_directions_and_types_of_new_edges(tmp_path, options):
    nodes, n, before, after = untidy_tables(7)
    kinds = [pa.array(np.arange(len(edges)) % 3).cast(pa.string()) for edges in (before, after)]
    before, after = (
        edges.append_column("kind", kind)
        for edges, kind in zip((before, after), kinds, strict=True)
    )
    old = write(tmp_path / "old", nodes[:n], before)
    new = write(tmp_path / "new", nodes[n:], after)
    write(tmp_path / "merged", nodes, pa.concat_tables([before, after]))
    graph = hoplite.load(old, **options)
    model = hoplite.train(graph, "lgc", **TRAINING).model
    expected = hoplite.load(tmp_path / "merged", prepare=model)
    found, _ = open_extended(old, new, prepare=model)
    assert len(found.relations) == len(expected.relations) > 0
    np.testing.assert_allclose(model.logits(found), model.logits(expected), atol=1e-5)
    half = len(after) // 2
    parts = [(nodes[n:], None), (None, after[:half]), (None, after[half:])]
    parts = [write(tmp_path / str(i), *pair) for i, pair in enumerate(parts)]
    found, named = open_extended(old, *parts, prepare=model)
    assert set(range(n, len(nodes))) <= {*named.tolist()}
    np.testing.assert_allclose(model.logits(found), model.logits(expected), atol=1e-5)
    with pytest.raises(ConfigError, match="adding nodes without its tables does not support"):
        hoplite.io.extend(graph, new)


@pytest.fixture(scope="module")
def bank(tmp_path_factory):
    """Old and new tables, all of them in one folder, and a model of the old ones."""
    place = tmp_path_factory.mktemp("bank")
    nodes, n, before, after = untidy_tables(4)
    write(place / "old", nodes[:n], before)
    write(place / "new", nodes[n:].drop(["label"]), after)
    write(place / "merged", nodes, pa.concat_tables([before, after]))
    hoplite.train(hoplite.load(place / "old"), "lgc", **TRAINING).model.save(place / "model")
    return place, nodes, n, before, after


def table(path):
    found = csv.read_csv(path)
    return {row["id"]: row for row in found.to_pylist()}


@pytest.mark.filterwarnings("ignore::hoplite.HopliteWarning")
def test_command(bank, tmp_path):
    place, nodes, n, _, _ = bank
    words = ("predict", place / "model", place / "old", "--add", place / "new", "--out")
    done = command(*words, tmp_path / "new.csv")
    assert done.returncode == 0, done.stderr
    assert "--all" in done.stdout
    assert command("predict", place / "model", place / "merged", "--out", tmp_path / "m.csv")
    expected, found = table(tmp_path / "m.csv"), table(tmp_path / "new.csv")
    assert list(found) == [name.strip() for name in nodes["id"].to_pylist()[n:]]
    for name, row in found.items():
        assert row["predicted"] == expected[name]["predicted"]
        assert row["probability"] == pytest.approx(expected[name]["probability"], abs=1e-5)
    summary = json.loads(command(*words, tmp_path / "all.csv", "--all", "--json").stdout)
    assert summary["nodes"] == len(nodes)
    assert list(table(tmp_path / "all.csv")) == list(expected)


def new_tables(nodes=None, edges=None):
    if nodes is not None:
        nodes = pa.table({"id": ["p"], "age": [1.0], "town": ["a"], **nodes})
        nodes = nodes.select([name for name in nodes.column_names if nodes[name][0].is_valid])
    return nodes, None if edges is None else pa.table(edges)


@pytest.mark.parametrize(
    ("nodes", "edges", "sentence"),
    [
        ({"id": ["b"]}, None, "nodes has the id 'b' in data row 1, which is already a node"),
        ({"age": pa.nulls(1)}, None, "nodes has no column 'age' (a number), which the model was"),
        ({"id": pa.nulls(1)}, None, "nodes has no column 'id'"),
        ({"age": ["old"]}, None, "'old'"),
        ({}, {"source": ["p"], "target": ["q"], "weight": [1]}, "'q'"),
        (
            {},
            {"source": ["p"], "target": ["a"]},
            "edges has no column 'weight', but graph has edge weights",
        ),
        (
            {},
            {"source": ["p"], "target": ["a"], "weight": [np.nan]},
            "column 'weight' of edges has",
        ),
        ({"label": ["x"], "split": ["trian"]}, None, "it must be train, val, test or empty"),
        ({"split": ["train"], "label": pa.nulls(1)}, None, None),
        (None, None, "new has type tuple; pass a folder of tables, or a pair"),
    ],
)
def test_what_does_not_fit_is_one_sentence(nodes, edges, sentence):
    old = pa.table({"id": ["a", "b"], "age": [1.0, 2.0], "town": ["a", "b"], "label": ["x", "y"]})
    graph = hoplite.io.from_frames(
        old, pa.table({"source": ["a"], "target": ["b"], "weight": [2.5]})
    )
    if sentence is None:
        assert (
            hoplite.io.extend(graph, new_tables(nodes, edges)).split.sizes() == graph.split.sizes()
        )
        return
    with pytest.raises((DatasetError, ConfigError)) as caught:
        hoplite.io.extend(graph, new_tables(nodes, edges))
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("ignore::hoplite.HopliteWarning")
def test_nodes_that_only_edges_name(bank, tmp_path):
    place, nodes, n, before, after = bank
    more = pa.table({"source": ["ghost", "ghost"], "target": [nodes["id"][0], nodes["id"][n]]})
    more = more.append_column("weight", pa.array([1.0, 2.0]))
    new = write(
        tmp_path / "new", nodes[n:], pa.concat_tables([after.select(more.column_names), more])
    )
    merged = pa.concat_tables([before, after]).select(more.column_names)
    write(tmp_path / "merged", nodes, pa.concat_tables([merged, more]))
    with pytest.raises(DatasetError, match="'ghost'"):
        open_extended(place / "old", new)
    model = hoplite.TrainedModel.load(place / "model")
    for what, nodes_then in (("drop", len(nodes)), ("create", len(nodes) + 1)):
        found, _ = open_extended(place / "old", new, prepare=model, unknown_nodes=what)
        expected = hoplite.load(tmp_path / "merged", prepare=model, unknown_nodes=what)
        assert found.node_ids == expected.node_ids
        assert found.num_nodes == nodes_then
        np.testing.assert_allclose(model.logits(found), model.logits(expected), atol=1e-5)


@pytest.mark.filterwarnings("ignore::hoplite.HopliteWarning")
def test_a_model_drops_most_edges_only_if_this_call_asks_for_it():
    frame, drop = hoplite.io.from_frames, {"unknown_nodes": "drop"}
    old = pa.table({"source": [1, 2], "target": [2, 9]})
    graph = frame(pa.table({"id": [1, 2], "age": [1.0, 2.0]}), old, **drop)
    new = pa.table({"id": [4], "age": [3.0]}), pa.table({"source": [4, 4], "target": [1, 2]})
    with pytest.raises(DatasetError, match=r"2 of 2 edges .*extend"):
        frame(*new, prepare=graph)
    assert frame(*new, prepare=graph, **drop).num_edges == 0
    assert hoplite.io.extend(graph, new).num_edges == 3


@pytest.mark.filterwarnings("ignore::hoplite.HopliteWarning")
@pytest.mark.parametrize("folders", [True, False])
def test_edges_alone_create_the_nodes_that_they_name(tmp_path, folders):
    nodes = pa.table({"id": [1, 2, 3], "age": [3.0, None, 5.0], "town": ["Ulm", "Bonn", "Ulm"]})
    nodes = nodes.append_column("at", pa.array([[0.5, 1.0], [1.0, 2.0], [3.0, 3.0]]))
    before, more = ({"source": [1, a], "target": [2, b]} for a, b in ((2, 3), (9, 8)))
    graph = hoplite.io.from_frames(nodes, pa.table(before))
    both = {end: before[end] + more[end] for end in before}
    expected = hoplite.io.from_frames(nodes, pa.table(both), prepare=graph, unknown_nodes="create")
    new = (None, pa.table(more))
    found = hoplite.io.extend(
        graph, write(tmp_path / "new", *new) if folders else new, unknown_nodes="create"
    )
    assert found.node_ids == expected.node_ids == (1, 2, 3, 8, 9)
    assert np.array_equal(found.features, expected.features)
    assert np.array_equal(found.adjacency.toarray(), expected.adjacency.toarray())


def test_graphs_that_no_table_made(tmp_path):
    """Features by name, in any order, as they are; without ids the nodes' numbers are theirs."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(9, 3)).astype(np.float32)
    graph = Graph.from_edges(
        rng.integers(0, 9, (12, 2)),
        features,
        [0, 1, 0, -1, 1, 0, 0, 1, 0],
        split=Split(np.array([0, 1]), np.array([2])),
        feature_names=["p", "q", "r"],
    )
    new = pa.table({"q": [2.0], "r": [3.0], "id": [17], "p": [1.0]})
    edges = pa.table({"source": [17, 3], "target": [8, 4]})
    write_npz(tmp_path / "g.npz", graph)
    found = hoplite.io.extend(hoplite.load(tmp_path / "g.npz"), (new, edges))
    assert found.node_ids == (*range(9), 17)
    assert found.features[-1].tolist() == [1, 2, 3]
    assert np.array_equal(found.features[:9], features)
    dense = np.pad(graph.adjacency.toarray(), (0, 1))
    dense[9, 8] = dense[8, 9] = dense[3, 4] = dense[4, 3] = 1
    assert np.array_equal(found.adjacency.toarray(), dense)
    with pytest.raises(DatasetError, match="has no feature 'r', which graph has"):
        hoplite.io.extend(graph, (new.drop(["r"]), edges))
    with pytest.raises(DatasetError, match="has 2 features, but graph has 3"):
        hoplite.io.extend(graph.with_features(features), (new.drop(["r"]), edges))
    text = hoplite.io.extend(found, (new.set_column(2, "id", pa.array(["x"])), None))
    assert text.node_ids == (*map(str, range(9)), "17", "x")


def test_structural_features_are_those_of_the_grown_graph(tmp_path):
    rng = np.random.default_rng(1)
    pairs = rng.integers(0, 30, (80, 2))

    def edges(part):
        return pa.table({"source": part[:, 0], "target": part[:, 1]})

    for name, some in (("old", 28), ("all", 31)):
        nodes = pa.table({"id": np.arange(some), "age": np.arange(some) % 4})
        write(tmp_path / name, nodes, edges(pairs[(pairs < some).all(axis=1)]))
    graph = hoplite.load(tmp_path / "old", structural=3)
    new = pa.table({"id": [28, 29, 30], "age": [0, 1, 2]}), edges(pairs[(pairs >= 28).any(axis=1)])
    expected = hoplite.load(tmp_path / "all", structural=3, prepare=graph.preparation)
    found = hoplite.io.extend(graph, new)
    assert found.feature_names == expected.feature_names
    np.testing.assert_allclose(found.features, expected.features, atol=1e-5)


@pytest.mark.filterwarnings("ignore::hoplite.HopliteWarning")
def test_a_store_grows_and_predicts(bank, tmp_path):
    place, nodes, *_ = bank
    store, new = tmp_path / "store", place / "new"
    model = hoplite.TrainedModel.load(place / "model")
    words = ("propagate", place / "old", "--hops", 2, "--prepare", place / "model", "--out", store)
    assert command(*words).returncode == 0
    done = command("predict", place / "model", store, "--add", new, "--out", tmp_path / "p.csv")
    assert done.returncode == 2
    assert (
        f"hop store; first add the nodes to it with `hoplite propagate {new} --update"
        in done.stderr
    )
    grow = ("propagate", new, "--update", "--out", store, "--memory", "2GB", "--json")
    done = command(*grow)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["nodes"] == len(nodes)
    expected = hoplite.io.extend(hoplite.load(place / "old", prepare=model), new)
    grown = hoplite.open_data(store)
    np.testing.assert_allclose(model.logits(grown), model.logits(expected), atol=1e-5)
    assert [*(grown.node_ids or ())] == [*(expected.node_ids or ())]
    assert "already in" in command(*grow).stderr  # already
    for option in (("--hops", 2), ("--basis", "chebyshev"), ("--cluster", "local:1")):
        done = command(*grow, *option)
        assert done.returncode == 2
        assert option[0] in done.stderr
    assert command("propagate", "cora", "--out", tmp_path / "s").returncode == 2
