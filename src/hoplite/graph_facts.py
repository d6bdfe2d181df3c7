"""What a graph shows of itself in notebooks and terminals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hoplite.errors import plural, some_of
from hoplite.formatting import Description, Table, printable
from hoplite.labels import kind_of

if TYPE_CHECKING:
    import scipy.sparse as sp

    from hoplite.graph import Graph
else:
    from hoplite.optional_deps import sparse as sp


def graph_shown(graph: Graph) -> Description:
    """Its sizes, how it is connected, and of classes how many nodes of each part have them."""
    weights, kind = graph.adjacency.data, kind_of(graph.labels)
    alone = int((np.diff(graph.adjacency.indptr) == 0).sum())
    known = kind.known(graph.labels)
    edges = f"{graph.num_edges:,}"
    if weights.size and weights.min() != weights.max():
        edges += f", weights from {weights.min():.3g} to {weights.max():.3g}"
    facts = {
        "nodes": f"{graph.num_nodes:,}" + (f", {alone:,} without an edge" if alone else ""),
        "edges": edges,
        "features": f"{graph.num_features:,}{_filled(graph)}",
        "labels": f"{kind.task}, {plural(int(known.sum()), 'node')} of {graph.num_nodes:,}",
    }
    if graph.relations:
        facts["relations"] = some_of(relation.name for relation in graph.relations)
    sizes = graph.split.sizes()
    if any(sizes.values()):
        facts["split"] = ", ".join(f"{part} {size:,}" for part, size in sizes.items())
    if graph.split.note:
        facts["split"] = f"{facts.get('split', 'none')} ({graph.split.note})"
    return Description(f"Graph {printable(graph.name)}", facts, _classes(graph, known))


def _filled(graph: Graph) -> str:
    features: Any = graph.features  # SciPy has no types
    if not sp.issparse(features):
        return ""
    cells = max(graph.num_nodes * graph.num_features, 1)
    return f", sparse: {100 * features.nnz / cells:.2g} % are not 0"


def _classes(graph: Graph, known: np.ndarray) -> list[Table]:
    """How many nodes of each part have each class; of numbers, how they are spread."""
    kind, parts = kind_of(graph.labels), {"nodes": np.flatnonzero(known)}
    for part, size in graph.split.sizes().items():
        if size:
            parts[part] = getattr(graph.split, part)
    labels = {name: graph.labels[nodes] for name, nodes in parts.items()}
    counts = [kind.counts(own, graph.num_classes) for own in labels.values()]
    told = [count for count in counts if count is not None]
    if told:
        rows = [
            [name, *[f"{int(count[c]):,}" for count in told]]
            for c, name in enumerate(graph.class_names)
        ]
        return [Table(["class", *labels], rows)]
    if not known.any():
        return []
    figures = {"mean": np.mean, "deviation": np.std, "least": np.min, "most": np.max}
    rows = [
        [name, *[f"{figure(own):.4g}" for own in labels.values()]]
        for name, figure in figures.items()
    ]
    return [Table(["label", *labels], rows)]
