"""`serve`: 50 requests at once to a model of Cora, in a process of its own, over a real socket.

A time is that of one request as its client sees it, from sending to the last byte; the client runs
on the same cores. In a round all requests are sent together, so the last one waits for all others.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from threading import Barrier
from urllib.parse import urlsplit

import numpy as np

from hoplite.errors import HopliteError, HopliteWarning
from hoplite.lab.bench.measure import Context, Figure, Goal, Outcome
from hoplite.training import train


@dataclass(frozen=True)
class ServeSize:
    """How many requests are sent at once, how often, and how long 95 of 100 may take."""

    at_once: int
    rounds: int
    epochs: int
    ms: float | None = 100.0


QUICK = ServeSize(50, 10, 20)
FULL = ServeSize(50, 60, 200)


def run(context: Context, size: ServeSize) -> Outcome:
    """All kinds of requests mixed as the page sends them, and explanations alone."""
    graph = context.load("cora")
    context.report("training", 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HopliteWarning)
        model = train(graph, "lgc", hops=10, bias=True, seeds=1, epochs=size.epochs).model
    model.save(context.folder / "serve-model", overwrite=True)
    context.report("starting", 0.2)
    with served(context.folder / "serve-model") as address:
        context.report("requests", 0.4)
        mixed = _rounds(address, graph.num_nodes, size, MIXED)
        context.report("explanations", 0.7)
        alone = _rounds(address, graph.num_nodes, size, MIXED[:1])
    goal = None if size.ms is None else Goal.at_most(size.ms, "ms")
    figures, lost = [], 0
    for what, (seconds, missing) in (("mixed", mixed), ("explanations", alone)):
        lost += missing
        for share in (50, 95):
            case = f"{size.at_once} at once, {what}: p{share}"
            value = 1e3 * float(np.percentile(seconds, share)) if seconds else 0.0
            wanted = goal if share == 95 and what == "mixed" else None
            figures.append(Figure(case, value, "ms", goal=wanted, rounds=size.rounds))
    total = 2 * size.at_once * size.rounds
    none = Goal.at_most(0, "") if goal is not None else None
    figures.append(Figure(f"lost, of {total:,}", float(lost), "", goal=none, rounds=size.rounds))
    return Outcome(
        figures, ["the client is http.client, a thread a connection, on the same cores."]
    )


def _explanation(node: str) -> tuple[str, str, str | None]:
    return "GET", f"/api/explanation?id={node}", None


def _node(node: str) -> tuple[str, str, str | None]:
    return "GET", f"/api/node?id={node}", None


def _change(node: str) -> tuple[str, str, str | None]:
    return "POST", "/api/change", json.dumps({"id": node, "features": {"feature 7": 0.5}})


def _nodes(node: str) -> tuple[str, str, str | None]:
    return "GET", f"/api/nodes?prefix={node[:2]}", None


MIXED = (_explanation, _node, _change, _nodes)
Kind = Callable[[str], tuple[str, str, str | None]]


def _rounds(
    address: str, nodes: int, size: ServeSize, kinds: tuple[Kind, ...]
) -> tuple[list[float], int]:
    """The seconds of every request that was answered, and how many were not."""
    rng, seconds, lost = np.random.default_rng(0), [], 0
    host = urlsplit(address).netloc
    together = Barrier(size.at_once)

    def timed(connection: HTTPConnection, kind: Kind, node: str) -> float | None:
        together.wait()
        started = time.perf_counter()
        try:
            connection.request(*kind(node), headers={"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
        except (OSError, HTTPException):
            connection.close()
            return None
        return time.perf_counter() - started if answer.status == 200 else None

    with ExitStack() as opened:
        pool = opened.enter_context(ThreadPoolExecutor(size.at_once))
        made = [HTTPConnection(host, timeout=60) for _ in range(size.at_once)]
        for connection in made:
            opened.callback(connection.close)
        asked = [kinds[i % len(kinds)] for i in range(size.at_once)]
        for number in range(size.rounds + 1):  # the first one opens the connections
            chosen = map(str, rng.integers(0, nodes, size.at_once).tolist())
            found = [one for one in pool.map(timed, made, asked, chosen) if one is not None]
            if number:
                seconds += found
                lost += size.at_once - len(found)
    return seconds, lost


@contextmanager
def served(model: Path) -> Iterator[str]:
    """The address of a server of ``model`` and Cora, which is ended afterwards."""
    words = ["serve", str(model), "cora", "--port", "0", "--json"]
    command = [sys.executable, "-m", "hoplite", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield _address(process)
        finally:
            process.terminate()
            process.wait(30)


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith("}"):
            return json.loads("".join(lines))["address"]
    raise HopliteError("the server of the benchmark did not start.")
