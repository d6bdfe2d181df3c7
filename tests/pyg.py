"""PyTorch Geometric for the tests that compare with it."""

from types import ModuleType

import pytest

from hoplite.peers import find


def layers() -> ModuleType:
    """Its layers; the test skips without it. Imported only now, as that takes a while."""
    nn = find("torch_geometric.nn")
    if nn is None:
        pytest.skip("PyTorch Geometric is not installed")
    return nn
