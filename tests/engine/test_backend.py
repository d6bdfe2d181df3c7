"""Choosing the backend and the threads; forks; working without the C++ core."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from tests.commands import run

from hoplite.engine import backend
from hoplite.engine.backend import (
    get_num_threads,
    one_blas_thread,
    set_num_threads,
    use_backend,
    use_threads,
    uses_native,
)
from hoplite.errors import ConfigError


@pytest.mark.usefixtures("threads_as_before")
def test_threads_are_the_processes_or_the_blocks():
    set_num_threads(1024)
    assert get_num_threads() == 1024
    set_num_threads(3)
    with use_threads(2):
        assert get_num_threads() == 2
        others = []
        other = threading.Thread(target=lambda: others.append(get_num_threads()))
        other.start(), other.join()
        assert others == [3]  # a block is of its own thread
    with pytest.raises(RuntimeError, match="inside"), use_threads(1):
        raise RuntimeError("inside")
    assert get_num_threads() == 3
    for bad in (0, -1, 1.5, True, 1025):
        with pytest.raises(ConfigError, match="threads is"):
            set_num_threads(bad)


@pytest.mark.parametrize(("given", "threads"), [("3", 3), ("99999", 1024), ("0", 0), ("x", 0)])
def test_threads_of_the_environment(given, threads, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", given)
    found = backend._default_threads.__wrapped__()
    assert found == (threads or len(os.sched_getaffinity(0)))


def test_backend_choice_nests_and_ends():
    assert uses_native() == backend.has_native()
    with use_backend("numpy"):
        assert not uses_native()
        with use_backend("auto"):
            assert uses_native() == backend.has_native()
        assert not uses_native()
    with pytest.raises(RuntimeError, match="inside"), use_backend("numpy"):
        raise RuntimeError("inside")
    assert uses_native() == backend.has_native()
    with pytest.raises(ConfigError, match="Did you mean 'numpy'"), use_backend("nunpy"):
        pass


def test_blas_has_its_threads_back_after_the_last_block():
    def threads():
        return [one["num_threads"] for one in backend._controller().select(user_api="blas").info()]

    with backend._controller().limit(limits=2, user_api="blas"):  # even if it has only one now
        before = threads()
        with one_blas_thread, one_blas_thread:
            assert set(threads()) <= {1}
        assert threads() == before
        with pytest.raises(RuntimeError, match="inside"), one_blas_thread:
            raise RuntimeError("inside")
        assert threads() == before


WORKER = """
from concurrent.futures import ThreadPoolExecutor
from hoplite.engine.backend import _controller, one_blas_thread
def threads():
    with one_blas_thread:
        return [library["num_threads"] for library in _controller().select(user_api="blas").info()]
threads()  # the main thread is the first to limit BLAS
with ThreadPoolExecutor(1) as pool:
    print(set(pool.submit(threads).result()))
"""


def test_blas_is_limited_in_every_thread():
    env = os.environ | {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", WORKER], env=env, capture_output=True, text=True)
    assert done.stdout.strip() in ("{1}", "set()"), done.stderr


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dense_products_have_the_same_bits_on_any_number_of_threads(monkeypatch, dtype):
    monkeypatch.setattr(backend, "RANGE_NUMBERS", 1 << 12)
    rng = np.random.default_rng(0)
    left, right, signal = (
        rng.standard_normal(shape).astype(dtype) for shape in ((2000, 33), (33, 7), (2000, 7))
    )
    found = []
    for threads in (1, 2, 8):
        with use_threads(threads):
            found.append((backend.product(left, right), backend.transposed_product(left, signal)))
    assert all(np.array_equal(found[0][i], one[i]) for one in found for i in (0, 1))
    np.testing.assert_allclose(found[0][0], left @ right, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(found[0][1], left.T @ signal, rtol=1e-3, atol=1e-3)
    assert backend.transposed_product(left[:0], signal[:0]).tolist() == np.zeros((33, 7)).tolist()


AFTER_A_FORK = """
import os, signal, warnings
import numpy as np, scipy.sparse as sp
from hoplite import set_num_threads
from hoplite.engine import backend
from hoplite.engine.polynomial import polynomial
from hoplite.engine.sparse import SparseMatrix, spmm

warnings.simplefilter("ignore", DeprecationWarning)  # Python itself warns of such forks
set_num_threads(2)
backend.RANGE_NUMBERS = 1 << 14
S = SparseMatrix.from_scipy(sp.random_array((5000, 5000), density=0.01, format="csr", rng=0))
X = np.random.default_rng(0).standard_normal((5000, 64))

def work():
    scales = np.full((4, 64), 0.1)
    return [spmm(S, X), polynomial(S, "monomial", X, scales), backend.product(X, X[:64])]

wanted = work()
child = os.fork()
same = all(map(np.array_equal, work(), wanted))
if child == 0:
    signal.alarm(500)
    os._exit(0 if same and all(map(np.array_equal, work(), wanted)) else 1)
status = os.waitpid(child, 0)[1]
print(os.waitstatus_to_exitcode(status), same)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_fork_after_threads_goes_on_with_the_same_bits():
    done = run(AFTER_A_FORK)
    assert (done.stdout, done.stderr) == ("0 True\n", "")
