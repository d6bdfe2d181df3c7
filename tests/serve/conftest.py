"""Tables with hostile names, a model of them, and the server in a real process."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import signal
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.commands import start

import hoplite
from hoplite import HopliteWarning, TrainedModel

SCRIPT = "<script>alert(1)</script>"
IMAGE = '"><img src=x onerror=alert(2)>'
IDS = [
    SCRIPT,
    IMAGE,
    "Zoë, 'the' \"first\"",
    "a/b?c=d&e=f#g",
    "日本",
    "__proto__",
    "7",
    "-",
    "{{ 7 * 7 }}",
]
TOWN = "<b>Ulm</b>"
AMOUNT = "<i>amount</i>"
NODES = 60


def cells(seed: int = 3) -> list[dict[str, str]]:
    """Rows of a node table: text ids in no order, gaps, dates, rare words, isolated nodes."""
    rng = np.random.default_rng(seed)
    ids = [*IDS, *(f"p{i}" for i in rng.permutation(NODES - len(IDS)))]

    def gap(value: Any) -> str:
        return "" if rng.random() < 0.2 else str(value)

    def some(*labels: str) -> str:
        return "|".join(label for label in labels if rng.random() < 0.5) or "|"

    return [
        {
            "who": name,
            "town": gap(rng.choice([TOWN, "Bonn", "Oslo"], p=[0.5, 0.4, 0.1])),
            AMOUNT: f"{np.exp(rng.normal(5, 2)):.2f}",
            "age": gap(round(float(rng.normal(40, 12)), 1)),
            "member": gap(["false", "true"][rng.integers(2)]),
            "since": gap(f"20{rng.integers(10, 24)}-0{rng.integers(1, 10)}-11"),
            "kind": gap([SCRIPT, "dog", "cat"][min(int(rng.exponential(0.8)), 2)]),
            "price": f"{rng.normal(300, 50):.3f}",
            "likes": gap(some("art", SCRIPT, "tea")),
        }
        for name in ids
    ]


def write(folder: Path, rows: list[dict[str, str]]) -> Path:
    """The tables; five nodes have no edge, weights span magnitudes, some edges are there twice."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "nodes.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    rng = np.random.default_rng(1)
    with (folder / "edges.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["source", "target", "weight"])
        for a, b in rng.integers(0, len(rows) - 5, (150, 2)):
            writer.writerow([rows[a]["who"], rows[b]["who"], f"{10 ** rng.uniform(-2, 2):.3g}"])
    return folder


def trained(folder: Path, kind: str = "lgc", label: str = "kind", **options: Any) -> TrainedModel:
    """A model of the tables, in which the other labels are no features."""
    drop = [name for name in ("kind", "price", "likes") if name != label]
    tables = {"id": "who", "label": label, "drop": drop, "directed": kind == "lgc"}
    tables |= {name: options.pop(name) for name in ("task",) if name in options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HopliteWarning)  # of the noise in these tables
        graph = hoplite.load(folder, **tables)
        usual = {"hops": 2, "epochs": 30, "dropout": 0.0}
        own = hoplite.models.find_model(kind).settings()
        options = {name: value for name, value in usual.items() if name in own} | options
        return hoplite.train(graph, kind, seeds=1, **options).model


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("serve") / "people", cells())


@pytest.fixture(scope="session")
def model(tables: Path) -> TrainedModel:
    made = trained(tables, bias=True, calibrate=True)
    made.save(tables.parent / "model")
    return made


@pytest.fixture(scope="session")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., hoplite.Graph]:
    """The graph of tables that were written again, with other cells of one node."""

    def load(model: TrainedModel, node: str, values: dict[str, str]) -> hoplite.Graph:
        rows = cells()
        next(row for row in rows if row["who"] == node).update(values)
        folder = write(tmp_path_factory.mktemp("changed") / "people", rows)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", HopliteWarning)
            return hoplite.load(folder, prepare=model)

    return load


@contextlib.contextmanager
def serving(*words: Any, log: Path, **options: Any) -> Iterator[tuple[dict[str, Any], Any]]:
    """`hoplite serve WORDS` in a process: what it prints, and the process, which is ended."""
    process = start("serve", *words, "--port", 0, "--json", log=log, **options)
    try:
        process.wait_until(lambda: "}" in log.read_text(encoding="utf-8"))
        text = log.read_text(encoding="utf-8")
        yield json.loads(text[text.index("{") : text.index("}") + 1]), process
    finally:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGTERM)
            process.wait(600)


@pytest.fixture(scope="session")
def address(model: TrainedModel, tables: Path, tmp_path_factory: pytest.TempPathFactory):
    """Where the tables and their model are served."""
    log = tmp_path_factory.mktemp("log") / "serve.txt"
    with serving(tables.parent / "model", tables, log=log) as (report, _):
        yield report["address"].rstrip("/")


def apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a function in a thread of its own, where no event loop of others runs."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *arguments).result()


@pytest.fixture(scope="session")
def browser(chromium_options):
    """Chromium in a thread: what it is asked is a function of it."""
    playwright = pytest.importorskip("playwright.sync_api")
    with ThreadPoolExecutor(1) as pool:
        driver = pool.submit(lambda: playwright.sync_playwright().start()).result()
        chromium = pool.submit(lambda: driver.chromium.launch(**chromium_options)).result()
        yield lambda function: pool.submit(function, chromium).result()
        pool.submit(chromium.close).result()
        pool.submit(driver.stop).result()
