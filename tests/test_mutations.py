"""Damaged graphs on disk, stores, and model folders: the right numbers, or one sentence.

The damage is that of ``scripts/hostile.py``: any bytes, other files, and edited JSON and headers,
with a checksum that fits or without one. By default 40 of each kind of folder are tried, with
``HOPLITE_THOROUGH=1`` 500.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scripts.hostile_harm import damage
from tests.conftest import make_graph

from hoplite import HopliteError, TrainedModel
from hoplite.io.disk_graph import DiskGraph, write_disk_graph
from hoplite.models import build_model, model_config
from hoplite.store import HopStore, propagate

COUNT = 500 if os.environ.get("HOPLITE_THOROUGH") else 40
PATIENCE = 600  # seconds, after which it hangs; the usual is some milliseconds


GRAPH = make_graph(60, 7, 4, seed=1, dtype=np.float32)


def model() -> TrainedModel:
    config = model_config("hlgc", 3, gate="class", bias=True)
    weights = build_model(config, 7, 4).initial(np.random.default_rng(3))
    return TrainedModel(config, weights, 7, GRAPH.class_names, None, {"seed": 3})


def read_graph(folder: Path) -> dict[str, Any]:
    graph = DiskGraph(folder)
    rows, split = graph.adjacency_rows.read(0, graph.num_nodes), graph.split
    return {
        "indptr": rows.indptr,
        "indices": rows.indices,
        "values": rows.data,
        "features": graph.feature_rows(0, graph.num_nodes),
        "labels": graph.labels,
        "ids": np.array(graph.node_ids),
    } | {part: getattr(split, part) for part in ("train", "val", "test")}


def read_store(folder: Path) -> dict[str, Any]:
    store = HopStore.open(folder).require_complete()
    hops, split = range(min(store.hops, 3) + 1), store.split
    found = {f"hop {hop}": store.read(0, store.num_nodes, [hop])[0] for hop in hops}
    picked = store.rows([59, 3], [0])[0]
    assert np.array_equal(picked, found["hop 0"][[59, 3]])
    store.verify()
    return found | {"labels": store.labels, "train": split.train, "test": split.test}


def read_model(folder: Path) -> dict[str, Any]:
    return {"logits": TrainedModel.load(folder).logits(GRAPH)}


KINDS: dict[str, tuple[Callable[[Path], Any], Callable[[Path], dict[str, Any]]]] = {
    "graph": (lambda folder: write_disk_graph(GRAPH, folder), read_graph),
    "store": (lambda folder: propagate(GRAPH, folder, hops=3, dtype="float16"), read_store),
    "model": (lambda folder: model().save(folder, result={"accuracy": [0.5, 1]}), read_model),
}


def outcome(read: Callable[[Path], Any], folder: Path, what: str) -> Any:
    """What was read, or the sentence that says why not."""
    signal.alarm(PATIENCE)
    try:
        return read(folder)
    except HopliteError as error:
        return str(error)
    except Exception as error:
        raise AssertionError(what) from error
    finally:
        signal.alarm(0)


@pytest.mark.parametrize("kind", KINDS)
def test_the_right_numbers_or_one_sentence(kind):
    write, read = KINDS[kind]
    memory = Path("/dev/shm")
    place = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place) as name:
        whole, folder = Path(name) / "whole", Path(name) / "damaged"
        write(whole)
        expected, refused = read(whole), 0
        for seed in range(COUNT):
            rng = np.random.default_rng([*kind.encode(), seed])
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(whole, folder)
            done = damage(folder, rng)
            found = outcome(read, folder, f"{seed}: {done}")
            if isinstance(found, str):
                refused += 1
                assert len(found.splitlines()) == 1, done
                continue
            if done.startswith("edit_json"):  # as a checksum that fits tells: it may be another
                continue
            assert found.keys() == expected.keys(), done
            for part, values in expected.items():
                assert np.array_equal(found[part], values), (part, done)
        assert refused > COUNT / 4
