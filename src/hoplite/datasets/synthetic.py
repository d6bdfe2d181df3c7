"""Random node-classification graphs of any size, and the preset ``reddit-like``."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from hoplite.config import check_number
from hoplite.datasets.communities import draw_edges, edge_room, power_law_degrees
from hoplite.errors import ConfigError
from hoplite.graph import Graph, Split

ROWS = 8192  # of features at a time, so that no second matrix of their size is made
REDDIT = {"nodes": 232_965, "edges": 57_307_946, "features": 602, "classes": 41}
REDDIT_SPLIT = (153_431 / 232_965, 23_831 / 232_965)
REDDIT_LIKE = "reddit-like"
LEAST_SCALE, MOST_SCALE = 0.005, 1000


def synthetic(
    nodes: int,
    edges: int,
    features: int,
    classes: int,
    *,
    homophily: float = 0.8,
    exponent: float = 3.0,
    max_degree: int | None = None,
    separation: float = 4.0,
    misfits: float = 0.0,
    skew: float = 0.0,
    split: Sequence[float] = (0.6, 0.2),
    seed: int = 0,
    name: str = "synthetic",
) -> Graph:
    """A simple graph of degree-corrected communities with Gaussian features.

    Node i of class c_i has features mu_{c_i} + noise, with standard normal noise and class means
    mu_c ~ N(0, separation^2 / (2 d) I), so that two means are about ``separation`` apart. Its
    expected degree follows a power law. Of the edges a share ``homophily`` joins nodes of one
    class; the ends of each are drawn in proportion to the expected degrees. An edge drawn twice
    is drawn again, so there are exactly ``edges`` of them. The same arguments give the same bits.

    Parameters
    ----------
    nodes, edges, features, classes : int
        Sizes; each edge is undirected and counted once.
    homophily : float
        Share of the edges that lie within a class. A class takes at most half of the edges that
        it has room for, and the rest joins classes: in small, dense graphs the share is lower.
    exponent : float
        Degrees have a density ~ degree^-exponent; more than 2.
    max_degree : int, optional
        The largest expected degree; if not given, a tenth of the nodes or ten times the mean.
    separation : float
        Distance of two class means, in standard deviations of the noise.
    misfits : float
        Share of the nodes that have the edges of another class than their own, which no filter
        can see; what is left to learn of them is in their own features.
    skew : float
        Class c (from 0) has a share of the nodes ~ (c + 1)^-skew: 0 makes them equal.
    split : (float, float)
        Shares of the nodes that train and validate, the others test; every class has a training
        node.
    seed : int
        Seeds everything.

    >>> graph = synthetic(100, 400, 8, 4, seed=1)
    >>> graph, graph.split.sizes()
    (Graph(nodes=100, edges=400, features=8, classes=4), {'train': 60, 'val': 20, 'test': 20})
    """
    _check(nodes, edges, features, classes)
    check_number("homophily", homophily, 0, 1)
    check_number("exponent", exponent, 2, open_ends="l")
    check_number("separation", separation, 0)
    check_number("misfits", misfits, 0, 1)
    check_number("skew", skew, 0)
    check_number("seed", seed, 0, whole=True)
    if max_degree is None:
        max_degree = min(max(nodes // 10, 20 * edges // nodes, 1), nodes)
    check_number("max_degree", max_degree, 1, whole=True)
    # Each part has its own stream, so that changing one leaves the others as they are.
    streams = np.random.default_rng(seed).spawn(5)
    labels = _labels(nodes, classes, skew, streams[0])
    degrees = power_law_degrees(nodes, edges, exponent, max_degree, streams[1])
    community = _communities(labels, classes, misfits, streams[2])
    room = edge_room(np.bincount(community, minlength=classes))
    if edges > room.sum():
        raise ConfigError(
            f"edges is {edges:,} but {nodes:,} nodes can have at most {room.sum():,} here, half "
            "of all pairs; ask for fewer edges or more nodes."
        )
    keys = draw_edges(community, degrees, edges, homophily, room, streams[3])
    adjacency = _adjacency(keys, nodes)
    del keys
    matrix = _features(labels, features, classes, separation, streams[4])
    parts = _split(labels, split, streams[0], seed)
    return Graph(
        adjacency,
        matrix,
        labels,
        split=parts,
        class_names=tuple(str(c) for c in range(classes)),
        name=name,
    )


def reddit_like(scale: float = 1.0, *, seed: int = 0) -> Graph:
    """A synthetic graph of Reddit's size times ``scale``, with its mean degree and split sizes.

    Nodes and edges are scaled; the 602 features, 41 classes and the mean degree of 492 stay. Small
    scales are therefore dense, their classes have little room for edges, and the task is harder
    than at full size. There, smoothing models get every node right but the 6 % of misfits, so the
    graph is for measuring time and memory and does not rank models.

    >>> reddit_like(0.005)
    Graph(nodes=1165, edges=286540, features=602, classes=41)
    """
    # Below the least scale half of all pairs would be edges.
    check_number("scale", scale, LEAST_SCALE, MOST_SCALE)
    nodes, edges = round(REDDIT["nodes"] * scale), round(REDDIT["edges"] * scale)
    return synthetic(
        nodes,
        edges,
        REDDIT["features"],
        REDDIT["classes"],
        homophily=0.85,
        exponent=2.9,
        separation=4.0,
        misfits=0.06,
        skew=0.5,
        split=REDDIT_SPLIT,
        seed=seed,
        name=REDDIT_LIKE if scale == 1 else f"{REDDIT_LIKE}:{scale:g}",
    )


def _check(nodes: int, edges: int, features: int, classes: int) -> None:
    check_number("nodes", nodes, 1, whole=True)
    check_number("edges", edges, 0, whole=True)
    check_number("features", features, 1, whole=True)
    check_number("classes", classes, 1, whole=True)
    if classes > nodes:
        raise ConfigError(
            f"classes is {classes:,} but there are {nodes:,} nodes; each class needs one."
        )


def _labels(nodes: int, classes: int, skew: float, rng: np.random.Generator) -> np.ndarray:
    """One node for each class, the others by share, in random order."""
    shares = np.arange(1, classes + 1, dtype=np.float64) ** -skew
    ends = np.round(np.cumsum(shares) / shares.sum() * (nodes - classes)).astype(np.int64)
    counts = np.diff(ends, prepend=0) + 1
    return rng.permutation(np.repeat(np.arange(classes), counts))


def _communities(
    labels: np.ndarray, classes: int, misfits: float, rng: np.random.Generator
) -> np.ndarray:
    """The class whose edges each node has: its own, or for a misfit one of the others."""
    community = labels.copy()
    if classes > 1:
        chosen = rng.permutation(labels.size)[: round(misfits * labels.size)]
        shift = rng.integers(1, classes, chosen.size)
        community[chosen] = (labels[chosen] + shift) % classes
    return community


def _adjacency(keys: np.ndarray, nodes: int) -> sp.csr_array:
    """Keys i n + j with i < j, ascending, as a symmetric matrix of booleans."""
    index = np.int32 if max(nodes, 2 * keys.size) <= np.iinfo(np.int32).max else np.int64
    starts = np.searchsorted(keys, np.arange(nodes + 1) * nodes).astype(index)
    columns = np.empty(keys.size, index)
    np.remainder(keys, nodes, out=columns, casting="same_kind")
    upper = sp.csr_array((np.ones(keys.size, bool), columns, starts), shape=(nodes, nodes))
    return sp.csr_array(upper.maximum(upper.T))


def _features(
    labels: np.ndarray, features: int, classes: int, separation: float, rng: np.random.Generator
) -> np.ndarray:
    scale = np.float32(separation / math.sqrt(2 * features))
    means = scale * rng.standard_normal((classes, features), np.float32)
    matrix = np.empty((labels.size, features), np.float32)
    for start in range(0, labels.size, ROWS):
        rows = matrix[start : start + ROWS]
        rng.standard_normal(dtype=np.float32, out=rows)
        rows += means[labels[start : start + ROWS]]
    return matrix


def _split(
    labels: np.ndarray, shares: Sequence[float], rng: np.random.Generator, seed: int
) -> Split:
    given = np.asarray(shares, np.float64)
    if given.shape != (2,) or not (given >= 0).all() or given.sum() > 1 + 1e-9:
        raise ConfigError(
            f"split is {shares!r}; give the shares of training and validation nodes, "
            "at most 1 together."
        )
    order = rng.permutation(labels.size)
    first = np.unique(labels[order], return_index=True)[1]  # one node of each class comes first
    order = np.concatenate([order[first], np.delete(order, first)])
    train = max(round(given[0] * labels.size), first.size)
    val = train + round(given[1] * labels.size)
    percent = "/".join(f"{100 * share:.4g}" for share in (*given, 1 - given.sum()))
    note = f"random {percent}, seed {seed}"
    return Split(order[:train], order[train:val], order[val:], note=note)
