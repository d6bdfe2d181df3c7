"""The frequency response of a filter, and how the eigenvalues of its operator are spread.

A filter p(S) = sum_i c_i p_i(S) scales the part of a signal at eigenvalue lambda by p(lambda). The
density of the eigenvalues, exact or estimated, says where this matters.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hoplite.bases import Basis, Chebyshev, find_basis
from hoplite.config import check_number
from hoplite.engine.backend import one_blas_thread
from hoplite.engine.polynomial import iterate
from hoplite.engine.sparse import SparseMatrix
from hoplite.errors import ConfigError, GraphError
from hoplite.formatting import short
from hoplite.graph import Graph
from hoplite.operators import Operator, find_operator

RESPONSE_POINTS = 200
DENSE_NODES = 3500  # up to here all eigenvalues take some seconds
PROBED_ENTRIES = 1_280_000  # nodes times probes: half a percent of the density is misplaced
MIN_PROBES = 4
MOMENTS_OF = Chebyshev()
MIN_MOMENTS = 16  # fewer would smooth over the whole spectrum
# The Chebyshev coefficients of a Gaussian of width s fall like exp(-(k s)^2 / 2); where k s = 6
# this is 1.5e-8, so what the estimate leaves out does not show.
WIDTH_TIMES_MOMENTS = 6.0


def basis_values(
    basis: str | Basis, operator: str | Operator, points: np.ndarray, hops: int
) -> np.ndarray:
    """p_i at eigenvalues ``points``: shape (len(points), hops + 1).

    >>> basis_values("chebyshev", "laplacian", np.array([0.0, 1.0, 2.0]), 2).tolist()
    [[1.0, -1.0, 1.0], [1.0, 0.0, -1.0], [1.0, 1.0, 1.0]]
    """
    chosen = find_basis(basis)
    middle, half = chosen.mapping(*find_operator(operator).spectrum)
    return chosen.values((np.asarray(points, dtype=np.float64) - middle) / half, hops)


def frequency_response(
    source: Any,
    points: np.ndarray | None = None,
    *,
    basis: str | Basis = "monomial",
    operator: str = "renormalized",
) -> np.ndarray:
    """The factor p(lambda) = sum_i c_i p_i(lambda) by which the filter scales each eigenvalue.

    Parameters
    ----------
    source : TrainedModel, or coefficients c_0 .. c_k
        A linear model brings its own basis and operator.
    points : (p,) eigenvalues, optional
        200 of them over the operator's spectrum if not given, the grid of ``spectral_density``.
    basis, operator : str
        Basis and operator of the coefficients.

    Returns
    -------
    (p,) ndarray

    Raises
    ------
    ConfigError
        For JacobiConv and hop blocks, which have a filter for every class, or for every feature
        and class.

    Examples
    --------
    >>> frequency_response([0, 0, 1], [-1, 0.5]).tolist()
    [1.0, 0.25]
    """
    coefficients = source
    if hasattr(source, "filter_coefficients_"):
        if len(source.maps_) > 1:
            raise ConfigError(
                f"model {source.config.model!r} has a filter for each class, or each feature and "
                "class; pass the coefficients of one of them, from maps_."
            )
        coefficients, basis, operator = (
            source.filter_coefficients_,
            source.config.basis,
            source.config.operator,
        )
    if points is None:
        points = np.linspace(*find_operator(operator).spectrum, RESPONSE_POINTS)
    try:
        coefficients = np.asarray(coefficients, dtype=np.float64)
    except (TypeError, ValueError):
        raise ConfigError(
            f"source is {short(repr(source))}; pass a trained linear model, or the coefficients of "
            "a filter, e.g. [0.5, 0.5]."
        ) from None
    if coefficients.ndim != 1:
        raise ConfigError(
            f"source has coefficients of shape {coefficients.shape}; pass those of a single "
            "polynomial, e.g. model.filter_coefficients_[0] of a model with relations."
        )
    return basis_values(basis, operator, np.asarray(points), len(coefficients) - 1) @ coefficients


def spectral_density(
    graph: Graph,
    operator: str = "renormalized",
    points: int = 200,
    *,
    moments: int = 240,
    probes: int | None = None,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """The density of the eigenvalues lambda_1 .. lambda_n of an operator, smoothed.

        density(x) = 1/n sum_j [ G(x - lambda_j) + G(2a - x - lambda_j) + G(2b - x - lambda_j) ]

    on a grid over the operator's spectrum [a, b], with G the Gaussian of standard deviation
    3 (b - a) / moments. What it would carry beyond an end is reflected, so the density
    integrates to 1 over [a, b].

    Up to 3,500 nodes the eigenvalues themselves are used. For more nodes, or with ``probes``
    given, the sum over j is estimated without them (the kernel polynomial method):

        1/n sum_j f(lambda_j) = sum_k c_k mu_k
        mu_k = 1/n trace T_k(M) ~ 1/(n r) sum_i v_i' T_k(M) v_i

    with c_k the Chebyshev coefficients of f, M the operator with its spectrum mapped to [-1, 1],
    and v_1 .. v_r random vectors of +1 and -1.

    Parameters
    ----------
    graph : Graph
        Its n nodes; features and labels do not matter.
    operator : {"renormalized", "adjacency", "laplacian"}
        The matrix S.
    points : int
        Length of the grid. Peaks are as wide as G, so use ``moments`` / 2 points or more.
    moments : int
        Number of mu_k, each two of which cost one product with S; more of them show more detail.
    probes : int, optional
        Number r of random vectors; the error falls like 1 / sqrt(n r). If not given and needed,
        so many that about half a percent of the density is misplaced.
    seed : int
        Seed of the random vectors.

    Returns
    -------
    grid, density : (points,) float64
        Eigenvalues from a to b in equal steps, and the density there.

    The triangle's Laplacian has the eigenvalues 0, 1.5 and 1.5:

    >>> triangle = Graph.from_edges([(0, 1), (1, 2), (2, 0)], features=np.eye(3))
    >>> grid, density = spectral_density(triangle, "laplacian", points=201)
    >>> [round(float(x), 2) for x in grid[density > density.max() / 2]]
    [0.0, 0.01, 0.02, 1.48, 1.49, 1.5, 1.51, 1.52]
    """
    check_number("points", points, 2, whole=True)
    check_number("moments", moments, MIN_MOMENTS, whole=True)
    check_number("seed", seed, 0, whole=True)
    n = graph.num_nodes
    if n == 0:
        raise GraphError("the graph has no nodes and thus no spectrum; pass a graph with nodes.")
    chosen = find_operator(operator).similar
    mapped = SparseMatrix.from_scipy(chosen.matrix(graph, basis=MOMENTS_OF), symmetric=True)
    if probes is None and n <= DENSE_NODES:
        nodes, weights = _eigenvalues(mapped), np.full(n, 1 / n)
    else:
        if probes is None:
            probes = max(math.ceil(PROBED_ENTRIES / n), MIN_PROBES)
        check_number("probes", probes, 1, whole=True)
        generator = np.random.default_rng(int(seed))
        nodes, weights = _quadrature(_moments(mapped, int(moments), int(probes), generator))
    grid = np.linspace(-1.0, 1.0, int(points))
    density = _smooth(grid, nodes, weights, WIDTH_TIMES_MOMENTS / moments)
    low, high = chosen.spectrum
    return np.linspace(low, high, int(points)), density * 2 / (high - low)


def _eigenvalues(matrix: SparseMatrix) -> np.ndarray:
    """All eigenvalues, shape (n,), of a symmetric matrix with its spectrum in [-1, 1]."""
    dense = matrix.to_scipy().toarray().astype(np.float64)
    with one_blas_thread:
        return np.clip(np.linalg.eigvalsh(dense), -1, 1)


def _moments(
    matrix: SparseMatrix, count: int, probes: int, generator: np.random.Generator
) -> np.ndarray:
    """Estimates of mu_k = 1/n trace T_k(M), k = 0 .. count - 1, from random signs V: (n, r).

    2 T_i T_j = T_{i+j} + T_{i-j}, so hop k gives mu_2k and, with hop k - 1, mu_{2k-1}.
    """
    n = matrix.shape[0]
    signs = generator.choice(np.array([-1.0, 1.0]), (n, probes)).astype(matrix.dtype)
    moments = np.empty(count + 2)
    moments[0] = 1.0
    before = signs
    for k, hop in enumerate(iterate(matrix, MOMENTS_OF, signs, count // 2)):
        if k == 1:
            moments[1] = _mean_product(before, hop)
        elif k:
            moments[2 * k - 1] = 2 * _mean_product(before, hop) - moments[1]
        if k:
            moments[2 * k] = 2 * _mean_product(hop, hop) - 1
        before = hop
    return moments[:count]


def _mean_product(left: np.ndarray, right: np.ndarray) -> float:
    return float((left * right).mean(dtype=np.float64))


def _quadrature(moments: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Nodes in [-1, 1] and weights that have these K moments: (K,) -> (2K,) and (2K,).

        w_m = 1/(2K) sum_k (2 - [k = 0]) mu_k T_k(x_m),    x_m = cos(pi (m + 1/2) / (2K))

    The weights need not be positive. They sum functions of degree below 2K as their Chebyshev
    coefficients c_0 .. c_{K-1} and the moments do.
    """
    size = 2 * len(moments)
    nodes = np.cos(np.pi * (np.arange(size) + 0.5) / size)
    series = np.where(np.arange(len(moments)) == 0, 1.0, 2.0) * moments
    return nodes, np.polynomial.chebyshev.chebval(nodes, series) / size


def _smooth(grid: np.ndarray, nodes: np.ndarray, weights: np.ndarray, width: float) -> np.ndarray:
    """sum_j w_j G(x, node_j) at the grid's x in [-1, 1], G a Gaussian reflected at both ends."""
    density = np.zeros(len(grid))
    step = max(1, 1_000_000 // len(grid))
    for first in range(0, len(nodes), step):
        part = slice(first, first + step)
        for centres in (nodes[part], 2 - nodes[part], -2 - nodes[part]):
            distances = (grid[:, None] - centres) / width
            density += np.exp(-0.5 * distances**2) @ weights[part]
    # the estimate may dip below 0 by its rounding error
    return np.maximum(density, 0.0) / (width * math.sqrt(2 * math.pi))
