"""From a name or a path to a Graph."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from inspect import signature
from itertools import islice
from pathlib import Path
from typing import Any

from hoplite.config import check_number
from hoplite.dataset_names import EMBEDDED, NAMES, REDDIT_LIKE
from hoplite.datasets.edge_list import EDGE_LIST
from hoplite.datasets.graphml import GRAPHML
from hoplite.datasets.masks_npz import MASKS_NPZ
from hoplite.datasets.matrix_market import MATRIX_MARKET
from hoplite.datasets.npz import NPZ, read_meta, read_npz
from hoplite.datasets.planetoid import PLANETOID
from hoplite.datasets.reddit import REDDIT, find_reddit, load_reddit, reddit_folders
from hoplite.datasets.synthetic import REDDIT_SIZE, reddit_like
from hoplite.datasets.table_reader import other_tables
from hoplite.datasets.tables import TABLES
from hoplite.errors import ConfigError, DatasetError, nearest_hint, some_of
from hoplite.graph import Graph
from hoplite.link import link_of_model
from hoplite.preparation import TableOptions
from hoplite.structural import (
    count_of_model,
    has_log_degree,
    with_log_degree,
    with_structural,
)

# the first that recognises a path reads it
FORMATS = (TABLES, REDDIT, PLANETOID, MASKS_NPZ, NPZ, GRAPHML, MATRIX_MARKET, EDGE_LIST)
CALLED = {"split_seed": "seed", "split_index": "split"}  # what the command line calls otherwise
MOST_SHOWN, MOST_BESIDE = 200, 1000  # letters of a name, files that it is compared with


@dataclass(frozen=True)
class DatasetInfo:
    """What is known of a graph without loading it."""

    name: str
    nodes: int
    edges: int
    features: int
    classes: int
    train: int
    val: int
    test: int


def load(
    source: str | Path,
    /,
    *,
    seed: int = 0,
    split: int | None = None,
    structural: int | None = None,
    link: bool = False,
    prepare: Any = None,
    **options: Any,
) -> Graph:
    """The graph that ``source`` names.

    - ``"cora"``, ``"citeseer"``, ``"pubmed"``: embedded, with the public Planetoid split;
    - ``"reddit"``: the public files from ``$HOPLITE_DATA/reddit`` or the user's cache, where
      ``hoplite datasets --fetch reddit`` puts them;
    - ``"reddit-like"``, or ``"reddit-like:0.01"`` for a hundredth of the size: a synthetic graph
      (see :func:`reddit_like`) that ``seed`` determines;
    - a folder with a node table and an edge table (see :func:`read_tables`), for which ``seed``
      makes the split if there is none;
    - a folder with the Planetoid files ``ind.NAME.*`` of one graph, or ``FOLDER/NAME`` if there
      are several;
    - a folder with Reddit's files (see :func:`load_reddit`);
    - a ``.npz`` file written by :func:`write_npz`, or one of plain arrays with the masks of several
      splits, of which ``split`` says which counts (see :func:`read_masks_npz`);
    - a ``.graphml`` file (see :func:`read_graphml`), a ``.mtx`` file (see
      :func:`read_matrix_market`), or a list of edges (see :func:`read_edge_list`).

    Tables, and other formats whose nodes have named columns, take ``prepare``, a trained model
    whose preparation of the columns is to be used again, and ``options`` such as
    ``scale="robust"``: see :func:`read_tables`. ``task`` may be given for any of them: what the
    labels are, as :meth:`Graph.for_task` takes it.

    A name wins over a folder that is called the same; write ``./cora`` for the folder. A graph
    without features gets structural ones, ``structural`` vectors or 32, and any graph does if
    ``structural`` is given, see :func:`hoplite.structural.structural_features`. If ``prepare`` is a
    model that has such features, there are as many again; so it is with its "log degree". With
    ``link``, which such a model knows too, the rows of the adjacency are features, see
    :mod:`hoplite.link`.

    >>> load("cora")
    Graph(nodes=2708, edges=5278, features=1433, classes=7)
    """
    check_number("seed", seed, 0, whole=True)
    for name, here in CALLED.items():
        if name in options:
            raise ConfigError(f"{name!r} is an option of the command line; give {here}= instead.")
    TableOptions.check_names(options, signature(load).parameters)
    if structural is None:  # those of a model
        structural = count_of_model(prepare)
    link = link or link_of_model(prepare)
    graph = _load(source, seed, split, prepare, options)
    graph = with_structural(graph, structural, link=link)
    if has_log_degree(prepare):
        graph = with_log_degree(graph.with_loop_weight(prepare.loop_weight or graph.loop_weight))
    return graph.for_task(options.get("task"))


def _load(
    source: str | Path, seed: int, split: int | None, prepare: Any, options: dict[str, Any]
) -> Graph:
    name = source.lower() if isinstance(source, str) else None
    if name is not None and name.partition(":")[0] in NAMES:
        refuse_options(name, options)
        if split is not None:
            raise _one_split(source, split)
    if name in EMBEDDED:
        with _embedded(name) as path:
            return read_npz(path)
    if name is not None and name.partition(":")[0] == REDDIT_LIKE:
        return reddit_like(_scale(name), seed=seed)
    if name == "reddit" and (folder := find_reddit()):
        return load_reddit(folder)
    try:
        path = Path(source)
    except TypeError as error:
        raise DatasetError(
            f"source has type {type(source).__name__}; give {', '.join(NAMES)} or the path of a "
            "folder or file, or a graph of another library."
        ) from error
    try:
        return _load_path(source, path, seed, split, {"prepare": prepare, **options})
    except OSError as error:  # a name too long for a file, a folder that is not ours to read
        raise DatasetError(
            f"dataset {_shortened(source)!r} cannot be read: {error.strerror or error}; "
            "check the path."
        ) from error


def _one_split(source: str | Path, split: int) -> ConfigError:
    return ConfigError(
        f"split is {split}, but {_shortened(source)} does not hold several splits; leave it out."
    )


def refuse_options(source: Any, options: dict[str, Any]) -> None:
    """ConfigError if there are ``options`` of tables for a source that is none."""
    for name, value in TableOptions.only_for_tables(options).items():
        if value is not None:
            raise ConfigError(
                f"{name} is given, which says how node and edge tables are read, but "
                f"{_shortened(source)} is none; leave it out."
            )


def _load_path(
    source: str | Path, path: Path, seed: int, split: int | None, preparing: dict[str, Any]
) -> Graph:
    if source != "":  # Path("") is the current folder
        for form in FORMATS:
            if form.recognises(path):
                if split is not None and not form.splits:
                    raise _one_split(source, split)
                if form.columns:
                    return form.read(path, seed, split, **preparing)
                refuse_options(source, {**preparing, "prepare": None})
                return form.read(path, seed, split)
        if path.is_dir():
            if there := other_tables(path):
                raise DatasetError(
                    f"{path} has {some_of(there)}, but no nodes.csv and edges.csv (or .parquet); "
                    "call the table of the nodes and that of the edges so."
                )
            *others, last = (form.what for form in FORMATS if form.is_folder)
            raise DatasetError(f"{path} holds no dataset; it needs {', '.join(others)}, or {last}.")
    if path.is_file():
        suffixes = ", ".join(form.what for form in FORMATS if not form.is_folder)
        raise DatasetError(
            f"{path} is a file but none of {suffixes}; give one, or the folder that holds the node "
            "and edge tables."
        )
    if str(source).lower() == "reddit":
        raise DatasetError(
            "reddit is not shipped with Hoplite because of its size; get it with `hoplite datasets "
            f"--fetch reddit` (1.4 GB, to {reddit_folders()[0]}), or give a folder that holds it."
        )
    raise DatasetError(
        f"dataset {_shortened(source)!r} is unknown and no such path exists; it must be "
        f"{', '.join(NAMES)} or the path of a folder or file."
        f"{nearest_hint(source, NAMES) or nearest_hint(path.name, _beside(path))}"
    )


def _beside(path: Path) -> list[str]:
    """What lies where ``path`` would be; nothing if that cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        return [one.name for one in islice(path.parent.iterdir(), MOST_BESIDE)]
    return []


def available() -> list[DatasetInfo]:
    """The embedded graphs and their sizes.

    >>> [info.name for info in available()]
    ['cora', 'citeseer', 'pubmed']
    """
    return [_info(name) for name in EMBEDDED]


def obtainable() -> list[DatasetInfo]:
    """The graphs that are known by name but not embedded: fetched or generated.

    >>> [info.name for info in obtainable()]
    ['reddit', 'reddit-like']
    """
    split = {"train": 153_431, "val": 23_831, "test": 55_703}
    return [DatasetInfo(name, **REDDIT_SIZE, **split) for name in ("reddit", REDDIT_LIKE)]


def _scale(name: str) -> float:
    """The number behind ``reddit-like:``, or 1."""
    _, colon, text = name.partition(":")
    try:
        return float(text) if colon else 1.0
    except ValueError as error:
        raise DatasetError(
            f"dataset {_shortened(name)!r} has no number behind the colon; write {REDDIT_LIKE} or, "
            f"for a hundredth of its nodes and edges, {REDDIT_LIKE}:0.01."
        ) from error


def _info(name: str) -> DatasetInfo:
    with _embedded(name) as path:
        meta = read_meta(path)
    return DatasetInfo(name, meta.nodes, meta.edges, meta.features, meta.classes, **meta.split)


@contextlib.contextmanager
def _embedded(name: str) -> Iterator[Path]:
    with resources.as_file(resources.files("hoplite.datasets") / "data" / f"{name}.npz") as path:
        yield path


def _shortened(source: str | Path) -> str:
    text = str(source)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."
