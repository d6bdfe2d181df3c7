"""A ``.npz`` file of plain arrays with the masks of several splits, as public benchmarks come."""

from __future__ import annotations

import contextlib
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from hoplite.datasets.formats import Format
from hoplite.datasets.npz import NpzFile
from hoplite.datasets.splits import PARTS, masked_split, stratified_split
from hoplite.datasets.tables import prepared_matrix
from hoplite.errors import ConfigError, DatasetError, GraphError
from hoplite.files import open_regular
from hoplite.graph import Graph
from hoplite.preparation import (
    LIST,
    REFUSE,
    Preparation,
    PreparedColumn,
    TableOptions,
    chosen_preparation,
)

MATRIX_OPTIONS = ("scale", "gaps", "directed")  # of tables, that mean something for arrays
FEATURES, LABELS, EDGES = "node_features", "node_labels", "edges"
_ADVICE = f"it needs {FEATURES} or {LABELS}, {EDGES}, and may have train_masks and the like"


def read_masks_npz(
    path: str | Path,
    *,
    seed: int = 0,
    split: int | None = None,
    prepare: Any = None,
    **options: Any,
) -> Graph:
    """Read one graph with several public splits; nothing is unpickled.

    - ``node_features``: (n, d) numbers; without them the graph has no features yet;
    - ``node_labels``: (n,) integers, negative where unknown;
    - ``edges``: (e, 2) node indices; repeated pairs count once, and direction
      counts only if ``directed``;
    - ``train_masks``, ``val_masks``, ``test_masks``: (splits, n) or (n,) booleans, of which
      ``split`` says which counts (0 if None). Without them ``seed`` makes a stratified split.

    Features are used as they are, unless ``scale`` or ``gaps`` are given, which prepare them as a
    column of lists in a node table, or ``prepare`` is a model that was trained on such.
    """
    path = Path(path)
    about_columns = TableOptions.only_for_tables(options)
    given = {name: value for name, value in about_columns.items() if value is not None}
    if given.get("directed") is False:
        del given["directed"]
    for name in given:
        if name not in MATRIX_OPTIONS:
            raise ConfigError(
                f"{name} is given, which says how columns of tables are read, but {path} holds "
                f"arrays; give {', '.join(MATRIX_OPTIONS[:-1])} or {MATRIX_OPTIONS[-1]}, or leave "
                "it out."
            )
    with NpzFile.opened(path, _ADVICE) as file:
        labels = None
        if LABELS in file:
            labels = np.maximum(file.read(LABELS, np.int64, kinds="iu", ndim=1), -1)
        if FEATURES in file:
            features = file.read(FEATURES, np.float32, kinds="fiub", ndim=2)
        elif labels is not None:
            features = np.empty((len(labels), 0), np.float32)
        else:
            raise DatasetError(f"{path} has no array {FEATURES!r} or {LABELS!r}; {_ADVICE}.")
        n = len(features)
        edges = file.read(EDGES, np.int64, kinds="iu", ndim=2, limit=n)
        names = {part: f"{part}_masks" for part in PARTS}
        masks = {
            part: file.read(name, bool, kinds="biu", ndim=2 if file.axes(name) == 2 else 1)
            for part, name in names.items()
            if name in file
        }
    for name, found in ((LABELS, labels), *((names[part], masks[part]) for part in masks)):
        if found is not None and found.shape[-1] != n:
            raise DatasetError(
                f"{name!r} in {path} has shape {found.shape} but {FEATURES!r} has {n:,} rows; "
                "give one value per node."
            )
    if len({mask.shape for mask in masks.values()}) > 1:
        raise DatasetError(f"the masks in {path} have different shapes; give as many of each part.")
    try:
        columns = {part: mask.T for part, mask in masks.items()}
        chosen = masked_split(columns, split, labels, f"from the masks of {path.name}")
        if chosen is None and labels is not None:
            chosen = stratified_split(labels, seed)
        about: dict[str, Any] = {"split": chosen, "name": path.stem}
        about["directed"] = bool(given.get("directed")) or _is_directed(prepare)
        if features.shape[1] and (given or _prepares(prepare)):
            if [*given] == ["directed"]:
                given |= {"scale": "none", "gaps": REFUSE}
            wanted = chosen_preparation(prepare, given)
            features, about["feature_names"], about["preparation"] = prepared_matrix(
                path, FEATURES, features, wanted
            )
        elif features.shape[1]:  # by which a model that was trained on prepared ones refuses them
            column = PreparedColumn(FEATURES, LIST, features.shape[1])
            about["feature_names"] = column.names()
        elif about["directed"]:  # which a model must know
            about["preparation"] = Preparation(TableOptions(directed=True), ())
        return Graph.from_edges(edges, features, labels, **about)
    except GraphError as error:
        raise DatasetError(f"{path} holds no valid graph: {error}") from error


def _prepares(prepare: Any) -> bool:
    """Whether a model, or whatever was given, says how such features are prepared."""
    found = getattr(prepare, "preparation", prepare)
    return any(column.name == FEATURES for column in getattr(found, "fitted", ()))


def _is_directed(prepare: Any) -> bool:
    """Whether a model, or whatever was given, was made with directions."""
    found = getattr(prepare, "preparation", prepare)
    return isinstance(found, Preparation) and found.options.directed


def _recognised(path: Path) -> bool:
    """Whether it is a ``.npz`` file with these arrays; one that is damaged is another format's."""
    if path.suffix != ".npz" or not path.is_file():
        return False
    with (
        contextlib.suppress(zipfile.BadZipFile, ValueError, NotImplementedError),
        open_regular(path) as file,
        zipfile.ZipFile(file) as archive,
    ):
        names = archive.NameToInfo
        return f"{EDGES}.npy" in names and "meta.npy" not in names
    return False


MASKS_NPZ = Format(
    f".npz of {FEATURES}, {LABELS} and {EDGES}",
    _recognised,
    lambda path, seed, split, **preparing: read_masks_npz(
        path, seed=seed, split=split, **preparing
    ),
    splits=True,
    columns=True,
)
