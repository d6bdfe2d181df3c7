"""kill -9 before every change of a file, in every command that writes.

The same command, run again, succeeds with the result of an undisturbed run, and nothing else is
left. By default some points of each command are tried, with ``HOPLITE_THOROUGH=1`` all of them.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.commands import hoplite
from tests.io.test_fetch import Server

from hoplite import Graph, Split, TrainedModel
from hoplite.io import write_npz
from hoplite.store import HopStore, propagate

THOROUGH = bool(os.environ.get("HOPLITE_THOROUGH"))
SAMPLE = 2  # kill points of each command, if not all
KILLER = Path(__file__).with_name("kills.py").read_text(encoding="utf-8")
# What differs from run to run, and the checksum of a file that holds it.
TIMES = re.compile(
    r'"(\w*seconds|cpu_minutes|ms_per_epoch|checksum)": [0-9.e-]+|"(result_)?sha256": "\w+"'
)
ONE_THREAD = "import torch; torch.set_num_threads(1)"
OLD, NEW = ("--hops", 1), ("--hops", 2)


@dataclass(frozen=True)
class Case:
    """A command on ``data`` (a folder that it does not change) and ``out`` (the one it does)."""

    words: Callable[[Path, Path], list[Any]]
    begin: Callable[[Path, Path], None] = lambda data, out: None
    after_kill: Callable[[Path], None] = lambda out: None
    finished: str = "-"  # the refusal of a run after the kill that only came when all was done
    before: Callable[[Path], str] = lambda data: ""
    varies: bool = False  # the number of changes, as a download comes in pieces of any size


def train(data: Path, out: Path) -> list[Any]:
    settings = ["--seeds", 2, "--epochs", 2, "--dropout", 0]
    return ["train", data / "graph.npz", "--model", "lgc", *settings, "--out", out / "model"]


def old_model(data: Path, out: Path) -> None:
    shutil.copytree(data / "model", out / "model")


def one_whole_model(out: Path) -> None:
    """The old or the new model, with its own result, also for who reads only the latter."""
    model = TrainedModel.load(out / "model")
    saved = json.loads((out / "model" / "config.json").read_text())
    name = f"result-{saved['result_sha256'][:16]}.json"
    assert json.loads((out / "model" / name).read_text())["config"]["hops"] == model.config.hops
    assert model.config.hops in (1, 2)


def whole_store(out: Path) -> None:
    if (out / "store" / "manifest.json").exists():
        HopStore.open(out / "store").missing()


def copied(name: str) -> Callable[[Path, Path], None]:
    def copy(data: Path, out: Path) -> None:
        shutil.copytree(data / name, out / "store")

    return copy


def old_or_new_store(out: Path) -> None:
    """Whoever opens it finds one of the two, whole."""
    scratch = out.with_name("scratch")
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(out / "store", scratch)
    store = HopStore.open(scratch)
    assert store.verify() == []
    assert store.num_nodes == len(store.labels) == 40 + 2 * len(store.manifest.added)


CASES = {
    "train": Case(lambda data, out: [*train(data, out), *NEW], finished="holds a model already"),
    "train --overwrite": Case(
        lambda data, out: [*train(data, out), *NEW, "--overwrite"], old_model, one_whole_model
    ),
    "search": Case(
        lambda data, out: [
            "search",
            data / "graph.npz",
            "--model",
            "sgc",
            "--grid",
            data / "grid.toml",
            "--seeds",
            1,
            "--workers",
            1,
            "--epochs",
            2,
            "--out",
            out / "search",
            "--export",
            out / "runs.csv",
            "--overwrite",
        ]
    ),
    "propagate": Case(
        lambda data, out: [
            "propagate",
            data / "graph.npz",
            "--hops",
            2,
            "--dtype",
            "float16",
            "--out",
            out / "store",
        ],
        after_kill=whole_store,
    ),
    "propagate tables": Case(
        lambda data, out: [
            "propagate",
            data / "tables",
            "--hops",
            1,
            "--out",
            out / "store",
        ],
        after_kill=whole_store,
        before=lambda data: (
            "import hoplite.store.opening as source; source.large_tables = lambda *_: True"
        ),
    ),
    "propagate --update": Case(
        lambda data, out: ["propagate", data / "new", "--update", "--out", out / "store"],
        copied("store"),
        old_or_new_store,
        before=lambda data: "import hoplite.store.growth as growth; growth.MAX_SHARE = 1",
    ),
    "propagate --update, all rows": Case(
        lambda data, out: ["propagate", data / "new", "--update", "--out", out / "store"],
        copied("half"),
        old_or_new_store,
    ),
    "predict": Case(
        lambda data, out: [
            "predict",
            data / "model",
            data / "graph.npz",
            "--out",
            out / "deep" / "p.parquet",
            "--overwrite",
        ]
    ),
    "explain": Case(
        lambda data, out: [
            "explain",
            data / "model",
            data / "graph.npz",
            "--node",
            3,
            "--no-flips",
            "--out",
            out / "page.html",
        ]
    ),
    "fetch": Case(
        lambda data, out: ["datasets", "--fetch", "reddit", "--folder", out / "reddit"],
        before=lambda data: (data / "fetch.py").read_text(),
        varies=True,
    ),
}


@pytest.fixture(scope="module")
def data():
    """A graph, as a file and as tables, a model of it, a grid, and a server with an archive."""
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
        (folder / "tables").mkdir()
        rows = [f"n{i},{rng.random():.3f},{'abc'[labels[i]]}" for i in order]
        (folder / "tables" / "nodes.csv").write_text("\n".join(["id,x,label", *rows, ""]))
        edges = [f"n{a},n{b}" for a, b in rng.integers(0, 38, (60, 2))]
        (folder / "tables" / "edges.csv").write_text("\n".join(["source,target", *edges, ""]))
        for name, dtype in (("store", "float32"), ("half", "float16")):
            propagate(folder / "tables", folder / name, hops=1, dtype=dtype)
        (folder / "new").mkdir()
        (folder / "new" / "nodes.csv").write_text("id,x\nm1,0.5\nm2,0.25\n")
        (folder / "new" / "edges.csv").write_text("source,target\nm1,n7\nn7,n8\n")
        (folder / "grid.toml").write_text("[any]\nhops = [1, 2]\n")
        done = hoplite(*train(folder, folder), *OLD)
        assert done.returncode == 0, done.stderr
        server = Server()
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        archive = server.archive()
        (folder / "fetch.py").write_text(
            "import os; os.environ['no_proxy'] = '*'\n"
            "import importlib; fetch = importlib.import_module('hoplite.io.fetch')\n"
            f"fetch.ARCHIVES['reddit'] = fetch.Archive({archive.name!r}, {archive.url!r}, "
            f"{archive.sha256!r}, {archive.members!r})\n"
        )
        yield folder
        server.shutdown()
        server.server_close()
        thread.join()


def content(out: Path) -> dict[str, bytes]:
    """Every file, without the times that training took."""
    found = {}
    for path in sorted(path for path in out.rglob("*") if not path.is_dir()):
        data = path.read_bytes()
        if path.suffix == ".json":
            data = TIMES.sub("", data.decode()).encode()
        if path.name != ".lock" and path.suffix not in (".lock", ".csv", ".tmp"):
            found[re.sub(r"result-\w+", "result", str(path.relative_to(out)))] = data
    return found


@pytest.mark.parametrize("name", CASES)
def test_killed_before_every_change(data, capsys, name):
    case = CASES[name]

    def run(out: Path, at: int) -> Any:
        told = out.with_name("told")
        install = f"install({str(out)!r}, {at}, {str(told)!r})"
        before = "\n".join([KILLER, case.before(data), ONE_THREAD, install])
        return hoplite(*case.words(data, out), before=before, cwd=out)

    def fresh() -> Path:
        # one path for all, because some results name it
        out = data.with_name("out")
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        case.begin(data, out)
        return out

    out = fresh()
    done = run(out, 0)
    assert done.returncode == 0, done.stderr
    expected, count = content(out), int(out.with_name("told").read_text())
    points = list(range(1, count + 1))
    if not THOROUGH:
        points = sorted(random.Random(name).sample(points, min(SAMPLE, count)))
    missed = 0
    for at in points:
        out = fresh()
        killed = run(out, at)
        if case.varies and killed.returncode == 0 and int(out.with_name("told").read_text()) < at:
            missed += 1  # it had fewer
            continue
        assert killed.returncode == -9, f"at {at}: {killed.stderr}"
        case.after_kill(out)
        again = run(out, 0)
        refused = again.returncode == 1 and case.finished in again.stderr
        assert again.returncode == 0 or refused, f"at {at}: {again.stderr}"
        assert content(out) == expected, f"at {at}: {sorted(content(out))}"
    with capsys.disabled():
        print(f"{name}: {len(points) - missed} of {count} kill points")
    assert missed <= len(points) // 2
