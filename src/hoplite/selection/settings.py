"""Everything that decides the results of a search, as plain values that a ledger keeps."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from hoplite.config import split_options
from hoplite.errors import ConfigError
from hoplite.graph import Graph
from hoplite.models import build_model
from hoplite.propagation.engine import Propagation
from hoplite.training.runs import run_bytes
from hoplite.version import VERSION

CELL_RUNS = 45  # at most: more hardly train faster, and a crash costs less
CELL_BYTES = 2**30


def search_settings(
    graph: Graph, model: str, configurations: Sequence[Mapping[str, Any]], seeds: list[int]
) -> dict[str, Any]:
    """Everything that decides the results, as plain JSON values."""
    if not configurations:
        raise ConfigError("configurations is empty; give at least one.")
    full = [full_options(model, options) for options in configurations]
    return {
        "hoplite": VERSION,
        "dataset": graph.name,
        "graph": graph_digest(graph),
        "model": model,
        "seeds": seeds,
        "configurations": full,
        "cells": cells_of(graph, model, full, len(seeds)),
    }


def full_options(model: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """``options`` of ``train`` with all that were left out at their defaults."""
    config, training = split_options(model, dict(options))
    full = dataclasses.asdict(config) | dataclasses.asdict(training)
    del full["model"]
    return full


def cells_of(
    graph: Graph, model: str, configurations: list[dict[str, Any]], seeds: int
) -> list[list[int]]:
    """Positions of the configurations that train together: of one shape, not too many."""
    groups: dict[Any, list[int]] = {}
    for position, options in enumerate(configurations):
        config, training = split_options(model, options)
        together = dataclasses.replace(training, lr=1.0, weight_decay=0.0, dropout=0.0)
        groups.setdefault((config, together, training.dropout == 0), []).append(position)
    cells = []
    for (config, training, _), positions in groups.items():
        shape = build_model(config, graph.num_features, graph.num_classes)
        propagation = Propagation(graph, config.operator, config.basis, config.hops)
        most = min(CELL_RUNS, CELL_BYTES // run_bytes(shape, propagation))
        if training.optimizer == "lbfgs" or not config.kind.many_at_once:
            most = 1
        step = max(1, most // seeds)
        cells += [positions[i : i + step] for i in range(0, len(positions), step)]
    return cells


def graph_digest(graph: Graph) -> str:
    """A fingerprint of everything in the graph that training reads."""
    features: Any = graph.features
    digest = hashlib.sha256()
    parts = [graph.adjacency.indptr, graph.adjacency.indices, graph.adjacency.data]
    if sp.issparse(features):
        parts += [features.indptr, features.indices, features.data]
    else:
        parts.append(np.asarray(features))
    parts += [graph.labels, graph.split.train, graph.split.val, graph.split.test]
    for part in parts:
        array = np.ascontiguousarray(part)
        if array.dtype.kind in "iu":  # the width of an index is no difference
            array = array.astype(np.int64)
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()[:16]
