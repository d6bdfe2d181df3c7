"""A file of edges alone, and the node table that may lie next to it."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hoplite.errors import DatasetError
from hoplite.files import open_regular
from hoplite.graph import Graph
from hoplite.io.databases import file_table
from hoplite.io.formats import Format
from hoplite.io.sources import Table, Workspace, csv_table, frame_table, table_files
from hoplite.io.tables import (
    EDGE_COLUMNS,
    INTEGER_TEXT,
    graph_of,
    id_sql,
    read_preparation,
    scratch_folder,
)
from hoplite.preparation import TableOptions

ENDINGS = (".csv", ".tsv", ".txt", ".edges", ".edgelist")
HEAD_BYTES = 1 << 16  # in which the first edge must be
_COMMENT = re.compile(rb"\s*([#%].*)?")


def read_edge_list(
    path: str | Path, *, seed: int = 0, prepare: Any = None, **options: Any
) -> Graph:
    """Read edges, one per line: ``source target`` or ``source target weight``.

    Commas, semicolons, tabs or single spaces separate; lines at the top that start with ``#`` or
    ``%`` are comments; a first line with the words ``source`` and ``target``, or what the options
    of these names say, names the columns. Nodes are the ids that occur, sorted, by number if all
    are integers, and have no features yet; see :func:`graph_with_nodes` for those that do.
    """
    path, chosen = Path(path), read_preparation(prepare, options)
    with scratch_folder() as scratch, Workspace(scratch) as work:
        with work.clear_errors(str(path)):
            named = any(options.get(name) is not None for name in EDGE_COLUMNS)
            edges = _edges(work, path, chosen.options, named=named)

            def ids() -> list[str]:
                ends = " UNION ALL ".join(
                    f"SELECT {id_sql(edges, end)} AS id FROM {edges.sql}"
                    for end in chosen.options.ends
                )
                found = work.rows(
                    f"SELECT DISTINCT id FROM ({ends}) WHERE id IS NOT NULL ORDER BY id"
                )
                names = [name for (name,) in found]
                whole = all(INTEGER_TEXT.fullmatch(name) for name in names)
                return sorted(names, key=int) if whole else names

            _refuse_header(work, edges, chosen.options)
        return _graph(work, path, edges, ids, seed, prepare, options)


def graph_with_nodes(
    path: Path,
    edges: Any,
    ids: Callable[[], Sequence[Any]],
    seed: int,
    *,
    prepare: Any = None,
    **options: Any,
) -> Graph:
    """The graph of the ``edges`` of a file, a data frame or a dictionary of NumPy arrays.

    Its nodes come from a table next to it, or are just ``ids``. Next to ``web.txt`` that is
    ``web.nodes.csv`` (or ``.parquet``, ...), next to ``edges.csv`` it is ``nodes.csv``; ``prepare``
    and ``options`` are those of :func:`hoplite.io.read_tables`.
    """
    with scratch_folder() as scratch, Workspace(scratch) as work:
        table = frame_table(work, edges, str(path))
        return _graph(work, path, table, ids, seed, prepare, options)


def _graph(
    work: Workspace,
    path: Path,
    edges: Table,
    ids: Callable[[], Sequence[Any]],
    seed: int,
    prepare: Any,
    options: dict[str, Any],
) -> Graph:
    found = table_files(path.parent, "nodes" if path.stem == "edges" else f"{path.stem}.nodes")
    chosen = read_preparation(prepare, options)
    if len(found) > 1:
        raise DatasetError(f"next to {path} are {found[0].name} and {found[1].name}; remove one.")
    if found:
        nodes = file_table(work, found[0])
    else:
        names = np.array([str(name) for name in ids()], object)
        nodes = frame_table(work, {chosen.options.id: names}, f"{path} (its nodes)", spelled=True)
    required = options.get("label") is not None
    return graph_of(work, nodes, edges, chosen, seed, path.stem, prepare, required=required)


def _refuse_header(work: Workspace, edges: Table, options: TableOptions) -> None:
    """A first line such as ``from,to`` is no edge where all others are of numbers."""
    ends = [id_sql(edges, end) for end in options.ends]
    whole = " AND ".join(f"regexp_full_match({end}, '{INTEGER_TEXT.pattern}')" for end in ends)
    words, first, second, rows = work.one(
        f"SELECT count_if(NOT ({whole})), first({ends[0]}), first({ends[1]}), count(*) "
        f"FROM {edges.sql}"
    )
    texts = (
        first and second and not (INTEGER_TEXT.fullmatch(first) or INTEGER_TEXT.fullmatch(second))
    )
    if words == 1 and rows > 1 and texts:
        raise DatasetError(
            f"{edges.label} starts with {first!r} and {second!r}, and all other ids are numbers; "
            "if these name the columns, call them source and target, or name them (--source and "
            "--target, source= and target= in Python)."
        )


def _edges(work: Workspace, path: Path, options: TableOptions, *, named: bool) -> Table:
    """The edges; a first line names the two ends, or must do so if they are ``named``."""
    special = (*options.ends, options.weight)
    with open_regular(path) as file:
        head = io.BytesIO(file.read(HEAD_BYTES)).readlines()
    skip = next((i for i, line in enumerate(head) if not _COMMENT.fullmatch(line.rstrip())), None)
    if skip is None:
        raise DatasetError(f"{path} has no edge in its first lines; give one edge per line.")
    first = head[skip].decode("utf-8", "replace").lstrip("\ufeff").strip()
    separator = next((one for one in ",;\t" if one in first), " ")
    words = [word.strip().strip('"') for word in first.split(separator)]
    header = set(special[:2]) <= set(words)
    if not (header or named) and set(EDGE_COLUMNS[:2]) <= set(words):  # not as a model remembers
        default: dict[str, str] = dict(zip(EDGE_COLUMNS, special, strict=True))
        words, header = [default.get(word, word) for word in words], True
    if named and not header:
        raise DatasetError(
            f"{path} has no columns {special[0]!r} and {special[1]!r} (it starts with "
            f"{', '.join(map(repr, words[:10]))}); name two of its first line (--source and "
            "--target, source= and target= in Python), or leave them out if these are an edge."
        )
    if not header and not 2 <= len(words) <= 3:
        raise DatasetError(
            f"{path} has {len(words)} columns; give source, target and, if there is one, weight, "
            "with one comma, tab or space between them, or a first line with these names."
        )
    names = words if header else list(special[: len(words)])
    return csv_table(work, path, names=names, skip=skip + header, separator=separator)


EDGE_LIST = Format(
    "edge list (.csv, .tsv, .txt, .edges)",
    lambda path: (
        path.suffix in ENDINGS
        and path.stem != "nodes"
        and not path.stem.endswith(".nodes")
        and path.is_file()
    ),
    lambda path, seed, _, **preparing: read_edge_list(path, seed=seed, **preparing),
    columns=True,
)
