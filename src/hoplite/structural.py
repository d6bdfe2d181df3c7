"""Features computed from the graph: structural features, and links.

Links as features: the rows of the adjacency itself, for the exact linear LINK.

    X becomes [X | L],    L[v, u] = s A[v, u] / sqrt(sum_w A[v, w]^2),    A: n x n
                          s = sqrt(1/n sum_{v, f} X[v, f]^2)

so that logits gain L Theta_A, with a weight for every neighbour and class. All rows of L have the
length s, that of X's rows in the root mean square (1 if X is 0, or has no columns), whatever the
unit of the weights and the degree, but for nodes without edges, whose rows are 0. A penalty then
holds back links no more than features. With directions, or types, there is an L of every relation.
L is sparse, and so [X | L] is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from hoplite.config import check_flag, check_number
from hoplite.csr import mean_weight
from hoplite.errors import option_name, plural, warn
from hoplite.graph import IN, OUT, Graph
from hoplite.operators import find_operator
from hoplite.preparation import Preparation

LOG_DEGREE = "log degree"
LOG_DEGREES = (LOG_DEGREE, "log weighted degree")
NAMES = ("degree", LOG_DEGREE)
TO, FROM = "link to", "link from"
DEFAULT_VECTORS = 32
MAX_VECTORS = 1024
DENSE_NODES = 512  # up to this size, or for half of all vectors, use LAPACK


def with_structural(graph: Graph, count: int | None = None, *, link: bool = False) -> Graph:
    """Append links and structural features to the features of a graph.

    Parameters
    ----------
    graph : Graph
        The graph.
    count : int, optional
        Number of singular vectors, see :func:`structural_features`. By default a graph without
        features gets 32, with a warning, and any other graph none of these features.
    link : bool, default False
        Whether to append the rows of the adjacency matrix, see :func:`with_link`.

    Returns
    -------
    Graph

    Examples
    --------
    >>> g = Graph.from_edges([(0, 1), (1, 2)], features=np.eye(3)[:, :1])
    >>> with_structural(g, 1).feature_names
    ('x0', 'degree', 'log degree', 'vector 1')
    """
    check_flag("link", link)
    if link:
        graph = with_link(graph)
    if count is None and graph.num_features:
        return graph
    if count is None:
        count = DEFAULT_VECTORS
        warn(
            f"{graph.name} has no features, so structural features are used: degree, log degree "
            f"and {plural(count, 'singular vector')}; set their number with "
            f"{option_name('structural')}.",
            stacklevel=3,
        )
    check_number("structural", count, 0, MAX_VECTORS, whole=True)
    return _with_columns(graph, [structural_features(graph, count)], structural_names(count))


def with_log_degree(graph: Graph, names: Sequence[str] = ()) -> Graph:
    """``graph`` with logarithms of degrees as its last features, unless it has a "log degree".

    They are log(1 + number of neighbours) and, if not all edges have one weight,
    log(1 + d / w) as "log weighted degree". d are the weighted degrees and w is the graph's
    ``loop_weight``, the mean weight of an edge. A model keeps the w of its training, so that a
    degree means the same in every graph.

    Parameters
    ----------
    graph : Graph
        The graph.
    names : sequence of str, optional
        The names of these features in a trained model.

    Returns
    -------
    Graph

    Examples
    --------
    >>> g = Graph.from_edges([(0, 1), (1, 2)], features=np.eye(3)[:, :1])
    >>> with_log_degree(g).feature_names, with_log_degree(g).features[:, 1].round(2).tolist()
    (('x0', 'log degree'), [0.69, 1.1, 0.69])
    >>> g = Graph.from_edges([(0, 1), (1, 2)], features=np.eye(3)[:, :1], weights=[1.0, 3.0])
    >>> with_log_degree(g).feature_names, with_log_degree(g).features[1].round(2).tolist()
    (('x0', 'log degree', 'log weighted degree'), [0.0, 1.1, 1.1])
    """
    existing, rows = graph.feature_names or (), graph.adjacency
    if LOG_DEGREE in existing:
        return graph
    weighted = bool((rows.data != rows.data[:1]).any())
    names = names or (
        LOG_DEGREES if weighted and LOG_DEGREES[-1] not in existing else LOG_DEGREES[:1]
    )
    degrees = np.diff(rows.indptr), np.asarray(rows.sum(axis=1), np.float64) / graph.loop_weight
    columns = np.log1p(np.column_stack(degrees[: len(names)])).astype(np.float32)
    return _with_columns(graph, [columns], tuple(names))


def without_log_degree(data: Any) -> Any:
    """``data``, or the graph without the features of :func:`with_log_degree`.

    >>> graph = Graph.from_edges([(0, 1)], [[1.0], [2.0], [5.0]])
    >>> without_log_degree(with_log_degree(graph)).features.tolist()
    [[1.0], [2.0], [5.0]]
    """
    if not (count := len(log_degrees_of(data))):
        return data
    graph = data.in_memory()
    names = graph.feature_names[:-count]
    return graph.with_features(graph.features[:, :-count], names, preparation=graph.preparation)


def log_degrees(names: Sequence[str] | None, preparation: Preparation | None) -> tuple[str, ...]:
    """The names of the features of :func:`with_log_degree`, which are the last; () if none.

    A column of a table may have the same name; then the ``preparation`` knows it.

    >>> log_degrees(["age", "log degree"], None), log_degrees(["age"], None)
    (('log degree',), ())
    """
    all_names = tuple(names or ())
    computed = all_names[0 if preparation is None else len(preparation.names) :]
    if structural_count(all_names) is None:
        for count in (2, 1):
            if computed[-count:] == LOG_DEGREES[:count]:
                return LOG_DEGREES[:count]
    return ()


def log_degrees_of(data: Any) -> tuple[str, ...]:
    """:func:`log_degrees` of a graph, store or model, or None."""
    names = getattr(data, "feature_names", None)
    return log_degrees(names, getattr(data, "preparation", None))


def made_of_edges(names: Sequence[str] | None, preparation: Preparation | None) -> int:
    """The number of features, at the end of these names, that are structural or log degrees."""
    vectors = structural_count(names)
    return len(log_degrees(names, preparation)) if vectors is None else len(NAMES) + vectors


def _with_columns(graph: Graph, added: Sequence[Any], names: tuple[str, ...]) -> Graph:
    """``graph`` with these features after its own; sparse if any of them are."""
    existing = graph.feature_names or tuple(f"x{j}" for j in range(graph.num_features))
    blocks: list[Any] = [graph.features, *added] if graph.num_features else [*added]
    if any(map(sp.issparse, blocks)):
        features = sp.hstack([sp.csr_array(block) for block in blocks], format="csr")
    else:
        features = np.hstack(blocks)
    return graph.with_features(features, (*existing, *names), preparation=graph.preparation)


def structural_count(names: Sequence[str] | None) -> int | None:
    """The number of singular vectors among features; None without structural features.

    >>> structural_count(["age", *structural_names(3)]), structural_count(["age"])
    (3, None)
    """
    all_names = tuple(names or ())
    count = len(all_names) - 1 - all_names.index(NAMES[-1]) if NAMES[-1] in all_names else -1
    return count if count >= 0 and all_names[-2 - count :] == structural_names(count) else None


def count_of_model(model: Any) -> int | None:
    """The number of vectors that ``model``, or None, was trained with; warns of their meaning."""
    count = structural_count(getattr(model, "feature_names", None))
    if count:
        warn(
            f"the model's features 'vector 1' to 'vector {count}' were computed from the training "
            "graph; they have a different meaning on a graph with other edges, so do not trust "
            "these predictions.",
            stacklevel=3,
        )
    return count


def structural_names(count: int) -> tuple[str, ...]:
    """``degree``, ``log degree``, ``vector 1``, ``vector 2``, ..."""
    return (*NAMES, *(f"vector {j + 1}" for j in range(count)))


def structural_features(graph: Graph, count: int = DEFAULT_VECTORS) -> np.ndarray:
    """Degree, its logarithm, and the truncated SVD of S: (n, 2 + count) in float32.

        F = [d / mean(d),  log(1 + d / w),  sqrt(n) |s_1| v_1, ..., sqrt(n) |s_count| v_count]

    d are the weighted degrees, w the mean weight of an edge, so that the unit of weights is no
    matter, and S = D^-1/2 A D^-1/2 = sum_j s_j v_j v_j^T with ``|s_1| >= |s_2| >= ...``, each v_j
    of length 1 with its largest entry (the first of equals) positive; in the mean over nodes, a
    vector's square is s_j^2. An isolated node has zeros (A + I would spend a vector on it). Where
    there are fewer than ``count`` vectors the rest is 0. The same graph gives the same numbers.

    Parameters
    ----------
    graph : Graph
        The graph.
    count : int, default 32
        Number of singular vectors.

    Returns
    -------
    (n, 2 + count) ndarray of float32

    Examples
    --------
    >>> g = Graph.from_edges([(0, 1), (1, 2), (2, 0)], features=np.empty((4, 0)))
    >>> structural_features(g, 1)[[0, 3]].round(2)
    array([[1.33, 1.1 , 1.15],
           [0.  , 0.  , 0.  ]], dtype=float32)
    """
    n = graph.num_nodes
    degrees = np.asarray(graph.adjacency.sum(axis=1), np.float64).ravel()
    features = np.zeros((n, 2 + count), np.float32)
    features[:, 0] = degrees / (degrees.mean() or 1.0) if n else degrees
    features[:, 1] = np.log1p(degrees / mean_weight(graph.adjacency_rows))
    if not n or not count:
        return features
    matrix = find_operator("adjacency").matrix(graph, np.float64)
    if n <= DENSE_NODES or 2 * count >= n:
        values, vectors = np.linalg.eigh(matrix.toarray())
    else:
        from scipy.sparse.linalg import eigsh  # only now: it takes 11 MB

        start = np.random.default_rng(0).standard_normal(n)
        values, vectors = eigsh(matrix, count, which="LM", v0=start, tol=1e-6)
    order = np.argsort(-abs(values), kind="stable")[:count]
    chosen = vectors[:, order]
    large = abs(chosen)
    peaks = (large >= large.max(axis=0) * (1 - 1e-9)).argmax(axis=0)
    signs = np.sign(chosen[peaks, np.arange(len(order))])
    features[:, 2 : 2 + len(order)] = chosen * (signs * abs(values[order]) * np.sqrt(n))
    features[degrees == 0] = 0
    return features


def with_link(graph: Graph) -> Graph:
    """``graph`` with the links of every node after its features.

    They are called ``link to ID``, of directed edges also ``link from ID``, and of types
    ``link to ID (TYPE)``, with the index of a node for its id if it has none.

    Parameters
    ----------
    graph : Graph
        The graph.

    Returns
    -------
    Graph

    Examples
    --------
    >>> g = Graph.from_edges([(0, 1), (1, 2)], features=np.eye(3)[:, :1], weights=[3.0, 4.0])
    >>> linked = with_link(g)
    >>> linked.feature_names
    ('x0', 'link to 0', 'link to 1', 'link to 2')
    >>> linked.features.toarray().round(1).tolist()[1]
    [0.0, 0.3, 0.0, 0.5]
    """
    parts = [(_words(relation.name), relation.adjacency) for relation in graph.relations]
    parts = parts or [(f"{TO} {{}}", graph.adjacency)]
    ids = range(graph.num_nodes) if graph.node_ids is None else graph.node_ids
    names = tuple(words.format(node) for words, _ in parts for node in ids)
    size = _mean_length(graph.features)
    links = [(size * _unit_rows(rows)).astype(graph.features.dtype) for _, rows in parts]
    return _with_columns(graph, links, names)


def links_among(
    names: Sequence[str] | None, preparation: Preparation | None = None
) -> range | None:
    """The range of the features that are links; None if there are none.

    The first ones are columns of a table, if ``preparation`` made them, whatever they are called.

    >>> links_among(["age", "link to a", "link to b", "degree"]), links_among(["age"])
    (range(1, 3), None)
    """
    columns = 0 if preparation is None else len(preparation.names)
    words = (f"{TO} ", f"{FROM} ")
    links = [j for j, name in enumerate(names or ()) if j >= columns and name.startswith(words)]
    return range(links[0], links[-1] + 1) if links else None


def link_of_model(model: Any) -> bool:
    """Whether ``model``, or None, was trained with links; warns if its nodes had no ids."""
    names = getattr(model, "feature_names", None)
    links = links_among(names, getattr(model, "preparation", None))
    if links is None or names is None:
        return False
    if names[links[0]].split()[:3] == [*TO.split(), "0"]:
        warn(
            f"the model's features {names[links[0]]!r} etc. refer to the nodes of the training "
            "graph; they have a different meaning on a graph with other nodes, so do not trust "
            "these predictions.",
            stacklevel=3,
        )
    return True


def _words(relation: str) -> str:
    """The name of a link of ``relation``, with {} for the node's id."""
    if relation in (OUT, IN):
        return f"{TO if relation == OUT else FROM} {{}}"
    title = relation.replace("{", "{{").replace("}", "}}")
    return f"{TO} {{}} ({title})"


def _mean_length(features: Any) -> float:
    """The root mean square of the rows' lengths; 1 if all are 0, or there are none."""
    values = features.data if sp.issparse(features) else np.asarray(features)
    largest = float(abs(values).max(initial=0.0))
    if not largest:
        return 1.0
    squares = float(((values / largest) ** 2).sum(dtype=np.float64))
    return largest * (squares / features.shape[0]) ** 0.5


def _unit_rows(adjacency: sp.csr_array) -> sp.csr_array:
    """Every row divided by its length, in float64."""
    from sklearn.preprocessing import normalize

    rows = sp.csr_array(adjacency, dtype=np.float64)
    return normalize(normalize(rows, "max"), "l2")  # first the maximum: no square overflows
