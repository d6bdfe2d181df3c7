"""Graphs whose nodes are numbers and whose features are one matrix: SciPy, PyG and DGL."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from hoplite.datasets.splits import PARTS, masked_split, stratified_split
from hoplite.datasets.table_labels import sorted_classes
from hoplite.errors import GraphError, HopliteError, HopliteWarning
from hoplite.graph import Graph, Split
from hoplite.graph_checks import as_array
from hoplite.labels import NUMBERS, UNKNOWN_LABEL, check_task, known_labels
from hoplite.optional_deps import find, quiet
from hoplite.relations import relations_of
from hoplite.sparse_checks import as_csr
from hoplite.structural import with_structural

if TYPE_CHECKING:
    import torch


def from_scipy(
    adjacency: Any,
    features: Any = None,
    labels: Any = None,
    *,
    split: Split | None = None,
    seed: int = 0,
    structural: int | None = None,
    link: bool = False,
    task: str | None = None,
    directed: bool = False,
    **names: Any,
) -> Graph:
    """See :meth:`hoplite.Graph.from_scipy`."""
    if not sp.issparse(adjacency):
        adjacency = sp.csr_array(as_array(adjacency, "adjacency"))
    matrix = as_csr(adjacency, "adjacency")
    if matrix.shape[0] != matrix.shape[1]:
        raise GraphError(f"adjacency has shape {matrix.shape}; it must be square.")
    relations = relations_of(matrix, directed=True) if directed else ()
    matrix = matrix.maximum(matrix.T)
    if features is None:
        features = np.empty((matrix.shape[0], 0), np.float32)
    classes, class_names = coded_labels(labels, task)
    options: dict[str, Any] = {"class_names": class_names} | names
    graph = Graph(matrix, features, classes, split=split, relations=relations, **options)
    return finished(graph.for_task(task), seed, structural, link)


def finished(graph: Graph, seed: int, structural: int | None, link: bool) -> Graph:
    """With a split if there are labels and none is given, and features if there are none."""
    known = known_labels(graph.labels).any()
    if known and not any(graph.split.sizes().values()):
        graph = graph.with_split(stratified_split(graph.labels, seed))
    return with_structural(graph, structural, link=link)


def coded_labels(
    labels: Any, task: str | None = None
) -> tuple[np.ndarray | None, tuple[str, ...] | None]:
    """Labels as a Graph takes them, and the names of the classes if they are no integers.

    Whole numbers are classes unless the ``task`` is regression, others are numbers, and several
    columns are several labels. Unknown are negative classes, NaN, None and empty text.

    >>> coded_labels(["b", None, "a"])
    (array([ 1, -1,  0]), ('a', 'b'))
    >>> coded_labels([2.0, float("nan")])[0]
    array([ 2, -1])
    """
    if labels is None:
        return None, None
    values = np.asarray(labels)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim > 2:
        raise GraphError(f"labels has shape {values.shape}; give one label per node, or a row.")
    if values.ndim == 2 or (check_task(task) == NUMBERS.task and values.dtype.kind in "biuf"):
        return values if values.ndim == 2 else values.astype(np.float64), None
    if values.dtype.kind == "f":
        whole = np.where(np.isnan(values), UNKNOWN_LABEL, values)
        if (whole != np.round(whole)).any():
            return values.astype(np.float64), None
        values = whole.astype(np.int64)
    if values.dtype.kind in "iub":
        return np.maximum(values.astype(np.int64), UNKNOWN_LABEL), None
    text = ["" if one is None or one != one else str(one).strip() for one in values.tolist()]
    names = sorted_classes(sorted(set(text) - {""}))
    place = {name: i for i, name in enumerate(names)} | {"": UNKNOWN_LABEL}
    return np.array([place[one] for one in text], np.int64), tuple(names)


def from_pyg(
    data: Any,
    *,
    split: int | None = None,
    seed: int = 0,
    structural: int | None = None,
    link: bool = False,
    task: str | None = None,
    directed: bool = False,
    type: str | None = None,
) -> Graph:
    """See :meth:`hoplite.Graph.from_pyg`."""
    pyg, utils = find("torch_geometric.data"), find("torch_geometric.utils")
    if pyg is not None and isinstance(data, pyg.Dataset) and len(data) == 1:
        data = data[0]
    if pyg is None or utils is None or not isinstance(data, pyg.Data):
        raise GraphError(
            f"data is a {data.__class__.__name__}; give a torch_geometric.data.Data, one graph "
            "with one kind of nodes."
        )
    import torch

    with quiet():
        if data.edge_index is not None:
            pairs, weights = data.edge_index, data.get("edge_weight")
            weights = data.edge_attr if weights is None else weights
        elif data.get("adj_t") is not None:
            pairs, weights = utils.to_edge_index(data.adj_t)
        else:
            pairs, weights = torch.empty(2, 0, dtype=torch.int64), None
    masks = {part: data.get(f"{part}_mask") for part in PARTS}
    return _tensors_graph(
        pairs, weights, data.get("x"), data.get("y"), masks, data.num_nodes, split, seed,
        structural, link, task, directed=directed, types=_edge_types(data, type),
    )  # fmt: skip


def from_dgl(
    graph: Any,
    *,
    features: str = "feat",
    label: str = "label",
    weight: str = "weight",
    split: int | None = None,
    seed: int = 0,
    structural: int | None = None,
    link: bool = False,
    task: str | None = None,
    directed: bool = False,
    type: str | None = None,
) -> Graph:
    """See :meth:`hoplite.Graph.from_dgl`."""
    if not getattr(graph, "is_homogeneous", False):
        raise GraphError("graph has several kinds of nodes or edges; give one with one of each.")
    import torch

    values, edge_values = graph.ndata, graph.edata
    masks = {part: values.get(f"{part}_mask") for part in PARTS}
    return _tensors_graph(
        torch.stack(graph.edges()), edge_values.get(weight), values.get(features),
        values.get(label), masks, graph.num_nodes(), split, seed, structural, link, task,
        directed=directed, types=_edge_types(edge_values, type),
    )  # fmt: skip


def _edge_types(values: Any, name: str | None) -> list[Any] | None:
    """The tensor ``name`` of what has ``values`` by name, one per edge; None if none is named."""
    if not name:
        return None
    types = values.get(name)
    if types is None:
        raise GraphError(f"type is {name!r}, but data has no such attribute of its edges.")
    return array_of(types).ravel().tolist()


def _tensors_graph(
    pairs: torch.Tensor,
    weights: torch.Tensor | None,
    features: torch.Tensor | None,
    labels: torch.Tensor | None,
    masks: dict[str, torch.Tensor | None],
    nodes: int,
    split: int | None,
    seed: int,
    structural: int | None,
    link: bool,
    task: str | None,
    **relations: Any,
) -> Graph:
    """The graph of (2, e) pairs, whose features, labels and masks are tensors."""
    classes, names = coded_labels(None if labels is None else array_of(labels), task)
    if weights is not None and weights.ndim == 2 and weights.shape[1] == 1:
        weights = weights[:, 0]
    if weights is not None and weights.ndim > 1:
        warnings.warn(
            f"edges have {weights.shape[1]} attributes each, which are no weight; every edge "
            "counts 1.",
            HopliteWarning,
            stacklevel=4,
        )
        weights = None
    x = np.empty((nodes, 0), np.float32) if features is None else array_of(features)
    graph = Graph.from_edges(
        array_of(pairs).T,
        x[:, None] if x.ndim == 1 else x,
        classes,
        weights=None if weights is None else array_of(weights),
        split=masked_split(
            {part: array_of(mask) for part, mask in masks.items() if mask is not None},
            split,
            classes,
            "from the masks",
        ),
        class_names=names,
        **relations,
    )
    return finished(graph.for_task(task), seed, structural, link)


def array_of(tensor: torch.Tensor) -> Any:
    """A tensor as an array, a sparse one as a CSR matrix; bfloat16 and half become float32."""
    import torch

    tensor = tensor.detach().cpu()
    if tensor.layout != torch.strided:
        with quiet():
            tensor = tensor.to_sparse_coo().coalesce()
        rows, columns = tensor.indices().numpy()
        return sp.csr_array((array_of(tensor.values()), (rows, columns)), shape=tuple(tensor.shape))
    return (tensor.float() if tensor.dtype in (torch.bfloat16, torch.half) else tensor).numpy()


def to_pyg(graph: Graph) -> Any:
    """See :meth:`hoplite.Graph.to_pyg`."""
    pyg = find("torch_geometric.data")
    if pyg is None:
        raise HopliteError("to_pyg needs torch_geometric; run `pip install torch_geometric`.")
    import torch

    graph.refuse_relations("to_pyg")
    pairs = graph.adjacency.tocoo()
    data = pyg.Data(
        x=torch.from_numpy(np.array(graph.feature_rows(0, graph.num_nodes))),
        edge_index=torch.from_numpy(np.stack([pairs.row, pairs.col]).astype(np.int64)),
        y=torch.from_numpy(np.array(graph.labels)),
    )
    if (pairs.data != 1).any():
        data.edge_weight = torch.from_numpy(np.array(pairs.data))
    for part in PARTS:
        mask = torch.zeros(graph.num_nodes, dtype=torch.bool)
        mask[torch.from_numpy(np.array(getattr(graph.split, part)))] = True
        data[f"{part}_mask"] = mask
    return data
