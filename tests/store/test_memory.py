"""The peak of the whole process stays within --memory, from tables larger than it to the end."""

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from hoplite import Graph
from hoplite.io.disk_graph import write_disk_graph
from hoplite.store import HopStore

MEASURED = """
import resource, sys
from hoplite.cli import app
from hoplite.store import cost
planned, parts = cost.part_entries, []
cost.part_entries = lambda *sizes: parts.append(planned(*sizes)) or parts[-1]
app(sys.argv[1:], standalone_mode=False)
print(min(parts), file=sys.stderr)  # entries of the operator that are held at a time
print(1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
"""
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss has other units elsewhere")
BUDGET = 420 * 10**6
NODES, COLUMNS, HOPS = 57_000, 500, 5
PIECE = 3000


def write_tables(folder):
    """57,000 nodes with 500 features and 300,000 edges, a piece at a time."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    width = pa.list_(pa.float32(), COLUMNS)
    kind = pa.schema([("id", pa.int64()), ("label", pa.int64()), ("x", width)])
    with parquet.ParquetWriter(folder / "nodes.parquet", kind, compression="none") as file:
        for start in range(0, NODES, PIECE):
            values = pa.array(rng.standard_normal(PIECE * COLUMNS, np.float32))
            columns = [
                pa.array(np.arange(start, start + PIECE) * 7 + 2**40),
                pa.array(np.arange(PIECE) % 5),
                pa.FixedSizeListArray.from_arrays(values, COLUMNS),
            ]
            file.write_table(pa.Table.from_arrays(columns, schema=kind))
    ends = rng.integers(0, NODES, (2, 300_000)) * 7 + 2**40
    parquet.write_table(pa.table({"source": ends[0], "target": ends[1]}), folder / "edges.parquet")


def measured(source, out, hops, budget, *options):
    """Peak memory of the command, and what it says."""
    command = [sys.executable, "-c", MEASURED, "propagate", str(source), "--hops", str(hops)]
    command += ["--out", str(out), "--memory", f"{budget}B", "--json", *options]
    # a process that forks counts for the peak of its child, so a small shell stands between
    shell = ["/bin/sh", "-c", '"$@"; exit $?', "sh", *command]
    done = subprocess.run(shell, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    summary, (entries, peak) = json.loads(done.stdout), map(int, done.stderr.split()[-2:])
    assert abs(summary["peak_memory"] - peak) < 2**20
    return peak, entries, summary


@LINUX
def test_hops_larger_than_the_budget(tmp_path):
    write_tables(tmp_path / "tables")
    out = tmp_path / "s"
    peak, _, summary = measured(tmp_path / "tables", out, HOPS, BUDGET)
    assert peak < BUDGET
    assert summary["bytes"] >= 1.5 * BUDGET
    assert summary["panels"] > 1
    store = HopStore.open(out)
    assert store.complete
    rows = store.read(1000, 1100)
    assert np.isfinite(rows).all()
    assert rows.shape == (HOPS + 1, 100, COLUMNS)


@LINUX
@pytest.mark.usefixtures("without_pandas")
def test_an_operator_that_does_not_fit(stores, tmp_path):
    """14 million entries, 110 MB, pass by in ranges of rows beside the panels."""
    rng, budget = np.random.default_rng(0), 210 * 10**6
    graph = Graph.from_edges(
        rng.integers(0, 9000, (7_500_000, 2)), rng.standard_normal((9000, 600), np.float32)
    )
    write_disk_graph(graph, tmp_path / "graph")
    options = ("--basis", "chebyshev")
    peak, entries, _ = measured(tmp_path / "graph", tmp_path / "float32", 2, budget, *options)
    assert peak < budget
    assert entries < graph.adjacency.nnz
    expected = stores.in_memory(graph, basis="chebyshev", hops=2)
    assert np.array_equal(HopStore.open(tmp_path / "float32").read(0, 9000), expected)
