"""PyTorch Geometric for the tests that compare with it."""

from types import ModuleType

import pytest

from hoplite.machine import quiet


def layers() -> ModuleType:
    """Its layers; the test skips without it. Imported only now, as that takes a while."""
    with quiet():
        return pytest.importorskip("torch_geometric.nn")
