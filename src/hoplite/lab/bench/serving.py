"""`serve`: 50 requests at once to a model of Cora, in a process of its own, over a real socket.

A time is that of one request as its client sees it, from sending to the last byte; the client runs
on the same cores. In a round all requests are sent together, so the last one waits for all others.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hoplite.errors import HopliteError, HopliteWarning
from hoplite.lab.bench.measure import Context, Figure, Goal, Outcome
from hoplite.peers import find
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
    client = find("httpx")
    if client is None:
        return Outcome([], ["not run: it needs httpx; run `pip install httpx`."])
    graph = context.load("cora")
    context.report("training", 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HopliteWarning)
        model = train(graph, "lgc", hops=10, bias=True, seeds=1, epochs=size.epochs).model
    model.save(context.folder / "serve-model", overwrite=True)
    context.report("starting", 0.2)
    with served(context.folder / "serve-model") as address:
        context.report("requests", 0.4)
        mixed = asyncio.run(_rounds(client, address, graph.num_nodes, size, MIXED))
        context.report("explanations", 0.7)
        alone = asyncio.run(_rounds(client, address, graph.num_nodes, size, MIXED[:1]))
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
    return Outcome(figures, ["the client is httpx in one thread, on the same cores."])


def _explanation(client: Any, node: str) -> Any:
    return client.get("/api/explanation", params={"id": node})


def _node(client: Any, node: str) -> Any:
    return client.get("/api/node", params={"id": node})


def _change(client: Any, node: str) -> Any:
    return client.post("/api/change", json={"id": node, "features": {"feature 7": 0.5}})


def _nodes(client: Any, node: str) -> Any:
    return client.get("/api/nodes", params={"prefix": node[:2]})


MIXED = (_explanation, _node, _change, _nodes)


async def _rounds(
    library: Any, address: str, nodes: int, size: ServeSize, kinds: tuple[Any, ...]
) -> tuple[list[float], int]:
    """The seconds of every request that was answered, and how many were not."""
    rng, seconds, lost = np.random.default_rng(0), [], 0
    limits = library.Limits(max_connections=size.at_once)
    async with library.AsyncClient(base_url=address, limits=limits, timeout=60) as client:

        async def timed(kind: Any, node: int) -> float | None:
            started = time.perf_counter()
            try:
                answer = await kind(client, str(node))
            except library.HTTPError:
                return None
            return time.perf_counter() - started if answer.status_code == 200 else None

        for number in range(size.rounds + 1):  # the first one opens the connections
            chosen = rng.integers(0, nodes, size.at_once)
            asked = [timed(kinds[i % len(kinds)], int(node)) for i, node in enumerate(chosen)]
            found = [one for one in await asyncio.gather(*asked) if one is not None]
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
