"""Tables larger than memory: the graph on disk is the one that ``load`` gives, to the bit."""

import warnings
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import csv, parquet
from tests.examples import examples

from hoplite import DatasetError, Graph, HopliteWarning
from hoplite import io as datasets
from hoplite.datasets import bucket_sort, table_import, table_reader
from hoplite.datasets.disk_graph import DiskGraph, write_disk_graph
from hoplite.datasets.text_keys import IdIndex, text_keys
from hoplite.errors import ConfigError
from hoplite.io.array_files import CsrFiles
from hoplite.preparation import AS_THEY_ARE
from hoplite.store import HopStore, opening, propagate

ROOM = 10**9
load = partial(datasets.load, prepare=AS_THEY_ARE)
import_tables = partial(datasets.import_tables, prepare=AS_THEY_ARE)


@pytest.fixture
def small_pieces(monkeypatch):
    """Batches of a few rows, and buckets that have to be cut again and again."""
    monkeypatch.setattr(table_reader, "FORMS", 10**6)
    monkeypatch.setattr(table_reader, "PAGES", 10**9)  # so every column has a pass of its own
    monkeypatch.setattr(table_reader, "BLOCKS", ROOM)
    monkeypatch.setattr(table_reader, "LEAST_BLOCK", 200)
    monkeypatch.setattr(bucket_sort, "BUCKETS", 3)
    monkeypatch.setattr(bucket_sort, "LEAST_BUCKET", 1000)
    monkeypatch.setattr(bucket_sort, "WORK", ROOM)


def write(folder, name, columns, kind):
    folder.mkdir(exist_ok=True)
    table = pa.table(columns)
    if kind == "csv":
        csv.write_csv(table, folder / f"{name}.csv")
    else:
        parquet.write_table(table, folder / f"{name}.parquet")


def check_same(folder, out, **options):
    """The import equals load(); returns the graph on disk's arrays that have no other check."""
    graph = load(folder, **options)
    import_tables(folder, out, memory=ROOM, **options)
    with DiskGraph(out) as found:
        rows = found.adjacency_rows.read(0, found.num_nodes)
        adjacency = rows.to_scipy(found.num_nodes)
        assert np.array_equal(adjacency.indptr, graph.adjacency.indptr)
        assert np.array_equal(adjacency.indices, graph.adjacency.indices)
        assert np.array_equal(adjacency.data, graph.adjacency.data)
        assert adjacency.data.dtype == graph.adjacency.data.dtype == np.float32
        features = graph.features
        dense = features.toarray() if sp.issparse(features) else features
        assert np.array_equal(found.feature_rows(0, found.num_nodes), dense)
        assert found.feature_names == graph.feature_names
        assert found.class_names == graph.class_names
        assert np.array_equal(found.labels, graph.labels)
        for part in ("train", "val", "test"):
            assert np.array_equal(getattr(found.split, part), getattr(graph.split, part))
        assert found.split.note == graph.split.note
        assert tuple(found.node_ids) == graph.node_ids
        assert found.name == graph.name
    return graph


def random_tables(rng, n=200, e=3000, *, weighted, text_ids):
    ids = rng.permutation(10 * n)[:n] + 2**40
    names = np.array([f"node {i} é" for i in ids]) if text_ids else ids
    nodes = {
        "id": names,
        "label": np.where(
            rng.random(n) < 0.2, "", np.char.add("c", rng.integers(0, 3, n).astype(str))
        ),
        "age": rng.integers(-5, 90, n),
        "height": rng.standard_normal(n),
        "town": rng.choice(["Ulm", "Bonn", "Köln", ""], n),
        "member": rng.random(n) < 0.5,
    }
    edges = {"source": rng.choice(names, e), "target": rng.choice(names, e)}
    if weighted:
        edges["weight"] = rng.random(e).astype(np.float32)
    return nodes, edges


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("text_ids", [False, True])
def test_same_as_load(tmp_path, small_pieces, kind, weighted, text_ids):
    """Every pair of nodes is hit often, both ways and with itself, so merging is exercised."""
    nodes, edges = random_tables(
        np.random.default_rng(0), 60, 3000, weighted=weighted, text_ids=text_ids
    )
    write(tmp_path / "t", "nodes", nodes, kind)
    write(tmp_path / "t", "edges", edges, kind)
    graph = check_same(tmp_path / "t", tmp_path / "g", seed=3)
    assert graph.num_edges > 1000


def test_files_do_not_depend_on_the_memory(tmp_path, small_pieces, monkeypatch):
    monkeypatch.setattr(table_import, "ID_ROWS", 64)
    nodes, edges = random_tables(np.random.default_rng(1), weighted=True, text_ids=True)
    write(tmp_path / "t", "nodes", nodes, "csv")
    write(tmp_path / "t", "edges", edges, "csv")
    found = []
    for name, size in (("a", 200), ("b", 3000), ("c", 10**6)):
        monkeypatch.setattr(table_reader, "LEAST_BLOCK", size)
        import_tables(tmp_path / "t", tmp_path / name, memory=ROOM)
        files = {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
        found.append(files)
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_what_a_killed_import_of_several_passes_left_goes(tmp_path, small_pieces, kind):
    """Of a table in one pass, too: it may have had several when it was killed."""
    nodes, edges = random_tables(np.random.default_rng(1), weighted=True, text_ids=True)
    write(tmp_path / "t", "nodes", nodes, kind)
    write(tmp_path / "t", "edges", edges, kind)
    left = tmp_path / "g" / table_import.SCRATCH
    left.mkdir(parents=True)
    (left / "0.npy").write_bytes(b"half")
    (left / ".1.npy.tmp").write_bytes(b"half")
    check_same(tmp_path / "t", tmp_path / "g", seed=3)
    assert not left.exists()


def test_an_import_of_several_passes_that_fails_leaves_none(tmp_path, small_pieces, monkeypatch):
    nodes, edges = random_tables(np.random.default_rng(1), weighted=True, text_ids=True)
    write(tmp_path / "t", "nodes", nodes, "parquet")
    write(tmp_path / "t", "edges", edges, "parquet")
    left, seen = tmp_path / "g" / table_import.SCRATCH, []

    def interrupt(*arguments):
        seen.extend(left.iterdir())
        raise KeyboardInterrupt

    monkeypatch.setattr(table_import._NodeFiles, "_join", interrupt)
    with pytest.raises(KeyboardInterrupt):
        import_tables(tmp_path / "t", tmp_path / "g", memory=ROOM)
    assert len(seen) > 1
    assert not left.exists()


@examples(25)
@given(
    data=st.data(),
    n=st.integers(1, 30),
    room=st.sampled_from([1, 300, 10**6]),
    weighted=st.booleans(),
)
def test_sort_equals_from_edges(tmp_path_factory, data, n, room, weighted):
    ends = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1))
    edges = np.array(data.draw(st.lists(ends, max_size=200)), np.int64).reshape(-1, 2)
    weights = None
    if weighted:
        drawn = st.floats(0, 4, width=32)
        size = len(edges)
        weights = np.array(data.draw(st.lists(drawn, min_size=size, max_size=size)), np.float32)
    expected = Graph.from_edges(edges, np.zeros((n, 1)), weights=weights).adjacency
    step = 7
    batches = (
        (*edges[i : i + step].T, None if weights is None else weights[i : i + step])
        for i in range(0, len(edges), step)
    )
    folder = tmp_path_factory.mktemp("sort")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bucket_sort, "LEAST_BUCKET", 1)
        bucket_sort.sort_edges(batches, folder, n, room, lambda share: None)
    with CsrFiles(folder) as files:
        found = files.read(0, n)
    assert np.array_equal(found.indptr, expected.indptr)
    assert np.array_equal(found.indices, expected.indices)
    assert np.array_equal(found.values, expected.data)


def test_lists_splits_dates_and_categories(tmp_path, small_pieces):
    n = 40
    rng = np.random.default_rng(1)
    nodes = {
        "id": pa.array([f"n{i}" for i in range(n)]).dictionary_encode(),
        "label": rng.integers(0, 2, n) + 0.5,
        "split": rng.choice(["train", "Val", "test", " "], n),
        "x": pa.FixedSizeListArray.from_arrays(pa.array(rng.random(3 * n)), 3),
        "day": pa.array(rng.integers(0, 3, n), pa.int32()).cast(pa.date32()),
        "kind": pa.array(rng.choice(["a", "b"], n)).dictionary_encode(),
    }
    edges = {"source": ["n1", "n2"], "target": ["n2", "n3"], "weight": [1, 2]}
    write(tmp_path / "t", "nodes", nodes, "parquet")
    write(tmp_path / "t", "edges", edges, "parquet")
    with pytest.warns(HopliteWarning, match="'day' of .* holds dates or times"):
        check_same(tmp_path / "t", tmp_path / "g")


def test_numbers_that_csv_spells_oddly(tmp_path):
    folder = tmp_path / "t"
    folder.mkdir()
    (folder / "nodes.csv").write_text("id,label,a,b\n007,x,+1,1\n8,y, 2,2.5\n9,,3,1e3\n")
    (folder / "edges.csv").write_text("source,target,weight\n 007,8,1\n8,9,+2\n")
    check_same(folder, tmp_path / "g")


def test_an_import_is_kept_until_the_tables_change(tmp_path):
    nodes, edges = random_tables(np.random.default_rng(0), weighted=True, text_ids=False)
    write(tmp_path / "t", "nodes", nodes, "csv")
    write(tmp_path / "t", "edges", edges, "csv")
    import_tables(tmp_path / "t", tmp_path / "g", memory=ROOM)
    first = (tmp_path / "g" / "features.npy").stat().st_mtime_ns
    import_tables(tmp_path / "t", tmp_path / "g", memory=ROOM)
    assert (tmp_path / "g" / "features.npy").stat().st_mtime_ns == first
    (tmp_path / "g" / "graph.json").unlink()  # as if it had been stopped before the end
    (tmp_path / "g" / ".parts" / "out").mkdir(parents=True)
    (tmp_path / "g" / ".parts" / "out" / "000.bin").write_bytes(b"left over")
    check_same(tmp_path / "t", tmp_path / "g")
    write(tmp_path / "t", "edges", {name: column[:50] for name, column in edges.items()}, "csv")
    check_same(tmp_path / "t", tmp_path / "g")


def test_more_hops_of_imported_tables(tmp_path, monkeypatch):
    """A store prepares tables as it did before, so their import is that of before."""
    nodes, edges = random_tables(np.random.default_rng(0), weighted=True, text_ids=True)
    write(tmp_path / "t", "nodes", nodes, "csv")
    write(tmp_path / "t", "edges", edges, "csv")
    monkeypatch.setattr(opening, "large_tables", lambda *_: True)
    propagate(tmp_path / "t", tmp_path / "s", hops=1)
    features = tmp_path / "s" / "graph" / "features.npy"
    first = features.stat().st_mtime_ns
    assert propagate(tmp_path / "t", tmp_path / "s", hops=2).hops == 2
    assert features.stat().st_mtime_ns == first
    with pytest.raises(ConfigError, match=r"structural is 3, but .* is too large for the memory"):
        propagate(tmp_path / "t", tmp_path / "s", hops=2, structural=3)
    with pytest.raises(ConfigError, match="scale is given"):
        propagate(tmp_path / "s" / "graph", tmp_path / "u", hops=2, scale="log")


def test_propagate_takes_it(tmp_path):
    nodes, edges = random_tables(np.random.default_rng(0), weighted=False, text_ids=True)
    write(tmp_path / "t", "nodes", nodes, "csv")
    write(tmp_path / "t", "edges", edges, "csv")
    import_tables(tmp_path / "t", tmp_path / "g", memory=ROOM)
    from_disk = propagate(tmp_path / "g", tmp_path / "a", hops=2)
    from_memory = propagate(tmp_path / "t", tmp_path / "b", hops=2, prepare=AS_THEY_ARE)
    assert np.array_equal(from_disk.read(0, 200), from_memory.read(0, 200))
    # the same graph by the same fingerprints, so one can go on with the other's store
    assert propagate(load(tmp_path / "t"), tmp_path / "a", hops=3).hops == 3
    with DiskGraph(tmp_path / "g") as graph:
        assert propagate(graph, tmp_path / "b", hops=3).hops == 3
        assert "DiskGraph(nodes=200" in repr(graph)
    (tmp_path / "g" / "features.npy").write_bytes(b"short")
    with pytest.raises(DatasetError, match="holds no whole graph on disk"):
        propagate(tmp_path / "g", tmp_path / "a", hops=2)
    assert HopStore.open(tmp_path / "a").complete


GOOD = {
    "nodes": "id,label,age\na,x,1\nb,y,2\nc,x,3\n",
    "edges": "source,target,weight\na,b,1\nb,c,2\n",
}


@pytest.mark.parametrize(
    ("table", "content", "sentence"),
    [
        ("edges", "source,target\na,b\nb,zoe\n", r"csv \('zoe'; first in data row 2"),
        ("edges", "source,target\na,4294967296\n", r"\('4294967296'; first in data row 1"),
        ("edges", "source,target,weight\na,b,1\nb,c,x\n", r"'weight' of .* has 'x' in data row 2"),
        ("edges", "source,target,weight\na,b,-1\n", r"'weight' of .* has '-1' in data row 1"),
        ("edges", "source,target,weight\na,b,1e99\n", r"'weight' of .* has '1e99' in data row 1"),
        ("edges", "source,target\na,b\nb,\n", "'target' of .* is empty in data row 2"),
        ("edges", "from,target\na,b\n", "edges.csv has no column 'source'"),
        ("edges", "source,target\na,b,c\n", "edges.csv cannot be read as CSV"),
        ("edges", "source;target\na;b\n", "separate its columns by semicolons"),
        ("edges", "", "edges.csv cannot be read as CSV"),
        ("nodes", "label,age\nx,1\n", "nodes.csv has no column 'id'"),
        ("nodes", "id,label\na,x\n", "has no feature column"),
        ("nodes", "id,label,age\n", "nodes.csv has no rows|only empty feature"),
        ("nodes", "id,label,age\na,x,1\nb,y,\nc,x,3\n", "'age' of .* has no number for node 'b'"),
        ("nodes", "id,label,age\na,x,1\nb,y,1e99\nc,,0\n", "no finite number for node 'b'"),
        ("nodes", "id,label,age\na,x,1\na,y,2\n", "the id 'a' in data rows 1 and 2"),
        ("nodes", "id,label,age\na,x,1\n,y,2\n", "'id' of .* is empty in data row 2"),
        ("nodes", "id,label,split,age\na,x,trian,1\n", "'trian' for node 'a'.*mean 'train'"),
        ("nodes", "id,label,split,age\na,,train,1\n", "1 nodes for train or val without a label"),
        ("nodes", "id,Label,age\na,x,1\n", "'Label' of .* looks like 'label'"),
        ("nodes", "id,id,age\na,x,1\n", "several columns 'id'"),
        ("nodes", "id,,age\na,x,1\n", "a column without a name"),
        ("nodes", b"id,age,town\na,1,K\xf6ln\n", r"is not UTF-8 \(first in line 2\)"),
    ],
)  # fmt: skip
def test_bad_tables_get_one_sentence(tmp_path, table, content, sentence):
    folder = tmp_path / "t"
    folder.mkdir()
    for name, text in (GOOD | {table: content}).items():
        path = folder / f"{name}.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DatasetError, match=sentence):
        import_tables(folder, tmp_path / "g", memory=ROOM)
    assert not (tmp_path / "g" / "graph.json").exists()


def test_rows_are_counted_over_all_batches(tmp_path, small_pieces):
    folder = tmp_path / "t"
    folder.mkdir()
    (folder / "nodes.csv").write_text("id,age\n" + "".join(f"{i},{i}\n" for i in range(300)))
    edges = [f"{i},{i + 1},1\n" for i in range(299)]
    (folder / "edges.csv").write_text("source,target,weight\n" + "".join(edges) + "5,900,1\n")
    with pytest.raises(DatasetError, match=r"'900'; first in data row 300"):
        import_tables(folder, tmp_path / "g", memory=ROOM)
    (folder / "edges.csv").write_text("source,target,weight\n" + "".join(edges) + "5,6,x\n")
    with pytest.raises(DatasetError, match="has 'x' in data row 300"):
        import_tables(folder, tmp_path / "g", memory=ROOM)


@pytest.mark.filterwarnings("ignore::hoplite.HopliteWarning")
def test_a_late_word_among_numbers(tmp_path, small_pieces, monkeypatch):
    """What a column is does not depend on the rows that are read first."""
    folder = tmp_path / "t"
    folder.mkdir()
    rows = "".join(f"{i},{i},{i % 2},{i}\n" for i in range(300)) + "300,old,True,\n"
    (folder / "nodes.csv").write_text("id,age,flag,blank\n" + rows)
    (folder / "edges.csv").write_text("source,target\n0,300\n")
    with pytest.raises(DatasetError, match=r"'blank' of .* has no number for node '300'"):
        import_tables(folder, tmp_path / "g", memory=ROOM)
    (folder / "nodes.csv").write_text("id,age,flag,blank\n" + rows.replace("True,", "True,5"))
    with pytest.warns(HopliteWarning, match=r"1 of 301 values is no number: 'old' \(node '300'\)"):
        names = check_same(folder, tmp_path / "g").feature_names
    assert names[-3:] == ("age=old", "flag", "blank")
    monkeypatch.setattr(table_import, "MOST_VALUES", 50)
    match = r"as text because of 'old' \(node '300'\) and has more than 50 different values"
    with pytest.raises(DatasetError, match=match):
        import_tables(folder, tmp_path / "h", memory=ROOM)


def test_broken_parquet_and_fractions(tmp_path):
    folder = tmp_path / "t"
    write(folder, "nodes", {"id": [0, 1, 2], "x": [1.0, 2.0, 3.0]}, "parquet")
    write(folder, "edges", {"source": [0.0, 1.5], "target": [1.0, 2.0]}, "parquet")
    with pytest.raises(DatasetError, match=r"'source' of .* has 1.5 in data row 2"):
        import_tables(folder, tmp_path / "g", memory=ROOM)
    content = (folder / "edges.parquet").read_bytes()
    (folder / "edges.parquet").write_bytes(content[: len(content) // 2])
    with pytest.raises(DatasetError, match=r"edges.parquet cannot be read as Parquet"):
        import_tables(folder, tmp_path / "g", memory=ROOM)


def test_text_with_too_many_values(tmp_path, monkeypatch):
    monkeypatch.setattr("hoplite.datasets.table_import.MOST_VALUES", 5)
    folder = tmp_path / "t"
    write(folder, "nodes", {"id": range(9), "name": [f"n{i}" for i in range(9)]}, "csv")
    write(folder, "edges", {"source": [0], "target": [1]}, "csv")
    with pytest.raises(DatasetError, match=r"'name' of .* has more than 5 different values"):
        import_tables(folder, tmp_path / "g", memory=ROOM)


def test_warnings_are_those_of_load(tmp_path):
    folder = tmp_path / "t"
    nodes = {"id": range(30), "lable": ["x"] * 30, "age": ["1,5", *map(str, range(29))]}
    write(folder, "nodes", nodes, "csv")
    write(folder, "edges", {"source": [0], "target": [1]}, "csv")

    def heard(action):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always", HopliteWarning)
            action()
        return sorted(str(one.message) for one in found)

    found = heard(lambda: import_tables(folder, tmp_path / "g", memory=ROOM))
    assert found == heard(lambda: load(folder))
    assert len(found) == 3


def test_too_little_memory(tmp_path):
    write(tmp_path / "t", "nodes", {"id": [0], "x": [1.0]}, "csv")
    write(tmp_path / "t", "edges", {"source": [0], "target": [0]}, "csv")
    with pytest.raises(ConfigError, match="it needs 48 MB"):
        import_tables(tmp_path / "t", tmp_path / "g", memory=10**6)


def test_keys_of_all_lengths_differ():
    names = ["", *("x" * i for i in range(1, 70)), "x" * 69 + "y", "y", "é", "ü"]
    keys = text_keys(pa.array(names, pa.large_string()))
    assert len(set(keys.tolist())) == len(names)
    part = pa.array(names, pa.large_string()).slice(5, 20)
    assert np.array_equal(text_keys(part), keys[5:25])
    assert not np.intersect1d(keys, text_keys(pa.array(names, pa.large_string()), salt=1)).size
    assert text_keys(pa.array([], pa.large_string())).size == 0


def test_two_ids_with_one_key_get_another_salt():
    names = pa.array([f"n{i}" for i in range(50)], pa.large_string())

    def weak_at_first(text, salt):
        keys = text_keys(text, salt)
        return keys % np.uint64(7) if salt == 0 else keys

    index = IdIndex(lambda: [names], "nodes.csv", weak_at_first)
    assert np.array_equal(index.find(names), np.arange(50))
    twice = pa.array(["a", "b", "a"], pa.large_string())
    with pytest.raises(DatasetError, match="the id 'a' in data rows 1 and 3"):
        IdIndex(lambda: [twice], "nodes.csv", weak_at_first)


@pytest.mark.parametrize("sparse", [False, True])
def test_a_graph_from_memory(graphs, tmp_path, sparse):
    graph = graphs(30, 4, sparse=sparse, dtype=np.float64)
    write_disk_graph(graph, tmp_path / "g")
    store = propagate(tmp_path / "g", tmp_path / "a", hops=2)
    assert np.array_equal(store.read(0, 30), propagate(graph, tmp_path / "b", hops=2).read(0, 30))
    assert propagate(graph, tmp_path / "a", hops=3).hops == 3  # the same by its fingerprints
    with DiskGraph(tmp_path / "g") as found:
        assert tuple(found.node_ids) == graph.node_ids
        assert found.feature_names is None
        assert np.array_equal(found.split.val, graph.split.val)
