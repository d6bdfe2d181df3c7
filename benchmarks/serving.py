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
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from threading import Barrier
from urllib.parse import urlsplit

import numpy as np

from benchmarks.measure import Context, Figure, Goal, Outcome
from hoplite import HopliteError, HopliteWarning, train

Request = Callable[[str], tuple[str, str, str | None]]  # of a node: method, address and body
EXPLANATION: Request = lambda node: ("GET", f"/api/explanation?id={node}", None)  # noqa: E731
MIXED: tuple[Request, ...] = (
    EXPLANATION,
    lambda node: ("GET", f"/api/node?id={node}", None),
    lambda node: ("POST", "/api/change", json.dumps({"id": node, "features": {"feature 7": 0.5}})),
    lambda node: ("GET", f"/api/nodes?prefix={node[:2]}", None),
)


def run(context: Context, at_once: int = 50) -> Outcome:
    """All types of requests mixed as the page sends them, and explanations alone."""
    rounds, epochs = (10, 20) if context.quick else (60, 200)
    graph = context.load("cora")
    context.report("training")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HopliteWarning)
        model = train(graph, "lgc", hops=10, bias=True, seeds=1, epochs=epochs).model
    model.save(context.folder / "serve-model", overwrite=True)
    figures, lost = [], 0
    with served(context.folder / "serve-model") as address:
        for what, requests in (("mixed", MIXED), ("explanations", (EXPLANATION,))):
            context.report(what)
            seconds, missing = send(address, graph.num_nodes, at_once, rounds, requests)
            lost += missing
            for share in (50, 95):
                value = 1e3 * float(np.percentile(seconds, share)) if seconds else 0.0
                goal = Goal.at_most(100, "ms") if (what, share) == ("mixed", 95) else None
                figures.append(
                    Figure(f"{at_once} at once, {what}: p{share}", value, "ms", goal=goal)
                )
    case = f"lost, of {2 * at_once * rounds:,}"
    figures.append(Figure(case, float(lost), "", goal=Goal.at_most(0)))
    return Outcome(
        figures, ["the client is http.client, a thread a connection, on the same cores."]
    )


def send(
    address: str, nodes: int, at_once: int, rounds: int, requests: tuple[Request, ...]
) -> tuple[list[float], int]:
    """The seconds of every request that was answered, and how many were not."""
    rng, seconds, together = np.random.default_rng(0), [], Barrier(at_once)

    def timed(connection: HTTPConnection, request: Request, node: str) -> float | None:
        together.wait()
        started = time.perf_counter()
        try:
            connection.request(*request(node), headers={"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
        except (OSError, HTTPException):
            connection.close()
            return None
        return time.perf_counter() - started if answer.status == 200 else None

    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(at_once))
        host = urlsplit(address).netloc
        connections = [HTTPConnection(host, timeout=60) for _ in range(at_once)]
        for connection in connections:
            stack.callback(connection.close)
        order = [requests[i % len(requests)] for i in range(at_once)]
        for number in range(rounds + 1):  # the first one opens the connections
            chosen = map(str, rng.integers(0, nodes, at_once).tolist())
            times = list(pool.map(timed, connections, order, chosen))
            if number:
                seconds += times
    answered = [one for one in seconds if one is not None]
    return answered, len(seconds) - len(answered)


@contextmanager
def served(model: Path) -> Iterator[str]:
    """The address of a server of ``model`` and Cora, which is ended afterwards."""
    words = ["serve", str(model), "cora", "--port", "0", "--json"]
    command = [sys.executable, "-m", "hoplite", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            lines = []
            for line in process.stdout or ():
                lines.append(line)
                if line.startswith("}"):
                    break
            else:
                raise HopliteError("the server of the benchmark did not start.")
            yield json.loads("".join(lines))["address"]
        finally:
            process.terminate()
            process.wait(30)
