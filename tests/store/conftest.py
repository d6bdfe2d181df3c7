"""A store cut as a test wants it, the whole store in memory, and its bytes."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tests.dask_processes import dask  # noqa: F401 - a fixture
from tests.untidy import cut_store

from hoplite.engine.propagation import Propagation


@pytest.fixture
def tmp_path():
    """A folder in memory where there is one: a disk takes minutes to sync thousands of blocks."""
    memory = Path("/dev/shm")
    usable = memory.is_dir() and os.access(memory, os.W_OK)
    place = memory if usable and shutil.disk_usage(memory).free > 4e9 else None
    with tempfile.TemporaryDirectory(dir=place, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def in_memory(graph, operator="renormalized", basis="monomial", hops=3):
    """p_i(S) X as the models compute it: (hops + 1, n, d)."""
    features = graph.features.astype(np.float32)
    single = graph.with_features(features, graph.feature_names)
    return Propagation(single, operator, basis, hops).hop_features()


def all_bytes(folder: Path) -> dict[str, bytes]:
    """Every file of a store but the lock."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture(scope="session")
def stores():
    return SimpleNamespace(cut=cut_store, in_memory=in_memory, all_bytes=all_bytes)


@pytest.fixture
def without_pandas(tmp_path, monkeypatch):
    """Processes that do not find pandas: PyArrow imports it where it can, which takes 60 MB."""
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "pandas.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "hidden"))
