"""From a name, a path or another library's object to a Graph."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from itertools import islice
from pathlib import Path
from typing import Any

from hoplite.config import NAMES, REDDIT, check_number
from hoplite.errors import ConfigError, DatasetError, nearest_hint, option_name, some_of
from hoplite.formatting import listing, short
from hoplite.graph import Graph
from hoplite.io.convert import KNOWN, converted, read_graphml
from hoplite.io.datasets import (
    GRAPH_FILE,
    NODES_FILE,
    has_reddit,
    load_reddit,
    named_dataset,
    reddit_folders,
)
from hoplite.io.edge_list import is_edge_list, read_edge_list, read_matrix_market
from hoplite.io.npz import EDGE_ARRAY, FEATURE_ARRAY, LABEL_ARRAY, USE_SETS, read_npz
from hoplite.io.sources import STEMS, is_postgres, is_tables, suffix_of, table_files, tables_in
from hoplite.io.splits import refuse_split, warn_of_unused_seed
from hoplite.io.tables import read_tables
from hoplite.preparation import TableOptions, refuse_options
from hoplite.structural import (
    count_of_model,
    link_of_model,
    log_degrees_of,
    with_log_degree,
    with_structural,
)


@dataclass(frozen=True)
class Format:
    """A file format, or a folder of files.

    Parameters
    ----------
    what : str
        What a path needs to be of the format, for messages: the files of a folder, or a suffix.
    recognises : callable
        Whether a path, which may not exist, is meant to be of the format; raises only OSError.
    read : callable
        Takes the path and returns the graph; DatasetError if a file is damaged or incomplete. It
        may also take ``split``, the number of a split, and ``seed`` with the options of tables.
    is_folder : bool, default False
        Whether it is a folder.
    """

    what: str
    recognises: Callable[[Path], bool]
    read: Callable[..., Graph]
    is_folder: bool = False


def _ends(suffix: str) -> Callable[[Path], bool]:
    return lambda path: path.suffix == suffix and path.is_file()


# The registry: the first format that recognises a path reads it.
FORMATS = (
    Format(
        "nodes.csv and edges.csv (or .tsv, .csv.gz, .parquet, .jsonl, .xlsx), or a database",
        is_tables,
        read_tables,
        is_folder=True,
    ),
    Format(f"Reddit's {NODES_FILE} and {GRAPH_FILE}", has_reddit, load_reddit, is_folder=True),
    Format(
        f".npz (written by Hoplite, or of {FEATURE_ARRAY}, {LABEL_ARRAY} and {EDGE_ARRAY})",
        _ends(".npz"),
        read_npz,
    ),
    Format(".graphml", _ends(".graphml"), read_graphml),
    Format(".mtx", _ends(".mtx"), read_matrix_market),
    Format("edge list (.csv, .tsv, .txt, .edges)", is_edge_list, read_edge_list),
)
CALLED = {"split_seed": "seed", "split_index": "split"}  # names of the command line


def load(
    source: Any,
    /,
    *,
    seed: int | None = None,
    split: int | None = None,
    structural: int | None = None,
    link: bool = False,
    prepare: Any = None,
    **options: Any,
) -> Graph:
    """Load a graph: by name, from a path, or from an object of another library.

    Parameters
    ----------
    source : str, path or graph
        - ``"cora"``, ``"citeseer"``, ``"pubmed"``: included, with the public Planetoid split;
        - ``"reddit"``: the public files, downloaded by ``hoplite datasets --fetch reddit`` to
          ``$HOPLITE_DATA/reddit`` or the user's cache;
        - ``"reddit-like"``, or ``"reddit-like:0.01"`` for a hundredth of the size: a synthetic
          graph (see :func:`reddit_like`), determined by ``seed``;
        - a folder with a node table and an edge table (see :func:`read_tables`), or with Reddit's
          files (see :func:`load_reddit`);
        - a ``.npz`` file (see :func:`read_npz`), a ``.graphml`` file (see :func:`read_graphml`), a
          ``.mtx`` file (see :func:`read_matrix_market`), or a list of edges (see
          :func:`read_edge_list`);
        - a graph of PyTorch Geometric, NetworkX, igraph, DGL or SciPy, or a pair (nodes, edges) of
          data frames, with the options of :func:`from_pyg`, ..., :func:`from_frames`.

        A name has priority over a folder with the same name; pass ``./cora`` for the folder.
    seed : int, optional
        Seed of a stratified 60/20/20 split. For tables without a split column, all labelled nodes
        are training nodes if it is missing. For other formats without a split, and for synthetic
        graphs, it is 0 by default.
    split : int, optional
        Which split of a file to use if it has several; the first by default.
    structural : int, optional
        Number of structural features to add, see
        :func:`hoplite.structural.structural_features`. By default a graph without features gets 32.
    link : bool, default False
        Add the rows of the adjacency matrix as features, see :mod:`hoplite.structural`.
    prepare : TrainedModel or Preparation, optional
        Prepare the columns of tables, and other named columns, as in its training. It also
        determines ``structural``, ``link`` and the feature "log degree".
    **options
        How tables are read, such as ``scale="robust"``; see :func:`read_tables`. You can pass
        ``task``, what the labels are, for any source; see :meth:`Graph.for_task`.

    Returns
    -------
    Graph

    Examples
    --------
    >>> load("cora")
    Graph(nodes=2708, edges=5278, features=1433, classes=7)
    """
    if seed is not None:
        check_number("seed", seed, 0, whole=True)
    for name, here in CALLED.items():
        if name in options:
            raise ConfigError(f"{name!r} is a command-line option; pass {here}= instead.")
    if isinstance(source, str | os.PathLike):
        TableOptions.check_names(options, signature(load).parameters)
        structural = count_of_model(prepare) if structural is None else structural
        link = link or link_of_model(prepare)
        graph = _load(source, seed, split, {"prepare": prepare} | options)
        graph = with_structural(graph, structural, link=link)
        if degrees := log_degrees_of(prepare):
            graph = graph.with_loop_weight(prepare.loop_weight or graph.loop_weight)
            graph = with_log_degree(graph, degrees)
    else:
        options |= {} if split is None else {"split": split}
        options |= {"structural": structural, "link": link}
        graph = converted(source, seed=seed, prepare=prepare, **options)
        if not isinstance(graph, Graph):
            raise DatasetError(
                f"the graph has type {type(source).__name__}; pass {', '.join(NAMES)}, the path of "
                f"a folder or file, {KNOWN}; for sets of graphs, {USE_SETS}."
            )
    graph = graph.for_task(options.get("task"))
    warn_of_unused_seed(graph, seed)
    return graph


def _load(
    source: str | os.PathLike[str], seed: int | None, split: int | None, options: dict[str, Any]
) -> Graph:
    """Load a named dataset or a path, without structural features."""
    name = source.lower() if isinstance(source, str) else ""
    if name.partition(":")[0] in NAMES:
        refuse_options(name, {**options, "prepare": None})
        refuse_split(name, split)
        graph = named_dataset(name, seed or 0)
        if graph is not None:
            return graph
    named = options.get("nodes") or options.get("edges")
    try:
        if is_postgres(source) or (named and Path(source).exists()):
            refuse_split(source, split)
            return read_tables(source, seed=seed, **options)
        return _load_path(source, seed, split, options)
    except OSError as error:  # a name too long for a file, a folder that is not ours to read
        raise DatasetError(
            f"dataset {short(source)!r} cannot be read: {error.strerror or error}; check the path."
        ) from error


def _load_path(
    source: str | os.PathLike[str], seed: int | None, split: int | None, options: dict[str, Any]
) -> Graph:
    path = Path(source)
    if source != "":  # Path("") is the current folder
        if table_files(path, "graphs") or (path / "graphs.npz").is_file():
            raise DatasetError(f"{path} is a set of graphs; {USE_SETS}.")
        for form in FORMATS:
            if form.recognises(path):
                parameters = signature(form.read).parameters
                if "split" in parameters:
                    return form.read(path, seed=seed, split=split, **options)
                refuse_split(source, split)
                if "seed" in parameters:
                    return form.read(path, seed=seed, **options)
                refuse_options(source, {**options, "prepare": None})
                return form.read(path)
        if path.is_dir():
            if tables := tables_in(path):
                raise DatasetError(
                    f"{path} has no nodes.csv and edges.csv (it has {some_of(tables)}); choose the "
                    f"tables with {option_name('nodes')} and {option_name('edges')}."
                )
            needed = listing([form.what for form in FORMATS if form.is_folder], "or")
            raise DatasetError(f"{path} is not a dataset: it needs {needed}.")
    if path.is_file():
        if path.stem in STEMS and suffix_of(path):
            raise DatasetError(
                f"{path} is one of two tables; pass the folder with nodes and edges, {path.parent}."
            )
        if path.suffix in (".sqlite", ".duckdb", ".db"):
            raise DatasetError(f"{path} is not a SQLite or DuckDB database.")
        formats = ", ".join(form.what for form in FORMATS if not form.is_folder)
        raise DatasetError(
            f"{path} has an unsupported format; use one of {formats}, a SQLite or DuckDB database, "
            "an Excel workbook, or the folder that contains the node and edge tables."
        )
    if str(source).lower() == REDDIT:
        raise DatasetError(
            "reddit is too large to be included in Hoplite; download it with `hoplite datasets "
            f"--fetch reddit` (1.4 GB, to {reddit_folders()[0]}), or pass a folder that contains "
            "it."
        )
    raise DatasetError(
        f"dataset {short(source)!r} is unknown and no such path exists; it must be "
        f"{', '.join(NAMES)} or the path of a folder or file."
        f"{nearest_hint(source, NAMES) or _neighbour_hint(path)}"
    )


def _neighbour_hint(path: Path) -> str:
    """Say which existing folder or file has nearly the name of the first missing part."""
    missing = [part for part in (path, *path.parents) if not part.exists()][-1:]
    names = [other.name for part in missing for other in islice(part.parent.glob("[!.]*"), 1000)]
    return "".join(nearest_hint(part.name, names) for part in missing)
