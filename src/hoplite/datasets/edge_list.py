"""A file of edges alone, and the node table that may lie beside it."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv

from hoplite.datasets.table_reader import (
    FAILURES,
    SUFFIXES,
    TableReader,
    check_file,
    pc,
    unreadable,
)
from hoplite.datasets.tables import EDGE_COLUMNS, are_integers, graph_of, read_preparation
from hoplite.errors import DatasetError
from hoplite.files import open_regular
from hoplite.graph import Graph
from hoplite.io.formats import Format

ENDINGS = (".csv", ".tsv", ".txt", ".edges", ".edgelist")
HEAD_BYTES = 1 << 16  # in which the first edge must be
_COMMENT = re.compile(rb"\s*([#%].*)?")


def read_edge_list(path: str | Path, *, seed: int = 0, **preparing: Any) -> Graph:
    """Read edges, one per line: ``source target`` or ``source target weight``.

    Commas, semicolons, tabs or single spaces separate; lines at the top that start with ``#`` or
    ``%`` are comments; a first line with the words ``source`` and ``target``, or what the options
    of these names say, names the columns.
    Nodes are the ids that occur, sorted if they are integers, otherwise as they come, and have no
    features yet; see :func:`graph_with_nodes` for those that do.
    """
    path = Path(path)
    check_file(path)
    options = {name: value for name, value in preparing.items() if name != "prepare"}
    chosen = read_preparation(preparing.get("prepare"), options).options
    named = any(options.get(name) is not None for name in EDGE_COLUMNS)
    edges, both = _edges(path, (*chosen.ends, chosen.weight), named=named), chosen.ends
    _refuse_header(path, edges, both)

    def ids() -> pa.Array:
        ends = [pc.utf8_trim_whitespace(edges[name]).chunks for name in both]
        names = pc.unique(
            pa.chunked_array([chunk for end in ends for chunk in end], pa.large_string())
        )
        names = names.filter(pc.not_equal(names, pa.scalar("", pa.large_string())))
        if are_integers(names):
            numbers = names.cast(pa.int64())
            names = numbers.take(pc.sort_indices(numbers))
        return names

    return graph_with_nodes(path, edges, ids, seed, **preparing)


def graph_with_nodes(
    path: Path,
    edges: pa.Table,
    ids: Callable[[], pa.Array],
    seed: int,
    *,
    prepare: Any = None,
    **options: Any,
) -> Graph:
    """The graph of the ``edges`` of a file; its nodes from a table beside it, or just ``ids``.

    Beside ``web.txt`` that is ``web.nodes.csv`` or ``web.nodes.parquet``, beside ``edges.csv``
    ``nodes.csv`` or ``nodes.parquet``: by the rules of node tables, with ``prepare`` and
    ``options`` as :func:`read_tables` takes them.
    """
    stem = "nodes" if path.stem == "edges" else f"{path.stem}.nodes"
    beside = [path.with_name(stem + suffix) for suffix in SUFFIXES]
    found = [table for table in beside if table.is_file()]
    if len(found) > 1:
        raise DatasetError(
            f"beside {path} lie both {found[0].name} and {found[1].name}; remove one."
        )
    if found:
        nodes = TableReader(found[0], None)
    else:
        named = read_preparation(prepare, {}).options.id  # as the model whose graph this is
        nodes = TableReader(Path(f"{path} (its nodes)"), None, pa.table({named: ids()}))
    table = TableReader(path, None, edges)
    return graph_of(nodes, table, seed, path.stem, prepare, options)


def _refuse_header(path: Path, edges: pa.Table, both: tuple[str, str]) -> None:
    """A first line such as ``from,to`` is no edge where all others are of numbers."""
    ends = [edges[name].combine_chunks() for name in both]
    numbers = [are_integers(end[start : start + 1]) for end in ends for start in (0, 1)]
    if numbers == [False, True] * 2 and all(are_integers(end[1:]) for end in ends):
        raise DatasetError(
            f"{path} starts with {ends[0][0].as_py()!r} and {ends[1][0].as_py()!r}, and all other "
            "ids are numbers; if these name the columns, call them source and target, or name them "
            "(--source and --target, source= and target= in Python)."
        )


def _edges(path: Path, special: tuple[str, str, str], *, named: bool) -> pa.Table:
    """All columns as text; a first line names the two ends, or must do so if they are ``named``.

    ``special`` are the columns of these and of the weight.
    """
    with open_regular(path) as file:
        head = io.BytesIO(file.read(HEAD_BYTES)).readlines()
    skip = next((i for i, line in enumerate(head) if not _COMMENT.fullmatch(line.rstrip())), None)
    if skip is None:
        raise DatasetError(f"{path} has no edge in its first lines; give one edge per line.")
    first = head[skip].decode("utf-8", "replace").lstrip("\ufeff").strip()
    separator = next((one for one in ",;\t" if one in first), " ")
    words = [word.strip().strip('"') for word in first.split(separator)]
    there = set(special[:2]) <= set(words)
    if not (there or named) and set(EDGE_COLUMNS[:2]) <= set(words):  # not as a model remembers
        usual: dict[str, str] = dict(zip(EDGE_COLUMNS, special, strict=True))
        words, there = [usual.get(word, word) for word in words], True
    if named and not there:
        raise DatasetError(
            f"{path} has no columns {special[0]!r} and {special[1]!r} (it starts with "
            f"{', '.join(map(repr, words[:10]))}); name two of its first line (--source and "
            "--target, source= and target= in Python), or leave them out if these are an edge."
        )
    if not there and not 2 <= len(words) <= 3:
        raise DatasetError(
            f"{path} has {len(words)} columns; give source, target and, if there is one, weight, "
            "with one comma, tab or space between them, or a first line with these names."
        )
    names = words if there else list(special[: len(words)])
    if len({*names}) < len(names):
        raise DatasetError(f"{path} has a column twice in its first line; give each a name.")
    try:
        return csv.read_csv(
            path,
            csv.ReadOptions(column_names=names, skip_rows=skip + there),
            csv.ParseOptions(delimiter=separator),
            csv.ConvertOptions(column_types=dict.fromkeys(names, pa.large_string())),
        )
    except FAILURES as error:
        raise unreadable(path, error) from error


def _is_node_table(path: Path) -> bool:
    return path.stem == "nodes" or path.stem.endswith(".nodes")


EDGE_LIST = Format(
    "edge list (.csv, .tsv, .txt, .edges)",
    lambda path: path.suffix in ENDINGS and not _is_node_table(path) and path.is_file(),
    lambda path, seed, _, **preparing: read_edge_list(path, seed=seed, **preparing),
    columns=True,
)
