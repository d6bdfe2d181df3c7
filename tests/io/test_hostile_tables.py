"""Tables that silently meant something else, and tables that hang, crash or are damaged."""

from __future__ import annotations

import contextlib
import os
import warnings
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from pyarrow import csv, parquet
from tests.examples import examples

from hoplite import io as datasets
from hoplite.errors import DatasetError, GraphError, HopliteWarning
from hoplite.io import sources
from hoplite.io.disk_graph import DiskGraph
from hoplite.preparation import AS_THEY_ARE

read_tables = partial(datasets.read_tables, prepare=AS_THEY_ARE)
import_tables = partial(datasets.import_tables, prepare=AS_THEY_ARE)

EDGES = {"source": ["a"], "target": ["b"]}
MEMORY = 10**9


def write(folder, nodes, edges=EDGES, kind="parquet"):
    folder.mkdir(exist_ok=True)
    for stem, table in (("nodes", nodes), ("edges", edges)):
        for old in folder.glob(f"{stem}.*"):
            old.unlink()
        if isinstance(table, (str, bytes)):
            content = table.encode() if isinstance(table, str) else table
            (folder / f"{stem}.csv").write_bytes(content)
        elif kind == "csv":
            csv.write_csv(pa.table(table), folder / f"{stem}.csv")
        else:
            parquet.write_table(pa.table(table), folder / f"{stem}.parquet")
    return folder


def imported(folder, **options):
    """Features, names and labels of an import to disk."""
    out = folder.parent / "imported"
    import_tables(folder, out, memory=MEMORY, **options)
    graph = DiskGraph(out)
    names = graph.feature_names
    return graph.feature_rows(0, graph.num_nodes), names, graph.labels, graph.class_names


def loaded(folder, **options):
    graph = read_tables(folder, **options)
    dense = graph.features if isinstance(graph.features, np.ndarray) else graph.features.toarray()
    return dense, graph.feature_names, graph.labels, graph.class_names


BOTH = pytest.mark.parametrize("reader", [loaded, imported])


def complaint(reader, folder):
    with pytest.raises((DatasetError, GraphError)) as caught:
        reader(folder)
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith((".", "?"))
    return message


NOON = np.datetime64("2020-01-01T12:00", "ns")
TIMES = {
    "date32": (pa.array([0, 1], pa.int32()).cast(pa.date32()), [0, 1]),
    "date64": (pa.array([0, 86_400_000]).cast(pa.date64()), [0, 1]),
    "seconds": (pa.array([43_200, 86_400], pa.timestamp("s")), [0.5, 1]),
    "nanoseconds": (pa.array([NOON, NOON]), [18_262.5, 18_262.5]),
    "zone": (pa.array([0, 3600], pa.timestamp("s", "Europe/Berlin")), [0, 1 / 24]),
    "time32": (pa.array([90, 61], pa.time32("s")), [90, 61]),
    "time64": (pa.array([1_500_000, 0], pa.time64("us")), [1.5, 0]),
    "category": (pa.array([3, 4], pa.int32()).cast(pa.date32()).dictionary_encode(), [3, 4]),
    "text": (pa.array(["1970-01-02", " 1970-01-01T06:00:00Z "]), [1, 0.25]),
}


@BOTH
@pytest.mark.parametrize(("column", "wanted"), TIMES.values(), ids=TIMES)
def test_times_are_one_number(tmp_path, reader, column, wanted):
    write(tmp_path / "t", {"id": ["a", "b"], "day": column, "x": [1, 2]})
    features, names, *_ = reader(tmp_path / "t")
    assert names == ("day", "x")
    assert np.array_equal(features[:, 0], np.float32(wanted))


@BOTH
@pytest.mark.parametrize(
    ("cells", "wanted"),
    [
        (["1970-01-03", "2020-02-29"], [2, 18_321]),
        (["1970-01-01 12:00:00", "1970-01-02 00:00:00"], [0.5, 1]),
        (["1970-01-01T12:00:00Z", "1970-01-02T00:00:00Z"], [0.5, 1]),
        (["1970-01-02", "1970-01-01 06:00:00"], [1, 0.25]),
        (["00:01:30", "23:59:59"], [90, 86_399]),
        ([" 1970-01-03", "1970-01-02"], [2, 1]),
    ],
    ids=str,
)
def test_times_in_csv(tmp_path, reader, cells, wanted):
    write(tmp_path / "t", f"id,day\na,{cells[0]}\nb,{cells[1]}\n", "source,target\na,b\n")
    features, names, *_ = reader(tmp_path / "t")
    assert names == ("day",)
    assert np.array_equal(features[:, 0], np.float32(wanted))


@BOTH
def test_dates_that_are_none(tmp_path, reader):
    write(tmp_path / "t", {"id": ["a", "b"], "day": pa.array([1, None], pa.date32())})
    assert "'day'" in complaint(reader, tmp_path / "t")
    dates = [f"2020-01-0{i + 1}" for i in range(5)]
    write(tmp_path / "t", {"id": list("abcdef"), "day": [*dates, "unknown"]})
    with pytest.warns(
        HopliteWarning, match="as text because 1 of 6 .* as a date, such as 'unknown' .* leave it"
    ):
        assert len(reader(tmp_path / "t")[1]) == 6
    write(tmp_path / "t", {"id": ["a", "b"], "day": ["2020-02-30", "2020-02-29"]})
    assert reader(tmp_path / "t")[1] == ("day=2020-02-29", "day=2020-02-30")
    months = pa.array([(1, 2, 3), None], pa.month_day_nano_interval())
    with pytest.raises(pa.ArrowException):  # Parquet has no such type
        write(tmp_path / "t", {"id": ["a", "b"], "day": months})


@BOTH
@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("labels", "count"),
    [
        (np.random.default_rng(0).standard_normal(300), 300),
        (np.round(np.random.default_rng(0).random(3000), 3)[:2000], 870),
        (np.random.default_rng(0).permutation(10**6)[:1200], 1200),
    ],
    ids=["floats", "rounded", "integers"],
)
def test_a_measurement_is_no_class(tmp_path, reader, kind, labels, count):
    ids = [f"n{i}" for i in range(len(labels))]
    nodes = {"id": ids, "label": labels, "x": np.ones(len(ids))}
    write(tmp_path / "t", nodes, {"source": ["n0"], "target": ["n1"]}, kind)
    count = len(np.unique(labels))
    message = complaint(reader, tmp_path / "t")
    assert f"'label' of {tmp_path / 't' / 'nodes'}.{kind} has {count:,} different num" in message
    assert "task='regression' if they are measurements" in message
    found = reader(tmp_path / "t", task="regression")
    np.testing.assert_array_equal(found[2], labels)
    assert found[3] == ()


@BOTH
@pytest.mark.parametrize(
    "labels",
    [
        np.arange(300) % 150,  # many classes, two nodes each
        np.arange(300) % 10 / 2,  # ratings
        np.array(["", *"abc"] * 75),
        [f"class {i % 140}" for i in range(300)],
        [*map(str, range(90)), *[""] * 210],  # one example of each class
    ],
    ids=["integers", "ratings", "text", "many names", "one-shot"],
)
def test_classes_stay_classes(tmp_path, reader, labels):
    ids = [f"n{i}" for i in range(300)]
    nodes = {"id": ids, "label": labels, "split": ["train", *[""] * 299], "x": np.ones(300)}
    nodes["split"] = ["train" if label else "" for label in map(str, labels)]
    write(tmp_path / "t", nodes, {"source": ["n0"], "target": ["n1"]})
    names = reader(tmp_path / "t")[3]
    assert len(names) == len({str(label) for label in labels} - {""})


@BOTH
@pytest.mark.parametrize("column", ["id", "label", "split", "town"])
def test_text_that_is_not_utf_8(tmp_path, reader, column):
    good = pa.array(["aaaa", "bbbb"])
    nodes = dict.fromkeys(("id", "label", "town"), good)
    nodes["split"] = pa.array(["train", "val "])
    bad = pa.array([b"a\xff\xfea", b"\x80bbb"]).cast(pa.binary())
    buffers = bad.buffers()
    nodes[column] = pa.StringArray.from_buffers(2, buffers[1], buffers[2])
    edges = {"source": ["aaaa"], "target": ["bbbb"]}
    write(tmp_path / "t", nodes, edges)
    assert str(tmp_path) in complaint(reader, tmp_path / "t")


@BOTH
def test_too_many_columns(tmp_path, reader, monkeypatch):
    monkeypatch.setattr(sources, "MAX_COLUMNS", 20)
    header, row = ",".join(["id", *(f"x{i}" for i in range(19))]), ",".join(["1"] * 20)
    edges = "source,target\n1,1\n"
    write(tmp_path / "t", f"{header}\n{row}\n", edges)
    assert reader(tmp_path / "t")[0].shape == (1, 19)
    quoted = '"' + ",".join("a" * 60) + '",' + header.replace(",x18", "")
    write(tmp_path / "t", f"{quoted}\n{row}\n", edges)
    assert reader(tmp_path / "t")[0].shape == (1, 19)
    write(tmp_path / "t", f"{header},y\n{row},1\n", edges)
    found = "has 21 columns, more than the maximum of 20; store that many numbers"
    assert found in complaint(reader, tmp_path / "t")
    write(tmp_path / "t", {f"x{i}": [1] for i in range(21)}, {"source": [1], "target": [1]})
    assert found in complaint(reader, tmp_path / "t")


@BOTH
@pytest.mark.parametrize("stem", ["nodes", "edges"])
def test_a_pipe_or_a_device_in_place_of_a_table(tmp_path, reader, stem):
    for number, put in enumerate((os.mkfifo, lambda path: path.symlink_to("/dev/zero"))):
        folder = write(tmp_path / f"t{number}", {"id": ["a", "b"], "x": [1, 2]})
        (folder / f"{stem}.parquet").unlink()
        put(folder / f"{stem}.parquet")
        assert stem in complaint(reader, folder)


def sound_tables():
    rng = np.random.default_rng(0)
    n = 40
    return {
        "id": pa.array([f"node {i} é" for i in rng.permutation(n)]),
        "label": pa.array(rng.choice(["a", "b", ""], n)),
        "x": rng.standard_normal(n),
        "day": pa.array(rng.integers(0, 99, n).astype(np.int32)).cast(pa.date32()),
        "town": pa.array(rng.choice(["Ulm", "Bonn"], n)),
        "e": pa.FixedSizeListArray.from_arrays(pa.array(rng.random(3 * n)), 3),
        "k": pa.array(rng.choice(["u", "v"], n)).dictionary_encode(),
    }


@BOTH
@pytest.mark.parametrize("kind", ["csv", "parquet"])
@examples(15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_tables_are_read_or_refused(tmp_path_factory, reader, kind, data):
    nodes = sound_tables()
    if kind == "csv":
        del nodes["e"]
    edges = {"source": nodes["id"][:20], "target": nodes["id"][20:], "weight": np.arange(20.0)}
    folder = write(tmp_path_factory.mktemp("fuzz") / "t", nodes, edges, kind)
    path = folder / f"{data.draw(st.sampled_from(['nodes', 'edges']))}.{kind}"
    path.write_bytes(damaged(path.read_bytes(), data))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HopliteWarning)
        with contextlib.suppress(DatasetError, GraphError):
            reader(folder)


def damaged(content: bytes, data) -> bytes:
    """Some bytes changed, cut out, or put in."""
    place = st.integers(0, len(content) - 1)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(place)
        length = data.draw(st.sampled_from([0, 1, 1, 1, 4, 50]))
        new = data.draw(st.binary(max_size=8) if length != 1 else st.binary(min_size=1, max_size=1))
        content = content[:at] + new + content[at + length :]
    return content
