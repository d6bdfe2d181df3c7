"""Plans, costs and progress of stores, and what half precision keeps."""

import numpy as np
import pytest

from hoplite import Graph
from hoplite.errors import ConfigError
from hoplite.machine import parse_bytes
from hoplite.store import opening, propagate
from hoplite.store.cost import Sizes, panel_width, part_entries, rows_per_block

MB = 10**6


@pytest.mark.parametrize("nodes", [1, 1000, 10**6, 10**8])
@pytest.mark.parametrize("degree", [0, 3, 50])
@pytest.mark.parametrize("columns", [1, 17, 600])
@pytest.mark.parametrize("room", [10**8, 10**9, 4 * 10**9, 10**11])
@pytest.mark.parametrize("workers", [1, 3])
def test_the_plan_fits(nodes, degree, columns, room, workers):
    sizes = Sizes.of(nodes, nodes * degree, max(degree, 1), columns)
    if room < sizes.least(1, 56 * 10**6):
        return
    width = panel_width(sizes, room, workers)
    entries = part_entries(sizes, width, room)
    assert 1 <= width <= max(16, columns)
    assert min(sizes.entries, 1) <= entries <= sizes.entries
    assert sizes.panel_bytes * width + sizes.part_bytes(entries) <= room
    rows = rows_per_block(sizes, room)
    assert rows.bit_count() == 1
    assert rows <= max(1, nodes)
    assert 4 * rows * columns <= max(8 * MB, 4 * columns)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("1B", 1), ("2kb", 2000), ("3MB", 3 * 10**6), ("1.5gb", 15 * 10**8), ("1TB", 10**12),
        ("2KiB", 2048), ("3MiB", 3 * 2**20), ("1GiB", 2**30), (" 1 TiB ", 2**40), (1, 1), ("1", 1),
    ],
)  # fmt: skip
def test_amounts_that_are_read(text, count):
    assert parse_bytes(text) == count


def test_amounts_that_are_refused():
    wrong = ("", "4XB", "-1GB", "0GB", "1e3MB", "4 GB 2", None, True, -5)
    for amount in (0, "0.5B", "99999999TB", f"{2**63}B", 2.5, *wrong):
        with pytest.raises(ConfigError, match=r"memory is .*; it must be a positive amount"):
            parse_bytes(amount)
    assert parse_bytes("9000000TB") == 9 * 10**18


def test_tables_are_imported_from_a_size_on(tmp_path, monkeypatch):
    (tmp_path / "nodes.csv").write_text("id,x\na,1\nb,2\n")
    (tmp_path / "edges.csv").write_text("source,target\na,b\n")
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    monkeypatch.setattr(opening, "used_memory", lambda: 10**7)
    enough = 10**7 + 16 * size + 128 * 10**6
    assert not opening.large_tables(tmp_path, enough)
    assert opening.large_tables(tmp_path, enough - 1)
    assert not opening.large_tables("cora", 1)
    assert not opening.large_tables(tmp_path / "none", 1)


def test_hops_of_zeros_in_half_precision_are_finished(tmp_path):
    graph = Graph.from_edges(np.empty((0, 2), int), features=np.eye(5))
    settings = {"hops": 2, "operator": "adjacency", "dtype": "float16"}
    store = propagate(graph, tmp_path / "s", **settings)
    assert store.complete
    assert store.missing() == []
    assert [record["relative"] for record in store.errors()] == [0.0, 0.0]
    before = (tmp_path / "s/v0/hops/h1/r000000-c0000.npy").stat().st_mtime_ns
    assert propagate(graph, tmp_path / "s", **settings).complete
    assert (tmp_path / "s/v0/hops/h1/r000000-c0000.npy").stat().st_mtime_ns == before
