"""Node and edge tables: what each column means, CSV equal to Parquet, and every complaint."""

from __future__ import annotations

import csv
import math
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from hoplite import io as datasets
from hoplite.errors import DatasetError, HopliteWarning
from hoplite.preparation import AS_THEY_ARE

read_tables = partial(datasets.read_tables, prepare=AS_THEY_ARE)

NODES = "id,label,split,size,red,kind\na,cat,train,1.5,true,x\nb,dog,test,2,false,\nc,,,0,true,y\n"
EDGES = "source,target\na,b\nb,c\n"


@pytest.fixture
def folder(tmp_path):
    return write(tmp_path)


def write(folder, nodes=NODES, edges=EDGES):
    (folder / "nodes.csv").write_bytes(nodes.encode())
    (folder / "edges.csv").write_bytes(edges.encode())
    return folder


def dense(graph):
    return graph.features.toarray() if sp.issparse(graph.features) else graph.features


@pytest.mark.filterwarnings("ignore:class .dog. cannot")  # three nodes are too few to train both
def test_what_each_column_means(folder):
    graph = read_tables(folder)
    assert graph.feature_names == ("size", "red", "kind=x", "kind=y")
    np.testing.assert_array_equal(dense(graph), [[1.5, 1, 1, 0], [2, 0, 0, 0], [0, 1, 0, 1]])
    assert graph.features.dtype == np.float32
    assert graph.class_names == ("cat", "dog")
    assert graph.labels.tolist() == [0, 1, -1]
    assert graph.node_ids == ("a", "b", "c")
    np.testing.assert_array_equal(graph.adjacency.toarray(), [[0, 1, 0], [1, 0, 1], [0, 1, 0]])
    assert graph.split.train.tolist() == [0]
    assert graph.split.test.tolist() == [1]
    assert graph.split.note == "from the split column"
    assert graph.name == folder.name


def test_bom_crlf_quotes_and_newlines(tmp_path):
    nodes = '\ufeffid,label,x\r\n"a, b","big\r\ncat",1\r\nü,dog,2\r\n'
    graph = read_tables(write(tmp_path, nodes, '\ufeffsource,target\r\nü,"a, b"\r\n'))
    assert graph.node_ids == ("a, b", "ü")
    assert graph.class_names == ("big\r\ncat", "dog")
    assert graph.num_edges == 1


def test_labels_are_sorted_as_numbers_if_all_are(tmp_path):
    graph = read_tables(write(tmp_path, "id,label,x\n1,10,0\n2,9,0\n3,-2,1\n", "source,target\n"))
    assert graph.class_names == ("-2", "9", "10")
    assert graph.labels.tolist() == [2, 1, 0]
    graph = read_tables(write(tmp_path, "id,label,x\n1,10,0\n2,9,0\n3,a,1\n", "source,target\n"))
    assert graph.class_names == ("10", "9", "a")


def test_words_for_a_gap_are_missing_labels_in_csv_only(tmp_path):
    graph = read_tables(write(tmp_path, "id,label,x\n1,a,0\n2,NA,0\n3,n/a,1\n", "source,target\n"))
    assert (graph.class_names, graph.labels.tolist()) == (("a",), [0, -1, -1])
    (tmp_path / "nodes.csv").unlink()
    table = {"id": [1, 2, 3], "label": ["a", "NA", None], "x": [0, 0, 1]}
    pq.write_table(pa.table(table), tmp_path / "nodes.parquet")
    assert read_tables(tmp_path).class_names == ("NA", "a")


def test_split_words(tmp_path):
    nodes = "id,label,split,x\n1,a,Train,0\n2,a, valid,1\n3,a,validation,1\n4,a,TEST,1\n5,a,val,1\n"
    split = read_tables(write(tmp_path, nodes, "source,target\n")).split
    assert (split.train.tolist(), split.val.tolist(), split.test.tolist()) == ([0], [1, 2, 4], [3])


def test_ids_are_compared_as_they_are_written(tmp_path):
    nodes = "id,x\n007,1\n7,2\n"
    graph = read_tables(write(tmp_path, nodes, "source,target\n007,7\n"))
    assert graph.node_ids == ("007", "7")
    assert graph.num_edges == 1
    with pytest.raises(DatasetError, match=r"'07' \(first in data row 1\)"):
        read_tables(write(tmp_path, nodes, "source,target\n07,7\n"))


@pytest.mark.parametrize(
    "ids",
    [
        pa.array([1, 2, 30], pa.int64()),
        pa.array([1, 2, 30], pa.uint8()),
        pa.array([1.0, 2.0, 30.0]),
        pa.array(["1", "2", "30"]),
        pa.array(["1", "2", "30"]).dictionary_encode(),
    ],
)
def test_csv_and_parquet_mix(tmp_path, ids):
    pq.write_table(pa.table({"id": ids, "x": [1, 2, 3]}), tmp_path / "nodes.parquet")
    (tmp_path / "edges.csv").write_text("source,target\n1,30\n")
    graph = read_tables(tmp_path)
    assert graph.adjacency.toarray()[0, 2] == 1
    text = pa.types.is_string(ids.type) or pa.types.is_dictionary(ids.type)
    assert [str(name) for name in graph.node_ids or ()] == ["1", "2", "30"]
    assert isinstance((graph.node_ids or ())[0], str if text else int)
    (tmp_path / "edges.csv").unlink()
    pq.write_table(pa.table({"source": ids, "target": ids[::-1]}), tmp_path / "edges.parquet")
    assert read_tables(tmp_path).num_edges == 1


@pytest.mark.parametrize("mark", "|;")
def test_joined_labels_ask_for_their_task(tmp_path, mark):
    rows = "".join(f"{i},{a}{mark}{b},{i}\n" for i, (a, b) in enumerate(["ab", "bc", "ca"]))
    with pytest.warns(HopliteWarning, match="multilabel"):
        read_tables(write(tmp_path, f"id,label,x\n{rows}", "source,target\n0,1\n"))


def test_wide_one_hot_is_sparse(tmp_path):
    rows = "".join(f"{i},v{i % 30},w{i % 29}\n" for i in range(300))
    graph = read_tables(write(tmp_path, f"id,a,b\n{rows}", "source,target\n"))
    assert sp.issparse(graph.features)
    assert graph.num_features == 59
    assert graph.feature_names is not None
    for row in (0, 31, 299):
        picked = {graph.feature_names[i] for i in graph.features[[row]].indices}
        assert picked == {f"a=v{row % 30}", f"b=w{row % 29}"}


def test_days_are_read_and_never_guessed(tmp_path):
    cells = ("31.12.2020", "1970-01-03", "", "02.01.1970 12:00")
    rows = "".join(f"{i},{cell}\n" for i, cell in enumerate(cells))
    write(tmp_path, f"id,day\n{rows}", "source,target\n")
    graph = datasets.read_tables(tmp_path)
    assert graph.feature_names == ("day", "day=(missing)")
    (column,) = graph.preparation.fitted
    found = [column.value(one, 0) for one in graph.features[[0, 1, 3], 0].tolist()]
    np.testing.assert_allclose(found, [18_627, 2, 1.5], atol=0.01)
    assert column.original(graph.features[0], 0) == "2020-12-31"
    write(tmp_path, "id,day\na,03/04/2020\nb,04/03/2020\nc,03/04/2020\n", "source,target\n")
    with pytest.warns(HopliteWarning, match="3 of 3 values could not be read reliably as a date"):
        graph = datasets.read_tables(tmp_path)
    assert graph.feature_names == ("day=03/04/2020", "day=04/03/2020")


@pytest.mark.parametrize(
    ("nodes", "edges", "facts"),
    [
        ("", "source,target\n", ["nodes.csv"]),
        ("id,label,x\na,1\n", "source,target\n", ["nodes.csv", "line 2"]),
        ("id,label,x\n", "source,target\n", ["nodes.csv"]),
        ("ids,x\na,1\n", "source,target\n", ["'id'", "'ids'"]),
        ("id,x,x\na,1,1\n", "source,target\n", ["'x'"]),
        (",id,x\n0,a,1\n", "source,target\n", ["without a name"]),
        ("id,x\na,\n", "source,target\n", ["'x'", "empty"]),
        ("id,x\na,1\nb,2\na,3\n", "source,target\n", ["'a'", "1 and 3"]),
        ("id,x\na,1\n ,2\n", "source,target\n", ["'id'", "row 2"]),
        ("id,x\na,1\nb,NA\n", "source,target\n", ["'x'", "'b'"]),
        ("id,x\na,1\nb,-inf\n", "source,target\n", ["'x'", "'b'"]),
        ("id,x\na,1\nb,1e300\n", "source,target\n", ["'x'", "'b'"]),
        ("id,label,split,x\na,1,trian,1\n", "source,target\n", ["'trian'", "'a'", "'train'"]),
        ("id,label,split,x\na,1,train,1\nb,,val,1\n", "source,target\n", ["'b'"]),
        ("id,x\na,1\nb,2\n", "from,to\na,b\n", ["no column 'source'", "'from', 'to'"]),
        ("id,x\na,1\nb,2\n", "source,target\na,b\nb,z\ny,z\n", ["2 of 3", "'z', 'y'", "row 2"]),
        ("id,x\n07,1\n8,2\n", "source,target\n7,8.0\n", ["'7'", "'07'", "correct the ids"]),
        ("id,x\na,1\nb,2\n", "source,target\n,b\n", ["'source'", "row 1"]),
        ("id,x\na,1\nb,2\n", "source,target,weight\na,b,heavy\n", ["'heavy'", "row 1"]),
        ("id,x\na,1\nb,2\n", "source,target,weight\na,b,1\nb,a,-2\n", ["'-2'", "row 2"]),
        ("id,x\na,1\nb,2\n", "source,target,weight\na,b,1e99\n", ["'1e99'", "row 1"]),
    ],
)
def test_mistakes_end_in_one_sentence_with_the_place(tmp_path, nodes, edges, facts):
    write(tmp_path, nodes, edges)
    with pytest.raises(DatasetError) as caught:
        read_tables(tmp_path)
    assert "\n" not in str(caught.value)
    for fact in facts:
        assert fact in str(caught.value)


def test_parquet_types_that_are_no_features_or_ids(tmp_path):
    pq.write_table(pa.table({"source": ["a"], "target": ["a"]}), tmp_path / "edges.parquet")
    for columns, message in [
        (
            {"id": ["a"], "x": [["u"]]},
            "column 'x' of .* features must be numbers, lists of numbers",
        ),
        ({"id": [[1]], "x": [1]}, "column 'id' of .* must contain text or integers"),
        ({"id": [1.5], "x": [1]}, r"column 'id' of .* has 1\.5 in data row 1"),
        ({"id": [math.inf], "x": [1]}, "column 'id' of .* has inf in data row 1"),
    ]:
        pq.write_table(pa.table(columns), tmp_path / "nodes.parquet")
        with pytest.raises(DatasetError, match=message):
            read_tables(tmp_path)


WORDS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=4).filter(
    lambda text: text == text.strip() and ("a" <= text[0] <= "z" or text[0] > "\x7f")
)


@given(data=st.data())
@examples(25)
@pytest.mark.filterwarnings("ignore:.*cannot be predicted", "ignore:.*different values")
def test_csv_and_parquet_give_the_same_graph(data, tmp_path_factory):
    ids = data.draw(
        st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=8, unique=True)
        | st.lists(WORDS, min_size=1, max_size=8, unique=True)
    )
    n = len(ids)

    def column(values):
        return data.draw(st.lists(values, min_size=n, max_size=n))

    nodes = {
        "id": ids,
        "label": column(st.none() | WORDS),
        "x": column(st.floats(width=32, allow_nan=False, allow_infinity=False)),
        "k": column(st.integers(-9, 9)),
        "t": ["word", *column(st.none() | WORDS)[1:]],
    }
    ends = st.lists(st.tuples(st.sampled_from(ids), st.sampled_from(ids)), max_size=10)
    pairs = data.draw(ends)
    edges = {
        "source": [a for a, _ in pairs],
        "target": [b for _, b in pairs],
        "weight": data.draw(st.lists(st.floats(0, 9), min_size=len(pairs), max_size=len(pairs))),
    }
    base = tmp_path_factory.mktemp("same")
    for kind in ("csv", "parquet"):
        (base / kind / "graph").mkdir(parents=True)
        for stem, table in (("nodes", nodes), ("edges", edges)):
            store(table, base / kind / "graph" / f"{stem}.{kind}")
    a, b = (read_tables(base / kind / "graph") for kind in ("csv", "parquet"))
    np.testing.assert_array_equal(dense(a), dense(b))
    np.testing.assert_array_equal(a.adjacency.toarray(), b.adjacency.toarray())
    np.testing.assert_array_equal(a.labels, b.labels)
    np.testing.assert_array_equal(a.split.train, b.split.train)
    for field in ("class_names", "feature_names", "node_ids", "name"):
        assert getattr(a, field) == getattr(b, field)
    assert a.split.sizes() == b.split.sizes()


def store(table, path):
    if path.suffix == ".parquet":
        types = {"source": None, "target": None, "weight": pa.float64()}
        columns = {
            name: pa.array(values, types.get(name) if values else pa.string())
            for name, values in table.items()
        }
        pq.write_table(pa.table(columns), path)
        return
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(table)
        writer.writerows(zip(*table.values(), strict=True))
