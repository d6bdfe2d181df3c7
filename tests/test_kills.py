"""kill -9 before every change of a file, in every command that writes.

The same command, run again, succeeds with the result of an undisturbed run, and nothing else is
left. By default some points of each command are tried, with ``HOPLITE_THOROUGH=1`` all of them.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import random
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.commands import hoplite
from tests.examples import THOROUGH

from hoplite import Graph, Split, TrainedModel
from hoplite.io import write_npz
from hoplite.store import HopStore, propagate

SEARCH_ROWS = (
    "SELECT name, value FROM facts ORDER BY name",
    "SELECT id, model, options, seed, fold, status, scores, test FROM trials ORDER BY id",
)
SAMPLE = 3  # kill points of each command, if not all
KILLER = Path(__file__).with_name("kills.py").read_text(encoding="utf-8")
# What differs from run to run, and the checksum of a file that contains it
TIMES = re.compile(
    r'"(\w*seconds|cpu_minutes|ms_per_epoch|checksum)": [0-9.e-]+|"(result_)?sha256": "\w+"'
)


@dataclass(frozen=True)
class Case:
    """A command line in ``out``, where ``../data`` has what it reads."""

    words: str
    begin: dict[str, str] | None = None  # what is copied from the data first: name to new name
    after_kill: Callable[[Path], None] = lambda out: None
    finished: str = "-"  # the refusal of a run after a kill that came when all was done
    before: str = ""


def one_whole_model(out: Path) -> None:
    """The old or the new model, with its own result."""
    model = TrainedModel.load(out / "model")
    saved = json.loads((out / "model" / "config.json").read_text())
    name = f"result-{saved['result_sha256'][:16]}.json"
    assert json.loads((out / "model" / name).read_text())["config"]["hops"] == model.config.hops
    assert model.config.hops in (1, 2)


def old_or_new_store(out: Path) -> None:
    """Whoever opens it finds one of the two, whole."""
    store = HopStore.open(copied(out / "store", out.with_name("scratch")))
    assert store.verify() == []
    assert store.num_nodes == len(store.labels) == 40 + 2 * len(store.manifest.added)


def readable_store(out: Path) -> None:
    if (out / "store" / "manifest.json").exists():
        HopStore.open(out / "store").missing()


def copied(source: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(source, target))


TRAIN = "train ../data/graph.npz --model lgc --seeds 2 --epochs 2 --dropout 0 --out model"
LARGE = "import hoplite.store.opening as source; source.large_tables = lambda *_: True"
CASES = {
    "train": Case(f"{TRAIN} --hops 2", finished="--overwrite"),
    "train --overwrite": Case(f"{TRAIN} --hops 2 --overwrite", {"model": "model"}, one_whole_model),
    "search": Case(
        "search ../data/graph.npz --model sgc --grid ../data/grid.toml --seeds 1 --workers 1 "
        "--epochs 2 --out search --export runs.csv",
        finished="--overwrite",
    ),
    "propagate": Case(
        "propagate ../data/graph.npz --hops 2 --dtype float16 --out store",
        after_kill=readable_store,
    ),
    "propagate tables": Case(
        "propagate ../data/tables --hops 1 --out store", after_kill=readable_store, before=LARGE
    ),
    "propagate --update": Case(
        "propagate ../data/new --update --out store",
        {"store": "store"},
        old_or_new_store,
        before="import hoplite.store.growth as growth; growth.MAX_SHARE = 1",
    ),
    "propagate --update, all rows": Case(
        "propagate ../data/new --update --out store", {"half": "store"}, old_or_new_store
    ),
    "predict": Case(
        "predict ../data/model ../data/graph.npz --out deep/p.parquet --overwrite",
    ),
    "explain": Case(
        "explain ../data/model ../data/graph.npz --node 3 --no-flips --out page.html",
        finished="--overwrite",
    ),
}


@pytest.fixture(scope="module")
def data():
    """A graph, as a file and as tables, a model of it, stores and a grid."""
    memory = Path("/dev/shm")
    place = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place) as name:
        folder = Path(name) / "data"
        folder.mkdir()
        rng = np.random.default_rng(0)
        order, labels = rng.permutation(40), rng.integers(0, 3, 40)
        graph = Graph.from_edges(
            rng.integers(0, 38, (80, 2)),
            rng.random((40, 5), np.float32),
            labels,
            split=Split(order[:15], order[15:25], order[25:]),
        )
        write_npz(folder / "graph.npz", graph)
        nodes = [f"n{i},{rng.random():.3f},{'abc'[labels[i]]}" for i in order]
        edges = [f"n{a},n{b}" for a, b in rng.integers(0, 38, (60, 2))]
        for name, tables in {
            "tables": (["id,x,label", *nodes], ["source,target", *edges]),
            "new": (["id,x", "m1,0.5", "m2,0.25"], ["source,target", "m1,n7", "n7,n8"]),
        }.items():
            (folder / name).mkdir()
            for stem, rows in zip(("nodes", "edges"), tables, strict=True):
                (folder / name / f"{stem}.csv").write_text("\n".join([*rows, ""]))
        for name, dtype in (("store", "float32"), ("half", "float16")):
            propagate(folder / "tables", folder / name, hops=1, dtype=dtype)
        (folder / "grid.toml").write_text("[any]\nhops = [1, 2]\n")
        done = hoplite(*TRAIN.replace("../data/", "").split(), "--hops", 1, cwd=folder)
        assert done.returncode == 0, done.stderr
        yield folder


def content(out: Path) -> dict[str, Any]:
    """Every file but locks, without the times that training took; of a search file, its rows."""
    files = {}
    for folder in (out / "model", out / "search" / "model"):
        if folder.is_dir():
            TrainedModel.load(folder)  # which ends a save that was killed
    for path in sorted(path for path in out.rglob("*") if path.is_file()):
        if path.name.endswith(".lock"):
            continue
        found: Any = path.read_bytes()
        if path.suffix == ".json":
            found = TIMES.sub("", found.decode())
        elif path.suffix == ".csv":
            with path.open(encoding="utf-8") as file:
                found = [row | {"seconds": None} for row in csv.DictReader(file)]
        elif path.suffix == ".sqlite":
            with contextlib.closing(sqlite3.connect(path)) as db:
                found = [db.execute(query).fetchall() for query in SEARCH_ROWS]
            found = [[TIMES.sub("", str(value)) for value in row] for rows in found for row in rows]
        files[re.sub(r"result-\w+", "result", str(path.relative_to(out)))] = found
    return files


@pytest.mark.parametrize("name", CASES)
def test_killed_before_every_change(data, name):
    case, out = CASES[name], data.with_name("out")
    report = data.with_name("report")

    def run(at: int, *, fresh: bool) -> Any:
        if fresh:
            shutil.rmtree(out, ignore_errors=True)
            out.mkdir()
            for source, target in (case.begin or {}).items():
                shutil.copytree(data / source, out / target)
        install = f"install({str(out)!r}, {at}, {str(report)!r})"
        before = "\n".join([KILLER, case.before, install])
        return hoplite(*case.words.split(), before=before, cwd=out)

    done = run(0, fresh=True)
    assert done.returncode == 0, done.stderr
    expected, count = content(out), int(report.read_text())
    points = list(range(1, count + 1))
    if not THOROUGH:
        points = sorted(random.Random(name).sample(points, min(SAMPLE, count)))
    for at in points:
        killed = run(at, fresh=True)
        assert killed.returncode == -9, f"at {at}: {killed.stderr}"
        case.after_kill(out)
        again = run(0, fresh=False)
        refused = again.returncode == 1 and case.finished in again.stderr
        assert again.returncode == 0 or refused, f"at {at}: {again.stderr}"
        assert content(out) == expected, f"at {at}: {sorted(content(out))}"
