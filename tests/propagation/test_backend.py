"""Choosing the backend and the threads; working without the C++ core."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from tests.commands import run

from hoplite.errors import ConfigError
from hoplite.propagation import backend
from hoplite.propagation.backend import get_num_threads, set_num_threads, use_backend, uses_native

needs_native = pytest.mark.skipif(not backend.has_native(), reason="built without the C++ core")


def run_python(code: str, **environment: str) -> str:
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_threads_are_those_of_torch():
    before = get_num_threads()
    try:
        set_num_threads(3)
        assert get_num_threads() == torch.get_num_threads() == 3
        torch.set_num_threads(1)
        assert get_num_threads() == 1
    finally:
        set_num_threads(before)
    for bad in (0, -1, 1.5, True):
        with pytest.raises(ConfigError, match="threads is"):
            set_num_threads(bad)


def test_backend_choice_nests_and_ends():
    x = torch.zeros(1)
    assert uses_native(x) == backend.has_native()
    with use_backend("torch"):
        assert not uses_native(x)
        with use_backend("auto"):
            assert uses_native(x) == backend.has_native()
        assert not uses_native(x)
    assert not uses_native(x.to(torch.float16))
    with pytest.raises(ConfigError, match="Did you mean 'torch'"), use_backend("torhc"):
        pass


def test_without_the_core_torch_is_used(monkeypatch):
    monkeypatch.setattr(backend, "native", None)
    assert not backend.has_native()
    assert not uses_native(torch.zeros(1))
    with pytest.raises(ConfigError, match="without its C\\+\\+ core"), use_backend("native"):
        pass


WITHOUT_CORE = """
import sys
sys.modules["hoplite._native"] = None  # importing it now raises ImportError
import numpy as np, scipy.sparse as sp, torch
from hoplite.propagation.backend import has_native
from hoplite.propagation.dropout import Dropout
from hoplite.propagation.features import Features
from hoplite.propagation.spmm import SparseMatrix, spmm
assert not has_native()
S = SparseMatrix.from_scipy(sp.csr_array(np.eye(3, dtype=np.float32) * 2))
X = Features.from_graph_array(sp.csr_array(np.eye(3, dtype=np.float32)))
theta = torch.ones(1, 3, 2, requires_grad=True)
X.times(theta, Dropout((0.5,), (0,))).sum().backward()
print(spmm(S, torch.ones(3, 1)).flatten().tolist())
"""

SHARED_THREADS = """
import torch
from pathlib import Path
import scipy.sparse as sp
from hoplite.propagation.backend import get_num_threads
from hoplite.propagation.spmm import SparseMatrix, spmm

def threads():
    return len(list(Path("/proc/self/task").glob("*")))

S = SparseMatrix.from_scipy(sp.random_array((5000, 5000), density=0.01, format="csr", rng=0))
idle = threads()
X = torch.ones(5000, 640, dtype=torch.float64).sqrt()
after_torch = threads()
spmm(S, X)
print(get_num_threads(), after_torch - idle, threads() - after_torch)
"""


def test_a_process_without_the_core_still_computes():
    assert run_python(WITHOUT_CORE) == "[2.0, 2.0, 2.0]"


@needs_native
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_torch_and_the_core_share_their_threads():
    used, by_torch, by_core = run_python(SHARED_THREADS, OMP_NUM_THREADS="2").split()
    assert (int(used), int(by_torch), int(by_core)) == (2, 1, 0)


AFTER_A_FORK = """
import os, signal, warnings
import scipy.sparse as sp, torch
from hoplite import set_num_threads
from hoplite.propagation.backend import get_num_threads
from hoplite.propagation.spmm import SparseMatrix, spmm

warnings.simplefilter("ignore", DeprecationWarning)  # Python itself warns of such forks
set_num_threads(2)
S = SparseMatrix.from_scipy(sp.random_array((5000, 5000), density=0.01, format="csr", rng=0))
X = torch.ones(5000, 64, dtype=torch.float64)
wanted = spmm(S, X)
child = os.fork()
if child == 0:
    signal.alarm(500)
    same = torch.equal(spmm(S, X), wanted) and bool((X @ X.T).sqrt().any())
    set_num_threads(2)  # has no effect
    os._exit(0 if same and torch.equal(spmm(S, X), wanted) and get_num_threads() == 1 else 1)
status = os.waitpid(child, 0)[1]
print(os.waitstatus_to_exitcode(status), get_num_threads(), torch.equal(spmm(S, X), wanted))
"""


@needs_native
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_fork_after_threads_goes_on_with_one():
    done = run(AFTER_A_FORK)
    assert (done.stdout, done.stderr) == ("0 2 True\n", "")
