"""Several processes train as one: shards of any size, the same weights to the bit everywhere."""

import json
import socket
import subprocess
import sys

import numpy as np
import pytest
from tests.commands import Process

import hoplite
from hoplite import ConfigError, HopliteError
from hoplite.store import propagate
from hoplite.training import optimizers
from hoplite.training.distributed import connected

ITERATIONS = 3  # few, because a line search can turn a difference in the last digit into a step
CASES = {
    "lbfgs": {"model": "lgc", "optimizer": "lbfgs", "lr": 1, "epochs": 1},
    "convex": {"model": "sgc", "optimizer": "lbfgs", "lr": 1, "epochs": 9, "weight_decay": 0.05},
    "standardized": {
        "model": "lgc",
        "optimizer": "lbfgs",
        "lr": 1,
        "epochs": 2,
        "standardize": True,
        "bias": True,
        "weight_decay": 0,
    },
    "gate": {"model": "hlgc", "optimizer": "adam", "epochs": 8, "seeds": 2, "patience": 2},
    "sgc": {"model": "sgc", "optimizer": "adam", "epochs": 8, "standardize": True},
    "no hops": {"model": "egc", "hops": 0, "epochs": 4, "bias": True},
    "batches": {"model": "lgc", "batch": 5, "epochs": 4},
}
TRAIN = """
import json, sys
import numpy as np
from hoplite.training import connected, optimizers, train
optimizers.LBFGS_ITERATIONS = int(sys.argv[1])
store, out, shares, cases = sys.argv[2], sys.argv[3], *map(json.loads, sys.argv[4:])
found = {}
with connected(shares, timeout=600) as team:
    for name, options in cases.items():
        result = train(store, team=team, **options)
        for run in result.runs:
            found |= {f"{name}/{run.seed}/{w}": v.numpy() for w, v in run.model.weights.items()}
            found |= {f"{name}/{run.seed}/{c}": v for c, v in run.history.items()}
            found[f"{name}/{run.seed}/test"] = np.array(run.test_accuracy)
np.savez(f"{out}/{team.rank}.npz", **found)
"""


@pytest.fixture(scope="module")
def store(graphs, tmp_path_factory):
    graph = graphs(n=80, d=6, dtype=np.float32, density=0.1)
    order = np.random.default_rng(0).permutation(np.flatnonzero(graph.labels >= 0))
    split = hoplite.Split(*np.split(order, [40, 60]))
    return propagate(graph.with_split(split), tmp_path_factory.mktemp("store"), hops=2)


def launch(code, arguments, size):
    """Start ``size`` processes that find each other."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size)}
    few_epochs = "warnings.filterwarnings('ignore', '.*nodes the model ')"
    code = f"import warnings; warnings.simplefilter('error'); {few_epochs}\n{code}"
    return [Process(code, *arguments, env=shared | {"RANK": str(rank)}) for rank in range(size)]


def to_train(store, out, shares, cases):
    """The arguments of TRAIN."""
    return [str(ITERATIONS), str(store.folder), str(out), json.dumps(shares), json.dumps(cases)]


def finish(processes, timeout=600):
    """Their standard errors and exit codes; none is left behind."""
    try:
        return [(p.communicate(timeout=timeout)[1], p.returncode) for p in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.parametrize(
    ("shares", "names"), [([0.3, 0.7], list(CASES)), ([0.0, 1.0, 1.0], ["standardized", "batches"])]
)
def test_uneven_shards_equal_one_process(store, tmp_path, shares, names, monkeypatch):
    monkeypatch.setattr(optimizers, "LBFGS_ITERATIONS", ITERATIONS)
    cases = {name: CASES[name] for name in names}
    arguments = to_train(store, tmp_path, shares, cases)
    for error, code in finish(launch(TRAIN, arguments, len(shares))):
        assert code == 0, error
    ranks = [np.load(tmp_path / f"{rank}.npz") for rank in range(len(shares))]
    for other in ranks[1:]:
        for name, value in ranks[0].items():
            np.testing.assert_array_equal(value, other[name], err_msg=name)
    for case, options in cases.items():
        for run in hoplite.train(store, **options).runs:
            alone = {name: value.numpy() for name, value in run.model.weights.items()}
            alone |= run.history | {"test": run.test_accuracy}
            for name, value in alone.items():
                together = ranks[0][f"{case}/{run.seed}/{name}"]
                np.testing.assert_allclose(together, value, atol=1e-4, err_msg=f"{case} {name}")


NAIVE = TRAIN.replace(
    "import json, sys", "import json, sys\nfrom hoplite.training import distributed"
)


def test_without_the_shared_loss_the_ranks_come_apart(store, tmp_path):
    """Weighted gradients alone are not enough: a line search decides by the loss."""
    naive = NAIVE.replace(
        "found = {}", "found = {}\ndistributed.ProcessTeam.mean = lambda team, x: x"
    )
    assert naive != NAIVE != TRAIN
    case = {"lbfgs": CASES["lbfgs"] | {"epochs": 10}}
    arguments = to_train(store, tmp_path, [0.3, 0.7], case)
    naive = naive.replace("timeout=600", "timeout=5")
    outcomes = finish(launch(naive, arguments, 2))
    assert any(code for _, code in outcomes)
    assert any("come apart" in error or "lost the others" in error for error, _ in outcomes)


def test_unweighted_shards_would_learn_something_else(store, tmp_path, monkeypatch):
    """The mean of the ranks' means is another objective than the mean over all rows."""
    naive = NAIVE.replace(
        "found = {}",
        "found = {}\nfrom hoplite.training.loop import ScoredRows\n"
        "ScoredRows.total = property(lambda rows: rows.processes * len(rows.targets))",
    )
    monkeypatch.setattr(optimizers, "LBFGS_ITERATIONS", ITERATIONS)
    case = {"lbfgs": CASES["convex"]}
    arguments = to_train(store, tmp_path, [0.3, 0.7], case)
    for error, code in finish(launch(naive, arguments, 2)):
        assert code == 0, error
    together = np.load(tmp_path / "0.npz")["lbfgs/0/theta"]
    alone = hoplite.train(store, **CASES["convex"]).model.weights["theta"].numpy()
    assert np.abs(together - alone).max() > 0.01


@pytest.mark.parametrize(
    ("ending", "timeout"), [("os._exit(3)", 600), ("time.sleep(6000)", 4)], ids=["dies", "hangs"]
)
def test_a_rank_that_is_lost_does_not_hang_the_others(store, ending, timeout):
    code = f"""
import os, sys, time
from hoplite import HopliteError
from hoplite.training import connected, train
def step(state):
    if os.environ["RANK"] == "1" and state.epoch == 3:
        {ending}
try:
    with connected(timeout={timeout}) as team:
        train(sys.argv[1], "lgc", team=team, epochs=10**6, patience=10**6, progress=step)
except HopliteError as error:
    sys.exit(str(error))
"""
    first, second = launch(code, [str(store.folder)], 2)
    try:
        error = first.communicate(timeout=500)[1]
    finally:
        second.kill()
        second.communicate()
    assert first.returncode == 1
    assert error.startswith("process 0 of 2 lost the others or waited longer")


def test_torchrun_writes_one_model(store, tmp_path):
    options = "--model sgc --optimizer lbfgs --lr 1 --weight-decay 0.05 --epochs 3 --seeds 1"
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--master-port", "0", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
    command += ["-m", "hoplite", "train", str(store.folder), *options.split(), "--json"]
    command += ["--out", str(tmp_path / "model")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)  # of one process only
    alone = hoplite.train(store, "sgc", optimizer="lbfgs", lr=1, weight_decay=0.05, epochs=3)
    assert summary["test_accuracy_mean"] == pytest.approx(alone.test_accuracy)
    model = hoplite.TrainedModel.load(tmp_path / "model")
    np.testing.assert_allclose(
        model.weights["theta"].numpy(), alone.model.weights["theta"].numpy(), atol=1e-3
    )


def test_wrong_surroundings_are_told(graphs, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "two")
    with pytest.raises(ConfigError, match="WORLD_SIZE is 'two'"), connected():
        pass
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(ConfigError, match="RANK is ''"), connected():
        pass
    monkeypatch.setenv("RANK", "0")
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(HopliteError, match="process 0 of 2"), connected(timeout=2):
        pass
