"""The import of tables holds a bounded part of them at a time, whatever their shape."""

from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from hoplite import HopliteWarning
from hoplite import io as datasets
from hoplite.datasets.disk_graph import DiskGraph
from hoplite.datasets.table_features import FeatureColumns
from hoplite.preparation import AS_THEY_ARE

import_tables = partial(datasets.import_tables, prepare=AS_THEY_ARE)


def write(folder, name, columns):
    folder.mkdir(exist_ok=True)
    parquet.write_table(pa.table(columns), folder / f"{name}.parquet")


@pytest.fixture
def arrow_memory(monkeypatch):
    """Bytes that PyArrow holds whenever features are made: buffers of the file and the batch."""
    found, dense, pool = [], FeatureColumns.dense, pa.default_memory_pool()
    before = pool.bytes_allocated()

    def noted(*arguments):
        found.append(pool.bytes_allocated() - before)
        return dense(*arguments)

    monkeypatch.setattr(FeatureColumns, "dense", noted)
    return found


@pytest.mark.parametrize(
    ("columns", "rows", "row_group"),
    [(400, 12_000, 1 << 20), (400, 12_000, 5000)],
    ids=["one huge row group", "several row groups"],
)
def test_parquet_is_read_within_the_memory(tmp_path, arrow_memory, columns, rows, row_group):
    """Buffers of a column exist for every column that is read at once, whatever the batch."""
    rng = np.random.default_rng(0)
    nodes = {"id": rng.permutation(rows)} | {
        f"x{i}": rng.standard_normal(rows) for i in range(columns)
    }
    folder = tmp_path / "t"
    write(folder, "edges", {"source": [0], "target": [1]})
    parquet.write_table(pa.table(nodes), folder / "nodes.parquet", row_group_size=row_group)
    import_tables(folder, tmp_path / "g", memory=50 * 10**6)
    assert 0 < max(arrow_memory) < 40 * 10**6
    with DiskGraph(tmp_path / "g") as graph:
        assert graph.num_features == columns
        for row in (0, rows - 1):
            wanted = [nodes[f"x{i}"][row] for i in range(columns)]
            assert np.array_equal(graph.feature_rows(row, row + 1)[0], np.float32(wanted))
    assert not (tmp_path / "g" / ".columns").exists()


def test_text_that_repeats_is_small_in_the_file_only(tmp_path, arrow_memory):
    n = 10_000
    rng = np.random.default_rng(0)
    words = pa.array(["a" * 300, "b" * 500, "c" * 400])
    nodes: dict = {"id": np.arange(n)}
    nodes |= {f"t{i}": words.take(pa.array(rng.integers(0, 3, n))) for i in range(20)}
    write(tmp_path / "t", "nodes", nodes)
    del nodes  # PyArrow holds it, too
    write(tmp_path / "t", "edges", {"source": [0], "target": [1]})
    import_tables(tmp_path / "t", tmp_path / "g", memory=50 * 10**6)
    assert 0 < max(arrow_memory) < 40 * 10**6
    with DiskGraph(tmp_path / "g") as graph:
        assert (graph.feature_rows(0, n).sum(axis=1) == 20).all()


def test_one_hot_features_are_made_a_few_rows_at_a_time(tmp_path, monkeypatch):
    """10,000 values in a column of short texts: a dense row is a thousand times the text."""
    n, made = 3000, []
    nodes = {"id": np.arange(n), "t": [f"{i}x" for i in range(n)]}
    write(tmp_path / "t", "nodes", nodes)
    write(tmp_path / "t", "edges", {"source": [0], "target": [1]})
    dense = FeatureColumns.dense

    def noted(*arguments):
        made.append(dense(*arguments))
        return made[-1]

    monkeypatch.setattr(FeatureColumns, "dense", noted)
    with pytest.warns(HopliteWarning, match="different values in 3,000 rows"):
        import_tables(tmp_path / "t", tmp_path / "g", memory=50 * 10**6)
    assert sum(len(piece) for piece in made) == n
    assert max(piece.nbytes for piece in made) < 5 * 10**6
