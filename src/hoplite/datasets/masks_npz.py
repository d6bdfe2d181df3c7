"""A ``.npz`` file of plain arrays with the masks of several splits, as public benchmarks come."""

from __future__ import annotations

import contextlib
import zipfile
from pathlib import Path

import numpy as np

from hoplite.datasets.formats import Format
from hoplite.datasets.npz import NpzFile
from hoplite.datasets.splits import PARTS, masked_split, stratified_split
from hoplite.errors import DatasetError, GraphError
from hoplite.files import open_regular
from hoplite.graph import Graph

FEATURES, LABELS, EDGES = "node_features", "node_labels", "edges"
_ADVICE = f"it needs {FEATURES} or {LABELS}, {EDGES}, and may have train_masks and the like"


def read_masks_npz(path: str | Path, *, seed: int = 0, split: int | None = None) -> Graph:
    """Read one graph with several public splits; nothing is unpickled.

    - ``node_features``: (n, d) numbers; without them the graph has no features yet;
    - ``node_labels``: (n,) integers, negative where unknown;
    - ``edges``: (e, 2) node indices; direction is ignored, repeated pairs count once;
    - ``train_masks``, ``val_masks``, ``test_masks``: (splits, n) or (n,) booleans, of which
      ``split`` says which counts (0 if None). Without them ``seed`` makes a stratified split.
    """
    path = Path(path)
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
        return Graph.from_edges(edges, features, labels, split=chosen, name=path.stem)
    except GraphError as error:
        raise DatasetError(f"{path} holds no valid graph: {error}") from error


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
    lambda path, seed, split: read_masks_npz(path, seed=seed, split=split),
    splits=True,
)
