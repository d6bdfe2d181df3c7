"""A socket, and uvicorn on it until it is asked to end."""

from __future__ import annotations

import contextlib
import errno
import gc
import signal
import socket
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn

from hoplite.errors import HopliteError

BACKLOG = 512
MOST_CONNECTIONS = 1000


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 is any free one. HopliteError if it cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends at once (TCP_NODELAY) only where the protocol is named; otherwise a body waits
    # up to 40 ms for the other side to confirm the headers
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        made.close()
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            raise HopliteError(
                f"port {port} of {host} is taken by another program; give another --port, or 0 "
                "for any that is free."
            ) from None
        why = getattr(error, "strerror", None) or error
        raise HopliteError(
            f"cannot listen at {host}, port {port}: {why}; give another --host or --port."
        ) from None
    return made


def address(host: str, bound: socket.socket) -> str:
    """Where a browser finds it.

    >>> with listen("127.0.0.1", 0) as bound:
    ...     address("127.0.0.1", bound).startswith("http://127.0.0.1:")
    True
    """
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    shown = f"[{shown}]" if ":" in shown else shown
    return f"http://{shown}:{bound.getsockname()[1]}/"


class _Server(uvicorn.Server):
    """Tells when it listens, and ends by a signal as by any other wish."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # not kept, as uvicorn raises again what it keeps
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True


def run(app: Any, bound: socket.socket, ready: Callable[[], None]) -> None:
    """Serve ``app`` until SIGINT or SIGTERM; ``ready`` is called once it answers."""
    config = uvicorn.Config(
        app,
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=3,
    )
    # what is there by now stays; looking for garbage in it would stop all requests for 0.1 s
    gc.collect()
    gc.freeze()
    try:
        with contextlib.closing(bound):
            _Server(config, ready).run(sockets=[bound])
    finally:
        gc.unfreeze()
