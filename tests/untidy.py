"""What hypothesis draws for the tests: graphs as people have them, and ways to cut them."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from hypothesis import strategies as st

from hoplite import Graph, Split
from hoplite.bases import EXAMPLES
from hoplite.models import idle_settings
from hoplite.nets.hlgc import GATES
from hoplite.operators import SYMMETRIC
from hoplite.store import propagate
from hoplite.store.files import read_manifest

UNTRAINED = "ignore:.*cannot be predicted:hoplite.HopliteWarning"  # a class only in test
SEEDS = st.integers(0, 2**32 - 1)


@st.composite
def graphs(draw: Any, least: int = 6, most: int = 60) -> Graph:
    """A weighted graph with isolated nodes, uneven classes (the last one may be only in test), a
    split scattered over the nodes that leaves some out, dense or sparse features."""
    rng = np.random.default_rng(draw(SEEDS))
    n, d = draw(st.integers(least, most)), draw(st.integers(1, 9))
    classes = draw(st.integers(2, 4))
    linked = rng.permutation(n)[: draw(st.integers(0, n))]
    upper = np.triu(rng.random((n, n)) < draw(st.floats(0.02, 0.6)), 1)
    edges = np.argwhere(upper)
    edges = edges[np.isin(edges, linked).all(axis=1)]
    weights = rng.uniform(0.01, 5, len(edges)) if draw(st.booleans()) else None
    features = rng.standard_normal((n, d)).astype(np.float32)
    features *= rng.random((n, d)) < draw(st.floats(0.2, 1))
    chances = np.array([1, 0.5, 0.2, 0.05])[:classes]
    labels = rng.choice(classes, n, p=chances / chances.sum())
    order, cuts = rng.permutation(n), np.sort(rng.integers(1, n + 1, 3))
    train, val, test = np.split(order[: cuts[2]], cuts[:2])
    labels[train[0]] = 0
    if test.size:
        labels[test[0]] = classes - 1
    labels[order[cuts[2] :]] = -1
    return Graph.from_edges(
        edges,
        sp.csr_array(features) if draw(st.booleans()) else features,
        labels,
        weights=weights,
        split=Split(train, val, test),
        class_names=[f"class {i}" for i in range(classes)],
    )


@st.composite
def options(draw: Any, models: tuple[str, ...] = ("sgc", "egc", "lgc", "hlgc")) -> dict[str, Any]:
    """Options of ``train`` for one of ``models``, with Adam, of few epochs, without dropout."""
    model = draw(st.sampled_from(models))
    found = {
        "model": model,
        "hops": draw(st.integers(0, 4)),
        "operator": draw(st.sampled_from(sorted(SYMMETRIC))),
        "bias": draw(st.booleans()),
        "epochs": draw(st.integers(1, 3)),
        "lr": draw(st.sampled_from([0.01, 0.1])),
        "weight_decay": draw(st.sampled_from([0.001, 0.05])),
        "patience": draw(st.integers(1, 3)),
        "batch": draw(st.sampled_from([0, 0, 1, 3, 7])),
        "dropout": 0.0,
    }
    if model in ("lgc", "hlgc"):
        found["basis"] = draw(st.sampled_from(EXAMPLES))
    if model == "hlgc":
        found["gate"] = draw(st.sampled_from(GATES))
    return {name: value for name, value in found.items() if name not in idle_settings(model)}


def folder() -> tempfile.TemporaryDirectory[str]:
    """A folder in memory where there is one, as blocks are synced one by one."""
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None
    return tempfile.TemporaryDirectory(dir=place, ignore_cleanup_errors=True)


def cut_store(graph: Graph, out: Path, rows: int, columns: int, **settings: Any) -> None:
    """An empty store of ``graph`` with blocks of these sizes; propagate keeps to them."""
    with folder() as scratch:
        propagate(graph, scratch, **settings)
        manifest = read_manifest(Path(scratch))
    d = manifest.columns
    panels = tuple((first, min(first + columns, d)) for first in range(0, d, columns))
    out.mkdir(parents=True)
    dataclasses.replace(manifest, rows_per_block=rows, panels=panels).write(out)
