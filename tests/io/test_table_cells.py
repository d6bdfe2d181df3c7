"""What people really write into tables: other names, blanks, separators, lists, hidden labels."""

from __future__ import annotations

import base64
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.io.test_hostile_tables import complaint as complaint_of
from tests.io.test_hostile_tables import write

import hoplite
from hoplite import io as datasets
from hoplite.errors import DatasetError, HopliteWarning
from hoplite.preparation import AS_THEY_ARE

read_tables = partial(datasets.read_tables, prepare=AS_THEY_ARE)
complaint = partial(complaint_of, read_tables)

NODES = "id,x\na,1\nb,2\n"


def test_white_space_around_text_does_not_count(tmp_path):
    nodes = "id,label,split,x,kind\n0 ,a, train ,1,u\n 1,a ,test,2, u\n2, ,  ,3, \n"
    graph = read_tables(write(tmp_path, nodes, "source,target,weight\n0, 1, 2\n1 ,2,3 \n"))
    assert graph.node_ids == (0, 1, 2)
    assert graph.class_names == ("a",)
    assert graph.labels.tolist() == [0, 0, -1]
    assert graph.split.sizes() == {"train": 1, "val": 0, "test": 1}
    assert graph.feature_names == ("x", "kind=u")
    assert np.asarray(graph.features).tolist() == [[1, 1], [2, 1], [3, 0]]
    assert graph.adjacency.toarray().tolist() == [[0, 2, 0], [2, 0, 3], [0, 3, 0]]


def test_test_nodes_without_a_label_are_left_out(tmp_path):
    nodes = "id,label,split,x\na,u,train,1\nb,v,train,2\nc,,test,3\nd,v,test,4\ne,,test,5\n"
    write(tmp_path, nodes)
    message = "nodes.csv has no label for 2 of 3 test nodes; they are excluded from the split"
    with pytest.warns(HopliteWarning, match=message) as caught:
        graph = read_tables(tmp_path)
    assert len(caught) == 1
    assert graph.split.test.tolist() == [3]
    assert graph.split.train.tolist() == [0, 1]
    assert graph.labels.tolist() == [0, 1, -1, 1, -1]
    assert graph.num_nodes == 5


@pytest.mark.parametrize("part", ["train", "val"])
def test_other_nodes_without_a_label_are_refused(tmp_path, part):
    write(tmp_path, f"id,label,split,x\na,u,train,1\nb,,{part},2\nc,,test,3\n")
    assert "1 node without a label in train or val (first: 'b')" in complaint(tmp_path)


def test_very_large_cells(tmp_path):
    cell = "y" * 3_000_000
    graph = read_tables(write(tmp_path, f"id,x,t\na,1,{cell}\nb,2,u\n{cell},3,u\n"))
    assert graph.num_nodes == 3
    assert graph.feature_names == ("x", "t=u", f"t={cell}")


def test_two_columns_that_give_the_same_feature(tmp_path):
    write(tmp_path, "id,x=u,x\na,1,u\nb,2,v\n")
    path = tmp_path / "nodes.csv"
    sentence = (
        f"columns 'x=u' and 'x' of {path} both produce the feature 'x=u'; rename one of them."
    )
    assert complaint(tmp_path) == sentence
    write(tmp_path, {"id": ["a", "b"], "e": [[1, 2], [3, 4]], "e[1]": [1, 2]})
    assert "both produce the feature 'e[1]'" in complaint(tmp_path)


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.float32()),
        pa.list_(pa.float64(), 3),
        pa.large_list(pa.int16()),
        pa.list_(pa.decimal128(5, 2)),
        pa.list_(pa.float16(), 3),
    ],
    ids=str,
)
def test_lists_of_numbers_are_features(tmp_path, kind):
    rows = [[1, 2, 3], [4, 5, 6]]
    write(tmp_path, {"id": ["a", "b"], "x": [8, 9], "e": pa.array(rows, kind), "t": ["u", "v"]})
    graph = read_tables(tmp_path)
    assert graph.feature_names == ("x", "e[0]", "e[1]", "e[2]", "t=u", "t=v")
    assert np.asarray(graph.features).tolist() == [[8, 1, 2, 3, 1, 0], [9, 4, 5, 6, 0, 1]]


@pytest.mark.parametrize(("unit", "second"), [("s", 1), ("ms", 1e3), ("us", 1e6), ("ns", 1e9)])
def test_durations_are_seconds_and_halves_are_numbers(tmp_path, unit, second):
    seconds = pa.array([4 * int(second), None, -int(second)], pa.duration(unit))
    halves = pa.array(np.array([0.5, 2, 3], np.float16))
    nodes = {"id": ["a", "b", "c"], "d": seconds, "h": halves}
    write(tmp_path, nodes)
    edges = pa.table({"source": ["a"], "target": ["b"]})
    frame = pa.table(nodes)
    graphs = [datasets.from_frames(one, edges, scale="none") for one in (frame, frame.to_pandas())]
    for graph in (*graphs, datasets.read_tables(tmp_path, scale="none")):
        assert graph.feature_names == ("d", "d=(missing)", "h")
        assert graph.features.tolist() == [[4, 0, 0.5], [1.5, 1, 2], [-1, 0, 3]]


def test_a_note_that_calls_other_columns_durations_changes_nothing(tmp_path):
    write(tmp_path, {"id": ["a", "b"], "d": [1, 2], "t": ["u", "v"]})
    note = pa.schema({"t": pa.duration("s"), "gone": pa.duration("s")}).serialize().to_pybytes()
    plain = pq.read_table(tmp_path / "nodes.parquet")
    with pq.ParquetWriter(tmp_path / "nodes.parquet", plain.schema, store_schema=False) as writer:
        writer.write_table(plain)
        writer.add_key_value_metadata({"ARROW:schema": base64.b64encode(note).decode()})
    assert read_tables(tmp_path).feature_names == ("d", "t=u", "t=v")


def test_sparse_lists_and_several_row_groups(tmp_path):
    rows = np.zeros((50, 40), np.float32)
    rows[np.arange(50), np.arange(50) % 40] = 1 + np.arange(50)
    nodes = pa.table({"id": np.arange(50), "e": pa.array(list(rows))})
    (tmp_path / "edges.csv").write_text("source,target\n")
    pq.write_table(nodes, tmp_path / "nodes.parquet", row_group_size=7)
    features = read_tables(tmp_path).features
    np.testing.assert_array_equal(features.toarray(), rows)


def small_tables(folder, **columns):
    """Tables of 30 nodes with these columns besides their ids, and a path of edges."""
    rows = [",".join(["id", *columns])]
    rows += [",".join([f"n{i}", *(str(cells[i]) for cells in columns.values())]) for i in range(30)]
    (folder / "nodes.csv").write_text("\n".join(rows) + "\n")
    edges = ["source,target", *(f"n{i},n{i + 1}" for i in range(29))]
    (folder / "edges.csv").write_text("\n".join(edges) + "\n")
    return folder


def test_decimal_commas_of_labels_and_weights(tmp_path):
    label = [f'"{i},25"' for i in range(30)]
    tables = small_tables(tmp_path, label=label, x=[i % 7 for i in range(30)])
    edges = ["source,target,weight", *(f'n{i},n{i + 1},"0,{i + 1}"' for i in range(29))]
    (tables / "edges.csv").write_text("\n".join(edges) + "\n")
    graph = hoplite.load(tables, task="regression")
    assert graph.labels[:2].tolist() == [0.25, 1.25]
    assert graph.adjacency[0, 1] == pytest.approx(0.1)
    with pytest.raises(DatasetError, match="has 30 different numbers"):
        hoplite.load(tables)


def test_a_day_above_12_shows_the_order_of_dates(tmp_path):
    dates = [f"0{1 + i % 3}/04/2024" for i in range(29)]
    for name, last in (("day", "13/04/2024"), ("month", "04/13/2024")):
        tables = small_tables(tmp_path, login=[*dates, last], x=[*range(7)] * 4 + [1, 1])
        graph = hoplite.load(tables)
        (login, _), row = graph.preparation.fitted, graph.feature_rows(1, 2)[0]
        second = "2024-04-02" if name == "day" else "2024-02-04"
        assert login.to_cell(login.value(row[0], 0)) == second
        (tables / "nodes.csv").write_text("id,login,x\nn0,02/04/2024,1\nn1,02/04/2024,2\n")
        (tables / "edges.csv").write_text("source,target\nn0,n1\n")
        assert hoplite.load(tables, prepare=graph).feature_rows(0, 1)[0, 0] == row[0]
    mixed = small_tables(tmp_path, login=[*dates[:-1], last, "13/04/2024"], x=range(30))
    with pytest.warns(
        HopliteWarning,
        match="1 of 30 values could not be read reliably as a date, such as '04/13/2024'",
    ):
        hoplite.load(mixed)


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["£57.73", " £ 1", "-£1,234.50", ""], [57.73, 1, -1234.5, 0]),
        (["57,73 €", "€1", "-3€", "NA"], [57.73, 1, -3, 0]),
        (["£1,500", "£57", "-£1,234,500", ""], [1500, 57, -1234500, 0]),
        (["5%", "12.5 %", "-1%", ""], [0.05, 0.125, -0.01, 0]),
    ],
)
def test_amounts_and_shares_are_numbers(tmp_path, cells, numbers):
    tables = small_tables(tmp_path, v=[f'"{cell}"' for cell in cells * 8])
    graph = hoplite.load(tables, scale="none")
    assert graph.feature_names == ("v", "v=(missing)")
    np.testing.assert_allclose(graph.features[:3, 0], numbers[:3], rtol=1e-6)


@pytest.mark.parametrize(("form", "plain"), [("£{}", True), ("{}%", False), ("{}", True)])
def test_a_currency_may_be_left_out_in_prediction_but_no_percent_sign(tmp_path, form, plain):
    def read(form, **options):
        tables = small_tables(tmp_path, v=[form.format(number) for number in range(30)])
        return hoplite.load(tables, **options)

    graph = read(form)
    for other in ["{}", "${}", "{}%"]:
        if other == form or (plain and "%" not in other and {form, other} != {"£{}", "${}"}):
            np.testing.assert_array_equal(read(other, prepare=graph).features, graph.features)
        else:
            with pytest.raises(hoplite.DatasetError, match="but the model was trained with"):
                read(other, prepare=graph)


@pytest.mark.parametrize("form", ["${}", "{} €", "{}%"])
def test_amounts_are_numbers_as_weights_and_as_labels_too(tmp_path, form):
    amounts = [3.5, 1219.25, 0.75, 20.0]
    cells = [form.format(amount) for amount in amounts]
    (tmp_path / "nodes.csv").write_text(
        "id,x,label\n" + "".join(f"n{i},{i},{cell}\n" for i, cell in enumerate([*cells, "NA"]))
    )
    (tmp_path / "edges.csv").write_text(
        "source,target,weight\n" + "".join(f"n4,n{i},{cell}\n" for i, cell in enumerate(cells))
    )
    graph = hoplite.load(tmp_path, task="regression")
    expected = np.array(amounts) / (100 if "%" in form else 1)
    np.testing.assert_allclose(graph.labels, [*expected, np.nan], rtol=1e-6)
    np.testing.assert_allclose(graph.adjacency.toarray()[4, :4], expected, rtol=1e-6)
    mixed = (tmp_path / "edges.csv").read_text().replace(cells[2], "£1" if "$" in form else "$1")
    (tmp_path / "edges.csv").write_text(mixed)
    with pytest.raises(hoplite.HopliteError, match="the same sign"):
        hoplite.load(tmp_path, task="regression")


def test_codes_with_leading_zeros_are_text_and_words_for_a_gap_are_none(tmp_path):
    tables = small_tables(
        tmp_path, code=["01019", "90210", " 01019", "0"] * 8, town=["York", "N/A", "", "Bath"] * 8,
        size=["007", "-1.5", "12", "0.25"] * 8,
    )  # fmt: skip
    assert hoplite.load(tables).feature_names == (
        "code=0", "code=01019", "code=90210", "town=Bath", "town=York", "size",
    )  # fmt: skip


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_a_title_above_the_names_is_an_error(tmp_path, ends):
    """Also where the line ends are mixed, so that a copy of the file is read."""
    assert "line 2 has at least 2 cells" in complaint(write(tmp_path, f"Export 2024{ends}{NODES}"))


def test_white_space_around_names_does_not_count(tmp_path):
    nodes = "id , label,x \na,u,1\nb,v,2\n"
    assert read_tables(write(tmp_path, nodes)).class_names == ("u", "v")
    assert "several columns named 'x'" in complaint(write(tmp_path, "id,x,x \na,1,1\nb,2,2\n"))
    frame = pd.DataFrame(
        {"key ": ["a", "b"], " y": ["u", "v"], "x ": [1, 2], " part": ["train"] * 2}
    )
    named = {"id": "key ", "label": " y", "features": ["x "], "split": " part"}
    graph = hoplite.load(
        (frame, pd.DataFrame({" s": ["a"], "t ": ["b"]})), source=" s", target="t ", **named
    )
    assert (graph.class_names, graph.feature_names) == (("u", "v"), ("x",))


def test_several_labels_with_another_separator_deserve_a_warning(tmp_path):
    nodes = "id,label,x\n" + "".join(f"{i},{'a;b' if i % 2 else 'c'},{i % 3}\n" for i in range(8))
    write(tmp_path, nodes, "source,target\n0,1\n")
    with pytest.warns(HopliteWarning, match=r"such as 'a;b'.* write \| between"):
        assert hoplite.load(tmp_path, task="multilabel").class_names == ("a;b", "c")
    write(tmp_path, nodes.replace(";", "|"), "source,target\n0,1\n")
    assert hoplite.load(tmp_path, task="multilabel").class_names == ("a", "b", "c")


def test_different_whole_numbers_look_like_a_key(tmp_path):
    tables = small_tables(tmp_path, number=range(500, 530), x=[i % 7 for i in range(30)])
    with pytest.warns(
        HopliteWarning, match="column 'number' .* looks like an identifier .* drop='number'"
    ):
        hoplite.load(tables)


def test_a_misspelled_label_column_is_an_error(tmp_path):
    tables = small_tables(tmp_path, lable=["a", "b"] * 15, x=[i % 7 for i in range(30)])
    with pytest.raises(DatasetError, match=r"pass label='lable'. Did you mean 'lable'\?"):
        hoplite.load(tables)
