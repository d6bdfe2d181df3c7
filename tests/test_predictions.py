"""Predictions from a hop store equal those from the graph, whatever the model and the memory."""

import dataclasses
import json

import numpy as np
import pyarrow.csv
import pyarrow.parquet as parquet
import pytest
from tests.commands import hoplite as command

import hoplite
from hoplite import Graph, HopliteError, Split
from hoplite.machine import RESERVE, used_memory
from hoplite.models import trained as trained_module
from hoplite.predictions import Order, predict_table, predictions, write_table

N = 211


@pytest.fixture(scope="module")
def graph():
    """Scattered splits, text ids, isolated nodes, weights."""
    rng = np.random.default_rng(3)
    order = rng.permutation(N)
    made = Graph.from_edges(
        rng.integers(0, N - 9, (600, 2)),
        rng.standard_normal((N, 6)).astype(np.float32),
        np.where(rng.random(N) < 0.9, rng.integers(0, 3, N), -1),
        weights=rng.uniform(0.1, 3, 600),
        class_names=["née", "b", "c,d"],
        feature_names=list("abcdef"),
        node_ids=[f"n {i}" for i in order],
    )
    known = order[made.labels[order] >= 0]
    return made.with_split(Split(train=known[:60], val=known[60:100], test=known[100:]))


@pytest.fixture(scope="module")
def store(graph, tmp_path_factory):
    return hoplite.propagate(graph, tmp_path_factory.mktemp("store"), hops=4)


def types(table):
    return {name: column.dtype for name, column in table.items()}


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("sgc", {"hops": 2}),
        ("egc", {"hops": 3, "standardize": True}),
        ("lgc", {"hops": 4, "bias": True}),
        ("hlgc", {"hops": 2, "gate": "feature", "standardize": True}),
        ("hlgc", {"hops": 3, "gate": "node"}),
    ],
)
@pytest.mark.parametrize("rows", [1, 17, 10_000])
def test_a_store_predicts_what_the_graph_does(graph, store, monkeypatch, model, options, rows):
    monkeypatch.setattr(trained_module, "MIN_ROWS", 1)
    monkeypatch.setattr(trained_module, "PIECE_BYTES", rows)  # in bytes: one row; or plenty
    trained = hoplite.train(graph, model, epochs=4, **options).model
    expected, found = predict_table(trained, graph), predict_table(trained, store)
    assert found["id"].tolist() == list(graph.node_ids)
    assert types(found) == types(expected)
    assert found["predicted"].tolist() == expected["predicted"].tolist()
    np.testing.assert_allclose(found["probability"], expected["probability"], atol=2e-6)
    np.testing.assert_allclose(trained.logits(store), trained.logits(graph), atol=1e-4)


@pytest.mark.parametrize("ids", [[7, 2**63 - 1, -3], list(np.array([7, 5, -3])), [7, 2**63, 1]])
def test_ids_are_numbers_where_they_fit(ids, tmp_path):
    path = Graph.from_edges([(0, 1)], np.eye(3), [0, 1, -1], split=Split([0, 1]), node_ids=ids)
    trained = hoplite.train(path, "sgc", hops=1, epochs=1).model
    fit = 2**63 not in ids
    for data in (path, hoplite.propagate(path, tmp_path / "store", hops=1)):
        found = predict_table(trained, data)["id"]
        assert found.tolist() == (ids if fit else [str(name) for name in ids])


def test_the_command_writes_in_batches_and_within_the_memory(graph, store, tmp_path):
    trained = hoplite.train(graph, "lgc", hops=3, epochs=4).model
    trained.save(tmp_path / "model")
    out = tmp_path / "p.parquet"
    done = command("predict", tmp_path / "model", store.folder, "--out", out, "--memory", "2GB")
    assert done.returncode == 0, done.stderr
    table = parquet.read_table(out)
    expected = predict_table(trained, graph)
    assert table["id"].to_pylist() == expected["id"].tolist()
    assert table["predicted"].to_pylist() == expected["predicted"].tolist()
    budget = used_memory() + RESERVE + 10**6
    write_table(predictions(trained, store, memory=budget), tmp_path / "p.csv")
    text = pyarrow.csv.read_csv(tmp_path / "p.csv")
    assert text["predicted"].to_pylist() == expected["predicted"].tolist()
    refused = command("bounds", store.folder)
    assert refused.returncode == 1
    assert "which only train, predict and explain accept" in refused.stderr


def test_probabilities_of_all_classes_and_the_split(graph, store, tmp_path):
    hard = ["id", 'a|"b"\n', "p_id"]
    graph = graph.with_labels(graph.labels, hard).with_split(graph.split)
    store = hoplite.propagate(graph, tmp_path / "store", hops=2)
    trained = hoplite.train(graph, "lgc", hops=2, epochs=4).model
    columns = ["id", "predicted", "probability", "runner_up", "margin", "neighbours", "split"]
    columns += ["p_id", 'p_a|"b"\n', "p_p_id"]
    found = predict_table(trained, graph, proba=True)
    assert list(found) == columns
    stored = predict_table(trained, store, proba=True)
    assert types(stored) == types(found)
    expected = trained.predict_proba(graph)
    for c, name in enumerate(columns[7:]):
        np.testing.assert_array_equal(found[name], expected[:, c])
        np.testing.assert_allclose(stored[name], expected[:, c], atol=2e-6)
    parts = np.full(N, None, object)
    for part in ("train", "val", "test"):
        parts[getattr(graph.split, part)] = part
    assert None in parts
    assert found["split"].tolist() == stored["split"].tolist() == parts.tolist()
    write_table([found], tmp_path / "p.csv")
    options = pyarrow.csv.ParseOptions(newlines_in_values=True)
    text = pyarrow.csv.read_csv(tmp_path / "p.csv", parse_options=options)
    assert text.column_names == columns
    assert text["predicted"].to_pylist() == found["predicted"].tolist()
    assert [one or None for one in text["split"].to_pylist()] == parts.tolist()


def test_the_command_counts_sets_by_size(graph, tmp_path):
    hoplite.train(graph, "lgc", hops=1, epochs=2).model.save(tmp_path / "model")
    hoplite.io.write_npz(tmp_path / "graph.npz", graph)
    out = tmp_path / "p.csv"
    words = ["predict", tmp_path / "model", tmp_path / "graph.npz", "--out", out]
    done = command(*words, "--proba", "--sets", 0.8, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["coverage"] == 0.8
    assert sum(report["set_sizes"].values()) == N
    sizes = pyarrow.csv.read_csv(out)["set_size"].to_pylist()
    assert {str(size): sizes.count(size) for size in set(sizes)} == report["set_sizes"]
    assert "one label" in command(*words, "--sets", "0.8", "--overwrite").stdout
    assert command(*words, "--sets", "1.5").returncode == 2


def test_a_full_temporary_folder_is_one_sentence(graph, tmp_path, monkeypatch):
    """No file may grow beyond a page, as on a full disk."""
    resource = pytest.importorskip("resource")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 12, limits[1]))
    try:
        with pytest.raises(HopliteError, match=f"temporary files in {tmp_path}: File too large."):
            write_table([{"id": np.arange(10**5)}], tmp_path / "p.csv")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


def test_runners_up_margins_and_neighbours(graph, store):
    trained = hoplite.train(graph, "lgc", hops=2, epochs=9).model
    expected = trained.predict_proba(graph)
    order = np.argsort(-expected, axis=1, kind="stable")
    for data in (graph, store):
        table = predict_table(trained, data)
        names = np.array(graph.class_names, object)
        assert table["predicted"].tolist() == names[order[:, 0]].tolist()
        assert table["runner_up"].tolist() == names[order[:, 1]].tolist()
        ranked = np.take_along_axis(expected, order, axis=1)
        np.testing.assert_allclose(table["margin"], ranked[:, 0] - ranked[:, 1], atol=1e-5)
        degrees = (graph.adjacency.toarray() != 0).sum(axis=1)
        assert table["neighbours"].tolist() == degrees.tolist()
    assert 0 in degrees


def test_a_threshold_can_make_the_margin_negative():
    rng = np.random.default_rng(0)
    labels = (rng.random(200) < 0.1).astype(int)
    features = rng.standard_normal((200, 3)) + labels[:, None]
    nodes = rng.permutation(200)
    data = Graph.from_edges(
        rng.integers(0, 200, (300, 2)), features, labels, split=Split(nodes[:120], nodes[120:])
    )
    model = hoplite.train(data, "sgc", hops=1, threshold="f1").model
    state = model.training["task_state"] | {"threshold": 0.05}
    low = dataclasses.replace(model, training=model.training | {"task_state": state})
    table = predict_table(low, data)
    rare = table["predicted"] == "1"
    assert (table["margin"][rare] < 0).any()
    np.testing.assert_allclose(table["margin"], 2 * table["probability"] - 1, atol=1e-6)
    first = predict_table(model, data, top=5)  # the rarer class, without a question
    p = model.predict_proba(data)[:, 1]
    assert first["id"].tolist() == np.argsort(-p, kind="stable")[:5].tolist()


@pytest.mark.parametrize("top", [None, 7, 10_000])
@pytest.mark.parametrize(
    "sort", ["id", "predicted", "probability", "margin", "neighbours", "split", "p_née", "set"]
)
def test_rows_are_sorted_alike_in_memory_and_in_files(graph, tmp_path, sort, top):
    trained = hoplite.train(graph, "lgc", hops=2, epochs=9).model
    options = {"unlabelled": sort == "margin", "coverage": 0.9}
    whole = predict_table(trained, graph, proba=True, **options)
    found = predict_table(trained, graph, sort=sort, top=top, **options)
    cells, up = whole[sort].tolist(), whole[sort].dtype == object or sort == "id"
    rank = [(cell is None, cell or "") if up else -cell for cell in cells]
    rows = sorted(range(len(cells)), key=rank.__getitem__)[:top]  # which is stable
    assert found["id"].tolist() == whole["id"][rows].tolist()
    out = tmp_path / "p.parquet"
    batches = predictions(trained, graph, proba=True, **options)
    written = write_table(batches, out, Order(sort, top))
    assert written == len(rows)
    assert parquet.read_table(out)["id"].to_pylist() == found["id"].tolist()


def test_only_unlabelled_nodes(graph, tmp_path):
    trained = hoplite.train(graph, "lgc", hops=2, epochs=4).model
    whole, found = (predict_table(trained, graph, unlabelled=one) for one in (False, True))
    hidden = np.flatnonzero(graph.labels < 0)
    assert 0 < len(hidden) < N
    for name, cells in found.items():
        assert cells.tolist() == whole[name][hidden].tolist()
    trained.save(tmp_path / "model")
    hoplite.io.write_npz(tmp_path / "g.npz", graph)
    out = tmp_path / "p.csv"
    words = ("predict", tmp_path / "model", tmp_path / "g.npz", "--unlabelled", "--out", out)
    done = command(*words, "--sort", "p_b", "--top", "3", "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["nodes"], summary["rows"]) == (len(hidden), 3)
    best = np.argsort(-trained.predict_proba(graph)[hidden, 1], kind="stable")[:3]
    assert pyarrow.csv.read_csv(out)["id"].to_pylist() == found["id"][best].tolist()
    least = predict_table(trained, graph, unlabelled=True, sort="margin", top=3, ascending=True)
    assert least["margin"].tolist() == sorted(found["margin"])[:3]
    words_least = ("--sort", "margin", "--top", "3", "--ascending", "--overwrite")
    assert command(*words, *words_least).returncode == 0
    assert pyarrow.csv.read_csv(out)["id"].to_pylist() == least["id"].tolist()
    printed = command(*words, "--top", "3", "--overwrite").stdout
    assert "the 3 nodes with the highest probability" in " ".join(printed.split())
    alone = int((np.diff(graph.adjacency.indptr)[hidden] == 0).sum())
    assert summary["isolated"] == alone
    assert (f"{alone} of {len(hidden)} nodes ha" in " ".join(printed.split())) == (alone > 0)
