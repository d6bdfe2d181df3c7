"""Edges of a degree-corrected community graph, drawn in memory that their keys alone determine."""

from __future__ import annotations

import numpy as np

ROUNDS = 12  # by degree; then the ends are drawn evenly, which always finds the free pairs
BATCH = 1 << 22


def power_law_degrees(
    nodes: int, edges: int, exponent: float, most: int, rng: np.random.Generator
) -> np.ndarray:
    """Expected degrees with density ~ x^-exponent, at most ``most``, whose mean is 2 edges / nodes.

    x = (1 - u)^(-1 / (exponent - 1)) for u uniform in [0, 1), scaled; what is above ``most`` is
    cut and the others grow to make up for it.

    >>> degrees = power_law_degrees(1000, 5000, 2.5, 40, np.random.default_rng(0))
    >>> float(degrees.mean().round(6)), float(degrees.max())
    (10.0, 40.0)
    """
    degrees = (1 - rng.random(nodes)) ** (-1 / (exponent - 1))
    total = 2.0 * edges
    if total >= most * nodes:
        return np.full(nodes, total / nodes)
    if not total:
        return np.zeros(nodes)
    free = np.ones(nodes, bool)
    while True:
        degrees[free] *= (total - most * (nodes - free.sum())) / degrees[free].sum()
        above = free & (degrees > most)
        if not above.any():
            return degrees
        degrees[above] = most
        free &= ~above


def edge_room(sizes: np.ndarray) -> np.ndarray:
    """How many edges each community may have, and last those between them: half of all pairs.

    Beyond half, drawing until a free pair is found would take long.

    >>> edge_room(np.array([3, 4]))
    array([2, 3, 6])
    """
    sizes = sizes.astype(np.int64)
    pairs = sizes * (sizes - 1) // 2
    n = sizes.sum()
    return (np.append(pairs, n * (n - 1) // 2 - pairs.sum()) + 1) // 2


def draw_edges(
    community: np.ndarray,
    degrees: np.ndarray,
    edges: int,
    homophily: float,
    room: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Exactly ``edges`` different pairs i < j as ascending keys i n + j (int64).

    A share ``homophily`` of them lies within communities, shared out by the communities' degrees
    as far as there is ``room`` (:func:`edge_room`), the rest joins different ones. Both ends are
    drawn in proportion to ``degrees``.
    """
    n, groups = community.size, room.size - 1
    weights = np.bincount(community, degrees, groups)
    counts = _quotas(edges, homophily, weights, room)
    order = np.argsort(community, kind="stable")
    bounds = np.searchsorted(community[order], np.arange(groups + 1))
    keys = np.empty(edges, np.int64)
    filled = np.append(0, np.cumsum(counts))
    for group in range(groups + 1):
        if group < groups:
            members, apart = order[bounds[group] : bounds[group + 1]], None
        else:
            members, apart = np.arange(n), community
        keys[filled[group] : filled[group + 1]] = _draw_group(
            members, degrees[members], int(counts[group]), n, apart, rng
        )
    keys.sort()
    return keys


def _quotas(edges: int, homophily: float, weights: np.ndarray, room: np.ndarray) -> np.ndarray:
    """Edges per community and, last, between them; none above its room."""
    within = np.minimum(_shared_out(round(homophily * edges), weights), room[:-1])
    between = min(edges - int(within.sum()), int(room[-1]))
    left = edges - int(within.sum()) - between
    return np.append(within + _shared_out(left, room[:-1] - within), between)


def _shared_out(total: int, weights: np.ndarray) -> np.ndarray:
    """``total`` as integers in proportion to ``weights``; none exceeds its share by 1 or more."""
    if not weights.sum():
        return np.zeros(weights.size, np.int64)
    shares = total * (weights / weights.sum())
    counts = np.floor(shares).astype(np.int64)
    most = np.argsort(counts - shares, kind="stable")[: total - int(counts.sum())]
    counts[most] += 1
    return counts


def _draw_group(
    members: np.ndarray,
    degrees: np.ndarray,
    count: int,
    n: int,
    apart: np.ndarray | None,
    rng: np.random.Generator,
) -> np.ndarray:
    """``count`` different keys among ``members``; with ``apart``, of different communities."""
    keys = np.empty(0, np.int64)
    steps, rounds = np.cumsum(degrees), 0
    while keys.size < count:
        if rounds == ROUNDS or not steps[-1]:
            steps = np.arange(1.0, members.size + 1)
        rounds += 1
        missing = count - keys.size
        fresh = [
            _draw_pairs(members, steps, min(BATCH, missing - start), n, apart, rng)
            for start in range(0, missing, BATCH)
        ]
        fresh = np.concatenate(fresh)
        fresh.sort()
        keys = np.concatenate([keys, fresh])
        keys.sort(kind="stable")  # which merges two ascending runs in one pass
        keys = keys[np.append(True, keys[1:] != keys[:-1])[: keys.size]]
    return keys


def _draw_pairs(
    members: np.ndarray,
    steps: np.ndarray,
    count: int,
    n: int,
    apart: np.ndarray | None,
    rng: np.random.Generator,
) -> np.ndarray:
    """Keys of ``count`` pairs but for loops and, with ``apart``, pairs of one community."""
    places = np.searchsorted(steps, rng.random((2, count)) * steps[-1], side="right")
    # u * total may round up to the total itself
    one, two = members[np.minimum(places, members.size - 1)]
    good = one != two if apart is None else apart[one] != apart[two]
    return (np.minimum(one, two) * n + np.maximum(one, two))[good]
