"""Predictions as a table: one row per node with its id, predicted label and probability."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from hoplite.errors import HopliteError
from hoplite.files import atomic_write
from hoplite.graph import Graph
from hoplite.models.trained import TrainedModel


def predict_table(model: TrainedModel, graph: Graph) -> pa.Table:
    """Column ``id`` (the graph's node ids, or 0 .. n-1) and the columns of the model's task.

    Those of classes are ``predicted`` and ``probability``.
    """
    told = model.task.columns(model.logits(graph), model.class_names)
    ids = np.arange(graph.num_nodes) if graph.node_ids is None else list(graph.node_ids)
    return pa.table({"id": ids, **told})


def write_table(table: pa.Table, path: Path) -> None:
    """Write ``table`` as CSV or Parquet, by the ending of ``path``, completely or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as file:
            if path.suffix.lower() == ".csv":
                pyarrow.csv.write_csv(table, file)
            else:
                pyarrow.parquet.write_table(table, file)
    except OSError as error:
        raise HopliteError(f"cannot write {path}: {error.strerror or error}.") from error
