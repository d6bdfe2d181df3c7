"""Damaged graphs on disk, stores, and model folders: the right numbers, or one sentence.

Each file may be flipped, cut, grown, swapped, removed, replaced by a pipe, a folder or a device, or
have a value of its JSON or its .npy header edited, with a checksum that fits or without one. By
default 40 of each kind of folder are tried, with ``HOPLITE_THOROUGH=1`` 500.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hoplite import Graph, HopliteError, Split, TrainedModel
from hoplite.files import to_json
from hoplite.io.disk_graph import DiskGraph, write_disk_graph
from hoplite.models import build_model, model_config
from hoplite.store import HopStore, propagate

COUNT = 500 if os.environ.get("HOPLITE_THOROUGH") else 40
PATIENCE = 600  # seconds, after which it hangs; the usual is some milliseconds
VALUES = [
    -1, 0, 1, 2, 3, 65_000, 10**9, 10**12, 10**18, 10**30, 0.5, 1e308, -0.0, True, None, "", "x",
    "\x1b]0;", [], {}, [None], [-1], [[0, 10**9]], {"a": 1}, [[[[[[]]]]]], "a" * 10**5,
]  # fmt: skip
TEXTS = ["Infinity", "NaN", "1e999", '"\\ud800"', "[" * 10**5, "1" + "0" * 10**4, "{", "//"]
SHAPES = [b"()", b"(-1,)", b"(10**9,)", b"(999999999999999999, 9)", b"(0,)", b"(1e9,)", b"((1,),)"]


def flip(rng: random.Random, path: Path) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(rng.choice([1, 1, 1, 8])):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def cut(rng: random.Random, path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data))])


def grow(rng: random.Random, path: Path) -> None:
    path.write_bytes(path.read_bytes() + rng.randbytes(rng.randint(1, 200)))


def blank(rng: random.Random, path: Path) -> None:
    data = bytearray(path.read_bytes())
    start = rng.randrange(len(data))
    stop = min(len(data), start + rng.randint(1, 64))
    data[start:stop] = bytes(stop - start)
    path.write_bytes(data)


def swap(rng: random.Random, path: Path) -> None:
    other = rng.choice([one for one in path.parent.iterdir() if one.is_file()])
    first, second = path.read_bytes(), other.read_bytes()
    path.write_bytes(second)
    other.write_bytes(first)


def replace(rng: random.Random, path: Path) -> None:
    path.unlink()
    target = rng.choice(["/dev/zero", "/dev/null", "/", str(path), "/proc/self/mem"])
    rng.choice([os.mkfifo, os.mkdir, lambda p: p.symlink_to(target), lambda p: None])(path)


def edit_json(rng: random.Random, path: Path) -> None:
    """One value, somewhere, becomes another; the checksum goes or is made to fit."""
    try:
        content = json.loads(path.read_text())
    except ValueError:  # it is damaged already
        return
    if not isinstance(content, dict):  # a lock's number came here
        return
    content.pop("checksum", None)
    place = content
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = rng.choice(keys)
        inner = place[key]
        if not isinstance(inner, dict | list) or not inner or rng.random() < 0.3:
            break
        place = inner
    fate = rng.random()
    if fate < 0.15 and isinstance(place, dict):
        del place[key]
    elif fate < 0.3:
        place[key] = "HERE"
        path.write_text(json.dumps(content).replace('"HERE"', rng.choice(TEXTS)))
        return
    else:
        place[key] = rng.choice([*VALUES, inner * 2 if isinstance(inner, int | str) else [inner]])
    path.write_text(to_json(content) if rng.random() < 0.5 else json.dumps(content))


def edit_header(rng: random.Random, path: Path) -> None:
    data = path.read_bytes()
    new = re.sub(rb"\([0-9, ]*\)", rng.choice(SHAPES), data[:128], count=1)
    if rng.random() < 0.3:
        new = data[:10] + rng.choice([b"-" * 9000, b"(" * 9000, b"'descr'" * 20])
    if rng.random() < 0.3:
        new = re.sub(
            rb"'<[a-z][0-9]'", rng.choice([b"'|O'", b"'<U9'", b"'<f9'", b"[]"]), data[:128]
        )
    path.write_bytes(new[:128].ljust(128) + data[128:] if rng.random() < 0.7 else new + data[128:])


def mutate(rng: random.Random, folder: Path) -> str:
    """Damage a file of ``folder``; which and how."""
    path = rng.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
    kinds: list[Callable[[random.Random, Path], None]] = [
        flip,
        flip,
        cut,
        grow,
        blank,
        swap,
        replace,
    ]
    if path.suffix == ".json":
        kinds += [edit_json] * 8
    if path.suffix == ".npy":
        kinds += [edit_header] * 3
    kind = rng.choice(kinds)
    if path.stat().st_size or kind is replace:
        kind(rng, path)
    return f"{kind.__name__} {path.relative_to(folder)}"


def make_graph() -> Graph:
    """Scattered split, text ids, uneven classes, isolated and unlabelled nodes, weights."""
    rng = np.random.default_rng(1)
    n, order = 60, rng.permutation(60)
    labels = np.where(rng.random(n) < 0.8, 0, rng.integers(0, 4, n))
    labels[order[45:]] = -1
    labels[order[:4]] = np.arange(4)
    return Graph.from_edges(
        rng.integers(0, 50, (150, 2)),
        rng.standard_normal((n, 7), np.float32),
        labels,
        weights=rng.uniform(0.5, 2, 150).astype(np.float32),
        split=Split(order[:20], order[20:30], order[30:45]),
        class_names=("ä", "b", "c", "d"),
        node_ids=[f"n{i}" for i in order],
    )


GRAPH = make_graph()


def model() -> TrainedModel:
    config = model_config("hlgc", 3, gate="class", bias=True)
    weights = build_model(config, 7, 4).initial(np.random.default_rng(3))
    return TrainedModel(config, weights, 7, ("ä", "b", "c", "d"), None, {"seed": 3})


def read_graph(folder: Path) -> dict[str, Any]:
    with DiskGraph(folder) as graph:
        rows, split = graph.adjacency_rows.read(0, graph.num_nodes), graph.split
        return {
            "indptr": rows.indptr,
            "indices": rows.indices,
            "values": rows.values,
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
        expected, told = read(whole), 0
        for seed in range(COUNT):
            rng = random.Random(f"{kind} {seed}")
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(whole, folder)
            done = [mutate(rng, folder)]
            if rng.random() < 0.3 and not done[0].startswith("edit_json"):
                done.append(mutate(rng, folder))
            found = outcome(read, folder, f"{seed}: {done}")
            if isinstance(found, str):
                told += 1
                assert len(found.splitlines()) == 1, done
                continue
            if not any(word.startswith("edit_json") for word in done):
                assert found.keys() == expected.keys(), done
            for part in found.keys() & expected.keys():
                same = np.array_equal(found[part], expected[part])
                assert same or any(word.startswith("edit_json") for word in done), (part, done)
        assert told > COUNT / 2
