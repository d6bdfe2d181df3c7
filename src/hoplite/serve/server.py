"""A socket, and uvicorn on it until it is asked to end."""

from __future__ import annotations

import contextlib
import gc
import signal
import socket
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn

from hoplite.errors import HopliteError


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens at ``host``; port 0 is any free one. HopliteError if that fails."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends at once (TCP_NODELAY) only where the protocol is named; otherwise a body waits
    # up to 40 ms for the other side to confirm the headers
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(512)
    except (OSError, OverflowError) as error:
        bound.close()
        why = getattr(error, "strerror", None) or error
        raise HopliteError(
            f"cannot listen at {host}, port {port}: {why}; give another --host or --port."
        ) from None
    return bound


def address(host: str, bound: socket.socket) -> str:
    """Where a browser finds it.

    >>> with listen("127.0.0.1", 0) as bound:
    ...     address("127.0.0.1", bound).startswith("http://127.0.0.1:")
    True
    """
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    name = f"[{name}]" if ":" in name else name
    return f"http://{name}:{bound.getsockname()[1]}/"


class _Server(uvicorn.Server):
    """Calls ``ready`` when it answers; a signal ends it without being raised again."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
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
        limit_concurrency=512,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=3,
    )
    gc.collect()
    gc.freeze()  # the model stays; looking for garbage in it would stop all requests for 0.1 s
    with contextlib.closing(bound):
        _Server(config, ready).run(sockets=[bound])
