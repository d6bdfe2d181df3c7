"""Systems that lack what Linux has: no POSIX, no C++ core, no extras. The core works."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hoplite import load, train
from hoplite.explain import explain

ROOT = Path(__file__).parent.parent
POSIX = ("fcntl", "resource", "pwd", "grp", "termios", "multiprocessing.forkserver")
EXTRAS = ("plotly", "torch_geometric", "pandas", "polars", "igraph", "networkx", "onnx")
EXTRAS += (
    "torch",
    "pyarrow",
    "distributed",
    "dask",
    "cryptography",
    "starlette",
    "uvicorn",
    "optuna",
)
CORE = {"numpy", "scipy", "sklearn", "threadpoolctl", "safetensors", "typer", "rich"}
CORE |= {"msgspec", "psutil", "filelock", "ml_dtypes", "duckdb", "pooch", "jinja2"}

# Libraries are imported first: they look for themselves what a system has.
LIBRARIES = "import scipy.sparse, sklearn.base, tempfile\n"
BLOCKED = "import sys\nfor name in {names!r}:\n    sys.modules[name] = None\n"
WITHOUT = """
class Missing:  # a None in sys.modules would be taken for pandas by those who only look
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {names!r}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
"""
WITHOUT_POSIX = """
import os, signal
for name in ("SIGHUP", "SIGALRM", "setitimer", "ITIMER_REAL", "pthread_sigmask", "alarm"):
    delattr(signal, name)
for name in ("fork", "register_at_fork", "pwrite", "pread", "getuid", "sched_getaffinity",
             "O_NONBLOCK", "O_NOFOLLOW", "O_DIRECTORY", "O_CLOEXEC", "killpg", "mkfifo", "uname"):
    delattr(os, name)
"""
USE = """
import sys, numpy as np, hoplite, hoplite.__main__
from hoplite.explain import explain
graph = hoplite.load("cora")
result = hoplite.train(graph, "lgc", hops=3, epochs=20, seeds=2, lr=0.2, dropout=0.5)
result.model.save("model")
np.save("logits.npy", result.model.logits(graph))
np.save("hops.npy", explain(result.model, graph, 17).by_hop)
sys.argv[1:] = ["predict", "model", "cora", "--out", "labels.csv", "--json"]
hoplite.__main__.main()
"""


@pytest.mark.parametrize(
    "prelude",
    [
        LIBRARIES + BLOCKED.format(names=POSIX) + WITHOUT.format(names=EXTRAS) + WITHOUT_POSIX,
        BLOCKED.format(names=("hoplite._native",)),
    ],
    ids=["neither POSIX nor extras", "no C++ core"],
)
def test_train_predict_and_explain(prelude, tmp_path):
    command = [sys.executable, "-W", "ignore", "-c", prelude + USE]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)
    assert len((tmp_path / "labels.csv").read_text(encoding="utf-8").splitlines()) == 2709
    graph = load("cora")
    result = train(graph, "lgc", hops=3, epochs=20, seeds=2, lr=0.2, dropout=0.5)
    logits = np.load(tmp_path / "logits.npy")
    np.testing.assert_allclose(logits, result.model.logits(graph), rtol=0.02, atol=0.02)
    hops = explain(result.model, graph, 17).by_hop
    np.testing.assert_allclose(np.load(tmp_path / "hops.npy"), hops, rtol=0.02, atol=0.02)


TABLES = """
import sys, hoplite, hoplite.__main__
sys.argv[1:] = ["train", "tables", "--epochs", "5", "--out", "model", "--json"]
try:
    hoplite.__main__.main()
except SystemExit as end:
    assert not end.code
import duckdb, numpy as np, pandas as pd, polars as pl
expected = hoplite.load("tables")
nodes, edges = (pd.read_csv(f"tables/{stem}.csv") for stem in ("nodes", "edges"))
nodes["town"] = nodes["town"].astype("category")
duck = duckdb.connect("bank.duckdb")
import os
for folder in ("parquet", "json"):
    os.mkdir(folder)
for stem in ("nodes", "edges"):
    duck.execute(f"CREATE TABLE {stem} AS FROM 'tables/{stem}.csv'")
    duck.execute(f"COPY {stem} TO 'parquet/{stem}.parquet'")
    duck.execute(f"COPY {stem} TO 'json/{stem}.jsonl' (FORMAT json)")
duck.close()
polars = tuple(pl.read_csv(f"tables/{stem}.csv") for stem in ("nodes", "edges"))
for source in ("parquet", "json", "bank.duckdb", (nodes, edges), polars):
    graph = hoplite.load(source)
    assert graph.feature_names == expected.feature_names, graph.feature_names
    np.testing.assert_array_equal(graph.features, expected.features)
    assert (graph.adjacency != expected.adjacency).nnz == 0
model = hoplite.TrainedModel.load("model")
for name in ("p.parquet", "p.csv"):
    sys.argv[1:] = ["predict", "model", "bank.duckdb", "--out", name, "--json"]
    try:
        hoplite.__main__.main()
    except SystemExit as end:
        assert not end.code
    rows = duckdb.sql(f"SELECT id, predicted FROM '{name}'").fetchall()
    table = hoplite.predict_table(model, expected)
    assert rows == list(zip(table["id"].tolist(), table["predicted"].tolist()))
assert "pyarrow" not in {name for name, module in sys.modules.items() if module is not None}
"""


def test_tables_without_pyarrow(tmp_path):
    """CSV, Parquet, JSON lines, DuckDB, pandas and Polars are read, and predictions written."""
    folder, rng = tmp_path / "tables", np.random.default_rng(0)
    folder.mkdir()
    rows = [
        f"n{i},{'ab'[i % 2]},{i % 7 + i % 2 + 0.5},{'Ulm' if i % 3 else 'Bonn'}" for i in range(40)
    ]
    (folder / "nodes.csv").write_text("\n".join(["id,label,age,town", *rows]))
    ends = rng.integers(0, 40, (2, 90))
    rows = [f"n{a},n{b},{w:.3f}" for a, b, w in zip(*ends, rng.random(90), strict=True)]
    (folder / "edges.csv").write_text("\n".join(["source,target,weight", *rows]))
    script = "import sys\n" + WITHOUT.format(names=("pyarrow",)) + TABLES
    command = [sys.executable, "-W", "ignore", "-c", script]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


def test_what_is_imported_at_once_is_in_the_core():
    """Only what every install has is imported at a module's top."""
    for path in (ROOT / "src" / "hoplite").rglob("*.py"):
        room = path.relative_to(ROOT / "src" / "hoplite").parts[0]
        if room == "serve":
            continue
        own = sys.stdlib_module_names | CORE | {"hoplite"}
        own |= {"torch"} if room == "nets" else set()  # whose modules wait until one is trained
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                assert name.split(".")[0] in own, f"{path} imports {name}"
                assert name not in POSIX, f"{path} imports {name}, which Windows has not"


def test_a_graph_is_trained_without_scikit_learn(tmp_path):
    blocked = BLOCKED.format(names=("sklearn",))
    use = "import hoplite, hoplite.graphs\nhoplite.train('cora', 'lgc', hops=2, epochs=3)"
    done = subprocess.run([sys.executable, "-c", blocked + use], cwd=tmp_path, timeout=600)
    assert done.returncode == 0
