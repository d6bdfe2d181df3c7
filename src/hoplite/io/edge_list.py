"""Files of edges alone, and the node table that may lie next to them.

An edge list has an edge per line; a Matrix Market file (``.mtx``) has the entries of an adjacency.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import psutil

from hoplite.errors import DatasetError, option_name, plural
from hoplite.files import open_regular, reading
from hoplite.graph import Graph
from hoplite.io.sources import Table, Workspace, csv_table, file_table, frame_table, table_files
from hoplite.io.tables import EDGE_COLUMNS, INTEGER_TEXT, Reading, graph_of, id_sql
from hoplite.preparation import TableOptions, refuse_options

ENDINGS = (".csv", ".tsv", ".txt", ".edges", ".edgelist")
HEAD_BYTES = 1 << 16  # at the start of a file, which must contain an edge
MAX_LINE = 1 << 10  # bytes of a line at the top of a Matrix Market file
NODE_BYTES = 64  # memory per node, with or without edges
ENTRY_BYTES = 4  # minimum size of an entry: two digits and two separators
FIELDS = {"real": 3, "double": 3, "integer": 3, "pattern": 2}  # numbers per entry
_COMMENT = re.compile(rb"\s*([#%].*)?")


def read_edge_list(
    path: str | Path, *, seed: int | None = None, prepare: Any = None, **options: Any
) -> Graph:
    r"""Read a list of edges with one edge per line: ``source target`` or ``source target weight``.

    Columns are separated by commas, semicolons, tabs or single spaces. Lines at the top that start
    with ``#`` or ``%`` are comments. A first line with ``source`` and ``target`` (or with the names
    that you pass) is a header. A node table next to the file, ``web.nodes.csv`` for ``web.txt``,
    adds features and labels.

    Parameters
    ----------
    path : path
        The file.
    seed : int, optional
        As for :func:`hoplite.load`.
    prepare : TrainedModel or Preparation, optional
        Prepare the columns of the node table as in training.
    **options
        Options of tables, see :class:`hoplite.TableOptions`.

    Returns
    -------
    Graph
        Without a node table the nodes are the ids that occur, sorted (as numbers if all are
        integers), without features; :func:`hoplite.load` adds structural ones.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "web.txt")
    ...     _ = path.write_text("10 9 1\n9 11 2.5\n")
    ...     read_edge_list(path).node_ids
    (9, 10, 11)
    """
    path, reading = Path(path), Reading.of(prepare, options)
    with Workspace() as work, work.clear_errors(str(path)):
        named = any(options.get(name) is not None for name in EDGE_COLUMNS)
        edges = _edges(work, path, reading.options, named=named)
        _refuse_header(work, edges, reading.options)

        def ids() -> list[str]:
            ends = " UNION ALL ".join(
                f"SELECT {id_sql(edges, end)} AS id FROM {edges.sql}"
                for end in reading.options.ends
            )
            rows = work.rows(f"SELECT DISTINCT id FROM ({ends}) WHERE id <> '' ORDER BY id")
            names = [name for (name,) in rows]
            whole = all(INTEGER_TEXT.fullmatch(name) for name in names)
            return sorted(names, key=int) if whole else names

        return graph_with_nodes(work, path, edges, ids, reading, seed)


def read_matrix_market(
    path: str | Path, *, seed: int | None = None, prepare: Any = None, **options: Any
) -> Graph:
    r"""Read a Matrix Market file (``.mtx``) with an (n, n) matrix in coordinate format.

    The entries are edge weights; a pattern has weights of 1. Direction is ignored, so symmetric and
    general matrices are read alike. A node table next to the file, ``web.nodes.csv`` for
    ``web.mtx``, adds features and labels.

    Parameters
    ----------
    path : path
        The file.
    seed, prepare, **options
        As for :func:`read_edge_list`.

    Returns
    -------
    Graph
        Its nodes are numbered from 1, as in the file.

    Examples
    --------
    >>> import tempfile
    >>> head = "%%MatrixMarket matrix coordinate pattern symmetric"
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "path.mtx")
    ...     _ = path.write_text(f"{head}\n3 3 2\n2 1\n3 2\n")
    ...     read_matrix_market(path).num_edges
    2
    """
    path = Path(path)
    with (
        reading(path, "Matrix Market file"),
        open_regular(path) as raw,
        io.BufferedReader(raw) as file,  # pyright: ignore[reportArgumentType]
    ):
        n, edges = _matrix_entries(file)
    refuse_options(path, {name: options.get(name) for name in EDGE_COLUMNS})
    rules = Reading.of(prepare, options | {name: name for name in EDGE_COLUMNS})
    with Workspace() as work:
        table = frame_table(work, edges, str(path))
        return graph_with_nodes(work, path, table, lambda: range(1, n + 1), rules, seed)


def graph_with_nodes(
    work: Workspace,
    path: Path,
    edges: Table,
    ids: Callable[[], Sequence[Any]],
    reading: Reading,
    seed: int | None,
) -> Graph:
    """Make a graph of the ``edges`` of a file and the node table next to it, if any, else ``ids``.

    Next to ``web.txt`` the table is ``web.nodes.csv`` (or ``.parquet``, ...), next to ``edges.csv``
    it is ``nodes.csv``.
    """
    files = table_files(path.parent, "nodes" if path.stem == "edges" else f"{path.stem}.nodes")
    if len(files) > 1:
        raise DatasetError(
            f"{path} has two node tables next to it, {files[0].name} and "
            f"{files[1].name}; remove one."
        )
    if files:
        nodes = file_table(work, files[0])
    else:
        names = np.array([str(name) for name in ids()], object)
        nodes = frame_table(work, {reading.options.id: names}, f"{path} (its nodes)", spelled=True)
    return graph_of(work, nodes, edges, reading, seed, path.stem)


def _refuse_header(work: Workspace, edges: Table, options: TableOptions) -> None:
    """Raise DatasetError for a first line such as ``from,to`` if all other ids are numbers."""
    ends = [id_sql(edges, end) for end in options.ends]
    whole = " AND ".join(f"regexp_full_match({end}, '{INTEGER_TEXT.pattern}')" for end in ends)
    words, first, second, rows = work.row(
        f"SELECT count_if(NOT ({whole})), first({ends[0]}), first({ends[1]}), count(*) "
        f"FROM {edges.sql}"
    )
    texts = (
        first and second and not (INTEGER_TEXT.fullmatch(first) or INTEGER_TEXT.fullmatch(second))
    )
    if words == 1 and rows > 1 and texts:
        raise DatasetError(
            f"{edges.label} starts with {first!r} and {second!r}, but all other ids are numbers; "
            "if these are column names, rename them to source and target, or pass them as "
            f"{option_name('source')} and {option_name('target')}."
        )


def _edges(work: Workspace, path: Path, options: TableOptions, *, named: bool) -> Table:
    """The edges; a first line names the two ends, or must do so if they are ``named``."""
    special = (*options.ends, options.weight)
    with open_regular(path) as file:
        head = io.BytesIO(file.read(HEAD_BYTES)).readlines()
    skip = next((i for i, line in enumerate(head) if not _COMMENT.fullmatch(line.rstrip())), None)
    if skip is None:
        raise DatasetError(
            f"{path} has no edge in its first lines; it must have one edge per line."
        )
    first = head[skip].decode("utf-8", "replace").lstrip("\ufeff").strip()
    separator = next((mark for mark in ",;\t" if mark in first), " ")
    words = [word.strip().strip('"') for word in first.split(separator)]
    header = set(special[:2]) <= set(words)
    if not (header or named) and set(EDGE_COLUMNS[:2]) <= set(words):  # not as a model remembers
        default: dict[str, str] = dict(zip(EDGE_COLUMNS, special, strict=True))
        words, header = [default.get(word, word) for word in words], True
    if named and not header:
        raise DatasetError(
            f"{path} has no columns {special[0]!r} and {special[1]!r} (it starts with "
            f"{', '.join(map(repr, words[:10]))}); choose two of these with "
            f"{option_name('source')} and {option_name('target')}, or leave these out if the first "
            "line is an edge."
        )
    if not header and not 2 <= len(words) <= 3:
        raise DatasetError(
            f"{path} has {plural(len(words), 'column')}; it must have source, target and "
            "optionally weight, separated by a comma, tab or space, or a header with these names. "
            f"If it is a node table, pass its folder with {option_name('nodes', path.name)} and "
            f"{option_name('edges')}."
        )
    names = words if header else list(special[: len(words)])
    return csv_table(work, path, names=names, skip=skip + header, separator=separator)


def _matrix_entries(file: BinaryIO) -> tuple[int, dict[str, np.ndarray]]:
    """The number of nodes, and the entries. SciPy's reader crashes on some damaged files."""
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    banner = file.readline(MAX_LINE).decode("latin-1").lower().split()
    if (
        banner[:3] != ["%%matrixmarket", "matrix", "coordinate"]
        or banner[3:4] not in [[field] for field in FIELDS]
        or banner[4:] not in (["general"], ["symmetric"])
    ):
        raise ValueError("its header does not declare a sparse matrix of real edge weights")
    line = b"%"
    while line.startswith(b"%") or (line and not line.strip()):
        line = file.readline(MAX_LINE)
    sizes = [int(word) for word in line.split()]
    if len(sizes) != 3 or sizes[0] != sizes[1] or sizes[0] < 1:
        raise ValueError(f"its size is {sizes}; an adjacency matrix must be square")
    n, _, entries = sizes
    if not 0 <= entries * ENTRY_BYTES <= size:
        raise ValueError(f"it declares {entries:,} entries but has {size:,} bytes")
    if n * NODE_BYTES > psutil.virtual_memory().total:
        raise ValueError(f"it declares {n:,} nodes, too many for this machine's memory")
    width = FIELDS[banner[3]]
    numbers = np.empty((0, width))
    if entries:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # NumPy's, of lines without an entry
            numbers = np.loadtxt(
                file, comments="%", ndmin=2, max_rows=entries + 1, encoding="latin-1"
            )
    if numbers.shape != (entries, width):
        present = f"{len(numbers):,} of {numbers.shape[1]}"
        raise ValueError(f"it declares {entries:,} entries of {width} numbers but has {present}")
    ends = numbers[:, :2]
    if (ends != np.round(ends)).any() or (ends < 1).any() or (ends > n).any():
        raise ValueError(f"an index is not between 1 and {n:,}")
    columns = {"source": ends[:, 0].astype(np.int64), "target": ends[:, 1].astype(np.int64)}
    return n, columns | ({"weight": numbers[:, 2]} if width == 3 else {})


def is_edge_list(path: Path) -> bool:
    """Whether a path names a file of edges, and not one of the two tables of a folder."""
    node_table = path.stem == "nodes" or path.stem.endswith(".nodes")
    has_nodes = path in table_files(path.parent, "edges") and table_files(path.parent, "nodes")
    return path.suffix in ENDINGS and not (node_table or has_nodes) and path.is_file()
