"""GraphML: nodes and edges with typed attributes, as Gephi, yEd, igraph and NetworkX write them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.parsers import expat

import pyarrow as pa

from hoplite.datasets.formats import Format
from hoplite.datasets.table_reader import MOST_COLUMNS
from hoplite.datasets.tables import edge_type, tables_graph
from hoplite.errors import DatasetError
from hoplite.files import open_regular
from hoplite.graph import Graph

MOST_BYTES = 4 << 30
MOST_CELLS = 10**8  # nodes times attributes
SHOWN = 8  # attributes that a message names
KINDS = {"boolean": pa.bool_(), "int": pa.int64(), "long": pa.int64(), "float": pa.float64(),
         "double": pa.float64(), "string": pa.large_string()}  # fmt: skip
NUMBERS = {"nan": "nan", "infinity": "inf", "-infinity": "-inf"}  # as Java writes them


def read_graphml(path: str | Path, *, seed: int = 0, **preparing: Any) -> Graph:
    """Read one graph: attributes of nodes are columns, by the rules of node tables.

    ``label`` and ``split`` mean what they do there, ``id`` is no feature, ``weight`` of an edge is
    its weight; direction is ignored unless ``directed``, and what ``type`` names, an attribute of
    edges, is their type. Keys have their defaults. Nothing outside of the file is read:
    a document type, with its entities, is refused, and so are nested graphs and hyperedges.
    """
    path, found = Path(path), _Content()
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = found.start, found.end
    parser.CharacterDataHandler = found.text
    parser.StartDoctypeDeclHandler = _refuse_doctype
    try:
        with open_regular(path, MOST_BYTES) as file:
            parser.ParseFile(file)  # a piece at a time
        nodes, edges = found.tables(edge_type(preparing.get("prepare"), preparing))
    except OSError as error:
        raise DatasetError(f"{path} cannot be opened: {error.strerror or error}.") from error
    except (expat.ExpatError, ValueError, pa.ArrowException) as error:
        reason = (str(error).splitlines() or [""])[0].rstrip(".")
        raise DatasetError(f"{path} cannot be read as GraphML: {reason}.") from error
    try:
        return tables_graph(nodes, edges, seed=seed, name=path.stem, **preparing)
    except DatasetError as error:
        raise DatasetError(f"in {path}: {error}") from error


def _refuse_doctype(*about: Any) -> None:
    raise ValueError("it declares a document type, which GraphML does not need; remove it")


@dataclass
class _Key:
    """An attribute: what it is called, of what type, and who has which value."""

    name: str
    kind: str
    default: str | None = None
    values: dict[int, str] = field(default_factory=dict)

    def column(self, count: int, names: list[str]) -> pa.Array:
        """The values of ``count`` nodes or edges, None where there is none."""
        texts = [self.values.get(i, self.default) for i in range(count)]
        if self.kind == "string":
            return pa.array(texts, pa.large_string())
        parsed = []
        for i, text in enumerate(texts):
            text = (text or "").strip()
            try:
                parsed.append(self._value(text) if text else None)
            except ValueError as error:
                owner = f" of node {names[i]!r}" if names else f" of edge {i + 1:,}"
                raise ValueError(
                    f"attribute {self.name!r}{owner} is {text[:50]!r}, which is no {self.kind}"
                ) from error
        return pa.array(parsed, KINDS[self.kind])

    def _value(self, text: str) -> bool | int | float:
        if self.kind == "boolean":
            if text.lower() not in ("true", "false", "1", "0"):
                raise ValueError
            return text.lower() in ("true", "1")
        if self.kind in ("int", "long"):
            value = int(text)
            if not -(2**63) <= value < 2**63:
                raise ValueError
            return value
        return float(NUMBERS.get(text.lower(), text))


class _Content:
    """What the elements of a file say, in the order in which they come."""

    def __init__(self) -> None:
        self._keys: dict[str, dict[str, _Key]] = {"node": {}, "edge": {}}
        self._place: dict[str, int] = {}
        self._ends: tuple[list[str], list[str]] = ([], [])
        self._open: list[str] = []
        self._key: tuple[_Key, ...] = ()
        self._data: _Key | None = None
        self._letters: list[str] | None = None
        self._graphs = 0

    def start(self, element: str, about: dict[str, str]) -> None:
        name, parent = element.rpartition(" ")[2], self._open[-1] if self._open else ""
        self._open.append(name)
        if name == "key":
            self._start_key(about)
        elif name == "graph":
            self._graphs += 1
            if self._graphs > 1:
                raise ValueError("it holds several graphs; give one")
        elif name == "node":
            node = about.get("id", "").strip()
            if not node or node in self._place:
                raise ValueError(f"the id {node!r} is empty or of two nodes; give each its own")
            self._place[node] = len(self._place)
        elif name == "edge":
            for end, key in zip(self._ends, ("source", "target"), strict=True):
                end.append(about.get(key, "").strip())
        elif name == "hyperedge":
            raise ValueError("it holds hyperedges; give edges of two nodes")
        elif name == "data" and parent in self._keys:
            self._data, self._letters = self._keys[parent].get(about.get("key", "")), []
        elif name == "default":
            self._letters = []

    def _start_key(self, about: dict[str, str]) -> None:
        name, kind = about.get("attr.name"), about.get("attr.type", "string")
        self._key = ()
        if name is None:  # such as yEd's drawings
            return
        if kind not in KINDS:
            raise ValueError(f"attribute {name!r} has the type {kind!r}; use {', '.join(KINDS)}")
        owners = self._keys if about.get("for", "all") == "all" else [about["for"]]
        made = {owner: _Key(name, kind) for owner in owners if owner in self._keys}
        for owner, key in made.items():
            if any(other.name == name for other in self._keys[owner].values()):
                raise ValueError(f"it declares the attribute {name!r} twice")
            self._keys[owner][about.get("id", "")] = key
            if len(self._keys[owner]) > MOST_COLUMNS:
                raise ValueError(f"it has more than {MOST_COLUMNS:,} attributes")
        self._key = tuple(made.values())

    def text(self, letters: str) -> None:
        if self._letters is not None:
            self._letters.append(letters)

    def end(self, element: str) -> None:
        name = self._open.pop()
        if self._letters is None or name not in ("data", "default"):
            return
        text, self._letters = "".join(self._letters), None
        if name == "default":
            for key in self._key:
                key.default = text
        elif self._data is not None:
            of_node = self._open[-1] == "node"
            self._data.values[(len(self._place) if of_node else len(self._ends[0])) - 1] = text

    def tables(self, typed: str) -> tuple[pa.Table, pa.Table]:
        """Of nodes, and of edges with their weights and, unless it is "", the types ``typed``."""
        names = list(self._place)
        if len(names) * len(self._keys["node"]) > MOST_CELLS:
            raise ValueError(f"it has more than {MOST_CELLS:,} values of attributes")
        columns = {"id": pa.array(names, pa.large_string())}
        for key in self._keys["node"].values():
            if key.name != "id":
                columns[key.name] = key.column(len(names), names)
        ends = [pa.array(end, pa.large_string()) for end in self._ends]
        edges: dict[str, pa.Array] = {"source": ends[0], "target": ends[1]}
        for key in self._keys["edge"].values():
            if key.name in ("weight", typed):
                edges[key.name] = key.column(len(ends[0]), [])
        if typed and typed not in edges:
            known = [repr(key.name) for key in self._keys["edge"].values()][:SHOWN]
            raise ValueError(
                f"type is {typed!r}, but its edges have no such attribute (they have "
                f"{', '.join(known) or 'none'}); name one"
            )
        return pa.table(columns), pa.table(edges)


GRAPHML = Format(
    ".graphml",
    lambda path: path.suffix == ".graphml" and path.is_file(),
    lambda path, seed, _, **preparing: read_graphml(path, seed=seed, **preparing),
    columns=True,
)
