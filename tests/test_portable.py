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
EXTRAS = ("plotly", "jinja2", "torch_geometric", "pandas", "polars", "igraph", "networkx", "onnx")
EXTRAS += ("torch", "distributed", "dask", "cryptography", "starlette", "uvicorn", "optuna")
CORE = {"numpy", "scipy", "sklearn", "threadpoolctl", "safetensors", "pyarrow", "typer", "rich"}
CORE |= {"msgspec", "psutil", "filelock", "ml_dtypes", "duckdb", "pooch"}

# Libraries are imported first: they look for themselves what a system has.
LIBRARIES = "import scipy.sparse, sklearn.base, pyarrow, tempfile\n"
BLOCKED = "import sys\nfor name in {names!r}:\n    sys.modules[name] = None\n"
WITHOUT_EXTRAS = f"""
class Missing:  # a None in sys.modules would be taken for pandas by those who only look
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {EXTRAS!r}:
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
        LIBRARIES + BLOCKED.format(names=POSIX) + WITHOUT_EXTRAS + WITHOUT_POSIX,
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
