"""Graphs that the tests share, and the same mathematics written densely, once, for comparison."""

from __future__ import annotations

import contextlib
import os
import runpy
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import eval_chebyt, eval_jacobi, eval_legendre
from tests.examples import load_hypothesis_profile

from hoplite import Graph, HopliteWarning, Split, load
from hoplite.bases import find_basis
from hoplite.engine import backend
from hoplite.graph import Relation
from hoplite.models import MODELS

load_hypothesis_profile()  # before any test is collected

BROWSERS = Path(__file__).parent.parent / "docs" / "_ext" / "browsers.py"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of the site first: one worker builds it, and no other comes to wait for it."""
    items.sort(key=lambda item: "site" not in item.path.parts)


@pytest.fixture(scope="session")
def chromium_options() -> dict[str, Any]:
    """How Playwright starts the Chromium that is installed."""
    path = runpy.run_path(str(BROWSERS))["find_browser"]()
    if path is None:
        message = "no Chromium was found; `make browser` installs one."
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(message)
    quiet = ["--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    # pages are read once: code is neither optimised nor compiled again to know its lines
    quiet.append("--js-flags=--no-opt --no-maglev --no-enable-lazy-source-positions")
    root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    return {"executable_path": path, "args": [*root, *quiet]}


@pytest.fixture(scope="session")
def browser(chromium_options):
    """Chromium, once in a process: Playwright can be started only once in its main thread."""
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(**chromium_options)
        yield chromium
        chromium.close()


@pytest.fixture(autouse=True, scope="module")
def _busy_machine():
    """A busy machine prints no lines about progress, and its workers are not given up."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hoplite.progress.ESTIMATE_SECONDS", float("inf"))
        patch.setattr("hoplite.progress.LINE_SECONDS", float("inf"))
        patch.setattr("hoplite.store.cluster.PATIENCE", 600.0)
        yield


@pytest.fixture
def threads_as_before():
    before = backend._threads
    yield
    backend._threads = before


@pytest.fixture(params=["native", "numpy"])
def each_backend(request):
    if request.param == "native" and not backend.has_native():
        pytest.skip("built without the C++ core")
    with backend.use_backend(request.param):
        yield


@pytest.fixture(autouse=True)
def _models_as_they_were():
    """What a test makes known, such as modules by their address, others must not meet."""
    known = dict(MODELS)
    yield
    MODELS.clear()
    MODELS.update(known)


def make_graph(
    n: int = 12,
    d: int = 5,
    classes: int = 3,
    *,
    seed: int = 0,
    dtype: type = np.float64,
    sparse: bool = False,
    weighted: bool = True,
    isolated: int = 2,
    density: float = 0.3,
    unseen: bool = False,
) -> Graph:
    """A random graph as untidy as real ones: nothing is sorted, contiguous or of even size.

    Isolated nodes and the parts of the split lie scattered over the nodes, a tenth of which have
    neither label nor part. Each class is half as large as the one before; all of them are trained,
    but with ``unseen`` the last, which then appears only in test. Weights span four magnitudes.
    """
    rng, names = np.random.default_rng(seed), ("node", "Zoë,", '"b"')
    linked = np.sort(rng.permutation(n)[isolated:])
    edges = linked[np.argwhere(np.triu(rng.random((len(linked), len(linked))) < density, 1))]
    edges = rng.permuted(rng.permutation(edges), axis=1)
    weights = 10.0 ** rng.uniform(-2, 2, len(edges)) if weighted else None
    features = (rng.random((n, d)) * (rng.random((n, d)) < 0.6)).astype(dtype)
    order = rng.permutation(n)
    third = max(n // 3, classes)
    parts = np.split(order[n // 10 :], [third, 2 * third])
    shares = 0.5 ** np.arange(classes)
    labels = rng.choice(classes, n, p=shares / shares.sum())
    labels[parts[0][:classes]] = np.arange(classes)
    if unseen:
        labels[labels == classes - 1] = 0
        labels[parts[2][:2]] = classes - 1
    labels[order[: n // 10]] = -1
    untrained = pytest.warns(HopliteWarning, match="no training node")
    with untrained if unseen else contextlib.nullcontext():
        return Graph.from_edges(
            edges,
            sp.csr_array(features) if sparse else features,
            labels,
            weights=weights,
            split=Split(*parts),
            node_ids=[f"{names[i % 3]} {i}" for i in rng.permutation(n)],
        )


def dense_operator(graph: Graph | Relation, name: str) -> np.ndarray:
    """The operator, entry by entry from its definition."""
    weights = graph.adjacency.toarray().astype(np.float64)
    if name == "renormalized":
        weights = weights + graph.loop_weight * np.eye(len(weights))
    rows, columns = weights.sum(axis=1), weights.sum(axis=0)
    normal = np.zeros_like(weights)
    for i, j in np.argwhere(weights):
        other = rows[i] if name == "random_walk" else columns[j]
        normal[i, j] = weights[i, j] / np.sqrt(rows[i] * other)
    return np.eye(len(weights)) - normal if name == "laplacian" else normal


def dense_basis(graph: Graph, operator: str, basis: str, hops: int) -> list[np.ndarray]:
    """p_0(S) .. p_k(S) from the eigendecomposition of S; D^-1 A is similar to D^-1/2 A D^-1/2."""
    if operator == "random_walk":
        degrees = graph.adjacency.toarray().astype(np.float64).sum(axis=1)
        roots = np.sqrt(np.where(degrees > 0, degrees, 1.0))
        twin = dense_basis(graph, "adjacency", basis, hops)
        return [p * roots / roots[:, None] for p in twin]
    values, vectors = np.linalg.eigh(dense_operator(graph, operator))
    if operator == "laplacian" and basis != "monomial":
        values = values - 1
    scalars = [polynomial(basis, i, values) for i in range(hops + 1)]
    return [(vectors * scalar) @ vectors.T for scalar in scalars]


def polynomial(basis: str, degree: int, points: np.ndarray) -> np.ndarray:
    """p_degree as SciPy has it; of a recurrence, the determinant of its tridiagonal matrix.

    A new basis without a line here is its own judge at the eigenvalues.
    """
    name, _, settings = basis.partition(":")
    twins = {
        "monomial": lambda i, x: x**i,
        "chebyshev": eval_chebyt,
        "legendre": eval_legendre,
        "jacobi": lambda i, x: eval_jacobi(i, *map(float, settings.split(",")), x),
        "recurrence": lambda i, x: tridiagonal(settings, i, x),
    }
    twin = twins.get(name, lambda i, x: find_basis(basis).values(x, i)[..., i])
    return twin(degree, points)


def tridiagonal(settings: str, size: int, points: np.ndarray) -> np.ndarray:
    """det of the matrix with a_i x + b_i on the diagonal, g_i above and 1 below it."""
    parts = settings.removesuffix("/...").split("/")
    steps = [tuple(map(float, parts[min(i, len(parts) - 1)].split(","))) for i in range(size)]
    matrices = np.zeros((len(points), size, size))
    for i, (a, b, g) in enumerate(steps):
        matrices[:, i, i] = a * points + b
        if i:
            matrices[:, i - 1, i], matrices[:, i, i - 1] = g, 1.0
    return np.linalg.det(matrices)


def dense_features(graph: Graph) -> np.ndarray:
    features = graph.features
    return features.toarray() if sp.issparse(features) else np.asarray(features)


@pytest.fixture(scope="session")
def graphs() -> Callable[..., Graph]:
    return make_graph


@pytest.fixture(scope="session")
def dense() -> SimpleNamespace:
    """The dense twins, gathered under one name."""
    return SimpleNamespace(
        operator=dense_operator, basis=dense_basis, polynomial=polynomial, features=dense_features
    )


@pytest.fixture(scope="session")
def cora() -> Graph:
    return load("cora")
