"""hoplite propagate, as a user calls it."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from tests.commands import fail, hoplite, succeed

from hoplite import load
from hoplite.store import HopStore


def alone(*arguments, **options):
    """The command in a process that has imported nothing else, where memory or limits matter."""
    return subprocess.run(
        [sys.executable, "-m", "hoplite", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | {"OMP_NUM_THREADS": "1"},  # small graphs gain nothing from waiting
        **options,
    )


@pytest.fixture(scope="module")
def club(tmp_path_factory):
    """Tables of 25,000 nodes with 60 features, and 50,000 edges: 14 MB."""
    folder = tmp_path_factory.mktemp("tables") / "club"
    folder.mkdir()
    rng = np.random.default_rng(0)
    cells = rng.random((25_000, 60)).round(6).tolist()
    nodes = [f"n{i},{i % 3},{','.join(map(str, row))}\n" for i, row in enumerate(cells)]
    header = "id,label," + ",".join(f"x{i}" for i in range(60))
    (folder / "nodes.csv").write_text(f"{header}\n{''.join(nodes)}")
    edges = [f"n{a},n{b}\n" for a, b in rng.integers(0, 25_000, (50_000, 2))]
    (folder / "edges.csv").write_text("source,target\n" + "".join(edges))
    return folder


def test_json_and_again(tmp_path):
    command = ("propagate", "cora", "--hops", 2, "--out", tmp_path / "s", "--json")
    found = json.loads(succeed(*command))
    sizes = {"nodes": 2708, "edges": 5278, "features": 1433, "hops": 2}
    assert {name: found[name] for name in sizes} == sizes
    assert found["bytes"] > 3 * 2708 * 1433 * 4
    assert found["error"] == []
    assert not found["imported"]
    assert found["peak_memory"] < 4e9
    assert HopStore.open(tmp_path / "s").verify() == []
    again = json.loads(succeed(*command))
    assert {**again, "seconds": 0, "peak_memory": 0} == {**found, "seconds": 0, "peak_memory": 0}


def test_large_tables_are_imported_and_it_says_so(club, tmp_path):
    words = ("propagate", club, "--hops", 2, "--out", tmp_path / "a", "--memory")
    refused = alone(*words, "110MB")
    assert refused.returncode == 2
    small = alone(*words, "400MB")
    assert small.returncode == 0, small.stderr
    assert "it is first imported to" in small.stderr
    large = hoplite("propagate", club, "--hops", 2, "--out", tmp_path / "b", "--json")
    assert json.loads(large.stdout)["imported"] is False
    assert "it is first imported to" not in large.stderr
    one, two = HopStore.open(tmp_path / "a"), HopStore.open(tmp_path / "b")
    assert np.array_equal(one.read(0, 25_000), two.read(0, 25_000))
    assert np.array_equal(one.labels, load(club).labels)
    assert np.array_equal(one.split.test, two.split.test)


def test_no_room_for_a_file(tmp_path):
    """A limit of the size of a file stands for a full disk or a quota."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))"
    words = ["propagate", "cora", "--hops", 1, "--out", tmp_path / "s"]
    assert "cannot be used: File too large" in fail(1, *words, before=limit)
    assert not list((tmp_path / "s").rglob("*.tmp"))
    succeed(*words)
    assert HopStore.open(tmp_path / "s").verify() == []
