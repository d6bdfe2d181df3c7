"""Untidy tables, drawn: memory and disk, CSV and Parquet, any batch size give the same graph."""

from __future__ import annotations

import warnings
from itertools import repeat

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import csv, parquet
from tests.examples import examples

from hoplite.datasets import bucket_sort, table_reader
from hoplite.datasets.disk_graph import DiskGraph
from hoplite.datasets.table_import import import_tables
from hoplite.errors import DatasetError, HopliteWarning
from hoplite.io import read_tables
from hoplite.preparation import SCALES, UNKNOWN_NODES

MEMORY = 10**9
# letters of which none makes a number, a date, or a cell that CSV calls empty or null
WORDS = st.text(st.sampled_from("xyzäß語🙂\"'; _"), min_size=1, max_size=6).map(lambda s: f"w{s}w")


@st.composite
def tables(draw):
    """Node and edge columns: unsorted ids with gaps in labels, text and splits anywhere."""
    n = draw(st.integers(2, 25))
    kind = draw(st.sampled_from(["text", "integers"]))
    ids = draw(
        st.lists(
            WORDS if kind == "text" else st.integers(-(2**62), 2**62),
            min_size=n,
            max_size=n,
            unique=True,
        )
    )

    def column(values):
        return draw(st.lists(values, min_size=n, max_size=n))

    labels = column(st.sampled_from(["rare", "b", "b", "Ü", None]))
    parts = column(st.sampled_from(["train", "Val", "test", None, " "]))
    words = draw(st.lists(WORDS, min_size=1, max_size=4, unique=True))
    nodes = {
        "weight of it": pa.array(column(st.floats(-1e6, 1e6, width=32)), pa.float64()),
        "label": pa.array(labels, pa.string()),
        "count": pa.array(column(st.integers(-(2**40), 2**40)), pa.int64()),
        "id": pa.array(ids),
        # one at least: a CSV file does not tell text without any from an empty column
        "town": pa.array([words[0], *column(st.sampled_from([*words, None]))[1:]], pa.string()),
        "flag": pa.array([True, *column(st.sampled_from([True, False, None]))[1:]]),
        "day": pa.array(column(st.integers(-9999, 9999)), pa.int32()).cast(pa.date32()),
        "gaps": pa.array([1.5, *column(st.none() | st.floats(-1e3, 1e3))[1:]], pa.float64()),
    }
    if draw(st.booleans()):
        hidden = [part if label else None for part, label in zip(parts, labels, strict=True)]
        nodes["split"] = pa.array(hidden, pa.string())
    ends = st.sampled_from(ids[: max(2, n - 3)])  # so that some nodes have no edge
    pairs = draw(st.lists(st.tuples(ends, ends), max_size=60))
    kind = nodes["id"].type
    edges = {
        "target": pa.array([pair[1] for pair in pairs], kind),
        "source": pa.array([pair[0] for pair in pairs], kind),
    }
    if draw(st.booleans()):
        size = len(pairs)
        weights = draw(st.lists(st.floats(0, 9, width=32), min_size=size, max_size=size))
        edges["weight"] = pa.array(weights, pa.float64())
    return nodes, edges


def facts(graph):
    features = graph.features
    return {
        "indptr": graph.adjacency.indptr,
        "indices": graph.adjacency.indices,
        "values": graph.adjacency.data,
        "features": features.toarray() if sp.issparse(features) else features,
        "feature_names": graph.feature_names,
        "labels": graph.labels,
        "class_names": graph.class_names,
        "split": [getattr(graph.split, part).tolist() for part in ("train", "val", "test")],
        "note": graph.split.note,
        "preparation": graph.preparation,
        "ids": graph.node_ids,
    }


def disk_facts(folder):
    with DiskGraph(folder) as graph:
        adjacency = graph.adjacency_rows.read(0, graph.num_nodes).to_scipy(graph.num_nodes)
        split = graph.split
        return {
            "indptr": adjacency.indptr,
            "indices": adjacency.indices,
            "values": adjacency.data,
            "features": graph.feature_rows(0, graph.num_nodes),
            "feature_names": graph.feature_names,
            "labels": graph.labels,
            "class_names": graph.class_names,
            "split": [getattr(split, part).tolist() for part in ("train", "val", "test")],
            "note": split.note,
            "preparation": graph.preparation,
            "ids": tuple(graph.node_ids),
        }


def same(a, b):
    for key, value in a.items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(value, b[key], err_msg=key)
        else:
            assert value == b[key], key


@examples(15)
@given(
    drawn=tables(),
    forms=st.sampled_from([1, 10**5, 10**7]),
    block=st.sampled_from([300, 2000, 10**6]),
    pages=st.sampled_from([4, 10**9]),
    row_group=st.sampled_from([1, 7, 1000]),
    options=st.fixed_dictionaries(
        {
            "scale": st.sampled_from(SCALES),
            "categories": st.sampled_from([None, 2, 50]),
            "unknown_nodes": st.sampled_from(UNKNOWN_NODES),
        }
    ),
)
def test_every_way_gives_the_same_graph(
    tmp_path_factory, drawn, forms, block, pages, row_group, options
):
    nodes, edges = (pa.table(columns) for columns in drawn)
    if options["unknown_nodes"] != "error":
        nodes = nodes.slice(0, max(1, nodes.num_rows - 4))
    known, named = (
        {end for name in names for end in table[name].to_pylist()}
        for table, names in ((nodes, ["id"]), (edges, ["source", "target"]))
    )
    folder = tmp_path_factory.mktemp("tables")
    found = []
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", HopliteWarning)  # of dates, and of hardly any repeats
        patch.setattr(table_reader, "FORMS", forms)
        patch.setattr(table_reader, "PAGES", pages)
        patch.setattr(table_reader, "LEAST_BLOCK", block)
        patch.setattr(table_reader, "BLOCKS", MEMORY)
        patch.setattr(bucket_sort, "LEAST_BUCKET", block)
        patch.setattr(bucket_sort, "WORK", MEMORY)
        for kind in ("csv", "parquet"):
            place = folder / kind / "tables"
            place.mkdir(parents=True)
            for stem, table in (("nodes", nodes), ("edges", edges)):
                if kind == "csv":
                    csv.write_csv(table, place / f"{stem}.csv")
                else:
                    parquet.write_table(table, place / f"{stem}.parquet", row_group_size=row_group)
            found.append(facts(read_tables(place, seed=3, **options)))
            import_tables(place, folder / f"{kind} on disk", memory=MEMORY, seed=3, **options)
            found.append(disk_facts(folder / f"{kind} on disk"))
    for other in found[1:]:
        same(found[0], other)
    created = sorted(map(str, named - known)) if options["unknown_nodes"] == "create" else []
    assert list(map(str, found[0]["ids"])) == [*map(str, nodes["id"].to_pylist()), *created]
    assert (found[0]["labels"][nodes.num_rows :] == -1).all()
    held = zip(*(edges[name].to_pylist() for name in ("source", "target")), strict=True)
    weights = edges["weight"].to_pylist() if "weight" in edges.column_names else repeat(1)
    pairs = {
        frozenset(pair)
        for pair, weight in zip(held, weights, strict=False)
        if len(set(pair)) == 2 and weight and (created or set(pair) <= known)
    }
    assert len(found[0]["values"]) == 2 * len(pairs)


NUMBERS = ["1", "0", " 2.5", "-3e2", "+4", "1_000"]
DATES = ["2020-02-29", "1970-01-01T12:00Z", "2020-01-01 01:00:00.5+01:00", "2020-02-30"]
CELLS = {
    "numbers": NUMBERS,
    "truths": ["0", "1", "true", "False", "TRUE "],
    "dates": DATES,
    "times": ["00:01", "23:59:59", "24:00"],
    "words": ["u", "Ü v", '"a,b"', "NAN", "inf"],
    "mixed": [*NUMBERS, *DATES, "true", "12:30", "u"],
    "gaps": ["", " ", "NA", "nan"],
}


@st.composite
def cells(draw, n):
    """A column as people type it: mostly of one kind, with gaps and mistakes now and then."""
    kind = draw(st.sampled_from(sorted(CELLS)))
    found = draw(st.lists(st.sampled_from(CELLS[kind]), min_size=n, max_size=n))
    for _ in range(draw(st.integers(0, 2))):
        odd = draw(st.sampled_from([*CELLS["gaps"], *CELLS["mixed"]]))
        found[draw(st.integers(0, n - 1))] = odd
    return found


def test_words_for_gaps_before_the_first_text_are_text(tmp_path):
    """A block of NA alone could be numbers; with a word behind it, NA is a value."""
    (tmp_path / "t").mkdir()
    cells = ["NA"] * 200 + ["word"]
    rows = "".join(f"{i},{cell}\n" for i, cell in enumerate(cells))
    (tmp_path / "t" / "nodes.csv").write_text(f"id,x\n{rows}")
    (tmp_path / "t" / "edges.csv").write_text("source,target\n0,0\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_reader, "LEAST_BLOCK", 300)
        patch.setattr(table_reader, "BLOCKS", MEMORY)
        import_tables(tmp_path / "t", tmp_path / "g", memory=MEMORY)
    found = disk_facts(tmp_path / "g")
    same(facts(read_tables(tmp_path / "t")), found)
    assert found["feature_names"] == ("x=NA", "x=word")


def outcome(read):
    """What came of it: the graph, or the error; and the warnings."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always", HopliteWarning)
        try:
            found = read()
        except DatasetError as error:
            found = {"error": str(error)}
    return found | {"warnings": sorted(str(one.message) for one in heard)}


@examples(40)
@given(data=st.data(), block=st.sampled_from([250, 600, 10**6]))
def test_what_people_type_means_the_same_at_every_block_size(tmp_path_factory, data, block):
    n = data.draw(st.integers(1, 60))
    columns = [data.draw(cells(n)) for _ in range(data.draw(st.integers(1, 3)))]
    labels = data.draw(cells(n))
    rows = [f"{i},{','.join(row)}" for i, row in enumerate(zip(labels, *columns, strict=True))]
    header = ",".join(["id", "label", *(f"x{i}" for i in range(len(columns)))])
    folder = tmp_path_factory.mktemp("typed")
    (folder / "t").mkdir()
    (folder / "t" / "nodes.csv").write_text("\n".join([header, *rows, ""]))
    (folder / "t" / "edges.csv").write_text("source,target\n0,0\n")

    def on_disk():
        import_tables(folder / "t", folder / "g", memory=MEMORY)
        return disk_facts(folder / "g")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_reader, "LEAST_BLOCK", block)
        patch.setattr(table_reader, "BLOCKS", MEMORY)
        disk = outcome(on_disk)
    same(outcome(lambda: facts(read_tables(folder / "t"))), disk)
