"""GraphML: nodes and edges with typed attributes, as Gephi, yEd, igraph and NetworkX write them."""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path
from typing import Any
from xml.parsers import expat

from hoplite.errors import DatasetError, require_extra
from hoplite.files import open_regular
from hoplite.graph import Graph
from hoplite.io.convert import networkx_graph
from hoplite.io.formats import Format

MAX_BYTES = 1 << 30  # NetworkX takes several times as much memory
_DAMAGE = (expat.ExpatError, AttributeError, KeyError, OverflowError, TypeError, ValueError)


def read_graphml(path: str | Path, *, seed: int | None = None, **options: Any) -> Graph:
    """Read one graph with NetworkX; attributes of nodes are columns, as in a node table.

    ``label`` and ``split`` mean what they do there, ``id`` is not a feature, ``weight`` of an edge
    is its weight; direction is ignored unless ``directed``, and ``type`` names the attribute of
    edges that is their type. Keys have their defaults, and drawings (of yEd) are left out. Document
    types, with their entities, are refused, and so are nested graphs.
    """
    require_extra("convert", "reading GraphML", "networkx")
    import networkx

    path = Path(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of attributes that are not used
            graphs, nodes, attributes = _declared(path)
            graph = networkx.read_graphml(path)
        if graphs != 1:
            raise ValueError(f"it has {graphs:,} graphs; give one")
        if nodes != len(graph):
            raise ValueError("a node is declared twice, or an edge names one that is not declared")
    except OSError as error:
        raise DatasetError(f"{path} cannot be opened: {error.strerror or error}.") from error
    except (networkx.NetworkXError, SyntaxError, *_DAMAGE) as error:
        reason = (str(error).splitlines() or [""])[0].rstrip(".") or type(error).__name__
        raise DatasetError(f"{path} is not a valid GraphML file ({reason}).") from error
    defaults = graph.graph.get("node_default", {})
    for node, own in graph.nodes.items():
        complete = {name: own.get(name, defaults.get(name)) for name in attributes}
        graph.nodes[node].clear()
        graph.nodes[node].update((k, value) for k, value in complete.items() if value is not None)
    for *_, own in graph.edges(data=True):
        own.update(graph.graph.get("edge_default", {}) | own)
    graph.graph = {"name": path.stem}
    try:
        return networkx_graph(graph, seed=seed, **options)
    except DatasetError as error:
        raise DatasetError(f"in {path}: {error}") from error


def _declared(path: Path) -> tuple[int, int, list[str]]:
    """The number of graphs and of nodes, and the names of the nodes' attributes.

    ValueError if the file declares a document type.
    """
    counts: Counter[str] = Counter()
    names: dict[str, None] = {}

    def start(element: str, about: dict[str, str]) -> None:
        name = element.rpartition(" ")[2]
        counts[name] += 1
        if name == "key" and about.get("for", "all") in ("node", "all") and "attr.name" in about:
            names[about["attr.name"]] = None

    def refuse_doctype(*_: Any) -> None:
        raise ValueError("it declares a document type, which GraphML does not need; remove it")

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler, parser.StartDoctypeDeclHandler = start, refuse_doctype
    with open_regular(path, MAX_BYTES) as file:
        parser.ParseFile(file)
    return counts["graph"], counts["node"], list(names)


GRAPHML = Format(
    ".graphml",
    lambda path: path.suffix == ".graphml" and path.is_file(),
    lambda path, seed, _, **options: read_graphml(path, seed=seed, **options),
    columns=True,
)
