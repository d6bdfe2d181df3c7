"""Files of strangers with some bytes changed, cut out or put in: read, or refused in a sentence."""

from __future__ import annotations

import contextlib
import os

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.io.test_formats import masks_file
from tests.io.test_hostile_tables import damaged

from hoplite.errors import DatasetError, GraphError
from hoplite.graph import Graph, Split
from hoplite.io import (
    load_reddit,
    read_edge_list,
    read_graphml,
    read_matrix_market,
    read_npz,
    write_npz,
)
from hoplite.io.datasets import FILES

# a class may have no training node, in small and damaged files
pytestmark = pytest.mark.filterwarnings("ignore::hoplite.errors.HopliteWarning")
N = 12


def reddit_files(folder):
    rng = np.random.default_rng(0)
    kinds = rng.permutation(np.repeat([1, 2, 3], 4))
    labels = rng.integers(0, 3, N)
    np.savez(folder / FILES[0], feature=rng.random((N, 3)), label=labels, node_types=kinds)
    sp.save_npz(folder / FILES[1], sp.coo_matrix(rng.random((N, N)) < 0.2), compressed=False)


def npz_file(folder):
    rng = np.random.default_rng(0)
    graph = Graph.from_edges(
        rng.integers(0, N, (30, 2)),
        sp.csr_array(rng.random((N, 4)) * (rng.random((N, 4)) < 0.5)),
        rng.integers(0, 3, N),
        split=Split(*np.split(rng.permutation(N), 3)),
    )
    write_npz(folder / "g.npz", graph)


def text_files(folder):
    (folder / "edges.txt").write_text("# a comment\n1 2 0.5\n2 3 1\n3 1 4\n")
    head = "%%MatrixMarket matrix coordinate real general\n"
    (folder / "m.mtx").write_text(f"{head}3 3 2\n1 2 0.5\n3 1 2\n")
    key = '<key id="d0" for="node" attr.name="x" attr.type="double"><default>4</default></key>'
    nodes = '<node id="a"><data key="d0">1</data></node><node id="b"/>'
    edge = '<edge source="a" target="b"/>'
    (folder / "g.graphml").write_text(f"<graphml>{key}<graph>{nodes}{edge}</graph></graphml>")


def read_texts(folder):
    for read, name in (
        (read_edge_list, "edges.txt"),
        (read_matrix_market, "m.mtx"),
        (read_graphml, "g.graphml"),
    ):
        read(folder / name)


READERS = {
    "texts": (text_files, read_texts),
    "masks": (
        lambda folder: masks_file(folder / "masks.npz"),
        lambda folder: read_npz(folder / "masks.npz"),
    ),
    "reddit": (reddit_files, load_reddit),
    "npz": (npz_file, lambda folder: read_npz(folder / "g.npz")),
}
ALL = pytest.mark.parametrize(("write", "read"), READERS.values(), ids=READERS)


@ALL
@examples(40)
@given(data=st.data())
def test_damaged_files_are_read_or_refused(tmp_path_factory, write, read, data):
    folder = tmp_path_factory.mktemp("files")
    write(folder)
    path = data.draw(st.sampled_from(sorted(folder.iterdir())))
    path.write_bytes(damaged(path.read_bytes(), data))
    with contextlib.suppress(DatasetError, GraphError):
        read(folder)


@ALL
def test_pipes_and_devices_are_refused(tmp_path, write, read):
    for number, put in enumerate((os.mkfifo, lambda path: path.symlink_to("/dev/zero"))):
        folder = tmp_path / str(number)
        folder.mkdir()
        write(folder)
        read(folder)
        for path in sorted(folder.iterdir()):
            kept = path.read_bytes()
            path.unlink()
            put(path)
            with pytest.raises(DatasetError, match="it is not a regular file"):
                read(folder)
            path.unlink()
            path.write_bytes(kept)
